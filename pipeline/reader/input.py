"""An input of a model: batches of a split as NumPy arrays or as `tf.data`, exact and resumable in both forms.

>>> train = emoji.training_input("train", batch_size=256, seed=1)  # doctest: +SKIP
>>> for features, label in train.as_numpy():  # doctest: +SKIP
...     ...  # dictionaries of NumPy arrays; the next iteration is the next epoch
>>> model.fit(train.as_tf_data(), epochs=3)  # doctest: +SKIP
>>> train.resume(state)  # doctest: +SKIP
"""

from collections.abc import Generator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import count, takewhile
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.reader.batches import BATCHES_AHEAD, Batch, Batches, BatchSource, SplitSource
from recordmill.pipeline.reader.block_cache import BlockCache
from recordmill.pipeline.reader.iteration import Iteration
from recordmill.pipeline.reader.metrics import SKIPPED, Meter
from recordmill.pipeline.reader.notebook import input_html
from recordmill.pipeline.reader.options import ReadOptions
from recordmill.pipeline.reader.records import Records
from recordmill.pipeline.reader.request import make_request, of_host
from recordmill.pipeline.reader.rows import too_many
from recordmill.pipeline.reader.steps import FORMAT, Passes, State, lanes_of, step_of
from recordmill.pipeline.reader.workers import default_workers, in_processes

if TYPE_CHECKING:
    import tensorflow as tf

    from recordmill.pipeline.reader.keras_data import KerasBatches
    from recordmill.pipeline.reader.on_device import OnDevice
    from recordmill.pipeline.reader.torch_data import TorchBatches
    from recordmill.pipeline.reader.version_files import RemotePath


def open_input(folder: "Path | RemotePath", manifest: Manifest, options: ReadOptions) -> "Input":
    """Makes the input of a version's split. Raises: DatasetError as `Dataset.training_input`."""
    request = make_request(str(folder), manifest, options)
    cache = BlockCache(options.cache, options.cache_bytes)
    with Records(request.shards, np.zeros(1, np.int64), cache) as records:
        request = replace(request, shards=records.check())
        if options.verify:
            records.verify()
    return Input(SplitSource(request), folder)


