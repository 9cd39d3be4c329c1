"""Splits and shards of many keys at once are those of each key alone."""

from bisect import bisect_right
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.dataset.placement import Layout, hash_key, hash_keys, shard_of, split_bounds

EDGES = [0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
HASHES = st.lists(st.integers(0, 2**64 - 1) | st.sampled_from(EDGES), min_size=1, max_size=50)
THREE = Layout({"train": 8, "validation": 1, "test": 1}, {"train": 4, "validation": 1, "test": 2})


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    splits = draw(st.lists(st.sampled_from(["train", "validation", "test", "extra"]), min_size=1, unique=True))
    weights = draw(st.lists(st.floats(0.01, 100) | st.just(0), min_size=len(splits), max_size=len(splits)).filter(any))
    shards = [1 << draw(st.integers(0, 16)) for _ in splits]
    return Layout(dict(zip(splits, weights, strict=True)), dict(zip(splits, shards, strict=True)))


@given(layouts(), HASHES)
def test_many_keys_go_where_each_would_alone(layout: Layout, hashes: list[int]) -> None:
    bounds = split_bounds(layout.weights)
    splits = [bisect_right(bounds, hash_) for hash_ in hashes]
    found = layout.split_of(np.array(hashes, np.uint64))
    assert found.tolist() == splits
    groups = layout.group_of(found, np.array(hashes, np.uint64)).tolist()
    names = [layout.splits[split] for split in splits]
    shards = [(name, shard_of(hash_, layout.shards[name])) for name, hash_ in zip(names, hashes, strict=True)]
    assert [layout.shard_of_group(group) for group in groups] == shards


@given(layouts(), layouts(), HASHES)
def test_spans_have_groups_and_shards_of_their_own(one: Layout, other: Layout, hashes: list[int]) -> None:
    counts = {"a": one.shards, "b": {split: 1 + other.shards.get(split, 0) for split in one.splits}}
    layout = Layout.of_spans(one.weights, counts)
    splits, positions = layout.split_of(np.array(hashes, np.uint64)), np.array(hashes, np.uint64)
    alone = one.group_of(splits, positions)
    assert layout.group_of(splits, positions, "a").tolist() == alone.tolist()
    for split, group in zip(splits, layout.group_of(splits, positions, "b").tolist(), strict=True):
        name, shard = layout.shard_of_group(group)
        assert (name, layout.span_of_group(group)) == (layout.splits[split], "b")
        assert one.shards[name] <= shard < layout.shards[name]
    assert one.span_of_group(0) is None


@given(layouts())
def test_a_group_has_one_shard(one: Layout) -> None:
    spans = {"a": one.shards, "b": dict.fromkeys(one.splits, 1), "c": dict.fromkeys(one.splits, 3)}
    layout = Layout.of_spans(one.weights, spans)
    for group in {0, layout.groups - 1, layout.groups // 2, one.groups}:
        assert layout.group(*layout.shard_of_group(group)) == group
    assert layout.groups == one.groups + 4 * len(one.splits)


@given(layouts())
def test_a_split_of_no_share_gets_no_key(layout: Layout) -> None:
    found = layout.split_of(np.array(EDGES, np.uint64))
    assert all(layout.weights[layout.splits[split]] for split in found)


def test_groups_are_the_shards_of_all_splits_numbered_through() -> None:
    assert THREE.splits == ["train", "validation", "test"]
    assert THREE.groups == 7
    shards = [*[("train", shard) for shard in range(4)], ("validation", 0), ("test", 0), ("test", 1)]
    assert [THREE.shard_of_group(group) for group in range(7)] == shards
    none = np.array([], np.uint64)
    assert THREE.group_of(THREE.split_of(none), none).tolist() == []


@pytest.mark.parametrize("keys", [[], [b""], [b"a", b"\xff", b"a", bytes(300)]])
def test_hashes_of_many_keys_are_those_of_each(keys: list[bytes]) -> None:
    columns = hash_keys(keys)
    assert [column.dtype for column in columns] == [np.uint64] * 3
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [hash_key(key) for key in keys]


def test_keys_fall_into_splits_by_their_shares() -> None:
    splits, _, _ = hash_keys([b"%d" % number for number in range(20_000)])
    shares = np.bincount(THREE.split_of(splits), minlength=3) / 20_000
    assert shares.tolist() == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


@given(layouts())
def test_a_span_has_the_groups_between_those_of_its_neighbours(one: Layout) -> None:
    layout = Layout.of_spans(one.weights, {"a": one.shards, "b": dict.fromkeys(one.splits, 1), "c": one.shards})
    groups, ends = [*map(layout.groups_of_span, "abc")], [0, one.groups, one.groups + len(one.splits), layout.groups]
    assert [(of.start, of.stop) for of in groups] == [*pairwise(ends)]
    assert [layout.span_of_group(of.start) for of in groups if of] == [*"abc"]
