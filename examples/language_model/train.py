"""Trains a next-token model on documents packed into rows of one length. Prints the perplexity on the test split.

python examples/language_model/train.py demo/language_model/out
"""

import math
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from keras import layers

from pipeline.reader import open_dataset

LENGTH = 64


def packed(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Documents' ids one after another, without padding, cut into rows of LENGTH + 1: inputs and what follows."""
    ids = batches.map(lambda features: tf.boolean_mask(features["text"], features["text"] != 0)).unbatch()
    rows = ids.batch(LENGTH + 1, drop_remainder=True)
    return rows.map(lambda row: (row[:-1], row[1:])).batch(16, drop_remainder=True)


def main() -> None:
    """Trains and evaluates."""
    dataset = open_dataset(sys.argv[1])
    keras.utils.set_random_seed(0)
    words = dataset.vocabulary_size("text")
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int64"),
            layers.Embedding(words, 48),
            layers.GRU(96, return_sequences=True),
            layers.Dense(words),
        ]
    )
    model.compile(keras.optimizers.Adam(5e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(packed(dataset.training_input("train", batch_size=64, seed=1)), epochs=3, shuffle=False, verbose=0)

    loss = model.evaluate(packed(dataset.evaluation_input("test", batch_size=64)), verbose=0)
    print(f"perplexity on the test split: {math.exp(loss):.2f}; of a model that knows nothing: {words}")
    if math.exp(loss) > 6:
        sys.exit("train.py: the model did not learn")


if __name__ == "__main__":
    main()
