"""The same rows from every source: the dataset of every kind, written in each format, gives equal keyed rows."""

import base64
import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from recordmill.pipeline.adopt.adopt import Adoption, adopt_files
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.images.read import BuildImageReader
from recordmill.pipeline.build.plan.plan import make_plan, planned_build
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.spec.model import parse_spec
from tests.every_kind import make, spec_text
from tests.tables import tar, write

ROWS = 60
PICTURES = ("image", "photo", "frames")
Row = dict[str, Any]
Write = Callable[[Path, list[Row]], str]


def _cells(row: Row) -> list[str]:
    """A row as CSV has it: lists as JSON."""
    return ["" if value is None else value if isinstance(value, str) else json.dumps(value) for value in row.values()]


def write_csv(folder: Path, rows: list[Row], end: str = ".csv", separator: str = ",") -> str:
    lines = [list(rows[0]), *map(_cells, rows)]
    quoted = (separator.join('"' + cell.replace('"', '""') + '"' for cell in line) for line in lines)
    (folder / f"rows{end}").write_bytes("\n".join(quoted).encode("utf-8-sig"))
    return f"rows{end}"


def write_jsonl(folder: Path, rows: list[Row], pack: Callable[[bytes], bytes] = bytes, end: str = "") -> str:
    (folder / f"rows.jsonl{end}").write_bytes(pack("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return f"rows.jsonl{end}"


def _inside(folder: Path, value: Any) -> Any:
    """Replaces pictures' paths by bytes."""
    if isinstance(value, list):
        return [_inside(folder, one) for one in value]
    return value and (folder / value).read_bytes()


def write_parquet(folder: Path, rows: list[Row]) -> str:
    inside = [row | {name: _inside(folder, row[name]) for name in PICTURES if name in row} for row in rows]
    pa.parquet.write_table(pa.Table.from_pylist(inside), folder / "rows.parquet", row_group_size=25)
    return "rows.parquet"


def write_tfrecord(folder: Path, rows: list[Row]) -> str:
    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as writer:
        for row in rows:
            features = {
                name: _feature(_inside(folder, value) if name in PICTURES else value) for name, value in row.items()
            }
            present = {name: feature for name, feature in features.items() if feature is not None}
            writer.write(tf.train.Example(features=tf.train.Features(feature=present)).SerializeToString())
    return "rows.tfrecord"


def write_adopted(folder: Path, rows: list[Row]) -> str:
    adopt_files(Adoption({"": [str(folder / write_tfrecord(folder, rows))]}, str(folder / "adopted")))
    return "adopted"


def _feature(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = json.dumps(value)
    flat = (
        [one for inner in value for one in (inner if isinstance(inner, list) else [inner])]
        if isinstance(value, list)
        else [value]
    )
    if all(isinstance(one, int) for one in flat):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=flat))
    if all(isinstance(one, int | float) for one in flat):
        return tf.train.Feature(float_list=tf.train.FloatList(value=flat))
    encoded = [one.encode() if isinstance(one, str) else one for one in flat]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))


def write_tar(folder: Path, rows: list[Row]) -> str:
    members = list[tuple[str, bytes]]()
    for row in rows:
        pictures = [
            (f"{row['id']}.{name}", (folder / row[name]).read_bytes()) for name in ("image", "photo") if row[name]
        ]
        members += [(f"{row['id']}.json", json.dumps(row).encode()), *pictures]
    write(folder / "rows.tar", tar(*members))
    return "rows.tar"


def write_document(folder: Path, rows: list[Row]) -> str:
    parts = [{"rows": rows[start : start + 7], "of": start} for start in range(0, len(rows), 7)]
    (folder / "rows.json").write_text(json.dumps({"about": [{"rows": []}], "data": parts}, indent=1))
    return "rows.json"


def write_aligned(folder: Path, rows: list[Row]) -> str:
    (folder / "aligned").mkdir()
    for name, cells in zip(rows[0], zip(*map(_cells, rows), strict=True), strict=True):
        (folder / f"aligned/{name}.txt").write_text("".join(f"{cell}\n" for cell in cells))
    return "aligned"


def write_python(folder: Path, rows: list[Row]) -> str:
    write_jsonl(folder, rows)
    (folder / "own_rows.py").write_text(
        "import json, pathlib\n\n\ndef rows(path):\n"
        "    for line in pathlib.Path(path).read_text().splitlines():\n        yield json.loads(line)\n"
    )
    return "rows.jsonl"


def _urls(folder: Path, rows: list[Row]) -> list[Row]:
    """The rows with pictures as `data:` URLs."""
    return [
        row | {"image": "data:;base64," + base64.b64encode((folder / row["image"]).read_bytes()).decode()}
        for row in rows
    ]


