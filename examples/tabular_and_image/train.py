"""Trains a model of table and photo on the prices of houses.

python examples/tabular_and_image/train.py demo/tabular_and_image/out
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

NUMBERS = ("area", "rooms", "rooms_missing", "room_area")
CATEGORIES = ("city", "state", "city_and_state")


def build_model(dataset: Dataset) -> keras.Model:
    """Takes the features by name; gives the price as it is stored."""
    photo = seen = keras.Input(dataset.features["photo"]["shape"], name="photo")
    for filters in (8, 16, 16):
        seen = layers.Conv2D(filters, 3, 2, activation="relu")(seen)
    numbers = {name: keras.Input([1], name=name) for name in NUMBERS}
    ids = {name: keras.Input([], name=name, dtype="int64") for name in (*CATEGORIES, "area_band")}
    sizes = {name: dataset.vocabulary_size(name) for name in CATEGORIES}
    sizes["area_band"] = dataset.features["area_band"]["buckets"]
    parts = [layers.Embedding(sizes[name], 4)(ids[name]) for name in ids]
    joined = layers.Concatenate()([layers.Flatten()(seen), *numbers.values(), *parts])
    price = layers.Dense(1)(layers.Dense(64, activation="relu")(joined))
    model = keras.Model({"photo": photo, **numbers, **ids}, price)
    model.compile(keras.optimizers.Adam(3e-3), "mse", metrics=["mae"])
    return model


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small model on the prices of houses.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    model = build_model(dataset)
    train = dataset.training_input("train", batch_size=32, seed=1)
    validation = dataset.evaluation_input("validation", batch_size=32)
    model.fit(train.as_tf_data(), validation_data=validation.as_tf_data(), epochs=8, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=32)
    prices = np.concatenate([price for _, price in test.as_numpy()])
    found = model.predict(test.as_tf_data(), verbose=0)[:, 0]
    scale = dataset.manifest.statistics["price"]["variance"] ** 0.5  # from a z-score to the price's logarithm
    error, of_the_mean = (float(np.expm1(np.abs(said - prices).mean() * scale)) for said in (found, 0))
    print(f"Mean error of the price on the test split: {error:.1%}; of one price for all: {of_the_mean:.1%}")
    print("  the prices are random by 4 %: that is the best there is")
    if error > 0.12:
        sys.exit(f"train.py: the model did not learn: {error:.1%} is above 12 %")


if __name__ == "__main__":
    main()
