r"""Serialized `tf.train.Example`s of a batch, as the deterministic encoder of protocol buffers writes them.

Features are sorted by name, one after those that it begins; numbers are packed. Varints of all rows are made at once.

>>> examples({"x": Ragged(np.array([1, 300]), np.array([0, 2]))})
[b'\n\x0e\n\x0c\n\x01x\x12\x07\x1a\x05\n\x03\x01\xac\x02']
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from recordmill.transforms.contract.stored import Ragged

FIRST, SECOND = b"\x0a", b"\x12"  # the tags of fields 1 and 2 that have a length
AFTER = 256  # sorts behind every byte
BYTES, FLOATS, INTS = b"\x0a", b"\x12", b"\x1a"  # of a feature's list

NUMBERS = {"float32": FLOATS, "int64": INTS}


def examples(columns: Mapping[str, Ragged]) -> list[bytes]:
    """Serializes rows: each column's list of int64, float32 or bytes, maybe empty."""
    names = sorted(columns, key=lambda name: [*name.encode(), AFTER])
    features = [_features(name.encode(), columns[name]) for name in names]
    return [_field(FIRST, b"".join(row)) if row else b"" for row in zip(*features, strict=True)]


def _features(name: bytes, column: Ragged) -> Iterator[bytes]:
    named = _field(FIRST, name)
    for kind, content in _lists(column):
        yield _field(FIRST, named + _field(SECOND, _field(kind, content)))


def _lists(column: Ragged) -> Iterator[tuple[bytes, bytes]]:
    """Yields each row's kind of list and the list's content."""
    values, splits = column
    if not isinstance(values, np.ndarray):
        for start, end in _pairs(splits):
            yield BYTES, b"".join([_field(FIRST, value) for value in values[start:end]])
        return
    kind = NUMBERS[values.dtype.name]
    if kind == FLOATS:
        packed, places = values.astype("<f4", copy=False).tobytes(), splits * 4
    else:
        packed, ends = varints(values)
        places = np.concatenate([[0], ends])[splits]
    for start, end in _pairs(places):
        yield kind, _field(FIRST, packed[start:end]) if end > start else b""


def _pairs(places: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    ends = places.tolist()
    return zip(ends, ends[1:], strict=False)


def _field(tag: bytes, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return tag + bytes((size,)) + content
    length = bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return tag + length + content


def varints(numbers: npt.NDArray[np.int64]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Returns int64 numbers as varints, and each one's end, int64 [numbers]."""
    left = numbers.view(np.uint64)
    most = int(left.max(initial=0))
    if most < 1 << 28:
        return _short_varints(left.astype(np.uint32))
    widest = -(-most.bit_length() // 7)
    sizes = np.ones(len(left), np.int64)
    for width in range(1, widest):
        sizes += left >= np.uint64(1 << 7 * width)
    spread = np.stack([(left >> np.uint64(7 * width)).astype(np.uint8) | 128 for width in range(widest)], axis=1)
    spread[np.arange(len(left)), sizes - 1] &= 127
    return spread[np.arange(widest) < sizes[:, np.newaxis]].tobytes(), np.cumsum(sizes)


def _short_varints(numbers: npt.NDArray[np.uint32]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Returns the varints of numbers below 2^28, which take a word of four bytes at most."""
    words, sizes = numbers & 127, np.ones(len(numbers), np.uint8)
    for width in (1, 2, 3):
        longer = numbers >= 1 << 7 * width
        if not longer.any():
            break
        sizes += longer
        words |= (numbers >> 7 * width & 127) << 8 * width
        words |= longer.astype(np.uint32) << 8 * width - 1
    kept = _KEPT[sizes].view(np.bool_)
    return words.astype("<u4").view(np.uint8)[kept].tobytes(), np.cumsum(sizes, dtype=np.int64)


_KEPT = np.tril(np.ones((5, 4), np.uint8), -1).view("<u4").ravel()  # the bytes of a word by the size of its varint
