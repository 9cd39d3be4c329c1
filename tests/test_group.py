"""`group` of tables: rows of one image, in any order and any file, become one row; and boxes of several columns."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill import build, load_spec, open_dataset
from recordmill.pipeline.dataset.tfrecord import frame
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.grouped import GroupedReader
from recordmill.pipeline.sources.options import Csv
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, NUMBER, Read, read, write_jsonl

LIST, NAMES = Column(ColumnType.NUMBER, many=True), Column(ColumnType.CATEGORY, many=True)
COLUMNS: Columns = {"image": IMAGE, "width": NUMBER, "x": LIST, "class": NAMES}
HEADER = ["image", "width", "x", "class"]
Cells = list[str]
SIZES = st.sampled_from([100, 5_000, 1 << 20])


def table(folder: Path, *files: Sequence[Cells], header: Cells = HEADER) -> Path:
    for number, rows in enumerate(files):
        with (folder / f"{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    return folder


def grouped(folder: Path, asked: Columns = COLUMNS, chunk_bytes: int = 1 << 20, **options: Any) -> Read:
    source = {"format": "csv", "path": str(folder), "group": "image", **options}
    return read(reader_of(Csv.model_validate(source)), asked, chunk_bytes)


def expected(rows: Sequence[Cells]) -> list[dict[str, Any]]:
    """The same rows by plain Python."""
    found = dict[str, dict[str, Any]]()
    for image, width, x, name in rows:
        row = found.setdefault(image, {"image": b"f" + image.encode(), "width": float(width), "x": [], "class": []})
        row["x"] += [float(x)] if x else []
        row["class"] += [name] if name else []
    return list(found.values())


OBJECTS = st.lists(st.tuples(st.integers(-9, 9), st.sampled_from(["cat", "a dog, wet", 'a "b"'])), max_size=4)


@given(
    st.lists(OBJECTS, min_size=1, max_size=5), st.randoms(), st.integers(1, 3), st.sampled_from([100, 5_000, 1 << 20])
)
def test_rows_come_in_any_order_and_from_any_file(
    tmp_path_factory: pytest.TempPathFactory, images: list[list[tuple[int, str]]], random: Any, count: int, size: int
) -> None:
    rows = [
        [f"{number}.jpg", str(number), str(x), name]
        for number, objects in enumerate(images)
        for x, name in objects or [("", "")]
    ]
    random.shuffle(rows)
    files = [rows[start::count] for start in range(count)]
    found = grouped(table(tmp_path_factory.mktemp("rows"), *files), chunk_bytes=size)
    wanted = expected([row for file in files for row in file])
    assert (found.rows, found.rejects) == (wanted, [])
    assert found.keys == [row["image"][1:] for row in wanted]
    assert (found.plan.rows, found.plan.is_exact) == (len(images), True)
    assert_names(found.plan.notes, "`image`", f"{len(rows)}, to {len(images)} rows")


ROWS = [["a.jpg", "8", "1", "cat"], ["b.jpg", "9", "", ""], ["a.jpg", "8", "2", "dog"]]


def lines(rows: Sequence[Cells]) -> list[dict[str, Any]]:
    return [
        {"image": image, "width": int(width), "x": float(x) if x else None, "class": name or None}
        for image, width, x, name in rows
    ]


def test_other_tables_give_the_same_rows(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", lines(ROWS))
    (tmp_path / "a.json").write_text(json.dumps(lines(ROWS)))
    pa.parquet.write_table(pa.Table.from_pylist(lines(ROWS)), tmp_path / "a.parquet", row_group_size=1)
    for form, more in {"jsonl": "", "json": ", rows: '[]'", "parquet": ""}.items():
        text = f"name: a\nsource: {{format: {form}, path: {tmp_path}/a.{form}, group: image{more}}}\n"
        spec = parse_spec(f"{text}features: {{x: {{kind: numbers}}}}")
        found = read(reader_of(spec.source[0]), COLUMNS)
        assert (found.rows, found.rejects) == (expected(ROWS), [])


def test_a_row_without_a_group_is_a_reject(tmp_path: Path) -> None:
    """In Parquet, where the column may be missing."""
    rows = [{"image": "a", "x": 1.0}, {"image": None, "x": 2.0}, {"image": "a", "x": 3.0}, {"image": None, "x": 4.0}]
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    text = f"name: a\nsource: {{format: parquet, path: {tmp_path}/a.parquet, group: image}}\n"
    spec = parse_spec(f"{text}features: {{x: {{kind: numbers}}}}")
    found = read(reader_of(spec.source[0]), {"image": replace(CATEGORY, optional=True), "x": LIST})
    assert [row["x"] for row in found.rows] == [[1, 3]]
    assert [(each.reason, each.column) for each in found.rejects] == [("missing_value", "image")] * 2


def test_several_columns_make_a_group_and_columns_are_renamed(tmp_path: Path) -> None:
    rows = [["1", "a", "5"], ["1", "b", "6"], ["1", "a", "7"]]
    folder = table(tmp_path, rows, header=["day", "shop", "price"])
    found = grouped(folder, {"place": CATEGORY, "price": LIST}, group=["day", "place"], columns={"place": "shop"})
    assert found.rows == [{"place": "a", "price": [5, 7]}, {"place": "b", "price": [6]}]
    assert found.keys == [b"1:11:a", b"1:11:b"]


def test_lists_in_cells_and_empty_texts(tmp_path: Path) -> None:
    """As Global Wheat's `bbox`, and names with a separator of their own."""
    rows = [["a.jpg", "[1.0, 2, 3, 4]", "x|y"], ["a.jpg", "[5, 6, 7, 8]", "z"]]
    columns = {"bbox": Column(ColumnType.NUMBER, many=True, multiple=4)}
    columns["class"] = Column(ColumnType.CATEGORY, many=True, separator="|")
    found = grouped(table(tmp_path, rows, header=["image", "bbox", "class"]), columns)
    assert found.rows == [{"bbox": [1, 2, 3, 4, 5, 6, 7, 8], "class": ["x", "y", "z"]}]
    rows = [["a", "1 2", "x"], ["b", "", ""], ["a", "", "y"]]
    columns = {"runs": Column(ColumnType.TEXT, many=True), "class": NAMES}
    found = grouped(table(tmp_path, rows, header=["image", "runs", "class"]), columns)
    assert found.rows == [{"runs": ["1 2", ""], "class": ["x", "y"]}, {"runs": [], "class": []}]


