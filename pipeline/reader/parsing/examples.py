"""Serialized `tf.train.Example`s of a batch as columns.

Small records are walked side by side, large ones one by one; both ways give the same columns and the same errors. Other
features are passed over. As in `tf.io.parse_example`, an absent list is empty, and an absent value an error.

>>> parse([example.SerializeToString()], {"label": Stored("int64"), "ids": Stored("int64", None)})  # doctest: +SKIP
{'label': array([3]), 'ids': Ragged(values=array([5, 9, 2]), splits=array([0, 3]))}
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.reader.parsing.batched import Spans, walk
from recordmill.pipeline.reader.parsing.single import BYTES, FLOATS, INTS, scan
from recordmill.pipeline.reader.parsing.varints import PADDING, Int64s, Malformed, decode
from recordmill.transforms.contract.ragged import Column, Ragged, RowError
from recordmill.transforms.contract.stored import Stored

SMALL = 8 << 10  # 8 KiB, the mean of records that are joined: more costs more than a scan of each
SHORT = 16  # bytes of numbers a row, in the mean
FEW = 8  # records that are not worth walking side by side
_KINDS = {"bytes": BYTES, "float32": FLOATS, "int64": INTS}
_NAMES = {BYTES: "bytes", FLOATS: "floats", INTS: "int64"}


_Buffer = TypeVar("_Buffer", bytes, memoryview)


class _Values(NamedTuple):
    """A feature of all rows, one after another."""

    data: Sequence[bytes | memoryview]
    """Values of bytes, or packed numbers in any pieces."""
    counts: Int64s
    """The number of each row's values of bytes, or of the bytes that its numbers take."""


def parse(records: Sequence[bytes | memoryview], parts: Mapping[str, Stored]) -> dict[str, Column]:
    """Parses records into columns, by the parts' names.

    Args:
        records: serialized Examples, in any legal form.
        parts: what to read.

    Returns:
        by name: of numbers, int64 or float32 [rows, *shape]; of single bytes, a list of memoryviews into the record or
        a copy of it; of bytes of another shape, an object array of bytes; of lists (shape None), `Ragged`, whose
        values of bytes are a list too. No records give columns of no rows.

    Raises:
        RowError: a record is no Example, lacks a value, or holds one of another type or shape; the first such row.
    """
    try:
        return _columns(_walked(records, parts) or _scanned(records, parts), parts)
    except Malformed:
        for row, record in enumerate(records):
            try:
                _columns(_scanned([record], parts), parts)
            except Malformed as error:
                raise RowError(row, str(error)) from None
        raise


def _walked(records: Sequence[bytes | memoryview], parts: Mapping[str, Stored]) -> dict[str, _Values] | None:
    """Gives the values of small records of one layout; None for others."""
    if len(records) < FEW or sum(map(len, records)) > SMALL * len(records):
        return None
    if any(stored.dtype == "bytes" and stored.shape != () for stored in parts.values()):
        return None
    walked = walk(records, {name.encode(): _KINDS[stored.dtype] for name, stored in parts.items()})
    if walked is None:
        return None
    joined, spans = walked
    none = np.zeros(len(records), np.int64)
    absent = Spans(none, none, none > 0)
    return {name: _cut(joined, spans.get(name.encode(), absent), stored) for name, stored in parts.items()}


def _cut(joined: bytes, spans: Spans, stored: Stored) -> _Values:
    if stored.dtype == "bytes":
        return _Values(_slices(memoryview(joined), spans), spans.present.astype(np.int64))
    sizes = spans.ends - spans.starts
    short = sizes.sum() <= SHORT * len(sizes)
    return _Values([_gathered(joined, spans.starts, sizes)] if short else _slices(joined, spans), sizes)


def _slices(joined: _Buffer, spans: Spans) -> list[_Buffer]:
    return [joined[start:end] for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)]


def _gathered(joined: bytes, starts: Int64s, sizes: Int64s) -> bytes:
    """Picks the bytes of all spans one by one, which for a few each is faster than a slice of every row."""
    before = np.cumsum(sizes) - sizes
    offsets = np.arange(sizes.sum()) + np.repeat(starts - before, sizes)
    return np.frombuffer(joined, np.uint8)[offsets].tobytes()


def _scanned(records: Sequence[bytes | memoryview], parts: Mapping[str, Stored]) -> dict[str, _Values]:
    names = {name.encode(): name for name in parts}
    rows = [scan(record, names) for record in records]
    gathered = {}
    for encoded, name in names.items():
        lists = [row.get(encoded) for row in rows]
        kind = _KINDS[parts[name].dtype]
        for values in lists:
            if values is None and parts[name].shape is not None:
                raise Malformed(f"feature '{name}' is not there")
            if values is not None and values[0] != kind:
                raise Malformed(f"feature '{name}' is a list of {_NAMES[values[0]]}, expected {parts[name].dtype}")
        chunks = [values[1] if values else [] for values in lists]
        counts = [len(row) if kind == BYTES else sum(map(len, row)) for row in chunks]
        gathered[name] = _Values([chunk for row in chunks for chunk in row], np.array(counts, np.int64))
    return gathered


def _columns(values: Mapping[str, _Values], parts: Mapping[str, Stored]) -> dict[str, Column]:
    return {name: _column(name, values[name], stored) for name, stored in parts.items()}


def _column(name: str, values: _Values, stored: Stored) -> Column:
    data: Any
    data, counts = values if stored.dtype == "bytes" else _numbers(values, stored.dtype)
    if stored.shape is None:
        return Ragged(data, np.concatenate([[0], np.cumsum(counts)]))
    expected = math.prod(stored.shape)
    if (counts != expected).any():
        raise Malformed(f"feature '{name}' holds {counts[counts != expected][0]} values, expected {expected}")
    if stored.dtype == "bytes":
        if not stored.shape:
            return data
        data = np.fromiter(map(bytes, data), object, len(data))
    return data.reshape(len(counts), *stored.shape)


def _numbers(values: _Values, dtype: str) -> tuple[npt.NDArray[Any], Int64s]:
    if dtype == "int64":
        return decode(b"".join([*values.data, bytes(PADDING)]), values.counts)
    if (values.counts % 4).any():
        raise Malformed("a list of floats has a number of bytes that is no multiple of 4")
    return np.frombuffer(bytearray().join(values.data), "<f4"), values.counts // 4
