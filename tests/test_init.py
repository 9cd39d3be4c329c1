"""`recordmill init`: what it guesses of data of every sort, that each comment is true, and that the spec reads back."""

import gzip
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.dataset.placement import hash_key, split_bounds
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init import sample
from recordmill.pipeline.init.boxes import Answers, fitting_orders
from recordmill.pipeline.init.choose import feature_names, valid_name
from recordmill.pipeline.init.guess import share_of
from recordmill.pipeline.init.sample import ROWS, SampledFiles
from recordmill.pipeline.init.starter import comment, dataset_name, first_lines, option_line, starter, write_spec
from recordmill.pipeline.sources.files import FileInfo
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.naming import ID, split_of
from recordmill.pipeline.sources.options import Csv, JsonLines
from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
from tests import tfrecords
from tests.constants import constants
from tests.forked import recordmill
from tests.messages import assert_names, raises
from tests.pictures import saved
from tests.profiles import P3
from tests.tables import FILES, TEXT, read, tar, write, write_jsonl

WORDS = ("a cat sat on the mat", "two dogs", "one bird sings a song")
Make = Callable[[Path], None]


def image_bytes(width: int = 32, height: int = 24, form: str = "PNG") -> bytes:
    return saved(Image.new("RGB", (width, height)), form)


def guessed(folder: Path, path: str = "data", **options: Any) -> tuple[Spec, str]:
    """Returns the spec for a path in a folder, taking the first answer to its question, and its text."""
    if path == "data" and (folder / "data/labels.csv").exists():
        path = "data/labels.csv"  # a table whose rows name the images beside it
    options = {"answers": Answers(ask=lambda _, answers: answers[0]), **options}
    text = starter(str(folder / path), FILES, folder=str(folder), **options)
    return parse_spec(text), text


def unwrapped(text: str) -> str:
    """The text of a spec with each comment in one line, and single spaces."""
    return re.sub(" +", " ", re.sub(r"\n *#   ", " ", text))


