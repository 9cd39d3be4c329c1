"""Counts and the reports that carry them: sums in any order, and JSON."""

import json
import random
from dataclasses import replace

import numpy as np

from recordmill.pipeline.dataset.counts import TOGETHER, Counts, ShardReport, SpanReport, by_split
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.dataset.profile import FeatureProfile, measure_lengths


def report(number: int) -> ShardReport:
    numbers = random.Random(number)
    ids = {id_: numbers.randrange(1, 9) for id_ in sorted(numbers.sample(range(50), 5))}
    histogram = Histogram.of(np.array(numbers.sample(range(999), 4), np.float32))
    counts = Counts(
        written_by_source={0: 8, 1: 1},
        more_windows=2,
        label_counts=ids,
        profiles={"image sRGB": 1},
        losses={"image 16 bits": 3},
        messages={"chat user": 2},
        ids={"chat stored": 7},
        lengths={"text": measure_lengths(np.array([number, 4], np.int64))},
        profile={"age": FeatureProfile(9, 1, histogram), "kind": FeatureProfile(9, ids=ids, tokens=8)},
        rejected=1,
        at_fault={"photo": 1},
    )
    packs = (PackFile(8, "p", "0" * 64, 2, 3, 16),)
    files = Shard(f"{number}.tfrecord", 100, 11, "0" * 64, f"{number}.index", packs=packs)
    return ShardReport("test" if number % 5 else "train", number, files, "1" * 64, counts, "rejects/1", "2" * 64)


def written(counts: Counts) -> str:
    return repr(json.dumps(replace(report(0), counts=counts).to_json()))


def test_the_sums_are_those_of_all_reports_at_once_in_any_order() -> None:
    reports = [report(shard) for shard in range(3 * TOGETHER)]
    expected = {
        split: Counts.sum(each.counts for each in reports if each.split == split) for split in ("train", "test")
    }
    random.Random(1).shuffle(reports)
    assert {split: written(counts) for split, counts in by_split(reports).items()} == {
        split: written(counts) for split, counts in expected.items()
    }
    assert (expected["train"].rejected, expected["train"].written_by_source) == (39, {0: 39 * 8, 1: 39})
    assert expected["train"].lengths["text"]["longest"] == 190
    assert expected["train"].statistics["image"] == {"losses": {"16 bits": 39 * 3}, "profiles": {"sRGB": 39}}
    assert expected["train"].statistics["chat"] == {"messages": {"user": 78}, "ids": {"stored": 273}}
    assert (by_split([]), Counts.sum([])) == ({}, Counts())


def test_reports_are_the_same_from_json() -> None:
    for shard in (report(3), report(3).small):
        again = ShardReport.of_json(json.loads(json.dumps(shard.to_json())))
        assert json.dumps(again.to_json()) == json.dumps(shard.to_json())
        assert replace(again, counts=Counts()) == replace(shard, counts=Counts())
    span = SpanReport({"0": {"read": 9}}, {"wrong_type": 1}, {}, [report(1), None])
    data = span.to_bytes()
    assert SpanReport.of_bytes(data).to_bytes() == data
