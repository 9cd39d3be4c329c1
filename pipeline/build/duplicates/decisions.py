"""Decisions on duplicates: rows to leave out, or units to move to another split; and counts of duplicates.

Decisions are a small file for each chunk, which its worker reads; no process holds those on all rows.

`same_split` moves all rows of a cluster, and of all clusters linked by units, into the first row's split. A unit stays
in one split: a key, or with `split_by: {group: …}` a group. One process joins clusters that share units, and only holds
these. Everything else is local to a bucket:

    members ─▶ incidences ─ by unit ─▶ shared ─▶ join_clusters ─▶ moves of each bucket of units ─ by chunk ─▶ files

Counts, for the manifest and the error of `fail`, are a report of each bucket, such as `digests/counts/exact/0003.json`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context import arrow_files, reports
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.duplicates.find import Components, find_equal, firsts, in_runs, taking_part
from recordmill.pipeline.build.duplicates.fingerprints import (
    Numbers,
    Rows,
    content_features,
    contents_of_shard,
    look_up,
    pairs,
    parts_of,
    replaced,
    values,
)
from recordmill.pipeline.facts.version import leaks
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.versions.stores.base import Store

Splits = npt.NDArray[np.int64]
DROPPED, MOVED = "decisions/dropped", "decisions/moved"  # folders of the chunks' files
EXAMPLES = 5
COUNTS = "digests/counts"  # the folder of record counts, by bucket
NEAR = "reports/duplicates"  # the report on lookalike images, if the placement counted them
Contents = Callable[[int], pa.Table]  # reads a contents file by number
Json = dict[str, Any]
BEST = ("hash", "sample", "to")  # of a cluster's first row: the key's hashes, the split


def write_decisions(folder: str, order: str, planned: PlannedBuild, chunk: int, decided: pa.Table) -> int:
    """Writes a chunk's decisions, sorted by the column `order`; returns the number of rows or units."""
    table = decided.drop_columns(["chunk"]).sort_by(order)
    arrow_files.write_table(planned.workspace, f"{folder}/{reports.chunk_step(chunk)}.arrow", table)
    return int(table.num_rows)


def read_decisions(folder: str | None, planned: PlannedBuild, chunk: int) -> pa.Table | None:
    """Reads a chunk's decisions, if any; None without a folder."""
    if folder is None:
        return None
    return arrow_files.read_table(planned.workspace, f"{folder}/{reports.chunk_step(chunk)}.arrow")


def dropped(members: pa.Table) -> pa.Table:
    """Chooses the rows to leave out, of whole clusters (`find.members`): `chunk` and `position`.

    They are all members but each cluster's first, and the rows that repeat such a member's key. The latter are rejects:
    `first_chunk` and `first_position` are the member's, else -1.
    """
    takes = values(members, "first") < 0
    taking = members.filter(pa.array(takes))
    goes = values(taking, "row")[firsts(taking) != np.arange(taking.num_rows)]
    rows, follows = values(members, "row"), values(members, "first")
    out = np.isin(rows, goes) | (~takes & np.isin(follows, goes))
    alone = follows[out] < 0
    chunk, position = parts_of(rows[out])
    first_chunk, first_position = (np.where(alone, -1, part) for part in parts_of(follows[out]))
    names = ["chunk", "position", "first_chunk", "first_position"]
    return pa.table([chunk, position, first_chunk, first_position], names)


def leave_out(decided: pa.Table, rows: pa.Table) -> tuple[pa.Table, list[Reject], int]:
    """Leaves out a chunk's `dropped` rows; also returns rejects of repeated keys, and the number of duplicates."""
    out = values(decided, "position")
    positions = rows["@position"].to_numpy()
    goes = np.isin(positions, out)
    taken = np.searchsorted(out, positions[goes])
    firsts_of = zip(*(values(decided, name)[taken].tolist() for name in ("first_chunk", "first_position")), strict=True)
    rejects = [
        reports.reject_duplicate_key(rows, row, first)
        for row, first in zip(np.flatnonzero(goes).tolist(), firsts_of, strict=True)
        if first[0] >= 0
    ]
    return rows.filter(pa.array(~goes)), rejects, len(taken) - len(rejects)


