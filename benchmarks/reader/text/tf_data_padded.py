"""The best pipeline of `tf.data` for padded batches: records are batched first and parsed together."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import Batch, Settings

WORKERS = 2
SHUFFLE = 10_000
FEATURES = {
    "text": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def parse(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses the records of a batch; what is no token is 0."""
    rows = tf.io.parse_example(records, FEATURES)
    return rows["text"].to_tensor(), rows["label"]


def shuffled(data: Path, settings: Settings, files: str = "tfrecord/*.tfrecord") -> tf.data.Dataset:
    """Gives records without end."""
    shards = tf.data.Dataset.list_files(str(data / files), shuffle=True, seed=settings.seed)
    records = shards.repeat().interleave(tf.data.TFRecordDataset, cycle_length=4)
    return records.shuffle(SHUFFLE, seed=settings.seed)


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end."""
    rows = shuffled(data, settings).batch(settings.batch_size, drop_remainder=True)
    yield from parsed(rows, settings)


def parsed(rows: tf.data.Dataset, settings: Settings) -> Iterator[Batch]:
    """Parses batches of records in several threads."""
    rows = rows.map(parse, settings.workers, deterministic=False)
    for ids, labels in rows.prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
        yield ids, ids, labels
