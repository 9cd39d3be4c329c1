"""`columns` of a source: the spec's names of columns for the source's own, in every format."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from tests import tables
from tests import test_every_source as every_source
from tests.messages import raises
from tests.tables import CATEGORY, FILES, IMAGE, NUMBER, TEXT, read, tar, write_jsonl

ROWS = [("a", 1.5, "cat"), ("b", 2.5, "dog")]
COLUMNS = {"caption": TEXT, "price": NUMBER, "class": CATEGORY}
EXPECTED = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
OWN = {"caption": "t", "price": "m.p", "class": "m.c"}


def nested(row: tuple[str, float, str]) -> dict[str, Any]:
    return {"t": row[0], "m": {"p": row[1], "c": row[2]}}


def write_tar(folder: Path) -> str:
    members = ((f"{n}.{end}", data) for n, row in enumerate(ROWS) for end, data in _parts(nested(row)))
    (folder / "rows.tar").write_bytes(tar(*members))
    return "webdataset, path: FOLDER/rows.tar"


def _parts(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [("json", json.dumps(row["m"])), ("txt", row["t"])]


def write_arrays(folder: Path) -> str:
    columns = map(np.array, zip(*ROWS, strict=True))
    np.savez(folder / "rows.npz", **dict(zip(OWN.values(), columns, strict=True)))
    return "arrays, path: FOLDER/rows.npz"


def write_python(folder: Path) -> str:
    module = f"def rows():\n    yield from {list(map(nested, ROWS))!r}\n"
    (folder / "renamed_rows.py").write_text(module)
    code = UserCode.of(["renamed_rows:rows"], str(folder))
    assert code is not None
    code.install()
    return 'python, path: FOLDER, rows: "renamed_rows:rows"'


def write_metadata(folder: Path) -> str:
    rows = [{"file_name": f"{number}.png"} | nested(row) for number, row in enumerate(ROWS)]
    write_jsonl(folder / "metadata.jsonl", rows)
    return "image_folder, path: FOLDER"


def by(form: str, write: Callable[[Path, list[Any]], str], rows: list[Any], more: str = "") -> Callable[[Path], str]:
    """Writes rows as `test_every_source` does."""
    return lambda folder: f"{form}, path: FOLDER/{write(folder, rows)}{more}"


NESTED, FLAT = [*map(nested, ROWS)], [dict(zip(OWN.values(), row, strict=True)) for row in ROWS]
FORMATS: dict[str, tuple[Callable[[Path], str], dict[str, str]]] = {
    "csv": (by("csv", every_source.write_csv, FLAT), OWN),
    "jsonl": (by("jsonl", every_source.write_jsonl, NESTED), OWN),
    "json": (by("json", every_source.write_document, NESTED, ", rows: 'data[].rows[]'"), OWN),
    "text": (by("text", every_source.write_aligned, FLAT), {name: f"{own}.txt" for name, own in OWN.items()}),
    "parquet": (by("parquet", every_source.write_parquet, NESTED), OWN),
    "tfrecord": (by("tfrecord", every_source.write_tfrecord, FLAT), OWN),
    "arrays": (write_arrays, OWN),
    "adopted": (by("adopted", every_source.write_adopted, FLAT), OWN),
    "webdataset": (write_tar, {"caption": "txt;text", "price": "json.p", "class": "json.c"}),
    "python": (write_python, OWN),
    "image_folder": (write_metadata, OWN),
}


def source(folder: Path, name: str, columns: dict[str, str]) -> SourceReader[Any]:
    """Reads a source of `ROWS`, as a spec that reads all columns gives it."""
    form = FORMATS[name][0](folder).replace("FOLDER", str(folder))
    features = "{caption: {kind: text}, price: {kind: number}, class: {kind: category}}"
    text = f"name: x\nsource: {{format: {form}, columns: {json.dumps(columns)}}}\nfeatures: {features}\n"
    return reader_of(parse_spec(text).source[0])


@pytest.mark.parametrize("name", FORMATS)
def test_columns_come_under_the_names_of_the_spec(tmp_path: Path, name: str) -> None:
    result = read(source(tmp_path, name, FORMATS[name][1]), COLUMNS, key=["caption", "class"])
    assert result.rows == EXPECTED
    assert list(result.rows[0]) == list(COLUMNS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_column_is_named_as_the_source_has_it(tmp_path: Path, name: str) -> None:
    own = FORMATS[name][1] | {"price": "prise"}
    with raises(SourceError, "'prise'", "'prise'" if name == "text" else FORMATS[name][1]["caption"]):
        read(source(tmp_path, name, own), COLUMNS)


def test_images_of_a_folder_and_their_path_columns(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"12345")
    own = {"photo": "image", "kind": "label", "where": "file_name"}
    asked = tables.source("image_folder", tmp_path, columns=own)
    result = read(asked, {"photo": IMAGE, "kind": CATEGORY, "where": TEXT})
    assert result.rows == [{"photo": b"fcat/1.png", "kind": "cat", "where": "cat/1.png"}]
    assert result.keys == [b"cat/1.png"]


def test_names_may_be_swapped_and_one_column_may_have_two_names(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\nx,1\n,2\n")
    csv = tables.source("csv", tmp_path / "rows.csv", columns={"a": "b", "b": "a", "also": "b"})
    result = read(csv, {"a": NUMBER, "b": CATEGORY, "also": NUMBER})
    assert result.rows == [{"a": 1.0, "b": "x", "also": 1.0}]
    assert [(reject.reason, reject.column) for reject in result.rejects] == [("missing_value", "a")]
    with raises(SourceError, "'b'", "number", "'also'", "category"):
        read(csv, {"a": NUMBER, "also": CATEGORY})


@pytest.mark.parametrize("name", ["parquet", "python"])
def test_the_default_key_follows_from_the_names_of_the_spec(tmp_path: Path, name: str) -> None:
    pa.parquet.write_table(pa.Table.from_pylist(EXPECTED), tmp_path / "plain.parquet")
    expected = read(tables.source("parquet", tmp_path / "plain.parquet"), COLUMNS).keys
    assert read(source(tmp_path, name, OWN), COLUMNS).keys == expected


@pytest.mark.parametrize(
    ("columns", "facts"),
    [
        ("{txet: t}", ["`columns`", "'txet'", "mean `text`"]),
        ("{text: '@position'}", ["source.columns: ", "'@position'", "rename"]),
        ("{text: ''}", ["source.columns.text: "]),
        ("[text]", ["source.columns: ", "mapping"]),
    ],
)
def test_a_wrong_mapping_is_one_line(columns: str, facts: list[str]) -> None:
    source = f"source: {{format: csv, path: a, columns: {columns}}}"
    with raises(SpecError, *facts):
        parse_spec(f"name: x\n{source}\nfeatures: {{text: {{kind: text}}}}\n")


def test_the_mapping_belongs_to_the_build_key(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("alt,more\na cell,x\n")
    keys = set()
    for column in ("alt", "more"):
        source = f"{{format: csv, path: {tmp_path}/rows.csv, columns: {{text: {column}}}}}"
        spec = parse_spec(f"name: x\nsource: {source}\nfeatures: {{text: {{kind: text}}}}\n")
        keys.add(make_plan(spec, FILES).build_key)
    assert len(keys) == 2
