"""Files that appear whole or not at all, and the small JSON reports of a build's steps.

The rename of a report is its step's commit: a repeated step writes the same report again.
"""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


def attempt_name(prefix: str) -> str:
    """A name that no other attempt at the same step has."""
    return f"{prefix}.{uuid.uuid4().hex}"


@contextmanager
def replacing(path: str | Path, temporary: str | Path | None = None) -> Iterator[BinaryIO]:
    """Opens a new file that replaces `path` once it is whole on the disk; after an error it is removed.

    Args:
        path: the file to be replaced, which need not exist.
        temporary: the new file's name while it is written, in the same folder; by default one that no other has.
    """
    temporary = attempt_name(str(path)) if temporary is None else temporary
    try:
        with open(temporary, "wb") as file:
            yield file
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


def write_report(folder: str, name: str, report: dict[str, Any]) -> None:
    """Writes `folder/name.json`."""
    write_atomically(os.path.join(folder, f"{name}.json"), json.dumps(report).encode())


def read_report(folder: str, name: str) -> dict[str, Any] | None:
    """Reads a report; None if it does not exist."""
    try:
        report: dict[str, Any] = json.loads(Path(folder, f"{name}.json").read_bytes())
    except FileNotFoundError:
        return None
    return report
