"""Several texts a row: what is stored, and what both engines read of it, against loops in Python."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.servable import _as_read
from recordmill.transforms.base.stored import SERVED, FinishOptions, Ragged, RowError
from recordmill.transforms.engines.numpy_features import finish
from recordmill.transforms.engines.tensorflow_features import model_features
from recordmill.transforms.texts.text_stored import TextsDescription
from tests.messages import raises

Rows = list[list[list[int]]]
ROWS = st.lists(st.lists(st.lists(st.integers(1, 1 << 40), max_size=5), max_size=4), max_size=6)
IDS: dict[str, Any] = {"padding_id": 0, "vocabulary_size": 9, "unknown_id": 1, "first_id": 4}
DESCRIPTION = TextsDescription(texts_per_row="varying", max_length=None, **IDS)
AROUND = replace(DESCRIPTION, begin_id=2, end_id=3)


def parts_of(rows: Rows) -> dict[str, Ragged]:
    flat = [id_ for row in rows for text in row for id_ in text]
    sizes = [len(text) for row in rows for text in row]
    return {
        "x": Ragged(np.array(flat, np.int64), np.cumsum([0, *(sum(map(len, row)) for row in rows)])),
        "x_lengths": Ragged(np.array(sizes, np.int64), np.cumsum([0, *map(len, rows)])),
    }


def both_engines(description: TextsDescription, rows: Rows, **options: Any) -> dict[str, Any]:
    """The arrays of the NumPy engine, after a look that TensorFlow's are the same bits."""
    columns, chosen = parts_of(rows), FinishOptions(**options)
    found = finish({"x": description}, columns, chosen)
    tensors = {name: tf.RaggedTensor.from_row_splits(each.values, each.splits) for name, each in columns.items()}
    other = model_features({"x": description}, tensors, chosen)
    assert found.keys() == other.keys()
    for name, values in found.items():
        is_ragged, theirs = isinstance(values, Ragged), other[name]
        tensors_of = (theirs.values, theirs.row_splits) if is_ragged else (theirs,)
        for tensor, array in zip(tensors_of, values if is_ragged else (values,), strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array, strict=True, err_msg=name)
    return found


LENGTHS = st.none() | st.integers(1, 6)


@given(rows=ROWS, max_texts=st.none() | st.just(4), max_length=LENGTHS, text_length=LENGTHS | st.just("longest"))
def test_all_texts_are_padded(rows: Rows, max_texts: int | None, max_length: Any, text_length: Any) -> None:
    description = replace(DESCRIPTION, max_texts=max_texts, max_length=max_length, padding_id=7)
    found = both_engines(description, rows, text_length=text_length, masks=True)
    many = max_texts or max(map(len, rows), default=0)
    longest = max((len(text) for row in rows for text in row), default=0)
    wide = {None: max_length or longest, "longest": longest}.get(text_length, text_length)
    filled = [row + [[]] * (many - len(row)) for row in rows]
    assert found["x"].shape == found["x_mask"].shape == (len(rows), many, wide)
    assert found["x"].tolist() == [[(text + [7] * wide)[:wide] for text in row] for row in filled]
    assert found["x_lengths"].tolist() == [[min(wide, len(text)) for text in row] for row in filled]
    assert found["x_mask"].sum(2).tolist() == found["x_lengths"].tolist()
    assert found["x_length"].tolist() == [len(row) for row in rows]


@given(rows=ROWS, max_length=LENGTHS)
def test_all_texts_are_lists_and_a_number_cuts_each(rows: Rows, max_length: int | None) -> None:
    found = both_engines(DESCRIPTION, rows, text="ragged", text_length=max_length, masks=True)
    assert list(found) == ["x", "x_lengths"]
    kept = parts_of([[text[:max_length] for text in row] for row in rows])
    assert {name: [part.tolist() for part in found[name]] for name in kept} == {
        name: [part.tolist() for part in values] for name, values in kept.items()
    }


@given(rows=ROWS, around=st.booleans(), max_length=st.none() | st.integers(2, 6))
def test_the_first_text_is_read_as_a_text(rows: Rows, around: bool, max_length: int | None) -> None:
    description = replace(AROUND if around else DESCRIPTION, max_length=max_length)
    found = both_engines(description, rows, captions="first", masks=True)
    firsts = [row[0] if row else [2, 3] * around for row in rows]
    wide = max_length or max(map(len, firsts), default=0)
    assert list(found) == ["x", "x_mask"]
    assert found["x"].tolist() == [(text + [0] * wide)[:wide] for text in firsts]


@pytest.mark.parametrize(("form", "values"), [("ragged", [5, 6, 2, 3]), ("packed", [[5, 6, 2, 3]])])
def test_one_text_has_every_form_of_a_text(form: str, values: Any) -> None:
    columns, options = parts_of([[[5, 6], [7]], []]), FinishOptions(text=form, text_length=4, captions="first")
    found: Any = finish({"x": AROUND}, columns, options)["x"]
    assert (found.values if form == "ragged" else found).tolist() == values


@given(rows=ROWS, share=st.floats(0, 1, exclude_max=True))
def test_a_share_chooses_one_of_the_texts(rows: Rows, share: float) -> None:
    shares = np.full(len(rows), share)
    options = FinishOptions(captions="random", text="ragged")
    found: Any = finish({"x": AROUND}, parts_of(rows), options, shares=shares)["x"]
    chosen = [row[int(len(row) * share)] if row else [2, 3] for row in rows]
    assert [found.values[start:end].tolist() for start, end in pairwise(found.splits)] == chosen


@pytest.mark.parametrize("lengths", [[2, 2], [], [4, -1], [1 << 62] * 4], ids=str)
def test_lengths_that_do_not_fit_are_errors(lengths: list[int]) -> None:
    columns = parts_of([[[5]], [[6, 7, 8]]])
    columns["x_lengths"] = Ragged(np.array([1, *lengths]), np.array([0, 1, 1 + len(lengths)]))
    with raises(RowError, "'x'", "3 ids") as raised:
        finish({"x": DESCRIPTION}, columns, FinishOptions())
    assert raised.value.row == 1


@pytest.mark.parametrize("length", [1, 2, 5])
def test_served_texts_are_as_long_as_those_of_the_training(length: int) -> None:
    features = {"said": replace(DESCRIPTION, max_length=3)}
    columns = {"said": Ragged(np.arange(4, 10), np.array([0, 4, 6])),
        "said_lengths": Ragged(np.array([3, 1, 2]), np.array([0, 2, 3]))}  # fmt: skip
    options = FinishOptions(text_length=length, masks=True)
    served = {name: tf.constant(value) for name, value in finish(features, columns, SERVED).items()}
    found = _as_read(served, SimpleNamespace(features=features, given=options))  # type: ignore[arg-type]
    wanted = finish(features, columns, options)
    assert found.keys() == wanted.keys()
    assert all(found[name].numpy().tolist() == value.tolist() for name, value in wanted.items())
