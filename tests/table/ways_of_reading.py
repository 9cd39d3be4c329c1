"""Ways of reading: each engine, form and other reader gives the values that the cases state."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from recordmill import serving_model
from tests.table.case import ABSENT, ROWS, SPLITS, Case, File, named
from tests.table.reading import by_key, records, wrong_records, wrong_values
from tests.table.ways import Found, World, judged, way
from tests.table.world import Table


def _of_all(world: World, wrong: Callable[[Table], Iterator[str]]) -> Found:
    found: dict[str, str] = {}
    for table in world.tables:
        found |= judged(table.cases, wrong(table))
    return found


@way("stored as tf.train.Example")
def stored(world: World) -> Found:
    """TensorFlow's own classes read the records of every case."""
    return _of_all(world, lambda table: wrong_records(table.cases, records(table.published.folder)))


def _evaluated(table: Table, batches: Callable[[Any], Any], **options: Any) -> Iterator[str]:
    for split in SPLITS:
        given = table.dataset.evaluation_input(split, batch_size=6, with_key=True, label=None, **options)
        yield from wrong_values(table.cases, by_key(batches(given)), padded=True)


@way("read as NumPy arrays")
def as_numpy(world: World) -> Found:
    """Batches of whole splits, padded."""
    return _of_all(world, lambda table: _evaluated(table, lambda given: given.as_numpy()))


@way("read by tf.data")
def as_tf_data(world: World) -> Found:
    """Batches handed over to TensorFlow."""
    return _of_all(world, lambda table: _evaluated(table, lambda given: given.as_tf_data().as_numpy_iterator()))


@way("read by tf.data's own operations (`native=True`)")
def as_native(world: World) -> Found:
    """Batches made by TensorFlow's graph alone."""
    native = lambda given: given.as_tf_data(native=True).as_numpy_iterator()  # noqa: E731
    return _of_all(world, lambda table: _evaluated(table, native))


@way("a row by its number or key")
def row(world: World) -> Found:
    """Single rows, without padding."""

    def wrong(table: Table) -> Iterator[str]:
        for split, rows in SPLITS.items():
            source = table.dataset.source(split, label=None, with_key=True)
            numbers = [source.number_of(ROWS[each]) for each in range(len(ROWS))[rows]]
            given = (source[number] for number in numbers)
            yield from wrong_values(table.cases, {bytes(each.pop("key")).decode(): each for each in given})

    return _of_all(world, wrong)


@way("shuffled for training, two epochs")
def training(world: World) -> Found:
    """Each epoch holds each row of the split once, with its values."""

    def wrong(table: Table) -> Iterator[str]:
        given = table.dataset.training_input("train", batch_size=2, with_key=True, label=None, epochs=2, seed=3)
        batches = list(given.as_numpy())
        for epoch in (batches[:3], batches[3:]):
            yield from wrong_values(table.cases, by_key(epoch), padded=True)

    return _of_all(world, wrong)


@way("read by tf.Transform's own classes")
def tf_transform(world: World) -> Found:
    """`TFTransformOutput` names each stored tensor and its type."""

    def wrong(table: Table) -> Iterator[str]:
        spec = tft.TFTransformOutput(table.published.folder).transformed_feature_spec()
        found = {}
        for key, example in _examples(table.published.folder):
            parsed = tf.io.parse_single_example(example, spec)
            dense = {name: tf.sparse.to_dense(each) if isinstance(each, tf.SparseTensor) else each
                     for name, each in parsed.items()}  # fmt: skip
            found[key] = {name: each.numpy().reshape(-1) for name, each in dense.items()}
        yield from wrong_records(table.cases, found)

    return _of_all(world, wrong)


def _examples(folder: str) -> Iterator[tuple[str, bytes]]:
    for file in sorted(Path(folder).glob("*.tfrecord-*")):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            yield features["key"].bytes_list.value[0].decode(), record
