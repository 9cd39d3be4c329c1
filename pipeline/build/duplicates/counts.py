"""Counts duplicates within and across splits, and describes them in the manifest and in the error of `fail`.

Each bucket's counts are a report in the workspace, such as `digests/counts/exact/0003.json`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import read_report, write_report
from recordmill.pipeline.build.duplicates import fingerprints
from recordmill.pipeline.build.duplicates.decisions import final_splits
from recordmill.pipeline.build.duplicates.find import find_equal, firsts, taking_part
from recordmill.pipeline.build.duplicates.fingerprints import Rows, pairs, parts_of, values
from recordmill.pipeline.facts.version import leaks
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.versions.stores.base import Store

EXAMPLES = 5
COUNTS = "digests/counts"  # the folder of record counts, by bucket
NEAR = "reports/duplicates"  # the report on lookalike images, if the placement counted them
MAX_KEY = 100
Contents = Callable[[int], pa.Table]  # reads a contents file by number
Json = dict[str, Any]


class DuplicatePair(NamedTuple):
    """A cluster's first row and another one, with the indexes of both splits."""

    first: int
    first_split: int
    second: int
    second_split: int


@dataclass
class Counts:
    """Counts of the clusters of some complete buckets."""

    groups: int = 0  # clusters
    rows: int = 0  # rows, without each cluster's first
    within: Counter[int] = field(default_factory=Counter)  # rows by split, without each cluster's first there
    across: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By earlier and later split, the later's rows with duplicates in the earlier."""
    astride: list[DuplicatePair] = field(default_factory=list)
    """The lowest 5 clusters in several splits, each with its first row of another split."""
    seconds: list[DuplicatePair] = field(default_factory=list)  # the lowest 5 clusters, each with its second row

    def to_json(self) -> Json:
        """Makes a bucket's report."""
        across = [[*pair, count] for pair, count in self.across.items()]
        return vars(self) | {"within": list(self.within.items()), "across": across}

    @classmethod
    def of_json(cls, json: Json) -> "Counts":
        """Reads a bucket's report."""
        return cls(
            json["groups"],
            json["rows"],
            Counter(dict(json["within"])),
            Counter({(earlier, later): count for earlier, later, count in json["across"]}),
            *([DuplicatePair(*pair) for pair in json[name]] for name in ("astride", "seconds")),
        )

    def pairs(self) -> list[DuplicatePair]:
        """Chooses up to 5 pairs of different clusters; those of two splits come first."""
        chosen: dict[int, DuplicatePair] = {}
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


def count_keys(rows: pa.Table) -> Counts:
    """Counts repeated keys: in finished shards these are keys in several splits, as a split has a key once."""
    found = find_equal(pairs(rows, "hash", "sample"))
    return Counts(int((found.rows == found.names).sum()))


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

    def as_pairs(indexes: Rows) -> list[DuplicatePair]:
        chosen = indexes[:EXAMPLES]
        columns = rows[starts[chosen]], splits[starts[chosen]], rows[chosen], splits[chosen]
        return [DuplicatePair(*pair) for pair in zip(*(column.tolist() for column in columns), strict=True)]

    groups = int((starts == np.arange(len(starts))).sum())
    return Counts(
        groups,
        len(rows) - groups,
        Counter({split: number for split, number in within.items() if number}),
        Counter({pair: number for pair, number in across.items() if number}),
        as_pairs(astride),
        as_pairs(second),
    )


def outline(members: pa.Table) -> pa.Table:
    """Summarizes clusters for counting once each is in one split: `name`, `rows`, the `second` row, and `to`."""
    taking = taking_part(members)
    names = values(taking, "name")
    starts, counts = np.unique(names, return_index=True, return_counts=True)[1:]
    to = values(taking, "split")[firsts(taking)[starts]]
    return pa.table({"name": names[starts], "rows": counts, "second": values(taking, "row")[starts + 1], "to": to})


def count_moved(outlines: pa.Table, joined: pa.Table | None) -> Counts:
    """Counts clusters after the moves, each within one split."""
    final = final_splits(outlines, joined).sort_by("name")
    names, rows, splits = values(final, "name"), values(final, "rows") - 1, values(final, "to")
    counts = Counts(len(names), int(rows.sum()))
    for split in np.unique(splits).tolist():
        counts.within[split] = int(rows[splits == split].sum())
    lowest = zip(*(each[:EXAMPLES].tolist() for each in (names, splits, values(final, "second"), splits)), strict=True)
    counts.seconds = [DuplicatePair(*pair) for pair in lowest]
    return counts


