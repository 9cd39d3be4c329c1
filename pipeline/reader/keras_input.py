"""An input for Keras: batches in the structure of a model's inputs, as a `PyDataset`, and checkpoints with its state.

A model's inputs are a list, a mapping, one, or any nest of these, each named after a feature or a feature's part.
`keras.Sequential` takes the single feature read. A subclass of `keras.Model` takes the mapping of all features, since
its inputs are unknown before the first batch.

>>> model.fit(train.as_tf_data(model), epochs=3)  # doctest: +SKIP
>>> model.fit(train.as_keras(model), epochs=3, shuffle=False)  # doctest: +SKIP

A killed training resumes exactly: the same lines begin and continue it. Weights and state are saved together: first a
new weights file, then, by one rename, the file that names it.

>>> train, epoch = restore_training("checkpoints/run", model, train)  # doctest: +SKIP
>>> model.fit(  # doctest: +SKIP
...     train.as_tf_data(), initial_epoch=epoch, epochs=90, callbacks=[TrainingCheckpoint(train, "checkpoints/run")]
... )
"""

import json
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import keras

from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.errors import DatasetError, listed
from recordmill.pipeline.reader.batches import SplitSource, element_spec, fitting, named
from recordmill.pipeline.reader.iteration import NumpyBatches, NumpyInput, State
from recordmill.pipeline.reader.request import Request
from recordmill.pipeline.reader.rows import Batch
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.stored import ArraySpec

AnyInput = TypeVar("AnyInput", bound=NumpyInput)
FILE = "training.json"
WEIGHTS = ".weights.h5"  # Keras wants this suffix
NAME = re.compile(rf"\d{{9,}}-\d+{re.escape(WEIGHTS)}")
"""The names of weights files; other files are neither loaded nor removed."""


def inputs_of(
    model: keras.Model, given: Mapping[str, ArraySpec], giver: str, remedy: str
) -> Callable[[Mapping[str, Any]], Any]:
    """Returns a function from a batch's features to a model's inputs, lists as tuples.

    Messages name the origin of the features, `giver`, and a `remedy`. Raises: DatasetError: name, shape or type differ.
    """
    wanted = getattr(model, "input", None)  # a subclass has none, nor has a Sequential
    if isinstance(model, keras.Sequential):
        wanted = model.inputs[0] if model.built else None
    elif wanted is None:
        return dict
    names = "" if wanted is None else _names(wanted)
    if isinstance(names, str) and names not in given:  # the single feature, parts not counted
        features = [each for each in given if not any(each.startswith(f"{other}_") for other in given)]
        if len(features) != 1:
            takes = f"'{names}'" if names else "one input"
            raise DatasetError(f"the model takes {takes}, and {giver} has {listed(features)}: {remedy}")
        [names] = features
    for name, tensor in zip(keras.tree.flatten(names), keras.tree.flatten(wanted), strict=True):
        if name not in given:
            raise DatasetError(f"the model takes '{name}', and {giver} has {listed(sorted(given))}: {remedy}")
        if tensor is not None and not _fits(given[name], tensor):
            takes, has = (f"{each.dtype} of shape {tuple(each.shape)}" for each in (tensor, given[name]))
            raise DatasetError(f"the model takes '{name}' as {takes}, and {giver} has {has}: {remedy}")
    return lambda features: keras.tree.map_structure(features.__getitem__, names)


def _names(wanted: Any, key: str | None = None) -> Any:
    """Names the features in place of a model's inputs: by their keys in a mapping, else by their own names."""
    if isinstance(wanted, Mapping):
        return {name: _names(each, name) for name, each in wanted.items()}
    return tuple(map(_names, wanted)) if isinstance(wanted, list | tuple) else key or wanted.name


def _fits(given: ArraySpec, wanted: Any) -> bool:
    """Whether Keras accepts an array for an input: it adds or removes a last side of 1, and a cast keeps fractions."""
    shape, other = given.shape, tuple(wanted.shape)
    if len(shape) + 1 == len(other) and other[-1] == 1:
        other = other[:-1]
    elif len(shape) == len(other) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    sides = zip(shape[1:], other[1:], strict=False)
    is_text, is_float = given.dtype in ("bytes", "string"), "float" in given.dtype
    return (
        len(shape) == len(other)
        and all(None in pair or pair[0] == pair[1] for pair in sides)
        and is_text == (wanted.dtype == "string")
        and (not is_float or "float" in wanted.dtype)
        and not given.ragged
    )


