"""Stored tensors become Examples: the same bytes every time, and what `tf.io.parse_example` reads back."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.worker.build_shard import KEY, encode

INT64 = st.integers(-(2**63), 2**63 - 1)
BITS = st.integers(0, 2**32 - 1)  # of a float32, NaN and infinities too
ROW = st.tuples(st.binary(max_size=8), INT64, BITS, st.binary(max_size=20), st.lists(INT64, max_size=5))
SPEC = {
    KEY: tf.io.FixedLenFeature([], tf.string),
    "count": tf.io.FixedLenFeature([], tf.int64),
    "price": tf.io.FixedLenFeature([], tf.float32),
    "note": tf.io.FixedLenFeature([], tf.string),
    "ids": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
}


def stored(rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    _, counts, bits, notes, ids = zip(*rows, strict=True) if rows else ((),) * 5
    return {
        "count": tf.constant(counts, tf.int64),
        "price": tf.bitcast(tf.constant(bits, tf.uint32), tf.float32),
        "note": tf.constant(notes, tf.string),
        "ids": tf.RaggedTensor.from_row_lengths(
            tf.constant([id_ for row in ids for id_ in row], tf.int64), tf.constant(list(map(len, ids)), tf.int64)
        ),
    }


def quiet(bits: int) -> int:
    """What a signalling NaN becomes on its way through a double: the same NaN, quiet."""
    return bits | 1 << 22 if bits & 0x7FFFFFFF > 0x7F800000 else bits


@given(st.lists(ROW, min_size=1, max_size=6))
def test_every_value_comes_back(rows: list[tuple[Any, ...]]) -> None:
    keys = [row[0] for row in rows]
    parsed = tf.io.parse_example(encode(keys, stored(rows)), SPEC)
    assert parsed[KEY].numpy().tolist() == keys
    assert parsed["count"].numpy().tolist() == [row[1] for row in rows]
    assert parsed["price"].numpy().view(np.uint32).tolist() == [quiet(row[2]) for row in rows]
    assert parsed["note"].numpy().tolist() == [row[3] for row in rows]
    assert parsed["ids"].to_list() == [row[4] for row in rows]


ONE = (b"k", -1, 0x3FC00000, b"\xff", [2, 300])
FEATURES_OF_ONE = (
    b"\n\x17\n\x05count\x12\x0e\x1a\x0c\n\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\n\x0e\n\x03ids\x12\x07\x1a\x05\n\x03\x02\xac\x02",
    b"\n\x0c\n\x03key\x12\x05\n\x03\n\x01k",
    b"\n\r\n\x04note\x12\x05\n\x03\n\x01\xff",
    b"\n\x11\n\x05price\x12\x08\x12\x06\n\x04\x00\x00\xc0?",
)  # sorted by name


def test_the_bytes_are_pinned() -> None:
    (record,) = encode([b"k"], stored([ONE]))
    assert record == b"\nY" + b"".join(FEATURES_OF_ONE)


@pytest.mark.parametrize("order", [list, reversed, sorted])
def test_the_bytes_do_not_depend_on_the_order_of_features(order) -> None:
    tensors = stored([ONE])
    assert encode([b"k"], {name: tensors[name] for name in order(list(tensors))}) == encode([b"k"], tensors)


def test_rows_that_the_graph_gives_are_encoded_one_by_one() -> None:
    rows = [ONE, (b"l", 0, 0, b"", [])]
    assert encode([], stored([])) == []
    assert encode([b"k", b"l"], stored(rows)) == [*encode([b"k"], stored(rows[:1])), *encode([b"l"], stored(rows[1:]))]


def test_a_type_that_an_example_cannot_hold_is_refused() -> None:
    with pytest.raises(KeyError, match="float64"):
        encode([b"k"], {"x": tf.constant([1.0], tf.float64)})
