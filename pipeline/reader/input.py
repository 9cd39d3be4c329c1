"""An input of a model: batches of a split as NumPy arrays or as `tf.data`, exact and resumable in both forms.

>>> train = emoji.training_input("train", batch_size=256, seed=1)  # doctest: +SKIP
>>> for features, label in train.as_numpy():  # doctest: +SKIP
...     ...  # dictionaries of NumPy arrays; the next iteration is the next epoch
>>> model.fit(train.as_tf_data(), epochs=3)  # doctest: +SKIP
>>> train.resume(state)  # doctest: +SKIP
"""

import sys
from collections.abc import Generator, Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.batches import Find, SplitSource, fitting
from recordmill.pipeline.reader.block_cache import BlockCache
from recordmill.pipeline.reader.iteration import Iteration, NumpyBatches, NumpyInput, OnDevice, placed
from recordmill.pipeline.reader.notebook import input_html
from recordmill.pipeline.reader.options import ReadOptions, whole_number
from recordmill.pipeline.reader.records import Records
from recordmill.pipeline.reader.remote import Folder
from recordmill.pipeline.reader.request import make_request, of_host
from recordmill.pipeline.reader.step_rows import Row, leave_out, rows_of, steps_of

if TYPE_CHECKING:
    import tensorflow as tf

    from recordmill.pipeline.reader.keras_input import KerasBatches
    from recordmill.pipeline.reader.torch_data import TorchBatches


def open_input(folder: Folder, manifest: Manifest, options: ReadOptions, find: Find) -> "Input":
    """Makes the input of a version's split. Raises: DatasetError as `Dataset.training_input`."""
    request = make_request(str(folder), manifest, options)
    cache = BlockCache(options.cache, options.cache_bytes)
    with Records(request.shards, np.zeros(1, np.int64), cache) as records:
        request = replace(request, shards=records.check())
        if options.verify:
            records.verify()
        request = leave_out(request, records, find)
    return Input(SplitSource(request, find), folder)


