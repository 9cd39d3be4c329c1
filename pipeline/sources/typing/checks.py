"""Checks of values beyond their type: they must be there, UTF-8, a finite float32, a category of one line.

A row has one fault: of the first bad column in the order that they are asked for, its first fault in the order of
`CHECKS`. Nothing depends on which rows are read together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.lines import MAX_LINE_BYTES
from recordmill.pipeline.sources.typing.arrays import absent, lengths
from recordmill.pipeline.sources.typing.faults import Fault, Faults, Mask, add_faults, add_inner


def check_column(name: str, column: Column, values: pa.Array, faults: Faults) -> pa.Array:
    """Checks a column that already has its Arrow type; the faults are added to `faults`.

    Returns:
        The column, of the same length, with nulls where a value is bad, or absent and optional.
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
        add_faults(faults, absent(values), Fault(ABSENT.reason, ABSENT.message, name))
    inner: Faults = {}
    _check_values(name, replace(column, many=False, optional=False), pc.list_flatten(values), inner)
    add_inner(faults, inner, pc.list_parent_indices(values).to_numpy(), IN_LIST)
    counts = lengths(values)
    if column.length is not None:
        wrong = (counts != column.length) & ~absent(values)
        add_faults(faults, wrong, Fault("wrong_type", f"the list has not {column.length} values", name))
    message = f"the number of values is no multiple of {column.multiple}"
    add_faults(faults, counts % column.multiple != 0, Fault("wrong_type", message, name))
    return values


def _mask(result: pa.BooleanArray) -> Mask:
    return result.fill_null(False).to_numpy(zero_copy_only=False)


def _is_invalid(values: pa.Array) -> Mask:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(value) for value in values.cast(pa.binary()).to_pylist()], bool)
    return np.zeros(len(values), bool)


def _is_too_long(values: pa.Array) -> Mask:
    if values.nbytes <= MAX_LINE_BYTES:
        return np.zeros(len(values), bool)
    return _mask(pc.greater(pc.binary_length(values), MAX_LINE_BYTES))


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


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


IN_LIST = "in the list: "
"""The beginning of messages about one value of a list."""
ABSENT = Check("missing_value", "the column is absent, null or empty", absent, is_absence=True)
TOO_LARGE = Check("too_large", "the text is longer than 64 MiB", _is_too_long)
UTF8 = Check("invalid_utf8", "the column's bytes are not UTF-8", _is_invalid)
BLANK = Check(
    "missing_value",
    "the column is blank",
    lambda values: _mask(pc.equal(pc.utf8_trim_whitespace(values), "")),
    is_absence=True,
)
ONE_LINE = Check(  # neither LF nor CR survives the lines of a vocabulary file
    "wrong_type",
    "a category is one line, this one holds a line break",
    lambda values: _mask(pc.match_substring_regex(values, "[\r\n]")),
)
FLOAT32 = Check("wrong_type", "the number is not finite, or beyond the range of float32", _is_not_float32)

CHECKS: Mapping[ColumnType, tuple[Check, ...]] = {
    ColumnType.TEXT: (ABSENT, TOO_LARGE, UTF8),
    ColumnType.CATEGORY: (ABSENT, TOO_LARGE, UTF8, BLANK, ONE_LINE),
    ColumnType.NUMBER: (ABSENT, FLOAT32),
    ColumnType.INTEGER: (ABSENT,),
    ColumnType.IMAGE: (ABSENT,),
}