REJECTS = [
    (["a.jpg", "7", "3", "cat"], "wrong_type", "width", b"a.jpg", ["`image`", "8.0 and 7.0"]),
    (["a.jpg", "8", "wide", "cat"], "wrong_type", "x", b"a.jpg", ["1.csv, line 3", "a number"]),
    (["a.jpg", "8", "3", ""], "missing_value", "class", b"a.jpg", ["1.csv, line 3", "empty"]),
    (["a.jpg", "", "3", "cat"], "missing_value", "width", b"a.jpg", ["1.csv, line 3"]),
    (["a.jpg", "8", "3"], "malformed_row", None, None, ["1.csv, line 3", "3 cells"]),
    (["../a.jpg", "8", "3", "cat"], "forbidden_path", "image", None, ["1.csv, line 3"]),
]


@pytest.mark.parametrize(("row", "reason", "column", "key", "facts"), REJECTS)
def test_a_bad_row_rejects_its_image(
    row: Cells, reason: str, column: str | None, key: bytes | None, facts: list[str], tmp_path: Path
) -> None:
    found = grouped(table(tmp_path, ROWS, [["c.jpg", "1", "1", "cat"], row]), chunk_bytes=40)
    (reject,) = found.rejects
    assert (reject.reason, reject.column, reject.key and reject.key.encode()) == (reason, column, key)
    assert_names(reject.message, *facts)
    kept = expected([*ROWS, ["c.jpg", "1", "1", "cat"]])
    assert found.rows == [each for each in kept if each["image"][1:] != key]
    assert found.plan.rows == len(found.rows) + 1


def test_a_class_without_numbers_adds_nothing_and_is_counted(tmp_path: Path) -> None:
    """As in RSNA's and VinDr's tables of findings."""
    rows = [["a.jpg", "8", "3", "cat"], ["a.jpg", "8", "", "No finding"], ["b.jpg", "7", "", "No finding"]]
    found = grouped(table(tmp_path, rows))
    assert [(row["x"], row["class"]) for row in found.rows] == [([3.0], ["cat"]), ([], [])]
    assert_names(found.plan.notes[-1], "class", "left out: 2")


def test_texts_that_differ_are_not_shown(tmp_path: Path) -> None:
    rows = [["a", "a secret"], ["a", "another"]]
    columns = {"note": Column(ColumnType.TEXT)}
    (reject,) = grouped(table(tmp_path, rows, header=["image", "note"]), columns).rejects
    assert (reject.reason, reject.column, "secret" in reject.message) == ("wrong_type", "note", False)


def test_a_group_is_found_by_its_first_row(tmp_path: Path) -> None:
    reader = reader_of(Csv(format="csv", path=str(table(tmp_path, ROWS, ROWS[1:])), group=("image",)))
    assert isinstance(reader, GroupedReader)
    (chunk,) = reader.plan(FILES, COLUMNS, 1 << 20).chunks
    assert [reader.locate(chunk, number) for number in range(2)] == [("0.csv", 2), ("0.csv", 3)]


def test_a_column_that_is_missing_or_a_list(tmp_path: Path) -> None:
    table(tmp_path, ROWS)
    with raises(SourceError, "0.csv", "'classes'", "class"):
        grouped(tmp_path, {**COLUMNS, "classes": NAMES})
    with raises(SourceError, "`group`", "'x'"):
        grouped(tmp_path, group="x")


