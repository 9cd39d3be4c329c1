"""Trained tokenizers: equal for equal words in any order, and read back unchanged."""

import io
import random
from collections import Counter
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from sentencepiece import SentencePieceTrainer

from recordmill.pipeline.build.analysis.tokenizers import read_model, train, training_words
from recordmill.pipeline.errors import UserError
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.graph import Context, Statistics
from recordmill.transforms.texts import text_graph as text
from recordmill.transforms.texts.text_spec import Text, Texts
from tests.messages import raises

LETTERS = "eaoiunrtslkmd日本üк🙂"


def words() -> dict[bytes, int]:
    chance = random.Random(5)
    found = {"".join(chance.choices(LETTERS, k=chance.randint(1, 7))).encode() for _ in range(400)}
    return {word: chance.randint(1, 30) for word in sorted(found)}


def options(**given: Any) -> dict[str, Any]:
    return Text(kind="text", **given)


KINDS = [{"tokenizer": "wordpiece"}, {"tokenizer": "sentencepiece"},
    {"tokenizer": "sentencepiece", "model_type": "bpe"}]  # fmt: skip


def count_words(texts: pa.Array, options: Text) -> Counter[bytes]:
    return Counter(training_words(texts, options).numpy().tolist())


every_kind = pytest.mark.parametrize("given", KINDS, ids=lambda given: " ".join(given.values()))


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ({"tokenizer": "sentencepiece"}, {"don't": 2, "e-mail": 1, "ab": 1}),
        ({"tokenizer": "sentencepiece", "case": "keep"}, {"don't": 1, "Don't": 1, "e-mail": 1, "ab": 1}),
        ({"tokenizer": "wordpiece"}, {"don": 2, "'": 2, "t": 2, "e": 1, "-": 1, "mail": 1, "ab": 1}),
        ({"tokenizer": "wordpiece", "normalize": "nfkc"},
         {"don": 2, "'": 2, "t": 2, "e": 1, "-": 1, "mail": 1, "ab": 1}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("type_", [pa.string(), pa.binary()])
def test_words_are_counted_as_the_graph_cuts_them(type_: pa.DataType, given: Any, counted: dict[str, int]) -> None:
    texts = pa.array(["Don't \u00a0e-mail", None, "", "  "] + ["don't"] + [""] * 2000 + ["ab"]).cast(type_)
    assert count_words(texts, options(**given)) == {word.encode(): count for word, count in counted.items()}
    assert count_words(texts[:0], options(**given)) == {}


@every_kind
def test_the_order_of_the_words_does_not_matter(given: dict[str, Any]) -> None:
    counts, chosen = words(), options(**given, vocabulary=120)
    shuffled = list(counts.items())
    random.Random(1).shuffle(shuffled)
    assert train(counts, chosen) == train(dict(shuffled), chosen)


ERRORS = [
    ({}, {}, ("features.note:", "tokenizer", "train split")),
    ({b"a": 1}, {"minimum_count": 2}, ("features.note:", "train split", "2 times")),
    ({b"abcdefgh": 1}, {"vocabulary": 5}, ("features.note.vocabulary:", "5 pieces")),
    ({b"abcdefgh": 1}, {"vocabulary": 10, "tokenizer": "wordpiece"}, ("note.vocabulary:", "10 pieces", "16")),
    ({"\u2581".encode(): 1}, {}, ("features.note:", "SentencePiece", "1 words")),
]


@pytest.mark.parametrize(("counts", "wrong", "facts"), ERRORS)
@every_kind
def test_too_few_words(given: dict[str, Any], counts: dict[bytes, int], wrong: Any, facts: tuple[str, ...]) -> None:
    with raises(UserError, *facts):
        train(counts, options(**{**given, **wrong, "model_type": "unigram"}), "note")


def foreign(**ids: int) -> bytes:
    """Makes a foreign SentencePiece model, with its own ids, normalization and a user-defined piece."""
    data = io.BytesIO()
    lines = iter(["ab abc", "b c abc"] * 9)
    SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=data, vocab_size=14, hard_vocab_limit=False, num_threads=1,
        user_defined_symbols="\n", minloglevel=2, **ids,
    )  # fmt: skip
    return data.getvalue()


