"""The packages that commands need; imports only the standard library.

>>> check_extra("report", ("json",))
>>> missing(("json", "no_such_module"))
['no_such_module']
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from recordmill.pipeline.errors import ExitCode, UserError

CLI = ("rich", "typer")  # for every command
BUILD = ("apache_beam", "jinja2", "psutil", "pyarrow", "pydantic", "tensorflow", "tensorflow_transform", "yaml")
"""For commands that read a spec or sources; only some specs need sentencepiece and TensorFlow Text."""
EXPORT = ("pyarrow", "pydantic", "yaml")
REPORT = ("jinja2", "pyarrow")
SOURCES = ("psutil", "pyarrow", "pydantic", "yaml")  # for commands that read sources, but neither build nor analyze


class MissingExtraError(UserError):
    """An extra is not installed."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


def missing(modules: Iterable[str]) -> list[str]:
    """Lists the modules not installed, without importing any."""
    return [module for module in modules if find_spec(module) is None]


def check_extra(extra: str = "build", modules: Iterable[str] = BUILD) -> None:
    """Raises: MissingExtraError: modules of the extra are missing, by default those that read a spec, or build."""
    if names := missing(modules):
        install = f'pip install "recordmill[{extra}]" (missing: {", ".join(names)})'
        raise MissingExtraError(f"this command needs an extra: {install}")
