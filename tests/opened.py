"""Which files a piece of code opens, as Python itself tells it (`sys.addaudithook`): what is refused is not read."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_watching: list[list[str]] = []


def _on_event(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event == "open" and isinstance(arguments[0], str | bytes):
        _watching[-1].append(os.path.realpath(os.fsdecode(arguments[0])))


sys.addaudithook(_on_event)  # it cannot be taken back: it does nothing while nobody watches


@contextmanager
def opened() -> Iterator[list[str]]:
    """Gives the real paths of all files that are opened in the block, by any thread."""
    paths: list[str] = []
    _watching.append(paths)
    try:
        yield paths
    finally:
        _watching.remove(paths)
