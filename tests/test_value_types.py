"""One table of (wanted type, value's type) holds in every format, independently of other rows."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.dataset.tfrecord import frame
from recordmill.pipeline.sources.faults import Faults, SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.options import (
    Csv,
    ImageFolder,
    JsonLines,
    Parquet,
    SourceOptions,
    TFRecord,
    UserRows,
    WebDataset,
)
from recordmill.pipeline.sources.typing.arrays import python_field
from recordmill.pipeline.sources.typing.checks import check_column
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.pipeline.sources.typing.values import misfit
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.transforms.base.columns import Column, ColumnType
from tests.messages import raises
from tests.tables import CATEGORY, FILES, INTEGER, NUMBER, TEXT, tar, write, write_jsonl
from tests.test_tfrecord_source import example

PARSED = Column(ColumnType.NUMBER, parse=True)
TEXTS, CATEGORIES, NUMBERS, INTEGERS = (Column(kind, many=True) for kind in list(ColumnType)[:4])
PARSED_LIST = Column(ColumnType.NUMBER, many=True, parse=True)
COLUMNS = {
    "text": TEXT, "name": CATEGORY, "number": NUMBER, "parsed": PARSED, "integer": INTEGER,
    "texts": TEXTS, "names": CATEGORIES, "numbers": NUMBERS, "parsed list": PARSED_LIST, "integers": INTEGERS,
}  # fmt: skip
NO, GONE, BIG = "wrong_type", "missing_value", 1 << 64

TABLE: dict[str, tuple[Any, list[Any], list[Any]]] = {
    #                    the value      text   name   number parsed integer; lists of the same
    "a string":         ("x",          ["x",   "x",   NO,    NO,    NO], [["x"], ["x"], NO, NO, NO]),
    "a digit":          ("7",          ["7",   "7",   NO,    7.0,   NO], [["7"], ["7"], [7.0], [7.0], [7]]),
    "an empty string":  ("",           ["",    GONE,  NO,    GONE,  NO], [[], [], [], [], []]),
    "cells":            ("7,8.5",      ["7,8.5", "7,8.5", NO, NO,   NO], [["7", "8.5"]] * 2 + [[7.0, 8.5]] * 2 + [NO]),
    "a whole number":   (7,            [NO,    "7",   7.0,   7.0,   7],  [NO, ["7"], [7.0], [7.0], [7]]),
    "beyond 64 bits":   (BIG,          [NO, f"{BIG}", 2.0**64, 2.0**64, NO], [NO, [f"{BIG}"], *[[2.0**64]] * 2, NO]),
    "beyond float32":   (10**90,       [NO] * 5,                         [NO] * 5),
    "a fraction":       (7.5,          [NO,    NO,    7.5,   7.5,   NO], [NO, NO, [7.5], [7.5], NO]),
    "a whole float":    (7.0,          [NO,    NO,    7.0,   7.0,   NO], [NO, NO, [7.0], [7.0], NO]),
    "not a number":     (float("nan"), [NO] * 5,                         [NO] * 5),
    "a boolean":        (True,         [NO,    "true", NO,   NO,    NO], [NO, ["true"], NO, NO, NO]),
    "null":             (None,         [GONE] * 5,                       [GONE] * 5),
    "an object":        ({"a": 1},     [NO] * 5,                         [NO] * 5),
    "a list":           (["x"],        [NO] * 5,                         [["x"], ["x"], NO, NO, NO]),
    "digits":           (["7"],        [NO] * 5,                         [["7"], ["7"], NO, [7.0], NO]),
    "whole numbers":    ([7, 8],       [NO] * 5,                         [NO, ["7", "8"], [7.0, 8.0], [7, 8], [7, 8]]),
    "an empty list":    ([],           [NO] * 5,                         [[], [], [], [], []]),
    "nested":           ([[7], [8]],   [NO] * 5,                         [NO, ["7", "8"], [7.0, 8.0], [7, 8], [7, 8]]),
    "nulls":            ([7, None],    [NO] * 5,                         [NO, GONE, GONE, GONE, GONE]),
    "of several types": ([7, "x"],     [NO] * 5,                         [NO, ["7", "x"], NO, NO, NO]),
}  # fmt: skip
"""By the value's type a value, and what each of `COLUMNS` makes of it: its own value, or the reason of its reject."""
VALUES = [value for value, _, _ in TABLE.values()]


def write_lines(folder: Path, values: list[Any]) -> SourceOptions:
    path = write_jsonl(folder / "rows.jsonl", [{"v": value} for value in values])
    return JsonLines(format="jsonl", path=str(path))


def write_metadata(folder: Path, values: list[Any]) -> SourceOptions:
    rows = [{"file_name": f"{row}.png", "v": value} for row, value in enumerate(values)]
    write_jsonl(folder / "metadata.jsonl", rows)
    return ImageFolder(format="image_folder", path=str(folder))


