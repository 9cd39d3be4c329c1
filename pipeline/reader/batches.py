"""NumPy batches of a split: each is a function of the step alone."""

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from operator import index
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from recordmill.pipeline.dataset.paths import ADVICE
from recordmill.pipeline.dataset.tfrecord import PackIndex
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.parallel import cores
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.options import ReadOptions
from recordmill.pipeline.reader.order import Integers, Selected
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.request import Request, images_of
from recordmill.pipeline.reader.rows import Batch, Chosen, Rows, finished, packed_columns, structured
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.stored import KEY, ArraySpec, Ragged, mapped
from recordmill.transforms.images.augment.chain import Augment

BATCHES_AHEAD = 2  # ready or in the making, besides one per thread: evens out slow batches
BYTES_TOGETHER = 256 << 10  # 256 KiB of records: amortizes NumPy's cost per call, and its arrays stay in a core's cache
MOST_TOGETHER = 32  # steps
Find = Callable[[Sequence[bytes]], Iterable[tuple[str, int, bytes]]]
"""The records of keys: `ShardFile.index_of_split`, number and key."""


class Batches(Protocol):
    """Makes batches; thread-safe, and pickles to other processes."""

    counters: Counters

    def __call__(self, steps: Sequence[int]) -> list[Batch | None]:
        """Returns the batches of steps, counted from epoch 0; None if all records of a batch are damaged."""

    def parts(self, step: int) -> Iterator[tuple[Rows, Chosen, Integers]]:
        """Yields the records of a step, from one dataset and epoch at a time, with their places in the batch."""

    def close(self) -> None:
        """Closes files and frees memory."""


class BatchSource(Protocol):
    """The data behind an input: a split, or a mixture of inputs."""

    sources: Sequence["SplitSource"]  # the splits

    given: ReadOptions  # the options; for a mixture its own, such as `epochs` and `workers`
    threads: int  # threads that make batches; 0: the caller's
    of_epoch: int  # steps of an epoch
    batch_records: int  # records of a batch, about: a packed row joins several
    steps_together: int = 1  # steps made per call
    decodes: bool  # whether images are decoded
    advice: str = ADVICE  # the remedy for damaged records
    element_spec: Any  # the structure of a batch, of `ArraySpec`

    def order_facts(self) -> dict[str, Any]:
        """Returns the facts that determine the batches' order, without the number of hosts."""

    def consumed(self, step: int) -> int:
        """Counts the records read by all hosts before a step."""

    def open(self) -> Batches:
        """Opens the records for reading."""

    def starting_at(self, step: int, lanes: int = 0) -> Self:
        """Returns the same source from another step on; `lanes` replaces the order's number of lanes, if any."""


def named(batch: Batch) -> Iterator[tuple[str, Any]]:
    """Yields the arrays of a batch, or their specs, with their names for messages."""
    features, *others = (batch,) if isinstance(batch, dict) else batch
    yield from ((f"'{name}'", array) for name, array in features.items())
    yield from (("the label", array) for array in others)


def fitting(batch: Batch, kept: Callable[[Any], Any]) -> Batch:
    """Returns a batch with whole numbers within the dtypes that JAX `kept` for theirs. Raises: DatasetError: others."""
    for name, array in named(batch):
        values = array.values if isinstance(array, Ragged) else array
        if values.dtype.kind in "iu" and values.size and (dtype := np.dtype(kept(values.dtype))) != values.dtype:
            for value in map(int, (values.min(), values.max())):
                if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
                    beyond = f"{name} holds {value}, beyond JAX's {dtype}"
                    raise DatasetError(f"{beyond}: set jax_enable_x64, or leave it out")
    return batch


