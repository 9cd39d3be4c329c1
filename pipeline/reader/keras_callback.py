"""Checkpoints of a Keras training and its input's state: a killed run resumes exactly.

>>> train, epoch = restore_training("checkpoints/run", model, train)  # doctest: +SKIP
>>> model.fit(  # doctest: +SKIP
...     train.as_tf_data(), initial_epoch=epoch, epochs=90, callbacks=[TrainingCheckpoint(train, "checkpoints/run")]
... )

The same lines begin a training and continue it. Weights and state are saved together: first a new weights file, then,
by one rename, the file that names it.
"""

import json
import re
import time
from pathlib import Path
from typing import Any, TypeVar

import keras

from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.iteration import NumpyInput
from recordmill.pipeline.reader.steps import State
from recordmill.pipeline.safe_text import cut

AnyInput = TypeVar("AnyInput", bound=NumpyInput)
FILE = "training.json"
WEIGHTS = ".weights.h5"  # Keras wants this suffix
NAME = re.compile(rf"\d{{9,}}-\d+{re.escape(WEIGHTS)}")
"""The names of weights files; other files are neither loaded nor removed."""


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
        self._step = self._saved = train.source.given.start_step
        self._first = self._last = self._step
        self._epoch = 0
        self._our_end = object()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Makes the input give this epoch."""
        self._epoch = epoch
        if self._by_epochs:
            self._train.set_epoch(epoch)
            of_epoch = self._train.batches_per_epoch
            self._step = max(self._train.source.given.start_step, epoch * of_epoch)
            self._last = (epoch + 1) * of_epoch
        self._first = self._step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the steps, and saves."""
        self._step = self._first + batch + 1
        if self._by_epochs:
            self._step = min(self._step, self._last)  # Keras counts a shorter execution as a full one
            self._end_epoch()
        if self._every and self._step - self._saved >= self._every:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves."""
        if self.model.stop_training is self._our_end:
            self.model.stop_training = False
        self._save(epoch + 1)

    def _end_epoch(self) -> None:
        """Ends the first, shorter epoch of a resumed input; else Keras takes its length for that of all epochs."""
        resumed = self._train.source.given.start_step % self._train.batches_per_epoch
        if resumed and self._step == self._last and not self.model.stop_training:
            self.model.stop_training = self._our_end  # truthy, unlike the `True` that other callbacks set for good

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
    state: State = _read(folder)["input"]
    return state


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
