"""`tf.data` with batches of documents of like length, by `bucket_by_sequence_length`."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from settings import Batch, Settings

from text.tf_data import shuffled
from text.tutorial import parse

WORKERS = 2
BOUNDARIES = [32, 64, 128, 256]
LONGEST = 512


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end, of about as many ids each; what is no token is 0."""
    sizes = [settings.batch_size * LONGEST // boundary for boundary in BOUNDARIES]
    rows = shuffled(data, settings).map(parse, settings.workers or tf.data.AUTOTUNE)
    rows = rows.bucket_by_sequence_length(
        element_length_func=lambda ids, label: tf.size(ids),
        bucket_boundaries=BOUNDARIES,
        bucket_batch_sizes=[*sizes, settings.batch_size],
        drop_remainder=True,
    )
    for ids, labels in rows.prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
        yield ids, ids, labels