SOURCES: dict[str, tuple[str, Write]] = {
    "csv": ("csv", write_csv),
    "tsv": ("tsv", lambda folder, rows: write_csv(folder, rows, ".tsv", "\t")),
    "jsonl.gz": ("jsonl", lambda folder, rows: write_jsonl(folder, rows, gzip.compress, ".gz")),
    "jsonl.bz2": ("jsonl", lambda folder, rows: write_jsonl(folder, rows, bz2.compress, ".bz2")),
    "json": ("json", write_document),
    "joined text": ("text", write_aligned),
    "data URLs": ("jsonl", lambda folder, rows: write_jsonl(folder, _urls(folder, rows))),
    "parquet": ("parquet", write_parquet),
    "tfrecord": ("tfrecord", write_tfrecord),
    "adopted": ("adopted", write_adopted),
    "webdataset": ("webdataset", write_tar),
    "python": ("python", write_python),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    make(folder, ROWS)
    return folder


@pytest.fixture(scope="module")
def raw(inputs: Path) -> list[Row]:
    """The rows with every column in each; a flat list of boxes, since not every format nests."""
    lines = [line for file in sorted(inputs.glob("?.jsonl")) for line in file.read_text().splitlines()]
    rows = [dict.fromkeys(("tools", "gap", "maybe", "photo", "steps")) | json.loads(line) for line in lines]
    return [row | {"boxes": [float(n) for box in row["boxes"] for n in box]} for row in rows]


def _others(feature: Any) -> list[tuple[str, str]]:
    """The columns of a feature under other options than `column`."""
    options = {"chat": ("tools",), "pair": ("first", "second")}.get(feature.kind, ())
    return [(option, getattr(feature, option)) for option in options]


def keyed(folder: Path, source: str, columns: dict[str, str]) -> dict[bytes, Row]:
    """The keyed rows of a source by key, pictures as bytes; `columns` are the source's names of columns."""
    spec = parse_spec(spec_text(source, arrays=True))
    renamed = {
        name: feature.model_copy(
            update={"column": columns.get(feature.column or name, feature.column or name)}
            | {option: columns.get(name, name) for option, name in _others(feature)}
        )
        for name, feature in spec.features.items()
    }
    spec = spec.model_copy(update={"features": renamed, "key": tuple(columns.get(name, name) for name in spec.key)})
    spec._folder = str(folder)
    files = BeamFiles()
    plan = make_plan(spec, files, RunOptions(chunk_bytes=20_000))
    work = planned_build(plan, str(folder), files, inline=False, threads=1)
    pictures = BuildImageReader(files, work.roots, str(folder))
    found: dict[bytes, Row] = {}
    for chunk in plan.chunks:
        for block in work.readers[chunk.source].read(chunk, files, work.schema.columns, work.schema.source_key):
            rows, rejects = key_rows(block, chunk, work.schema, work.layout)
            assert rejects == []
            for row in rows.to_pylist():
                kept = {name: row[name] for name in row.keys() - {"@source", "@chunk", "@position", "@group"}}
                for name in ("image", "missing", "mask", "any", "frames"):
                    kept[name] = _bytes(pictures, chunk.source, row[name])
                found[row["@key"]] = kept
    return found


def _bytes(pictures: BuildImageReader, source: int, value: Any) -> Any:
    if isinstance(value, list):
        return [_bytes(pictures, source, one) for one in value]
    return pictures.read(source, value) if value else b""


@pytest.fixture(scope="module")
def expected(inputs: Path) -> dict[bytes, Row]:
    return keyed(inputs, f"{{format: jsonl, path: '{inputs}/?.jsonl'}}", {})


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_rows(
    name: str, inputs: Path, raw: list[Row], expected: dict[bytes, Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    form, write = SOURCES[name]
    path = inputs / write(inputs, raw)
    columns: dict[str, str] = {}
    source = f"{{format: {form}, path: {path}}}"
    if form == "json":
        source = f"{{format: json, path: {path}, rows: 'data[].rows[]'}}"
    if form == "text":
        files = {column: f"{column}.txt" for column in parse_spec(spec_text(source, arrays=True)).columns()}
        source = f"{{format: text, path: {path}, images: {inputs}, columns: {json.dumps(files)}}}"
    if form == "webdataset":
        columns = {column: f"json.{column}" for column in raw[0]} | {"image": "image", "photo": "photo"}
    if form == "python":
        source = f"{{format: python, rows: 'own_rows:rows', path: {inputs}, options: {{path: {path}}}}}"
    found = keyed(inputs, source, columns)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        if form == "webdataset":  # pictures lie in the tar file, lists of them do not
            row = row | {"frames": found[key]["frames"]}
        assert found[key].keys() == row.keys()
        for column, value in row.items():
            assert str(found[key][column]) == str(value), (key, column)  # NaN is like NaN