def write_counts(folder: str, count: Callable[..., Counts], planned: PlannedBuild, bucket: int, *given: Any) -> int:
    """Writes a bucket's counts, made by a function; returns the number of clusters."""
    counts = count(*given)
    write_report(planned.workspace, f"{folder}/{bucket:04d}", counts.to_json())
    return counts.groups


def manifest_entry(planned: PlannedBuild, span: str) -> Json:
    """Returns the manifest's entry on duplicates within a span, from the counts of a build."""
    options, splits, workspace = planned.duplicates, planned.layout.splits, planned.workspace
    buckets = planned.bucket_range(span)
    contents = partial(fingerprints.contents_of_shard, workspace)
    content = fingerprints.content_features(planned.features, planned.schema)
    entry: Json = {"action": options.action, "content": content}
    entry["keys_across"] = read_counts(workspace, f"{COUNTS}/keys", buckets).groups
    entry["exact"] = published(read_counts(workspace, f"{COUNTS}/exact", buckets), splits, contents)
    if options.near:
        counted = read_report(workspace, NEAR) or published(read_counts(workspace, f"{COUNTS}/near"), splits, contents)
        entry["near"] = {"distance": options.distance, **counted}
    return entry


def read_counts(workspace: Store, name: str, buckets: range | None = None) -> Counts:
    """Adds up the reports `NAME/0003.json` of some buckets, by default all."""
    names = [each for each in workspace.sizes(name) if buckets is None or int(PurePath(each).stem) in buckets]
    return add_up(Counts.of_json(json.loads(data)) for _, data in workspace.read_all(names) if data is not None)


def published(counts: Counts, names: Sequence[str], contents: Contents) -> Json:
    """Makes the manifest's entry of counts, with the splits' names.

    Returns:
        `groups`: contents with several rows. `rows`: all but the first of each. `within`: by split, all but the first
        there. `across`: by earlier and later split, the later's rows with duplicates in the earlier. `examples`: up to
        5 pairs of rows, of two splits if possible.
    """
    across: dict[str, dict[str, int]] = {}
    for (earlier, later), number in sorted(counts.across.items()):
        across.setdefault(names[earlier], {})[names[later]] = number
    examples = counts.pairs()
    keys = keys_of([row for pair in examples for row in (pair.first, pair.second)], contents)

    def example(row: int, split: int) -> Json:
        return {"split": names[split], "key": shown_key(keys[row])}

    return {
        "groups": counts.groups,
        "rows": counts.rows,
        "within": {names[split]: number for split, number in sorted(counts.within.items())},
        "across": across,
        "examples": [[example(*pair[:2]), example(*pair[2:])] for pair in examples],
    }


def keys_of(rows: Sequence[int], contents: Contents) -> dict[int, bytes]:
    """Looks up a few rows' keys in the contents files."""
    keys: dict[int, bytes] = {}
    files, _ = parts_of(np.array(rows, np.int64))
    for file in np.unique(files).tolist():
        table = contents(file)
        table = table.filter(pa.array(np.isin(values(table, "row"), rows)))
        keys |= dict(zip(table["row"].to_pylist(), table["key"].to_pylist(), strict=True))
    return keys


def shown_key(key: bytes) -> str:
    """Returns a key for a message: one line, cut at 100 characters."""
    return printable(key.decode("utf-8", "replace")).replace("\n", "\\n").replace("\t", "\\t")[:MAX_KEY]


def refusal(planned: PlannedBuild, chunks: Sequence[Chunk], counts: Counts, contents: Contents) -> str:
    """Makes the message of `fail`, with the first pairs' keys and files; `contents` reads a chunk's contents."""
    entry = published(counts, planned.layout.splits, contents)
    across = f"; {message}" if (message := leaks(entry)) else ""
    rows = [(pair.first, pair.second) for pair in counts.pairs()]
    keys = keys_of([row for pair in rows for row in pair], contents)
    names = {row: _name(planned, chunks, row, key) for row, key in keys.items()}
    shown = "".join(f"\n  {names[first]} and {names[second]}" for first, second in rows)
    alike = ", or look like one" if planned.hashed_images() else ""
    return (
        f"{counts.rows:,} rows are equal to another one{alike}, in {counts.groups:,} groups{across}. "
        f"The first pairs:{shown}\nTake them out of the source, or give `duplicates: drop`, `same_split` or `keep`"
    )


def _name(planned: PlannedBuild, chunks: Sequence[Chunk], row: int, key: bytes) -> str:
    number, position = (int(part) for part in parts_of(np.array(row, np.int64)))
    chunk = chunks[number]
    file, shown = planned.readers[chunk.source].locate(chunk, position)[0], shown_key(key)
    return f"'{shown}'" if shown == file else f"'{shown}' of {shown_key(file.encode())}"
