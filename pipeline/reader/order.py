"""Steps of an epoch, and orders of a split's records, as functions of (seed, epoch, position).

A step is a batch on every host. Steps count across epochs: step 250, at 100 steps per epoch, is the 51st batch of
epoch 2. All hosts together read `global_batch` records per step, in disjoint parts. An order computes the records at
any positions of any epoch, without reading or buffering. Random numbers and permutations are pure functions: a resumed
run needs no history, and every machine gets the same.

>>> Steps(records=10, batch_size=2, host_index=1, host_count=2, drop_remainder=False).positions(2).tolist()
[]
>>> GlobalShuffle(5, seed=1)(epoch=0, positions=np.arange(5)).tolist()
[2, 4, 1, 3, 0]
>>> sorted(Permutation(10, key=combine(1, 0))(np.arange(10)).tolist())
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
_U64 = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: SplitMix64's step
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_S30, _S27, _S31, _S11 = (np.uint64(bits) for bits in (30, 27, 31, 11))
_MASK = (1 << 64) - 1
ROUNDS = 8  # of a permutation; fewer leave neighbours of a small range together too often
RECORDS, BLOCKS, WITHIN, BATCHES, CLASSES, OF_CLASS, GROUP = range(1, 8)
"""Domain separators: permutations of one seed are independent."""
BLOCK_BYTES = 1 << 20  # 1 MiB: worth one request of a remote file
GROUPS = 48  # of lanes: divided by 1, 2, 3, 4, 6, 8, 12, 16, 24 hosts
LANES_OF_GROUP = 5  # 240 lanes: the blocks that all hosts together read at a time
SMALL_BYTES = 16 << 20  # 16 MiB: a smaller split is one block, read whole by each host
CHUNK = 4096  # positions computed at once: 0.6 µs each, against 3.3 µs in chunks of 256
FOR_EVER = -1  # epochs of an endless input


def scramble(values: _U64) -> _U64:
    """Mixes the bits of each number: the finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> _S30)) * _M1
    mixed = (mixed ^ (mixed >> _S27)) * _M2
    return mixed ^ (mixed >> _S31)


def combine(*numbers: int) -> int:
    """Hashes whole numbers, in order, to one key, 0..2**64 - 1."""
    key = np.zeros(1, np.uint64)
    for number in numbers:
        key = scramble(key ^ np.array([number & _MASK], np.uint64))
    return int(key[0])


def uniform(key: int, positions: Integers, lanes: int) -> npt.NDArray[np.float64]:
    """Returns random float64 [rows, lanes], 0 <= number < 1, multiples of 2**-53, for positions, int64 [rows]."""
    rows = scramble(positions.astype(np.uint64) ^ np.uint64(key))
    steps = np.arange(lanes, dtype=np.uint64) * _GOLDEN
    return (scramble(rows[:, np.newaxis] + steps) >> _S11).astype(np.float64) * 2.0**-53


class Permutation:
    """A keyed permutation of 0..n-1 in constant memory: a Feistel network with cycle walking.

    (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002.) The network permutes the next power of two, and
    is applied again to results beyond n: on average less than twice per number.
    """

    def __init__(self, size: int | Integers, key: int | _U64) -> None:
        """Takes n and a key: numbers, or arrays [rows], one permutation per row."""
        self._size = np.atleast_1d(np.asarray(size))
        self._key = np.atleast_1d(np.asarray(key, np.uint64))
        bits = np.frexp(np.maximum(self._size - 1, 0))[1].astype(np.uint64)  # the exponent is the number of bits
        self._shift = bits >> _ONE
        self._low = (_ONE << self._shift) - _ONE
        self._high = (_ONE << (bits - self._shift)) - _ONE
        self._keys = scramble(np.arange(ROUNDS, dtype=np.uint64)[:, np.newaxis] ^ self._key)

    def __call__(self, numbers: Integers) -> Integers:
        """Permutes numbers of 0..n-1: int64 of the same shape, [rows]."""
        given = numbers.astype(np.uint64)
        high, low = given >> self._shift, given & self._low
        for first, second in zip(self._keys[::2], self._keys[1::2], strict=True):
            high = high ^ (scramble(low ^ first) & self._high)
            low = low ^ (scramble(high ^ second) & self._low)
        result = ((high << self._shift) | low).astype(np.int64)
        outside = np.flatnonzero(result >= self._size)
        if len(outside):
            is_one = len(self._size) == len(self._key) == 1
            again = self if is_one else Permutation(self._size[outside], self._key[outside])
            result[outside] = again(result[outside])
        return result


