"""A training killed and resumed ends like an undisturbed one: the same batches, the same weights."""

import json
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from recordmill import Dataset, Input
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.keras_input import FILE, InputSpeed, TrainingCheckpoint, load_state, restore_training
from tests import hand_made
from tests.messages import raises

EPOCHS = 3
OF_EPOCH = 5  # steps: 10 records, 2 a batch


class Killed(BaseException):
    """Ends the process, as far as Keras can tell."""


class Watch(keras.callbacks.Callback):
    """Ends a training in a step of an epoch, if it is told to."""

    def __init__(self, epoch: int = -1, step: int = -1) -> None:
        super().__init__()
        self.at, self.epoch, self.steps = (epoch, step), 0, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        if (self.epoch, batch) == self.at:
            raise Killed


def training(dataset: Dataset, **options: Any) -> Input:
    return dataset.training_input(batch_size=2, seed=7, features=["image"], **options)


def model(dropout: float = 0.5, **options: Any) -> Any:
    """A model with weights that depend on every batch, the order and random numbers."""
    keras.utils.set_random_seed(1)
    image = keras.Input((hand_made.HEIGHT, hand_made.WIDTH, 3), name="image")
    out = keras.layers.Dense(1)(keras.layers.Dropout(dropout)(keras.layers.Flatten()(image)))
    built = keras.Model({"image": image}, out)
    built.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False, **options)
    return built


def fit(train: Input, built: Any, *callbacks: Any, epoch: int = 0, **options: Any) -> list[Any]:
    built.fit(train.as_tf_data(), initial_epoch=epoch, epochs=EPOCHS, verbose=0, callbacks=[*callbacks], **options)
    return [variable.numpy() for variable in (*built.weights, *built.optimizer.variables)]


@pytest.fixture(scope="module")
def whole(dataset: Dataset) -> list[Any]:
    train = training(dataset)
    return fit(train, model(), TrainingCheckpoint(train))


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("killed", "every", "step", "epoch"), [((0, 3), 2, 4, 0), ((1, 2), None, 5, 1), ((2, 4), 2, 14, 2)]
)
def test_a_training_that_was_killed_goes_on_exactly(
    dataset: Dataset,
    whole: list[Any],
    tmp_path: Path,
    killed: tuple[int, int],
    every: int | None,
    step: int,
    epoch: int,
) -> None:
    train = training(dataset)
    with pytest.raises(Killed):
        fit(train, model(), TrainingCheckpoint(train, tmp_path, every), Watch(*killed))
    assert load_state(tmp_path)["step"] == step

    again = model()
    train, first = restore_training(tmp_path, again, training(dataset))
    assert first == epoch
    watch = Watch()
    assert_equal(fit(train, again, TrainingCheckpoint(train, tmp_path, every), watch, epoch=first), whole)
    assert watch.steps == EPOCHS * OF_EPOCH - step
    assert load_state(tmp_path)["step"] == EPOCHS * OF_EPOCH


def test_one_checkpoint_is_kept_and_steps_of_an_execution_are_counted(dataset: Dataset, tmp_path: Path) -> None:
    train = training(dataset)
    assert restore_training(tmp_path / "none", model(), train) == (train, 0), "it begins where nothing was saved"
    fit(train, model(steps_per_execution=2), TrainingCheckpoint(train, tmp_path / "new" / "folder", every_steps=2))
    saved = json.loads((tmp_path / "new" / "folder" / FILE).read_text())
    assert (saved["weights"], saved["epoch"]) == ("000000015-3.weights.h5", 3)
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {FILE, saved["weights"]}


def test_other_files_stay(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "best.weights.h5").write_bytes(b"mine")
    (tmp_path / "000000005-1.weights.h5").hardlink_to(tmp_path / "best.weights.h5")
    train = training(dataset)
    fit(train, model(), TrainingCheckpoint(train, tmp_path))
    assert (tmp_path / "best.weights.h5").read_bytes() == b"mine"
    saved = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(saved | {"weights": "../best.weights.h5"}))
    with raises(DatasetError, "../best.weights.h5", "weights file"):
        restore_training(tmp_path, model(), train)


