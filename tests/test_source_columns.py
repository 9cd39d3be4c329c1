"""`columns` of a source: the spec's names of columns for the source's own, in every format."""

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from recordmill.pipeline.adopt.adopt import Adoption, adopt
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.dataset.tfrecord import frame
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.source_reader import SourceError, SourceReader
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.yaml_document import SpecError
from tests.messages import raises
from tests.pictures import png
from tests.tables import CATEGORY, FILES, IMAGE, NUMBER, TEXT, read, tar, write, write_jsonl
from tests.test_tfrecord_source import example

ROWS = [("a", 1.5, "cat"), ("b", 2.5, "dog")]
COLUMNS = {"caption": TEXT, "price": NUMBER, "class": CATEGORY}
EXPECTED = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
OWN = {"caption": "t", "price": "m.p", "class": "m.c"}


def nested(row: tuple[str, float, str]) -> dict[str, Any]:
    return {"t": row[0], "m": {"p": row[1], "c": row[2]}}


def write_csv(folder: Path) -> str:
    (folder / "rows.csv").write_text("t,m.p,m.c\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS))
    return "csv, path: FOLDER/rows.csv"


def write_lines_of_json(folder: Path) -> str:
    (folder / "rows.jsonl").write_text("".join(json.dumps(nested(row)) + "\n" for row in ROWS))
    return "jsonl, path: FOLDER/rows.jsonl"


def write_document(folder: Path) -> str:
    (folder / "rows.json").write_text(json.dumps({"rows": list(map(nested, ROWS))}))
    return "json, path: FOLDER/rows.json, rows: 'rows[]'"


def write_lines(folder: Path) -> str:
    for name, cells in zip(OWN.values(), zip(*ROWS, strict=True), strict=True):
        (folder / name).write_text("".join(f"{cell}\n" for cell in cells))
    return "text, path: FOLDER"


def write_parquet(folder: Path) -> str:
    pa.parquet.write_table(pa.Table.from_pylist(list(map(nested, ROWS))), folder / "rows.parquet")
    return "parquet, path: FOLDER/rows.parquet"


def write_tfrecord(folder: Path) -> str:
    rows = [{"t": text.encode(), "m.p": price, "m.c": kind.encode()} for text, price, kind in ROWS]
    (folder / "rows.tfrecord").write_bytes(b"".join(frame(example(**row)) for row in rows))
    return "tfrecord, path: FOLDER/rows.tfrecord"


def write_arrays(folder: Path) -> str:
    columns = map(np.array, zip(*ROWS, strict=True))
    np.savez(folder / "rows.npz", **dict(zip(OWN.values(), columns, strict=True)))
    return "arrays, path: FOLDER/rows.npz"


def write_adopted(folder: Path) -> str:
    write_tfrecord(folder)
    adopt(Adoption({"": [f"{folder}/rows.tfrecord"]}, f"{folder}/adopted"))
    return "adopted, path: FOLDER/adopted"


def write_tar(folder: Path) -> str:
    pairs = [[(f"{n}.json", json.dumps(nested(row)["m"])), (f"{n}.txt", row[0])] for n, row in enumerate(ROWS)]
    write(folder / "rows.tar", tar(*chain(*pairs)))
    return "webdataset, path: FOLDER/rows.tar"


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


FORMATS: dict[str, tuple[Callable[[Path], str], dict[str, str]]] = {
    "csv": (write_csv, OWN),
    "jsonl": (write_lines_of_json, OWN),
    "json": (write_document, OWN),
    "text": (write_lines, OWN),
    "parquet": (write_parquet, OWN),
    "tfrecord": (write_tfrecord, OWN),
    "arrays": (write_arrays, OWN),
    "adopted": (write_adopted, OWN),
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
    with raises(SourceError, "'prise'", FORMATS[name][1]["caption"]):
        read(source(tmp_path, name, own), COLUMNS)


def test_images_of_a_folder_and_their_path_columns(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"12345")
    spec = f"""
name: x
source: {{format: image_folder, path: {tmp_path}, columns: {{photo: image, kind: label, where: file_name}}}}
features: {{photo: {{kind: image, size: [8, 8]}}, kind: {{kind: category}}, where: {{kind: raw}}}}
"""
    result = read(reader_of(parse_spec(spec).source[0]), {"photo": IMAGE, "kind": CATEGORY, "where": TEXT})
    assert result.rows == [{"photo": b"fcat/1.png", "kind": "cat", "where": "cat/1.png"}]
    assert result.keys == [b"cat/1.png"]


def test_names_may_be_swapped_and_one_column_may_have_two_names(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\nx,1\n,2\n")
    csv = parse_spec(f"""
name: x
source: {{format: csv, path: {tmp_path}/rows.csv, columns: {{a: b, b: a, also: b}}}}
features: {{a: {{kind: number}}, b: {{kind: category}}, also: {{kind: number}}}}
""").source[0]
    result = read(reader_of(csv), {"a": NUMBER, "b": CATEGORY, "also": NUMBER})
    assert result.rows == [{"a": 1.0, "b": "x", "also": 1.0}]
    assert [(reject.reason, reject.column) for reject in result.rejects] == [("missing_value", "a")]
    with raises(SourceError, "'b'", "number", "'also'", "category"):
        read(reader_of(csv), {"a": NUMBER, "also": CATEGORY})


@pytest.mark.parametrize("name", ["parquet", "python"])
def test_the_default_key_follows_from_the_names_of_the_spec(tmp_path: Path, name: str) -> None:
    plain = [{"caption": text, "price": price, "class": kind} for text, price, kind in ROWS]
    pa.parquet.write_table(pa.Table.from_pylist(plain), tmp_path / "plain.parquet")
    expected = read(reader_of(parse_spec(f"""
name: x
source: {{format: parquet, path: {tmp_path}/plain.parquet}}
features: {{caption: {{kind: text}}}}
""").source[0]), COLUMNS).keys  # fmt: skip
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
    with raises(SpecError, *facts):
        parse_spec(
            f"name: x\nsource: {{format: csv, path: a, columns: {columns}}}\nfeatures: {{text: {{kind: text}}}}\n"
        )


JOINED = """
name: joined
source:
  - {format: webdataset, path: shards.tar, columns: {image: jpg;png, text: json.caption, id: __key__}}
  - {format: csv, path: rows.csv, columns: {image: picture, text: alt, id: name}}
key: id
features:
  image: {kind: image, size: [8, 8]}
  text: {kind: text}
"""


PIXELS = png(np.zeros((8, 8, 3), np.uint8), 8, 2)


@pytest.fixture
def joined(tmp_path: Path) -> Path:
    """A folder of two sources of different names, and the spec that joins them."""
    pairs = [[(f"{n}.png", PIXELS), (f"{n}.json", '{"caption": "from the tar"}')] for n in range(20)]
    write(tmp_path / "shards.tar", tar(*chain(*pairs)))
    (tmp_path / "1.png").write_bytes(PIXELS)
    (tmp_path / "rows.csv").write_text(
        "name,picture,alt,more\n" + "".join(f"row{n},1.png,a cell,x\n" for n in range(20))
    )
    (tmp_path / "dataset.yaml").write_text(JOINED)
    return tmp_path


def test_the_mapping_belongs_to_the_build_key(joined: Path) -> None:
    keys = set()
    for old, new in (("", ""), ("text: alt", "text: more"), ("jpg;png", "png;jpg")):
        (joined / "dataset.yaml").write_text(JOINED.replace(old, new))
        keys.add(make_plan(load_spec(str(joined / "dataset.yaml")), FILES).build_key)
    assert len(keys) == 3


@pytest.mark.slow
def test_sources_of_different_names_are_one_dataset(joined: Path) -> None:
    manifest = build(load_spec(str(joined / "dataset.yaml")), str(joined / "out")).manifest
    assert [(each["read"], each["written"], each["rejected"]) for each in manifest.sources] == [(20, 20, 0)] * 2
    [vocabulary] = (joined / "out").glob("versions/*/transform_fn/assets/*vocabulary.txt")
    assert set(vocabulary.read_text().split()) == {"from", "the", "tar", "a", "cell"}
