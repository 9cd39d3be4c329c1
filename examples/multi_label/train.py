"""Trains a bag of words that tells several topics at once. Prints the accuracy of all topics on the test split.

python examples/multi_label/train.py demo/multi_label/out
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
    inputs, topics = train.element_spec
    headline = keras.Input(inputs["headline"].shape[1:], name="headline", dtype="int64")
    bag = layers.GlobalMaxPooling1D()(layers.Embedding(dataset.vocabulary_size("headline"), 16)(headline))
    model = keras.Model({"headline": headline}, layers.Dense(topics.shape[1], activation="sigmoid")(bag))
    model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=["binary_accuracy"])
    model.fit(train, epochs=8, shuffle=False, verbose=0)

    test = dataset.evaluation_input("test", batch_size=32)
    accuracy = model.evaluate(test, verbose=0, return_dict=True)["binary_accuracy"]
    print(f"topics told rightly on the test split: {accuracy:.3f} of {', '.join(dataset.classes)}")
    if accuracy < 0.95:
        sys.exit("train.py: the model did not learn")


if __name__ == "__main__":
    main()
