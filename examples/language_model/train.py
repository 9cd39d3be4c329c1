"""Trains a recurrent model of the next token on rows that hold several stories each, and lets it write one.

python examples/language_model/train.py demo/language_model/out
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with contextlib.ExitStack() as screen:
    screen.callback(os.dup2, os.dup(2), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # keeps what TensorFlow prints as it loads off the screen
    import keras
    import numpy as np
    from keras import layers

    from recordmill import open_dataset

BATCH_ROWS = 8
LENGTH = 128  # ids of a row: `pack` of the spec
PACKED: dict[str, Any] = {"text": "packed", "text_length": LENGTH}
EPOCHS = 3
INPUTS = ("text", "text_positions")


class StoryCell(layers.GRUCell):  # type: ignore[misc]  # Keras tells no types
    """A recurrent cell that forgets where a story begins: none looks into the one before."""

    def call(self, inputs: Any, states: list[Any], training: bool = False) -> Any:
        """Takes tokens' vectors, [batch, units], whose first number is 0 where a story begins, else 1."""
        return super().call(inputs, [state * inputs[:, :1] for state in states], training=training)


def next_tokens(features: Mapping[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    """Rows but their last token, the tokens that follow, and which count: those that go on with the same story."""
    segments = features["text_segments"]
    counts = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return {name: features[name][:, :-1] for name in INPUTS}, features["text"][:, 1:], counts


def build_model(tokens: int, length: int) -> keras.Model:
    """Takes ids and their places in their stories; gives the scores of each next token."""
    text, positions = (keras.Input([length], name=name, dtype="int64") for name in INPUTS)
    goes_on = keras.ops.expand_dims(keras.ops.cast(positions > 0, "float32"), -1)
    read = layers.Concatenate()([goes_on, layers.Embedding(tokens, 32)(text)])
    recurrent = layers.RNN(StoryCell(96), return_sequences=True)(read)
    model = keras.Model({"text": text, "text_positions": positions}, layers.Dense(tokens)(recurrent))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.Adam(1e-2), loss, weighted_metrics=["accuracy"])
    return model


def perplexity_of_counts(tokens: np.ndarray) -> float:
    """The best perplexity of a model that knows how frequent each token is, and nothing else."""
    counts = np.bincount(tokens)
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def write(model: keras.Model, begin: int, end: int, length: int) -> list[int]:
    """Writes a story, each token drawn by the model's probabilities: at most `length` ids."""
    random, story = np.random.default_rng(0), [begin]
    while len(story) < length and story[-1] != end:
        text = np.array([story + [0] * (length - len(story))])
        row = {"text": text, "text_positions": np.arange(length)[np.newaxis]}
        scores = model.predict_on_batch(row)[0, len(story) - 1]
        story.append(int((scores + random.gumbel(size=len(scores))).argmax()))  # a draw of softmax(scores)
    return story


def main() -> None:
    """Trains, evaluates, lets the model write and prints."""
    parser = argparse.ArgumentParser(description="Trains a small language model.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    text = dataset.features["text"]
    model = build_model(dataset.vocabulary_size("text"), LENGTH - 1)
    train = dataset.training_input("train", batch_size=BATCH_ROWS, seed=1, **PACKED)
    validation = dataset.evaluation_input("validation", batch_size=BATCH_ROWS, **PACKED)
    both = (rows.as_tf_data().map(next_tokens) for rows in (train, validation))
    model.fit(next(both), validation_data=next(both), epochs=EPOCHS, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=dataset.splits["test"], **PACKED)
    rows, tokens, counts = next_tokens(next(test.as_numpy()))
    perplexity = float(np.exp(model.evaluate(rows, tokens, sample_weight=counts, verbose=0)[0]))
    of_counts = perplexity_of_counts(tokens[counts])
    print(f"Perplexity on the test split: {perplexity:.2f}; by the tokens' frequency alone: {of_counts:.2f}")
    story = write(model, text["begin_id"], text["end_id"], LENGTH - 1)
    print(f"  it writes: {''.join(dataset.to_words('text', story)).replace('▁', ' ')}")
    if perplexity > of_counts / 5:
        sys.exit(f"train.py: the model did not learn: {perplexity:.2f} is above a fifth of {of_counts:.2f}")


if __name__ == "__main__":
    main()
