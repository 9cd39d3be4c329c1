"""Random numbers and permutations that are functions of their arguments alone: nothing is kept, anything can be asked.

The same on every machine and in every order of asking, so that a run that is resumed needs no history.

>>> shuffled = Permutation(10, key=combine(1, 0))
>>> sorted(shuffled(np.arange(10)).tolist())
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
_U64 = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: SplitMix64's step
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(bits) for bits in (30, 27, 31, 11))
_MASK = (1 << 64) - 1
ROUNDS = 8  # of a permutation; with fewer, neighbours of a small range stay together too often


def scramble(values: _U64) -> _U64:
    """Mixes the bits of each number: the finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> _S30)) * _M1
    mixed = (mixed ^ (mixed >> _S27)) * _M2
    return mixed ^ (mixed >> _S31)


def combine(*numbers: int) -> int:
    """Makes one key, 0..2**64 - 1, of any whole numbers; their order counts."""
    key = np.zeros(1, np.uint64)
    for number in numbers:
        key = scramble(key ^ np.array([number & _MASK], np.uint64))
    return int(key[0])


def uniform(key: int, positions: Integers, lanes: int) -> npt.NDArray[np.float64]:
    """Gives random numbers for positions in a sequence.

    Args:
        key: of the sequence, from `combine`.
        positions: int64 [rows].
        lanes: how many numbers each position has.

    Returns:
        float64 [rows, lanes], 0 <= number < 1, multiples of 2**-53.
    """
    rows = scramble(positions.astype(np.uint64) ^ np.uint64(key))
    steps = np.arange(lanes, dtype=np.uint64) * _GOLDEN
    return (scramble(rows[:, np.newaxis] + steps) >> _S11).astype(np.float64) * 2.0**-53


class Permutation:
    """A keyed permutation of 0..n-1 that takes no memory: a Feistel network with cycle walking.

    (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002.) The network permutes the next power of two; what
    it puts beyond n is sent through again, less than twice a number on the average.
    """

    def __init__(self, size: int, key: int) -> None:
        self._size = size
        bits = max(size - 1, 0).bit_length()
        self._shift = np.uint64(bits // 2)
        self._low = np.uint64((1 << bits // 2) - 1)
        self._high = np.uint64((1 << (bits - bits // 2)) - 1)
        self._keys = scramble(np.arange(ROUNDS, dtype=np.uint64) ^ np.uint64(key))

    def __call__(self, numbers: Integers) -> Integers:
        """Permutes numbers of 0..n-1: int64 of the same shape, [rows]."""
        result = self._network(numbers.astype(np.uint64))
        outside = np.flatnonzero(result >= self._size)
        while len(outside):
            result[outside] = self._network(result[outside])
            outside = outside[result[outside] >= self._size]
        return result.astype(np.int64)

    def _network(self, numbers: _U64) -> _U64:
        high, low = numbers >> self._shift, numbers & self._low
        for first, second in self._keys.reshape(-1, 2):
            high = high ^ (scramble(low ^ first) & self._high)
            low = low ^ (scramble(high ^ second) & self._low)
        return (high << self._shift) | low