def write_captions(folder: Path, values: list[Any]) -> SourceOptions:
    for row, value in enumerate(values):
        (folder / f"{row:03d}.png").touch()
        (folder / f"{row:03d}.json").write_text(json.dumps({"v": value}))
    return ImageFolder(format="image_folder", path=str(folder))


def write_tar(folder: Path, values: list[Any]) -> SourceOptions:
    members = ((f"{row:03d}.json", json.dumps({"v": value})) for row, value in enumerate(values))
    write(folder / "rows.tar", tar(*members))
    return WebDataset(format="webdataset", path=str(folder / "rows.tar"), columns={"v": "json.v"})


def write_python(folder: Path, values: list[Any]) -> SourceOptions:
    rows = f"nan = float('nan')\n\n\ndef rows():\n    return [{{'v': v}} for v in {values!r}]\n"
    (folder / "typed_rows.py").write_text(rows)
    code = UserCode.of(["typed_rows:rows"], str(folder))
    assert code is not None
    code.install()
    return UserRows(format="python", rows="typed_rows:rows", path=str(folder))


MIXED: dict[str, Callable[[Path, list[Any]], SourceOptions]] = {
    "jsonl": write_lines,
    "image_folder's metadata": write_metadata,
    "image_folder's captions": write_captions,
    "webdataset": write_tar,
    "python": write_python,
}


def outcomes(source: SourceOptions, column: Column, chunk_bytes: int = 1 << 20) -> list[Any]:
    """Returns each row's value, or its reject reason."""
    result, columns = dict[tuple[int, int], Any](), {"v": column}
    for number, chunk in enumerate(reader_of(source).plan(FILES, columns, chunk_bytes).chunks):
        for block in reader_of(source).read(chunk, FILES, columns, None):
            good = zip(block.table["@position"].to_pylist(), block.table["v"].to_pylist(), strict=True)
            result |= {(number, position): value for position, value in good}
            result |= {(number, reject.position): reject.reason for reject in block.rejects}
            named = {reject.column for reject in block.rejects if reject.reason != "malformed_row"}
            assert named <= {source.columns.get("v", "v")}
    return [result[row] for row in sorted(result)]


@pytest.mark.parametrize("number", range(len(COLUMNS)), ids=COLUMNS)
@pytest.mark.parametrize("name", MIXED)
def test_every_format_that_holds_any_value_gives_the_table(tmp_path: Path, name: str, number: int) -> None:
    column = list(COLUMNS.values())[number]
    expected = [[*single, *many][number] for _, single, many in TABLE.values()]
    found = outcomes(MIXED[name](tmp_path, VALUES), column)
    assert dict(zip(TABLE, found, strict=True)) == dict(zip(TABLE, expected, strict=True))


SINGLE = {name: number for number, (name, column) in enumerate(COLUMNS.items()) if not column.many}
SCALARS = ("a string", "a digit", "an empty string", "a whole number", "a fraction", "not a number", "null")


@pytest.mark.parametrize("name", SINGLE)
def test_a_tfrecord_file_gives_the_table(tmp_path: Path, name: str) -> None:
    values = [TABLE[name][0] for name in SCALARS]
    present = [{"v": value.encode() if isinstance(value, str) else value} for value in [0, *values]]
    rows = [{"w": 1} | ({} if row["v"] is None else row) for row in present]
    (tmp_path / "rows.tfrecord").write_bytes(b"".join(frame(example(**row)) for row in rows))
    found = outcomes(TFRecord(format="tfrecord", path=str(tmp_path / "rows.tfrecord")), COLUMNS[name])[1:]
    expected = [TABLE[value][1][SINGLE[name]] for value in SCALARS]
    assert dict(zip(SCALARS, found, strict=True)) == dict(zip(SCALARS, expected, strict=True))


@pytest.mark.parametrize("number", range(len(COLUMNS)), ids=COLUMNS)
def test_a_parquet_column_of_a_wrong_type_ends_the_build_and_others_give_the_table(tmp_path: Path, number: int) -> None:
    column = list(COLUMNS.values())[number]
    for name, (value, single, many) in TABLE.items():
        if name in ("beyond 64 bits", "beyond float32", "of several types"):  # no type of Arrow's own
            continue
        pa.parquet.write_table(pa.table({"v": [value]}), tmp_path / "rows.parquet")
        source = Parquet(format="parquet", path=str(tmp_path / "rows.parquet"))
        expected = [*single, *many][number]
        if expected != NO or not misfit(column, pa.array([value]).type):
            assert outcomes(source, column) == [expected], name
        else:
            with raises(SourceError, "'v'", "wanted"):
                outcomes(source, column)


