"""An iteration's owner and its end: forked processes, errors, Ctrl-C, closing, and errors that tf.data ignores."""

import faulthandler
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import DamagedRecordError, Dataset, DatasetError, Input, mix, with_progress
from recordmill.pipeline.reader.batches import fitting
from recordmill.pipeline.reader.iteration import Iteration, OnDevice
from recordmill.pipeline.reader.keras_input import KerasBatches
from recordmill.transforms.base.stored import Ragged
from tests import hand_made
from tests.messages import assert_names, raises
from tests.test_reader_damage import damage

BATCH, OF_EPOCH = 2, 5  # 10 records


def by_number(given: Input) -> Iterator[Any]:
    """Asks as Keras does."""
    batches = KerasBatches(given, None)
    return map(batches.__getitem__, range(len(given)))


FORMS: dict[str, tuple[Callable[[Input], Iterator[Any]], dict[str, int]]] = {
    "one thread": (Input.as_numpy, {"threads": 1}),
    "threads": (Input.as_numpy, {"threads": 3}),
    "workers": (Input.as_numpy, {"workers": 2}),
    "on a device": (lambda given: iter(OnDevice(given, lambda batch: batch)), {"threads": 2}),
    "with progress": (lambda given: with_progress(given.as_numpy()), {"threads": 2}),
    "a mixture": (lambda given: mix([given, given], [1, 1], epochs=4).as_numpy(), {"threads": 2, "epochs": -1}),
    "for Keras": (by_number, {"threads": 2}),
}


@pytest.fixture
def damaged(tmp_path: Path) -> Dataset:
    """Row 5 is damaged: in the dataset's order, of the third batch of two."""
    return damage(hand_made.write_dataset(tmp_path), 1, 40)


def train(dataset: Dataset, **options: Any) -> Input:
    return dataset.training_input(**{"batch_size": BATCH, "epochs": 4, "seed": 3, "features": ["price"], **options})


def forked(action: Callable[[], object]) -> str:
    """Returns what an action raises in a forked process."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(30, exit=True)
        try:
            action()
        except BaseException as error:
            os.write(theirs, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        said = file.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.mark.first(2)
@pytest.mark.parametrize("name", FORMS)
def test_a_forked_process_is_refused_and_its_parent_loses_nothing(name: str, dataset: Dataset) -> None:
    begin, how = FORMS[name]
    prices = lambda batches: [batch[0]["price"].tolist() for batch in batches]  # noqa: E731
    wanted = prices(begin(train(dataset, **how)))
    batches = begin(train(dataset, **how))
    got = prices(next(batches) for _ in range(3))
    for _ in range(2):
        assert_names(forked(lambda: next(batches)), "DatasetError", f"process {os.getpid()}", "begin one here")
    again = how | {"workers": 0}
    assert forked(lambda: (getattr(batches, "close", int)(), prices(begin(train(dataset, **again))))) == ""
    assert got + prices(batches) == wanted


@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("a mixture", "for Keras")])
def test_the_error_that_ended_an_iteration_comes_again(name: str, damaged: Dataset) -> None:
    begin, how = FORMS[name]
    batches = begin(train(damaged, shuffle="none", with_key=True, features=["image"], **how))
    assert [next(batches)[0]["key"].tolist() for _ in range(2)] == [[b"row/0", b"row/1"], [b"row/2", b"row/3"]]
    for _ in range(3):
        with raises(DamagedRecordError, "record 1", "00001-of-00004"):
            next(batches)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), MemoryError(), DatasetError("damaged")])
def test_what_ended_an_iteration_ends_it_again(end: BaseException) -> None:
    def made() -> Iterator[int]:
        yield 1
        raise end

    closed: list[int] = []
    values = Iteration(made(), lambda: closed.append(1))
    assert next(values) == 1
    for _ in range(3):
        with pytest.raises(type(end)) as raised:
            next(values)
        assert raised.value is end
    assert closed == [1]


def test_a_call_during_a_call_is_refused_and_ends_nothing_but_closing_ends_with_it() -> None:
    closed: list[int] = []

    def made() -> Iterator[int]:
        for number in range(3):
            with raises(DatasetError, "`next`", "each thread its own"):
                next(values)
            yield number
        values.close()
        assert closed == []
        yield 3

    values = Iteration(made(), lambda: closed.append(1))
    assert ([next(values) for _ in range(4)], closed) == ([0, 1, 2, 3], [1])
    with raises(DatasetError, "closed"):
        next(values)


def test_keras_is_told_of_a_batch_that_was_left_out(damaged: Dataset) -> None:
    batches = by_number(train(damaged, batch_size=1, epochs=1, features=["image"], on_error="skip"))
    with raises(DatasetError, "Keras", "as_tf_data(model)"):
        list(batches)


def test_an_iteration_that_is_used_up_stays_so_and_a_closed_one_says_so(dataset: Dataset) -> None:
    batches = train(dataset, epochs=1).as_numpy()
    assert [len(list(batches)) for _ in range(3)] == [OF_EPOCH, 0, 0]
    batches.close()
    assert list(batches) == []
    with train(dataset).as_numpy() as batches:
        next(batches)
    with raises(DatasetError, "closed", "begin another"):
        next(batches)


ROWS = [0, 1, 2, 3, 6, 7, 8, 9]
IGNORED: dict[str, tuple[dict[str, Any], list[int]]] = {"images": ({}, ROWS),
    "steps made together": ({"features": []}, ROWS), "epochs": ({"epochs": 2}, 2 * ROWS),
    "ragged": ({"text": "ragged"}, ROWS), "a process": ({"workers": 1}, ROWS),
    "without end": ({"epochs": -1}, ROWS + ROWS[:-2])}  # fmt: skip


@pytest.mark.parametrize("name", IGNORED)
def test_errors_that_are_ignored_cost_their_batches_alone(name: str, damaged: Dataset) -> None:
    options, rows = IGNORED[name]
    given = damaged.training_input(**{"batch_size": BATCH, "epochs": 1, "shuffle": "none", "with_key": True, **options})
    batches = given.as_tf_data()
    assert batches.cardinality() == (-1 if options.get("epochs") == -1 else len(given))
    found = batches.ignore_errors().take(len(rows) // BATCH if options.get("epochs") == -1 else -1)
    assert [int(key[4:]) for features, *_ in found for key in features["key"].numpy()] == rows


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_native_pipeline_whose_errors_are_ignored_ends(epochs: int, damaged: Dataset) -> None:
    batches = train(damaged, epochs=epochs, with_key=True).as_tf_data(native=True)
    assert batches.cardinality() == epochs * OF_EPOCH
    seen = {int(key[4:]) for features, _ in batches.ignore_errors() for key in features["key"].numpy()}
    assert seen
    assert seen <= set(range(10)) - {5}


def test_whole_numbers_that_jax_would_wrap_are_refused() -> None:
    for value in (2**31, -(2**31) - 1):
        ids = np.array([1, value])
        ragged = {"size": np.array([1e30]), "none": ids[:0], "user": Ragged(ids, np.array([0, 2]))}
        for batch, name in ((ragged, "'user'"), (({}, ids), "the label")):
            with raises(DatasetError, name, value, "int32", "jax_enable_x64"):
                fitting(batch, lambda dtype: np.int32)
            assert fitting(batch, lambda dtype: dtype) is batch  # with 64 bits
        assert fitting({"user": ids - np.sign(value)}, lambda dtype: np.int32)