class Order:
    """The records of each epoch, by position; the base class keeps the dataset's own order."""

    def __init__(self, size: int) -> None:
        """Takes the number of positions in an epoch."""
        self.size = size

    def __call__(self, epoch: int, positions: Integers) -> Integers:
        """Returns the records at positions 0..size-1, int64 [rows]."""
        return positions


class GlobalShuffle(Order):
    """A permutation of all records, another one each epoch."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self._seed = size, seed

    def __call__(self, epoch: int, positions: Integers) -> Integers:
        return Permutation(self.size, combine(self._seed, RECORDS, epoch))(positions)


def lanes_for(hosts: int) -> int:
    """Returns the lanes for a number of hosts: 240 for 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48 hosts."""
    return LANES_OF_GROUP * hosts * -(-GROUPS // hosts)


class Lanes(Order):
    """A shuffle in which each block of neighbours belongs to one lane, and is read once, by one host.

    Position p belongs to lane p mod `lanes`; host h of H takes the positions p = h (mod H): whole lanes if H divides
    `lanes`. A lane reads its blocks one after another; each epoch shuffles the blocks and the records in each.
    Neighbours in the order come from different blocks. Lanes l, l + g, l + 2g, … of g groups exchange their blocks
    between epochs. Block b always belongs to group b mod g, so a host's cache serves later epochs and trainings if the
    number of hosts divides g. The shards are in the order of a hash: a block is a random sample.

    The first `longer` blocks have one record more than the others: every lane has exactly as many records as positions.
    Within a lane, long and short blocks alternate evenly, from a random one on.
    """

    def __init__(self, size: int, seed: int, total_bytes: int, lanes: int, block_bytes: int = BLOCK_BYTES) -> None:
        """Takes the bytes of all records, from the manifest, and of a block: the same for every reader."""
        if total_bytes < SMALL_BYTES:
            lanes, total_bytes = 1, 1
        self.size, self._seed, self._lanes = size, seed, lanes
        self._groups = max(1, lanes // LANES_OF_GROUP)
        self._of_lane = max(1, min(size // lanes, -(-total_bytes // (lanes * block_bytes))))
        self._block, self._longer = divmod(size, lanes * self._of_lane)

    def __call__(self, epoch: int, positions: Integers) -> Integers:
        at, lane = np.divmod(positions, self._lanes)
        keys = scramble(np.uint64(combine(self._seed, BLOCKS, epoch)) ^ lane.astype(np.uint64))
        place, is_long, long_before, within = self._places(at, lane, (keys >> _S11).astype(np.int64) % self._of_lane)
        row, group = np.divmod(lane, self._groups)
        # The blocks of the group's earlier lanes come first; its long blocks precede the short ones.
        rank = np.where(is_long, long_before, row * self._of_lane + place - long_before)
        longer = self._longer // self._groups + (group < self._longer % self._groups)
        keys = scramble(np.uint64(combine(self._seed, GROUP, epoch)) ^ (2 * group + is_long).astype(np.uint64))
        of_group = self._lanes // self._groups * self._of_lane
        shuffled = Permutation(np.where(is_long, longer, of_group - longer), keys)(rank)
        block = np.where(is_long, shuffled, longer + shuffled) * self._groups + group
        keys = scramble(np.uint64(combine(self._seed, WITHIN, epoch)) ^ block.astype(np.uint64))
        return block * self._block + np.minimum(block, self._longer) + Permutation(self._block + is_long, keys)(within)

    def _places(self, at: Integers, lane: Integers, first: Integers) -> tuple[Integers, ...]:
        """Finds a lane's block at `at`: (place, is long, the group's long blocks before, position within)."""
        each, one_more = divmod(self._longer, self._lanes)
        longer = each + (lane < one_more)

        def long_before(place: Integers) -> Integers:
            return (place + first) * longer // self._of_lane - first * longer // self._of_lane

        def start(place: Integers) -> Integers:
            return place * self._block + long_before(place)

        place = np.minimum(at * self._of_lane // np.maximum(1, self._of_lane * self._block + longer), self._of_lane - 1)
        place = place - (start(place) > at)  # the quotient is off by one at most
        place = place + (start(place + 1) <= at)
        before, (row, group) = long_before(place), np.divmod(lane, self._groups)
        earlier = row * each + np.clip(-((group - one_more) // self._groups), 0, row)  # long ones of earlier lanes
        return place, long_before(place + 1) - before, earlier + before, at - start(place)

    def begins(self) -> Integers:
        """Returns the first record of each block, ascending: int64 [blocks]."""
        blocks = np.arange(min(self._lanes * self._of_lane, self.size))
        return blocks * self._block + np.minimum(blocks, self._longer)


def permuted(numbers: Integers, groups: Integers, size: int, *key: int) -> Integers:
    """Permutes numbers of 0..size-1, in each group by a permutation of `key` and the group: int64 [rows] all."""
    result = np.empty_like(numbers)
    for group in np.unique(groups).tolist():
        rows = groups == group
        result[rows] = Permutation(size, combine(*key, group))(numbers[rows])
    return result


class Few:
    """A few whole numbers, found among many: their low bits exclude most others, in a twentieth of a search's time."""

    LOW = np.int64((1 << 16) - 1)

    def __init__(self, few: Integers) -> None:
        """Takes the numbers, from 0: int64, ascending."""
        self._few, self._low = np.append(few, -1), np.zeros(int(self.LOW) + 1, bool)
        self._low[few & self.LOW] = True

    def places(self, numbers: Integers) -> Integers:
        """Returns the places of these numbers in others, int64 [numbers]."""
        near = np.flatnonzero(self._low[numbers & self.LOW])
        found = numbers[near]
        return near[self._few[np.searchsorted(self._few[:-1], found)] == found]


