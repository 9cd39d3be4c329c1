"""`recordmill init` recognizes lines that belong together: joined files, sentences, rows inside a document."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from recordmill.pipeline.build.build import build
from recordmill.pipeline.init.belonging import find_document, find_sentences, join_files
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.files import FileInfo, LocalFiles
from recordmill.pipeline.spec.model import parse_spec
from tests.messages import assert_names
from tests.tables import write
from tests.test_init_doubts import sentence, sentences

SPLITS = {"train": 120, "validation": 30}
TAGS = ["O", "B-PER", "I-PER"]


def languages(folder: Path) -> None:
    for split, count in SPLITS.items():
        for language in ("en", "de"):
            write(folder / f"{split}.{language}", sentences(count))


def sides(folder: Path) -> None:
    for split, count in SPLITS.items():
        for side in ("src", "tgt"):
            write(folder / split / f"{side}-{split}.txt.gz", gzip.compress(sentences(count).encode()))


def labels(folder: Path) -> None:
    for split, count in SPLITS.items():
        write(folder / f"{split}_text.txt", sentences(count))
        write(folder / f"{split}_labels.txt", "".join(f"{n % 3}\n" for n in range(count)))
    write(folder / "mapping.txt", "0\tnegative\n1\tneutral\n2\tpositive\n")


def tokens(row: int, form: str = "{word} NN {tag}") -> str:
    words = sentence(6 + row % 4).split()  # sentences are keys: shorter ones would repeat
    cells = ({"word": word, "tag": TAGS[(row + n) % 3], "id": n, "row": row} for n, word in enumerate(words, 1))
    return "".join(form.format(**each) + "\n" for each in cells) + "\n"


def conll(folder: Path) -> None:
    for split, count in SPLITS.items():
        write(folder / f"{split}.txt", "-DOCSTART- -X- O\n\n" + "".join(map(tokens, range(count))))


def conllu(folder: Path) -> None:
    form = "{id}\t{word}{row}\t{word}\tX\t_\t_\t0\t{tag}\t_\t_"
    for split, count in SPLITS.items():
        text = "".join(f"# sent_id = {row}\n{tokens(row, form)}" for row in range(count))
        write(folder / f"{split}.conllu", text)


def squad(folder: Path, cut: int | None = None) -> None:
    for split, count in SPLITS.items():
        asked = [
            {"id": f"{split}{row}", "question": f"{sentence()} {row}?", "answers": [{"text": sentence(2), "at": row}]}
            for row in range(count)
        ]
        paragraphs = [{"qas": asked[row : row + 3], "context": sentence(40)} for row in range(0, count, 3)]
        data = [{"title": f"{split} {row}", "paragraphs": paragraphs[row : row + 5]} for row in range(0, count, 5)]
        write(folder / f"{split}-v1.1.json", json.dumps({"data": data, "version": "1.1"}))


MAKES: dict[str, tuple[Callable[[Path], None], int, list[str]]] = {
    "languages": (languages, 150, ["columns: {de: train.de, en: train.en}", "split: validation"]),
    "squad": (squad, 130, ["rows: data[].paragraphs[].qas[]", "data[].paragraphs[].context", "column: answers.at"]),
    "sides": (sides, 150, ["columns: {src: src-train.txt.gz, tgt: tgt-train.txt.gz}", "path: data/train/"]),
    "labels": (labels, 150, ["classes: {0: negative, 1: neutral, 2: positive}", "mapping.txt", "label: labels"]),
    "conll": (conll, 150, ["columns: [word, pos, tag]", "together: [word, pos, tag]", "-DOCSTART- lines, skipped: 1"]),
    "conllu": (conllu, 150, ["format: conllu", "comments, skipped: 120", "deprel"]),
}


def guessed(folder: Path) -> str:
    return starter(str(folder / "data"), LocalFiles(), folder=str(folder))


@pytest.mark.parametrize("name", MAKES)
def test_the_spec_needs_no_edit(name: str, tmp_path: Path) -> None:
    make, rows, facts = MAKES[name]
    make(tmp_path / "data")
    text = guessed(tmp_path).replace("\n#   ", " ")
    assert "In doubt" not in text
    found = re.search(r"The ([\d,]+) rows: none|(\d+) sampled rows: none", text)
    assert found, text
    assert_names(text, *facts)
    spec = parse_spec(text)
    spec._folder = str(tmp_path)
    assert spec.source
    assert found[2] or int(found[1]) >= rows


@pytest.mark.first(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", MAKES)
def test_the_spec_builds_every_row(name: str, tmp_path: Path) -> None:
    MAKES[name][0](tmp_path / "data")
    spec = parse_spec(guessed(tmp_path))
    spec._folder = str(tmp_path)
    manifest = build(spec, str(tmp_path / "out")).manifest
    assert sum(source["rejected"] for source in manifest.sources) == 0
    assert sum(source["written"] for source in manifest.sources) >= 130


def test_a_long_document_is_sampled_by_its_beginning(tmp_path: Path) -> None:
    rows = [{"id": n, "text": f"{sentence(100)} {n}"} for n in range(9_000)]
    write(tmp_path / "data/long.json", json.dumps({"info": {"by": "x"}, "images": rows, "more": [1]}))  # not COCO's
    text = guessed(tmp_path)
    assert yaml.safe_load(text)["source"]["rows"] == "images[]"
    assert_names(text, "sampled rows", "key: id")


def listed(*names: str) -> list[FileInfo]:
    return [FileInfo(f"/data/{name}", 9, 0.0) for name in names]


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["train.en", "train.de"], [{"de": "train.de", "en": "train.en"}]),
        (["news-v7.de-en.de", "news-v7.de-en.en.gz"], [{"de": "news-v7.de-en.de", "en": "news-v7.de-en.en.gz"}]),
        (["a/train.en", "a/train.de", "b/train.en"], [{"de": "train.de", "en": "train.en"}]),
        (["src-val.txt", "tgt-val.txt", "src-train.txt", "tgt-train.txt", "readme.txt"],
         [{"src": "src-val.txt", "tgt": "tgt-val.txt"}, {"src": "src-train.txt", "tgt": "tgt-train.txt"}]),
        (["wiki.train.txt", "wiki.valid.txt"], []),
        (["rt-polarity.pos", "rt-polarity.neg"], []),
        (["part.0.txt", "part.1.txt"], []),
        (["one.txt"], []),
        ([], []),
    ],
)  # fmt: skip
def test_files_are_joined_by_the_part_of_their_names(names: list[str], columns: list[dict[str, str]]) -> None:
    joined, unequal = join_files(listed(*names), lambda path: 7)
    assert [each.columns for each in joined] == columns
    assert not unequal


def test_files_of_unequal_or_single_lines_are_not_joined() -> None:
    some = listed("train.en", "train.de", "val.en", "val.de")
    joined, [said] = join_files(some, lambda path: 9 if path.endswith("train.en") else 8)
    assert [each.columns["en"] for each in joined] == ["val.en"]
    assert_names(said, "train.en has 9 lines", "train.de has 8 lines")
    assert join_files(some, lambda path: 1) == ([], [])


ITEM: dict[str, Any] = {"n": 1}


@pytest.mark.parametrize(
    ("value", "rows", "keep", "others"),
    [
        ([ITEM], "[]", (), ()),
        ({"a": {"b": [ITEM, 3]}}, "a.b[]", (), ()),
        ({"a": [ITEM], "b": [ITEM, ITEM]}, "b[]", (), ("a[]",)),
        ({"users": [{"id": 1, "posts": [{"id": 2}]}]}, "users[]", (), ()),
        ({"users": [{"name": "x", "posts": [{"id": 2}]}]}, "users[].posts[]", ("users[].name",), ()),
        ({"users": [{"name": "x", "posts": [{"id": 2, "name": 3}]}]}, "users[].posts[]", (), ()),
        ({"users": [{"name": "x", "posts": [{"text": 2}]}]}, "users[]", (), ()),
        ([[ITEM], [ITEM]], "[][]", (), ()),
        ({"a.b": [ITEM], "c": [ITEM]}, "c[]", (), ()),
    ],
)
def test_the_rows_of_a_document(value: Any, rows: str, keep: tuple[str, ...], others: tuple[str, ...]) -> None:
    found = find_document(json.dumps(value).encode())
    assert found
    assert (found.rows, found.keep, found.others) == (rows, keep, others)


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": [1]}', '{"a": [{}]}\n{"a": [{}]}', "[1, 2]", "", "{", "no JSON"])
def test_no_document(text: str) -> None:
    assert find_document(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "form", "columns"),
    [
        ("a O\nb O\n\nc O\nd O\n", "conll", ["word", "tag"]),
        ("a X Y B-PER\nb X Y O\n\nc X Y O\nd X Y O\n", "conll", ["word", "pos", "chunk", "ner"]),
        ("1\ta\tO\n2\tb\tO\n\n1\tc\tO\n2\td\tO\n", "conll", ["id", "word", "tag"]),
        ("a x\nb x\n\nc x\nd x\n", "conll", ["word", "column_2"]),
        ("a O\nb\n\nc O\nd O\n", None, []),
        ("a O\nb O\n", None, []),
        ("roses are\nred violets\n\nare blue\nsugar is\n", None, []),
        ("", None, []),
    ],
)
def test_the_columns_of_sentences(text: str, form: str | None, columns: list[str]) -> None:
    found = find_sentences(text.encode(), "text", is_cut=False)
    assert (found and (found[0], [*found[1]])) == (form and (form, columns))
