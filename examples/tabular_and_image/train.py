"""Trains a model of table and picture on the houses. Prints the mean error on the test split.

python examples/tabular_and_image/train.py demo/tabular_and_image/out
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from keras import layers

from pipeline.reader import open_dataset

NUMBERS = ("area", "rooms", "rooms_missing", "room_area")
NAMES = ("city", "state", "city_and_state", "area_band")


def model_inputs(features: dict[str, tf.Tensor], price: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """The table as two matrices beside the photo."""
    numbers = tf.stack([tf.cast(features[name], tf.float32) for name in NUMBERS], 1)
    names = tf.stack([features[name] for name in NAMES], 1)
    return {"photo": features["photo"], "numbers": numbers, "names": names}, tf.math.log(price)


def build_model() -> keras.Model:
    """Takes photo, numbers and ids; gives the logarithm of the price."""
    photo = keras.Input((60, 40, 3), name="photo")
    numbers = keras.Input((len(NUMBERS),), name="numbers")
    names = keras.Input((len(NAMES),), name="names", dtype="int64")
    seen = photo
    for filters in (8, 16, 16):
        seen = layers.Conv2D(filters, 3, 2, activation="relu")(seen)
    parts = [layers.Flatten()(seen), numbers, layers.Flatten()(layers.CategoryEncoding(17, "multi_hot")(names))]
    hidden = layers.Dense(64, activation="relu")(layers.Concatenate()(parts))
    model = keras.Model({"photo": photo, "numbers": numbers, "names": names}, layers.Dense(1)(hidden)[:, 0])
    model.compile(keras.optimizers.Adam(3e-3), "mse", metrics=["mae"])
    return model


def main() -> None:
    """Trains and evaluates."""
    dataset = open_dataset(sys.argv[1])
    keras.utils.set_random_seed(0)
    model = build_model()
    model.fit(
        dataset.training_input("train", batch_size=32, seed=1).map(model_inputs), epochs=12, shuffle=False, verbose=0
    )

    test = dataset.evaluation_input("test", batch_size=32).map(model_inputs)
    error = model.evaluate(test, verbose=0, return_dict=True)["mae"]
    prices = tf.concat([price for _, price in test], 0)
    chance = float(tf.reduce_mean(tf.abs(prices - tf.reduce_mean(prices))))
    print(f"mean error of the price's logarithm on the test split: {error:.3f}; of the mean price: {chance:.3f}")
    if error > chance / 2:
        sys.exit("train.py: the model did not learn")


if __name__ == "__main__":
    main()
