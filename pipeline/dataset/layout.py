"""Splits and shards of records, by their keys' hashes alone.

The shards of all splits are numbered through: a group is one shard of one split.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.key_hash import Hashes, shard_of, split_bounds


@dataclass(frozen=True)
class Layout:
    """Splits of a dataset with their shares and their numbers of shards (powers of two)."""

    weights: Mapping[str, float]
    shards: Mapping[str, int]

    @cached_property
    def splits(self) -> list[str]:
        """The names of the splits, in order."""
        return list(self.weights)

    @cached_property
    def first_group(self) -> npt.NDArray[np.int64]:
        """The first group of each split and, last, the number of groups."""
        return np.cumsum([0, *(self.shards[split] for split in self.splits)])

    @property
    def groups(self) -> int:
        """The number of shards of all splits."""
        return int(self.first_group[-1])

    def split_of(self, split_hashes: Hashes) -> npt.NDArray[np.int64]:
        """Gives the keys' splits, as positions in `splits`."""
        bounds = np.array([bound for bound in split_bounds(self.weights) if bound < 1 << 64], np.uint64)
        return np.searchsorted(bounds, split_hashes, side="right").astype(np.int64)

    def group_of(self, splits: npt.NDArray[np.int64], positions: Hashes) -> npt.NDArray[np.int64]:
        """The groups of records, by the indexes of their splits and their position hashes."""
        shards = np.array([self.shards[split] for split in self.splits], np.int64)
        return self.first_group[splits] + shard_of(positions, shards[splits])

    def shard_of_group(self, group: int) -> tuple[str, int]:
        """Gives the split of a group, and the number of the shard in it."""
        split = int(np.searchsorted(self.first_group, group, side="right")) - 1
        return self.splits[split], group - int(self.first_group[split])


def strata_of(
    split_hashes: Hashes, classes: Sequence[str], bounds: Mapping[str, Sequence[int]]
) -> npt.NDArray[np.int64]:
    """Gives the keys' splits, as positions in `splits`, where each class has bounds of its own (stratified splits).

    A class without bounds is that of rejected rows, whose split does not matter.
    """
    pairs = zip(classes, split_hashes.tolist(), strict=True)
    return np.array([bisect_right(bounds.get(name, ()), hash_) for name, hash_ in pairs], np.int64)
