"""What decides a row's split: a column, a time, a group, the classes of a feature; the hash of the key otherwise."""

from typing import Any

import pytest
from pydantic import ValidationError

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
            "1735689600000", "1736121600000", "nan", "inf", ""]  # fmt: skip


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_number_that_may_be_a_year_a_month_or_an_hour_is_no_time(text: str) -> None:
    assert SplitBy(time="t", starts={"test": "2025-01-01"}).places([text, text + ".0"], ["train", "test"]).max() == -1


def test_eight_digits_are_a_date_and_a_time_without_a_zone_is_utc() -> None:
    by = SplitBy(time="t", starts={"test": "20250101"})
    assert by.places(["20241231", "20250101.0", " 20250630", "2025-06-01"], ["train", "test"]).tolist() == [0, 1, 1, 1]
    assert instant("2025-01-01") == instant("2025-01-01T01:00+01:00") == instant("1735689600.0")
