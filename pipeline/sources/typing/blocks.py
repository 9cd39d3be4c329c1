"""The last step of every source: rows that were parsed and typed become a block of good rows and rejects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.dataset.placement import join_key
from recordmill.pipeline.sources.base import Block, Chunk
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.encoded import is_utf8
from recordmill.pipeline.sources.image_refs import parse
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.typing.checks import UTF8, check_column
from recordmill.pipeline.sources.typing.faults import Fault, Faults


@dataclass(frozen=True)
class RawRows:
    """Some rows of a chunk, typed, before any check."""

    columns: Mapping[str, pa.Array]
    """Each of shape [rows], of its column's Arrow type, with nulls."""
    positions: npt.NDArray[np.int64]
    """The position of each row in the chunk, shape [rows], rising."""
    keys: pa.Array | None
    """Default keys as Arrow `binary`, shape [rows], null where unknown; None where the key is made of columns."""
    covered: int
    """The number of positions of the chunk that these rows cover, blank lines included."""
    faults: Faults = field(default_factory=dict)
    """The faults that are already known."""
    unparsed: Sequence[Reject] = ()
    """The rows that have no columns."""


def make_block(
    chunk: Chunk, raw: RawRows, columns: Columns, key: Sequence[str] | None, encoding: str = "utf-8"
) -> Block:
    """Checks rows, and makes a block of those that have no fault, and rejects of the others.

    Args:
        chunk: where the rows were read.
        raw: the rows; the faults that are found are added to its own.
        columns: what is asked for; they are checked in this order.
        key: the columns that make the key, for the rejects; None where the default key is asked for.
        encoding: the encoding of the file, for messages.
    """
    faults, keys = raw.faults, raw.keys
    checked = {name: check_column(name, column, raw.columns[name], faults) for name, column in columns.items()}
    table = pa.table({**checked, "@position": raw.positions} | ({} if keys is None else {"@key": keys}))
    rejects = list(raw.unparsed)
    for row, fault in faults.items():
        known = _key(keys, row, checked, key or ())
        rejects.append(as_reject(chunk, int(raw.positions[row]), _in_encoding(fault, encoding), known))
    if faults:
        good = np.ones(len(raw.positions), bool)
        good[list(faults)] = False
        table = table.filter(pa.array(good))
    return Block(table, sorted(rejects, key=lambda reject: reject.position), raw.covered)


def as_reject(chunk: Chunk, position: int, fault: Fault, key: str | None = None) -> Reject:
    """Makes the reject of a row that has a fault."""
    return Reject(chunk.index, position, fault.reason, fault.message, key, fault.column, fault.path)


def _in_encoding(fault: Fault, encoding: str) -> Fault:
    """Makes a message about bytes that are not UTF-8 name the encoding that they are not of."""
    if is_utf8(encoding) or fault.reason != UTF8.reason:
        return fault
    return replace(fault, message=fault.message.replace("not UTF-8", f"not {encoding}"))


def _key(keys: pa.Array | None, row: int, columns: Mapping[str, pa.Array], key: Sequence[str]) -> str | None:
    """A rejected row's key, where it is known."""
    if keys is not None:
        default: bytes | None = keys[row].as_py()
        return None if default is None else default.decode("utf-8", "replace")
    parts = [_key_part(columns[name][row].as_py()) for name in key]
    known = [part for part in parts if part is not None]
    return join_key(known).decode("utf-8", "replace") if known and len(known) == len(parts) else None


def _key_part(value: object) -> str | None:
    """A value as a part of a key; an image's is its path, where it is a file of its own."""
    if isinstance(value, bytes):
        reference = parse(value)
        return reference.path if reference.data is None and reference.length is None else None
    return None if value is None else str(value)