def class_folders(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/{('cat', 'dog')[number % 2]}/{number}.png", image_bytes())


def split_folders(folder: Path) -> None:
    for number in range(30):
        write(folder / f"data/{('Train', 'Train', 'val')[number % 3]}/{'ab'[number % 2]}/{number}.png", image_bytes())
    write(folder / "data/notes.md", "notes")


def metadata(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/images/{number}.jpg", image_bytes(100, 50, "JPEG"))
    box = {"bbox": [[1, 2, 90, 40], [60, 20, 99, 49]], "category": ["x", "y"]}
    rows = [{"file_name": f"{n}.jpg", "text": WORDS[n % 3] + f" {n}", "objects": box} for n in range(24)]
    write_jsonl(folder / "data/images/metadata.jsonl", rows)


def captions(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/{number}.png", image_bytes(300, 200))
        write(folder / f"data/{number}.txt", f"{WORDS[number % 3]} {number}\n")
        if number % 2:
            write(folder / f"data/{number}.json", json.dumps({"score": number / 3}))


def table_of_images(folder: Path) -> None:
    rows = "".join(f"{n}.png;{n % 2};[{n},{n},4,4]\n" for n in range(20))
    write(folder / "data/labels.csv", f"file;class;bbox\n{rows}")
    for number in range(20):
        write(folder / f"data/photos/{number}.png", image_bytes(64, 32))


def splits_of_files(folder: Path) -> None:
    train = "".join(f"{n},{n / 2},some words {n},{n % 2}\n" for n in range(40))
    write(folder / "data/train.csv", f"id,n,text,target\n{train}")
    write(folder / "data/dev.csv", "id,n,text,target\n" + "".join(f"{50 + n},,some words {n},1\n" for n in range(5)))
    write(folder / "data/sample_submission.csv", "id,target\n1,0\n")


def json_rows(folder: Path) -> None:
    row = {"tags": ["red"], "vector": [1.5, 2, 3], "inner": {"a": 1}, "same": "yes", "none": None}
    rows: list[Any] = [{"uuid": f"u{n}", "flag": n % 2 == 0, **row} for n in range(40)]
    for n, item in enumerate(rows):
        item |= {"day": f"2026-11-{n % 28 + 1:02}", "mixed": n if n % 2 else "x", "url": f"https://a.b/{n}"}
        item["set"] = ("train", "TEST")[n % 5 == 0]
    rows[3]["tags"] = ["green", "blue"]
    del rows[5]["inner"]
    write_jsonl(folder / "data/rows.ndjson", rows)
    with (folder / "data/rows.ndjson").open("a") as file:
        file.write('{"broken": \n')


def parquet(folder: Path) -> None:
    rows = 40
    table = {
        "image": [{"bytes": image_bytes(), "path": "a.png"}] * rows,
        "views": [[image_bytes(), image_bytes()]] * rows,
        "label": [n % 4 for n in range(rows)],
        "image_id": list(range(rows)),
        "blob": [b"\xff\0"] * rows,
    }
    (folder / "data").mkdir()
    pq.write_table(pa.table(table), folder / "data/part-0.parquet")
    pq.write_table(pa.table(table), folder / "data/part-1.parquet")


def webdataset(folder: Path) -> None:
    members = list[tuple[str, bytes | str]]()
    for n in range(30):
        ending, form = ("png", "PNG") if n % 2 else ("jpg", "JPEG")
        members += [(f"{n:03}.{ending}", image_bytes(form=form)), (f"{n:03}.cls", str(n % 3)),
                    (f"{n:03}.json", json.dumps({"caption": f"{WORDS[n % 3]} {n}"}))]  # fmt: skip
    write(folder / "data/a.tar", tar(*members))


def tfrecord(folder: Path) -> None:
    rows = [{"image/encoded": image_bytes(), "image/class/label": n % 3, "x": n / 4} for n in range(30)]
    tfrecords.write(folder / "data/a.tfrecord-00000-of-00001", rows)


def different_files(folder: Path) -> None:
    write(folder / "data/a.csv", "a,b\n1,x\n2,y\n")
    write(folder / "data/b.csv", "zip,b\n01234,x\n")


def texts(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/{('good', 'bad')[number % 2]}/{number}.txt", f"{WORDS[number % 3]} {number}")


def chats(folder: Path) -> None:
    """Messages, tools of some rows, and ShareGPT's messages in a string."""
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    shared = json.dumps([{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}])
    tools = [{"type": "function", "function": {"name": "add"}}]
    row = {"messages": said, "shared": shared}
    rows = [{**row, "n": n, **({"tools": tools} if n % 2 else {})} for n in range(24)]
    write_jsonl(folder / "data/rows.jsonl", rows)
    write(folder / "tokenizer.json", "{}")
    write(folder / "tokenizer_config.json", "{}")


def alpaca(folder: Path) -> None:
    chats(folder)
    (folder / "data/rows.jsonl").unlink()
    row = {"instruction": "say it", "input": "", "output": "it"}
    write(folder / "data/a.json", json.dumps([{**row, "input": "two words" * (n % 2)} for n in range(24)]))


IMAGE = {"kind": "image", "size": (24, 32), "fit": "pad"}
CATEGORY, NUMBER, RAW, TEXTS = {"kind": "category"}, {"kind": "number"}, {"kind": "raw"}, {"kind": "text"}
CHAT = {"kind": "chat", "model": "tokenizer.json", "tools": "tools"}
TABLE = {"format": "csv", "path": "data/labels.csv", "separator": ";", "images": "data/photos/"}
HALF = {"train": 80.0, "validation": 10.0}


def classes(*names: str) -> dict[str, Any]:
    return {"kind": "category", "classes": names}


CASES: list[tuple[Make, dict[str, Any], dict[str, Any], str | None, list[str]]] = [
    (class_folders, {"source": ({"format": "image_folder", "path": "data/"},), "splits": {"train": 100.0}},
     {"image": IMAGE, "label": classes("cat", "dog")}, "label", ["The 24 rows", "none", "folders: 2 distinct"]),
    (split_folders, {"splits": HALF,
                     "split_by": {"column": "split", "values": {"train": ("Train",), "validation": ("val",)}}},
     {"image": IMAGE, "label": classes("a", "b")}, "label",
     [": 1 (notes.md)", "Train 20, val 10 of the 30", "column decides"]),
    (metadata, {"source": ({"format": "image_folder", "path": "data/"},)},
     {"image": {**IMAGE, "size": (50, 100)}, "text": TEXTS,
      "bbox": {"kind": "boxes", "column": "objects.bbox", "image": "image", "order": "corners", "unit": "absolute"},
      "category": {"kind": "categories", "column": "objects.category"}}, None, []),
    (captions, {}, {"image": {**IMAGE, "size": (224, 224)}, "text": TEXTS,
                    "score": {**NUMBER, "optional": True}}, None,
     ["24 images: 300 x 200", "50 % of the 24 rows", "# max_length: 7 #", "words in 24 texts"]),
    (table_of_images, {"source": (TABLE,)},
     {"file": {**IMAGE, "size": (32, 64)}, "class": classes("0", "1"),
      "bbox": {"kind": "boxes", "image": "file", "order": "coco", "unit": "absolute"}}, "class",
     ["20 boxes", "order: coco # x_min, y_min, width, height", "up to 19", "classes: ['0', '1'] # all",
      "20 rows: none"]),
    (splits_of_files, {"source": ({"format": "csv", "path": "data/train.csv", "split": "train"},
                                  {"format": "csv", "path": "data/dev.csv", "split": "validation"}),
                       "key": ("id",), "splits": HALF},
     {"n": {**NUMBER, "optional": True}, "text": TEXTS, "target": classes("0", "1")},
     "target", ["11 % of the 45 rows", "one split", ": 1 (sample_submission.csv)"]),
    (json_rows, {"source": ({"format": "jsonl", "path": "data/rows.ndjson"},), "key": ("uuid",),
                 "splits": {"train": 80.0, "test": 10.0},
                 "split_by": {"column": "set", "values": {"train": ("train",), "test": ("TEST",)}}},
     {"flag": CATEGORY, "tags": {"kind": "categories"}, "vector": {"kind": "numbers"},
      "a": {**NUMBER, "column": "inner.a", "optional": True}, "day": RAW, "url": RAW, "same": CATEGORY}, None,
     ["The 41 rows: 1 ", "(1 malformed_row)", "different in the 40 rows", "1 distinct value",
      "none: empty in the 40", "mixed: 21 distinct values", "2 % of the 40", "set: decides"]),
    (parquet, {"source": ({"format": "parquet", "path": "data/*.parquet"},)},
     {"image": IMAGE, "views": {**IMAGE, "kind": "image_sequence"}, "label": classes(*"0123"),
      "image_id": {**RAW, "type": "int64"}}, "label", []),
    (webdataset, {}, {"image": {**IMAGE, "column": "jpg;png"}, "cls": classes(*"012"),
                      "caption": {**TEXTS, "column": "json.caption"}}, "cls", []),
    (tfrecord, {}, {"image_encoded": {**IMAGE, "column": "image/encoded"},
                    "image_class_label": {**classes(*"012"), "column": "image/class/label"}, "x": NUMBER},
     "image_class_label", []),
    (different_files, {"splits": {"train": 100.0}},
     {"a": {**NUMBER, "optional": True}, "b": CATEGORY, "zip": {**RAW, "optional": True}}, None,
     ["3 rows: too few", "33 %"]),
    (chats, {}, {"messages": CHAT, "shared": CHAT, "n": NUMBER}, None,
     ["messages in the 24 rows", "set its path: the tokenizer.json"]),
    (alpaca, {}, {"chat": {"kind": "chat", "model": "tokenizer.json",
                           "columns": {name: name for name in ("instruction", "output", "input")}}}, None, []),
    (texts, {"source": ({"format": "text", "path": "data/**/*.txt", "document": "file"},)},
     {"text": TEXTS, "label": classes("bad", "good")}, "label", []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "top", "features", "label", "reasons"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_what_is_guessed(
    make: Make, top: Any, features: Any, label: str | None, reasons: list[str], tmp_path: Path
) -> None:
    make(tmp_path)
    spec, text = guessed(tmp_path)
    found = spec.model_dump(exclude_unset=True)
    assert found["features"] == features
    assert {key: found[key] for key in top} == top
    assert spec.label == label
    assert_names(unwrapped(text), *reasons)
    assert text == guessed(tmp_path)[1]
    write(tmp_path / "dataset.yaml", text)
    assert make_plan(load_spec(str(tmp_path / "dataset.yaml")), FILES).rows


def test_colour_profiles_are_counted(tmp_path: Path) -> None:
    class_folders(tmp_path)
    write(tmp_path / "data/cat/wide.png", saved(form="PNG", icc_profile=P3))
    assert_names(guessed(tmp_path)[1], "headers of 25 images", "1 Display P3", "sRGB")


def test_large_data_is_sampled(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/a.jsonl", [{"label": n // 4_000, "text": "some words " * 30} for n in range(16_000)])
    spec, text = guessed(tmp_path)
    assert re.search(r"category *# 1 distinct value in 1,000 sampled rows", text)
    assert_names(text, "# Of large files")
    assert "validation" in spec.splits


@pytest.mark.parametrize("huge", [0, 3_000])
@pytest.mark.parametrize("form", ["a.csv", "a.csv.gz", "a.jsonl", "a.txt"])
def test_a_huge_row_costs_no_others(form: str, huge: int, tmp_path: Path) -> None:
    texts = [f"some words {n}" if n != huge else "word " * 300_000 for n in range(10_000)]
    lines = [f'"{text}"' if "csv" in form else json.dumps({"text": text}) if "json" in form else text for text in texts]
    data = "\n".join(["text", *lines] if "csv" in form else lines).encode()
    write(tmp_path / form, gzip.compress(data) if form.endswith("gz") else data)
    text = guessed(tmp_path, form)[1]
    rows = re.search("# ([0-9,]+) sampled rows", text)
    assert rows is not None
    assert int(rows[1].replace(",", "")) >= 900


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([f"breed {n % 800}" for n in range(1_000)], "category"),
        ([n % 3 for n in range(1_000)], "category"),
        ([n / 7 for n in range(1_000)], "number"),
        ([["red", "green"][: n % 2 + 1] for n in range(1_000)], "categories"),
        ([n % 2 == 0 for n in range(1_000)], "category"),
    ],
)
def test_a_column_called_label_is_the_label(values: list[Any], kind: str, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": f"some words {n}", "label": value} for n, value in enumerate(values)])
    spec, _ = guessed(tmp_path, "a.jsonl")
    assert (spec.label, spec.features["label"].kind) == ("label", kind)


def test_a_split_that_was_not_seen_is_not_written(tmp_path: Path) -> None:
    rows = [{"id": n, "x": n / 2, "split": "test" if n % 9 == 0 else "train"} for n in range(5_000)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    spec, text = guessed(tmp_path, "a.jsonl")
    assert set(spec.splits) == {"train", "test"}
    assert_names(text, "another split", "reject")
    write_jsonl(tmp_path / "sorted.jsonl", sorted(rows, key=lambda row: row["split"], reverse=True))
    assert guessed(tmp_path, "sorted.jsonl")[0].split_by is None  # the first rows are all of one split


@pytest.mark.parametrize("rows", [99, *range(100, 110)])
def test_no_split_by_the_key_is_empty(rows: int, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"id": f"{rows}-{n}", "x": n / 2} for n in range(rows)])
    spec, _ = guessed(tmp_path, "a.jsonl")
    assert dict(spec.splits) == ({"train": 100.0} if rows < 100 else {**HALF, "test": 10.0})
    bounds = split_bounds(spec.splits)
    splits = {bisect_right(bounds, hash_key(f"{rows}-{n}".encode()).split) for n in range(rows)}
    assert splits == set(range(len(spec.splits)))


def test_a_table_beside_images_is_named(tmp_path: Path) -> None:
    table_of_images(tmp_path)
    text = starter(str(tmp_path / "data"), FILES, folder=str(tmp_path))
    assert parse_spec(text).source[0].format == "image_folder"
    table = tmp_path / "data/labels.csv"
    assert_names(unwrapped(text), f"# In doubt: {table}:", f"recordmill init {table}.")


def test_a_folder_is_listed_once(tmp_path: Path) -> None:
    class_folders(tmp_path)
    patterns = list[str]()

    class Counted(BeamFiles):
        def match(self, pattern: str) -> list[FileInfo]:
            patterns.append(pattern)
            return super().match(pattern)

    starter(str(tmp_path / "data"), Counted())
    assert patterns == [f"{tmp_path}/data/**"]


OBJECTS = [b"{}", b'{"a": 1, "b": {"x": 1}}', b'{"text": "a", "n": {"x": 1}}', b'{\n "text": "a"\n}\n',
           b'{"paths": {"a": "b"}}']  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("a.zip", b"PK\3\4\0", ["archive", "unpack"]),
        ("a.xlsx", b"PK\3\4\0", ["Excel", "CSV"]),
        ("a.npy", b"\x93NUMPY\0", ["NumPy", "Parquet"]),
        ("a.pickle", b"\x80\4", ["pickle", "Parquet"]),
        ("a.unknown", b"\1\0\2\0\3\0\4", ["a.unknown", "no known format", "Parquet"]),
        ("a.dcm", b"\0" * 128 + b"DICM", ["DICOM", ".npy"]),
        ("a.mat", b"MATLAB 5.0\0", ["arrays", "numpy.savez"]),
        ("cifar/data_batch_1", b"\x80\2}q\0" + b"\xff\0" * 99, ["data_batch_1", "no known format", ".npz"]),
        ("a.png", b"\x89PNG", ["one image", "folder"]),
        ("a.csv", b"", ["empty"]),
        ("b.csv", b"a,b\n", ["no good row"]),
        ("c.csv.gz", b"no gzip", ["gzip"]),
        ("a.json", b'["x", "y"]', ["one JSON array", "not of objects"]),
        ("b.json", b'{"v": 1, "data": {"q": 2}}', ["one row", "jq -c . ", "/b.json > "]),
        ("a.conll", b"a O\nb\n\nc\n", ["a.conll", "cells", ".txt"]),
        ("d.csv", "a,b\n1,Привет\n".encode("cp1251"), ["UTF-8", "cp1252", "--encoding cp1251"]),
        ("d.jsonl", b'{"a": 1\n' * 9, ["no JSON object", "first lines"]),
        ("e.csv", b"a,b\n" + b"1\n" * 99, ["no good row", "e.csv, line 2:", "1 cell,"]),
        ("c.json", b"{\nbroken", ["no JSON object", "jq -c . ", "/c.json > "]),
        ("out/dataset.json", b'{"build_key": 1}', ["/out", "dataset", "`recordmill show`"]),
        *((name, b"P5 2 2 255\n\0\0\0\0", [name, "PNG"]) for name in ("a.ppm", "a.JP2", "old/a.pgm", "new/a.pbm")),
        *((name, b"\0\1" * 40, [name]) for name in ("a.record", "a")),  # without TFRecords' frames
        *(("train.json", content, ["train.json", "one row"]) for content in OBJECTS),
        ("train.jsonl", b'{"a": {"0": 1, "1": 2}, "b": {"0": 1, "1": 2}}', ["one row", "orient='columns'"]),
    ],
)  # fmt: skip
def test_unreadable_data_is_named(tmp_path: Path, name: str, content: bytes, facts: list[str]) -> None:
    write(tmp_path / name, content)
    with raises(UserError, name.split("/")[0], *facts):
        starter(str(tmp_path / name.split("/")[0]), FILES)


def test_a_readme_is_no_data(tmp_path: Path) -> None:
    write(tmp_path / "data/README.md", "# The data")
    for number in range(3):
        write(tmp_path / f"data/{number}.pdf", b"%PDF\0")
    with raises(UserError, "0.pdf", "no known format"):
        guessed(tmp_path)
    write(tmp_path / "data/info.json", '{"rows": 1}')
    write(tmp_path / "data/rows.csv", "a,b\n1,2\n")
    spec, text = guessed(tmp_path)
    assert spec.source[0].path == "data/rows.csv"
    assert_names(text, ": 5 (0.pdf, 1.pdf, 2.pdf and 2 more)")


def test_json_texts_are_lines_of_objects(tmp_path: Path) -> None:
    for number in range(24):
        write(tmp_path / f"data/{number}.json", f'{{"n": {number}}}')
    spec, _ = guessed(tmp_path)
    assert spec.source[0].model_dump(exclude_unset=True) == {"format": "jsonl", "path": "data/*.json"}


@pytest.mark.parametrize(
    ("form", "encoding", "found"),
    [
        ("csv", "utf-8", None),
        ("csv", "cp1252", "cp1252"),
        ("csv.gz", "cp1252", "cp1252"),
        ("tsv", "utf-16", "utf-16"),
        ("csv", "utf-16-le", "utf-16-le"),
        ("csv", "utf-16-be", "utf-16-be"),
        ("csv", "utf-32", "utf-32"),
        ("jsonl", "utf-8-sig", None),
        ("jsonl", "utf-16", "utf-16"),
        ("jsonl", "cp1252", "cp1252"),
        ("txt", "cp1252", "cp1252"),
    ],
)
def test_an_encoding_is_found(form: str, encoding: str, found: str | None, tmp_path: Path) -> None:
    texts = [f"some words of {'Köln' if n % 5 else 'Bonn'} {n}" for n in range(3_000)]
    head = {"csv": "text\n", "csv.gz": "text\n", "tsv": "text\tn\n"}.get(form, "")
    row = {"tsv": "{}\t1\n", "jsonl": '{{"text": "{}"}}\n'}.get(form, "{}\n")
    data = (head + "".join(map(row.format, texts))).encode(encoding)
    write(tmp_path / f"a.{form}", gzip.compress(data) if form.endswith("gz") else data)
    spec, text = guessed(tmp_path, f"a.{form}")
    assert spec.source[0].model_dump(exclude_unset=True).get("encoding") == found
    doubts, result = first_lines(text)
    assert [doubt[:25] for doubt in doubts] == [f"In doubt: a.{form}: not UTF-8"[:25]] * (found == "cp1252")
    assert re.match("(999|1,000) sampled rows: (none|all) ", result)
    assert spec.features["text"].kind == "text"
    if found == "cp1252":
        assert_names(text, "cp1252", "Köln", "--encoding")


def test_damage_is_no_other_encoding(tmp_path: Path) -> None:
    rows = [f"{n},Köln".encode() if n % 30 else b"%d,K\xf6ln" % n for n in range(60)]
    write(tmp_path / "a.csv", b"\n".join([b"a,b", *rows]))
    text = guessed(tmp_path, "a.csv")[1]
    (doubt,), result = first_lines(text)
    assert_names(doubt, "In doubt: rejects.max_share: 3.3% ", " 5.0%")
    assert_names(result, "60 rows: 2 ", "(2 invalid_utf8 in column b)")
    assert "\nrejects: {max_share: 0.05, max_duplicate_share: 0.01}" in text


def test_an_encoding_that_is_given(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ("a,b\n" + "1,Привет\n" * 30).encode("cp1251"))
    spec, text = guessed(tmp_path, "a.csv", answers=Answers(encoding="cp1251"))
    assert spec.source[0].model_dump(exclude_unset=True)["encoding"] == "cp1251"
    with raises(UserError, "--encoding: 'utf-9': ", "cp1252"):
        guessed(tmp_path, "a.csv", answers=Answers(encoding="utf-9"))
    class_folders(tmp_path)
    with raises(UserError, "--encoding ", "data ", "image_folder"):
        guessed(tmp_path, answers=Answers(encoding="cp1251"))


def unclear_boxes(folder: Path) -> None:
    rows = []
    for n in range(40):
        write(folder / f"data/images/{n}.png", image_bytes(64, 64))
        box, count = [n % 20, n % 7, 30 + n % 9, 40], n % 3 + 1
        rows.append({"file": f"images/{n}.png", "boxes": [box] * count, "labels": ["car"] * count, "n": [1] * count})
    write_jsonl(folder / "data/rows.jsonl", rows)


def test_the_order_of_boxes_is_a_question(tmp_path: Path) -> None:
    unclear_boxes(tmp_path)
    orders = ("corners: x_min, y_min, x_max, y_max", "coco: x_min, y_min, width, height", "tensorflow: y_min, x_min")
    asked = list[str]()

    def ask(text: str, answers: Any) -> str:
        asked.append(text)
        return str(answers[1])

    spec, text = guessed(tmp_path, "data/rows.jsonl", answers=Answers(ask=ask))
    [question] = asked
    assert_names(question, "'boxes'", *orders)
    assert spec.features["boxes"].model_dump()["order"] == "coco"
    assert_names(text, "# x_min, y_min, width, height; as answered")
    assert spec.together == (("boxes", "labels", "n"),)
    spec, _ = guessed(tmp_path, "data/rows.jsonl", answers=Answers("tensorflow"))
    assert spec.features["boxes"].model_dump()["order"] == "tensorflow"
    with raises(UserError, question, "--order corners or --order coco or --order tensorflow"):
        guessed(tmp_path, "data/rows.jsonl", answers=Answers())
    with raises(UserError, "--order center: ", "'boxes'", "corners and coco and tensorflow"):
        guessed(tmp_path, "data/rows.jsonl", answers=Answers("center"))


@pytest.mark.parametrize(
    ("box", "side", "orders"),
    [
        ([10, 20, 95, 60], 100, ["corners", "tensorflow"]),
        ([10, 20, 30, 40], 100, ["corners", "coco", "tensorflow"]),
        ([60, 50, 40, 45], 100, ["coco", "center"]),
        ([5, 5, 4, 4], math.inf, ["coco", "center"]),
        ([0.1, 0.2, 0.8, 0.9], 1, ["corners", "tensorflow"]),
        ([60, 50, 90, 45], 100, []),
        ([-9, 0, 4, 4], 100, []),
    ],
)
def test_an_order_fits_where_boxes_lie_in_images(box: list[float], side: float, orders: list[str]) -> None:
    boxes = np.array([box] * 99 + [[-50, -50, -60, -60]])  # one bad box of a hundred decides nothing
    assert fitting_orders(boxes, side) == orders


def test_boxes_that_fit_no_image_are_a_comment(tmp_path: Path) -> None:
    table_of_images(tmp_path)
    write(tmp_path / "data/labels.csv", "file;bbox\n" + "".join(f"{n}.png;[300,300,90,2]\n" for n in range(20)))
    spec, text = guessed(tmp_path)
    assert "bbox" not in spec.features
    assert_names(text, "\n  # bbox: boxes ")


def test_classes_are_written_where_all_are_known(tmp_path: Path) -> None:
    for number in range(1_100):
        name = "zebra" if number == 1_001 else ("ant", "bee")[number % 2]
        write(tmp_path / f"few/train/{name}/{number}.png", image_bytes(2, 2))
    spec, _ = guessed(tmp_path, "few/train")
    assert spec.features["label"].model_dump()["classes"] == ("ant", "bee", "zebra")  # the sample has no zebra
    write_jsonl(tmp_path / "many.jsonl", [{"x": f"some words {n}", "label": f"class {n % 201}"} for n in range(804)])
    assert_names(unwrapped(guessed(tmp_path, "many.jsonl")[1]), "# classes: NAMES # not written: 201 ", "200")
    write_jsonl(tmp_path / "long.jsonl", [{"x": f"some words {n}", "label": n // 1_500} for n in range(3_000)])
    spec, text = guessed(tmp_path, "long.jsonl")
    assert spec.features["label"].model_dump()["classes"] == ("0", "1")  # a small file: this column is read whole
    with constants(sample, WHOLE_BYTES=1_000):
        text = guessed(tmp_path, "long.jsonl")[1]
        assert_names(text, "# not written: 1,000 sampled rows", "\n    # classes: NAMES\n")


DAYS = [
    ("2026-11-0{}/a.csv", "{YYYY}-{MM}-{DD}/a.csv"),
    ("y/2026/11/0{}/{}.csv", "y/{YYYY}/{MM}/{DD}/*.csv"),
    ("2026110{}/{}.jpg", "{YYYY}{MM}{DD}"),
    ("2026-13-0{}/a.csv", "**/*.csv"),
]


@pytest.mark.parametrize(("place", "path"), DAYS)
def test_folders_of_days_are_spans_and_no_classes(place: str, path: str, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        data = image_bytes() if place.endswith("jpg") else f"id,text\n{day},two words\n"
        write(tmp_path / "data" / place.format(day, day), data)
    spec, text = guessed(tmp_path)
    assert (spec.source[0].path, "label" in spec.features) == (f"data/{path}", False)
    assert first_lines(text)[0] == []


def test_numbered_files_are_of_the_split_in_their_names(tmp_path: Path) -> None:
    for name in ("imagenet-train-000000", "imagenet-train-000001", "imagenet-val-000000"):
        rows = [{"id": f"{name}-{n}", "x": n / 2} for n in range(20)]
        write_jsonl(tmp_path / f"data/{name}.jsonl", rows)
    sources = [(source.path, source.split) for source in guessed(tmp_path)[0].source]
    assert sources == [("data/imagenet-train-00000*.jsonl", "train"), ("data/imagenet-val-000000.jsonl", "validation")]
    names = ["val2017", "mnist_train", "squad_dev_v2.0.json", "a_test_set.csv", "trainval.csv", "train_and_test_a.csv"]
    assert [split_of(name) for name in names] == ["validation", "train", "validation", "test", None, "train"]


def test_a_label_that_a_source_lacks_is_a_comment(tmp_path: Path) -> None:
    splits_of_files(tmp_path)
    write(tmp_path / "data/test.csv", "id,n,text\n" + "".join(f"{60 + n},1,some words\n" for n in range(5)))
    spec, text = guessed(tmp_path)
    assert spec.label is None
    assert [source.split for source in spec.source] == ["train", "validation", "test"]
    assert_names(text, "\n# label: FEATURE", "lack target: ")


def test_images_that_are_not_found_are_a_comment(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"file": f"{n}.png", "label": n % 2} for n in range(30)])
    spec, text = guessed(tmp_path, "a.jsonl")
    assert spec.features["file"].kind == "raw"
    assert_names(unwrapped(text), "missing images", "`images: FOLDER`")


def test_paths_are_relative_to_the_output_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_folders(tmp_path)
    monkeypatch.chdir(tmp_path / "data")
    file = tmp_path / "specs" / "a.yaml"
    file.parent.mkdir()
    write_spec(file, lambda: starter(".", FILES, "animals", str(file.parent)))
    assert "path: ../data/" in file.read_text()
    assert load_spec(str(file)).name == "animals"
    with raises(UserError, "a.yaml", "--force"):
        write_spec(file, lambda: "")
    write_spec(file, lambda: "name: b\n", force=True)
    assert file.read_text() == "name: b\n"
    late = file.with_name("late.yaml")
    with raises(UserError, "late.yaml", "File exists"):
        write_spec(late, lambda: f"{late.write_text('mine')}")
    assert late.read_text() == "mine"
    note = "`init` ran"
    assert note in starter(".", FILES)
    assert note not in starter(".", FILES, folder=".")
    assert note not in starter(str(tmp_path / "specs/../data"), FILES, folder=str(file.parent))
    with raises(UserError, "--name: '1 a': ", "letter"):
        starter(".", FILES, "1 a")


@pytest.mark.parametrize(
    ("folder", "path"), [("x [*]", "data*/*.jsonl"), ("x", "data [1]/a #.jsonl"), ("x", "data [1]"), ("x [*]", ".")]
)
def test_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, path: str) -> None:
    write_jsonl(tmp_path / folder / "data [1]/a #.jsonl", [{"a": n} for n in range(30)])
    monkeypatch.chdir(tmp_path / folder if path != "." else tmp_path / folder / "data [1]")
    Path("dataset.yaml").write_text(starter(path, FILES))
    assert make_plan(load_spec("dataset.yaml"), FILES).rows == 30


@pytest.mark.parametrize("form", ["a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.zst"])
def test_a_part_of_a_file_is_whole_rows(tmp_path: Path, form: str) -> None:
    rows = [{"a": "x,\n" * 9, "b": str(n)} for n in range(100_000)]
    cells = "a,b\n" + "".join(f'"{row["a"]}",{row["b"]}\n' for row in rows)
    data = (cells if "csv" in form else "".join(json.dumps(row) + "\n" for row in rows)).encode()
    codec = {".gz": "gzip", ".zst": "zstd"}.get(Path(form).suffix)
    write(tmp_path / form, data if codec is None else pa.Codec(codec).compress(data, asbytes=True))
    options = {"path": str(tmp_path / form)}
    kind = Csv(format="csv", **options) if "csv" in form else JsonLines(format="jsonl", **options)
    files = SampledFiles(FILES, kind, FILES.match(str(tmp_path / form)))
    [part] = files.match(str(tmp_path / form))
    assert not files.is_whole
    read_back = read(reader_of(kind), {"a": TEXT, "b": TEXT}, files=files)
    assert read_back.rejects == []
    assert all(rows[int(row["b"])] == row for row in read_back.rows)
    assert ROWS - 16 <= len(read_back.rows) <= ROWS


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\x85\n", max_size=3), inner)),
       st.text(st.characters(exclude_categories=["Cs"])))  # fmt: skip
def test_a_line_says_what_was_meant(value: Any, why: str) -> None:
    text = f"{chr(10).join(comment(why, '  '))}\n{option_line('key', (value, why))}\n"
    assert yaml.safe_load(text) == {"key": value}
    assert all(len(line) <= 100 or " " not in line.strip(" #") for line in comment(why, "  "))
    assert all(line.startswith("  # ") for line in comment(why, "  "))


def test_names() -> None:
    assert dataset_name("/home/ann/birds of 2024/train/images") == "birds_of_2024"
    assert dataset_name("gs://bucket/my-data/part-*.csv.gz") == "my_data"
    assert valid_name("1", "none") == "none"
    names = feature_names(["key", "a b", "a-b", "box.x", "x", "é", "日本", "text", "text_length"])
    assert list(names.values()) == ["key_column", "a_b", "a_b_column", "x", "x_column", "e", "column_7", "text",
                                    "text_length_column"]  # fmt: skip
    assert [name for name in ("id", "imageId", "user_id", "UUID", "grid", "monkey", "valid") if ID.fullmatch(name)] == [
        "id", "imageId", "user_id", "UUID",
    ]  # fmt: skip
    assert [share_of(part, 1000, "all") for part in (0, 3, 10, 999, 1000)] == [
        "0 of all", "3 of all", "1 % of all", "99 % of all", "all",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_command_asks_and_writes_what_builds(tmp_path: Path) -> None:
    unclear_boxes(tmp_path)
    asked = recordmill("init", "data/rows.jsonl", "--output", "dataset.yaml", cwd=tmp_path)
    assert (asked.returncode, asked.stderr.count("\n")) == (1, 1)
    assert_names(asked.stderr, "'boxes'", "--order corners or --order coco")
    assert not (tmp_path / "dataset.yaml").exists()
    made = recordmill("init", "data/rows.jsonl", "--output", "dataset.yaml", "--order", "corners", cwd=tmp_path)
    assert_names(made.stdout, "The 40 rows", "none")
    build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))
