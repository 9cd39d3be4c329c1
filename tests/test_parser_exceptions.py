"""Exceptions of the libraries that parse: each reader's becomes a reject, or one line that names the file.

`test_user_source.py` has those of the user's own functions.
"""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.transforms.base.columns import Columns
from tests import published_formats as published
from tests.tables import CATEGORY, IMAGE, TEXT, read, source, tar

NOISE = "a value of the data"


class LibraryError(RuntimeError):
    """No reader can expect it."""


def raising(*_: Any, **__: Any) -> Any:
    raise LibraryError(NOISE)


def write_captions(folder: Path) -> None:
    published.write(folder / "0.jpg", published.jpeg())
    published.write_json(folder / "0.json", {"a": "b"})


def put(name: str, content: str | bytes) -> Callable[[Path], None]:
    return lambda folder: published.write(folder / name, content)


PARQUET = pa.table({"a": ["b"]})
YOLO = {"path": "labels/train", "images": "images/train", "names": "data.yaml"}
COCO = {"path": "annotations/*_train2017.json", "images": "train2017"}
OPEN_IMAGES = {"path": "train-annotations-bbox.csv", "images": "train"}
CASES: list[tuple[str, dict[str, str], Callable[[Path], object], Columns, str]] = [
    ("csv", {"path": "a.csv"}, put("a.csv", "a\nb\n"), {"a": TEXT}, "pyarrow.csv.read_csv"),
    ("tsv", {"path": "a.tsv"}, put("a.tsv", "a\nb\n"), {"a": TEXT}, "pyarrow.csv.read_csv"),
    ("jsonl", {"path": "a.jsonl"}, put("a.jsonl", '{"a": "b"}\n'), {"a": TEXT}, "pyarrow.json.read_json"),
    ("parquet", {"path": "a.parquet"}, lambda folder: pq.write_table(PARQUET, folder / "a.parquet"), {"a": TEXT},
     "pyarrow.parquet.ParquetFile"),
    ("webdataset", {"path": "a.tar"}, put("a.tar", tar(("0.txt", "cat"))), {"txt": TEXT}, "tarfile.TarFile"),
    ("tfrecord", {"path": "a.tfrecord"}, put("a.tfrecord", gzip.compress(b"no record")), {"a": TEXT},
     "zlib.decompressobj"),
    ("text", {"path": "a.txt", "encoding": "cp1252"}, put("a.txt", "b"), {"text": TEXT},
     "codecs.getincrementaldecoder"),
    ("image_folder", {"path": "."}, write_captions, {"json.a": TEXT}, "json.loads"),
    ("voc", {"path": "."}, published.write_voc, {"image": IMAGE}, "xml.parsers.expat.ParserCreate"),
    ("yolo", YOLO, published.write_yolo, {"image": IMAGE}, "yaml.compose"),
    ("coco", COCO, published.write_coco, {"id": CATEGORY}, "json.JSONDecoder.raw_decode"),
    ("labelme", {"path": "."}, published.write_labelme, {"image": IMAGE}, "json.loads"),
    ("via", {"path": "train"}, published.write_via, {"image": IMAGE}, "json.loads"),
    ("open_images", OPEN_IMAGES, published.write_open_images, {"image": IMAGE}, "pyarrow.csv.read_csv"),
]  # fmt: skip


def reader(folder: Path, form: str, options: dict[str, str]) -> SourceReader[Any]:
    paths = {name: str(folder / value) for name, value in options.items() if name not in ("encoding", "rows")}
    return source(form, **{**options, **paths})


@pytest.mark.parametrize(("form", "options", "make", "columns", "target"), CASES, ids=[case[0] for case in CASES])
def test_an_exception_of_a_library(
    form: str,
    options: dict[str, str],
    make: Callable[[Path], object],
    columns: Columns,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(tmp_path)
    asked = reader(tmp_path, form, options)
    monkeypatch.setattr(target, raising)
    try:
        message = " ".join(reject.message for reject in read(asked, columns).rejects)
    except UserError as error:
        message = str(error)
        assert str(tmp_path) in message
        assert "\n" not in message
    assert "LibraryError" in message
    assert NOISE not in message


def test_what_is_no_parsers_fault_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.write(tmp_path / "a.jsonl", '{"a": "b"}\n')
    asked = reader(tmp_path, "jsonl", {"path": "a.jsonl"})
    monkeypatch.setattr("pyarrow.json.read_json", MagicMock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        read(asked, {"a": TEXT})
