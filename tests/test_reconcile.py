"""What was read is what was written: nothing that does not add up is published."""

from typing import Any

import pytest

from recordmill.pipeline.build.results.results import ReconcileError, check_look, check_shards, check_sources
from recordmill.pipeline.dataset.counts import Counts, ShardReport
from recordmill.pipeline.dataset.manifest import Shard
from tests.messages import raises

EXPECTED = {0: 5, 4: 1}


def shard(records: int, rejected: int = 0) -> ShardReport:
    return ShardReport("train", 1, Shard("", 0, records, "", ""), "", Counts(rejected=rejected))


def test_shards_of_all_rows_pass() -> None:
    check_shards(EXPECTED, {0: shard(4, rejected=1), 4: shard(0, rejected=1)})


@pytest.mark.parametrize(
    ("shards", "facts"),
    [
        ({0: shard(5)}, ["1 rows", "group 4", "not built"]),
        ({0: shard(4), 4: shard(1)}, ["5 rows", "shard 1 of train", "4 came"]),
        ({0: shard(5, rejected=1), 4: shard(1)}, ["5 rows", "shard 1 of train", "6 came"]),
    ],
)
def test_a_shard_that_lost_or_repeated_rows_is_named(shards: dict[int, Any], facts: list[str]) -> None:
    with raises(ReconcileError, *facts):
        check_shards(EXPECTED, shards)


@pytest.mark.parametrize("written", [5, 7])
def test_each_source_adds_up(written: int) -> None:
    good = {"path": "a.jsonl", "read": 9, "written": 6, "rejected": 2, "duplicates": 1}
    check_sources([good, good])
    with raises(ReconcileError, "source 1 (b.jsonl)", "9 rows read", f"{written} written", "2 rejected"):
        check_sources([good, {**good, "path": "b.jsonl", "written": written}])


@pytest.mark.parametrize("seen", [9, 11])
def test_the_look_saw_each_row_once(seen: int) -> None:
    check_look({"train": 10, "test": 0}, {"train": 10})
    with raises(ReconcileError, f"{seen} rows", "'train'", "10"):
        check_look({"train": seen}, {"train": 10})
