"""Constants of our modules, such as the most bytes of a line, that a test sets to other values."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest


@contextmanager
def constants(module: ModuleType, **values: Any) -> Iterator[None]:
    """Sets a module's constants, as a block or as a test's decorator: `@constants(lines, PIECE_BYTES=7)`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(module, name, value)
        yield
