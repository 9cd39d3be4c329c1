"""Files that appear whole or not at all."""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def attempt_name(prefix: str) -> str:
    """A name that no other attempt at the same step has."""
    return f"{prefix}.{uuid.uuid4().hex}"


def is_unfinished(path: str) -> bool:
    """Whether a file has a name that `replacing` gives it until it is whole."""
    return re.search(r"\.[0-9a-f]{32}$", path) is not None


@contextmanager
def replacing(path: str | Path, temporary: str | Path | None = None, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Opens a new file that replaces `path` once it is whole on the disk; after an error it is removed.

    Args:
        path: the file to be replaced, which need not exist.
        temporary: the new file's name while it is written, in the same folder; by default one that no other has.
        durable: whether to wait until it is on the disk.
    """
    temporary = attempt_name(str(path)) if temporary is None else temporary
    try:
        with open(temporary, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def write_atomically(path: str | Path, data: bytes, temporary: str | Path | None = None) -> None:
    """Writes a file that appears whole or not at all, as `replacing`."""
    with replacing(path, temporary) as file:
        file.write(data)


def sync(path: str | Path) -> None:
    """Brings a file's content, or a folder's entries, to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: str) -> None:
    """Brings everything in a local folder to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(parent, name))
        sync(parent)