class Input:
    """Batches of a split, or of a mixture. Nothing is opened before it is iterated over.

    Attributes:
        folder: the folder of its version; None of a mixture.
        batches_per_epoch: the batches that each host gets in an epoch.
        element_spec: the structure of a batch, an `ArraySpec(shape, dtype, ragged)` for each array.
        passes: the steps of each iteration.
        meter: throughput of the latest iteration; None before the first, and for a native pipeline.
    """

    def __init__(self, source: BatchSource, folder: "Path | RemotePath | None" = None) -> None:
        """Takes a source, and the folder of its version; a mixture has none."""
        self.source, self.folder = source, folder
        self.passes = Passes(source.of_epoch, source.given.epochs, source.given.start_step)
        self._latest: Position | None = None
        self.batches_per_epoch = source.of_epoch
        self.element_spec = source.element_spec
        self.meter: Meter | None = None

    def _repr_html_(self) -> str:
        """Shows the input in a notebook: its arrays, and the first images as they are read."""
        request = self.source.request if isinstance(self.source, SplitSource) else None
        return input_html(request, self.element_spec, self.batches_per_epoch)

    def __len__(self) -> int:
        """The batches of an iteration that begins with an epoch. Raises: TypeError where it has no end."""
        if self.passes.steps is None:
            raise TypeError("an input with epochs=-1 has no end, and so no length")
        return self.passes.steps

    def __iter__(self) -> "NumpyBatches":
        """Begins an iteration over NumPy batches."""
        return self.as_numpy()

    def as_numpy(self) -> "NumpyBatches":
        """Begins an iteration over batches of NumPy arrays: of the next epoch, or of all `epochs`.

        TensorFlow is not imported. Arrays are the caller's: they are not written to again while they are held.

        Raises:
            DatasetError: a shard is missing or not of its size; while it is iterated over, DamagedRecordError.
        """
        batches = self._begin(self.source)
        self._latest = batches.position
        return batches

    def as_tf_data(self, model: Any = None, *, native: bool = False) -> "tf.data.Dataset":
        """Returns the batches as a `tf.data.Dataset`; each iteration over it is the next epoch, as with `as_numpy`.

        Args:
            model: the `keras.Model` that takes them: the features come as its inputs do, in a list, in a mapping, or
                one, chosen by their names. None: as the mapping of all.
            native: False: the batches of `as_numpy`, handed over several at a time, without a copy.
                True: a pipeline of TensorFlow's operations alone, for TPU hosts and the tf.data service. It holds the
                same rows, shuffled by a buffer (`seed` decides how), so that it has neither state nor exact order; what
                needs these is refused.

        Raises:
            DatasetError: TensorFlow is not installed, a native pipeline cannot do what was asked for, or the model
                takes a feature, shape or type that the input has not.
        """
        check_installed("tensorflow", "TensorFlow", "recordmill[tf]")
        # All the rest works without TensorFlow, and without the seconds that it takes to load.
        from recordmill.pipeline.reader.tf_data import as_tf_data, mapped, native_tf_data

        given = self if model is None or native else self._for_keras()
        batches = native_tf_data(self.source) if native else as_tf_data(given.source, given.passes, given._begin)
        if model is None:
            return batches
        from recordmill.pipeline.reader.keras_data import for_model

        return mapped(batches, for_model(given, model))

    def as_torch(self, device: Any = None) -> "TorchBatches":
        """Returns the batches as a PyTorch `IterableDataset` of tensors, which a loop takes without a `DataLoader`.

        Where a `DataLoader` is wanted: `DataLoader(train.as_torch(), batch_size=None, num_workers=0)`. Tensors share
        the arrays' memory, strings come as lists of bytes. `state_dict` returns the position after the latest batch,
        and `load_state_dict` goes on from there.

        Args:
            device: the device of the tensors, such as `"cuda"`; the next batch is copied there from pinned memory while
                the model works. None: the CPU.

        Raises:
            DatasetError: PyTorch is not installed.
        """
        check_installed("torch", "PyTorch")
        from recordmill.pipeline.reader.torch_data import as_torch

        return as_torch(self, device)

    def as_jax(self, sharding: Any = None) -> "OnDevice":
        """Returns the batches as JAX arrays; the next one is put on the device while the model works.

        Without `jax_enable_x64` JAX makes int32 of int64. Strings stay NumPy arrays. `state_dict` returns the
        position after the latest batch, and `load_state_dict` goes on from there.

        Args:
            sharding: a `jax.sharding.Sharding`: arrays are global, each process giving its part of the batch; give the
                input `host_index=jax.process_index(), host_count=jax.process_count()`. None: JAX's default device.

        Raises:
            DatasetError: JAX is not installed.
        """
        check_installed("jax", "JAX")
        import jax

        from recordmill.pipeline.reader.on_device import OnDevice, mapped

        def placed(array: Any) -> Any:
            if array.dtype == object:  # strings, which JAX does not have
                return array
            if sharding is None:
                return jax.device_put(array)
            return jax.make_array_from_process_local_data(sharding, array)

        return OnDevice(self, lambda batch: mapped(placed, batch))

    def as_keras(self, model: Any = None) -> "KerasBatches":
        """Returns the batches as a `keras.utils.PyDataset`, for any backend: `fit(train.as_keras(), shuffle=False)`.

        Args:
            model: as in `as_tf_data`.

        Raises:
            DatasetError: Keras is not installed, an array is of strings or ragged, or the model takes what the input
                has not.
        """
        check_installed("keras", "Keras")
        from recordmill.pipeline.reader.keras_data import KerasBatches, for_model

        given = self._for_keras()
        return KerasBatches(given, None if model is None else for_model(given, model))

    def _for_keras(self) -> "Input":
        """Returns an evaluation of this host's records alone: Keras would count filler rows. Raises: DatasetError."""
        source, given = self.source, self.source.given
        if not isinstance(source, SplitSource) or given.pad is None or not (given.pad or given.host_count > 1):
            return self
        request = of_host(source.request)
        if source.of_epoch and not request.steps.records:
            raise DatasetError(
                f"host {given.host_index} of {given.host_count} has no record of '{given.split}', and Keras no figures "
                f"of none: take a batch_size below {given.batch_size}"
            )
        return Input(SplitSource(request), self.folder)

    def _begin(self, source: BatchSource) -> "NumpyBatches":
        batches = NumpyBatches(source, self.passes.begin())
        self.meter = batches.meter
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration give this epoch, from 0; without it, each iteration is the next epoch."""
        self.passes.set_epoch(epoch)

    def state(self, step: int | None = None) -> State:
        """Returns the input's position, for a checkpoint: JSON, under 1 KB.

        Args:
            step: the steps that the model has taken, counted from the first of epoch 0; by default those whose batches
                the latest iteration over `as_numpy` has given out. `tf.data` reads ahead, so say it there.
        """
        if step is None:
            if self._latest is None:
                raise DatasetError("state() needs a step here: how many the model has taken since the first of epoch 0")
            step = self._latest.step
        if index(step) < 0:
            raise DatasetError(f"step is at least 0, got {step}")
        return _state(self.source, index(step))  # a state is JSON: an optimizer's steps may be NumPy's

    def resume(self, state: State) -> "Input":
        """Returns the same input from a state on: the batches that would have come.

        Raises:
            DatasetError: the state is of another dataset, version (which may have been pruned), order or global batch
                size.
        """
        step = step_of(state, self.source.order_facts(), self.folder)
        return Input(self.source.starting_at(step, lanes_of(state)), self.folder)


def check_installed(module: str, name: str, package: str = "") -> None:
    """Refuses a form of batches. Raises: DatasetError: the library is not installed."""
    if not find_spec(module):
        raise DatasetError(f'{name} is not installed: pip install "{package or module}"')


def _state(source: BatchSource, step: int) -> State:
    """Returns the state after so many steps, counted from the first of epoch 0."""
    epoch = step // source.of_epoch if source.of_epoch else 0
    return {"format": FORMAT, **source.order_facts(), "step": step, "epoch": epoch, "records": source.consumed(step)}


@dataclass
class Position:
    """The position of an iteration, which the input keeps when the iteration is gone."""

    step: int


class NumpyBatches(Iteration):
    """One iteration over an input: batches of NumPy arrays, made ahead in threads or processes.

    Attributes:
        position: the step of the next batch, counted from the first of epoch 0.
        meter: how fast batches come, and how long they were waited for.
    """

    def __init__(self, source: BatchSource, steps: range) -> None:
        self.source = source
        self._batches, self._stop = source.open(), steps.stop
        made = _made(source, self._batches, steps)
        super().__init__(made, partial(_close, made, self._batches))
        self.position = Position(steps.start)
        self.meter = Meter(self._batches.counters)

    def _next(self) -> Batch:
        batch = None
        while batch is None:  # all of its records were left out
            with self.meter.waiting():
                step, batch = next(self._made)
            self.position.step = step + 1
            if self.skipped > self.source.given.max_skipped:
                raise too_many(self.skipped, self.source.given.max_skipped)
        self.meter.count(batch)
        return batch

    def __enter__(self) -> "NumpyBatches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def after_error(self) -> "NumpyBatches":
        """Begins behind the step that failed; where several were made together, with the first of them, alone."""
        source = copy(self.source)
        source.steps_together = 1
        return NumpyBatches(source, range(self.step + (self.source.steps_together == 1), self._stop))

    @property
    def step(self) -> int:
        """The step of the next batch, counted from the first of epoch 0."""
        return self.position.step

    @property
    def skipped(self) -> int:
        """The number of damaged records left out."""
        return int(self._batches.counters.counts[SKIPPED])

    def state(self) -> State:
        """Returns the state after the batches that were given out."""
        return _state(self.source, self.step)


def _made(source: BatchSource, batches: Batches, steps: range) -> Generator[tuple[int, Batch | None], None, None]:
    size = source.steps_together
    groups = (steps[start : start + size] for start in count(0, size))
    some = takewhile(len, groups)
    made: Generator[tuple[range, list[Batch | None]], None, None]
    given = source.given.workers
    workers = default_workers(source, len(steps)) if given is None else given
    if workers:
        made = in_processes(batches, some, workers, max(1, source.threads), may_stay=given is None)
    elif not source.threads:
        made = ((group, batches(group)) for group in some)
    else:
        made = in_order(lambda group: (group, batches(group)), some, source.threads, source.threads + BATCHES_AHEAD)
    try:
        for group, of_group in made:
            yield from zip(group, of_group, strict=True)
    finally:
        made.close()


def _close(made: Generator[Any, None, None], batches: Batches) -> None:
    made.close()
    batches.close()
