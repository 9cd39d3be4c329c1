"""What decides a row's split: a column, a time, a group, the classes of a feature; the hash of the key otherwise."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipeline.build.duplicates.fingerprints import BUCKET, by_hash
from recordmill.pipeline.build.worker.placement import bounds, class_counts, distinct
from recordmill.pipeline.dataset.placement import Hashes, hash_keys, split_bounds, strata_of
from recordmill.pipeline.spec.split_by import SplitBy, instant
from tests.messages import raises

SPLITS = ["train", "validation", "test"]


@pytest.mark.parametrize(
    ("options", "values", "places"),
    [
        ({"column": "s"}, ["train", "val", "dev", "testing", "Train", ""], [0, 1, 1, 2, -1, -1]),
        ({"column": "s", "values": {"train": "a", "test": ["b", "c"]}}, ["a", "c", "train", "valid"], [0, 2, -1, 1]),
        (
            {"time": "t", "starts": {"validation": "2025-01-01", "test": "2025-07-01T12:00+02:00"}},
            ["1999-12-31", "2025-01-01", "2025-07-01T09:59", "2025-07-01T10:00Z", "1735689600", "soon", "1e400"],
            [0, 1, 1, 2, 1, -1, -1],
        ),
        ({"time": "t", "starts": {"train": "2025-01-01", "test": "2026-01-01"}}, ["2024-01-01", "2025-02-03"], [1, 0]),
        ({"time": "t", "starts": {"validation": "2025-01-01", "test": "2026-01-01"}}, ["0001-01-01T00:00+05:00"], [0]),
    ],
)  # fmt: skip
def test_a_value_names_its_split(options: dict[str, Any], values: list[str], places: list[int]) -> None:
    assert SplitBy(**options).places(values, SPLITS).tolist() == places


def test_a_split_that_is_there_has_its_own_name() -> None:
    assert SplitBy(column="c").places(["dev", "validation"], ["train", "dev", "validation"]).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({}, ["one of column, group, time and stratify", "none"]),
        ({"column": "a", "group": "b"}, ["one of", "column, group"]),
        ({"group": "b", "values": {"train": "x"}}, ["`values`", "`column`"]),
        ({"column": "b", "values": {"train": "x", "test": ["x", "y"]}}, ["'x'", "2 splits"]),
        ({"time": "t"}, ["`time`", "`starts`"]),
        ({"time": "t", "starts": {"test": "soon"}}, ["`starts`", "test", "ISO 8601", "'soon'"]),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], facts: list[str]) -> None:
    with raises(ValidationError, *facts):
        SplitBy(**options)


NO_TIMES = ["2025", "202501", "20251301", "20250230", "45658", "0", "-1", "99999999", "2025010112", "2025010124",
            "2025010199", "20250101120000",
            "1735689600000", "nan", "inf", ""]  # fmt: skip


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_number_that_may_be_a_year_a_month_or_an_hour_is_no_time(text: str) -> None:
    assert SplitBy(time="t", starts={"test": "2025-01-01"}).places([text, text + ".0"], ["train", "test"]).max() == -1


def test_eight_digits_are_a_date() -> None:
    by = SplitBy(time="t", starts={"test": "20250101"})
    assert by.places(["20241231", "20250101.0", " 20250630", "2025-06-01"], ["train", "test"]).tolist() == [0, 1, 1, 1]


def test_a_time_without_a_zone_is_utc() -> None:
    assert instant("2025-01-01") == instant("2025-01-01T01:00+01:00") == instant("1735689600.0")


def bounds_of(hashes: Hashes, shares: Sequence[float], buckets: int) -> Sequence[int]:
    """The bounds of a class, cut in buckets."""
    rows = by_hash(pa.table({"class": pa.array([b"c"] * len(hashes), pa.binary()), "hash": hashes}), "hash", buckets)
    found = {place: distinct(rows.filter(pc.equal(rows[BUCKET], place))) for place in rows[BUCKET].unique().to_pylist()}
    counts = {place: class_counts(table) for place, table in found.items()}
    return bounds(counts, shares, found.__getitem__).get("c", [1 << 64] * len(shares))


@given(
    st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=60),
    st.lists(st.integers(0, 5), min_size=1).filter(any),
    st.integers(1, 9),
)
def test_a_class_is_cut_by_the_shares_to_the_row(hashes: list[int], shares: list[int], buckets: int) -> None:
    bounds = bounds_of(np.array(hashes + hashes, np.uint64), shares, buckets)
    assert list(bounds) == sorted(bounds)
    places = strata_of(np.array(hashes, np.uint64), ["c"] * len(hashes), {"c": bounds})
    for place, share in enumerate(shares):
        assert abs(int((places == place).sum()) - share * len(hashes) / sum(shares)) <= 1


def test_a_large_class_is_cut_where_all_keys_are() -> None:
    hashes, _, _ = hash_keys([b"%d" % number for number in range(20_000)])
    found = bounds_of(hashes, [80, 10, 10], 4)
    expected = split_bounds(dict(zip(SPLITS, [80, 10, 10], strict=True)))
    assert [one / 2**64 for one in found] == pytest.approx([one / 2**64 for one in expected], abs=0.01)
