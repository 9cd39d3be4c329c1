"""Records of one dataset, by their positions in an epoch, as model-ready arrays.

An unreadable row is an error with its place, or, with `on_error="skip"`, left out and counted.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.paths import ADVICE
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader import order as orders
from recordmill.pipeline.reader import packed
from recordmill.pipeline.reader.block_cache import BlockCache
from recordmill.pipeline.reader.metrics import SKIPPED, Counters
from recordmill.pipeline.reader.order import Integers
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.records import Records
from recordmill.pipeline.reader.request import Request, images_of
from recordmill.transforms.contract.stored import KEY, Bytes, Column, Ragged, RowError
from recordmill.transforms.numpy.augment.chain import Augment, lanes, parameters
from recordmill.transforms.numpy.buffers import BatchMemory
from recordmill.transforms.numpy.features import finish

LOG = logging.getLogger("recordmill")
AUGMENT, CAPTIONS, MIXTURES = 101, 501, 1001  # domain separators of random numbers, besides those in `order`
AHEAD_BYTES = 256 << 20  # 256 MiB of records: the next block of every lane
AT_ONCE = 1024  # records planned together by `read_ahead`
LABELS_AT_ONCE = 65_536  # labels read together, for `balance`


class DamagedRecordError(DatasetError):
    """A record cannot be read; the message names shard, number and byte offset."""


def too_many(skipped: int, most: int, advice: str = ADVICE) -> DamagedRecordError:
    """Returns the error for more damaged records than `max_skipped`."""
    return DamagedRecordError(f"{skipped} damaged records, more than max_skipped={most}: the log names them; {advice}")


class Chosen(NamedTuple):
    """The records of a batch, by their positions in an epoch and their numbers in the shards."""

    epoch: int
    positions: Integers  # positions in the epoch: int64 [rows]
    numbers: Integers  # numbers in the shards: int64 [rows]
    weights: npt.NDArray[np.float32]  # 0 for a replacement of a missing or damaged row, else 1: float32 [rows]

    @staticmethod
    def joined(batches: Sequence["Chosen"]) -> "Chosen":
        """Joins several batches' records, also across epochs; only for reading."""
        return Chosen(batches[0].epoch, *map(np.concatenate, zip(*(chosen[1:] for chosen in batches), strict=True)))

    def keep(self, rows: Any) -> "Chosen":
        """Returns the rows of a mask or of indices."""
        return Chosen(self.epoch, self.positions[rows], self.numbers[rows], self.weights[rows])


