"""Counts duplicates within splits and across them: by bucket, and added up."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.duplicates.clusters import Rows
from recordmill.pipeline.build.duplicates.find import taking_part
from recordmill.pipeline.build.duplicates.fingerprints import values

EXAMPLES = 5
Json = dict[str, Any]


class Pair(NamedTuple):
    """The first row of a cluster and another one, with the indexes of their splits."""

    first: int
    first_split: int
    second: int
    second_split: int


@dataclass
class Counts:
    """The counts of the clusters of some buckets, each of which is whole."""

    groups: int = 0
    """The number of clusters."""
    rows: int = 0
    """The rows beside the first of each."""
    within: Counter[int] = field(default_factory=Counter)
    """For each split, the rows beside the first in it."""
    across: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By the earlier split and the later, the later's rows whose cluster has rows in the earlier."""
    astride: list[Pair] = field(default_factory=list)
    """The first row of another split, of the lowest 5 clusters that have one."""
    seconds: list[Pair] = field(default_factory=list)
    """The second row of the lowest 5 clusters."""

    def to_json(self) -> Json:
        """Returns the counts as JSON."""
        across = [[*pair, count] for pair, count in self.across.items()]
        return vars(self) | {"within": list(self.within.items()), "across": across}

    @classmethod
    def of_json(cls, json: Json) -> "Counts":
        """Reads them back."""
        return cls(
            json["groups"],
            json["rows"],
            Counter(dict(json["within"])),
            Counter({(earlier, later): count for earlier, later, count in json["across"]}),
            *([Pair(*pair) for pair in json[name]] for name in ("astride", "seconds")),
        )

    def pairs(self) -> list[Pair]:
        """Returns up to 5 pairs of different clusters; pairs of two splits come first."""
        chosen: dict[int, Pair] = {}
        for pair in [*self.astride, *self.seconds]:
            if len(chosen) < EXAMPLES:
                chosen.setdefault(pair.first, pair)
        return list(chosen.values())


def add_up(several: Iterable[Counts]) -> Counts:
    """Adds up counts, in any order."""
    total = Counts()
    for counts in several:
        total.groups += counts.groups
        total.rows += counts.rows
        total.within.update(counts.within)
        total.across.update(counts.across)
        total.astride = sorted([*total.astride, *counts.astride])[:EXAMPLES]
        total.seconds = sorted([*total.seconds, *counts.seconds])[:EXAMPLES]
    return total


def count(members: pa.Table) -> Counts:
    """Counts the members of whole clusters (`find.members`)."""
    taking = taking_part(members)
    rows, names, splits = (values(taking, name) for name in ("row", "name", "split"))
    starts = np.searchsorted(names, names)
    of_split = {split: starts[splits == split] for split in np.unique(splits).tolist()}
    within = {split: len(clusters) - len(np.unique(clusters)) for split, clusters in of_split.items()}
    across = {
        (earlier, later): int(np.isin(of_split[later], of_split[earlier]).sum())
        for earlier, later in combinations(of_split, 2)
    }
    astride = np.flatnonzero(splits != splits[starts])
    astride = astride[np.unique(names[astride], return_index=True)[1]]
    second = np.flatnonzero(np.arange(len(names)) == starts + 1)

    def as_pairs(indexes: Rows) -> list[Pair]:
        chosen = indexes[:EXAMPLES]
        columns = rows[starts[chosen]], splits[starts[chosen]], rows[chosen], splits[chosen]
        return [Pair(*pair) for pair in zip(*(column.tolist() for column in columns), strict=True)]

    groups = int((starts == np.arange(len(starts))).sum())
    return Counts(
        groups,
        len(rows) - groups,
        Counter({split: number for split, number in within.items() if number}),
        Counter({pair: number for pair, number in across.items() if number}),
        as_pairs(astride),
        as_pairs(second),
    )