def test_a_cell_of_csv_has_no_type_and_is_what_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("v\nx\n7\n7.5\nTrue\n")
    source = Csv(format="csv", path=str(tmp_path / "rows.csv"))
    found = {name: outcomes(source, column) for name, column in COLUMNS.items() if not column.many}
    texts, numbers = ["x", "7", "7.5", "True"], [NO, 7.0, 7.5, NO]
    assert found == dict(zip(found, [texts, texts, numbers, numbers, [NO, 7, NO, NO]], strict=True))


LEAVES = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=4) | st.just("7")
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=6
)


ROWS, ASKED = st.lists(ANY, min_size=2, max_size=8), st.sampled_from(list(COLUMNS.values()))


@given(ROWS, ASKED, st.sampled_from(["v", "v.a", "v.a.b"]))
def test_any_line_has_the_outcome_that_it_has_alone(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], column: Column, name: str
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    asked = replace(column, optional=True)

    def found(values: list[Any]) -> list[Any]:
        source = write_lines(folder, values).model_copy(update={"columns": {"v": name}})
        return outcomes(source, asked)

    together = found(values)
    assert repr(together) == repr([found([value])[0] for value in values])  # 0.0 == -0.0
    assert together == [by_python(value, name, asked) for value in values]


def nested(levels: int) -> str:
    return f'{{"v": 1.5, "x": {"[" * levels}{"]" * levels}}}'


ODD_LINES = {
    '{"v": -0}': [-0.0, [-0.0], 0, "0"],
    '{"v": [-0, 1.5, 7, -0.0]}': [NO, [-0.0, 1.5, 7.0, -0.0], NO, NO],
    '{"v": 7, "x": [Inf, -Inf, -NaN, "Inf \\" Inf"]}': [7.0, [7.0], 7, "7"],
    '{"v": -Inf}': [NO] * 4,
    nested(199): [1.5, [1.5], NO, NO],
    nested(200): ["malformed_row"] * 4,
    nested(5000): ["malformed_row"] * 4,
}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: line[:40])
def test_an_odd_line_has_the_same_outcome_beside_any_other(tmp_path: Path, line: str, number: int) -> None:
    column, expected = (NUMBER, NUMBERS, INTEGER, CATEGORY)[number], ODD_LINES[line][number]
    path = tmp_path / "rows.jsonl"
    for others in (['{"v": 1}'], ['{"v": 1.5}'], ['{"v": [1.5]}'], ['{"v": "x"}'], ['{"v": 1.5}', '{"v": {"a": [1]}}']):
        path.write_text("\n".join([*others, line]))
        found = outcomes(JsonLines(format="jsonl", path=str(path)), column)[-1]
        assert repr(found) == repr(expected), others


def by_python(value: Any, name: str, column: Column) -> Any:
    """Returns the outcome of a function's row."""
    faults: Faults = {}
    typed = typed_objects(name, column, [python_field({"v": value}, name)], ("", ""), faults)
    [checked] = check_column(name, column, typed, faults).to_pylist()
    return faults[0].reason if faults else checked


NESTED = '{"a": {"b": "y"}}'
LINES: list[dict[str, Any]] = [
    {'{"a.b": "x", "a": {"b": "y"}}': "x", NESTED: "y", '{"a.b": null, "a": {"b": "y"}}': GONE},
    {NESTED: "y", '{"a.b": "x", "a": {"b": "y"}}': "x", '{"a": [{"b": "z"}]}': NO},
    {NESTED: "y", '{"a": 7}': GONE, '{"a": {"b": 7}}': NO, '{"a": {"b": 7, "b": 7}}': "malformed_row"},
    {
        NESTED: "y",
        '{"a": {"b": 7}, "a": 8}': "malformed_row",
        '{"c": {"b": 1, "b": 2}, "a": {"b": 7, "d": 1, "d": 2}}': NO,
    },
    {NESTED: "y", '{"a": {"b": 7}, "c": 1e400}': "malformed_row", r'{"a": {"b": 7}, "c": "\ud800"}': "malformed_row"},
    {NESTED: "y", r'{"a": {"b": ["\ud800"]}}': "invalid_utf8", '{"a": {"b": 7}, "c": NaN}': NO},
]


@pytest.mark.parametrize("lines", LINES)
def test_fields_inside_others_are_those_of_their_own_line(tmp_path: Path, lines: dict[str, Any]) -> None:
    for order in permutations(lines):
        (tmp_path / "rows.jsonl").write_text("".join(line + "\n" for line in order))
        source = reader_of(JsonLines(format="jsonl", path=str(tmp_path / "rows.jsonl"), columns={"v": "a.b"}))
        [chunk] = source.plan(FILES, {"v": replace(TEXT, optional=True)}, 1 << 20).chunks
        [block] = source.read(chunk, FILES, {"v": TEXT}, None)
        found = dict(zip(block.table["@position"].to_pylist(), block.table["v"].to_pylist(), strict=True))
        found |= {reject.position: reject.reason for reject in block.rejects}
        assert [found[row] for row in range(len(lines))] == [lines[line] for line in order]