def test_early_stopping_works_in_the_rest_of_an_epoch(dataset: Dataset, tmp_path: Path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    train = training(dataset).resume(training(dataset).state(7))
    watch = Watch()
    fit(train, model(), Stop(), TrainingCheckpoint(train), watch, epoch=1)
    assert watch.steps == 3


def test_an_endless_input_is_counted_through(dataset: Dataset, tmp_path: Path) -> None:
    train = training(dataset, epochs=-1)
    with pytest.raises(Killed):
        fit(train, model(), TrainingCheckpoint(train, tmp_path, 1), Watch(1, 2), steps_per_epoch=7)
    assert load_state(tmp_path)["step"] == 10
    train, epoch = restore_training(tmp_path, model(), training(dataset, epochs=-1))
    assert epoch == 1
    fit(train, model(), TrainingCheckpoint(train, tmp_path), epoch=epoch, steps_per_epoch=7)
    assert load_state(tmp_path)["step"] == 10 + 2 * 7


def test_a_checkpoint_counts_what_its_iteration_gave(dataset: Dataset, tmp_path: Path) -> None:
    def step_after(batches: Any, saved: TrainingCheckpoint, **options: Any) -> Any:
        model().fit(batches, verbose=0, callbacks=[saved], **options)
        return load_state(tmp_path)["step"]

    endless, by_epochs = training(dataset, epochs=-1), training(dataset)
    begun = (batch for batch in endless.as_numpy())
    next(begun)
    saved = TrainingCheckpoint(endless, tmp_path, 1)
    assert step_after(begun, saved, steps_per_epoch=2) == 3, "the peek, and two steps"
    for steps in (6, 4):
        assert step_after(endless.as_tf_data(), saved, steps_per_epoch=steps) == steps, "each `fit` begins anew"
    next(iter(by_epochs.as_tf_data()))
    saved = TrainingCheckpoint(by_epochs, tmp_path, 1)
    assert step_after(by_epochs.as_tf_data(), saved, steps_per_epoch=2, epochs=2) == 4, "of one iteration"


@pytest.mark.nightly
def test_keras_own_backup_goes_on_at_an_epoch(dataset: Dataset, tmp_path: Path) -> None:
    def fitted(*callbacks: Any) -> list[Any]:
        train = training(dataset)
        return fit(train, model(dropout=0), *callbacks, TrainingCheckpoint(train))

    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(Killed):
        fitted(backup, Watch(1, 3))
    assert_equal(fitted(backup), fitted())


def test_logs_tell_how_fast_the_input_is(dataset: Dataset) -> None:
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.02)

    train = training(dataset, epochs=-1)
    fitted = model().fit(
        train.as_tf_data(), epochs=1, steps_per_epoch=20, verbose=0, callbacks=[Slow(), InputSpeed(train)]
    )
    assert 0 < fitted.history["rows_per_second"][0] < 2 / 0.02
    assert 0 <= fitted.history["input_wait"][0] <= 1


def test_the_stage_that_takes_longest_is_known(dataset: Dataset) -> None:
    def slow(pixels: Any, rng: Any) -> Any:
        time.sleep(0.02)
        return pixels

    train = training(dataset, augment=[slow], threads=1)
    model().fit(train.as_tf_data(), epochs=1, verbose=0, callbacks=[InputSpeed(train)])
    assert train.meter is not None
    longest = train.meter.figures().longest_stage
    assert longest is not None
    assert longest[0] == "decoding"


def test_wrong_uses_are_told(dataset: Dataset, tmp_path: Path) -> None:
    train = training(dataset)
    with raises(DatasetError, "every_steps", "got 0"):
        TrainingCheckpoint(train, tmp_path, every_steps=0)
    for content in (None, "", "{}", "[]"):
        if content is not None:
            (tmp_path / FILE).write_text(content)
        with raises(DatasetError, FILE, "another folder"):
            load_state(tmp_path)
    fit(train, model(), TrainingCheckpoint(train, tmp_path))
    other = dataset.training_input(batch_size=5, seed=7, features=["image"])
    with raises(DatasetError, "global batch size: 2", "5"):
        restore_training(tmp_path, model(), other)
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    with raises(DatasetError, "not built", "call it on a batch"):
        restore_training(tmp_path, unbuilt, training(dataset))
