"""Serialized `tf.train.Example`s of a batch as columns, without protobuf.

Small records are walked together, with a few array operations per feature; large ones are scanned one by one
(`wire.scan`). Both ways give the same columns and errors, and skip other features. As in `tf.io.parse_example`, a
missing list is empty, and a missing value an error. An empty list may have any type.

The walk relies on Examples by one writer, with the same features in the same order. Then a feature's size determines
its head, the bytes before its values: tags, nested lengths, the name. So each head is made once per size, and compared.
Records of another layout are scanned.

Records of other programs hold our parts in other features (`Stored.held`), which are parsed first.

>>> parse([example.SerializeToString()], {"label": Stored("int64"), "ids": Stored("int64", None)})  # doctest: +SKIP
{'label': array([3]), 'ids': Ragged(values=array([5, 9, 2]), splits=array([0, 3]))}
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.reader import wire
from recordmill.pipeline.reader.wire import FIRST, SECOND, Int64s, Malformed, windows
from recordmill.transforms.base.description import StoredAs
from recordmill.transforms.base.stored import Column, Ragged, RowError, Stored, positions_of, splits_of

LIMIT = 1 << 14  # bytes of a record or a feature, with tag and length: a length has at most two bytes
_SHORT = 127  # bytes of a name: its length has one byte
_AFTER = bytes(160)  # room for a window of the longest head, 141 bytes, at each offset
_HIGH, _LOW = np.ogrid[:256, :256]
_LONG = np.where((_HIGH > 0) & (_HIGH < 128), 3 + (_LOW & 127) + (_HIGH << 7), 0)
_TOTALS = np.where(_LOW < 128, 2 + _LOW, np.where(_LONG < LIMIT, _LONG, 0)).ravel()
"""The size of a field with its tag, by the two bytes of its length; 0 for longer ones."""
SMALL = 8 << 10  # 8 KiB: above this mean size, joining records costs more than scanning each
SHORT = 16  # mean bytes of numbers per row
FEW = 8  # records: fewer are scanned
_KINDS = {"bytes": wire.BYTES, "float32": wire.FLOATS, "int64": wire.INTS}
_NAMES = {wire.BYTES: "bytes", wire.FLOATS: "floats", wire.INTS: "int64"}
_Buffer = TypeVar("_Buffer", bytes, memoryview)


class Spans(NamedTuple):
    """The ranges of the rows' values in the joined records: packed numbers, or one bytes value."""

    starts: Int64s
    ends: Int64s
    present: npt.NDArray[np.bool_]  # True for rows with a non-empty list


class _Differ(Exception):
    """The records differ in their layout."""


def walk(records: Sequence[bytes | memoryview], kinds: Mapping[bytes, int]) -> tuple[bytes, dict[bytes, Spans]] | None:
    """Finds features by their kinds of list in one or more records at once; None if the records' layouts differ.

    Returns the joined records, zeros appended, and the spans by name.
    """
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    try:
        names = wire.names_of(records[0])
        if len(set(names)) < len(names) or max(map(len, names), default=0) > _SHORT:
            return None
        joined, ends, spans = b"".join([*records, _AFTER]), sizes.cumsum(), dict[bytes, Spans]()
        offset = _RECORD.passed(joined, ends - sizes, sizes)
        for name in names:
            heads = _heads_of(name, kinds.get(name))
            total = _TOTALS[windows(joined, "<u2")[offset + 1]]
            start, offset = heads.passed(joined, offset, total), offset + total
            if heads.full:
                spans[name] = Spans(start, offset, total >= heads.full)
        is_alike = offset.tobytes() == ends.tobytes()  # a fifth of the time of `(offset == ends).all()`
        return (joined, spans) if is_alike else None
    except (_Differ, IndexError, Malformed):
        return None


