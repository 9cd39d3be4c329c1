"""Duplicates found by buckets are those found among all rows at once, whatever the order, chunks and buckets."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.duplicates import decisions, find
from recordmill.pipeline.build.duplicates.decisions import ClusterCounts, count, count_moved, dropped, outline
from recordmill.pipeline.build.duplicates.find import follow_firsts, members
from recordmill.pipeline.build.duplicates.fingerprints import BUCKET, by_hash, fingerprints, numbered, parts_of, values
from tests import duplicates_in_memory as oracle
from tests.duplicates_in_memory import Row

Step = Callable[[pa.Table], pa.Table]
SEEDS = [0, *np.random.default_rng(3).integers(1, 1 << 63, 3).tolist()]
MIXED = np.random.default_rng(4).integers(1, 1 << 63, 64).tolist()
CHUNKS = 3


@st.composite
def rows_of(draw: st.DrawFn, *, groups: bool = False) -> list[Row]:
    """Rows of a few contents, keys and units; rows of one digest look the same, and keys of one unit share a split."""
    looks = [
        (seed and seed ^ sum(1 << bit for bit in bits), colour)
        for seed, bits, colour in draw(
            st.lists(
                st.tuples(st.sampled_from(SEEDS), st.sets(st.integers(0, 63), max_size=4), st.integers(0, 30)),
                min_size=7,
                max_size=7,
            )
        )
    ]
    rows = []
    drawn = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 6), st.integers(0, 2)), max_size=40)
    for place, (key, content, split) in enumerate(draw(drawn)):
        unit = key % 5 if groups else key
        row = numbered(place % CHUNKS, np.array([place]))[0]
        split = MIXED[unit] % 3 if groups else split
        rows.append(Row(int(row), split, MIXED[key], MIXED[-key], MIXED[unit + 30], content, looks[content]))
    return rows


def contents(rows: Sequence[Row]) -> pa.Table:
    """The rows as a file of contents, beside what places them."""
    looks = b"".join(row.look[0].to_bytes(8, "big") + (row.look[1] << 56 | 7).to_bytes(8, "big") for row in rows)
    digests = b"".join((row.digest * MIXED[5] % (1 << 128)).to_bytes(16, "big") for row in rows)
    kinds = {"row": pa.int64(), "split": pa.int16(), **dict.fromkeys(("hash", "sample", "unit"), pa.uint64())}
    table = pa.table({name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in kinds.items()})
    for name, data in {"digest": digests, "looks": looks}.items():
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(rows), [None, pa.py_buffer(data)])
        table = table.append_column(name, column)
    return table


class Shuffle:
    """Cuts rows into chunks, and brings the rows of each bucket together, in any order."""

    def __init__(self, seed: int, buckets: int) -> None:
        self._random = np.random.default_rng(seed)
        self.buckets = buckets

    def chunks(self, rows: Sequence[Row]) -> list[pa.Table]:
        shuffled = [rows[place] for place in self._random.permutation(len(rows))]
        cuts = sorted(self._random.integers(0, len(rows) + 1, 3).tolist())
        return [contents(shuffled[start:end]) for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]

    def __call__(self, tables: Sequence[pa.Table], step: Step) -> list[pa.Table]:
        together = pa.concat_tables(tables)
        together = together.take(pa.array(self._random.permutation(together.num_rows)))
        buckets = values(together, BUCKET)
        tables = [together.filter(pa.array(buckets == bucket)) for bucket in range(self.buckets)]
        return [step(table.drop_columns([BUCKET])) for table in tables if table.num_rows]


def clusters(rows: Sequence[Row], shuffle: Shuffle, distance: int | None) -> list[pa.Table]:
    """The members of all clusters, by bucket: the steps of `build.beam.placement` in one process."""
    buckets, is_near = shuffle.buckets, distance is not None
    read = partial(fingerprints, near=is_near)
    keyed = [by_hash(read(table, "hash", "sample", "unit"), "hash", buckets) for table in shuffle.chunks(rows)]
    settled = shuffle(keyed, lambda table: by_hash(follow_firsts(table), "high", buckets))
    if distance is None:
        return shuffle(settled, members) if settled else []
    classes = shuffle(settled, partial(members, alone=True)) if settled else []
    looks = [find.looks_of(table) for table in classes]
    tasks = find.tasks(distance, sum(table.num_rows for table in looks), part_rows=3)
    links = [find.find_links(looks, distance, task) for task in tasks]
    joined = find.join_links(pa.concat_tables(links)) if links else None
    rejoined = [find.rejoin(table, joined, buckets) for table in classes]
    return shuffle(rejoined, find.whole) if rejoined else []


def told(counts: ClusterCounts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in ("groups", "rows", "within", "across")} | {"pairs": counts.pairs()}


as_runs = given(
    data=st.data(), seed=st.integers(0, 99), buckets=st.sampled_from([1, 2, 5]), distance=st.sampled_from([None, 0, 3])
)


def column(tables: Sequence[pa.Table], *names: str) -> list[tuple[Any, ...]]:
    return [row for table in tables for row in zip(*(table[name].to_pylist() for name in names), strict=True)]


@as_runs
def test_the_counts_are_those_of_all_rows_at_once(
    data: st.DataObject, seed: int, buckets: int, distance: int | None
) -> None:
    rows = data.draw(rows_of())
    counted = [count(table) for table in clusters(rows, Shuffle(seed, buckets), distance)]
    found = ClusterCounts.sum(ClusterCounts.of_json(counts.to_json()) for counts in counted[::-1])
    assert told(found) == oracle.counted(oracle.clusters(rows, distance))


@as_runs
def test_the_rows_that_are_left_out_are_the_same(
    data: st.DataObject, seed: int, buckets: int, distance: int | None
) -> None:
    rows = data.draw(rows_of())
    tables = [dropped(table) for table in clusters(rows, Shuffle(seed, buckets), distance)]
    found = {}
    for chunk, position, *first in column(tables, "chunk", "position", "first_chunk", "first_position"):
        row, of = (int(numbered(file, np.array(place))) for file, place in ((chunk, position), first))
        found[row] = of if first[0] >= 0 else -1
    assert found == oracle.dropped(rows, distance)


@as_runs
@pytest.mark.parametrize("groups", [False, True])
def test_the_units_that_move_are_the_same_and_each_chunk_has_its_own(
    groups: bool, data: st.DataObject, seed: int, buckets: int, distance: int | None
) -> None:
    rows, shuffle = data.draw(rows_of(groups=groups)), Shuffle(seed, buckets)
    tables = clusters(rows, shuffle, distance)
    of_units = [by_hash(decisions.incidences(table), "unit", buckets) for table in tables]
    links = shuffle(of_units, decisions.shared) if of_units else []
    joined = decisions.join_clusters(pa.concat_tables(links)) if links else None
    moved = shuffle(of_units, partial(decisions.moves, joined=joined)) if of_units else []
    assert dict(column(moved, "unit", "split")) == oracle.moved(rows, distance)

    chunk = [int(parts_of(np.array(row.row))[0]) for row in rows]
    of_chunks = pa.table(
        {"unit": pa.array([row.unit for row in rows], pa.uint64()), "chunk": pa.array(chunk, pa.int64())}
    )
    by_chunk = [decisions.moves_of_chunks(table, of_chunks) for table in moved]
    expected = {
        (chunk, row.unit, to)
        for chunk, row in zip(chunk, rows, strict=True)
        for unit, to in oracle.moved(rows, distance).items()
        if unit == row.unit
    }
    assert sorted(column(by_chunk, "chunk", "unit", "split")) == sorted(expected)

    after = ClusterCounts.sum(count_moved(outline(table), joined) for table in tables)
    of_all = oracle.clusters(rows, distance)
    to = oracle.new_splits(of_all)
    assert told(after) == oracle.counted(of_all, lambda name, row: to[name])
