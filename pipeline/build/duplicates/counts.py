"""Counts duplicates within splits and across them, for the manifest."""

import os
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.duplicates.clusters import Rows, find_equal
from recordmill.pipeline.build.duplicates.contents import Contents, content_features
from recordmill.pipeline.build.duplicates.find import Found, find
from recordmill.pipeline.dataset.atomic_files import read_report
from recordmill.pipeline.terminal_text import printable

EXAMPLES = 5
NEAR = "duplicates"
"""The report of images that look alike, by a pass before the job."""
MAX_KEY = 100
Json = dict[str, Any]


def count_duplicates(found: Found, names: Sequence[str], contents: Contents) -> Json:
    """Counts duplicates.

    Args:
        found: the duplicates.
        names: the splits.
        contents: where the rows' keys are.

    Returns:
        `groups`: how many contents occur more than once. `rows`: those beside the first of each. `within`: of each
        split the rows beside the first in it. `across`: by the earlier split and the later, the later's rows whose
        content occurs in the earlier too. `examples`: up to 5 pairs of rows, of two splits where there are any.
    """
    group = np.unique(found.clusters.names, return_inverse=True)[1]
    of_split = [group[found.splits == split] for split in range(len(names))]
    within = {name: len(rows) - len(np.unique(rows)) for name, rows in zip(names, of_split, strict=True)}
    across: dict[str, dict[str, int]] = {}
    for earlier, later in combinations(range(len(names)), 2):
        if shared := int(np.isin(of_split[later], of_split[earlier]).sum()):
            across.setdefault(names[earlier], {})[names[later]] = shared
    return {
        "groups": found.clusters.count,
        "rows": len(found.clusters.rows) - found.clusters.count,
        "within": {name: number for name, number in within.items() if number},
        "across": across,
        "examples": list(_examples(found, names, contents)),
    }


def example_pairs(found: Found) -> list[tuple[int, int]]:
    """The indexes in `found` of the first pairs, up to 5; pairs of two splits come first."""
    names = found.clusters.names
    starts = np.searchsorted(names, names)
    other = np.flatnonzero(found.splits != found.splits[starts])
    second = np.flatnonzero(np.arange(len(names)) == starts + 1)
    chosen: dict[int, int] = {}
    for index in [*_firsts(other, names), *second[:EXAMPLES].tolist()]:
        if len(chosen) < EXAMPLES:
            chosen.setdefault(int(starts[index]), index)
    return list(chosen.items())


def _firsts(places: Rows, names: Rows) -> list[int]:
    """The first place of each cluster, of the first clusters."""
    return places[np.unique(names[places], return_index=True)[1]][:EXAMPLES].tolist()


def _examples(found: Found, names: Sequence[str], contents: Contents) -> Iterator[list[Json]]:
    pairs = np.array(example_pairs(found), np.int64).reshape(-1)
    keys = contents.take("key", found.clusters.rows[pairs]).to_pylist() if len(pairs) else []
    rows = [
        {"split": names[split], "key": shown_key(key)}
        for split, key in zip(found.splits[pairs].tolist(), keys, strict=True)
    ]
    return (rows[first : first + 2] for first in range(0, len(rows), 2))


def shown_key(key: bytes) -> str:
    """A key for a message: one line, cut at 100 characters."""
    return printable(key.decode("utf-8", "replace")).replace("\n", "\\n").replace("\t", "\\t")[:MAX_KEY]


def count_keys_across(planned: PlannedBuild, contents: Contents) -> int:
    """Counts the keys in several splits: inside a split equal keys are rejects, and the hash alone gives one split."""
    if planned.schema.split_by is None and not any(planned.schema.source_splits):
        return 0
    return find_equal(lambda: contents.numbers("place"), contents.rows).count


def count_all(planned: PlannedBuild, files: Sequence[str | None]) -> Json:
    """The manifest's entry on the duplicates of a build.

    Args:
        planned: the build.
        files: of each shard the file of its contents, in the order of the groups.
    """
    contents = Contents([os.path.join(planned.path("digests"), name) for name in files if name])
    options, splits = planned.duplicates, planned.layout.splits
    entry: Json = {"action": options.action, "content": content_features(planned.features, planned.schema)}
    entry["keys_across"] = count_keys_across(planned, contents)
    entry["exact"] = count_duplicates(find(contents, None), splits, contents)
    if options.near:
        counted = read_report(planned.path("reports"), NEAR)  # by the first pass, where there was one
        counted = counted or count_duplicates(find(contents, options.distance), splits, contents)
        entry["near"] = {"distance": options.distance, **counted}
    return entry