def for_model(given: NumpyInput, model: keras.Model) -> Callable[..., Batch]:
    """Maps a batch's parts to a model's inputs; warns if `servable` would refuse the model. Raises: DatasetError."""
    features = _features(given.element_spec)
    take = inputs_of(model, features, "the input", "name the model's inputs after features, or choose by features=[…]")
    if isinstance(given.source, SplitSource):
        served = served_features(given.source.request)
        try:
            inputs_of(model, served, "a served row", "`servable` needs `prepare`")
        except DatasetError as error:
            warnings.warn(str(error), stacklevel=3)
    return lambda features, *others: (take(features), *others)


def served_features(request: Request) -> Mapping[str, ArraySpec]:
    """Returns a batch's features without training's options: augmentations, keys, packed or chosen texts."""
    given = replace(request.given, augment=(), with_key=False, text="padded", captions="all")
    return _features(element_spec(replace(request, given=given, augment={}, mixtures=())))


def _features(spec: Any) -> Mapping[str, ArraySpec]:
    features: Mapping[str, ArraySpec] = spec if isinstance(spec, dict) else spec[0]
    return features


class KerasBatches(keras.utils.PyDataset):
    """Batches for `fit` and others; a pass begins with batch 0, and Keras may begin one just for the shapes."""

    def __init__(self, given: NumpyInput, for_model: Callable[..., Batch] | None) -> None:
        for name, spec in named(given.element_spec):
            if spec.ragged or spec.dtype == "bytes":
                what = "ragged" if spec.ragged else "strings"
                raise DatasetError(f"{name} is {what}, which Keras does not take as NumPy: leave it out, features=[…]")
        super().__init__()  # one worker: Keras asks in its own thread, and the input makes the batches ahead
        self._input, self._for_model = given, for_model
        self._batches: NumpyBatches | None = None
        self._steps, self._asked = range(0), 0

    @property
    def num_batches(self) -> int | None:
        """The batches of the next pass, which may be the rest of an epoch; None if endless."""
        if self._input.passes.steps is None:
            return None
        return len(self._steps if self._asked < len(self._steps) else self._input.passes.upcoming)

    def __getitem__(self, index: int) -> Batch:
        """Returns the next batch of a pass. Raises: DatasetError: Keras asks out of order, or for too many."""
        if index == 0:
            self._steps = self._input.passes.upcoming
            self._batches, self._asked = self._input.as_numpy(), 0
        elif self._batches is None or index != self._asked:
            raise DatasetError("the input gives its batches in order: fit(…, shuffle=False)")
        batch = next(self._batches, None)
        if batch is None:
            raise DatasetError("Keras counts every batch, and one was skipped: as_tf_data(model), or larger batches")
        self._asked = index + 1
        if keras.config.backend() == "jax":
            import jax

            batch = fitting(batch, jax.dtypes.canonicalize_dtype)
        if self._for_model is None:
            return batch
        return self._for_model(*(batch if isinstance(batch, tuple) else [batch]))

    def on_epoch_end(self) -> None:
        """Moves to the next epoch, or begins this one again if Keras did not ask for all of it."""
        step = self._steps.start if self._asked < len(self._steps) else self._steps.stop
        self._input.set_epoch(step // max(1, self._input.batches_per_epoch))


class InputSpeed(keras.callbacks.Callback):
    """Adds the input's speed to each epoch's logs.

    `rows_per_second` counts from the end of the first batch on; `input_wait` is the share of the time spent waiting for
    a batch, 0 to 1. Put it before callbacks that write logs. A native tf.data pipeline is not measured.
    """

    def __init__(self, train: NumpyInput) -> None:
        super().__init__()
        self._train = train
        self._ends: list[tuple[int, float]] = []  # the epoch's first and latest batches: (count, time)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forgets the last epoch."""
        self._ends = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the time; `tf.data` reads ahead, so the input's own count is too high."""
        self._ends[1:] = [(batch + 1, time.perf_counter())]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds to the logs."""
        meter = self._train.meter
        if meter is None or logs is None or not self._ends:
            return
        (first, start), (last, end) = self._ends[0], self._ends[-1]
        rows = (last - first) * meter.rows / meter.batches
        rate = rows / (end - start) if end > start else 0.0
        logs.update(rows_per_second=rate, input_wait=meter.figures().waited_share)


class TrainingCheckpoint(keras.callbacks.Callback):
    """Saves the weights of model and optimizer with the input's state, and keeps Keras' epochs equal to the input's.

    Keras numbers its epochs itself, and may begin an iteration that it does not use. With this callback, Keras' epoch 3
    is the input's epoch 3, and a resumed input's first epoch is the rest of one. So it is useful without a folder too,
    beside `BackupAndRestore` at the end of epochs, or on all hosts but the first.

    Steps count from the first of the iteration that `fit` begins; of one begun before, such as a generator, from its
    place when the callback is made.

    Args:
        train: the input that `fit` gets, as `train.as_tf_data()`.
        folder: the folder to save in; other files in it stay. None saves nothing.
        every_steps: steps between two checkpoints; by default one at the end of each epoch.
    """

    def __init__(self, train: NumpyInput, folder: str | Path | None = None, every_steps: int | None = None) -> None:
        super().__init__()
        if every_steps is not None and every_steps < 1:
            raise DatasetError(f"every_steps, the steps between two checkpoints, is at least 1, got {every_steps}")
        self._train = train
        self._folder = None if folder is None else Path(folder)
        self._every = every_steps
        # With `epochs`, one iteration covers all of them: steps are only counted.
        self._by_epochs = train.source.given.epochs is None
        self._meter = train.meter  # of the latest iteration
        self._step = self._saved = train.source.given.start_step if train.meter is None else train.meter.step
        self._first: int | None = None  # the step before the epoch's first batch, once it is there
        self._last = self._epoch = 0
        self._our_end = object()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Makes the input give this epoch."""
        self._epoch = epoch
        if self._by_epochs:
            self._train.set_epoch(epoch)
        self._meter, self._first = self._train.meter, None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the steps, and saves."""
        of_epoch = self._train.batches_per_epoch
        if self._first is None:
            if self._train.meter is not None and self._train.meter is not self._meter:
                self._step = self._train.meter.start
            self._first, self._saved = self._step, min(self._step, self._saved)
            self._last = (self._first // of_epoch + 1) * of_epoch
        self._step = self._first + batch + 1
        if self._by_epochs:
            self._step = min(self._step, self._last)  # Keras counts a shorter execution as a full one
            # Ends the first, shorter epoch of a resumed input; else Keras takes its length for that of all epochs.
            resumed = self._train.source.given.start_step % of_epoch
            if resumed and self._step == self._last and not self.model.stop_training:
                self.model.stop_training = self._our_end  # truthy, unlike the `True` that other callbacks set for good
        if self._every and self._step - self._saved >= self._every:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves."""
        if self.model.stop_training is self._our_end:
            self.model.stop_training = False
        self._save(epoch + 1)

    def _save(self, epoch: int) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        weights = f"{self._step:09}-{epoch}{WEIGHTS}"
        (self._folder / weights).unlink(missing_ok=True)  # Keras would follow a link
        self.model.save_weights(self._folder / weights)
        seeds = [seed.numpy().tolist() for seed in _seeds(self.model)]
        saved = {"weights": weights, "seeds": seeds, "epoch": epoch, "input": self._train.state(self._step)}
        write_atomically(self._folder / FILE, json.dumps(saved, indent=1).encode())
        for old in self._folder.glob(f"*{WEIGHTS}"):
            if old.name != weights and NAME.fullmatch(old.name):
                old.unlink()
        self._saved = self._step


def restore_training(folder: str | Path, model: Any, train: AnyInput) -> tuple[AnyInput, int]:
    """Restores a model and an input from the last checkpoint of `TrainingCheckpoint`.

    Args:
        folder: the folder of the checkpoints.
        model: a built and compiled Keras model; gets its weights and its optimizer's.
        train: the input, made with the same arguments.

    Returns:
        the resumed input, and the `initial_epoch` for `fit`; `train` itself and 0 before the first checkpoint.

    Raises:
        DatasetError: the model is not built, or the state is another input's.
    """
    if not (Path(folder) / FILE).exists():
        return train, 0
    saved = _read(folder)
    resumed = train.resume(saved["input"])
    if not model.built:
        raise DatasetError("the model is not built, and takes no weights: call it on a batch, or begin with an Input")
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)  # else Keras leaves the optimizer's weights out
    model.load_weights(Path(folder) / saved["weights"])
    for seed, value in zip(_seeds(model), saved["seeds"], strict=True):
        seed.assign(value)
    return resumed, saved["epoch"]


def load_state(folder: str | Path) -> State:
    """Returns the input's state of the last checkpoint. Raises: DatasetError if missing."""
    return dict(_read(folder)["input"])


def _seeds(model: Any) -> list[Any]:
    """Returns the layers' random seeds, as in Dropout; Keras does not save them with the weights."""
    return [variable for variable in model.variables if variable.path.endswith("seed_generator_state")]


def _read(folder: str | Path) -> Any:
    path = Path(folder) / FILE
    try:
        saved = json.loads(path.read_text())
        if not NAME.fullmatch(saved["weights"]):
            raise ValueError(f"{cut(repr(saved['weights']))} is not a weights file")
        return {name: saved[name] for name in ("weights", "seeds", "epoch", "input")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is not a training checkpoint ({error}): begin again in another folder") from error
