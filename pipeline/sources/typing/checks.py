"""Checks of values beyond their types, and rows' keys.

A value must be present, valid UTF-8, a finite float32, a category of one line. A row gets one fault: the first, in the
order of `CHECKS`, of the first bad asked column.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.dataset.placement import content_digest, join_key
from recordmill.pipeline.sources.encoded import MAX_LINE_BYTES
from recordmill.pipeline.sources.faults import Fault, Faults, Mask, add_faults, add_inner
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.typing.arrays import absent, as_lists, lengths
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.stored import positions_of


def row_key(keys: pa.Array | None, row: int, columns: Mapping[str, pa.Array], key: Sequence[str]) -> str | None:
    """Returns a rejected row's key, if known."""
    if keys is not None:
        default: bytes | None = keys[row].as_py()
        return None if default is None else default.decode("utf-8", "replace")
    known = [part for name in key if (part := key_part(columns[name][row].as_py())) is not None]
    return join_key(known).decode("utf-8", "replace") if known and len(known) == len(key) else None


def key_part(value: object) -> str | None:
    """Converts a value to a part of a key; an image becomes its path if it is a whole file."""
    if isinstance(value, bytes):
        reference = parse(value)
        return reference.path if reference.data is None and reference.length is None else None
    return None if value is None else str(value)


def row_digests(columns: Mapping[str, pa.Array], unknown: Iterable[int]) -> pa.Array:
    """Returns each row's default key: BLAKE2b, 16 bytes in hexadecimal; Arrow `binary`, null for `unknown` rows.

    Hashes the asked columns in order of name: a value as its length in bytes and its bytes (`3:cat`), a missing one as
    `~`. The bytes are a text's or a category's UTF-8, an image reference (path in the source's folder, or its bytes), a
    number's float64 and an integer's int64, little-endian, and the parts of a list: independent of file and types.
    """
    parts = [_parts(columns[name]) for name in sorted(columns)]
    rows = pc.binary_join_element_wise(*parts, b"").to_pylist()
    keys: list[bytes | None] = [content_digest(row) for row in rows]
    for row in unknown:
        keys[row] = None
    return pa.array(keys, pa.binary())


def _parts(values: pa.Array) -> pa.Array:
    if pt.is_list(values.type):
        values = pc.binary_join(as_lists(lengths(values), _parts(pc.list_flatten(values)), absent(values)), b"")
    if pt.is_primitive(values.type):
        valid, numbers = values.buffers()
        values = pa.Array.from_buffers(pa.binary(8), len(values), [valid, numbers], offset=values.offset)
    content = values.cast(pa.binary())
    head = pc.binary_join_element_wise(pc.binary_length(content).cast(pa.string()).cast(pa.binary()), b":", b"")
    return pc.binary_join_element_wise(head, content, b"").fill_null(b"~")


def check_column(name: str, column: Column, values: pa.Array, faults: Faults) -> pa.Array:
    """Checks a typed column and adds faults; returns it with nulls for bad, and missing optional, values."""
    if not column.many:
        return _check_values(name, column, values, faults)
    if not column.optional:
        add_faults(faults, absent(values), Fault(ABSENT.reason, ABSENT.message, name))
    inner = Faults()
    _check_values(name, replace(column, many=False, optional=False), pc.list_flatten(values), inner)
    add_inner(faults, inner, pc.list_parent_indices(values).to_numpy(), IN_LIST)
    counts = lengths(values)
    if column.length is not None:
        missing = counts == 0 if column.optional else absent(values)  # a cell holds no null, but an empty list
        wrong = (counts != column.length) & ~missing
        add_faults(faults, wrong, Fault("wrong_type", f"the list must have {column.length} values", name))
    message = f"the number of values must be a multiple of {column.multiple}"
    add_faults(faults, counts % column.multiple != 0, Fault("wrong_type", message, name))
    if column.visibility:
        numbers = pc.list_flatten(values).fill_null(0).to_numpy(zero_copy_only=False)
        is_wrong = (positions_of(0, counts) % 3 == 2) & ~np.isin(numbers, (0, 1, 2))
        wrong = np.bincount(np.repeat(np.arange(len(counts)), counts), is_wrong, len(counts)) > 0
        message = "a visibility, the third number of a key point, is neither 0, 1 nor 2"
        add_faults(faults, wrong, Fault("wrong_type", message, name))
    return values


def _check_values(name: str, column: Column, values: pa.Array, faults: Faults) -> pa.Array:
    for check in CHECKS[column.type]:
        bad = check.find(values)
        if not bad.any():
            continue
        if not (column.optional and check.is_absence):
            add_faults(faults, bad, Fault(check.reason, check.message, name))
        values = pc.if_else(pa.array(bad), pa.scalar(None, values.type), values)
    return values


def _mask(result: pa.BooleanArray) -> Mask:
    return result.fill_null(False).to_numpy(zero_copy_only=False)


def _is_invalid(values: pa.Array) -> Mask:
    invalid = np.zeros(len(values), bool)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(values.cast(pa.binary()).to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError:
                invalid[row] = True
    return invalid


def _is_too_long(values: pa.Array) -> Mask:
    if values.nbytes <= MAX_LINE_BYTES:
        return np.zeros(len(values), bool)
    return _mask(pc.greater(pc.binary_length(values), MAX_LINE_BYTES))


def _is_not_float32(values: pa.Array) -> Mask:
    with np.errstate(over="ignore"):
        return ~np.isfinite(values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32))


@dataclass(frozen=True)
class ValueCheck:
    """A check of a value."""

    reason: str
    message: str
    find: Callable[[pa.Array], Mask]
    is_absence: bool = False  # whether it finds missing values: no fault in an optional column


IN_LIST = "in the list: "  # begins messages about a list's value
ABSENT = ValueCheck("missing_value", "the column is absent, null or empty", absent, is_absence=True)
TOO_LARGE = ValueCheck("too_large", "the text is longer than 64 MiB", _is_too_long)
UTF8 = ValueCheck("invalid_utf8", "the column's bytes are not UTF-8", _is_invalid)
BLANK = ValueCheck(
    "missing_value",
    "the column is blank",
    lambda values: _mask(pc.equal(pc.utf8_trim_whitespace(values), "")),
    is_absence=True,
)
ONE_LINE = ValueCheck(  # neither LF nor CR survives the lines of a vocabulary file
    "wrong_type", "the category holds a line break", lambda values: _mask(pc.match_substring_regex(values, "[\r\n]"))
)
FLOAT32 = ValueCheck("wrong_type", "the number is not finite, or beyond the range of float32", _is_not_float32)
NAN = replace(FLOAT32, find=lambda values: _mask(pc.is_nan(values)), is_absence=True)
CHECKS: Mapping[ColumnType, tuple[ValueCheck, ...]] = {
    ColumnType.TEXT: (ABSENT, TOO_LARGE, UTF8),
    ColumnType.CATEGORY: (ABSENT, TOO_LARGE, UTF8, BLANK, ONE_LINE),
    ColumnType.NUMBER: (ABSENT, NAN, FLOAT32),
    ColumnType.INTEGER: (ABSENT,),
    ColumnType.IMAGE: (ABSENT,),
    ColumnType.ARRAY: (ABSENT, ValueCheck("too_large", "the array is longer than 64 MiB", _is_too_long)),
    ColumnType.OBJECTS: (ABSENT, TOO_LARGE, UTF8),
}
