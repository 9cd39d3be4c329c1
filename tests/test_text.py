"""Text's graph: words, ids, padding; the same eagerly, inside `Dataset.map`, alone and in a batch."""

import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.running import BOTH_WAYS, Run, lookup_of
from transforms import text
from transforms.kind import Found

WORDS = {
    "": [],
    " \n\t.,-": [],
    "The cat, the DOG.": ["the", "cat", "the", "dog"],
    "x_1 = 42": ["x_1", "42"],
    "don't e-mail": ["don", "t", "e", "mail"],
    "naïve CAFÉ Straße ÄÖÜ": ["naïve", "café", "straße", "äöü"],
    "cafe\u0301": ["cafe\u0301"],  # a mark belongs to its word
    "हिन्दी में": ["हिन्दी", "में"],
    "مَرحبًا": ["مَرحبًا"],
    "ΚΑΙ да НЕТ": ["και", "да", "нет"],
    "鳥が飛ぶ": ["鳥が飛ぶ"],
    "a🙂b ½ Ⅷ": ["a", "b", "½", "ⅷ"],
    "no\u00a0break\u2028line": ["no", "break", "line"],
}


def decoded(ragged: tf.RaggedTensor) -> list[list[str]]:
    return [[word.decode() for word in row] for row in ragged.to_list()]


@BOTH_WAYS
def test_words(run: Run) -> None:
    assert decoded(run(text.words, tf.constant(list(WORDS)))) == list(WORDS.values())


@settings(max_examples=50)
@given(st.lists(st.text("aäß नि१٣²_-'.🙂 \t\u0301", max_size=12), min_size=1, max_size=4))
def test_words_are_runs_of_letters_marks_digits_and_underscores(texts: list[str]) -> None:
    def reference(one: str) -> list[str]:
        return "".join(c if c == "_" or unicodedata.category(c)[0] in "LMN" else " " for c in one).split()

    assert decoded(text.words(tf.constant(texts))) == [reference(one) for one in texts]


@BOTH_WAYS
def test_no_texts_have_no_words(run: Run) -> None:
    assert run(text.words, tf.constant([], tf.string)).to_list() == []


def prepared(column: tf.Tensor, max_length: int | None) -> text.Prepared:
    return text.prepare({"max_length": max_length}, column, tf.ones_like(column, tf.bool))


@BOTH_WAYS
@pytest.mark.parametrize(
    ("max_length", "ids"), [(None, [[2, 3, 1, 2], [], [1]]), (2, [[2, 3], [], [1]]), (4, [[2, 3, 1, 2], [], [1]])]
)
def test_ids_begin_at_two_and_one_is_unknown(run: Run, max_length: int | None, ids: list[list[int]]) -> None:
    stored = run(
        lambda column: prepared(column, max_length).store(Found(lookup=lookup_of("the", "cat"))),
        tf.constant(["The cat sat, the", "", "İ"]),
    )
    assert stored.dtype == tf.int64
    assert stored.to_list() == ids


@pytest.mark.parametrize("max_length", [None, 1])
def test_every_word_is_counted_however_long_the_text(max_length: int | None) -> None:
    tokens = prepared(tf.constant(["The cat", "", "the"]), max_length).tokens
    assert tokens is not None
    assert tokens.numpy().tolist() == [b"the", b"cat", b"the"]


@BOTH_WAYS
@pytest.mark.parametrize(
    ("max_length", "padded"),
    [(None, [[5, 6, 7], [0, 0, 0]]), (2, [[5, 6], [0, 0]]), (4, [[5, 6, 7, 0], [0, 0, 0, 0]])],
)
def test_padding(run: Run, max_length: int | None, padded: list[list[int]]) -> None:
    stored = tf.ragged.constant([[5, 6, 7], []], tf.int64)
    ready = run(lambda ragged: text.finish({"max_length": max_length}, ragged), stored)
    assert (ready.dtype, ready.numpy().tolist()) == (tf.int64, padded)


@pytest.mark.parametrize(("max_length", "shape"), [(None, [0, 0]), (3, [0, 3])])
def test_no_rows_are_padded_to_no_rows(max_length: int | None, shape: list[int]) -> None:
    none = tf.RaggedTensor.from_row_splits(tf.constant([], tf.int64), tf.constant([0], tf.int64))
    assert text.finish({"max_length": max_length}, none).shape == shape
