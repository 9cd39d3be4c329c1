"""The wire format of protocol buffers: varints, many at once, and the features of one serialized `tf.train.Example`.

A varint holds 7 bits a byte, the lowest first, the last byte below 128. Each integer's first four bytes are read as one
word; bit operations on all words find lengths and values. Longer integers, such as negative ones, follow byte by byte.

All protobuf writers give an Example one form: entries of a name and a feature, one list per feature, packed numbers.
Its features are found without copying. Protobuf's own parser converts any other legal form to this one first.

>>> decode(bytes([1, 0x96, 0x01, 2, 0, 0, 0]), np.array([3, 1]))
(array([  1, 150,   2]), array([2, 1]))
>>> scan(bytes.fromhex("0a100a0e0a056c6162656c12051a030a0107"), {b"label"})  # doctest: +SKIP
{b'label': (INTS, [memoryview(bytes([7]))])}
"""

from collections.abc import Callable, Collection
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recordmill.transforms.base.bounds import RECORD_FEATURES, RECORD_VALUES

PADDING = 3  # bytes after the last integer: `decode` reads a word at each
LONGEST = 10  # bytes: 64 bits
_SEVENS = np.uint32(0x7F7F7F7F)
Int64s: TypeAlias = npt.NDArray[np.int64]
Result = TypeVar("Result")
BYTES, FLOATS, INTS = 0x0A, 0x12, 0x1A  # a feature's list: the tags of fields 1, 2, 3
FIRST, SECOND = 0x0A, 0x12  # the tags of fields 1 and 2 that have a length
Chunks: TypeAlias = list[memoryview]
"""The values of a list of bytes, or pieces of packed numbers (varints, little-endian float32), cut between numbers."""
Lists: TypeAlias = dict[bytes, tuple[int, Chunks]]
"""The kind of each feature's list (BYTES, FLOATS or INTS) and its content, by name."""


class Malformed(ValueError):
    """The data violates the format."""


