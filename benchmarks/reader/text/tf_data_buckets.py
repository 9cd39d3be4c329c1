"""`tf.data` with batches of documents of like length, by `bucket_by_sequence_length`; records are parsed together."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import Batch, Settings

from text.tf_data import FEATURES, shuffled

WORKERS = 2
PARSED = 512
BOUNDARIES = [32, 64, 128, 256]


def parse(records: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Parses many records together."""
    rows = tf.io.parse_example(records, FEATURES)
    return rows["text"], rows["label"]


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end, of about as many ids each; what is no token is 0."""
    rows = shuffled(data, settings).batch(PARSED).map(parse, settings.workers or tf.data.AUTOTUNE).unbatch()
    sizes = [settings.batch_size * 512 // boundary for boundary in BOUNDARIES]
    rows = rows.bucket_by_sequence_length(
        element_length_func=lambda ids, label: tf.size(ids),
        bucket_boundaries=BOUNDARIES,
        bucket_batch_sizes=[*sizes, settings.batch_size],
        drop_remainder=True,
    )
    for ids, labels in rows.prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
        yield ids, ids, labels
