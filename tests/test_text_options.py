"""A text's options: valid combinations, their description in the manifest, and the reader's words."""

from contextlib import nullcontext
from typing import Any

import pytest
from pydantic import ValidationError

from recordmill.pipeline.errors import WrongValueError
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.values.category_spec import Category
from tests.messages import raises

WRONG = [
    ({"normalize": "nfc", "case": "fold"}, "normalize", ("`case: fold`", "`normalize`")),
    ({"tokenizer": "bytes", "vocabulary": 9}, "vocabulary", ("bytes", "vocabulary")),
    ({"tokenizer": "bytes", "ngrams": 2}, "ngrams", ("words, whitespace, characters", "bytes")),
    ({"tokenizer": "sentencepiece", "ngrams": [1, 2]}, "ngrams", ("words, whitespace, characters", "sentencepiece")),
    ({"tokenizer": "wordpiece", "hash_buckets": 9}, "hash_buckets", ("words, whitespace, characters", "wordpiece")),
    ({"tokenizer": "wordpiece", "oov_buckets": 9}, "oov_buckets", ("words, whitespace, characters", "wordpiece")),
    ({"hash_buckets": 9, "minimum_count": 2}, "minimum_count", ("vocabulary", "`hash_buckets`")),
    ({"hash_buckets": 9, "vocabulary": "a.txt"}, "vocabulary", ("vocabulary", "`hash_buckets`")),
    ({"hash_buckets": 9, "oov_buckets": 2}, "oov_buckets", ("vocabulary", "`hash_buckets`")),
    ({"vocabulary": "a.txt", "minimum_count": 2}, "minimum_count", ("vocabulary",)),
    ({"vocabulary": {"shared_with": "b"}, "minimum_count": 2}, "minimum_count", ("feature",)),
    ({"tokenizer": "wordpiece", "vocabulary": "v.txt"}, "vocabulary", ("`model: v.txt`",)),
    ({"tokenizer": "wordpiece", "model_type": "bpe"}, "model_type", ("sentencepiece",)),
    ({"tokenizer": "sentencepiece", "model_type": "bpe", "model": "m", "case": "keep"}, "model_type", ("model",)),
    ({"model": "m", "case": "keep"}, "model", ("wordpiece, sentencepiece", "words")),
    ({"tokenizer": "sentencepiece", "model": "m"}, "model", ("`case: keep` or `case: lower`",)),
    ({"tokenizer": "wordpiece", "model": "m", "case": "keep", "vocabulary": 9}, "vocabulary", ("pieces",)),
    ({"begin": True, "end": True, "max_length": 2}, "max_length", ("3 or more", "got 2")),
    ({"truncate": "start"}, "truncate", ("`max_length`",)),
    ({"ngrams": [2, 1]}, "ngrams", ("ascend", "[1, 2]", "[2, 1]")),
    ({"ngrams": []}, None, ("at least 1",)),
    ({"ngrams": True}, None, ("whole number",)),
    ({"vocabulary": "many"}, None, ("valid integer",)),
    ({"vocabulary": {"shared": "b"}}, None, ("Field required",)),
    ({"oov_buckets": 0}, None, ("equal to 1",)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "option", "facts"), WRONG, ids=[str(given) for given, _, _ in WRONG])
def test_what_does_not_go_together(given: dict[str, Any], option: str | None, facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts) as error:
        Text(kind="text", **given)
    if option is not None:
        assert error.value.errors()[0]["ctx"]["error"].path == (option,)


SHARES = {"kind": "text", "vocabulary": {"shared_with": "a"}}
NOT_SHARED = [
    ({"a": Text(kind="text", vocabulary={"shared_with": "aa"})}, ("'aa'", "`a`")),
    ({"a": Category(kind="category"), "b": Text(**SHARES)}, ("'a'", "vocabulary")),
    ({"a": Text(**SHARES)}, ("'a'", "vocabulary")),
    ({"a": Text(kind="text", vocabulary={"shared_with": "b"}), "b": Text(**SHARES)}, ("vocabulary",)),
    ({"a": Text(kind="text", case="keep"), "b": Text(**SHARES)}, ("lower", "keep", "'a'")),
    ({"a": Text(kind="text", begin=True), "b": Text(**SHARES)}, ("False", "True", "'a'")),
    ({"a": Text(kind="text", hash_buckets=3), "b": Text(**SHARES)}, ("'a'", "vocabulary")),
    ({"a": Text(kind="text", vocabulary=10, minimum_count=2), "b": Text(**SHARES, max_length=3)}, None),
]


@pytest.mark.parametrize(("features", "facts"), NOT_SHARED)
def test_what_can_be_shared(features: dict[str, Any], facts: tuple[str, ...] | None) -> None:
    with nullcontext() if facts is None else raises(WrongValueError, *facts):
        for feature in features.values():
            feature.check(features)


@pytest.mark.parametrize(("given", "files"), [
    ({}, {}),
    ({"vocabulary": "dir/words.txt"}, {"vocabulary": "/there/dir/words.txt"}),
    ({"tokenizer": "wordpiece", "model": "vocab.txt", "case": "keep"}, {"model": "/there/vocab.txt"}),
])  # fmt: skip
def test_files_are_found(given: dict[str, Any], files: dict[str, str]) -> None:
    moved = Text(kind="text", **given).with_paths(lambda path: f"/there/{path}")
    assert moved.files() == files
    assert Text.model_validate(moved.model_dump()) == moved