def move(decided: pa.Table, units: Numbers, splits: Splits) -> Splits:
    """Returns rows' splits after their chunk's moves (`moves_of_chunks`), which rise by `unit`."""
    return look_up(values(decided, "unit"), values(decided, "split"), units, splits)


def incidences(members: pa.Table) -> pa.Table:
    """Lists the clusters' units: `unit`, the cluster's `name`, the unit's `split`, and the cluster's first row."""
    taking = taking_part(members)
    best = taking.take(pa.array(firsts(taking)))
    table = taking.select(["unit", "name", "split"])
    for name, column in zip(BEST, ("hash", "sample", "split"), strict=True):
        table = table.append_column(name, best[column])
    return table


def shared(of_units: pa.Table) -> pa.Table:
    """Chooses the incidences of units in several clusters, from all incidences of some units."""
    ordered = of_units.select(["unit", "name", *BEST]).sort_by([("unit", "ascending"), ("name", "ascending")])
    units, names = values(ordered, "unit"), values(ordered, "name")
    new = np.ones(len(units), bool)
    new[1:] = (units[1:] != units[:-1]) | (names[1:] != names[:-1])
    units = units[new]
    return ordered.filter(pa.array(new)).filter(pa.array(in_runs(units[1:] == units[:-1], len(units))))


def join_clusters(links: pa.Table) -> pa.Table:
    """Joins clusters that share units: `name` and `to`, the split of the joined clusters' first row."""
    names, node = np.unique(values(links, "name"), return_inverse=True)
    units, index = np.unique(values(links, "unit"), return_index=True)
    joined = Components(len(names))
    joined.join(node, node[index][np.searchsorted(units, values(links, "unit"))])
    roots = joined.roots[node]
    order = np.lexsort((values(links, "name"), values(links, "sample"), values(links, "hash"), roots))
    ends = np.searchsorted(roots[order], joined.roots)
    return pa.table({"name": names, "to": values(links, "to")[order[ends]]})


def write_joined(
    name: str, join: Callable[[pa.Table], pa.Table], planned: PlannedBuild, bucket: int, links: pa.Table
) -> str:
    """Joins clusters by all links, into a file; returns its name."""
    arrow_files.write_table(planned.workspace, name, join(links))
    return name


def with_joined(
    planned: PlannedBuild, step: Callable[[pa.Table, pa.Table | None], Any], table: pa.Table, names: Sequence[str]
) -> Any:
    """Calls a step with a table and the joined clusters, or None if `names` is empty."""
    return step(table, arrow_files.read_table(planned.workspace, names[0]) if names else None)


def final_splits(clusters: pa.Table, joined: pa.Table | None) -> pa.Table:
    """Replaces `to` of joined clusters."""
    if joined is None:
        return clusters
    found = look_up(values(joined, "name"), values(joined, "to"), values(clusters, "name"), values(clusters, "to"))
    return replaced(clusters, "to", found)


def moves(of_units: pa.Table, joined: pa.Table | None) -> pa.Table:
    """Lists the moving units, unique and rising, with the new `split`, from all incidences of some units."""
    final = final_splits(of_units, joined)
    moving = final.filter(pa.array(values(final, "split") != values(final, "to")))
    units, index = np.unique(values(moving, "unit"), return_index=True)
    return pa.table({"unit": pa.array(units, pa.uint64()), "split": pa.array(values(moving, "to")[index], pa.int64())})


def moves_of_chunks(moved: pa.Table, units: pa.Table) -> pa.Table:
    """Lists each chunk's moves by `chunk` and `unit`, with `split`, of the `unit` and `chunk` of rows."""
    targets, wanted = values(moved, "unit"), values(units, "unit")
    inside = np.isin(wanted, targets)
    found = np.unique(np.stack([values(units, "chunk")[inside].astype(np.uint64), wanted[inside]], axis=1), axis=0)
    split = values(moved, "split")[np.searchsorted(targets, found[:, 1])]
    return pa.table({"chunk": found[:, 0].astype(np.int64), "unit": found[:, 1], "split": split})


class DuplicatePair(NamedTuple):
    """A cluster's first row and another one, with the indexes of both splits."""

    first: int
    first_split: int
    second: int
    second_split: int


