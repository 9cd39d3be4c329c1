"""Orders of records: permutations of every epoch, functions of (seed, epoch, position) alone."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.reader.order import (
    LANES_OF_GROUP,
    Ahead,
    Balanced,
    Bucketed,
    GlobalShuffle,
    Lanes,
    Order,
    Permutation,
    Selected,
    combine,
    lanes_for,
    uniform,
)

SIZES = [0, 1, 2, 3, 7, 64, 65, 997]


def sizes_of(records: np.ndarray) -> np.ndarray:
    return records * 7919 % 101


ORDERS: dict[str, Callable[[int, int], Order]] = {
    "in order": lambda size, seed: Order(size),
    "global": GlobalShuffle,
    "lanes": lambda size, seed: Lanes(size, seed, 300_000 * size, lanes=10),
    "a small split": lambda size, seed: Lanes(size, seed, size, lanes=240),
    "bucketed": lambda size, seed: Bucketed(GlobalShuffle(size, seed), seed, 4, sizes_of),
    "ahead": lambda size, seed: Ahead(GlobalShuffle(size, seed), chunk=10),
    "one class": lambda size, seed: Balanced(np.zeros(size, np.int64), seed),
}


def epoch_of(order: Order, epoch: int) -> list[int]:
    return order(epoch, np.arange(order.size)).tolist()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ORDERS)
def test_an_epoch_holds_every_record_once(name: str, size: int) -> None:
    order = ORDERS[name](size, 3)
    for epoch in range(3):
        assert sorted(epoch_of(order, epoch)) == list(range(size))


@pytest.mark.parametrize("name", ORDERS)
def test_any_positions_may_be_asked_for(name: str) -> None:
    order = ORDERS[name](97, 3)
    whole = epoch_of(order, 2)
    positions = np.random.default_rng(0).permutation(97)[:31]
    assert order(2, positions).tolist() == [whole[place] for place in positions]


@pytest.mark.parametrize("name", sorted(set(ORDERS) - {"in order"}))
def test_seed_and_epoch_make_the_order(name: str) -> None:
    epochs = [epoch_of(ORDERS[name](97, seed), epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert epoch_of(ORDERS[name](97, 1), 0) == epochs[0]


@given(st.integers(0, 3000), st.integers(0, 2**64 - 1))
def test_a_permutation_is_one(size: int, key: int) -> None:
    assert sorted(Permutation(size, key)(np.arange(size)).tolist()) == list(range(size))


def test_permutations_of_few_are_all_as_likely() -> None:
    found = Counter(tuple(Permutation(4, combine(1, key))(np.arange(4)).tolist()) for key in range(4800))
    assert len(found) == 24
    assert 140 < min(found.values()) <= max(found.values()) < 260  # 200 each: within 4.3 deviations


def test_neighbours_do_not_stay_together() -> None:
    epochs = np.array([epoch_of(GlobalShuffle(1000, 0), epoch) for epoch in range(50)])
    assert abs((np.diff(epochs, axis=1) == 1).mean() * 1000 - 1) < 0.5
    assert abs(epochs.mean(0).std() / (1000 / np.sqrt(12 * 50)) - 1) < 0.1


def test_the_order_of_a_seed_never_changes() -> None:
    """A resumed run depends on it: these numbers are part of the format of a state."""
    assert GlobalShuffle(10, 1)(0, np.arange(10)).tolist() == [6, 8, 9, 4, 3, 5, 2, 0, 1, 7]
    assert Lanes(10, 1, 16 << 20, 5)(1, np.arange(10)).tolist() == [4, 1, 2, 7, 8, 5, 6, 3, 9, 0]
    drawn = uniform(combine(1, 2), np.arange(2), 2)
    assert drawn.tolist() == [[0.4586366009457423, 0.5579707213525092], [0.06266048611631447, 0.18899281481322427]]


@given(st.integers(0, 3000), st.integers(1, 12), st.integers(16 << 20, 3 << 30), st.sampled_from([1, 2, 3, 4, 6]))
def test_each_block_is_one_hosts_in_every_epoch(size: int, groups: int, total: int, hosts: int) -> None:
    order = Lanes(size, 3, total, groups * hosts * LANES_OF_GROUP)
    owners = []
    for epoch in (0, 1):
        records = order(epoch, np.arange(size))
        assert sorted(records.tolist()) == list(range(size))
        blocks = np.searchsorted(order.begins(), records, side="right")
        owner = np.full(size + 1, -1)
        owner[blocks] = np.arange(size) % hosts
        assert (owner[blocks] == np.arange(size) % hosts).all()
        owners.append(owner.tolist())
    assert owners[0] == owners[1]


def test_each_block_is_read_within_a_stretch_and_neighbours_are_of_different_blocks() -> None:
    order = Lanes(24_000, 1, 24_000 << 17, 240)  # 7 or 8 records a block, 13 blocks a lane
    blocks = np.searchsorted(order.begins(), order(0, np.arange(24_000)), side="right")
    assert (np.diff(blocks) != 0).all()
    assert np.bincount(blocks)[1:].max() <= 8
    places = np.stack([blocks, np.arange(24_000) // 240], 1)
    spans = [np.ptp(places[places[:, 0] == block, 1]) for block in range(1, 200)]
    assert max(spans) < 8
    order = Lanes(10_500, 1, 10_500 << 17, 10)  # 132 blocks a lane, of 7 or 8 records
    firsts = np.mean([order(epoch, np.arange(500)) for epoch in range(40)])
    assert 0.47 < firsts / 10_500 < 0.53  # the first records of an epoch come from anywhere


def test_blocks_are_worth_a_request() -> None:
    texts, images, huge = (Lanes(100_000, 0, 100_000 * size, lanes_for(8)) for size in (256, 100_000, 10 << 20))
    assert len(texts.begins()) == 240  # all of the split is less than 240 MiB
    assert len(Lanes(100_000, 0, 10 << 20, 240).begins()) == 1
    assert 0.9 < np.diff(images.begins()).max() * 100_000 / (1 << 20) < 1.1  # to the record
    assert np.diff(huge.begins()).max() == 2


def test_buckets_hold_records_of_like_sizes() -> None:
    order = Bucketed(GlobalShuffle(4000, 1), 1, 10, sizes_of)
    epoch = np.array(epoch_of(order, 0)).reshape(-1, 10)
    spans = np.ptp(sizes_of(epoch), 1)
    assert np.median(spans) <= 3  # of 101 sizes; batches at random span about 80
    firsts = sizes_of(epoch)[:64, 0]
    assert (np.diff(firsts) < 0).sum() > 10  # the batches are not sorted


def test_classes_come_as_often_as_each_other() -> None:
    labels = np.array([0] * 90 + [2] * 9 + [5])
    order = Balanced(labels, 1)
    drawn = np.concatenate([labels[order(epoch, np.arange(100))] for epoch in range(3)])
    assert Counter(drawn.tolist()) == {0: 100, 2: 100, 5: 100}
    assert any(drawn[place] == drawn[place + 1] for place in range(299))  # the turns are shuffled
    zeros = np.concatenate([order(epoch, np.arange(100)) for epoch in range(3)])
    assert len(set(zeros[zeros < 90].tolist())) == 90  # all of a class come before one comes again


def test_ranges_are_numbered_one_after_another() -> None:
    selected = Selected([(3, 5), (7, 7), (0, 2)])
    assert (selected.size, selected(np.arange(4)).tolist()) == (4, [3, 4, 0, 1])