class Input(NumpyInput):
    """Batches of a split, or of a mixture, in each form that frameworks take."""

    def __repr__(self) -> str:
        """Names the split, the batches, the order and the arrays."""
        given, request = self.source.given, getattr(self.source, "request", None)
        of = f"{request.dataset} {request.version}, {given.split}" if request else "a mixture"
        batches = f"{self.batches_per_epoch:,} batches of {given.batch_size:,} records an epoch"
        order = f"shuffle={given.shuffle!r}, seed={given.seed}"
        return f"<{type(self).__name__} of {of}: {batches}, {order}; {self.element_spec}>"

    def _repr_html_(self) -> str:
        """Shows the input in a notebook: its arrays, and the first images."""
        request = self.source.request if isinstance(self.source, SplitSource) else None
        return input_html(request, self.element_spec, self.batches_per_epoch)

    def rows(self, step: int) -> list[Row]:
        """Returns the rows of any step: of this host's batch, in its order.

        Reads the step's records alone; with `on_error="skip"` makes the batch, to know what damaged rows left.

        Returns:
            a `Row` for each record: `key`, `share` (of the values of its packed row; else 1.0), `file` and `line` (of
            an adopted file; None of others), `dataset`, `version`, `split`, `position` (for `dataset.records(split,
            positions=[…])`) and `place` (in the batch, shared in a packed row).

        Raises: DatasetError: `step` is no whole number of at least 0, or the input is empty; DamagedRecordError.
        """
        return rows_of(self.source, whole_number(step, "step"))

    def steps_of(self, key: str | bytes, epoch: int = 0) -> list[int]:
        """Returns the steps of an epoch, by default epoch 0, in which this host reads a row, ascending.

        Ignores a damaged row's stand-in. Takes seconds for a million records. Raises: DatasetError: no row has the key.
        """
        return steps_of(self.source, key, whole_number(epoch, "epoch"))

    def as_tf_data(self, model: Any = None, *, native: bool = False) -> "tf.data.Dataset":
        """Returns the batches as a `tf.data.Dataset`; each iteration over it is the next epoch, as with `as_numpy`.

        Args:
            model: the `keras.Model` that takes them: features come in its inputs' structure (a list, a mapping, or
                one), chosen by their names. None: the mapping of all features.
            native: False: the batches of `as_numpy`, handed over several at a time, without a copy.
                True: TensorFlow operations alone, for TPU hosts and the tf.data service. Rows are the same, shuffled
                by a buffer (`seed` decides how): state and exact order are missing, and options that need them are
                refused.

        Raises:
            DatasetError: TensorFlow is not installed, a native pipeline lacks an option, or the model takes a feature,
                shape or type that the input does not have.
        """
        check_installed("tensorflow", "TensorFlow", "recordmill[tf]")
        # TensorFlow takes seconds to load, and nothing else needs it.
        from recordmill.pipeline.reader import tf_data

        given = self if model is None or native else self._for_keras()
        if native:
            batches = tf_data.native_tf_data(self.source)
        else:
            batches = tf_data.as_tf_data(given.source, given.passes, given._begin)
        if model is None:
            return batches
        from recordmill.pipeline.reader.keras_input import for_model

        return tf_data.in_structure_of(batches, for_model(given, model))

    def as_torch(self, device: Any = None) -> "TorchBatches":
        """Returns the batches as a PyTorch `IterableDataset` of tensors, which a loop takes without a `DataLoader`.

        With a `DataLoader`: `DataLoader(train.as_torch(), batch_size=None, num_workers=0)`. Tensors share the arrays'
        memory, strings come as lists of bytes. `state_dict` returns the position after the latest batch, and
        `load_state_dict` resumes there.

        Args:
            device: the device of the tensors, such as `"cuda"`; the next batch is copied there from pinned memory while
                the model works. None: the CPU.

        Raises:
            DatasetError: PyTorch is not installed.
        """
        check_installed("torch", "PyTorch")
        from recordmill.pipeline.reader.torch_data import as_torch

        return as_torch(self, device)

    def as_jax(self, sharding: Any = None) -> OnDevice:
        """Returns the batches as JAX arrays; the next one is put on the device while the model works.

        Without `jax_enable_x64` JAX makes int32 of int64; values beyond raise DatasetError. Strings stay NumPy arrays.
        `state_dict` returns the position after the latest batch, and `load_state_dict` resumes there.

        Args:
            sharding: a `jax.sharding.Sharding`: arrays are global, each process giving its part of the batch; give the
                input `host_index=jax.process_index(), host_count=jax.process_count()`. None: JAX's default device.

        Raises:
            DatasetError: JAX is not installed.
        """
        check_installed("jax", "JAX")
        import jax

        def put(array: Any) -> Any:
            if array.dtype == object:  # strings, which JAX does not have
                return array
            if sharding is None:
                return jax.device_put(array)
            return jax.make_array_from_process_local_data(sharding, array)

        return OnDevice(self, lambda batch: placed(put, fitting(batch, jax.dtypes.canonicalize_dtype)))

    def as_keras(self, model: Any = None) -> "KerasBatches":
        """Returns the batches as a `keras.utils.PyDataset`, for any backend: `fit(train.as_keras(), shuffle=False)`.

        Args:
            model: as in `as_tf_data`.

        Raises:
            DatasetError: Keras is not installed, an array is ragged or holds strings, or the model's inputs do not fit.
        """
        check_installed("keras", "Keras")
        from recordmill.pipeline.reader.keras_input import KerasBatches, for_model

        given = self._for_keras()
        return KerasBatches(given, None if model is None else for_model(given, model))

    def _for_keras(self) -> "Input":
        """Returns an evaluation of this host's records alone: Keras would count filler rows. Raises: DatasetError."""
        source, given = self.source, self.source.given
        if not isinstance(source, SplitSource) or given.pad is None or not (given.pad or given.host_count > 1):
            return self
        request = of_host(source.request)
        if source.of_epoch and not request.steps.records:
            none = f"host {given.host_index} of {given.host_count} gets 0 records of '{given.split}'"
            remedy = f"take a batch_size below {given.batch_size}"
            raise DatasetError(f"{none}, and Keras has no figures for them: {remedy}")
        return Input(SplitSource(request, source.find), self.folder)


def check_installed(module: str, name: str, package: str = "") -> None:
    """Checks that a framework is installed. Raises: DatasetError."""
    if not find_spec(module):
        raise DatasetError(f'{name} is not installed: pip install "{package or module}"')


def with_progress(batches: NumpyBatches, every: float = 10.0, out: TextIO | None = None) -> Iterator[Any]:
    """Returns the batches, and prints every few seconds how fast they come and how long they were waited for.

    >>> for features, label in with_progress(train.as_numpy()):  # doctest: +SKIP
    ...     ...
    step 1,200 · 3,512 rows/s · waited for input 2 % of the time · making batches is mostly decoding (75 %)

    Args:
        batches: the iterator that `as_numpy` gave.
        every: seconds between two lines, at least.
        out: the file to write to, by default stderr; on a terminal each line replaces the one before.
    """
    if not hasattr(batches, "step"):
        raise DatasetError(f"with_progress takes what `as_numpy()` gives, got a {type(batches).__name__}")
    out = out or sys.stderr
    in_place = out.isatty()

    def shown() -> Generator[Any, None, None]:
        last, is_open = batches.meter.figures(), False
        try:
            for batch in batches:
                now = batches.meter.figures()
                if (window := now.since(last)).seconds >= every:
                    last, is_open = now, in_place
                    line = window.line(batches.step)
                    out.write(f"\r{line}\x1b[K" if in_place else f"{line}\n")  # K clears the rest of a longer line
                    out.flush()
                yield batch
        finally:
            if is_open:
                out.write("\n")

    made = shown()
    return Iteration(made, made.close)
