"""Trains a bag of words and pairs of words on the reviews. Prints the accuracy on the test split.

python examples/text_classification/train.py demo/text_classification/out
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from keras import layers

from pipeline.reader import open_dataset


def main() -> None:
    """Trains and evaluates."""
    dataset = open_dataset(sys.argv[1])
    keras.utils.set_random_seed(0)
    train = dataset.training_input("train", batch_size=32, seed=1)
    review = keras.Input(train.element_spec[0]["review"].shape[1:], name="review", dtype="int64")
    bag = layers.GlobalAveragePooling1D()(layers.Embedding(dataset.vocabulary_size("review"), 16)(review))
    model = keras.Model({"review": review}, layers.Dense(dataset.num_classes)(bag))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    model.fit(train, epochs=8, shuffle=False, verbose=0)

    test = dataset.evaluation_input("test", batch_size=32)
    accuracy = model.evaluate(test, verbose=0, return_dict=True)["accuracy"]
    print(f"accuracy on the test split: {accuracy:.3f}; chance: 0.5")
    if accuracy < 0.9:
        sys.exit("train.py: the model did not learn")


if __name__ == "__main__":
    main()
