"""The packages that a command needs; loads the standard library alone.

>>> check_extra("report", ("json",))
>>> missing(("json", "no_such_module"))
['no_such_module']
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from recordmill.pipeline.errors import ExitCode, UserError

CLI = ("rich", "typer")
"""Every command imports these."""

BUILD = ("apache_beam", "jinja2", "psutil", "pyarrow", "pydantic", "tensorflow", "tensorflow_transform", "yaml")
"""Commands that read a spec or sources need these; sentencepiece and TensorFlow Text, some specs alone."""

EXPORT = ("pyarrow", "pydantic", "yaml")
"""`export` needs these."""

REPORT = ("jinja2", "pyarrow")
"""`report` needs these."""

SOURCES = ("psutil", "pyarrow", "pydantic", "yaml")
"""Commands that read sources, and neither build nor analyze, need these."""


class MissingExtraError(UserError):
    """Packages of an extra are not installed."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


def missing(modules: Iterable[str]) -> list[str]:
    """Lists the modules that are not installed, without importing any."""
    return [module for module in modules if find_spec(module) is None]


def check_extra(extra: str, modules: Iterable[str]) -> None:
    """Raises: MissingExtraError: modules of the extra are not installed."""
    if names := missing(modules):
        raise MissingExtraError(
            f'this command needs an extra: pip install "recordmill[{extra}]" (missing: {", ".join(names)})'
        )


def check_build_extra() -> None:
    """Raises: MissingExtraError: modules are missing that read a spec, build or repair."""
    check_extra("build", BUILD)