class _Heads:
    """The heads of fields, the bytes before their content, by field size; made at the first use. Thread-safe."""

    def __init__(self, name: bytes | None = None, kind: int | None = None) -> None:
        """Takes a feature's name, and its kind if its values are wanted; without a name the field is the record."""
        self._name, self._kind = name, kind
        width = len(self._make(LIMIT - 1))
        # Untouched pages of zeros take no memory. A length of 0 means unknown.
        self._heads = np.zeros(LIMIT, f"V{width}")
        self._lengths = np.zeros(LIMIT, np.uint8)
        self._masks = np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)
        self.full = 0 if kind is None or name is None else len(name) + 10
        """The least size of a feature with a non-empty list; 0 if its values are not wanted."""

    def passed(self, joined: bytes, offsets: Int64s, sizes: Int64s) -> Int64s:
        """Returns the offsets after the fields' heads. Raises: _Differ: a head differs."""
        lengths = self._lengths.take(sizes)
        if not lengths.all():
            for size in set(sizes[lengths == 0].tolist()):
                head = self._make(size)
                self._heads[size] = np.void(head.ljust(self._heads.itemsize, b"\0"))
                self._lengths[size] = len(head)  # last: other threads see whole heads
            lengths = self._lengths.take(sizes)
        heads = windows(joined, self._heads.dtype)[offsets].view(np.uint8).reshape(len(offsets), -1)
        heads &= self._masks.take(lengths, axis=0)
        if heads.tobytes() != self._heads.take(sizes).tobytes():
            raise _Differ
        return offsets + lengths

    def _make(self, size: int) -> bytes:
        head, size = _head(FIRST, size)
        if self._name is None:
            return head
        named = bytes([FIRST, len(self._name)]) + self._name
        inner, size = _head(SECOND, size - len(named))
        head += named + inner
        for tag in () if self._kind is None else (self._kind, FIRST):
            if size:  # else the list is missing or empty
                inner, size = _head(tag, size)
                head += inner
        return head


def _head(tag: int, size: int) -> tuple[bytes, int]:
    """Returns the tag and the length of a field of `size` bytes in all, and that length."""
    if 2 <= size < 2 + 128:
        return bytes([tag, size - 2]), size - 2
    if 3 + 128 <= size < LIMIT:
        return bytes([tag, (size - 3) & 127 | 128, (size - 3) >> 7]), size - 3
    raise _Differ


_RECORD = _Heads()
_heads_of = lru_cache(1 << 10)(_Heads)


class _Values(NamedTuple):
    """A feature of all rows, concatenated."""

    data: Sequence[bytes | memoryview]  # bytes values, or packed numbers in any pieces
    counts: Int64s  # each row's number of bytes values, or the size of its packed numbers


def parse(records: Sequence[bytes | memoryview], parts: Mapping[str, Stored]) -> dict[str, Column]:
    """Parses serialized Examples of any legal form into columns, by the parts' names.

    Returns:
        by name: numbers as int64 or float32 [rows, *shape]; single bytes as a list of memoryviews into the record or a
        copy; bytes of another shape as an object array; lists (shape None) as `Ragged`, bytes in it as a list. No
        records give empty columns.

    Raises:
        RowError: the first record that is not an Example, lacks a value, or has one of another type or shape.
    """
    if any(stored.held for stored in parts.values()):
        features = parse(records, _held_features(parts))
        return {part: _held_column(part, stored, features, len(records)) for part, stored in parts.items()}
    try:
        values = _walked(records, parts) or _scanned(records, parts)
        return {name: _column(name, values[name], stored) for name, stored in parts.items()}
    except Malformed:
        for row, record in enumerate(records):
            try:
                for name, each in _scanned([record], parts).items():
                    _column(name, each, parts[name])
            except Malformed as error:
                raise RowError(row, str(error)) from None
        raise


def _walked(records: Sequence[bytes | memoryview], parts: Mapping[str, Stored]) -> dict[str, _Values] | None:
    """Returns the values of small records with one layout; None for others."""
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
    if sizes.sum() > SHORT * len(sizes):
        return _Values(_slices(joined, spans), sizes)
    # By index: faster than slicing if spans are short.
    gathered = np.frombuffer(joined, np.uint8)[positions_of(spans.starts, sizes)].tobytes()
    return _Values([gathered], sizes)


def _slices(joined: _Buffer, spans: Spans) -> list[_Buffer]:
    return [joined[start:end] for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)]


def _scanned(records: Sequence[bytes | memoryview], parts: Mapping[str, Stored]) -> dict[str, _Values]:
    names = {name.encode(): name for name in parts}
    rows = [wire.scan(record, names) for record in records]
    gathered = {}
    for encoded, name in names.items():
        lists = [row.get(encoded) for row in rows]
        kind = _KINDS[parts[name].dtype]
        for values in lists:
            if values is None and parts[name].shape is not None:
                raise Malformed(f"feature '{name}' is missing")
            if values is not None and values[0] != kind and values[1]:  # an empty list is one of any type
                raise Malformed(f"feature '{name}' is a list of {_NAMES[values[0]]}, expected {parts[name].dtype}")
        chunks = [values[1] if values else [] for values in lists]
        counts = [len(row) if kind == wire.BYTES else sum(map(len, row)) for row in chunks]
        gathered[name] = _Values([chunk for row in chunks for chunk in row], np.array(counts, np.int64))
    return gathered


