"""The modules by which commands find out whether their extra is installed; needs the standard library alone."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode

CLI = ("rich", "textual_image", "typer")
"""Every command imports these."""

BUILD = ("apache_beam", "jinja2", "psutil", "pyarrow", "pydantic", "tensorflow", "tensorflow_transform", "yaml")
"""Commands that read a spec or sources need these; sentencepiece and TensorFlow Text, some specs alone."""

BEAM = ("apache_beam",)
"""Commands that read sources at URLs need it."""

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
    """Ends a command with one line where modules of its extra are not installed.

    Raises:
        MissingExtraError: some are missing.
    """
    if names := missing(modules):
        raise MissingExtraError(
            f'this command needs an extra: pip install "recordmill[{extra}]" (missing: {", ".join(names)})'
        )


def check_build_extra() -> None:
    """Ends a command with one line where modules are missing that reading a spec, building or repairing needs.

    Raises:
        MissingExtraError: some are missing.
    """
    check_extra("build", BUILD)
