"""The modules by which commands find out whether their extra is installed; imports the standard library alone."""

from collections.abc import Iterable
from importlib.util import find_spec

CLI = ("rich", "typer")
"""Every command imports these."""

BUILD = ("apache_beam", "psutil", "pyarrow", "pydantic", "tensorflow", "tensorflow_transform", "yaml")
"""Commands that read a spec or sources need these; sentencepiece and TensorFlow Text, some specs alone."""


def missing(modules: Iterable[str]) -> list[str]:
    """Lists the modules that are not installed, without importing any."""
    return [module for module in modules if find_spec(module) is None]
