"""`recordmill init`: what it guesses of data of every sort, that each comment is true, and that the spec reads back."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipeline.errors import UserError
from pipeline.files import BeamFiles
from pipeline.sources.csv_records import Dialect as Cells
from pipeline.sources.csv_records import find_records
from pipeline.sources.delimited import Csv
from pipeline.sources.jsonl import JsonLines
from pipeline.spec import Spec, load_spec, parse_spec
from pipeline.spec_yaml import load_yaml
from pipeline.starter.boxes import CORNERS, USUAL
from pipeline.starter.choices import dataset_name, feature_names, valid_name
from pipeline.starter.dialects import guess_dialect
from pipeline.starter.guess import ID, share_of
from pipeline.starter.page import Page, scalar
from pipeline.starter.sampling import PIECE_BYTES, SAMPLED_FILES, SampledFiles
from pipeline.starter.starter import starter, write_new
from pipeline.tfrecord import frame
from tests.hand_made import example

FILES = BeamFiles()
WORDS = ("a cat sat on the mat", "two dogs", "one bird sings a song")
Make = Callable[[Path], None]


def picture(width: int = 32, height: int = 24, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, form)
    return file.getvalue()


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def lines(path: Path, rows: list[Any]) -> None:
    write(path, "".join(json.dumps(row) + "\n" for row in rows))


def guessed(folder: Path, path: str = "data", **options: Any) -> tuple[Spec, str]:
    """The spec that is printed for a path in a folder, and its text."""
    text = starter(str(folder / path), FILES, folder=str(folder), **options)
    return parse_spec(text), text


def class_folders(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/{('cat', 'dog')[number % 2]}/{number}.png", picture())


def split_folders(folder: Path) -> None:
    for number in range(30):
        write(folder / f"data/{('Train', 'Train', 'val')[number % 3]}/{'ab'[number % 2]}/{number}.png", picture())
    write(folder / "data/notes.md", "notes")


def metadata(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/images/{number}.jpg", picture(100, 50, "JPEG"))
    box = {"bbox": [[1, 2, 90, 40], [60, 20, 99, 49]], "category": ["x", "y"]}
    rows = [{"file_name": f"{n}.jpg", "text": WORDS[n % 3] + f" {n}", "objects": box} for n in range(24)]
    lines(folder / "data/images/metadata.jsonl", rows)


def captions(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/{number}.png", picture(300, 200))
        write(folder / f"data/{number}.txt", f"{WORDS[number % 3]} {number}\n")
        if number % 2:
            write(folder / f"data/{number}.json", json.dumps({"score": number / 3}))


def table_of_pictures(folder: Path) -> None:
    rows = "".join(f"{n}.png;{n % 2};[{n},{n},4,4]\n" for n in range(20))
    write(folder / "data/labels.csv", f"file;class;bbox\n{rows}")
    for number in range(20):
        write(folder / f"data/photos/{number}.png", picture(64, 32))


def splits_of_files(folder: Path) -> None:
    row = "{0},{1},some words {1}"
    write(
        folder / "data/train.csv",
        "id,n,text,target\n" + "".join(f"{row.format(n, n / 2)},{n % 2}\n" for n in range(40)),
    )
    write(folder / "data/dev.csv", "id,n,text,target\n" + "".join(f"{row.format(50 + n, '')},1\n" for n in range(5)))
    write(folder / "data/test.csv", "id,n,text\n" + "".join(f"{row.format(60 + n, n)}\n" for n in range(5)))


def json_rows(folder: Path) -> None:
    row = {"flag": True, "tags": ["red"], "vector": [1.5, 2, 3], "inner": {"a": 1}, "set": "train", "none": None}
    rows = [{"uuid": f"u{n}", **row, "flag": n % 2 == 0, "day": f"2026-11-{n % 28 + 1:02}", "mixed": n if n % 2 else "x",
             "url": f"https://a.b/{n}", "same": "yes", "set": ("train", "TEST")[n % 5 == 0]} for n in range(40)]  # fmt: skip
    rows[3]["tags"] = ["green", "blue"]
    del rows[5]["inner"]
    lines(folder / "data/rows.ndjson", rows)
    with (folder / "data/rows.ndjson").open("a") as file:
        file.write('{"broken": \n')


def parquet(folder: Path) -> None:
    rows = 40
    table = {
        "image": [{"bytes": picture(), "path": "a.png"}] * rows,
        "views": [[picture(), picture()]] * rows,
        "label": [n % 4 for n in range(rows)],
        "image_id": list(range(rows)),
        "blob": [b"\xff\0"] * rows,
    }
    (folder / "data").mkdir()
    pq.write_table(pa.table(table), folder / "data/part-0.parquet")
    pq.write_table(pa.table(table), folder / "data/part-1.parquet")


def webdataset(folder: Path) -> None:
    (folder / "data").mkdir()
    with tarfile.open(folder / "data/a.tar", "w") as tar:
        for n in range(30):
            members = {"png" if n % 2 else "jpg": picture(form="PNG" if n % 2 else "JPEG"), "cls": str(n % 3).encode(),
                       "json": json.dumps({"caption": f"{WORDS[n % 3]} {n}"}).encode()}  # fmt: skip
            for ending, data in members.items():
                member = tarfile.TarInfo(f"{n:03}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def tfrecord(folder: Path) -> None:
    rows = [example({"image/encoded": [picture()], "image/class/label": [n % 3], "x": [n / 4]}) for n in range(30)]
    write(folder / "data/a.tfrecord-00000-of-00001", b"".join(map(frame, rows)))


def different_files(folder: Path) -> None:
    write(folder / "data/a.csv", "a,b\n1,x\n2,y\n")
    write(folder / "data/b.csv", "zip,b\n01234,x\n")


def texts(folder: Path) -> None:
    for number in range(24):
        write(folder / f"data/{('good', 'bad')[number % 2]}/{number}.txt", f"{WORDS[number % 3]} {number}")


IMAGE = {"kind": "image", "size": (24, 32), "fit": "pad"}
LABELLED: dict[type[Any], Any] = {}
HASHED = {"train": 80, "validation": 10, "test": 10}
CASES: list[tuple[Make, dict[str, Any], dict[str, dict[str, Any]], str | None]] = [
    (class_folders, {"source": [{"format": "image_folder", "path": "data/"}], "splits": HASHED},
     {"image": IMAGE, "label": {"kind": "category"}}, "label"),
    (split_folders, {"splits": {"train": 67, "validation": 33},
                     "split_by": {"column": "split", "values": {"train": ["Train"], "validation": ["val"]}}},
     {"image": IMAGE, "label": {"kind": "category"}}, "label"),
    (metadata, {"source": [{"format": "image_folder", "path": "data/images/"}], "name": "data"},
     {"image": {**IMAGE, "size": (50, 100)}, "text": {"kind": "text", "max_length": 7},
      "bbox": {"kind": "boxes", "column": "objects.bbox", "image": "image", "order": "corners", "unit": "absolute",},
      "category": {"kind": "categories", "column": "objects.category", "length": 2}}, None),
    (captions, {}, {"image": {**IMAGE, "size": (224, 224)}, "text": {"kind": "text", "max_length": 7},
                    "score": {"kind": "number", "optional": True}}, None),
    (table_of_pictures, {"source": [{"format": "csv", "path": "data/labels.csv", "separator": ";",
                                     "images": "data/photos/"}]},
     {"file": {**IMAGE, "size": (32, 64)}, "class_": {"kind": "category", "column": "class"},
      "bbox": {"kind": "boxes", "image": "file", "order": "coco", "unit": "absolute"}}, "class"),
]  # fmt: skip
