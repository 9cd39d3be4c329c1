"""Tokenizers that models bring: ids equal to those of their own packages, alone, in a build and from a client."""

import base64
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from recordmill import Dataset, open_dataset
from recordmill.pipeline.build.beam import runners
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.texts import encode as text_encoding
from recordmill.pipeline.build.texts.encode import RowEncoder
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.spec.model import SpecError, load_spec, parse_spec
from recordmill.pipeline.versions.publishing import Published
from recordmill.transforms.base.bounds import TOKENIZED
from recordmill.transforms.base.description import Learned
from recordmill.transforms.texts import tokenizers
from recordmill.transforms.texts.pair_spec import Pair
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.texts.text_stored import TokenizerOptions
from recordmill.transforms.texts.tokenizers import CL100K, O200K, R50K, TextTokenizer
from tests import models
from tests.messages import assert_names, raises

LONG = " ".join(models.corpus(60)) * 40  # 270 kB
TEXTS = [*models.corpus(40), LONG]


@pytest.fixture(scope="module", params=[*models.MADE])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, bytes]:
    """A tokenizer of the package without truncation and padding, and its file."""
    data = models.MADE[request.param]().to_str().encode()
    made = Tokenizer.from_str(data.decode())
    made.no_truncation()
    made.no_padding()
    return made, data


def ours(data: bytes, **options: Any) -> TextTokenizer:
    return TextTokenizer(data, TokenizerOptions(kind="text", tokenizer="huggingface", **options))


def rows(tokenizer: TextTokenizer, texts: Sequence[str]) -> list[list[int]]:
    ids = tokenizer.encode_batch(texts).ids
    return [each.tolist() for each in np.split(ids.values, ids.splits[1:-1])] if texts else []


