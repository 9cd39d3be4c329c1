"""Random access to the rows of a split: for Grain, samplers of PyTorch, and evaluation by number or key.

>>> rows = emoji.source("test", features=["image"])  # doctest: +SKIP
>>> features, label = rows[17]  # doctest: +SKIP
>>> features, label = rows[rows.number_of("cats/17.jpg")]  # doctest: +SKIP
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.batches import Batch, SplitSource
from recordmill.transforms.contract.stored import Ragged

Find = Callable[[str], Sequence[tuple[str, int]]]
"""Finds the rows of a key: the files of their shards, and their numbers in the shards."""


class RowSource:
    """The rows of a split in the dataset's own order. Pickles, and may be used by several threads."""

    def __init__(self, source: SplitSource, find: Find) -> None:
        """Takes the source of an evaluation, and what finds keys. Raises: DatasetError: an option is not for rows."""
        for name in ("pad", "on_error"):
            if getattr(source.given, name) not in (False, "raise"):
                raise DatasetError(f"{name} is for batches, and rows are asked for one by one: leave it out")
        self._request, self._find = source.request, find
        self._batches = source.open()

    def __len__(self) -> int:
        return self._request.steps.records

    def __getitem__(self, number: int) -> Any:
        """Returns a row, from 0, or from the end for negative numbers: a batch's structure without its first axis.

        Raises:
            IndexError: there is no such row.
            DamagedRecordError: it cannot be read.
        """
        (row,) = self.__getitems__([number])
        return row

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Returns several rows, read together: PyTorch's `DataLoader` asks by this name."""
        positions = range(len(self))
        chosen = self._batches.rows.choose(0, np.array([positions[index(each)] for each in numbers], np.int64))
        batch = self._batches.read(chosen)
        return [_row(batch, row) for row in range(len(numbers))]

    def number_of(self, key: str) -> int:
        """Returns the number of the row with a key.

        Raises:
            DatasetError: these rows have no such key, or share records, as packed texts do.
        """
        request = self._request
        firsts = accumulate((shard.records for shard in request.shards), initial=0)
        first_of = {shard.file: first for shard, first in zip(request.shards, firsts, strict=False)}
        found = {first_of[file] + record for file, record in self._find(key) if file in first_of}
        before = 0
        for start, end in request.ranges:
            for number in found:
                if start <= number < end:
                    return before + number - start
            before += end - start
        raise DatasetError(f"'{request.given.split}' has no row of the key {key!r}")


def _row(batch: Batch, row: int) -> Any:
    """Returns a row of a batch."""
    if isinstance(batch, dict):
        return {name: _row(values, row) for name, values in batch.items()}
    if isinstance(batch, Ragged):
        return batch.values[batch.splits[row] : batch.splits[row + 1]]
    return tuple(_row(part, row) for part in batch) if isinstance(batch, tuple) else batch[row]
