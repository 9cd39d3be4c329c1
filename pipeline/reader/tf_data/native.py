"""An input as a plain `tf.data` pipeline, of TensorFlow's operations alone: for TPU hosts and the tf.data service.

Files are interleaved, records shuffled by a buffer, batched, parsed, and made model-ready in the graph. Batches hold
what `as_numpy` gives (images that are scaled while they are read: within one level of 255), in a buffer's order.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.batches.by_step import in_structure
from recordmill.pipeline.reader.batches.split import SplitSource
from recordmill.pipeline.reader.input import Source
from recordmill.pipeline.reader.options.request import Request
from recordmill.pipeline.reader.order.steps import FOR_EVER
from recordmill.pipeline.redaction import cut
from recordmill.transforms.tensorflow.features import parse

BUFFER_BYTES = 256 << 20  # 256 MiB of records in the shuffle buffer at most
BUFFER_RECORDS = 100_000
FILES_AT_ONCE = 16  # interleaved; neighbours in a shard have nothing in common, so few are enough

Piece = tuple[str, int, int]
"""A file, the records to skip at its beginning, and the records to take."""


@tf.autograph.experimental.do_not_convert  # AutoGraph writes files and runs them
def native_tf_data(source: Source) -> tf.data.Dataset:
    """Gives an input's batches; see `Input.as_tf_data`.

    Raises:
        DatasetError: the input was asked for something that needs its exact order, or code that is no TensorFlow.
    """
    if not isinstance(source, SplitSource):
        raise DatasetError("as_tf_data(native=True) reads one split: use tf.data.Dataset.sample_from_datasets to mix")
    request, given = source.request, source.request.given
    _check(request)
    shuffles = given.shuffle != "none"
    pieces = list(_of_host(request))
    paths, skips, takes = (list(column) for column in zip(*pieces, strict=True)) if pieces else ([], [], [])
    files = tf.data.Dataset.from_tensor_slices(
        (tf.constant(paths, tf.string), tf.constant(skips, tf.int64), tf.constant(takes, tf.int64))
    )
    if shuffles and pieces:
        files = files.shuffle(len(pieces), given.seed)
    records = files.interleave(
        lambda path, skip, take: tf.data.TFRecordDataset(path).skip(skip).take(take),
        cycle_length=FILES_AT_ONCE if shuffles else 1,
        num_parallel_calls=tf.data.AUTOTUNE if shuffles else None,
    )
    if shuffles:
        mean = max(1, request.bytes // max(1, request.steps.records))
        buffer = min(request.steps.records, BUFFER_BYTES // mean, BUFFER_RECORDS)
        records = records.shuffle(max(1, buffer), given.seed)
    batches = records.batch(given.batch_size, given.drop_remainder).take(request.steps.of_epoch)
    batches = batches.map(lambda serialized: _model_ready(request, serialized), num_parallel_calls=tf.data.AUTOTUNE)
    steps = request.steps.of_epoch
    if given.epochs == FOR_EVER:
        batches, steps = batches.repeat(), tf.data.INFINITE_CARDINALITY if steps else 0
    elif given.epochs is not None:
        batches, steps = batches.repeat(given.epochs), steps * given.epochs
    return batches.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(tf.data.AUTOTUNE)


def _of_host(request: Request) -> Iterator[Piece]:
    """Gives the pieces of files that this host reads: an equal part of the records, one after another."""
    steps = request.steps
    first, end = (steps.records * host // steps.host_count for host in (steps.host_index, steps.host_index + 1))
    passed = 0  # records of the ranges before
    for start, stop in request.ranges:
        low, high = max(start, start + first - passed), min(stop, start + end - passed)
        passed += stop - start
        yield from _pieces(request, low, high)


def _pieces(request: Request, low: int, high: int) -> Iterator[Piece]:
    """Gives the pieces of files that hold the records `low` to `high`, by their numbers in all shards."""
    before = 0
    for shard in request.shards:
        skip, until = max(0, low - before), min(shard.records, high - before)
        if skip < until:
            yield shard.file, skip, until - skip
        before += shard.records


def _model_ready(request: Request, serialized: tf.Tensor) -> Any:
    given = request.given
    features = parse(request.features, serialized, with_key=given.with_key, options=given)
    label = None if request.label is None else features.pop(request.label)
    return in_structure(request, features, label, None)


def _check(request: Request) -> None:
    """Refuses what a plain pipeline cannot keep."""
    given = request.given
    for name, asked, instead in _refused(request):
        if asked:
            raise DatasetError(f"as_tf_data(native=True) has no {name}={cut(repr(getattr(given, name)))}: {instead}")
    schemes = {shard.file.partition("://")[0] for shard in request.shards if "://" in shard.file}
    for scheme in schemes - set(tf.io.gfile.get_registered_schemes()):
        raise DatasetError(f"TensorFlow reads no {scheme}:// here: leave native=True out, or copy the version")


def _refused(request: Request) -> Sequence[tuple[str, bool, str]]:
    given, exact = request.given, "leave native=True out, for the exact order"
    return (
        ("start_step", given.start_step > 0, exact),
        ("balance", given.balance, exact),
        ("pad", bool(given.pad), "leave native=True out, or take pad=False on one host"),
        ("on_error", given.on_error != "raise", "leave native=True out, which leaves out single records"),
        ("text", given.text in ("bucketed", "packed"), "leave native=True out, or pack texts when you build"),
        ("captions", given.captions == "random", "take 'all' or 'first', or leave native=True out"),
        ("augment", bool(request.augment or request.mixtures), "augment in the model, by Keras' layers for images"),
        ("threads", given.threads is not None, "tf.data tunes its own threads, leave it out"),
        ("workers", given.workers > 0, "tf.data has threads of its own, leave it out"),
        (
            "drop_remainder",
            not given.drop_remainder and given.host_count > 1,
            "hosts would have different numbers of batches; leave native=True out",
        ),
    )
