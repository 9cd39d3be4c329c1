"""An input as `tf.data`: the batches of the NumPy reader, or a plain pipeline of TensorFlow's operations.

`as_tf_data` hands over several batches at a time: a Python call costs `tf.data` as much as a small batch. Arrays at an
address that TensorFlow can use, such as those of `BatchMemory`, are not copied.

`native_tf_data`, for TPU hosts and the tf.data service, interleaves files, shuffles records by a buffer, batches,
parses, and makes them model-ready in the graph. Batches hold the same values as in `as_numpy` (images scaled while
reading: within one level of 255), in a buffer's order.

>>> batches = in_groups(lambda: [[np.arange(3)], [np.arange(2)]], [tf.TensorSpec([None], tf.int64)], tuple, most=8)
>>> list(batches.as_numpy_iterator())
[(array([0, 1, 2]),), (array([0, 1]),)]
"""

import atexit
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain, islice
from traceback import walk_stack
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.batches import BATCHES_AHEAD, BatchSource, SplitSource
from recordmill.pipeline.reader.order import FOR_EVER, Passes
from recordmill.pipeline.reader.request import Request
from recordmill.pipeline.reader.rows import Batch, in_structure
from recordmill.pipeline.reader.workers import AHEAD as AHEAD_OF_WORKER
from recordmill.pipeline.reader.workers import default_workers
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.buffers import SMALL
from recordmill.transforms.base.stored import ArraySpec, arrays_of, mapped
from recordmill.transforms.engines.tensorflow_features import parse

MOST_BYTES = 16 << 20  # 16 MiB: larger batches do not wait for each other
Arrays: TypeAlias = Sequence[npt.NDArray[Any]]  # the arrays of a batch, in a fixed order
CALLS = {"tensorflow.python.ops.script_ops", "tensorflow.python.data.ops.iterator_ops"}
EXIT_SECONDS = 30.0  # to end the batches in the making, at most
MOST_TOGETHER = 16  # batches per call: more delay the first, as a larger graph is traced
Begin: TypeAlias = Callable[[BatchSource], Any]  # begins the next iteration over a source: `NumpyBatches`
BUFFER_BYTES = 256 << 20  # 256 MiB of records in the shuffle buffer at most
BUFFER_RECORDS = 100_000
FILES_AT_ONCE = 16  # interleaved; few are enough, as shards are shuffled


@atexit.register  # runs before TensorFlow's own, registered earlier
def _let_threads_leave() -> None:
    """Waits at exit for threads in calls between TensorFlow and Python, which would never return, nor the exit."""
    until, looks = time.monotonic() + EXIT_SECONDS, 0
    while looks < 5 and time.monotonic() < until:  # a thread that only waits for Python's lock shows up in the next
        time.sleep(0.01)
        stacks = chain.from_iterable(map(walk_stack, sys._current_frames().values()))
        looks = 0 if any(frame.f_globals.get("__name__") in CALLS for frame, _ in stacks) else looks + 1


def in_groups(
    begin: Callable[[], Iterable[Arrays]],
    specs: Sequence[tf.TensorSpec],
    structured: Callable[[Sequence[tf.Tensor]], Any],
    most: int,
) -> tf.data.Dataset:
    """Yields the batches of `begin` as a dataset, up to `most` per Python call; an iterator's `after_error` resumes it.

    `specs` are those of a batch's arrays, and `structured` makes an element from its tensors, in the same order.
    """
    # Copies of all batches' arrays cost less than TensorFlow's call per array.
    are_small = [
        spec.shape.is_fully_defined() and spec.shape.num_elements() * max(1, spec.dtype.size) < SMALL for spec in specs
    ]

    def filled(group: Any) -> tuple[tuple[Any, ...], int]:
        if isinstance(group, Exception):
            raise group
        batches = [*group, *[group[-1]] * (most - len(group))]  # each call has as many tensors
        columns = zip(are_small, zip(*batches, strict=True), strict=True)
        return tuple(each for small, of in columns for each in ([np.stack(of)] if small else of)), len(group)

    def elements(arrays: Sequence[tf.Tensor], count: tf.Tensor) -> tf.data.Dataset:
        rest = iter(arrays)
        columns = [tf.unstack(next(rest), most) if small else [*islice(rest, most)] for small in are_small]
        for spec, column in zip(specs, columns, strict=True):
            for tensor in column:
                tensor.set_shape(spec.shape)
        return tf.data.experimental.from_list([*map(structured, zip(*columns, strict=True))]).take(count)

    counts = [1 if small else most for small in are_small]
    # Without shapes, which TensorFlow would compare in Python: twice the time of a call.
    types = [tf.TensorSpec(None, spec.dtype) for count, spec in zip(counts, specs, strict=True) for _ in range(count)]
    signature = tuple(types), tf.TensorSpec([], tf.int64)
    groups = tf.data.Dataset.from_generator(
        lambda: map(filled, _grouped(_going_on(begin()), most)), output_signature=signature
    )
    return groups.prefetch(1).flat_map(elements)