class Rows:
    """The records of a request. Pickles, and opens its files in the reading process."""

    def __init__(self, request: Request, labels: Integers | None = None, counters: Counters | None = None) -> None:
        """Takes a request, the records' labels if known, and the counters."""
        self.request = request
        self._labels = labels
        self.memory = BatchMemory()
        self._stored = request.parts if request.packing is None else packed.lists_of(request.parts)
        self._selected = orders.Selected(request.ranges)
        self.counters = counters or Counters()
        self._cache = BlockCache(request.given.cache, request.given.cache_bytes)
        self.records = Records(request.shards, self._blocks(), self._cache, self.counters)
        self._planned, self._planning = range(0), threading.Lock()
        self._stage = "decoding" if images_of(request.features) else "finishing"
        self._order: orders.Order | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.request, self._labels, self.counters)

    def choose(self, epoch: int, positions: Integers) -> Chosen:
        """Returns the records at positions of an epoch."""
        numbers = self._selected(self.order(epoch, positions))
        return Chosen(epoch, positions, numbers, np.ones(len(positions), np.float32))

    def read_ahead(self, step: int) -> None:
        """Begins to fetch the blocks of the epoch's steps from `step` on, `AHEAD_BYTES` ahead."""
        steps, request = self.request.steps, self.request
        if not request.is_remote or not self._planning.acquire(blocking=False):
            return
        try:
            of_step = max(1, steps.batch_size * request.bytes // max(1, steps.records))
            epoch, at_once = step // steps.of_epoch, -(-AT_ONCE // steps.batch_size)
            first = self._planned.stop if step in self._planned else step
            last = min((epoch + 1) * steps.of_epoch, step + max(1, AHEAD_BYTES // of_step), first + 4 * at_once)
            if last - first >= at_once or last % steps.of_epoch == 0 and first < last:
                positions = [steps.positions(each % steps.of_epoch) for each in range(first, last)]
                numbers = self.choose(epoch, np.concatenate(positions)).numbers
                packed = request.packing is not None
                self.records.fetch_ahead(self.records.pieces(numbers).records if packed else numbers)
                self._planned = range(step, last)
        finally:
            self._planning.release()

    def read(self, batches: Sequence[Chosen]) -> list[tuple[dict[str, Any], Integers]]:
        """Returns each batch's model-ready arrays by part, and the positions of the rows kept.

        All batches are read and parsed together: for small records in a third of the time. Raises: DamagedRecordError.
        """
        try:
            columns = self._columns(Chosen.joined(batches)) if len(batches) > 1 else None
        except RowError:  # found below, batch by batch
            columns = None
        ends = np.cumsum([0, *(len(chosen.positions) for chosen in batches)]).tolist()
        parts = zip(batches, ends, ends[1:], strict=False)
        return [
            self._read_one(chosen, columns and {name: _part(column, *span) for name, column in columns.items()})
            for chosen, *span in parts
        ]

    def _read_one(self, chosen: Chosen, columns: dict[str, Column] | None) -> tuple[dict[str, Any], Integers]:
        if columns is not None:
            try:
                return self._finished(chosen, columns), np.arange(len(chosen.positions))
            except RowError:  # found below, row by row
                pass
        return self.without_damaged(chosen, lambda good: self._finished(good, self._columns(good)))

    def payloads(self, numbers: Integers) -> Bytes:
        """Reads records, serialized. Raises: RowError."""
        with self.counters.timed("reading"):
            return self.records.read(numbers)

    def without_damaged(self, chosen: Chosen, make: Callable[[Chosen], Any]) -> tuple[Any, Integers]:
        """Calls `make` with records, without those that raise RowError if these may be skipped.

        In batches of fixed size the record at the next position replaces it, with weight 0.
        """
        rows = np.arange(len(chosen.positions))
        most = self.request.given.max_skipped
        for _ in range(len(rows) + most + 1):
            try:
                return make(chosen.keep(rows)), rows
            except RowError as error:
                row = rows[error.row]
                if chosen.weights[row]:
                    self._blame(int(chosen.numbers[row]), error)
                if not self.request.refills:
                    rows = np.delete(rows, error.row)
                    continue
                chosen.weights[row] = 0
                chosen.positions[row] = (chosen.positions[row] + 1) % self.request.steps.records
                chosen.numbers[row] = self.choose(chosen.epoch, chosen.positions[[row]]).numbers[0]
        raise too_many(len(rows) + most + 1, most, self.request.shards[0].advice)

    def parameters(self, chosen: Chosen) -> dict[str, npt.NDArray[np.float64]]:
        """Draws each augmented feature's parameters: float64 [rows, numbers]; a mask moves with its image."""
        changes = self.request.augment
        if not changes:
            return {}
        drawn = self._draws(chosen, AUGMENT, max(map(lanes, changes.values())))
        return {name: parameters(some, drawn[:, : lanes(some)]) for name, some in changes.items()}

    def mixed(self, chosen: Chosen) -> tuple[npt.NDArray[np.float64], ...]:
        """Draws the random numbers of the batch's mixtures: float64 [rows, lanes] each."""
        mixtures = enumerate(self.request.mixtures)
        return tuple(self._draws(chosen, MIXTURES + number, mixture.lanes) for number, mixture in mixtures)

    def shares(self, chosen: Chosen) -> npt.NDArray[np.float64] | float:
        """Draws the number in [0, 1) that chooses each row's text, [rows]; 0.0 without random texts."""
        return self._draws(chosen, CAPTIONS, 1)[:, 0] if self.request.given.captions == "random" else 0.0

    def _draws(self, chosen: Chosen, purpose: int, lanes: int) -> npt.NDArray[np.float64]:
        """Draws random numbers per row, float64 [rows, lanes], 0 to 1."""
        return orders.uniform(orders.combine(self.request.given.seed, purpose, chosen.epoch), chosen.positions, lanes)

    def close(self) -> None:
        """Closes files and frees memory."""
        self.records.close()
        self.memory.close()

    @property
    def order(self) -> orders.Order:
        """The order of the records, made on first use: `balance` reads all labels."""
        if self._order is None:
            with self._lock:
                if self._order is None:
                    self._order = self._make_order()
        return self._order

    def _make_order(self) -> orders.Order:
        given, steps = self.request.given, self.request.steps
        made: orders.Order
        if given.balance:
            made = orders.Balanced(self.labels, given.seed)
        elif given.shuffle == "global":
            made = orders.GlobalShuffle(steps.records, given.seed)
        elif steps.lanes:
            made = orders.Lanes(steps.records, given.seed, self.request.bytes, steps.lanes, self.request.block_bytes)
        else:
            return orders.Order(steps.records)
        if given.text != "bucketed":
            return orders.Ahead(made)
        window = steps.global_batch * orders.Bucketed.WINDOW
        sizes = lambda positions: self.records.sizes(self._selected(positions))  # noqa: E731
        return orders.Ahead(orders.Bucketed(made, given.seed, steps.global_batch, sizes), window)

    def _blocks(self) -> Integers | None:
        """Returns the first record of each block of remote files; None to read records alone.

        Blocks pay if neighbours are read at about the same time, or if all blocks fit into the cache.
        """
        given = self.request.given
        if not self.request.is_remote:
            return None
        if (given.shuffle == "global" or given.balance) and self.request.bytes > self._cache.room():
            return None
        if self.request.packing is not None:  # records of a group of rows, in any order
            shards = self.request.shards
            records, total = sum(shard.records for shard in shards), sum(shard.bytes for shard in shards)
            return np.arange(0, records, max(1, records * orders.BLOCK_BYTES // max(1, total)))
        lanes = self.request.steps.lanes or orders.lanes_for(1)
        begin = self._selected(orders.Lanes(self._selected.size, given.seed, self.request.bytes, lanes).begins())
        return np.unique(np.concatenate([begin, np.ravel(self.request.ranges)]))

    @property
    def labels(self) -> Integers:
        """The label of each record, int64 [records]; read once."""
        if self._labels is None:
            self._labels = self._read_labels()
        return self._labels

    def _read_labels(self) -> Integers:
        label, size = self.request.label, self._selected.size
        assert label is not None  # noqa: S101 - the request was checked
        parts = [np.zeros(0, np.int64)]
        stored = {label: self._stored[label]}
        for start in range(0, size, LABELS_AT_ONCE):
            positions = np.arange(start, min(start + LABELS_AT_ONCE, size))
            numbers = self._selected(positions)
            try:
                parts.append(np.asarray(parse(self.payloads(numbers), stored)[label]))
            except RowError as error:
                self._blame(int(numbers[error.row]), error, may_skip=False)
        return np.concatenate(parts)

    def _blame(self, number: int, error: RowError, *, may_skip: bool = True) -> None:
        """Counts a damaged record, or raises."""
        where = f"packed row {number}" if self.request.packing else self.records.where(number)
        message = f"{where} cannot be read: {error.message}"
        if self.request.given.on_error == "raise" or not may_skip:
            remedy = "on_error='skip' leaves such records out" if may_skip else "balance=True needs every label"
            raise DamagedRecordError(f"{message}; {remedy}") from error
        LOG.warning("%s; it is left out", message)
        self.counters.add({SKIPPED: 1})

    def _columns(self, chosen: Chosen) -> dict[str, Column]:
        if self.request.packing is not None:
            return self._packed_columns(chosen)
        payloads = self.payloads(chosen.numbers)
        with self.counters.timed("parsing"):
            columns = parse(payloads, self._stored)
            if self.request.given.with_key and KEY not in columns:
                columns[KEY] = self.records.keys(chosen.numbers)
            return columns

    def _packed_columns(self, chosen: Chosen) -> dict[str, Column]:
        pieces = self.records.pieces(chosen.numbers)
        try:
            payloads = self.payloads(pieces.records)
            with self.counters.timed("parsing"):
                return packed.columns(pieces, parse(payloads, self._stored))
        except RowError as error:
            row = int(np.searchsorted(pieces.splits, error.row, side="right")) - 1
            where = self.records.where(int(pieces.records[error.row]))
            raise RowError(row, f"{where}: {error.message}") from error

    def _finished(self, chosen: Chosen, columns: dict[str, Column]) -> dict[str, Any]:
        request = self.request
        drawn = self.parameters(chosen).items()
        augment = {name: Augment(request.augment[name], values, name in request.masks) for name, values in drawn}
        shares, memory = self.shares(chosen), self.memory
        try:
            with self.counters.timed(self._stage):
                if request.packing is not None:
                    return packed.arrays(request.packing, request.features, columns, memory.empty)
                return finish(request.features, columns, request.given, augment=augment, shares=shares, memory=memory)
        except MemoryError as error:
            remedy = "take a smaller batch_size, fewer threads, or fewer features"
            batch = f"a batch of {len(chosen.positions)} records"
            raise DatasetError(f"memory is not enough for {batch} ({error}): {remedy}") from error


def _part(column: Column, start: int, end: int) -> Column:
    if not isinstance(column, Ragged):
        return column[start:end]
    first, last = column.splits[start], column.splits[end]
    return Ragged(column.values[first:last], column.splits[start : end + 1] - first)
