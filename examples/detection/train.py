"""Trains a small detector of one object: its box and its class. Prints the mean overlap with the true box.

python examples/detection/train.py demo/detection/out
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from keras import layers

from pipeline.reader import open_dataset

Batch = tuple[tf.Tensor, dict[str, tf.Tensor]]


def build_model() -> keras.Model:
    """Takes a picture; gives a box (y_min, x_min, y_max, x_max, 0..1) and the scores of the classes."""
    image = keras.Input((64, 64, 3))
    seen = image
    for filters in (16, 32, 48, 64):
        seen = layers.Conv2D(filters, 3, 2, padding="same", activation="relu")(seen)
    seen = layers.Dense(128, activation="relu")(layers.Flatten()(seen))
    outputs = {"box": layers.Dense(4, name="box")(seen), "class": layers.Dense(2, name="class")(seen)}
    model = keras.Model(image, outputs)
    losses = {"box": keras.losses.Huber(0.1), "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    model.compile(
        keras.optimizers.Adam(2e-3), losses, loss_weights={"box": 100, "class": 1}, metrics={"class": "accuracy"}
    )
    return model


def first_object(features: dict[str, tf.Tensor]) -> Batch:
    """The first box of each picture; class ids begin at 2: 0 pads, 1 is unknown."""
    return features["image"], {"box": features["boxes"][:, 0], "class": features["classes"][:, 0] - 2}


def overlap(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Intersection over union of boxes, shape [rows, 4]: [rows], 0..1."""
    low, high = tf.maximum(one[:, :2], other[:, :2]), tf.minimum(one[:, 2:], other[:, 2:])
    common = tf.reduce_prod(tf.maximum(high - low, 0), 1)
    areas = [tf.reduce_prod(tf.maximum(box[:, 2:] - box[:, :2], 0), 1) for box in (one, other)]
    return common / (areas[0] + areas[1] - common)


def main() -> None:
    """Trains and evaluates."""
    dataset = open_dataset(sys.argv[1])
    keras.utils.set_random_seed(0)
    model = build_model()
    train = dataset.training_input("train", batch_size=32, seed=1).map(first_object)
    model.fit(train, epochs=15, shuffle=False, verbose=0)

    found = [
        (overlap(model(image)["box"], true["box"]), tf.argmax(model(image)["class"], 1) == true["class"])
        for image, true in dataset.evaluation_input("test", batch_size=32).map(first_object)
    ]
    overlaps, hits = (tf.concat(parts, 0) for parts in zip(*found, strict=True))
    mean, accuracy = float(tf.reduce_mean(overlaps)), float(tf.reduce_mean(tf.cast(hits, tf.float32)))
    print(f"mean overlap with the true box on the test split: {mean:.3f}; class found: {accuracy:.3f}")
    if mean < 0.3:
        sys.exit("train.py: the model did not learn where the objects are")


if __name__ == "__main__":
    main()