def _going_on(batches: Any) -> Iterator[Arrays | Exception]:
    """Yields batches and errors in their places, and resumes after an error, as TensorFlow's own pipelines do."""
    while batches is not None:
        try:
            yield from map(tf.nest.flatten, batches)
            return
        except Exception as error:
            yield error
            batches = batches.after_error() if hasattr(batches, "after_error") else None


def _grouped(batches: Iterable[Arrays | Exception], most: int) -> Iterator[list[Arrays] | Exception]:
    """Yields the first batch alone, as soon as possible, then twice as many each time, up to the limits."""
    group: list[Arrays] = []
    size, limit = 0, 1
    for batch in batches:
        if not isinstance(batch, Exception):
            group.append(batch)
            size += sum(array.nbytes for array in batch)
        if group and (isinstance(batch, Exception) or len(group) >= limit or size >= MOST_BYTES):
            yield group
            group, size, limit = [], 0, min(2 * limit, most)
        if isinstance(batch, Exception):
            yield batch
    if group:
        yield group


@tf.autograph.experimental.do_not_convert  # AutoGraph writes files and runs them
def as_tf_data(source: BatchSource, passes: Passes, begin: Begin) -> tf.data.Dataset:
    """Returns an input's batches; see `Input.as_tf_data`. Ragged lists travel as pairs of values and splits."""
    source, given = copy(source), source.given
    if source.threads == 1 and not given.workers:  # TensorFlow's thread: two would compete for Python's lock
        source.threads = 0
    spec = source.element_spec
    specs = mapped(_tensor_spec, spec)
    # A call does not wait for more batches than a fast reader has ready.
    workers = default_workers(source, source.of_epoch) if given.workers is None else given.workers
    ready = AHEAD_OF_WORKER * workers if workers else source.threads + BATCHES_AHEAD if source.threads else 1
    batches = in_groups(
        lambda: begin(source),
        tf.nest.flatten(specs),
        lambda tensors: tf.nest.pack_sequence_as(specs, tensors),
        min(MOST_TOGETHER, ready * source.steps_together),
    )
    if any(array.ragged for array in arrays_of(spec)):
        batches = batches.map(lambda *batch: mapped(_tensor, spec, batch if len(batch) > 1 else batch[0]))
    # Not all iterations have the same length: resuming shortens the first, and `on_error="skip"` may shorten any.
    is_sure = given.on_error == "raise" or given.host_count > 1 or given.pad is True
    if is_sure and (given.epochs is not None or given.start_step % max(1, source.of_epoch) == 0):
        # Keras shows its progress by the number of batches.
        count = tf.data.INFINITE_CARDINALITY if passes.steps is None else passes.steps
        batches = _counted(batches, count, tf.data.Dataset.from_tensors("").repeat())
    options = tf.data.Options()
    options.autotune.enabled = False  # all numbers are given; its thread delays the end of an iterator by seconds
    return batches.with_options(options)


@tf.autograph.experimental.do_not_convert
def in_structure_of(batches: tf.data.Dataset, for_model: Callable[..., Batch]) -> tf.data.Dataset:
    """Returns batches in the structure that a model takes."""
    return batches.map(for_model)


def _counted(batches: tf.data.Dataset, count: int, ticks: tf.data.Dataset) -> tf.data.Dataset:
    """Declares the number of batches; `ticks`, two a step, end a pipeline that ignores endless errors."""
    assert_, most = tf.data.experimental.assert_cardinality, count if count < 0 else 2 * count + 2
    pairs = tf.data.Dataset.zip((batches.apply(assert_(count)), ticks.take(most).apply(assert_(most))))
    return pairs.map(lambda batch, _: batch)