@dataclass(frozen=True)
class ClusterCounts:
    """Counts of the clusters of some complete buckets."""

    groups: int = 0  # clusters
    rows: int = 0  # rows, without each cluster's first
    within: Mapping[int, int] = field(default_factory=dict)  # rows by split, without each cluster's first there
    across: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By earlier and later split, the later's rows with duplicates in the earlier."""
    astride: Sequence[DuplicatePair] = ()
    """The lowest 5 clusters in several splits, each with its first row of another split."""
    seconds: Sequence[DuplicatePair] = ()  # the lowest 5 clusters, each with its second row

    @classmethod
    def sum(cls, several: Iterable["ClusterCounts"]) -> "ClusterCounts":
        """Adds up counts, in any order."""
        parts, within, across = [*several], Counter[int](), Counter[tuple[int, int]]()
        for each in parts:
            within.update(each.within)
            across.update(each.across)
        astride = sorted(pair for each in parts for pair in each.astride)[:EXAMPLES]
        seconds = sorted(pair for each in parts for pair in each.seconds)[:EXAMPLES]
        numbers = sum(each.groups for each in parts), sum(each.rows for each in parts)
        return cls(*numbers, within, across, astride, seconds)

    def to_json(self) -> Json:
        """Makes a bucket's report."""
        return vars(self) | {"within": [*self.within.items()], "across": [*self.across.items()]}

    @classmethod
    def of_json(cls, json: Json) -> "ClusterCounts":
        """Reads a bucket's report."""
        pairs = ([DuplicatePair(*pair) for pair in json[name]] for name in ("astride", "seconds"))
        across = {(earlier, later): count for (earlier, later), count in json["across"]}
        return cls(json["groups"], json["rows"], dict(json["within"]), across, *pairs)

    def pairs(self) -> list[DuplicatePair]:
        """Chooses up to 5 pairs of different clusters; those of two splits come first."""
        chosen: dict[int, DuplicatePair] = {}
        for pair in [*self.astride, *self.seconds]:
            if len(chosen) < EXAMPLES:
                chosen.setdefault(pair.first, pair)
        return list(chosen.values())


def count_keys(rows: pa.Table) -> ClusterCounts:
    """Counts repeated keys: in finished shards these are keys in several splits, as a split has a key once."""
    found = find_equal(pairs(rows, "hash", "sample"))
    return ClusterCounts(int((found.rows == found.names).sum()))


def count(members: pa.Table) -> ClusterCounts:
    """Counts the members of whole clusters (`find.members`)."""
    taking = taking_part(members)
    rows, names, splits = (values(taking, name) for name in ("row", "name", "split"))
    starts = np.searchsorted(names, names)
    of_split = {split: starts[splits == split] for split in np.unique(splits).tolist()}
    within = {split: len(clusters) - len(np.unique(clusters)) for split, clusters in of_split.items()}
    both = combinations(of_split, 2)
    across = {(first, later): int(np.isin(of_split[later], of_split[first]).sum()) for first, later in both}
    astride = np.flatnonzero(splits != splits[starts])
    astride = astride[np.unique(names[astride], return_index=True)[1]]
    second = np.flatnonzero(np.arange(len(names)) == starts + 1)

    def as_pairs(indexes: Rows) -> list[DuplicatePair]:
        chosen = indexes[:EXAMPLES]
        columns = rows[starts[chosen]], splits[starts[chosen]], rows[chosen], splits[chosen]
        return [DuplicatePair(*pair) for pair in zip(*(column.tolist() for column in columns), strict=True)]

    groups = int((starts == np.arange(len(starts))).sum())
    within, across = +Counter(within), +Counter(across)  # without zeros
    return ClusterCounts(groups, len(rows) - groups, within, across, as_pairs(astride), as_pairs(second))


def outline(members: pa.Table) -> pa.Table:
    """Summarizes clusters for counting once each is in one split: `name`, `rows`, the `second` row, and `to`."""
    taking = taking_part(members)
    names = values(taking, "name")
    starts, counts = np.unique(names, return_index=True, return_counts=True)[1:]
    to = values(taking, "split")[firsts(taking)[starts]]
    return pa.table({"name": names[starts], "rows": counts, "second": values(taking, "row")[starts + 1], "to": to})