BERT = b"[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n##b\r\n"
GIVEN = [("sentencepiece", foreign(), {"end": True}, {"padding": -1, "unknown": 0, "begin": None, "end": 2}),
    ("sentencepiece", foreign(pad_id=0, eos_id=1, unk_id=2, bos_id=-1), {}, {"padding": 0, "unknown": 2}),
    ("wordpiece", BERT, {"begin": True}, {"padding": -1, "unknown": 0, "begin": 1, "end": None}),
    ("wordpiece", b"[PAD]\na\n[UNK]\n", {}, {"padding": 0, "unknown": 2, "begin": None, "end": None})]  # fmt: skip


@pytest.mark.parametrize(("tokenizer", "data", "asked", "ids"), GIVEN)
def test_a_given_model_keeps_its_ids(tokenizer: str, data: bytes, asked: dict[str, bool], ids: dict[str, int]) -> None:
    chosen = options(tokenizer=tokenizer, model="given", case="keep", **asked)
    model = read_model(data, chosen)
    padding = len(model.pieces) - 1 if ids["padding"] < 0 else ids["padding"]
    assert asdict(model.special) == {"begin": None, "end": None, "first": 0} | ids | {"padding": padding}
    files = model.files("x")
    assert files["tokenizers/x.vocabulary.txt"].count(b"\n") == len(model.pieces) == model.statistics("x")["words"]
    assert b"\r" not in files["tokenizers/x.vocabulary.txt"]
    column = tf.constant(["ab", ""])
    context = Context(learned=Learned(model=model.data, special=model.special))
    stored = text.prepare(chosen, column, context).store(Statistics())[""]
    assert stored.to_list()[0][-1] == (ids["end"] if "end" in asked else stored.to_list()[0][-1])
    assert tf.reduce_max(stored.flat_values) < len(model.pieces)


WRONG = [
    ("sentencepiece", b"no model", {}, ("m.model", "SentencePiece model")),
    ("sentencepiece", b"", {}, ("m.model", "SentencePiece model")),
    ("sentencepiece", foreign(bos_id=-1), {"begin": True}, ("m.model", "begin", "`begin: true`")),
    ("wordpiece", b"\xff", {}, ("m.model", "WordPieces", "UTF-8", "byte 0")),
    ("wordpiece", b"[UNK]\na\na\n", {}, ("m.model, line 3", "'a'")),
    ("wordpiece", b"[UNK]\na\n##\x11\n", {}, ("m.model, line 3", r"'##\x11'", "U+0011")),
    ("wordpiece", b"[UNK]\n\na\n", {}, ("m.model, line 2", "''")),
    ("wordpiece", b"a\n", {}, ("m.model", "unknown", "[UNK]")),
    ("wordpiece", b"[UNK]\n", {"end": True}, ("m.model", "[SEP]", "`end: true`")),
]


@pytest.mark.parametrize(("tokenizer", "data", "asked", "facts"), WRONG)
def test_what_is_no_model(tokenizer: str, data: bytes, asked: dict[str, bool], facts: tuple[str, ...]) -> None:
    with raises(UserError, *facts):
        read_model(data, options(tokenizer=tokenizer, model="m.model", case="keep", **asked), "m.model")


def test_of_lists_of_texts_those_that_are_kept_are_counted() -> None:
    rows = pa.array([["a cat", "two cats"], [], None, ["a hat"]])
    every, first = (Texts(kind="texts", tokenizer="wordpiece", max_texts=most) for most in (None, 1))
    assert count_words(rows, every) == {b"a": 2, b"cat": 1, b"two": 1, b"cats": 1, b"hat": 1}
    assert count_words(rows, first) == {b"a": 2, b"cat": 1, b"hat": 1}
    assert count_words(rows.cast(pa.list_(pa.binary())), first) == count_words(rows, first)
