"""The graph's operations on strings, against plain Python: each character alone, between letters, at both ends."""

import os
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from recordmill.pipeline.build.analysis.tokenizers import read_model, train
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.graph import Statistics
from recordmill.transforms.texts import tokenizers_graph as tokenizers
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.values import values_graph as values
from recordmill.transforms.values.category_spec import Category
from tests.farm_hash import fingerprint64

ASSIGNED = [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE0200), 0xF0000, 0xFFFFF, 0x10FFFF]
YOUNG = {0x2C2F, 0xA7C0, 0xA7D0, 0xA7D6, 0xA7D8, *range(0x10570, 0x10596), *range(0x2FFC, 0x3000), 0x31EF,
         *range(0x2EBF0, 0x2EE5E)}  # fmt: skip
"""Characters of Unicode 14 and 15.1, which libraries know or not by their version."""
CHARACTERS = [
    chr(each)
    for each in ASSIGNED
    if each not in YOUNG and (each == 0x10FFFF or unicodedata.category(chr(each)) != "Cn")
]
PLACES = ("{}", "A{}b", "{}Ab", "Ab{}")
IGNORABLE = {0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010),
             *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0,
             *range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B),
             *range(0xE0000, 0xE1000)}  # fmt: skip
"""Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt."""


def fold(text: str) -> str:
    """NFKC_Casefold, by its definition (Unicode 3.13, D146)."""
    for _ in range(3):
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
        text = "".join(each for each in text if ord(each) not in IGNORABLE)
    return text


def whitespace(text: str) -> list[str]:
    is_white = {each for each in text if each in "\t\n\v\f\r\x85" or unicodedata.category(each)[0] == "Z"}
    return [word for word in "".join(" " if each in is_white else each for each in text).split(" ") if word]


def words(text: str) -> list[str]:
    kept = [each if each == "_" or unicodedata.category(each)[0] in "LMN" else " " for each in text]
    return [word for word in "".join(kept).split(" ") if word]


def bert(text: str) -> list[str]:
    chinese = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2CEAF), (0xF900, 0xFAFF),
               (0x2F800, 0x2FA1F))  # fmt: skip

    def is_alone(one: str) -> bool:
        marks = unicodedata.category(one)[0] == "P" or one in "$+<=>^`|~"
        return marks or any(low <= ord(one) <= high for low, high in chinese)

    return whitespace("".join(f" {each} " if is_alone(each) else each for each in text))


CLEANED: dict[str, tuple[dict[str, str], Callable[[str], str]]] = {
    "lower": ({}, str.lower),
    "fold": ({"case": "fold"}, fold),
    **{
        form: ({"case": "keep", "normalize": form}, lambda text, form=form: unicodedata.normalize(form.upper(), text))
        for form in ("nfc", "nfkc")
    },
}
TOKENS: dict[str, Callable[[str], list[Any]]] = {
    "words": words,
    "whitespace": whitespace,
    "characters": lambda text: list("▁".join(whitespace(text))),
    "bytes_of": lambda text: list(text.encode()),
    "wordpiece_words": bert,
}


def differing(op: Callable[[tf.Tensor], list[Any]], reference: Callable[[str], Any]) -> list[str]:
    texts = [place.format(character) for place in PLACES for character in CHARACTERS]
    found = op(tf.constant([text.encode() for text in texts]))
    return [ascii(text) for text, one in zip(texts, found, strict=True) if one != reference(text)]


@pytest.mark.first(1)
@pytest.mark.parametrize("name", CLEANED)
def test_cleaning_keeps_every_character(name: str) -> None:
    given, reference = CLEANED[name]
    options = Text(kind="text", **given)

    def op(texts: tf.Tensor) -> list[str]:
        return [one.decode() for one in tokenizers.clean(texts, options).numpy()]

    assert differing(op, reference) == []


@pytest.mark.first(1)
@pytest.mark.parametrize("name", TOKENS)
def test_tokens_hold_every_character(name: str) -> None:
    def op(texts: tf.Tensor) -> list[list[Any]]:
        rows = getattr(tokenizers, name)(texts).to_list()
        return [[one.decode() if isinstance(one, bytes) else one for one in row] for row in rows]

    assert differing(op, TOKENS[name]) == []


@pytest.mark.parametrize("name", ["wordpiece", "sentencepiece"])
def test_a_trained_tokenizer_takes_every_character(name: str) -> None:
    kept = [character for character in CHARACTERS if ord(character) < 0x3000]
    options = Text(kind="text", case="keep", tokenizer=name, vocabulary=30_000)
    texts = [f"a{character}b" for character in kept]
    model = read_model(train(Counter(word.encode() for text in texts for word in whitespace(text)), options), options)
    learned = Learned(model=model.data, special=model.special)
    ids = tokenizers.tokenize(tf.constant(texts), options, learned).to_list()
    unknown = [one for one, row in zip(kept, ids, strict=True) if model.special.unknown in row]
    assert len(unknown) < 30  # characters are learned until 0.05 % of all are left
    for one, text, row in zip(kept, texts, ids, strict=True):
        pieces = "".join(model.pieces[id_].removeprefix("##") for id_ in row).replace("▁", "")
        assert one in unknown or pieces == "".join(whitespace(text)).replace("▁", "")


FINGERPRINTS = {b"1footrue": -1541654101129638711, b"2applefalse": 2794438866806483259, b"3true": -4880158226897771312}
"""As BigQuery's documentation has them for FARM_FINGERPRINT, an int64."""


def test_hashes_are_farmhashs_fingerprint64() -> None:
    assert {text: fingerprint64(text) - (fingerprint64(text) >> 63 << 64) for text in FINGERPRINTS} == FINGERPRINTS
    texts = [bytes((length * 7 + at * 31) % 256 for at in range(length)) for length in range(1, 300)]
    texts += [f"a{character}b".encode() for character in CHARACTERS[::50]]
    found = values.ids(Category(kind="category", hash_buckets=1_000_003), tf.constant(texts), Statistics())
    assert found.numpy().tolist() == [fingerprint64(text) % 1_000_003 + 1 for text in texts]


MARK = tokenizers.MARK
LOWERED = ["A\0\0B", "\0", "", f"{MARK}0A{MARK}1\0{MARK}{MARK}\0001", "ΑΣ\0Β ΑΣ", "TITLE İĮÌÍĨ J\u0301 I\u0307"]
IN_TURKISH = f"""
import tensorflow as tf
from recordmill.transforms.texts.tokenizers_graph import lower
assert tf.strings.lower("TITLE", encoding="utf-8") != b"title", "no rules of this language"
print(ascii([one.decode() for one in lower(tf.constant({LOWERED!a})).numpy()]))
"""


@pytest.mark.slow
def test_lower_is_the_same_in_any_language_of_the_machine() -> None:
    environment = {**os.environ, "LC_ALL": "tr_TR.UTF-8"}
    run = [sys.executable, "-c", IN_TURKISH]
    found = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ascii([text.lower() for text in LOWERED])
