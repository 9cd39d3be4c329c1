"""Trains a small Keras model on the shapes dataset, from both the pictures and their captions.

Prints the accuracy on the test split, which training never saw, beside chance, and what is left of it without captions.
Exits with 1 where the model did not learn: under three times chance.

    python examples/shapes/train.py demo/shapes
"""

import argparse
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # read by TensorFlow when it is imported

import keras
import tensorflow as tf
from keras import layers

from pipeline.reader import open_dataset

BATCH_ROWS = 32
EPOCHS = 10


def build_model(image_shape: tuple[int, int, int], words: int, length: int, classes: int) -> keras.Model:
    """Joins a convolution of the image (float32, 0..1) and a bag of the caption's words (int64 ids, 0 pads)."""
    image = keras.Input(image_shape, name="image")
    text = keras.Input((length,), dtype="int64", name="text")
    seen = image
    for filters in (16, 32, 64, 64):
        seen = layers.Conv2D(filters, 3, padding="same", use_bias=False)(seen)
        seen = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(seen))
        seen = layers.MaxPooling2D()(seen)
    seen = layers.GlobalMaxPooling2D()(seen)
    read = layers.GlobalAveragePooling1D()(layers.Embedding(words, 16, mask_zero=True)(text))
    joined = layers.Dropout(0.3)(layers.Concatenate()([seen, read]))
    scores = layers.Dense(classes)(layers.Dense(64, activation="relu")(joined))
    model = keras.Model({"image": image, "text": text}, scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss=loss, metrics=["accuracy"])
    return model


def without_captions(features: dict[str, tf.Tensor], label: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Blanks the captions of a batch: 0 is padding."""
    return {**features, "text": tf.zeros_like(features["text"])}, label


def accuracy(model: keras.Model, batches: tf.data.Dataset) -> float:
    """The share of the batches' rows whose class the model finds, 0..1."""
    return float(model.evaluate(batches, verbose=0, return_dict=True)["accuracy"])


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small model on the shapes dataset.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)

    train = dataset.training_input("train", batch_size=BATCH_ROWS, seed=1)
    validation = dataset.evaluation_input("validation", batch_size=BATCH_ROWS)
    test = dataset.evaluation_input("test", batch_size=BATCH_ROWS)
    features, _ = train.element_spec
    model = build_model(
        tuple(features["image"].shape[1:]),
        dataset.vocabulary_size("text"),
        features["text"].shape[1],
        dataset.num_classes,
    )
    decay = keras.callbacks.LearningRateScheduler(lambda epoch: 3e-3 * 0.5 ** (epoch // 3))
    model.fit(train, validation_data=validation, epochs=EPOCHS, callbacks=[decay], shuffle=False, verbose=2)

    found, chance = accuracy(model, test), 1 / dataset.num_classes
    blind = accuracy(model, test.map(without_captions))
    print(f"Classes: {', '.join(dataset.classes)}")
    print(f"Accuracy on the test split: {found:.3f} (chance: {chance:.3f}; without the captions: {blind:.3f})")
    if found < 3 * chance:
        sys.exit(f"train.py: the model did not learn: {found:.3f} is under three times chance")


if __name__ == "__main__":
    main()
