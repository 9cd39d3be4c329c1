"""What every source checks of its columns, and how rows that pass and rows that fail become a block.

A row has one fault: of the first bad column in the order that they are asked for, its first fault in the order of
`CHECKS`. Nothing depends on which rows are read together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.dataset.key_hash import join_key
from recordmill.pipeline.sources.base import Block, Chunk
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.image_refs import parse
from recordmill.pipeline.sources.rejects import Reject

Mask = npt.NDArray[np.bool_]
"""Which rows, shape [rows]."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a row: a reason of `pipeline.sources.rejects`, in words, and the column."""

    reason: str
    message: str
    column: str | None = None
    path: str | None = None
    """The full path of the file that is not there or cannot be opened, where that is what is wrong."""


Faults = dict[int, Fault]
"""Faults by row; the first one stays."""


def add_faults(faults: Faults, rows: Mask, fault: Fault) -> None:
    """Notes a fault for each row that has none yet."""
    for row in np.flatnonzero(rows).tolist():
        faults.setdefault(row, fault)


@dataclass(frozen=True)
class RawRows:
    """Some rows of a chunk as they were parsed, before any check."""

    columns: Mapping[str, pa.Array]
    """Each of shape [rows], of its column's Arrow type, with nulls; of a picture as `typing.image_cells` gives
    them."""
    positions: npt.NDArray[np.int64]
    """Where each row lies in the chunk, shape [rows], rising."""
    keys: pa.Array | None
    """Default keys as Arrow `binary`, shape [rows]; None where nobody asked or the columns give them."""
    faults: Faults
    """What is already known of the rows."""
    unparsed: list[Reject]
    """The rows that have no columns."""
    covered: int
    """How many positions of the chunk these rows cover, blank lines included."""


def check_columns(raw: RawRows, columns: Columns) -> dict[str, pa.Array]:
    """Checks the asked columns as `check_column` does, in the order that they are asked for."""
    return {name: check_column(name, column, raw.columns[name], raw.faults) for name, column in columns.items()}


def check_column(name: str, column: Column, values: pa.Array, faults: Faults) -> pa.Array:
    """Checks a column that already has its Arrow type; the faults found are added to `faults`.

    Returns:
        The column, of the same length, with nulls where it is bad, or absent and optional.
    """
    return _check_lists(name, column, values, faults) if column.many else _check_values(name, column, values, faults)


def _check_values(name: str, column: Column, values: pa.Array, faults: Faults) -> pa.Array:
    for check in CHECKS[column.type]:
        bad = check.find(values)
        if not bad.any():
            continue
        if not (column.optional and check.is_absence):
            add_faults(faults, bad, Fault(check.reason, check.message, name))
        values = pc.if_else(pa.array(bad), pa.scalar(None, values.type), values)
    return values


def _check_lists(name: str, column: Column, values: pa.Array, faults: Faults) -> pa.Array:
    if not column.optional:
        add_faults(faults, _is_null(values), Fault(ABSENT.reason, ABSENT.message, name))
    rows = pc.list_parent_indices(values).to_numpy()
    inner: Faults = {}
    _check_values(name, replace(column, many=False, optional=False), pc.list_flatten(values), inner)
    for place, fault in inner.items():
        faults.setdefault(int(rows[place]), replace(fault, message=f"in the list: {fault.message}"))
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    if column.length is not None:
        wrong = (lengths != column.length) & ~_is_null(values)
        add_faults(faults, wrong, Fault("wrong_type", f"the list has not {column.length} values", name))
    message = f"the number of values is no multiple of {column.multiple}"
    add_faults(faults, lengths % column.multiple != 0, Fault("wrong_type", message, name))
    return values


def make_block(
    chunk: Chunk, raw: RawRows, columns: Mapping[str, pa.Array], keys: pa.Array | None, key: Sequence[str] | None
) -> Block:
    """Makes a block: the rows that have no fault, and rejects of those that have one.

    Args:
        chunk: Where the rows were read.
        raw: The rows, and all the faults that were found.
        columns: The checked columns, each of shape [rows].
        keys: The default keys as Arrow `binary`, shape [rows], null where unknown; None where nobody asked.
        key: The columns that make the key instead; None where the default key is asked for.
    """
    table = pa.table({**columns, "@position": raw.positions} | ({} if keys is None else {"@key": keys}))
    rejects = [
        Reject(
            chunk.index,
            int(raw.positions[row]),
            fault.reason,
            fault.message,
            _key(keys, row, columns, key or ()),
            fault.column,
            fault.path,
        )
        for row, fault in raw.faults.items()
    ]
    if raw.faults:
        good = np.ones(len(raw.positions), bool)
        good[list(raw.faults)] = False
        table = table.filter(pa.array(good))
    return Block(table, sorted(rejects + raw.unparsed, key=lambda reject: reject.position), raw.covered)


def _key(keys: pa.Array | None, row: int, columns: Mapping[str, pa.Array], key: Sequence[str]) -> str | None:
    """A rejected row's key, where it is known."""
    if keys is not None:
        default: bytes | None = keys[row].as_py()
        return None if default is None else default.decode("utf-8", "replace")
    values = [_key_part(columns[name][row].as_py()) for name in key]
    known = [value for value in values if value is not None]
    return join_key(known).decode("utf-8", "replace") if known and len(known) == len(values) else None


def _key_part(value: object) -> str | None:
    """A value as a part of a key; a picture's is its path, where it is a file of its own."""
    if isinstance(value, bytes):
        found = parse(value)
        return found.path if found.data is None and found.length is None else None
    return None if value is None else str(value)


def _mask(found: pa.BooleanArray) -> Mask:
    return found.fill_null(False).to_numpy(zero_copy_only=False)


def _is_null(values: pa.Array) -> Mask:
    return _mask(values.is_null()) if values.null_count else np.zeros(len(values), bool)


def _is_invalid(values: pa.Array) -> Mask:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(value) for value in values.cast(pa.binary()).to_pylist()], bool)
    return np.zeros(len(values), bool)


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_blank(values: pa.Array) -> Mask:
    return _mask(pc.equal(pc.utf8_trim_whitespace(values), ""))


def _has_newline(values: pa.Array) -> Mask:
    """LF and CR: neither survives the lines of a vocabulary file."""
    return _mask(pc.match_substring_regex(values, "[\r\n]"))


def _is_not_float32(values: pa.Array) -> Mask:
    with np.errstate(over="ignore"):
        return ~np.isfinite(values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32))


@dataclass(frozen=True)
class Check:
    """One thing that may be wrong with a value."""

    reason: str
    message: str
    find: Callable[[pa.Array], Mask]
    is_absence: bool = False
    """Whether the value is not there: no fault of an optional column."""


ABSENT = Check("missing_value", "the column is absent, null or empty", _is_null, is_absence=True)
UTF8 = Check("invalid_utf8", "the column's bytes are not UTF-8", _is_invalid)
BLANK = Check("missing_value", "the column is blank", _is_blank, is_absence=True)
ONE_LINE = Check("wrong_type", "a category is one line, this one holds a line break", _has_newline)
FLOAT32 = Check("wrong_type", "the number is not finite, or beyond the range of float32", _is_not_float32)

CHECKS: Mapping[ColumnType, tuple[Check, ...]] = {
    ColumnType.TEXT: (ABSENT, UTF8),
    ColumnType.CATEGORY: (ABSENT, UTF8, BLANK, ONE_LINE),
    ColumnType.NUMBER: (ABSENT, FLOAT32),
    ColumnType.INTEGER: (ABSENT,),
    ColumnType.IMAGE: (ABSENT,),
}
