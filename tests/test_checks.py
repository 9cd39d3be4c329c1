"""What was read is what was written: nothing that does not add up is published."""

from typing import Any

import pytest

from recordmill.pipeline.build.reconcile import (
    ReconcileError,
    check_analysis,
    check_shards,
    check_sources,
    expected_rows,
)

CHUNKS = [{"groups": {"0": 3, "4": 1}}, {"groups": {}}, {"groups": {"0": 2}}]


def shard(records: int, rejected: int = 0) -> dict[str, Any]:
    return {"records": records, "rejected": rejected, "shard": 1, "split": "train"}


def test_rows_of_all_chunks_add_up_by_group() -> None:
    assert expected_rows(CHUNKS) == {0: 5, 4: 1}
    assert expected_rows([]) == {}


def test_shards_of_all_rows_pass() -> None:
    check_shards(CHUNKS, {0: shard(4, rejected=1), 4: shard(0, rejected=1)})


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({0: shard(5)}, "1 rows were read for shard group 4, and the shard was not built"),
        ({0: shard(4), 4: shard(1)}, "5 rows were read for shard 1 of train, 4 came out of it"),
        ({0: shard(5, rejected=1), 4: shard(1)}, "5 rows were read for shard 1 of train, 6 came out of it"),
    ],
)
def test_a_shard_that_lost_or_repeated_rows_is_named(shards: dict[int, Any], message: str) -> None:
    with pytest.raises(ReconcileError, match=message):
        check_shards(CHUNKS, shards)


@pytest.mark.parametrize("written", [5, 7])
def test_each_source_adds_up(written: int) -> None:
    good = {"path": "a.jsonl", "read": 9, "written": 6, "rejected": 2, "duplicates": 1}
    check_sources([good, good])
    with pytest.raises(ReconcileError, match=rf"source 1 \(b.jsonl\): 9 rows read, {written} written, 2 rejected"):
        check_sources([good, {**good, "path": "b.jsonl", "written": written}])


@pytest.mark.parametrize("seen", [9, 11])
def test_the_analysis_saw_the_train_split_once(seen: int) -> None:
    check_analysis("moments", 10, 10)
    with pytest.raises(ReconcileError, match=f"the analysis of moments saw {seen} rows of the train split, 10 were"):
        check_analysis("moments", seen, 10)