def windows(data: bytes | npt.NDArray[np.uint8], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns a value at every byte."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((max(0, len(data) - width + 1),), dtype, data, strides=(1,))


def decode(data: bytes, sizes: Int64s) -> tuple[Int64s, Int64s]:
    """Decodes rows of varints: all values, int64 [values], and each row's number of values, int64 [rows].

    `data` is the rows, then `PADDING` zeros; `sizes` their bytes, int64 [rows]. Raises: Malformed: cut, or too long.
    """
    padded = np.frombuffer(data, np.uint8)
    used = padded[: len(padded) - PADDING]
    if data.isascii():  # one byte each
        return used.astype(np.int64), sizes
    ends = sizes.cumsum()
    if (used[ends[sizes > 0] - 1] > 127).any():
        raise Malformed("a list of int64 ends inside a number")
    begins = np.empty(len(padded) - PADDING + 1, bool)  # of each byte; the last is that of an integer after the data
    begins[0] = True
    np.less(used, 128, out=begins[1:])
    first = np.flatnonzero(begins)
    until = np.searchsorted(first, ends)
    counts = until.copy()
    counts[1:] -= until[:-1]  # a third of the time of `np.diff`
    values, long = _short(padded, first[:-1])
    if len(long):
        starts, last = first[long], first[long + 1] - 1
        longest = int((last - starts).max()) + 1
        if longest > LONGEST:
            raise Malformed(f"a list of int64 holds a number of {longest} bytes, more than {LONGEST}")
        decoded = np.zeros(len(starts), np.uint64)
        for byte in range(longest):
            inside = starts + byte <= last
            part = used[np.minimum(starts + byte, last)].astype(np.uint64) & np.uint64(0x7F)
            decoded |= (part << np.uint64(7 * byte)) * inside
        values[long] = decoded.astype(np.int64)
    return values, counts


def _short(padded: npt.NDArray[np.uint8], first: Int64s) -> tuple[Int64s, Int64s]:
    """Returns the values of integers of up to four bytes, and the indices of longer ones, decoded wrongly."""
    # All words are copied before the integers' own are taken: NumPy is slower with unaligned ones.
    words = windows(padded, "<u4").copy().take(first)
    bits = words | _SEVENS
    long = np.flatnonzero(bits == np.uint32(0xFFFFFFFF))
    bits ^= bits + np.uint32(1)  # up to the top bit of the first byte below 128
    bits &= _SEVENS
    words &= bits
    np.bitwise_and(words, np.uint32(0x7F007F00), out=bits)  # 8 bits apart, wanted 7
    bits >>= np.uint32(1)
    words -= bits
    np.bitwise_and(words, np.uint32(0xFFFF0000), out=bits)  # 16 bits apart, wanted 14: 65,536 - 16,384 = 3 * 16,384
    bits >>= np.uint32(2)
    bits *= np.uint32(3)
    words -= bits
    return words.astype(np.int64), long


class _OtherForm(Exception):
    """The record has another form."""


def scan(record: bytes | memoryview, names: Collection[bytes]) -> Lists:
    """Returns the features of these names that have a list. Raises: Malformed: not an Example, or needs protobuf."""

    def found(data: memoryview) -> Lists:
        lists, entries = Lists(), _entries(data)
        if len({entry[0] for entry in entries}) < len(entries):  # the last of two counts
            raise _OtherForm
        for name, start, stop in entries:
            if start < stop and name in names:
                lists[name] = data[start], _chunks(data, start, stop)
        return lists

    return _read(record, found)


def is_one_field(record: bytes | memoryview) -> bool:
    """Whether a record is one field; a SequenceExample with feature lists has others."""
    try:
        size, offset = _length(memoryview(record), 1)
    except IndexError:
        return True
    return record[0] == FIRST and offset + size == len(record)


def names_of(record: bytes | memoryview) -> list[bytes]:
    """Returns the names of a record's features in order. Raises: as `scan`."""
    return [name for name, *_ in _read(record, _entries)]


def content_of(record: bytes | memoryview) -> bytes:
    """Returns bytes that records of equal features share, in whatever order; of another record, its own."""
    try:
        lists = scan(record, names_of(record))
    except Malformed:
        return bytes(record)
    parts = list[bytes | memoryview]()
    for name, (kind, chunks) in sorted(lists.items()):
        parts += [name, b"%d %d" % (kind, len(chunks)), *chunks]
    return b"".join(b"%d:%b" % (len(part), part) for part in map(bytes, parts))


def _read(record: bytes | memoryview, read: Callable[[memoryview], Result]) -> Result:
    """Reads a record, converted first if it has another form."""
    try:
        return read(memoryview(record))
    except (_OtherForm, IndexError):
        pass
    try:  # protobuf takes 0.1 s to load; records by Recordmill or TensorFlow never need it
        from recordmill.pipeline.dataset.examples import canonical_example
    except ModuleNotFoundError:
        raise Malformed("it is not a tf.train.Example in the usual form: pip install protobuf for others") from None
    in_form = canonical_example(bytes(record))
    if in_form is None:
        raise Malformed("it is not a tf.train.Example")
    return read(memoryview(in_form))


def _entries(data: memoryview) -> list[tuple[bytes, int, int]]:
    """Returns each feature: (name, first byte and end of its list)."""
    entries: list[tuple[bytes, int, int]] = []
    end = len(data)
    if not end:
        return entries
    size, offset = _length(data, 1)
    if data[0] != FIRST or offset + size != end:
        raise _OtherForm
    while offset < end:
        size, start = _length(data, offset + 1)
        stop = start + size
        size, name = _length(data, start + 1)
        after_name = name + size
        if stop > end or data[offset] != FIRST or data[start] != FIRST or data[after_name] != SECOND:
            raise _OtherForm
        size, value = _length(data, after_name + 1)
        if value + size != stop:
            raise _OtherForm
        entries.append((bytes(data[name:after_name]), value, stop))
        if len(entries) > RECORD_FEATURES.most:
            raise Malformed(RECORD_FEATURES.beyond(len(entries)))
        offset = stop
    return entries


def _chunks(data: memoryview, offset: int, stop: int) -> Chunks:
    kind = data[offset]
    size, offset = _length(data, offset + 1)
    if offset + size != stop or kind not in (BYTES, FLOATS, INTS):
        raise _OtherForm
    chunks = []
    while offset < stop:
        size, start = _length(data, offset + 1)
        if data[offset] != FIRST or start + size > stop or (kind != BYTES and start + size != stop):
            raise _OtherForm
        offset = start + size
        if size or kind == BYTES:
            chunks.append(data[start:offset])
        if len(chunks) > RECORD_VALUES.most:
            raise Malformed(RECORD_VALUES.beyond(len(chunks)))
    return chunks


def _length(data: memoryview, offset: int) -> tuple[int, int]:
    """Reads a length: (value, offset after it). Raises: IndexError at the end of the data."""
    byte = data[offset]
    if byte < 128:
        return byte, offset + 1
    value, shift = byte & 127, 7
    while True:
        offset += 1
        byte = data[offset]
        value |= (byte & 127) << shift
        if byte < 128 or shift > 28:  # longer ones exceed any data
            return value, offset + 1
        shift += 7