def test_ids_are_those_of_the_package(pair: tuple[Tokenizer, bytes]) -> None:
    theirs, data = pair
    assert rows(ours(data), TEXTS) == [theirs.encode(text).ids for text in TEXTS]
    bare = ours(data, special_tokens=False)
    assert rows(bare, TEXTS) == [theirs.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert rows(ours(data), []) == []


@pytest.mark.parametrize("side", ["end", "start"])
@pytest.mark.parametrize("most", [3, 8, 64])
def test_a_cut_keeps_special_tokens_as_the_package_does(pair: tuple[Tokenizer, bytes], most: int, side: str) -> None:
    theirs, data = pair
    cut = Tokenizer.from_str(theirs.to_str())
    cut.enable_truncation(most, direction={"end": "right", "start": "left"}[side])
    tokenizer = ours(data, max_length=most, truncate=side)
    assert rows(tokenizer, models.HARD) == [cut.encode(text).ids for text in models.HARD]
    lengths = tokenizer.encode_batch(models.HARD).lengths.tolist()
    assert lengths == [len(theirs.encode(text).ids) for text in models.HARD]


@given(st.lists(st.text(max_size=40), max_size=5))
def test_any_text_has_the_ids_of_the_package(texts: list[str]) -> None:
    theirs, data = CACHED
    assert rows(ours(data), texts) == [theirs.encode(text).ids for text in texts]


CACHED = (lambda made: (made, made.to_str().encode()))(models.byte_level())


@pytest.mark.parametrize("pattern", [R50K, CL100K, O200K])
def test_ids_of_ranks_are_those_of_tiktoken(pattern: str, tmp_path: Path) -> None:
    models.write_ranks(tmp_path / "a.tiktoken")
    options = TokenizerOptions(kind="text", tokenizer="tiktoken", pattern=pattern)
    tokenizer = TextTokenizer((tmp_path / "a.tiktoken").read_bytes(), options)
    theirs = models.of_ranks(pattern)
    assert rows(tokenizer, TEXTS) == [theirs.encode_ordinary(text) for text in TEXTS]
    assert [tokenizer.decode(ids) for ids in rows(tokenizer, models.HARD)] == models.HARD


def test_the_patterns_are_those_of_tiktoken() -> None:
    import inspect

    import tiktoken_ext.openai_public as public

    source = inspect.getsource(public)
    assert R50K == public.r50k_pat_str
    assert CL100K in source
    assert all(f'r"""{piece}"""' in source for piece in (r"\p{N}{1,3}", r"\s*[\r\n]+", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"))


def test_a_named_token_begins_or_ends_each_text() -> None:
    theirs, data = CACHED
    end = theirs.token_to_id("<|endoftext|>")
    tokenizer = ours(data, end="<|endoftext|>", max_length=4)
    assert rows(tokenizer, ["", "a b c d e f"]) == [[end], [*theirs.encode("a b c d e f").ids[:3], end]]
    assert (tokenizer.special.begin, tokenizer.special.end) == (None, end)
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"
    with raises(UserError, "one text", "list"):  # which the package would join, as a pair
        tokenizer.encode(["a", "b"])
    with raises(UserError, "one row", "batch"):
        tokenizer.decode(np.zeros((2, 3), np.int64))
    with raises(UserError, "'<|endoftxt|>'", "end", "<|endoftext|>"):
        ours(data, end="<|endoftxt|>")


def test_wrong_files_are_named() -> None:
    with raises(UserError, "the model", "tokenizer.json"):
        ours(b"{}")
    ranks = TokenizerOptions(kind="text", tokenizer="tiktoken", pattern="o200k_base")
    for second, *facts in (("no\n", "line 2", "base64"), ("Yg== 4294967295\n", "line 2", "4,194,304"),
            ("Yg== -1\n", "line 2", "4,194,304"), ("", "256")):  # fmt: skip
        with raises(UserError, *facts):
            TextTokenizer(f"YQ== 0\n{second}".encode(), ranks)
    made = models.wordpiece().to_str().encode()
    with raises(UserError, "2 ids", "max_length", "3"):
        ours(made, max_length=2)
    with raises(UserError, "'[SEP]'", "leave `end` out"):
        ours(made, end="[SEP]")


WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "[UNK]"}


def words_file(model: dict[str, Any] = WORDS, **parts: Any) -> bytes:
    """A `tokenizer.json` that has no token for words other than a and b."""
    return json.dumps({"added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model} | parts).encode()


SHIFTED = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 99}


@pytest.mark.parametrize(("data", "facts"), [
    (words_file(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w=="}), ["4,294,967,299 bytes"]),
    (words_file(normalizer={"type": "Sequence", "normalizers": [SHIFTED] * 3}), ["970,299 times", "64"]),
    (words_file(pre_tokenizer={"type": "RandomSplit"}), ["RandomSplit"]),
    (words_file({**WORDS, "vocab": {"a": 4294967295}}), ["4,294,967,295", "4,194,304"]),
    (words_file(padding={"pad_id": 4294967295}), ["4,294,967,295", "4,194,304"]),
    (words_file(padding=5), []),
    (b"[1]", ["a list"]),
    (b"[" * 99999, ["nested"]),
    (b'{"model": 1' + b"," * 4194305, ["4,194,305 commas"]),
])  # fmt: skip
def test_a_file_that_would_end_the_process_is_one_line(data: bytes, facts: list[str]) -> None:
    with raises(UserError, "m.json", *facts):
        TextTokenizer(data, TokenizerOptions(kind="text", tokenizer="huggingface"), "m.json")


def test_a_package_that_panics_is_an_error() -> None:
    with raises(UserError, "chunk size must be non-zero"):
        ours(words_file(pre_tokenizer={"type": "FixedLength", "length": 0}), special_tokens=False)
    bytes_alone = b"".join(base64.b64encode(bytes([byte])) + f" {byte}\n".encode() for byte in range(256))
    tokenizer = TextTokenizer(bytes_alone, TokenizerOptions(kind="text", tokenizer="tiktoken", pattern="x*"))
    with raises(UserError, "the model", "no token"):
        tokenizer.encode("ab")
    with raises(UserError, "decode"):
        tokenizer.decode([-1])


def test_dropout_of_a_file_draws_nothing() -> None:
    theirs, data = CACHED
    described = json.loads(data)
    described["model"]["dropout"] = 0.5
    assert rows(ours(json.dumps(described).encode()), TEXTS) == [theirs.encode(text).ids for text in TEXTS]


@pytest.mark.parametrize("model", [
    WORDS,
    {**WORDS, "type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9},
    {**WORDS, "type": "BPE", "merges": []},
    {"type": "Unigram", "vocab": [["a", -1.0], ["b", -1.0]], "unk_id": None},
])  # fmt: skip
def test_a_row_without_tokens_is_a_reject_whatever_its_batch(model: dict[str, Any]) -> None:
    text = Text(kind="text", tokenizer="huggingface", model="m", keep_length=True)
    pair = Pair(kind="pair", first="a", second="b", model="m", special_tokens=False, separator="b")
    learned = dict.fromkeys(("text", "pair"), Learned(model=words_file(model)))
    encode = RowEncoder({"text": text, "pair": pair}, learned, {"text": "body", "pair": "both"})
    texts, pairs = [b"a", b"secret", b"b a", b"a"], [["a", "a"], ["a", "a"], ["a", "secret"], ["", "b"]]
    cells = [json.dumps(dict(zip(("first", "second"), pair, strict=True))).encode() for pair in pairs]
    found, faults = encode(pa.table({"text": texts, "pair": cells}))
    found_faults = {row: (fault.reason, fault.column) for row, fault in faults.items()}
    assert found_faults == {1: ("unencodable_text", "body"), 2: ("unencodable_text", "both")}
    assert "secret" not in str(faults)
    assert [found["@ids text"].to_pylist()[row] for row in (0, 3)] == [[0], [0]]
    assert found["@length text"].to_pylist()[3] == 1
    assert encode(pa.table({"text": texts[1:2], "pair": cells[1:2]}))[1][0] == faults[1]


def test_a_text_that_takes_a_package_too_much_memory_is_a_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "TOKENIZED", TOKENIZED._replace(most=9))
    monkeypatch.setattr(text_encoding, "MOST_AT_ONCE", 20)
    text = Text(kind="text", tokenizer="huggingface", model="m")
    encode = RowEncoder({"text": text}, {"text": Learned(model=CACHED[1])}, {"text": "body"})
    texts = [b"a b", b"x" * 9, b"secret " * 2, b"b"]
    found, faults = encode(pa.table({"text": texts}))
    assert {row: (fault.reason, fault.column) for row, fault in faults.items()} == {2: ("too_large", "body")}
    assert_names(faults[2].message, "14", "9")
    assert found["@ids text"].to_pylist()[1] == CACHED[0].encode("x" * 9).ids


@pytest.mark.parametrize(("options", "place", "facts"), [
    ("tokenizer: huggingface", "features.text.model", ["tokenizer.json"]),
    ("tokenizer: huggingface, model: a.json, case: lower", "features.text.case", ["leave it out"]),
    ("tokenizer: huggingface, model: a.json, end: true", "features.text.end", ["name the token"]),
    ("tokenizer: words, end: x", "features.text.end", ["words", "'x'"]),
    ("tokenizer: tiktoken, model: a.tiktoken", "features.text.pattern", ["o200k_base"]),
    ("tokenizer: words, special_tokens: false", "features.text.special_tokens", ["leave it out"]),
    ("tokenizer: huggingface, model: a.json, vocabulary: 5", "features.text.vocabulary", ["leave it out"]),
])  # fmt: skip
def test_contradictions_are_told_when_the_spec_is_read(options: str, place: str, facts: list[str]) -> None:
    with raises(SpecError, place, *facts):
        parse_spec(f"name: a\nsource: {{format: jsonl, path: a}}\nfeatures: {{text: {{kind: text, {options}}}}}\n")


SPEC = """
name: encoded
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 80, test: 20}
features:
  bpe:
    {kind: text, column: text, tokenizer: huggingface, model: bpe.json, end: <|endoftext|>, keep_length: true,
     max_length: 16}
  unigram: {kind: text, column: text, tokenizer: huggingface, model: unigram.json}
  wordpiece: {kind: texts, column: texts, tokenizer: huggingface, model: wordpiece.json, max_texts: 2}
  ranks: {kind: text, column: text, tokenizer: tiktoken, model: a.tiktoken, pattern: cl100k_base}
rejects: {max_share: 0.2}
"""


def write_inputs(folder: Path) -> None:
    lines = [json.dumps({"id": str(row), "text": text, "texts": [text, "b"]}) for row, text in enumerate(TEXTS[:-1])]
    lines.append('{"id": "unpaired", "text": "a \\ud800 b", "texts": []}')
    lines.append(json.dumps({"id": "empty", "text": "no texts", "texts": []}))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "dataset.yaml").write_text(SPEC)
    for name, make in models.MADE.items():
        make().save(str(folder / f"{name}.json"))
    models.write_ranks(folder / "a.tiktoken")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("encoded")
    write_inputs(folder)
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"))


@pytest.mark.slow
def test_the_options_of_a_manifest_are_typed(published: Published) -> None:
    dataset = open_dataset(published.folder)
    spec, model = dataset.manifest.spec, dataset.features["bpe"]["model"]
    for option, value in (("max_length", "x"), ("end", ["x"]), ("special_tokens", 1)):
        features = {**spec["features"], "bpe": {**spec["features"]["bpe"], option: value}}
        with raises(DatasetError, f"spec.features.bpe.{option}"):
            Dataset(dataset.folder, replace(dataset.manifest, spec={"features": features})).tokenizer("bpe")
    with raises(DatasetError, "spec.features.bpe"):
        Dataset(dataset.folder, replace(dataset.manifest, spec={})).tokenizer("bpe")
    files = {**dataset.manifest.files, model: {**dataset.manifest.files[model], "bytes": 9}}
    with raises(DatasetError, model, "9 bytes"):
        Dataset(dataset.folder, replace(dataset.manifest, files=files)).tokenizer("bpe")


def test_the_plan_says_that_serving_takes_ids(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    plan = make_plan(load_spec(str(tmp_path / "dataset.yaml")), BeamFiles())
    assert_names(plan.notes, "ids", "Dataset.tokenizer", "4 (bpe")


@pytest.mark.parametrize(
    ("case", "words"), [("lower", "3 (Cat, É, Straße)"), ("fold", "4 (Cat, É, straße and 1 more)"), ("keep", None)]
)
def test_the_plan_names_words_that_no_text_has(tmp_path: Path, case: str, words: str | None) -> None:
    (tmp_path / "words.txt").write_text("Cat\ncat\nÉ\nstraße\nStraße\n", "utf-8")
    (tmp_path / "rows.txt").write_text("the cat\n", "utf-8")
    text = f"text: {{kind: text, vocabulary: words.txt, case: {case}}}"
    (tmp_path / "dataset.yaml").write_text(f"name: d\nsource: {{format: text, path: rows.txt}}\nfeatures: {{{text}}}\n")
    notes = make_plan(load_spec(str(tmp_path / "dataset.yaml")), BeamFiles()).notes
    assert [note for note in notes if "no text" in note] == (
        [] if words is None else [f"words that no text of text has, by its `case: {case}`: {words}"]
    )


@pytest.mark.first(1)
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_any_number_of_threads_gives_the_same_bytes(
    published: Published, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "worker_threads", lambda processes: threads)
    folder = Path(published.folder).parents[2]
    for file in [*folder.glob("*.json*"), folder / "dataset.yaml", folder / "a.tiktoken"]:
        shutil.copy(file, tmp_path)
    spec = load_spec(str(tmp_path / "dataset.yaml"))
    again = build(spec, str(tmp_path / "out"), RunOptions(chunk_bytes=2_000))
    files = {name: file["sha256"] for name, file in published.manifest.files.items() if "tfrecord" in name}
    assert {name: file["sha256"] for name, file in again.manifest.files.items() if "tfrecord" in name} == files
