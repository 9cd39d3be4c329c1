"""Orders of records: permutations of every epoch, functions of (seed, epoch, position) alone."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.reader.order import (
    Ahead,
    Balanced,
    BlockShuffle,
    Bucketed,
    GlobalShuffle,
    InOrder,
    Order,
    Permutation,
    Selected,
    block_shuffle,
    combine,
    uniform,
)

SIZES = [0, 1, 2, 3, 7, 64, 65, 997]


def sizes_of(records: np.ndarray) -> np.ndarray:
    return records * 7919 % 101


ORDERS: dict[str, Callable[[int, int], Order]] = {
    "in order": lambda size, seed: InOrder(size),
    "global": GlobalShuffle,
    "blocks": lambda size, seed: BlockShuffle(size, seed, block=5, group=3),
    "blocks by bytes": lambda size, seed: block_shuffle(size, seed, 300_000 * size),
    "bucketed": lambda size, seed: Bucketed(GlobalShuffle(size, seed), seed, 4, sizes_of),
    "ahead": lambda size, seed: Ahead(GlobalShuffle(size, seed), chunk=10),
    "one class": lambda size, seed: Balanced(np.zeros(size, np.int64), seed),
}


def epoch_of(order: Order, epoch: int) -> list[int]:
    return order.records(epoch, np.arange(order.size)).tolist()


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
    assert order.records(2, positions).tolist() == [whole[place] for place in positions]


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
    assert GlobalShuffle(10, 1).records(0, np.arange(10)).tolist() == [6, 8, 9, 4, 3, 5, 2, 0, 1, 7]
    assert BlockShuffle(10, 1, 2, 2).records(1, np.arange(10)).tolist() == [7, 6, 8, 9, 0, 5, 4, 1, 3, 2]
    drawn = uniform(combine(1, 2), np.arange(2), 2)
    assert drawn.tolist() == [[0.4586366009457423, 0.5579707213525092], [0.06266048611631447, 0.18899281481322427]]


def test_ten_million_records_take_no_memory_and_no_time() -> None:
    order = GlobalShuffle(10**7, 1)
    last = order.records(1000, np.array([10**7 - 1, 0]))
    assert len(set(last.tolist())) == 2
    assert 0 <= last.min() <= last.max() < 10**7


def test_blocks_are_read_a_group_at_a_time() -> None:
    order = BlockShuffle(103, 5, block=5, group=4)
    epoch = epoch_of(order, 0)
    groups = [{record // 5 for record in epoch[start : start + 20]} for start in range(0, 100, 20)]
    assert [len(group) for group in groups] == [4] * 5
    assert epoch[:20] != sorted(epoch[:20])
    assert {100, 101, 102} <= set(epoch[100:]) | set(epoch[80:])


def test_blocks_are_worth_a_request_and_groups_are_bounded() -> None:
    texts, images, huge = (block_shuffle(10_000, 0, 10_000 * size) for size in (256, 100_000, 10 << 20))
    assert texts.block * 256 == 1 << 20
    assert images.block * 100_000 <= 1 << 20
    assert images._in_group * 100_000 <= 64 << 20
    assert (huge.block, huge._in_group) == (1, 6)


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
    drawn = np.concatenate([labels[order.records(epoch, np.arange(100))] for epoch in range(3)])
    assert Counter(drawn.tolist()) == {0: 100, 2: 100, 5: 100}
    assert any(drawn[place] == drawn[place + 1] for place in range(299))  # the turns are shuffled
    zeros = np.concatenate([order.records(epoch, np.arange(100)) for epoch in range(3)])
    assert len(set(zeros[zeros < 90].tolist())) == 90  # all of a class come before one comes again


def test_ranges_are_numbered_one_after_another() -> None:
    selected = Selected([(3, 5), (7, 7), (0, 2)])
    assert selected.size == 4
    assert selected.records(np.arange(4)).tolist() == [3, 4, 0, 1]
