"""Texts padded, ragged and packed, against loops in Python."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.base.stored import FinishOptions, Ragged, RowError
from recordmill.transforms.texts.text_read import cut, first_fit, padded, strings, texts
from recordmill.transforms.texts.text_stored import TextDescription
from tests.messages import raises

LISTS = st.lists(st.lists(st.integers(1, 1 << 40), max_size=9), max_size=12)
DESCRIPTION = TextDescription(padding_id=0, max_length=None, vocabulary_size=9, unknown_id=1, first_id=2)


def ragged(lists: list[list[int]]) -> Ragged:
    return Ragged(np.array([id_ for row in lists for id_ in row], np.int64), np.cumsum([0, *map(len, lists)]))


def ready(lists: list[list[int]], description: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    stored = {"": ragged(lists), "length": np.arange(len(lists))}
    return texts("x", replace(DESCRIPTION, **(description or {})), stored, FinishOptions(**options), np.empty)


@settings(max_examples=40, deadline=None)
@given(lists=LISTS, width=st.none() | st.integers(0, 11), padding=st.integers(-1, 5))
def test_padded_rows_are_their_values_and_the_padding(lists: list[list[int]], width: int | None, padding: int) -> None:
    wide = max(map(len, lists), default=0) if width is None else width
    expected = [(row + [padding] * wide)[:wide] for row in lists]
    full = padded(ragged(lists), width, padding, np.empty)
    assert (full.dtype, full.shape) == (np.int64, (len(lists), wide))
    assert full.tolist() == expected


@settings(max_examples=40, deadline=None)
@given(lists=LISTS, width=st.integers(0, 11))
def test_cut_rows_keep_their_first_values(lists: list[list[int]], width: int) -> None:
    found = cut(ragged(lists), width)
    rows = [row.tolist() for row in np.split(found.values, found.splits[1:-1])]
    assert rows[: len(lists)] == [row[:width] for row in lists]


def test_values_of_a_shape_of_their_own_are_padded_with_zeros() -> None:
    rows = Ragged(np.arange(12).reshape(3, 2, 2), np.array([0, 1, 1, 3]))
    assert padded(rows, 2, 0, np.empty)[:, 0].tolist() == [[[0, 1], [2, 3]], [[0, 0], [0, 0]], [[4, 5], [6, 7]]]
    assert padded(Ragged(np.zeros((1, 0), np.int64), np.array([0, 0, 0, 1])), 2, 0, np.empty).shape == (3, 2, 0)


@pytest.mark.parametrize(
    ("max_length", "text_length", "width"),
    [(None, None, 3), (5, None, 5), (2, None, 2), (5, "longest", 3), (5, 4, 4), (None, 1, 1)],
)
def test_how_long_rows_are(max_length: int | None, text_length: Any, width: int) -> None:
    lists = [[1, 2], [], [3, 4, 5]]
    found = ready(lists, {"max_length": max_length}, text_length=text_length, masks=True)
    assert list(found) == ["", "length", "mask"]
    assert found[""].tolist() == [(row + [0] * width)[:width] for row in lists]
    assert (found["mask"].dtype, found["mask"].tolist()) == (bool, (found[""] > 0).tolist())


@pytest.mark.parametrize(("length", "values"), [(None, [1, 2, 3, 4]), ("longest", [1, 2, 3, 4]), (2, [1, 2, 4])])
def test_ragged_texts_stay_lists_and_a_number_cuts_them(length: Any, values: list[int]) -> None:
    found = ready([[1, 2, 3], [], [4]], text="ragged", text_length=length, masks=True)
    assert list(found) == ["", "length"]
    assert isinstance(found[""], Ragged)
    assert found[""].values.tolist() == values
    assert found[""].splits.tolist() == [0, len(values) - 1, len(values) - 1, len(values)]


def test_packing_is_first_fit_decreasing() -> None:
    found = ready([[1], [2] * 4, [], [3] * 3, [4] * 2, [5] * 9], text="packed", text_length=5)
    assert list(found) == ["", "segments", "positions"]
    assert found[""].tolist() == [[5] * 5, [2, 2, 2, 2, 1], [3, 3, 3, 4, 4]]
    assert found["segments"].tolist() == [[1] * 5, [1, 1, 1, 1, 2], [1, 1, 1, 2, 2]]
    assert found["positions"].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 0], [0, 1, 2, 0, 1]]
    assert [found[part].dtype for part in found] == [np.int64, np.int32, np.int32]


@settings(max_examples=40, deadline=None)
@given(lists=LISTS, width=st.integers(1, 11))
def test_packing_loses_nothing_and_fills_rows(lists: list[list[int]], width: int) -> None:
    found = ready(lists, {"padding_id": -1, "max_length": width}, text="packed")
    rows = [*zip(found[""], found["segments"], strict=True)]
    unpacked = [row[of == each].tolist() for row, of in rows for each in range(1, of.max(initial=0) + 1)]
    assert sorted(unpacked) == sorted(row[:width] for row in lists if row)
    assert ((found[""] == -1) == (found["segments"] == 0)).all()
    free = (found["segments"] == 0).sum(1)
    assert not len(free) or free[:-1].sum() < width * max(1, len(free) - 1)  # no row is empty but by chance the last
    for row, segments in zip(found["positions"], found["segments"], strict=True):
        starts = np.flatnonzero(np.diff(segments, prepend=0) > 0)
        assert not row[starts].any()
        assert (np.diff(row)[np.diff(segments) == 0][: segments.astype(bool).sum() - len(starts)] == 1).all()


def as_stored(ids: list[int]) -> bytes:
    """A row of a text that the build packed."""
    return np.array(ids, "<i4").tobytes()


def test_invalid_bytes_of_ids_are_an_error() -> None:
    stored = {"": [as_stored([7]), b"abc"], "lengths": ragged([[1], [1]])}
    with raises(RowError, "'x'", "3 bytes", "4 bytes") as raised:
        texts("x", replace(DESCRIPTION, packed=4), stored, FinishOptions(), np.empty)
    assert raised.value.row == 1


@pytest.mark.parametrize(
    ("lengths", "row"), [([[1], [3]], 1), ([[2], [2]], 0), ([[2, -1], [2]], 0), ([[1], []], 1)], ids=str
)
def test_rows_that_were_packed_otherwise_are_errors(lengths: list[list[int]], row: int) -> None:
    stored = {"": [as_stored([7]), as_stored([8, 9])], "lengths": ragged(lengths)}
    with raises(RowError, "'x'", "row of 4") as raised:
        texts("x", replace(DESCRIPTION, packed=4), stored, FinishOptions(), np.empty)
    assert raised.value.row == row
    with raises(RowError, "'x'", "row of 1"):
        texts("x", replace(DESCRIPTION, packed=1), {"": [as_stored([8, 9])], "lengths": ragged([[2]])},
            FinishOptions(), np.empty)  # fmt: skip


def test_first_fit_of_nothing_gives_no_rows_and_needs_a_length() -> None:
    with raises(ValueError, "'x'", "max_length", "text_length"):
        ready([[1]], text="packed")
    for lists in ([], [[], []]):
        ids, lengths = first_fit(ragged(lists), 3)
        assert (len(ids.values), ids.splits.tolist(), lengths.splits.tolist()) == (0, [0], [0])


@pytest.mark.parametrize(
    "values", [[b"a\0", memoryview(b"\xff"), b""], np.array([[b"a\0"], [memoryview(b"b")]], object), []]
)
def test_strings_are_bytes_of_the_values_shape(values: Any) -> None:
    found = strings(values)
    assert found.shape == (np.shape(values) if isinstance(values, np.ndarray) else (len(values),))
    assert [type(value) for value in found.flat] == [bytes] * found.size