class Without(Order):
    """Another order without some records: those at an epoch's end take their positions, and all others keep theirs."""

    def __init__(self, order: Order, gone: Integers) -> None:
        """Takes an order with each record once, and the records to leave out: int64, ascending, each once."""
        self.size = order.size - len(gone)
        self._order, self._gone, self._few = order, gone, Few(gone)
        self._latest = -1, gone  # an epoch, and the record instead of each that is gone

    def __call__(self, epoch: int, positions: Integers) -> Integers:
        records = self._order(epoch, positions)
        if len(places := self._few.places(records)):
            records = records.copy()
            records[places] = self._instead(epoch)[np.searchsorted(self._gone, records[places])]
        return records

    def _instead(self, epoch: int) -> Integers:
        """Returns the record in the place of each that is gone; -1 for those at the epoch's end."""
        latest, instead = self._latest
        if latest != epoch:
            last = self._order(epoch, np.arange(self.size, self._order.size))
            instead = np.full(len(self._gone), -1)
            instead[~np.isin(self._gone, last)] = last[~np.isin(last, self._gone)]
            self._latest = epoch, instead  # one assignment, as threads work side by side
        return instead


class Balanced(Order):
    """All classes equally often, in shuffled turns; exhausted classes restart. An epoch has a position per record."""

    def __init__(self, labels: Integers, seed: int, gone: Integers | tuple[()] = ()) -> None:
        """Takes the class of each record, int64 [size], and the records to leave out."""
        self.size = len(labels) - len(gone)
        self._seed = seed
        by_class = np.argsort(labels, kind="stable")
        by_class = by_class[~np.isin(by_class, gone)]
        starts = np.flatnonzero(np.diff(labels[by_class])) + 1
        self._members = [part for part in np.split(by_class, starts) if len(part)]

    def __call__(self, epoch: int, positions: Integers) -> Integers:
        running = epoch * self.size + positions  # turns continue across epochs
        turns, seats = np.divmod(running, max(1, len(self._members)))
        classes, result = permuted(seats, turns, len(self._members), self._seed, CLASSES), np.empty_like(positions)
        for class_ in np.unique(classes).tolist():
            rows, members = classes == class_, self._members[class_]
            rounds, offsets = np.divmod(turns[rows], len(members))
            result[rows] = members[permuted(offsets, rounds, len(members), self._seed, OF_CLASS, class_)]
        return result


class Bucketed(Order):
    """Another order in windows of batches, sorted by record size and shuffled by batch; incomplete ones come last."""

    WINDOW = 64  # batches

    def __init__(self, order: Order, seed: int, batch: int, sizes: Callable[[Integers], Integers]) -> None:
        """Takes an order, the global batch size, and a function from records to sizes."""
        self.size = order.size
        self._order, self._seed, self._batch, self._sizes = order, seed, batch, sizes

    def __call__(self, epoch: int, positions: Integers) -> Integers:
        windows, places = np.divmod(positions, self._batch * self.WINDOW)
        result = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            start = window * self._batch * self.WINDOW
            rows = np.arange(start, min(start + self._batch * self.WINDOW, self.size))
            records = self._order(epoch, rows)
            batches = len(rows) // self._batch
            full = records[: batches * self._batch]
            full = full[np.argsort(self._sizes(full), kind="stable")].reshape(batches, self._batch)
            shuffled = full[Permutation(batches, combine(self._seed, BATCHES, epoch, window))(np.arange(batches))]
            records = np.concatenate([shuffled.reshape(-1), records[batches * self._batch :]])
            result[windows == window] = records[places[windows == window]]
        return result


