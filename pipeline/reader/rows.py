"""Batches of one dataset's records, by their positions in an epoch: read, parsed, and made model-ready.

An unreadable row is an error with its place, or, with `on_error="skip"`, left out and counted. Packed rows join the
lists of several records, by the index that the build made; the first of their features has the parts `segments` and
`positions`, each value's record in the row and place in it.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.paths import ADVICE
from recordmill.pipeline.dataset.tfrecord import PackIndex, rows_together
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader import order as orders
from recordmill.pipeline.reader.block_cache import BlockCache
from recordmill.pipeline.reader.metrics import SKIPPED, Counters
from recordmill.pipeline.reader.order import Integers
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.records import Records
from recordmill.pipeline.reader.request import Request, images_of, lists_of
from recordmill.transforms.base.buffers import BatchMemory
from recordmill.transforms.base.stored import KEY, Bytes, Column, Ragged, RowError, part_name, positions_of, splits_of
from recordmill.transforms.engines.numpy_features import finish
from recordmill.transforms.images.augment.chain import Augment, lanes, parameters
from recordmill.transforms.texts.text_read import packed_rows, padded, strings

LOG = logging.getLogger("recordmill")
AUGMENT, CAPTIONS, MIXTURES = 101, 501, 1001  # domain separators of random numbers, besides those in `order`
AHEAD_BYTES = 256 << 20  # 256 MiB of records: the next block of every lane
AT_ONCE = 1024  # records planned together by `_read_ahead`
LABELS_AT_ONCE = 65_536  # labels read together, for `balance`
LENGTHS = "@lengths"  # the column with the numbers of values of a packed row's pieces
Batch: TypeAlias = Any
"""`(features, label)`, or `features` alone; with `pad`, `(features, label, weight)`, or `(features, weight)`."""


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
    """The batches of a request, and any of its rows. Pickles, and opens its files in the reading process."""

    def __init__(self, request: Request, labels: Integers | None = None, counters: Counters | None = None) -> None:
        """Takes a request, the records' labels if known, int64 [records], and the counters.

        Reads all labels for `balance` if they are unknown. Raises: DatasetError, DamagedRecordError: it cannot.
        """
        self.request, self.counters, self.memory = request, counters or Counters(), BatchMemory()
        self._selected = orders.Selected(request.ranges)
        cache = BlockCache(request.given.cache, request.given.cache_bytes)
        self.records = Records(request.shards, self._blocks(cache), cache, self.counters)
        self._planned, self._planning = range(0), threading.Lock()
        self._stage = "decoding" if images_of(request.features) else "finishing"
        self.labels = self._read_labels() if labels is None and request.given.balance else labels
        self.order, self._gone = self._made_order(), orders.Few(request.gone)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.request, self.labels, self.counters)

    def __call__(self, steps: Sequence[int]) -> list[Batch | None]:
        """Returns the batches of steps, counted from epoch 0; None if all records of a batch are damaged."""
        chosen = [chosen for step in steps for _, chosen, _ in self.parts(step)]
        self._read_ahead(steps[0])
        return [self.batch(each, *read) for each, read in zip(chosen, self.read(chosen), strict=True)]

    def parts(self, step: int) -> Iterator[tuple["Rows", Chosen, Integers]]:
        """Yields the records of a step, with their places in the batch: here in one part."""
        request = self.request
        epoch, in_epoch = divmod(step, request.steps.of_epoch)
        positions = request.steps.positions(in_epoch)
        missing = request.given.batch_size - len(positions) if request.given.pad else 0
        chosen = self.choose(epoch, np.pad(positions, (0, missing)) if missing else positions)
        chosen.weights[len(positions) :] = 0  # the split's first record fills the batch
        yield self, chosen, np.arange(len(chosen.positions))

    def batch(self, chosen: Chosen, ready: dict[str, Any], intact: Integers) -> Batch | None:
        """Returns the batch of what `read` gave."""
        if not len(intact) and len(chosen.positions) and self.request.steps.host_count == 1:
            return None
        chosen = chosen.keep(intact)
        return structured(self.request, ready, self.mixed(chosen), chosen.weights)

    def choose(self, epoch: int, positions: Integers) -> Chosen:
        """Returns the records at positions of an epoch."""
        numbers = self._selected(self.order(epoch, positions))
        return Chosen(epoch, positions, numbers, np.ones(len(positions), np.float32))

    def _read_ahead(self, step: int) -> None:
        """Begins to fetch the blocks of the epoch's steps from `step` on, `AHEAD_BYTES` ahead."""
        steps, request = self.request.steps, self.request
        if not request.is_remote or not self._planning.acquire(blocking=False):
            return
        try:
            epoch, at_once = step // steps.of_epoch, -(-AT_ONCE // steps.batch_size)
            first = self._planned.stop if step in self._planned else step
            ahead = max(1, AHEAD_BYTES // max(1, request.batch_bytes))
            last = min((epoch + 1) * steps.of_epoch, step + ahead, first + 4 * at_once)
            if last - first >= at_once or last % steps.of_epoch == 0 and first < last:
                positions = [steps.positions(each % steps.of_epoch) for each in range(first, last)]
                self.records.fetch_ahead(self.records_in(self.choose(epoch, np.concatenate(positions)).numbers))
                self._planned = range(step, last)
        finally:
            self._planning.release()

    def read(self, batches: Sequence[Chosen]) -> list[tuple[dict[str, Any], Integers]]:
        """Returns each batch's model-ready arrays by part, and the positions of its intact rows.

        All batches are read and parsed together: for small records in a third of the time. Raises: DamagedRecordError.
        """
        try:
            columns = self._columns(Chosen.joined(batches)) if len(batches) > 1 else None
        except RowError:  # found below, batch by batch
            columns = None
        ends = np.cumsum([0, *(len(chosen.positions) for chosen in batches)]).tolist()
        return [
            self._read_one(chosen, columns and {name: _part(column, *span) for name, column in columns.items()})
            for chosen, *span in zip(batches, ends, ends[1:], strict=False)
        ]

    def _read_one(self, chosen: Chosen, columns: dict[str, Column] | None) -> tuple[dict[str, Any], Integers]:
        """Returns a batch without its damaged rows, if these may be skipped; `columns` are parsed already.

        In batches of fixed size the record at the next position replaces a damaged one, with weight 0.
        """
        rows = np.arange(len(chosen.positions))
        most = self.request.given.max_skipped
        for _ in range(len(rows) + most + 1):
            good = chosen.keep(rows)
            try:
                return self._finished(good, self._columns(good) if columns is None else columns), rows
            except RowError as error:
                row, columns = rows[error.row], None
                if chosen.weights[row]:
                    self._blame(int(chosen.numbers[row]), error)
                if not self.request.refills:
                    rows = np.delete(rows, error.row)
                    continue
                chosen.weights[row] = 0
                chosen.positions[row] = (chosen.positions[row] + 1) % self.request.steps.records
                chosen.numbers[row] = self.choose(chosen.epoch, chosen.positions[[row]]).numbers[0]
        raise too_many(len(rows) + most + 1, most, self.request.shards[0].advice)

    def mixed(self, chosen: Chosen) -> list[npt.NDArray[np.float64]]:
        """Draws the random numbers of the batch's mixtures: float64 [rows, lanes] each."""
        mixtures = enumerate(self.request.mixtures, MIXTURES)
        return [self._drawn(chosen, purpose, mixture.lanes) for purpose, mixture in mixtures]

    def _drawn(self, chosen: Chosen, purpose: int, lanes: int) -> npt.NDArray[np.float64]:
        """Draws random numbers per row, float64 [rows, lanes], 0 to 1."""
        return orders.uniform(orders.combine(self.request.given.seed, purpose, chosen.epoch), chosen.positions, lanes)

    def pieces(self, numbers: Integers) -> PackIndex:
        """Returns packed rows by number, int64 [rows], without the records that this input leaves out."""
        pieces = self.records.pieces(numbers)
        return pieces.without_pieces(places) if len(places := self._gone.places(pieces.records)) else pieces

    def records_in(self, numbers: Integers) -> Integers:
        """Returns the records of rows by number, without those that this input leaves out; int64 both."""
        return self.pieces(numbers).records if self.request.packing else numbers

    def keys(self, numbers: Integers) -> list[bytes]:
        """Returns the keys of records by number, int64 [rows]. Raises: DamagedRecordError."""
        try:
            keys: Any = parse(self.records.read(numbers), self.request.key).get(KEY) if self.request.key else None
        except RowError as error:
            where = self.records.where(int(numbers[error.row]))
            raise DamagedRecordError(f"{where} cannot be read: {error.message}") from error
        return self.records.keys(numbers) if keys is None else [*map(bytes, keys)]

    def close(self) -> None:
        """Closes files and frees memory."""
        self.records.close()
        self.memory.close()

    def _made_order(self) -> orders.Order:
        given, size, lanes = self.request.given, self.request.size, self.request.steps.lanes
        gone, made = self.request.gone_rows, orders.Order(size)
        if self.labels is not None:
            made = orders.Balanced(self.labels, given.seed, gone)
        elif given.shuffle == "global":
            made = orders.GlobalShuffle(size, given.seed)
        elif lanes:
            total, pack = self.request.bytes, self.request.pack
            block = orders.BLOCK_BYTES
            if pack is not None:  # several groups of rows
                block = 4 * rows_together(pack.length) * max(1, total // max(1, size))
            made = orders.Lanes(size, given.seed, total, lanes, block)
        if len(gone) and self.labels is None:
            made = orders.Without(made, gone)
        if given.shuffle == "none" and self.labels is None:
            return made
        if given.text != "bucketed":
            return orders.Ahead(made)
        batch, records, selected = self.request.steps.global_batch, self.records, self._selected
        window = batch * orders.Bucketed.WINDOW
        bucketed = orders.Bucketed(made, given.seed, batch, lambda positions: records.sizes(selected(positions)))
        return orders.Ahead(bucketed, window)

    def _blocks(self, cache: BlockCache) -> Integers | None:
        """Returns the first record of each block of remote files; None to read records alone.

        Blocks pay if neighbours are read at about the same time, or if all blocks fit into the cache.
        """
        request, given = self.request, self.request.given
        if not request.is_remote:
            return None
        if (given.shuffle == "global" or given.balance) and request.bytes > cache.room():
            return None
        if request.packing is not None:  # records of a group of rows, in any order
            records, total = (sum(getattr(shard, of) for shard in request.shards) for of in ("records", "bytes"))
            return np.arange(0, records, max(1, records * orders.BLOCK_BYTES // max(1, total)))
        lanes = request.steps.lanes or orders.lanes_for(1)
        begin = self._selected(orders.Lanes(self._selected.size, given.seed, request.bytes, lanes).begins())
        return np.unique(np.concatenate([begin, np.ravel(request.ranges)]))

    def _read_labels(self) -> Integers:
        label: Any = self.request.label  # the request was checked
        parts, size = [np.zeros(0, np.int64)], self._selected.size
        for start in range(0, size, LABELS_AT_ONCE):
            numbers = self._selected(np.arange(start, min(start + LABELS_AT_ONCE, size)))
            try:
                column = parse(self._payloads(numbers), {label: self.request.stored[label]})[label]
                parts.append(np.asarray(column))
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

    def _payloads(self, numbers: Integers) -> Bytes:
        with self.counters.timed("reading"):
            return self.records.read(numbers)

    def _columns(self, chosen: Chosen) -> dict[str, Column]:
        """Reads and parses rows. Raises: RowError: a row, or a record of a packed one, is damaged."""
        if self.request.packing is None:
            return self._parsed(chosen.numbers)
        pieces = self.pieces(chosen.numbers)
        try:
            return packed_columns(pieces, self._parsed(pieces.records))
        except RowError as error:
            row = int(np.searchsorted(pieces.splits, error.row, side="right")) - 1
            where = self.records.where(int(pieces.records[error.row]))
            raise RowError(row, f"{where}: {error.message}") from error

    def _parsed(self, numbers: Integers) -> dict[str, Column]:
        payloads = self._payloads(numbers)
        with self.counters.timed("parsing"):
            columns = parse(payloads, self.request.stored)
            if self.request.given.with_key and KEY not in columns:
                columns[KEY] = self.records.keys(numbers)
            return columns

    def _finished(self, chosen: Chosen, columns: dict[str, Column]) -> dict[str, Any]:
        """Makes columns model-ready; a mask's changes have the same random numbers as its image's."""
        request, changed, augment = self.request, self.request.augment, dict[str, Augment]()
        if changed:
            drawn = self._drawn(chosen, AUGMENT, max(map(lanes, changed.values())))
            for name, changes in changed.items():
                values = parameters(changes, drawn[:, : lanes(changes)])
                augment[name] = Augment(changes, values, name in request.masks)
        shares = self._drawn(chosen, CAPTIONS, 1)[:, 0] if request.given.captions == "random" else 0.0
        try:
            with self.counters.timed(self._stage):
                return finished(request, columns, augment, shares, self.memory)
        except MemoryError as error:
            remedy = "take a smaller batch_size, fewer threads, or fewer features"
            batch = f"a batch of {len(chosen.positions)} records"
            raise DatasetError(f"memory is not enough for {batch} ({error}): {remedy}") from error


def _part(column: Column, start: int, end: int) -> Column:
    if not isinstance(column, Ragged):
        return column[start:end]
    first, last = column.splits[start], column.splits[end]
    return Ragged(column.values[first:last], column.splits[start : end + 1] - first)


def finished(
    request: Request,
    columns: Mapping[str, Any],
    augment: Mapping[str, Augment],
    shares: Any = 0.0,
    memory: BatchMemory | None = None,
) -> dict[str, Any]:
    """Makes columns of a request's rows model-ready, by part (see `finish`); pads the lists of packed rows.

    Raises: RowError: a packed row has more values than `length`.
    """
    pack, ready, empty = request.packing, dict[str, Any](), np.empty if memory is None else memory.empty
    if pack is None:
        return finish(request.features, columns, request.given, augment=augment, shares=shares, memory=memory)
    for number, (name, description) in enumerate(request.features.items()):
        for part in lists_of(description.parts):
            padding = 0 if part else pack.padding.get(name, description.padding)
            column = columns[part_name(name, part)]
            if number or part:
                ready[part_name(name, part)] = padded(column, pack.length, padding, empty)
                continue
            made = packed_rows(name, column, columns[LENGTHS], pack.length, padding, empty)
            ready |= {part_name(name, each): values for each, values in made.items()}
    if request.given.with_key:
        ready[KEY] = columns[KEY]._replace(values=strings(columns[KEY].values))
    return ready


def packed_columns(pieces: PackIndex, records: Mapping[str, Column]) -> dict[str, Column]:
    """Makes the columns of packed rows from those of their pieces' records, in order.

    Raises: RowError: a record, counted over all pieces, is shorter than its piece, or its lists differ in length.
    """
    made: dict[str, Column] = {LENGTHS: Ragged(pieces.sizes, pieces.splits)}
    ends, known = pieces.firsts + pieces.sizes, None
    splits = splits_of(pieces.sizes)
    for name, column in records.items():
        if name == KEY:
            made[KEY] = Ragged(column, pieces.splits)
            continue
        assert isinstance(column, Ragged)  # noqa: S101 - `lists_of`
        lengths = column.lengths()
        known = lengths if known is None else known
        for row in np.flatnonzero((ends > lengths) | (lengths != known))[:1].tolist():
            taken = f"a packed row takes {pieces.sizes[row]} from {pieces.firsts[row]} on, of {known[row]}"
            raise RowError(row, f"'{name}' holds {lengths[row]} values: {taken}")
        values = column.values
        if splits[-1] < len(values):  # pieces, or cut
            values = values[positions_of(column.splits[:-1] + pieces.firsts, pieces.sizes)]
        made[name] = Ragged(values, splits[pieces.splits])
    return made


def structured(request: Request, ready: dict[str, Any], draws: Sequence[Any], weights: Any) -> Batch:
    """Separates the label from the features, and applies the batch's mixtures."""
    label = None if request.label is None else ready.pop(request.label)
    for mixture, drawn in zip(request.mixtures, draws, strict=True):
        ready, label = mixture.apply(ready, label, drawn)
    return in_structure(request, ready, label, weights)


def in_structure(request: Request, features: Any, label: Any, weights: Any) -> Batch:
    """Joins the parts of a batch: arrays or tensors."""
    parts = [features, *([label] if request.label is not None else []), *([weights] if request.given.pad else [])]
    return tuple(parts) if len(parts) > 1 else features
