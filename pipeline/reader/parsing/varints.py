"""Varints, the integers of protocol buffers, many at once: 7 bits a byte, the lowest first, the last byte below 128.

Each integer's first four bytes are taken as one word, in which its length and its value are found by bit operations on
all integers alike; the few that are longer, such as negative ones, follow byte by byte.

>>> decode(bytes([1, 0x96, 0x01, 2, 0, 0, 0]), np.array([3, 1]))
(array([  1, 150,   2]), array([2, 1]))
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

PADDING = 3
"""Bytes that `decode` wants after the last integer, so that a word may be taken at each."""
LONGEST = 10  # bytes: 64 bits

Int64s: TypeAlias = npt.NDArray[np.int64]


class Malformed(ValueError):
    """The data breaks the format."""


def decode(data: bytes, sizes: Int64s) -> tuple[Int64s, Int64s]:
    """Decodes the integers of rows that lie one after another.

    Args:
        data: the rows, then `PADDING` bytes of 0.
        sizes: int64 [rows], the bytes of each.

    Returns:
        all rows' values, int64 [values], and how many each row has, int64 [rows].

    Raises:
        Malformed: a row ends inside an integer, or an integer is longer than 10 bytes.
    """
    padded = np.frombuffer(data, np.uint8)
    used = padded[: len(padded) - PADDING]
    if data.isascii():  # one byte each
        return used.astype(np.int64), sizes
    ends = sizes.cumsum()
    if (used[ends[sizes > 0] - 1] > 127).any():
        raise Malformed("a list of int64 ends inside a number")
    last = np.flatnonzero(used < 128)
    until = np.searchsorted(last, ends)
    counts = until.copy()
    counts[1:] -= until[:-1]  # a third of the time of `np.diff`
    first = np.zeros_like(last)
    np.add(last[:-1], 1, out=first[1:])
    values, long = _short(padded, first)
    if len(long):
        values[long] = _long(used, first[long], last[long])
    return values, counts


def _short(padded: npt.NDArray[np.uint8], first: Int64s) -> tuple[Int64s, Int64s]:
    """The values of integers of up to four bytes, and the numbers of those that are longer, whose values are wrong."""
    # A word at every byte, and of these the ones that begin an integer: NumPy takes longer to pick unaligned ones.
    words = np.ndarray((len(padded) - PADDING,), "<u4", padded, strides=(1,)).copy().take(first)
    ends = ~words
    ends &= np.uint32(0x80808080)  # the top bit of each byte that ends an integer
    words &= ends ^ (ends - np.uint32(1))  # keeps the bits up to the lowest of them
    values = words & np.uint32(0x7F)
    for byte in (1, 2, 3):
        words >>= np.uint32(1)
        values |= words & np.uint32(0x7F << 7 * byte)
    return values.astype(np.int64), np.flatnonzero(ends == 0)


def _long(used: npt.NDArray[np.uint8], first: Int64s, last: Int64s) -> Int64s:
    longest = int((last - first).max()) + 1
    if longest > LONGEST:
        raise Malformed(f"a list of int64 holds a number of {longest} bytes, more than {LONGEST}")
    values = np.zeros(len(first), np.uint64)
    for byte in range(longest):
        inside = first + byte <= last
        part = used[np.minimum(first + byte, last)].astype(np.uint64) & np.uint64(0x7F)
        values |= (part << np.uint64(7 * byte)) * inside
    return values.astype(np.int64)
