"""Cleaning and tokenizers: equal eagerly, inside `Dataset.map`, alone and in a batch."""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipeline.build.analysis.tokenizers import read_model, train
from recordmill.transforms.base.description import Learned
from recordmill.transforms.texts import tokenizers_graph as tokenizers
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.texts.tokenizers_graph import clean
from tests.running import BOTH_WAYS, Run

WHITE = {
    "": [],
    " \u3000\n": [],
    "don't  (e-mail)\u00a0x\u2028y\u1680z\u0085q": ["don't", "(e-mail)", "x", "y", "z", "q"],
    "zero\u200bwidth file\x1cseparator": ["zero\u200bwidth", "file\x1cseparator"],  # no white space by Unicode
    "مَرحبًا بك 🙂": ["مَرحبًا", "بك", "🙂"],
}
CHARACTERS = {"": [], " \n": [], " a  b\n": ["a", "▁", "b"], "n\u0303\u00e9🙂": ["n", "\u0303", "\u00e9", "🙂"],
    "🇩🇪بك": ["🇩", "🇪", "ب", "ك"]}  # fmt: skip
BERT = {"": [], " \n": [], "don't, (e-mail)": ["don", "'", "t", ",", "(", "e", "-", "mail", ")"],
        "日本ご$3 €5": ["日", "本", "ご", "$", "3", "€5"]}  # fmt: skip
CASES = {"whitespace": WHITE, "characters": CHARACTERS, "wordpiece_words": BERT}


def options(**given: Any) -> Text:
    return Text(kind="text", **given)


def plain(ragged: tf.RaggedTensor) -> list[list[Any]]:
    return [[token.decode() if isinstance(token, bytes) else token for token in row] for row in ragged.to_list()]


@BOTH_WAYS
@pytest.mark.parametrize("name", CASES)
def test_tokens(name: str, run: Run) -> None:
    tokens = run(getattr(tokenizers, name), tf.constant(list(CASES[name])))
    assert plain(tokens) == list(CASES[name].values())
    assert tokens.row_splits.dtype == tf.int64
    assert run(getattr(tokenizers, name), tf.constant([], tf.string)).to_list() == []


@settings(max_examples=50)
@given(st.lists(st.text("aäß नि१٣²_-'.🙂 \t\u0301", max_size=12), min_size=1, max_size=4))
def test_words_are_runs_of_letters_marks_digits_and_underscores(texts: list[str]) -> None:
    def reference(one: str) -> list[str]:
        return "".join(c if c == "_" or unicodedata.category(c)[0] in "LMN" else " " for c in one).split()

    assert plain(tokenizers.words(tf.constant(texts))) == [reference(one) for one in texts]


@settings(max_examples=50)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_bytes_and_characters_give_any_text_back(texts: list[str]) -> None:
    assert [bytes(row).decode() for row in plain(tokenizers.bytes_of(tf.constant(texts)))] == texts
    one_space = [" ".join(row) for row in plain(tokenizers.whitespace(tf.constant(texts)))]
    found = ["".join(row).replace("▁", " ") for row in plain(tokenizers.characters(tf.constant(one_space)))]
    assert found == [text.replace("▁", " ") for text in one_space]


COUNTS = {word.encode(): count for word, count in [("low", 9), ("lower", 5), ("newest", 6), ("widest", 3), ("naïve", 2),
          ("日", 4), ("🙂", 2), ("مَرحبًا", 2), ("slow", 4), ("'", 3)]}  # fmt: skip
TEXTS = ["", " \n", "the lowest slow", "NEWEST widest\u00a0日本 🙂", "low" * 30_000, "مَرحبًا", "naïve don't",
    "[PAD] <pad>"]  # fmt: skip
LEARNED = [{"tokenizer": "wordpiece", "vocabulary": 60}, {"tokenizer": "sentencepiece", "vocabulary": 50},
    {"tokenizer": "sentencepiece", "vocabulary": 50, "model_type": "bpe"}]  # fmt: skip
learned = pytest.mark.parametrize("given", LEARNED, ids=lambda given: " ".join(map(str, given.values())))


def cut(given: Mapping[str, Any]) -> tuple[Callable[[tf.Tensor], tf.RaggedTensor], tuple[str, ...]]:
    chosen = options(**given)
    model = read_model(train(COUNTS, chosen), chosen)
    learned = Learned(model=model.data, special=model.special)
    return lambda texts: tokenizers.tokenize(clean(texts, chosen), chosen, learned), model.pieces


@BOTH_WAYS
@learned
def test_pieces_make_up_the_text(run: Run, given: dict[str, Any]) -> None:
    function, pieces = cut(given)
    ids = run(function, tf.constant(TEXTS))
    assert ids.dtype == tf.int64
    assert ids[:2].to_list() == [[], []]
    joined = ["".join(pieces[id_] for id_ in row).replace("##", "") for row in ids.to_list()]
    assert joined[4].replace("▁", "") == "low" * 30_000
    assert joined[5].replace("▁", "") == "مَرحبًا"
    assert pieces[0] not in joined[7], "what a text says is no special piece"
    assert 1 in ids.to_list()[3], "本 is unknown"
    assert run(function, tf.constant([], tf.string)).to_list() == []


@learned
def test_a_texts_ids_do_not_depend_on_its_batch(given: dict[str, Any]) -> None:
    function, _ = cut(given)
    together = function(tf.constant(TEXTS * 3)).to_list()
    alone = [function(tf.constant([text])).to_list()[0] for text in TEXTS]
    assert together == alone * 3


def test_wordpiece_is_that_of_bert() -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "don", "'", "t", "low", "##er", "##est", ",", "日", "$", "3", "é"]
    lines = "".join(f"{word}\n" for word in words)
    chosen = options(tokenizer="wordpiece", model="vocab.txt", case="lower")
    model = read_model(lines.encode(), chosen)
    texts = tf.constant(["Don't lower, LOWEST", "日$3 é", "", "lowly"])
    places = tf.lookup.KeyValueTensorInitializer(words, range(len(words)), tf.string, tf.int64)
    table = tf.lookup.StaticVocabularyTable(places, 1)
    bert = tf_text.BertTokenizer(table, token_out_type=tf.int64, lower_case=False).tokenize
    expected = bert(tf.strings.lower(texts, "utf-8")).merge_dims(1, 2).to_list()
    learned = Learned(model=model.data, special=model.special)
    assert tokenizers.tokenize(clean(texts, chosen), chosen, learned).to_list() == expected


@pytest.mark.parametrize(("given", "needed"), [
    ({}, False),
    ({"case": "keep", "tokenizer": "characters"}, False),
    ({"normalize": "nfc"}, True),
    ({"case": "fold"}, True),
    *((given, True) for given in LEARNED),
])  # fmt: skip
def test_the_graph_holds_tensorflow_texts_ops_where_it_is_said_to(given: dict[str, Any], needed: bool) -> None:
    chosen = options(**given)
    tokens = cut(given)[0] if given in LEARNED else lambda texts: tokenizers.tokenize(clean(texts, chosen), chosen)
    graph = tf.function(lambda texts: tokens(texts).flat_values, autograph=False)
    operations = graph.get_concrete_function(tf.TensorSpec([None], tf.string)).graph.get_operations()
    ops = {"NormalizeUTF8", "CaseFoldUTF8", "SentencepieceOp", "FastWordpieceTokenizeWithOffsets"}
    assert (chosen.needs_tensorflow_text, bool(ops & {each.type for each in operations})) == (needed, needed)
