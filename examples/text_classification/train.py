"""Trains a bag of words and pairs of words on the reviews, with their lengths.

python examples/text_classification/train.py demo/text_classification/out
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
    from keras import layers

    from recordmill import open_dataset


def build_model(length: int, words: int, classes: int) -> keras.Model:
    """Takes ids of words and pairs, and their number; gives the classes' scores."""
    review = keras.Input([length], name="review", dtype="int64")
    number = keras.Input([], name="review_length", dtype="int64")
    bag = layers.GlobalAveragePooling1D()(layers.Embedding(words, 16, mask_zero=True)(review))
    size = layers.Reshape([1])(keras.ops.cast(number, "float32") / length)
    scores = layers.Dense(classes)(layers.Concatenate()([bag, size]))
    model = keras.Model({"review": review, "review_length": number}, scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small model on the reviews.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    length = dataset.features["review"]["max_length"]
    model = build_model(length, dataset.vocabulary_size("review"), dataset.num_classes)
    train = dataset.training_input("train", batch_size=32, seed=1)
    validation = dataset.evaluation_input("validation", batch_size=32)
    model.fit(train.as_tf_data(), validation_data=validation.as_tf_data(), epochs=5, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=32)
    accuracy = model.evaluate(test.as_tf_data(), verbose=0, return_dict=True)["accuracy"]
    counts = dataset.label_counts("test").values()
    print(f"Accuracy on the test split: {accuracy:.3f}; of the commonest verdict: {max(counts) / sum(counts):.3f}")
    print("  one verdict in 20 is a slip: about 0.95 is the best there is")
    if accuracy < 0.85:
        sys.exit(f"train.py: the model did not learn: {accuracy:.3f} is under 0.85")


if __name__ == "__main__":
    main()
