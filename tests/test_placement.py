"""The stable hash: pinned by value, because a change moves every record of every dataset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.dataset.placement import (
    KeyHash,
    digest,
    hash_key,
    join_key,
    shard_count,
    shard_of,
    split_bounds,
)
from tests.messages import raises

HASHES = st.integers(0, 2**64 - 1)
SHARDS = st.integers(0, 16).map(lambda power: 1 << power)
WEIGHTS = st.lists(st.floats(0.01, 1000) | st.just(0), min_size=1, max_size=5).filter(any)
GOLDEN = {
    b"": (9980700019531997899, 7684151381058865769, 8643631202694380200),
    b"cats/1.jpg": (6742122890073825528, 7766039934514454358, 14841583476273074913),
    "naïve/übung.png".encode(): (15898790425235190838, 3304394758665249547, 12383015871917457259),
    b"\xff\x00": (7711436247781209575, 2613732374845169650, 2910695700835956695),
    bytes(1000): (8025979701478465611, 953857380239821566, 6474169393916795028),
}


@pytest.mark.parametrize("key", GOLDEN)
def test_a_key_has_the_numbers_that_it_had_in_every_version(key: bytes) -> None:
    assert hash_key(key) == KeyHash(*GOLDEN[key])
    assert digest(key) == b"".join(number.to_bytes(8, "big") for number in GOLDEN[key])


def test_columns_make_one_key() -> None:
    assert [join_key([value]) for value in ("cats/1.jpg", "3:cat", "")] == [b"cats/1.jpg", b"3:cat", b""]
    assert join_key(["cat", "7"]) == b"3:cat1:7"
    assert join_key(["ü", ""]) == b"2:\xc3\xbc0:"  # lengths are in bytes


@given(st.integers(1, 4).flatmap(lambda columns: st.tuples(*[st.lists(st.text("1:ü"), min_size=columns)] * 2)))
def test_different_values_never_give_the_same_key(pair: tuple[list[str], list[str]]) -> None:
    one, other = pair
    if len(one) == len(other) or 1 not in (len(one), len(other)):
        assert (join_key(one) == join_key(other)) == (one == other)


@pytest.mark.parametrize(
    ("weights", "bounds"),
    [
        ({"train": 80, "validation": 10, "test": 10}, [14757395258967641292, 16602069666338596454, 2**64]),
        ({"a": 0.1, "b": 0.2}, [6148914691236517205, 2**64]),
        ({"a": 0, "b": 1, "c": 0}, [0, 2**64, 2**64]),
    ],
)
def test_the_bounds_of_splits_are_those_of_every_version(weights: dict[str, float], bounds: list[int]) -> None:
    assert split_bounds(weights) == bounds


@given(WEIGHTS)
def test_bounds_rise_to_the_end_of_the_hashes(weights: list[float]) -> None:
    bounds = split_bounds({str(place): weight for place, weight in enumerate(weights)})
    assert bounds == sorted(bounds)
    assert bounds[-1] == 2**64
    widths = [high - low for low, high in zip([0, *bounds], bounds, strict=False)]
    expected = [2**64 * weight / sum(weights) for weight in weights]
    assert widths == pytest.approx(expected, abs=2**64 * 1e-4)


@pytest.mark.parametrize(
    ("weights", "facts"),
    [
        ({}, ("sum above 0", "{}")),
        ({"a": 0, "b": 0}, ("sum above 0",)),
        ({"a": 2, "b": -1}, ("0 or more",)),
        ({"a": 1e-9}, ("1e-09 of 'a'", "0.000001")),
        ({"train": 1e308, "test": 1e308}, ("below 1e300",)),
        ({"train": float("nan"), "test": 1}, ("sum above 0",)),
        ({"train": 1e15, "test": 1}, ("1 of 'test'", "1 of a million")),
        ({"train": 1, "test": 4.9e-7}, ("4.9e-07 of 'test'", "0.000001")),
    ],
)
def test_weights_that_are_no_shares_are_refused(weights: dict[str, float], facts: tuple[str, ...]) -> None:
    with raises(ValueError, *facts):
        split_bounds(weights)


@given(HASHES, HASHES, SHARDS)
def test_a_shard_is_cut_in_two_by_twice_as_many_and_keeps_the_order_of_positions(
    one: int, other: int, shards: int
) -> None:
    low, high = (shard_of(position, shards) for position in sorted([one, other]))
    assert 0 <= low <= high < shards
    assert shard_of(one, 2 * shards) // 2 == shard_of(one, shards)


def test_shards_have_the_wanted_size_or_less() -> None:
    assert [shard_count(size, 100) for size in (0, 1, 100, 101, 200, 201, 400, 401)] == [1, 1, 1, 2, 2, 4, 4, 8]
