"""Rejects of keyed rows, which know their chunk, their position in it and their key."""

import pyarrow as pa

from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.typing.faults import Fault


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