def _column(name: str, values: _Values, stored: Stored) -> Column:
    data: Any = values.data
    counts = values.counts
    if stored.dtype == "int64":
        data, counts = wire.decode(b"".join([*data, bytes(wire.PADDING)]), counts)
    elif stored.dtype != "bytes":
        if (counts % 4).any():
            raise Malformed("the size of a list of floats is not a multiple of 4 bytes")
        data, counts = np.frombuffer(bytearray().join(data), "<f4"), counts // 4
    if stored.shape is None:
        return Ragged(data, splits_of(counts))
    expected = math.prod(stored.shape)
    if (counts != expected).any():
        raise Malformed(f"feature '{name}' holds {counts[counts != expected][0]} values, expected {expected}")
    if stored.dtype == "bytes":
        if not stored.shape:
            return data
        data = np.fromiter(map(bytes, data), object, len(data))
    return data.reshape(len(counts), *stored.shape)


def _held_features(parts: Mapping[str, Stored]) -> dict[str, Stored]:
    """Returns the records' own features that parts need; lists where a value may be absent."""
    features = dict[str, Stored]()
    for part, stored in parts.items():
        held = stored.held or StoredAs((part,), stored.dtype)
        is_list = held.optional or held.is_missing or len(held.names) > 1
        for name in held.names:
            shape = None if is_list or name in features else stored.shape
            features[name] = Stored(held.dtype, shape)
    return features


def _held_column(part: str, stored: Stored, features: Mapping[str, Column], rows: int) -> Column:
    """Makes a part's column from those of `_held_features`.

    Raises: RowError: a record has another number of values than its part, or the four lists of boxes differ in length.
    """
    held = stored.held or StoredAs((part,), stored.dtype)
    if not held.names:
        return np.ones(rows, np.int64)
    if len(held.names) > 1:
        lists: list[Any] = [features[name] for name in held.names]
        for name, other in zip(held.names, lists, strict=True):
            for row in np.flatnonzero(other.lengths() != lists[0].lengths())[:1].tolist():
                counts = f"{lists[0].lengths()[row]} and {other.lengths()[row]} values"
                raise RowError(row, f"the features '{held.names[0]}' and '{name}' hold {counts}, not one for each box")
        return Ragged(np.stack([each.values for each in lists], axis=1).reshape(-1), len(lists) * lists[0].splits)
    column: Any = features[held.names[0]]
    if held.is_missing:
        return (column.lengths() == 0).astype(np.int64)
    if isinstance(column, Ragged) and stored.shape is not None:
        column = _filled(held, stored, column)
    if held.dtype == stored.dtype:
        return column
    return [b"%d" % number for number in column.tolist()]  # whole numbers as keys


def _filled(held: StoredAs, stored: Stored, column: Ragged) -> Any:
    """Returns values of one shape, also where an optional one is absent."""
    shape = stored.shape or ()
    size, lengths = math.prod(shape), column.lengths()
    for row in np.flatnonzero((lengths != size) & ((lengths > 0) | (not held.optional)))[:1].tolist():
        raise RowError(row, f"feature '{held.names[0]}' holds {lengths[row]} values, expected {size}")
    present = lengths > 0
    absent: list[Any] = [0] * size
    if not present.all():  # the default, or the kind's blank
        absent = [stored.of and stored.of.blank] * size
        if held.default:
            absent = [each.encode(errors="surrogateescape") if isinstance(each, str) else each for each in held.default]
        if len(absent) != size or any(isinstance(each, bytes) != (held.dtype == "bytes") for each in absent):
            lacks = f"the record lacks '{held.names[0]}', and nothing stands for it: adopt the files again"
            raise RowError(int(np.argmin(present)), lacks)
    if held.dtype != "bytes":
        filled = np.empty((len(lengths), size), column.values.dtype)
        filled[...] = absent
        filled[present] = column.values.reshape(-1, size)
        return filled.reshape(len(lengths), *shape)
    values = iter(map(bytes, column.values))
    rows = [[next(values) for _ in range(size)] if has else absent for has in present.tolist()]
    if shape == ():
        return [row[0] for row in rows]
    return np.array(rows, object).reshape(len(rows), *shape)
