"""Trains a bag of words that tells all the topics of a headline.

python examples/multi_label/train.py demo/multi_label/out
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
    from keras import layers

    from recordmill import open_dataset


def build_model(length: int, words: int, topics: int) -> keras.Model:
    """Takes word ids; gives the probability of each topic."""
    headline = keras.Input([length], name="headline", dtype="int64")
    bag = layers.GlobalMaxPooling1D()(layers.Embedding(words, 16)(headline))
    model = keras.Model({"headline": headline}, layers.Dense(topics, activation="sigmoid")(bag))
    model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=["binary_accuracy"])
    return model


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small model that tells topics.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    length = dataset.features["headline"]["max_length"]
    model = build_model(length, dataset.vocabulary_size("headline"), dataset.num_classes)
    train = dataset.training_input("train", batch_size=32, seed=1)
    validation = dataset.evaluation_input("validation", batch_size=32)
    model.fit(train.as_tf_data(), validation_data=validation.as_tf_data(), epochs=4, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=32)
    topics = np.concatenate([label for _, label in test.as_numpy()]) > 0.5
    right = (model.predict(test.as_tf_data(), verbose=0) > 0.5) == topics
    commonest = np.unique(topics, axis=0, return_counts=True)[1].max() / len(topics)
    print(f"Headlines of the test split told all their topics: {right.all(1).mean():.3f}; chance: {commonest:.3f}")
    for topic, share in zip(dataset.classes, right.mean(0), strict=True):
        print(f"  {topic}: {share:.3f}")
    if right.all(1).mean() < 0.7:
        sys.exit("train.py: the model did not learn: it should tell all topics of 0.7 of the headlines")


if __name__ == "__main__":
    main()
