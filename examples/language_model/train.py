"""Trains a transformer's block to tell the next token, on rows of several stories each, and lets it write one.

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
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # off the screen: what TensorFlow prints while it loads
    import keras
    import numpy as np
    from keras import layers, ops

    from pipeline.reader import open_dataset

BATCH_ROWS = 8
EPOCHS = 3
UNITS = 64
PARTS = ("text", "text_segments", "text_positions")


def next_tokens(features: Mapping[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    """Rows but their last token, the tokens that follow, and which count: those that go on with the same story."""
    segments = features["text_segments"]
    counts = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return {name: features[name][:, :-1] for name in PARTS}, features["text"][:, 1:], counts


def build_model(tokens: int, length: int) -> keras.Model:
    """Takes ids, their stories' numbers and their places in these; gives the scores of each next token."""
    text, segments, positions = (keras.Input([length], name=name, dtype="int32") for name in PARTS)
    own = ops.expand_dims(segments, 2) == ops.expand_dims(segments, 1)  # a token sees those of its own story,
    mask = ops.logical_and(own, np.tri(length, dtype=bool))  # and none that follows it: [batch, length, length]
    wide = keras.initializers.RandomNormal(stddev=1)  # a token is told from its place from the first step on
    read = layers.Embedding(tokens, UNITS, wide)(text) + layers.Embedding(length, UNITS)(positions)
    normal = layers.LayerNormalization()(read)
    read += layers.MultiHeadAttention(4, UNITS // 4)(normal, normal, attention_mask=mask)
    read += layers.Dense(UNITS)(layers.Dense(2 * UNITS, activation="gelu")(layers.LayerNormalization()(read)))
    scores = layers.Dense(tokens)(layers.LayerNormalization()(read))
    model = keras.Model(dict(zip(PARTS, (text, segments, positions), strict=True)), scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.Adam(1e-2), loss, weighted_metrics=["accuracy"])
    return model


def perplexity_of_counts(tokens: np.ndarray) -> float:
    """The best perplexity of a model that knows how frequent each token is, and nothing else."""
    counts = np.bincount(tokens)
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def write(model: keras.Model, begin: int, end: int, length: int) -> list[int]:
    """Writes a story, each token the likeliest one after those before it: at most `length` ids."""
    story = [begin]
    while len(story) < length and story[-1] != end:
        text = np.array([story + [0] * (length - len(story))])
        row = {"text": text, "text_segments": np.ones_like(text), "text_positions": np.arange(length)[np.newaxis]}
        story.append(int(model.predict_on_batch(row)[0, len(story) - 1].argmax()))
    return story


def main() -> None:
    """Trains, evaluates, lets the model write and prints."""
    parser = argparse.ArgumentParser(description="Trains a small language model.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    text = dataset.features["text"]
    model = build_model(dataset.vocabulary_size("text"), text["packed"] - 1)
    train = dataset.training_input("train", batch_size=BATCH_ROWS, seed=1)
    validation = dataset.evaluation_input("validation", batch_size=BATCH_ROWS)
    both = (rows.as_tf_data().map(next_tokens) for rows in (train, validation))
    model.fit(next(both), validation_data=next(both), epochs=EPOCHS, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=dataset.splits["test"])
    rows, tokens, counts = next_tokens(next(test.as_numpy()))
    perplexity = float(np.exp(model.evaluate(rows, tokens, sample_weight=counts, verbose=0)[0]))
    of_counts = perplexity_of_counts(tokens[counts])
    print(f"Perplexity on the test split: {perplexity:.2f}; by the tokens' frequency alone: {of_counts:.2f}")
    story = write(model, text["begin_id"], text["end_id"], text["packed"] - 1)
    print(f"  it writes: {''.join(dataset.to_words('text', story)).replace('▁', ' ')}")
    if perplexity > of_counts / 5:
        sys.exit(f"train.py: the model did not learn: {perplexity:.2f} is above a fifth of {of_counts:.2f}")


if __name__ == "__main__":
    main()
