"""The sums over shards' reports: those of all reports at once, without their memory."""

import random

from recordmill.pipeline.build.worker.shard_report import LARGE, TOGETHER, ShardSums
from recordmill.pipeline.dataset.profile import by_split


def report(shard: int) -> dict[str, object]:
    numbers = random.Random(shard)
    ids = {str(id_): numbers.randrange(9) for id_ in numbers.sample(range(50), 5)}
    histogram = {"lost": 0, "keys": sorted(numbers.sample(range(999), 4)), "counts": [1, 2, 3, 4]}
    profile = {
        "kind": {"rows": 9, "missing": 1, "ids": ids, "tokens": 8, "unknown": 0},
        "age": {"rows": 9, "missing": 0, "histogram": histogram},
    }
    return {"split": "test" if shard % 5 else "train", "label_counts": ids, "profile": profile, "records": shard}


def test_the_sums_are_those_of_all_reports_at_once() -> None:
    reports, sums = [report(shard) for shard in range(3 * TOGETHER)], ShardSums()
    rest = [sums.add(each) for each in reports]
    expected = by_split(reports)
    assert {split: repr(profile) for split, profile in sums.profiles().items()} == {
        split: repr(profile) for split, profile in expected.items()
    }
    assert sums.labels["train"].total() == sum(sum(each["label_counts"].values()) for each in reports[::5])  # type: ignore[attr-defined]
    assert rest == [{name: value for name, value in each.items() if name not in LARGE} for each in reports]


def test_no_report_has_no_sums() -> None:
    assert (ShardSums().profiles(), ShardSums().labels["train"]) == ({}, {})