def count_moved(outlines: pa.Table, joined: pa.Table | None) -> ClusterCounts:
    """Counts clusters after the moves, each within one split."""
    final = final_splits(outlines, joined).sort_by("name")
    names, rows, splits = values(final, "name"), values(final, "rows") - 1, values(final, "to")
    within = {split: int(rows[splits == split].sum()) for split in np.unique(splits).tolist()}
    lowest = zip(*(each[:EXAMPLES].tolist() for each in (names, splits, values(final, "second"), splits)), strict=True)
    return ClusterCounts(len(names), int(rows.sum()), within, seconds=[DuplicatePair(*pair) for pair in lowest])


def write_counts(
    folder: str, count: Callable[..., ClusterCounts], planned: PlannedBuild, bucket: int, *given: Any
) -> int:
    """Writes a bucket's counts, made by a function; returns the number of clusters."""
    counts = count(*given)
    reports.write_report(planned.workspace, f"{folder}/{bucket:04d}", counts.to_json())
    return counts.groups


def manifest_entry(planned: PlannedBuild, span: str) -> Json:
    """Returns the manifest's entry on duplicates within a span, from the counts of a build."""
    options, splits, workspace = planned.duplicates, planned.layout.splits, planned.workspace
    buckets = planned.bucket_range(span)
    contents = partial(contents_of_shard, workspace)
    content = content_features(planned.features, planned.schema)
    across = read_counts(workspace, f"{COUNTS}/keys", buckets).groups
    exact = published(read_counts(workspace, f"{COUNTS}/exact", buckets), splits, contents)
    entry = {"action": options.action, "content": content, "keys_across": across, "exact": exact}
    if not options.near:
        return entry
    near = reports.read_report(workspace, NEAR)
    near = near or published(read_counts(workspace, f"{COUNTS}/near"), splits, contents)
    return entry | {"near": {"distance": options.distance, **near}}


def read_counts(workspace: Store, name: str, buckets: range | None = None) -> ClusterCounts:
    """Adds up the reports `NAME/0003.json` of some buckets, by default all."""
    names = [each for each in workspace.sizes(name) if buckets is None or int(PurePath(each).stem) in buckets]
    found = (json.loads(data) for _, data in workspace.read_all(names) if data is not None)
    return ClusterCounts.sum(map(ClusterCounts.of_json, found))


def published(counts: ClusterCounts, names: Sequence[str], contents: Contents) -> Json:
    """Makes the manifest's entry of counts, with the splits' names.

    `groups` are contents with several rows, `rows` all but the first of each, `within` those by split, and `across` the
    rows of a later split by an earlier one; `examples` are up to 5 pairs of rows, of two splits if possible.
    """
    across, examples = dict[str, dict[str, int]](), counts.pairs()
    for (earlier, later), number in sorted(counts.across.items()):
        across.setdefault(names[earlier], {})[names[later]] = number
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
    return printable(key.decode("utf-8", "replace")).replace("\n", "\\n").replace("\t", "\\t")[:100]


def refusal(planned: PlannedBuild, chunks: Sequence[Chunk], counts: ClusterCounts, contents: Contents) -> str:
    """Makes the message of `fail`, with the first pairs' keys and files; `contents` reads a chunk's contents."""
    entry = published(counts, planned.layout.splits, contents)
    across = f"; {message}" if (message := leaks(entry)) else ""
    rows = [(pair.first, pair.second) for pair in counts.pairs()]
    keys = keys_of([row for pair in rows for row in pair], contents)
    names = dict[int, str]()
    for row, key in keys.items():
        number, position = (int(part) for part in parts_of(np.array(row, np.int64)))
        file = planned.readers[chunks[number].source].locate(chunks[number], position)[0]
        name = shown_key(key)
        names[row] = f"'{name}'" if name == file else f"'{name}' of {shown_key(file.encode())}"
    shown = "".join(f"\n  {names[first]} and {names[second]}" for first, second in rows)
    alike = ", or look like one" if planned.hashed_images() else ""
    remedy = "Take them out of the source, or give `duplicates: drop`, `same_split` or `keep`"
    equal = f"{counts.rows:,} rows are equal to another one{alike}, in {counts.groups:,} groups{across}"
    return f"{equal}. The first pairs:{shown}\n{remedy}"