@pytest.mark.parametrize(
    ("boxes", "facts"),
    [
        ("columns: [a, b, c]", ["columns", "x_min, y_min, x_max, y_max", "[a, b, c]"]),
        ("columns: [a, b, c, c]", ["columns", "[a, b, c, c]"]),
        ("columns: [ymin, xmin, ymax, xmax]", ["columns", "'ymin'", "x_min", "corners"]),
        ("columns: [xmin, xmax, ymin, ymax]", ["columns", "'xmax'", "y_min"]),
        ("columns: [box.x2, y1, XMin, y3]", ["columns", "'XMin'", "x_max"]),
        ("columns: [a, b, c, d], column: e", ["column", "`columns`"]),
    ],
)
def test_columns_of_boxes_are_four(boxes: str, facts: list[str]) -> None:
    features = "{image: {kind: image, size: [8, 8]}, boxes: {kind: boxes, image: image, order: corners, "
    text = f"name: a\nsource: {{format: csv, path: a.csv}}\nfeatures: {features}unit: absolute, {boxes}}}}}\n"
    with raises(SpecError, *facts):
        parse_spec(text)


SIDE = 40
IMAGES = [f"{number}.png" for number in range(12)]
BOXES = {
    image: [(3 * at + 1, at + 2, 3 * at + 9 + number, at + 12 + number) for at in range(number % 3)]
    for number, image in enumerate(IMAGES)
}


def retinanet(folder: Path) -> str:
    lines = [[each, *map(str, box), "cat"] for each, boxes in BOXES.items() for box in boxes or [("",) * 4]]
    rows = [line if line[1] else [line[0], *[""] * 5] for line in lines]
    (folder / "data/boxes.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    return "data/boxes.csv"


def bccd(folder: Path) -> str:
    rows = [(each, "RBC", x, x2, y, y2) for each, boxes in BOXES.items() for x, y, x2, y2 in boxes]
    text = io.StringIO()
    csv.writer(text).writerows([("filename", "cell_type", "xmin", "xmax", "ymin", "ymax"), *rows[::-1]])
    (folder / "data/boxes.csv").write_text(text.getvalue())
    return "data/boxes.csv"


def object_detection(folder: Path) -> str:
    from tests.test_tfrecord_source import example

    records = []
    for image, boxes in BOXES.items():
        sides = {f"image/object/bbox/{name}": [box[at] / SIDE for box in boxes]
                 for at, name in enumerate(("xmin", "ymin", "xmax", "ymax"))}  # fmt: skip
        labels = {"image/object/class/text": [b"cat"] * len(boxes), "image/object/class/label": [1] * len(boxes)}
        data = {"image/encoded": (folder / "data" / image).read_bytes(), "image/filename": image.encode()}
        records.append(frame(example(**data, **sides, **labels)))
        (folder / "data" / image).unlink()
    (folder / "data/train.record").write_bytes(b"".join(records))
    return "data"


@pytest.mark.slow
@pytest.mark.first(1)
@pytest.mark.parametrize("make", [retinanet, bccd, object_detection])
def test_what_init_writes_builds_to_boxes(make: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, image in enumerate(IMAGES):
        Image.new("RGB", (SIDE, SIDE), (number, 0, 0)).save(tmp_path / "data" / image)
    path = make(tmp_path)
    (tmp_path / "a.yaml").write_text(starter(str(tmp_path / path), FILES, folder=str(tmp_path)))
    build(load_spec(str(tmp_path / "a.yaml")), str(tmp_path / "out"))
    dataset = open_dataset(str(tmp_path / "out"))
    found = list[tuple[Any, ...]]()
    for split in dataset.splits:
        for row in dataset.records(split):
            found.append(tuple(tuple(round(SIDE * side) for side in box) for box in row.values["boxes"]))
    wanted = [tuple((y, x, y2, x2) for x, y, x2, y2 in boxes) for boxes in BOXES.values()]
    if make is bccd:  # its table has the images with boxes, from the last box to the first
        wanted = [boxes[::-1] for boxes in wanted if boxes]
    assert sorted(found) == sorted(wanted)


def test_init_groups_a_table_with_a_bad_cell(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = [f"{n % 30}.png,{'x' if n == 7 else 1},2,9,8,RBC\n" for n in range(60)]
    for number in range(30):
        Image.new("RGB", (SIDE, SIDE)).save(tmp_path / "data" / f"{number}.png")
    path = tmp_path / "data/boxes.csv"
    path.write_text("filename,xmin,ymin,xmax,ymax,class\n" + "".join(rows))
    made = yaml.safe_load(starter(str(path), FILES))
    assert made["source"]["group"] == "filename"
    assert made["features"]["boxes"]["columns"] == ["xmin", "ymin", "xmax", "ymax"]