def _tensor_spec(spec: ArraySpec) -> Any:
    kind = tf.string if spec.dtype == "bytes" else tf.as_dtype(spec.dtype)
    if spec.ragged:
        return tf.TensorSpec([None, *spec.shape[2:]], kind), tf.TensorSpec([None], tf.int64)
    return tf.TensorSpec(spec.shape, kind)


def _tensor(spec: ArraySpec, value: Any) -> Any:
    return tf.RaggedTensor.from_row_splits(*value, validate=False) if spec.ragged else value


@tf.autograph.experimental.do_not_convert  # AutoGraph writes files and runs them
def native_tf_data(source: BatchSource) -> tf.data.Dataset:
    """Returns an input's batches; see `Input.as_tf_data`. Raises: DatasetError: an option is unavailable."""
    if not isinstance(source, SplitSource):
        raise DatasetError("as_tf_data(native=True) reads one split: use tf.data.Dataset.sample_from_datasets to mix")
    request, given = source.request, source.request.given
    if any(shard.name for shard in request.shards):
        raise DatasetError("as_tf_data(native=True) parses records that builds write, these are adopted: leave it out")
    _check_native(request)
    shuffles = given.shuffle != "none"
    pieces = list(_of_host(request))
    columns = zip(*pieces, strict=True) if pieces else ([], [], [])
    files = tf.data.Dataset.from_tensor_slices(tuple(map(tf.constant, columns, (tf.string, tf.int64, tf.int64))))
    endless = tf.data.Dataset.from_tensors("").repeat()  # no file: TensorFlow could not shard it by file
    ticks = files.flat_map(lambda path, *_: tf.data.TFRecordDataset(path).take(0).concatenate(endless))
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

    def model_ready(serialized: tf.Tensor) -> Any:
        features = parse(request.features, serialized, with_key=given.with_key, options=given)
        label = None if request.label is None else features.pop(request.label)
        return in_structure(request, features, label, None)

    batches = batches.map(model_ready, num_parallel_calls=tf.data.AUTOTUNE)
    steps = request.steps.of_epoch
    if given.epochs == FOR_EVER:
        batches, steps = batches.repeat(), tf.data.INFINITE_CARDINALITY if steps else 0
    elif given.epochs is not None:
        batches, steps = batches.repeat(given.epochs), steps * given.epochs
    return _counted(batches, steps, ticks if steps else endless).prefetch(tf.data.AUTOTUNE)


def _of_host(request: Request) -> Iterator[tuple[str, int, int]]:
    """Yields this host's pieces, an equal, contiguous part of the records: a file, records to skip, records to take."""
    steps = request.steps
    first, end = (steps.records * host // steps.host_count for host in (steps.host_index, steps.host_index + 1))
    passed = 0  # records of the ranges before
    for start, stop in request.ranges:
        low, high = max(start, start + first - passed), min(stop, start + end - passed)
        passed += stop - start
        before = 0  # records of the shards before
        for shard in request.shards:
            skip, until = max(0, low - before), min(shard.records, high - before)
            if skip < until:
                yield shard.file, skip, until - skip
            before += shard.records


def _check_native(request: Request) -> None:
    given, exact = request.given, "leave native=True out to keep the exact order"
    uneven = not given.drop_remainder and given.host_count > 1
    refused = (
        ("start_step", given.start_step > 0, exact),
        ("balance", given.balance, exact),
        ("without", bool(request.without), exact),
        ("pad", bool(given.pad), "leave native=True out, or take pad=False on one host"),
        ("on_error", given.on_error != "raise", "leave native=True out to skip single records"),
        ("text", given.text in ("bucketed", "packed"), "leave native=True out"),
        ("captions", given.captions == "random", "take 'all' or 'first', or leave native=True out"),
        ("augment", bool(request.augment or request.mixtures), "augment in the model, by Keras' layers for images"),
        ("threads", given.threads is not None, "tf.data tunes its own threads, leave it out"),
        ("workers", bool(given.workers), "tf.data uses its own threads, leave it out"),
        ("drop_remainder", uneven, "hosts would have different numbers of batches; leave native=True out"),
    )
    for name, asked, instead in refused:
        if asked:
            raise DatasetError(f"as_tf_data(native=True) lacks {name}={cut(repr(getattr(given, name)))}: {instead}")
    schemes = {shard.file.partition("://")[0] for shard in request.shards if "://" in shard.file}
    for scheme in schemes - set(tf.io.gfile.get_registered_schemes()):
        raise DatasetError(f"TensorFlow here does not read {scheme}://: leave native=True out, or copy the version")
