"""Serialized Examples, equal to those of protocol buffers, byte by byte."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.dataset.examples import examples
from recordmill.transforms.base.stored import Ragged

KINDS = {"bytes": "bytes_list", "int64": "int64_list", "float32": "float_list"}
VALUES = {
    "bytes": st.binary(max_size=200),
    "int64": st.one_of(st.integers(0, 1 << 14), st.integers(-(1 << 63), (1 << 63) - 1)),
    "float32": st.floats(width=32),
}


def theirs(row: dict[str, tuple[str, list[Any]]]) -> bytes:
    made = tf.train.Example()
    for name, (kind, values) in row.items():
        getattr(made.features.feature[name], KINDS[kind]).value.extend(values)
    return bytes(made.SerializeToString(deterministic=True))


def ragged(kind: str, lists: list[list[Any]]) -> Ragged:
    flat = [value for values in lists for value in values]
    return Ragged(flat if kind == "bytes" else np.array(flat, kind), np.cumsum([0, *map(len, lists)]))


@st.composite
def columns(draw: st.DrawFn) -> dict[str, tuple[str, list[list[Any]]]]:
    rows = draw(st.integers(0, 4))
    name = st.one_of(st.text(min_size=1, max_size=140), st.sampled_from(["text", "text_length", "text_lengths", "tex"]))
    names = draw(st.lists(name, max_size=4, unique=True))
    kinds = {name: draw(st.sampled_from([*VALUES])) for name in names} | {"key": "bytes"}
    return {
        name: (kind, [draw(st.lists(VALUES[kind], max_size=5)) for _ in range(rows)]) for name, kind in kinds.items()
    }


@given(columns())
def test_bytes_are_those_of_protocol_buffers(given: dict[str, tuple[str, list[list[Any]]]]) -> None:
    rows = len(given["key"][1])
    expected = [theirs({name: (kind, lists[row]) for name, (kind, lists) in given.items()}) for row in range(rows)]
    assert examples({name: ragged(kind, lists) for name, (kind, lists) in given.items()}) == expected


@pytest.mark.parametrize("most", [0, 127, 128, (1 << 14) - 1, 1 << 14, 1 << 21, (1 << 28) - 1, 1 << 28, 1 << 35, -1])
def test_every_width_of_a_number(most: int) -> None:
    values = [0, most, 1, most]
    assert examples({"x": ragged("int64", [values, []])}) == [theirs({"x": ("int64", each)}) for each in (values, [])]