class SplitSource(BatchSource):
    """The batches of a request's steps."""

    def __init__(self, request: Request, find: Find) -> None:
        """Takes a request, and a function that finds keys."""
        self.request, self.given, self.find, self.sources = request, request.given, find, (self,)
        self.advice = request.shards[0].advice if request.shards else ADVICE
        self.of_epoch, images = request.steps.of_epoch, images_of(request.features)
        self.threads = self.given.threads or (cores() if images else 1)  # else two would compete for Python's lock
        records, rows = (sum(getattr(shard, of) for shard in request.shards) for of in ("records", "rows"))
        self.batch_records = self.given.batch_size * records // max(1, rows)
        together = max(1, min(MOST_TOGETHER, BYTES_TOGETHER // max(1, request.batch_bytes)))
        self.steps_together = 1 if images else together
        self.decodes = any(image.is_image_file for image in images.values())
        self.element_spec = element_spec(request)
        self._labels: Any = None

    def order_facts(self) -> dict[str, Any]:
        request, given, lanes = self.request, self.given, self.request.steps.lanes
        return {
            "dataset": request.dataset,
            "version": request.version,
            "split": given.split,
            "seed": given.seed,
            "shuffle": given.shuffle,
            "balance": given.balance,
            **({"label": request.label} if given.balance else {}),
            "bucketed": given.text == "bucketed",
            "drop_remainder": given.drop_remainder,
            "global_batch_size": request.steps.global_batch,
            **({"lanes": lanes} if lanes else {}),
            **({"packed": self.request.packing.length} if self.request.packing else {}),
            **({"without": self.request.without} if self.request.without else {}),
        }

    def consumed(self, step: int) -> int:
        return self.request.steps.consumed(step)

    def open(self, counters: Counters | None = None) -> Rows:
        """Opens the records; reads all labels once if the order depends on them."""
        rows = Rows(self.request, self._labels, counters)
        self._labels = rows.labels
        return rows

    def starting_at(self, step: int, lanes: int = 0) -> Self:
        steps = self.request.steps
        steps = replace(steps, lanes=steps.lanes and (lanes or steps.lanes))
        return type(self)(replace(self.request, given=replace(self.given, start_step=step), steps=steps), self.find)


def as_key(key: str | bytes) -> bytes:
    """Returns a key as records hold it; a string may be a file name with surrogates for invalid UTF-8."""
    if not isinstance(key, str | bytes):
        raise DatasetError(f"a key is a string or bytes, got {cut(repr(key))}")
    return key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape")


def read_keys(file: Path) -> list[bytes]:
    """Reads a file of keys, one a line, without empty lines and the mark that Windows' programs begin it with."""
    return [line for line in file.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines() if line]


def records_of(request: Request, find: Find, keys: Sequence[bytes]) -> tuple[Integers, dict[bytes, list[int]]]:
    """Returns the records of keys in the request's shards, ascending, and those of each key found in any shard."""
    firsts = accumulate((shard.records for shard in request.shards), initial=0)
    first_of = {shard.index_of_split: first for shard, first in zip(request.shards, firsts, strict=False)}
    found = dict[bytes, list[int]]()
    for shard, record, key in find(keys):
        found.setdefault(key, []).extend([first_of[shard] + record] if shard in first_of else [])
    return np.array(sorted(chain(*found.values())), np.int64), found


def element_spec(request: Request) -> Any:
    """Returns the structure of a batch, read off an empty one, where variable sides are 0. Raises: DatasetError."""
    columns = parse([], {name: part for name, part in request.stored.items() if name != KEY})
    columns |= {KEY: []} if request.given.with_key else {}
    columns = columns if request.packing is None else packed_columns(PackIndex.none(), columns)
    augment = {name: Augment(changes, np.zeros((0, 0))) for name, changes in request.augment.items()}
    ready = finished(request, columns, augment)
    draws = [np.zeros((0, mixture.lanes)) for mixture in request.mixtures]
    given = request.given
    is_full = (given.drop_remainder or given.pad) and (given.on_error == "raise" or request.refills)
    rows = given.batch_size if is_full and (given.text != "packed" or request.pack) else None

    def spec(array: Any) -> ArraySpec:
        values = array.values if isinstance(array, Ragged) else array
        dtype = "bytes" if values.dtype == object else values.dtype.name
        if isinstance(array, Ragged):
            return ArraySpec((rows, None, *values.shape[1:]), dtype, ragged=True)
        return ArraySpec((rows, *(side or None for side in array.shape[1:])), dtype)

    try:
        return mapped(spec, structured(request, ready, draws, np.zeros(0, np.float32)))
    except ValueError as error:
        raise DatasetError(str(error)) from None


class RowSource:
    """The rows of a split in the dataset's own order. Pickles; thread-safe."""

    def __init__(self, source: SplitSource) -> None:
        """Takes the source of an evaluation. Raises: DatasetError: an option is for batches."""
        for name, value in (("host_count", 1), ("pad", False), ("on_error", "raise")):
            if getattr(source.given, name) != value:
                raise DatasetError(f"{name} is for batches, and rows come one by one: leave it out")
        self._request, self._find = source.request, source.find
        self._rows = source.open()

    def __len__(self) -> int:
        return self._request.steps.records

    def __getitem__(self, number: int) -> Any:
        """Returns a row, a batch without its first axis. Raises: IndexError: out of range; DamagedRecordError."""
        (row,) = self.__getitems__([number])
        return row

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Returns several rows, read together; PyTorch's `DataLoader` calls it."""
        positions = range(len(self))
        chosen = self._rows.choose(0, np.array([positions[index(each)] for each in numbers], np.int64))
        batch = self._rows.batch(chosen, *self._rows.read([chosen])[0])
        return [mapped(partial(_row, number=row), batch) for row in range(len(numbers))]

    def number_of(self, key: str | bytes) -> int:
        """Finds a row, or its first window, by key. Raises: DatasetError: the key is missing, or rows are packed."""
        request = self._request
        if request.pack is not None:
            raise DatasetError("a packed row joins several records: find a key without text='packed'")
        numbers = Selected(request.ranges).numbers_of(records_of(request, self._find, [as_key(key)])[0])
        if not len(numbers):
            raise DatasetError(f"'{request.given.split}' has no row of the key {key!r}")
        return int(numbers[0])


def _row(array: Any, number: int) -> Any:
    return array.row(number) if isinstance(array, Ragged) else array[number]