class Ahead(Order):
    """Another order, computed in chunks of positions; caches the last few."""

    def __init__(self, order: Order, chunk: int = CHUNK) -> None:
        self.size = order.size
        self._order, self._chunk = order, chunk
        self._chunks: dict[tuple[int, int], Integers] = {}

    def __call__(self, epoch: int, positions: Integers) -> Integers:
        if not len(positions):
            return positions
        first, last, chunks = int(positions.min()) // self._chunk, int(positions.max()) // self._chunk, []
        for number in range(first, last + 1):
            if (chunk := self._chunks.get((epoch, number))) is None:
                start = number * self._chunk
                chunk = self._order(epoch, np.arange(start, min(start + self._chunk, self.size)))
                # One assignment: threads see whole chunks. Several, as threads work side by side.
                self._chunks = {**dict(list(self._chunks.items())[-3:]), (epoch, number): chunk}
            chunks.append(chunk)
        return (chunks[0] if len(chunks) == 1 else np.concatenate(chunks))[positions - first * self._chunk]


class Selected:
    """Records of ranges, such as a slice of a split, numbered consecutively."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Takes (first, end) of each range."""
        lengths = np.array([end - first for first, end in ranges], np.int64)
        self._ends = np.cumsum(lengths)
        self._shift = np.array([first for first, _ in ranges], np.int64) - (self._ends - lengths)
        self.size = int(lengths.sum())

    def __call__(self, numbers: Integers) -> Integers:
        """Returns the records of numbers 0..size-1."""
        return numbers + self._shift[np.searchsorted(self._ends, numbers, side="right")]

    def numbers_of(self, records: Integers) -> Integers:
        """Returns the numbers of records, ascending: none of one outside, several of one in several ranges."""
        numbers = np.subtract.outer(records, self._shift)
        starts = np.concatenate([[0], self._ends[:-1]])
        return np.unique(numbers[(starts <= numbers) & (numbers < self._ends)])


@dataclass(frozen=True)
class Steps:
    """An epoch's positions, divided into steps."""

    records: int  # positions of an epoch
    batch_size: int  # records of a host's batch
    host_index: int = 0
    host_count: int = 1
    drop_remainder: bool = True  # leaves out the incomplete global batch at an epoch's end
    lanes: int = 0
    """The lanes of the order (`order.Lanes`): hosts take every `host_count`-th position; 0: each host takes a slice of
    the global batch."""

    @property
    def global_batch(self) -> int:
        """Records per step, on all hosts together."""
        return self.batch_size * self.host_count

    @property
    def of_epoch(self) -> int:
        """Steps of an epoch: the same on every host."""
        full = self.records // self.global_batch
        return full if self.drop_remainder else -(-self.records // self.global_batch)

    def positions(self, step: int) -> Integers:
        """Returns this host's positions in a step of an epoch, 0..of_epoch-1: int64, at most `batch_size` of them."""
        start, host = step * self.global_batch, self.host_index
        if self.lanes:
            return np.arange(start + host, min(start + self.global_batch, self.records), self.host_count)
        start += host * self.batch_size
        return np.arange(start, min(start + self.batch_size, self.records))

    def consumed(self, step: int) -> int:
        """Counts the records read by all hosts together before a step, counted from epoch 0."""
        if not self.of_epoch:
            return 0
        epoch, in_epoch = divmod(step, self.of_epoch)
        of_epoch = min(self.of_epoch * self.global_batch, self.records)
        return epoch * of_epoch + in_epoch * self.global_batch


class Passes:
    """The steps of each iteration over an input: one epoch, the next one each time, or all `epochs`."""

    def __init__(self, of_epoch: int, epochs: int | None, start: int) -> None:
        """Takes the steps of an epoch, `epochs` as in `training_input`, and the first step."""
        self._of_epoch, self._epochs, self._start = of_epoch, epochs, start
        self._next = start

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration give this epoch, from `start` on at the earliest."""
        self._next = max(self._start, epoch * self._of_epoch)

    def begin(self) -> range:
        """Begins an iteration, and returns its steps."""
        steps = self.upcoming
        if self._epochs is None and self._of_epoch:
            self._next = steps.stop
        return steps

    @property
    def upcoming(self) -> range:
        """The steps of the next iteration; endless in practice if `epochs` is -1."""
        if not self._of_epoch:
            return range(0)
        if self._epochs == FOR_EVER:
            return range(self._start, sys.maxsize)
        if self._epochs is not None:
            return range(self._start, min(self._epochs * self._of_epoch, sys.maxsize))
        return range(self._next, (self._next // self._of_epoch + 1) * self._of_epoch)

    @property
    def steps(self) -> int | None:
        """The steps of an iteration from an epoch's start; None if endless."""
        if self._epochs is None:
            return self._of_epoch
        if self._epochs == FOR_EVER:
            return None if self._of_epoch else 0
        return len(self.upcoming)
