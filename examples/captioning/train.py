"""Trains a small captioning model: the picture's features start a recurrent decoder. Prints a caption it writes.

python examples/captioning/train.py demo/captioning/out
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from keras import layers

from pipeline.reader import open_dataset

UNITS = 64


def build_model(shape: tuple[int, ...], words: int, length: int) -> keras.Model:
    """Takes a picture and the caption so far; gives the scores of each next word."""
    image = keras.Input(shape, name="image")
    so_far = keras.Input((length,), name="text", dtype="int64")
    seen = layers.Flatten()(layers.AveragePooling2D(8)(image))
    state = layers.Dense(UNITS, activation="tanh")(seen)
    read = layers.Embedding(words, 32)(so_far)
    written = layers.GRU(UNITS, return_sequences=True)(read, initial_state=state)
    model = keras.Model({"image": image, "text": so_far}, layers.Dense(words)(written))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), weighted_metrics=["accuracy"])
    return model


def shifted(features: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
    """The caption without its last word, the words that follow, and a weight of 0 for padding."""
    text = features["text"]
    following = text[:, 1:]
    return {"image": features["image"], "text": text[:, :-1]}, following, tf.cast(following != 0, tf.float32)


def main() -> None:
    """Trains, evaluates and writes a caption."""
    dataset = open_dataset(sys.argv[1])
    keras.utils.set_random_seed(0)
    train = dataset.training_input("train", batch_size=32, seed=1).map(shifted)
    shape = train.element_spec[0]["image"].shape[1:]
    model = build_model(shape, dataset.vocabulary_size("text"), train.element_spec[0]["text"].shape[1])
    model.fit(train, epochs=25, shuffle=False, verbose=0)

    test = dataset.evaluation_input("test", batch_size=32).map(shifted)
    inputs, following, _ = next(iter(test))
    scores = model.predict(inputs, verbose=0).argmax(-1)
    words = dataset.to_words("text", [row[row != 0][:-1] for row in following.numpy()][:1])[0]
    print(f"a caption of the test split: {' '.join(words)}")
    print(f"the model, a word at a time: {' '.join(dataset.to_words('text', scores[:1, : len(words)])[0])}")
    accuracy = model.evaluate(test, verbose=0, return_dict=True)["accuracy"]
    print(f"words found on the test split: {accuracy:.3f}")
    if accuracy < 0.9:
        sys.exit("train.py: the model did not learn to caption")


if __name__ == "__main__":
    main()
