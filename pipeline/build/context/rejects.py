"""Rejects of keyed rows, and their files in the workspace: one for each chunk and shard that has any."""

import errno
import json
import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

from recordmill.pipeline.build.context.workspace import Workspace, read_all
from recordmill.pipeline.dataset.atomic_files import attempt_name
from recordmill.pipeline.sources.faults import Fault, Reject


def reject_row(rows: pa.Table, row: int, fault: Fault, first: tuple[int, int] | None = None) -> Reject:
    """Makes the reject of a keyed row; `first` is the chunk and position of the row that stays in its place."""
    (values,) = rows.slice(row, 1).select(["@key", "@chunk", "@position"]).to_pylist()
    key = values["@key"].decode("utf-8", "replace")
    first_chunk, first_position = first or (None, None)
    return Reject(
        values["@chunk"], values["@position"], fault.reason, fault.message, key, fault.column, fault.path,
        first_chunk, first_position,
    )  # fmt: skip


def reject_duplicate_key(rows: pa.Table, row: int, first: tuple[int, int]) -> Reject:
    """Makes the reject of a row whose key another has, which was read at chunk and position `first` and stays."""
    return reject_row(rows, row, Fault("duplicate_key", "another row has the same key", None), first)


def write_rejects(workspace: Workspace, prefix: str, rejects: list[Reject]) -> str | None:
    """Writes a step's rejects under a name that no repetition has; returns the name, None where there are none."""
    if not rejects:
        return None
    name = f"{attempt_name(prefix)}.jsonl"
    lines = "".join(json.dumps(reject.to_json()) + "\n" for reject in rejects)
    workspace.write(name, lines.encode())
    return name


def read_rejects(workspace: Workspace, names: Iterable[str]) -> Iterator[Reject]:
    """Reads the rejects of several steps back. Raises: FileNotFoundError."""
    for name, data in read_all(workspace, names):
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{workspace.url}/{name}")
        for line in data.splitlines():
            yield Reject(**json.loads(line))
