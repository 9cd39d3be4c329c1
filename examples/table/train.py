"""Trains a model of a table's columns: which customers leave?

python examples/table/train.py demo/table/out
"""

import argparse
import contextlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with contextlib.ExitStack() as screen:
    screen.callback(os.dup2, os.dup(2), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # keeps what TensorFlow prints as it loads off the screen
    import keras
    import numpy as np
    from keras import layers

    from recordmill import Dataset, open_dataset

NUMBERS = ("months", "tickets", "tickets_missing")
CATEGORIES = ("plan", "country")


def build_model(dataset: Dataset) -> keras.Model:
    """Takes the columns by name; gives the probability that a customer leaves."""
    numbers = {name: keras.Input([1], name=name) for name in NUMBERS}
    ids = {name: keras.Input([], name=name, dtype="int64") for name in (*CATEGORIES, "spent")}
    sizes = {name: dataset.vocabulary_size(name) for name in CATEGORIES}
    sizes["spent"] = dataset.features["spent"]["buckets"]
    parts = [layers.Embedding(sizes[name], 4)(ids[name]) for name in ids]
    hidden = layers.Dense(32, activation="relu")(layers.Concatenate()([*numbers.values(), *parts]))
    model = keras.Model({**numbers, **ids}, layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(keras.optimizers.Adam(3e-3), "binary_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small model on a table of customers.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    model = build_model(dataset)
    train = dataset.training_input("train", batch_size=64, seed=1)
    validation = dataset.evaluation_input("validation", batch_size=64)
    model.fit(train.as_tf_data(), validation_data=validation.as_tf_data(), epochs=16, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=64)
    left = np.concatenate([label for _, label in test.as_numpy()])
    found = model.predict(test.as_tf_data(), verbose=0)[:, 0] > 0.5
    accuracy, always = float((found == left).mean()), float(max(left.mean(), 1 - left.mean()))
    print(f"Right on the test split: {accuracy:.2f}; one answer for all: {always:.2f}")
    if accuracy < always + 0.2:
        sys.exit(f"train.py: the model did not learn: {accuracy:.2f} is not above {always:.2f} + 0.2")


if __name__ == "__main__":
    main()
