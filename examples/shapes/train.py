"""Trains a small Keras model on the shapes dataset, from both the images and their captions.

Prints the accuracy on the test split, which training never saw, beside chance, and what is left of it when the
captions or the images are blanked. Exits with 1 where the model did not learn: under three times chance.

    python examples/shapes/train.py demo/shapes
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what TensorFlow prints as it loads off the screen, whatever its log level."""
    screen, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(screen, 2)


with quiet():
    import keras
    import tensorflow as tf
    from keras import layers

    from recordmill import ArraySpec, open_dataset
    from recordmill.augment import RandomFlip

BATCH_ROWS = 32
EPOCHS = 8
LEARNING_RATE = 4e-3
AUGMENT = [RandomFlip()]  # a mirrored shape is the same shape

Features = dict[str, tf.Tensor]


def build_model(inputs: dict[str, ArraySpec], words: int, classes: int, steps: int) -> keras.Model:
    """Joins a small convolutional net of the image with a bag of the caption's words."""
    image = keras.Input(inputs["image"].shape[1:], name="image")  # float32, 0..1
    text = keras.Input(inputs["text"].shape[1:], name="text", dtype="int64")  # word ids, 0 pads
    seen = image
    for filters in (16, 32, 64, 64):
        seen = layers.Conv2D(filters, 3, padding="same", use_bias=False)(seen)
        seen = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(seen))
        seen = layers.MaxPooling2D()(seen)
    read = layers.GlobalAveragePooling1D()(layers.Embedding(words, 16)(text))
    joined = layers.Concatenate()([layers.GlobalMaxPooling2D()(seen), read])
    scores = layers.Dense(classes)(layers.Dense(64, activation="relu")(layers.Dropout(0.1)(joined)))
    model = keras.Model({"image": image, "text": text}, scores)
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def without(name: str) -> Callable[[Features, tf.Tensor], tuple[Features, tf.Tensor]]:
    """Makes a function that blanks one input of a batch: white images, or captions without a word."""
    blank = tf.ones_like if name == "image" else tf.zeros_like
    return lambda features, label: ({**features, name: blank(features[name])}, label)


def accuracy(model: keras.Model, batches: tf.data.Dataset) -> float:
    """Gives the share of rows whose class the model finds, 0..1."""
    return float(model.evaluate(batches, verbose=0, return_dict=True)["accuracy"])


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small model on the shapes dataset.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)

    train = dataset.training_input("train", batch_size=BATCH_ROWS, seed=1, augment=AUGMENT)
    validation = dataset.evaluation_input("validation", batch_size=BATCH_ROWS)
    steps = train.batches_per_epoch * EPOCHS
    model = build_model(train.element_spec[0], dataset.vocabulary_size("text"), dataset.num_classes, steps)
    model.fit(train.as_tf_data(), validation_data=validation.as_tf_data(), epochs=EPOCHS, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=BATCH_ROWS).as_tf_data()
    found, chance = accuracy(model, test), 1 / dataset.num_classes
    print(f"Accuracy on the test split: {found:.3f}; chance: {chance:.3f}")
    print(f"  from the images alone: {accuracy(model, test.map(without('text'))):.3f}")
    print(f"  from the captions alone: {accuracy(model, test.map(without('image'))):.3f}")
    if found < 3 * chance:
        sys.exit(f"train.py: the model did not learn: {found:.3f} is under three times chance")


if __name__ == "__main__":
    main()
