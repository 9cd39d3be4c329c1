"""The profile of a batch: missing values, numbers, ids and lengths of rows, by kind."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from recordmill.pipeline.build.worker.shard_report import profile_of
from recordmill.pipeline.dataset.profile import FeatureProfile
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.values.category_spec import Categories, Category
from recordmill.transforms.values.values_spec import Number, Numbers

ROWS = 4


def ids(*values: int) -> tf.Tensor:
    return tf.constant(values, tf.int64)


def one(
    feature: Feature, column: Any, stored: Any, lengths: Any = None, *, name: str = "x", is_label: bool = False
) -> FeatureProfile:
    context: Any = SimpleNamespace(features={name: feature}, learned={name: Learned(is_label=is_label)})
    known = {} if lengths is None else {"x": np.array(lengths)}
    return profile_of(context, pa.table({"x": column}), {} if stored is None else {"x": stored}, known)[name]


def test_numbers_and_their_lists_are_those_of_the_source_and_many_are_counted_coarser() -> None:
    column = pa.array([1.0, float("nan"), 1.0, 3.0], pa.float32())
    profile = one(Number(kind="number", optional=True), column, tf.constant([0.0, 9.0, 0.0, 5.0]))
    assert profile.histogram is not None
    assert (profile.rows, profile.missing, profile.histogram.counts.tolist()) == (ROWS, 1, [2, 1])
    assert profile.histogram.at([0, 2]) == [1.0, 3.0]
    column = pa.array([[1.0, 2.0], [], [2.0], [2.0]], pa.list_(pa.float32()))
    profile = one(Numbers(kind="numbers"), column, None)
    assert profile.histogram is not None
    assert (profile.missing, profile.histogram.counts.tolist()) == (1, [1, 3])
    values = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    histogram = one(Number(kind="number"), values, None).histogram
    assert histogram is not None
    assert (len(histogram.keys) <= 1024, histogram.counts.sum()) == (True, 5000)


NAMES = pa.array([b"a", b"", b"rare", b"a"], pa.binary())


@pytest.mark.parametrize(
    ("feature", "stored", "missing", "unknown"),
    [
        (Category(kind="category", optional=True), ids(1, 0, 0, 1), 1, 1),  # a missing and an unknown name share an id
        (Category(kind="category", optional=True, oov_buckets=2), ids(3, 0, 2, 3), 1, 1),
        (Category(kind="category", optional=True, hash_buckets=9), ids(3, 0, 2, 3), 1, 0),
    ],
)
def test_names(feature: Feature, stored: tf.Tensor, missing: int, unknown: int) -> None:
    profile = one(feature, NAMES, stored)
    assert (profile.rows, profile.missing, profile.tokens, profile.unknown) == (ROWS, missing, ROWS, unknown)
    assert profile.ids is not None
    assert sum(profile.ids.values()) == ROWS


def test_a_label_knows_all_names_and_lists_are_counted_alike() -> None:
    profile = one(Category(kind="category"), NAMES, ids(0, 0, 1, 0), is_label=True)
    assert (profile.missing, profile.unknown) == (0, 0)
    column = pa.array([[b"a", b"b"], [], [b"rare"], [b"a"]], pa.list_(pa.binary()))
    stored = tf.RaggedTensor.from_row_lengths(ids(2, 3, 1, 2), [2, 0, 1, 1])
    found = one(Categories(kind="categories", oov_buckets=1), column, stored)
    assert found == FeatureProfile(4, 1, None, {1: 1, 2: 2, 3: 1}, 4, 1)


def test_texts() -> None:
    stored = tf.RaggedTensor.from_row_lengths(ids(2, 1, 5, 3), [2, 0, 1, 1])
    profile = one(Text(kind="text"), NAMES, stored, [2, 0, 1, 1])
    assert profile.histogram is not None
    assert (profile.missing, profile.tokens, profile.unknown, profile.ids) == (1, 4, 1, None)
    assert profile.histogram.counts.tolist() == [1, 2, 1]


def test_what_a_function_of_the_users_stores_instead_is_counted_by_rows_alone() -> None:
    assert one(Category(kind="category"), NAMES, tf.constant([0.5] * ROWS)) == FeatureProfile(ROWS)
    assert one(Text(kind="text"), NAMES, None, name="gone") == FeatureProfile(ROWS)
