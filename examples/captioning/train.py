"""Trains a small captioning model, a recurrent decoder that begins with the image's features, and lets it write.

Each image has several captions: each epoch learns from a random one, and what the model writes is right if it is any.

python examples/captioning/train.py demo/captioning/out
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
    import tensorflow as tf
    from keras import layers

    from recordmill import open_dataset

UNITS = 64
Features = dict[str, tf.Tensor]


def build_model(shape: list[int], words: int, length: int) -> keras.Model:
    """Takes an image and the caption so far; gives the scores of each next word."""
    image = keras.Input(shape, name="image")
    text = keras.Input([length], name="captions", dtype="int64")
    seen = layers.Flatten()(layers.AveragePooling2D(8)(image))
    state = layers.Dense(UNITS, activation="tanh")(seen)
    read = layers.Embedding(words, 32)(text)
    written = layers.GRU(UNITS, return_sequences=True)(read, initial_state=state)
    model = keras.Model({"image": image, "captions": text}, layers.Dense(words)(written))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # of the padding too: so a caption ends
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


def shifted(features: Features) -> tuple[Features, tf.Tensor]:
    """The image with the caption but its last word, and the words that follow."""
    return features | {"captions": features["captions"][:, :-1]}, features["captions"][:, 1:]


def write(model: keras.Model, images: np.ndarray, begin: int, length: int) -> np.ndarray:
    """Writes captions, each word the likeliest one after those before it: int64 [rows, length]."""
    text = np.zeros([len(images), length], np.int64)
    text[:, 0] = begin
    for word in range(1, length):
        scores = model.predict_on_batch({"image": images, "captions": text[:, :-1]})
        text[:, word] = scores[:, word - 1].argmax(-1)
    return text


def main() -> None:
    """Trains, lets the model write captions for the test split, compares and prints."""
    parser = argparse.ArgumentParser(description="Trains a small captioning model.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    begin, length = (dataset.features["captions"][name] for name in ("begin_id", "max_length"))
    model = build_model(dataset.features["image"]["shape"], dataset.vocabulary_size("captions"), length - 1)
    train = dataset.training_input("train", batch_size=16, seed=1, captions="random").as_tf_data().map(shifted)
    validation = dataset.evaluation_input("validation", batch_size=32, captions="random").as_tf_data().map(shifted)
    model.fit(train, validation_data=validation, epochs=6, shuffle=False, verbose=2)

    test = next(dataset.evaluation_input("test", batch_size=dataset.splits["test"]).as_numpy())
    captions, written = test["captions"], write(model, test["image"], begin, length)  # [images, captions, words]
    right = (captions == written[:, np.newaxis]).all(2).any(1).mean()
    commonest = max((captions == caption).all(2).any(1).mean() for caption in np.unique(captions[:, 0], axis=0))
    print(
        f"Images of the test split that got one of their captions: {right:.3f}; by the commonest alone: {commonest:.3f}"
    )
    print(f"  the first: {' '.join(dataset.to_words('captions', written[0]))}")
    if right < 0.5:
        sys.exit(f"train.py: the model did not learn: {right:.3f} is under 0.5")


if __name__ == "__main__":
    main()
