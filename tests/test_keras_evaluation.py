"""Keras' evaluation counts each record once, on any number of hosts: filler rows do not count."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from recordmill import Dataset, DatasetError, Input
from tests import hand_made
from tests.messages import raises

RECORDS = 10
FACES = ["as_tf_data", "as_keras"]
LOSS = keras.losses.SparseCategoricalCrossentropy
COMPILED: dict[str, dict[str, Any]] = {
    "as it comes": {"loss": LOSS(from_logits=True), "metrics": ["accuracy"]},
    "weighted": {"loss": LOSS(from_logits=True, reduction="mean_with_sample_weight"), "weighted_metrics": ["accuracy"]},
    "eagerly": {"loss": LOSS(from_logits=True), "metrics": ["accuracy"], "run_eagerly": True},
}


@pytest.fixture(scope="module")
def model() -> Any:
    keras.utils.set_random_seed(4)
    price = keras.Input((), name="price")
    return keras.Model(price, keras.layers.Dense(2)(keras.layers.Reshape((1,))(price)))


def hosts(dataset: Dataset, count: int, **options: Any) -> Iterator[Input]:
    for host in range(count):
        given = {"batch_size": 3, "features": ["price"], "host_index": host, "host_count": count, **options}
        yield dataset.evaluation_input("train", **given)


def expected(model: Any) -> tuple[Any, float, float]:
    """Works out predictions, loss and accuracy of all records, by NumPy."""
    rows = [hand_made.row(number) for number in range(RECORDS)]
    labels = np.array([row["category"] for row in rows])
    weight, bias = (np.float64(part) for part in model.get_weights())
    logits = np.array([[row["price"]] for row in rows]) @ weight + bias
    losses = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
    losses -= logits[np.arange(RECORDS), labels]
    return logits, float(losses.mean()), float((logits.argmax(1) == labels).mean())


@pytest.mark.first(1)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("how", COMPILED)
def test_figures_are_those_without_padding(how: str, face: str, dataset: Dataset, model: Any) -> None:
    model.compile("sgd", **COMPILED[how])
    logits, loss, accuracy = expected(model)
    for count, pad in ((1, True), (2, None), (4, False)):
        predicted, figures = [], np.zeros(2)
        for host in hosts(dataset, count, pad=pad):
            predicted.append(model.predict(getattr(host, face)(model), verbose=0))
            found = model.evaluate(getattr(host, face)(model), verbose=0)
            figures += np.array(found) * len(predicted[-1]) / RECORDS
        np.testing.assert_allclose(figures, [loss, accuracy], rtol=0, atol=1e-6)
        np.testing.assert_allclose(
            np.sort(np.concatenate(predicted), axis=0), np.sort(logits, axis=0), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("face", FACES)
def test_a_fit_validates_without_padding(face: str, dataset: Dataset, model: Any) -> None:
    model.compile(keras.optimizers.SGD(0.0), **COMPILED["as it comes"])
    (validation,) = hosts(dataset, 1, batch_size=4, pad=True)
    train = dataset.training_input(batch_size=5, features=["price"])
    data = {"x": getattr(train, face)(model), "validation_data": getattr(validation, face)(model)}
    fitted = model.fit(**data, epochs=2, shuffle=False, verbose=0)
    _, loss, accuracy = expected(model)
    np.testing.assert_allclose(fitted.history["val_loss"], [loss] * 2, rtol=0, atol=1e-6)
    np.testing.assert_allclose(fitted.history["val_accuracy"], [accuracy] * 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("face", FACES)
def test_a_host_without_a_record_is_told(face: str, dataset: Dataset, model: Any) -> None:
    *_, last = hosts(dataset, 4, batch_size=4)
    with raises(DatasetError, "host 3 of 4", "'train'", "batch_size below 4"):
        getattr(last, face)(model)
