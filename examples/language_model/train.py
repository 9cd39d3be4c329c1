"""Trains a recurrent model of the next token on stories packed into rows of one length, and lets it write.

python examples/language_model/train.py demo/language_model/out
"""

import argparse
import contextlib
import os
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with contextlib.ExitStack() as screen:
    screen.callback(os.dup2, os.dup(2), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # off the screen: what TensorFlow prints while it loads
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    from pipeline.reader import open_dataset

LENGTH = 64  # tokens in a row
BATCH_ROWS = 32


def packed(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Lays the stories' ids one after another, without padding, and cuts them into rows and what follows each token."""
    ids = batches.map(lambda features: tf.boolean_mask(features["text"], features["text"] != 0))
    rows = ids.rebatch(LENGTH + 1, drop_remainder=True)
    return rows.map(lambda row: (row[:-1], row[1:])).batch(BATCH_ROWS)


def build_model(tokens: int) -> keras.Model:
    """Takes ids; gives the scores of each next token."""
    recurrent = [layers.Embedding(tokens, 32), layers.GRU(96, return_sequences=True), layers.Dense(tokens)]
    model = keras.Sequential([keras.Input([LENGTH], dtype="int64"), *recurrent])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


def perplexity_of_counts(batches: tf.data.Dataset) -> float:
    """The best perplexity of a model that knows how frequent each token is, and nothing else."""
    counts = np.bincount(np.concatenate([following.numpy().ravel() for _, following in batches]))
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def write(model: keras.Model, begin: int) -> np.ndarray:
    """Writes a row, each token the likeliest one after those before it: int64 [LENGTH]."""
    row = np.full([LENGTH], begin)
    for place in range(1, LENGTH):
        row[place] = model.predict_on_batch(row[np.newaxis])[0, place - 1].argmax()
    return row


def main() -> None:
    """Trains, evaluates, lets the model write and prints."""
    parser = argparse.ArgumentParser(description="Trains a small language model.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    model = build_model(dataset.vocabulary_size("text"))
    train = packed(dataset.training_input("train", batch_size=64, seed=1, drop_remainder=False))
    validation = packed(dataset.evaluation_input("validation", batch_size=64))
    warnings.filterwarnings("ignore", "Your input ran out of data")  # said where the number of batches is not known
    model.fit(train, validation_data=validation, epochs=2, shuffle=False, verbose=2)

    test = packed(dataset.evaluation_input("test", batch_size=64))
    perplexity, of_counts = float(np.exp(model.evaluate(test, verbose=0)[0])), perplexity_of_counts(test)
    print(f"Perplexity on the test split: {perplexity:.2f}; by the tokens' frequency alone: {of_counts:.2f}")
    pieces = dataset.to_words("text", write(model, dataset.features["text"]["begin_id"]))
    print(f"  it writes: {''.join(pieces).replace('▁', ' ')}")
    if perplexity > of_counts / 5:
        sys.exit(f"train.py: the model did not learn: {perplexity:.2f} is above a fifth of {of_counts:.2f}")


if __name__ == "__main__":
    main()
