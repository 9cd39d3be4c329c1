"""Fine-tunes a small recurrent model on the answers of chats, several a row, and lets it answer.

python examples/chats/train.py demo/chats/out
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
EPOCHS = 6
INPUTS = ("chat", "chat_positions")
QUESTION = "the queen finds a letter by the river . what ?"


class ChatCell(layers.GRUCell):  # type: ignore[misc]  # Keras tells no types
    """A recurrent cell that drops its state at the beginning of a chat: no chat sees the one before."""

    def call(self, inputs: Any, states: list[Any], training: bool = False) -> Any:
        """Takes tokens' vectors, [batch, units], whose first number is 0 where a chat begins, else 1."""
        return super().call(inputs, [state * inputs[:, :1] for state in states], training=training)


def next_tokens(features: Mapping[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    """Returns rows without their last token, the next tokens, and a mask of those that count: of answers, in a chat."""
    segments, mask = features["chat_segments"], features["chat_loss_mask"]
    counts = (segments[:, 1:] == segments[:, :-1]) & (mask[:, 1:] > 0)
    return {name: features[name][:, :-1] for name in INPUTS}, features["chat"][:, 1:], counts


def build_model(tokens: int, length: int) -> keras.Model:
    """Takes ids and their places in their chats; gives the scores of each next token."""
    chat, positions = (keras.Input([length], name=name, dtype="int64") for name in INPUTS)
    goes_on = keras.ops.expand_dims(keras.ops.cast(positions > 0, "float32"), -1)
    read = layers.Concatenate()([goes_on, layers.Embedding(tokens, 32)(chat)])
    recurrent = layers.RNN(ChatCell(96), return_sequences=True)(read)
    model = keras.Model({"chat": chat, "chat_positions": positions}, layers.Dense(tokens)(recurrent))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.Adam(1e-2), loss, weighted_metrics=["accuracy"])
    return model


def answer(model: keras.Model, prompt: list[int], end: int) -> list[int]:
    """Goes on with a prompt's ids by the likeliest token, up to the end of the turn."""
    ids = list(prompt)
    while len(ids) < LENGTH - 1 and (ids[-1] != end or len(ids) == len(prompt)):
        row = np.array([ids + [0] * (LENGTH - 1 - len(ids))])
        scores = model.predict_on_batch({"chat": row, "chat_positions": np.arange(LENGTH - 1)[np.newaxis]})
        ids.append(int(scores[0, len(ids) - 1].argmax()))
    return ids[len(prompt) :]


def main() -> None:
    """Trains, evaluates, lets the model answer and prints."""
    parser = argparse.ArgumentParser(description="Fine-tunes a small model on chats.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    dataset = open_dataset(parser.parse_args().dataset)
    keras.utils.set_random_seed(0)
    model = build_model(dataset.vocabulary_size("chat"), LENGTH - 1)
    train = dataset.training_input("train", batch_size=BATCH_ROWS, seed=1, **PACKED)
    validation = dataset.evaluation_input("validation", batch_size=BATCH_ROWS, **PACKED)
    both = (rows.as_tf_data().map(next_tokens) for rows in (train, validation))
    model.fit(next(both), validation_data=next(both), epochs=EPOCHS, shuffle=False, verbose=2)

    test = dataset.evaluation_input("test", batch_size=dataset.splits["test"], **PACKED)
    rows, tokens, counts = next_tokens(next(test.as_numpy()))
    accuracy = model.evaluate(rows, tokens, sample_weight=counts, verbose=0)[1]
    print(f"Right tokens of the answers on the test split: {accuracy:.2f}")
    words = dataset.vocabulary("chat")
    prompt = [words.index(word) for word in f"<|user|> {QUESTION} <|end|> <|assistant|>".split()]
    print(f"  {QUESTION} {' '.join(words[id_] for id_ in answer(model, prompt, words.index('<|end|>'))[:-1])}")
    if accuracy < 0.7:
        sys.exit(f"train.py: the model did not learn: {accuracy:.2f} of the tokens are right")


if __name__ == "__main__":
    main()
