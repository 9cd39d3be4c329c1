"""A split as `tf.data`: read in parallel, shuffled, parsed a batch at a time, decoded in parallel, prefetched.

Only the files of the request are opened; the same request and seed give the same batches on any machine.
"""

from typing import Any

import tensorflow as tf

from pipeline.reader.request import Request
from transforms.finish import parse

OPEN_SHARDS = 16  # not AUTOTUNE: the order of interleaved records follows from how many shards are open
BLOCK_LENGTH = 16  # records in a row from one shard: fewer switches between files; the shuffle mixes them
SHUFFLE_RECORDS = 10_000
SHUFFLE_BYTES = 256 << 20  # 256 MiB: what the records in the shuffle's buffer may weigh


def training_input(request: Request, seed: int, drop_remainder: bool) -> tf.data.Dataset:
    """Gives batches in an order that each iteration shuffles anew.

    Returns:
        `records // batch_size` batches, one more where a remainder is kept; see `Dataset.training_input`.
    """
    files = _files(request)
    if len(request.files) > 1:
        files = files.shuffle(len(request.files), seed=seed)
    records = files.interleave(
        tf.data.TFRecordDataset,
        cycle_length=OPEN_SHARDS,
        block_length=BLOCK_LENGTH,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    records = records.apply(tf.data.experimental.assert_cardinality(request.records))
    return _batches(request, records.shuffle(shuffle_buffer(request), seed=seed), drop_remainder)


def evaluation_input(request: Request) -> tf.data.Dataset:
    """Gives every record once, in the request's order; see `Dataset.evaluation_input`."""
    records = _files(request).flat_map(tf.data.TFRecordDataset)
    records = records.apply(tf.data.experimental.assert_cardinality(request.records))
    return _batches(request, records, drop_remainder=False)


def shuffle_buffer(request: Request) -> int:
    """The number of records that the shuffle holds: all of a small split, 10,000 or 256 MiB of a large one.

    The shards are in the order of a hash and read in shuffled order, so that a small buffer already mixes well.
    """
    mean_bytes = max(1, request.bytes // max(1, request.records))
    return max(1, min(request.records, SHUFFLE_RECORDS, SHUFFLE_BYTES // mean_bytes))


def _files(request: Request) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(tf.constant(request.files, tf.string, shape=[len(request.files)]))


def _batches(request: Request, records: tf.data.Dataset, drop_remainder: bool) -> tf.data.Dataset:
    def model_ready(serialized: tf.Tensor) -> Any:
        features = parse(request.features, serialized, with_key=request.with_key)
        if request.label is None:
            return features
        label = features.pop(request.label)
        return features, label

    # One parse for a batch: 3-10 µs a record of eight features; one for each record would cost 70-120 µs.
    batches = records.batch(request.batch_size, drop_remainder=drop_remainder)
    return batches.map(model_ready, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)
