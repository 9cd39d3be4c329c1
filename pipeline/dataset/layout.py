"""Splits and shards of records, by their keys' hashes alone.

The shards of all splits are numbered through: a group is one shard of one split. Where rows belong to spans, the groups
are numbered span by span, and a split's shards are those of the first span, of the second, and so on.

>>> days = {"monday": {"train": 2, "test": 1}, "tuesday": {"train": 1, "test": 1}}
>>> layout = Layout.of_spans({"train": 9, "test": 1}, days)
>>> [layout.shard_of_group(group) for group in range(layout.groups)]
[('train', 0), ('train', 1), ('test', 0), ('train', 2), ('test', 1)]
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.key_hash import Hashes, shard_of, split_bounds

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Splits of a dataset with their shares and their numbers of shards."""

    weights: Mapping[str, float]
    shards: Mapping[str, int]
    """The number of shards of each split; of all spans together, if there are spans."""
    spans: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The number of shards of each split in each span, in their order; empty where rows belong to no span."""

    @classmethod
    def of_spans(cls, weights: Mapping[str, float], spans: Mapping[str, Mapping[str, int]]) -> Self:
        """Makes the layout of spans."""
        return cls(weights, {split: sum(counts[split] for counts in spans.values()) for split in weights}, spans)

    @cached_property
    def splits(self) -> list[str]:
        """The names of the splits, in order."""
        return list(self.weights)

    @cached_property
    def _names(self) -> list[str]:
        """The names of the spans, in order."""
        return list(self.spans)

    @cached_property
    def _rows(self) -> dict[str, int]:
        """The positions of the spans."""
        return {name: row for row, name in enumerate(self._names)}

    @cached_property
    def _counts(self) -> Numbers:
        """The number of shards, [spans, splits]; one row where there are no spans."""
        each = self.spans.values() or [self.shards]
        return np.array([[counts[split] for split in self.splits] for counts in each], np.int64)

    @cached_property
    def _first_group(self) -> Numbers:
        """The first group of each split in each span, flat, and last the number of groups."""
        return np.concatenate([[0], np.cumsum(self._counts)])

    @cached_property
    def _first_shard(self) -> Numbers:
        """The number in its split of the first shard of each split in each span, [spans, splits]."""
        return np.cumsum(self._counts, axis=0) - self._counts

    @property
    def groups(self) -> int:
        """The number of shards of all splits."""
        return int(self._first_group[-1])

    def split_of(self, split_hashes: Hashes) -> Numbers:
        """Gives the keys' splits, as positions in `splits`."""
        bounds = np.array([bound for bound in split_bounds(self.weights) if bound < 1 << 64], np.uint64)
        return np.searchsorted(bounds, split_hashes, side="right").astype(np.int64)

    def group_of(self, splits: Numbers, positions: Hashes, span: str | None = None) -> Numbers:
        """The groups of records of one span, by the indexes of their splits and their position hashes."""
        row = 0 if span is None else self._rows[span]
        first = self._first_group[row * len(self.splits) :]
        return first[splits] + shard_of(positions, self._counts[row][splits])

    def shard_of_group(self, group: int) -> tuple[str, int]:
        """Gives the split of a group, and the number of the shard in it."""
        span, split = self._cell(group)
        number = group - int(self._first_group[span * len(self.splits) + split]) + int(self._first_shard[span, split])
        return self.splits[split], number

    def span_of_group(self, group: int) -> str | None:
        """Gives the span of a group; None where there are no spans."""
        return self._names[self._cell(group)[0]] if self.spans else None

    def groups_of_span(self, span: str) -> range:
        """Gives the groups of a span, split by split."""
        first, after = (
            int(self._first_group[row * len(self.splits)]) for row in (self._rows[span], self._rows[span] + 1)
        )
        return range(first, after)

    def group(self, split: str, shard: int) -> int:
        """Gives the group of a shard, by its split and its number in it."""
        column = self.splits.index(split)
        span = int(np.searchsorted(self._first_shard[:, column], shard, side="right")) - 1
        first = int(self._first_group[span * len(self.splits) + column])
        return first + shard - int(self._first_shard[span, column])

    def _cell(self, group: int) -> tuple[int, int]:
        """Gives the position of a group's span, and of its split."""
        return divmod(int(np.searchsorted(self._first_group, group, side="right")) - 1, len(self.splits))


def strata_of(
    split_hashes: Hashes, classes: Sequence[str], bounds: Mapping[str, Sequence[int]]
) -> npt.NDArray[np.int64]:
    """Gives the keys' splits, as positions in `splits`, where each class has bounds of its own (stratified splits).

    A class without bounds is that of rejected rows, whose split does not matter.
    """
    pairs = zip(classes, split_hashes.tolist(), strict=True)
    return np.array([bisect_right(bounds.get(name, ()), hash_) for name, hash_ in pairs], np.int64)
