"""Arrow and Python values of any type become a column's type, or faults: each row for itself."""

import datetime as dt
import uuid
from dataclasses import replace
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recordmill.pipeline.sources.faults import Faults
from recordmill.pipeline.sources.typing.arrays import arrow_type, lookup, python_field, python_names
from recordmill.pipeline.sources.typing.checks import row_digests
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.pipeline.sources.typing.values import misfit, typed_values
from recordmill.transforms.base.columns import Column, ColumnType
from tests.messages import assert_names
from tests.tables import CATEGORY, IMAGE, INTEGER, NUMBER, TEXT

NUMBERS, TEXTS = replace(NUMBER, many=True), replace(TEXT, many=True)
NOON = dt.datetime(2026, 11, 20, 12, 0, 0, 500_000)
ID = uuid.UUID(int=7)


def typed(column: Column, values: pa.Array, folder: str = "") -> tuple[list[Any], Faults]:
    faults: Faults = {}
    found = typed_values("c", column, values, ("root", folder), faults)
    found.validate(full=column.type is not ColumnType.TEXT)
    assert found.type == arrow_type(column)
    return found.to_pylist(), faults


TAKEN: list[tuple[Column, Any, pa.DataType | None, list[Any]]] = [
    (TEXT, ["a", None, ""], pa.string(), ["a", None, ""]),
    (TEXT, ["a"], pa.large_string(), ["a"]),
    (TEXT, ["a", None], pa.string_view(), ["a", None]),
    (TEXT, ["a", "b", "a"], pa.dictionary(pa.int8(), pa.large_string()), ["a", "b", "a"]),
    (TEXT, [b"\xc3\xbc"], pa.binary(), ["ü"]),
    (TEXT, [b"ab"], pa.binary(2), ["ab"]),
    (TEXT, [None], pa.null(), [None]),
    (CATEGORY, [7, None], pa.uint64(), ["7", None]),
    (CATEGORY, [True, False], pa.bool_(), ["true", "false"]),
    (CATEGORY, [Decimal(7)], pa.decimal128(38, 0), ["7"]),
    (CATEGORY, [NOON.date()], pa.date32(), ["2026-11-20"]),
    (CATEGORY, [NOON.date()], pa.date64(), ["2026-11-20"]),
    (CATEGORY, [NOON], pa.timestamp("us"), ["2026-11-20T12:00:00.5"]),
    (CATEGORY, [NOON], pa.timestamp("ns"), ["2026-11-20T12:00:00.5"]),
    (CATEGORY, [dt.datetime(2026, 11, 20, 10)], pa.timestamp("ms"), ["2026-11-20T10:00:00"]),
    (CATEGORY, [NOON], pa.timestamp("us", "Europe/Berlin"), ["2026-11-20T12:00:00.5Z"]),
    (NUMBER, [1, 255], pa.uint8(), [1.0, 255.0]),
    (NUMBER, [1.5, None], pa.float16(), [1.5, None]),
    (NUMBER, [(1 << 53) + 1], pa.int64(), [float(1 << 53)]),
    (NUMBER, [Decimal("1.25")], pa.decimal32(5, 2), [1.25]),
    (INTEGER, [1, None], pa.int8(), [1, None]),
    (INTEGER, [Decimal(-7)], pa.decimal32(5, 0), [-7]),
    (IMAGE, ["a.png", "", None], pa.string(), [b"fx/a.png", None, None]),
    (IMAGE, ["data:,ab"], pa.large_string(), [b"iab"]),
    (IMAGE, [b"\xff\xd8", b"", None], pa.large_binary(), [b"i\xff\xd8", b"i", None]),
    (NUMBERS, [[1, 2], [], None], pa.list_(pa.int32()), [[1, 2], [], None]),
    (NUMBERS, [[1, 2], None], pa.list_(pa.float32(), 2), [[1, 2], None]),
    (NUMBERS, [[[1], [2, 3]], [[], []], None], pa.large_list(pa.list_(pa.int8())), [[1, 2, 3], [], None]),
    (NUMBERS, [[1], [2, 3]], pa.list_view(pa.int8()), [[1], [2, 3]]),
    (NUMBERS, [7, None], pa.int8(), [[7], None]),
    (NUMBERS, ["1, 2.5", "[[3], 4]", "", None], pa.string(), [[1, 2.5], [3, 4], [], None]),
    (TEXTS, [b"a,b"], pa.binary(), [["a", "b"]]),
    (replace(TEXT, many=True, separator="|"), ["a, b|c"], pa.string(), [["a, b", "c"]]),
    (replace(IMAGE, many=True), [["a.png", "b.png"]], pa.list_(pa.string()), [[b"fx/a.png", b"fx/b.png"]]),
    (replace(IMAGE, many=True), [b"\xff"], pa.binary(), [[b"i\xff"]]),
]


@pytest.mark.parametrize(("column", "values", "kind", "expected"), TAKEN)
def test_what_is_taken(column: Column, values: Any, kind: pa.DataType, expected: list[Any]) -> None:
    array = values if kind is None else pa.array(values, kind)
    assert typed(column, array, "x") == (expected, {})
    assert misfit(column, array.type) is None
    twice = pa.concat_arrays([array, array]).slice(len(array))
    assert typed(column, twice, "x") == (expected, {})


@pytest.mark.parametrize(
    ("column", "values", "facts"),
    [
        (TEXT, pa.array([[b"a"]]), ("string", "list")),
        (CATEGORY, pa.array([7.0]), ("string", "date", "float")),
        (NUMBER, pa.array([True]), ("number", "boolean")),
        (NUMBER, pa.array(["1"]), ("number", "string", "`parse: true`")),
        (NUMBER, pa.array([NOON]), ("number", "time")),
        (NUMBER, pa.array([dt.timedelta(1)]), ("number", "duration")),
        (INTEGER, pa.array([1.0]), ("64-bit integer", "float")),
        (INTEGER, pa.array([Decimal("1.0")]), ("64-bit integer", "decimal")),
        (IMAGE, pa.array([{"bytes": 1}]), ("path or bytes", "object")),
        (IMAGE, pa.array([{"b": b""}]), ("path or bytes", "object")),
        (NUMBERS, pa.array([[{"a": 1}]]), ("list", "number", "object")),
        (TEXT, pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), ("string", "map")),
    ],
)
def test_types_that_are_refused(column: Column, values: pa.Array, facts: tuple[str, ...]) -> None:
    with_null = pa.concat_arrays([values, pa.nulls(1, values.type)])
    found, faults = typed(column, with_null)
    assert found[-1] is None
    assert {row: (fault.reason, fault.column) for row, fault in faults.items()} == {0: ("wrong_type", "c")}
    assert_names(faults[0].message, *facts, misfit(column, values.type))


@pytest.mark.parametrize("kind", [TEXT, NUMBER, CATEGORY])
@pytest.mark.parametrize("cell", ["['a', 'b']", "[1 2]", "[1, None]"])
def test_brackets_without_json_are_refused(kind: Column, cell: str) -> None:
    values, faults = typed(replace(kind, many=True), pa.array(["[1]", cell, ""]))
    assert [value is None for value in values] == [False, True, False]
    assert [(row, "json.dumps" in fault.message) for row, fault in faults.items()] == [(1, True)]


def test_values_that_are_refused() -> None:
    beyond = [1, 1 << 63, None]
    assert typed(INTEGER, pa.array(beyond, pa.uint64()))[0] == [1, None, None]
    assert typed(INTEGER, pa.array([*map(Decimal, beyond[:2]), None], pa.decimal128(30, 0)))[0] == [1, None, None]
    _, faults = typed(replace(INTEGER, many=True), pa.array([[1], beyond[:2]], pa.list_(pa.uint64())))
    assert faults.keys() == {1}
    assert_names(faults[1].message, "list", "64-bit integer", "64 bits")
    _, faults = typed(NUMBERS, pa.array([[[1]], [[1], None], [None, []]], pa.list_(pa.list_(pa.int8()))))
    assert {row: fault.reason for row, fault in faults.items()} == {1: "missing_value", 2: "missing_value"}
    _, faults = typed(NUMBERS, pa.array(["1", "1;2"]))
    assert faults.keys() == {1}
    assert_names(faults[1].message, "list", "number", "string")
    _, faults = typed(IMAGE, pa.array(["/etc/a.png", "root/a.png", "../a.png"]), "x")
    assert {row: fault.reason for row, fault in faults.items()} == {0: "forbidden_path"}


def test_encodings_do_not_matter() -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16)))
    assert typed(CATEGORY, ids)[0] == [str(ID), None]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))
    assert typed(TEXT, runs)[0] == ["a", "a", None]
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
    assert typed(NUMBERS, tensors)[0] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    inner = pa.array([["a"], ["b", "a"]], pa.list_(pa.dictionary(pa.int8(), pa.string())))
    assert typed(TEXTS, inner)[0] == [["a"], ["b", "a"]]


def test_fields_that_are_not_there() -> None:
    table = pa.table({"a.b": ["x"], "a": [{"b": "y"}], "meta": [{"author": None}], "objects": [[{"bbox": [1]}]]})
    for name in ("x", "meta.x", "a.b.c", "objects.bbox.x", ".a", "a.", ""):
        assert lookup(table, name) is None
        assert python_field({"a.b": 1, "meta": {"author": None}}, name) is None
    assert python_names({"a": 1, "o": [{"b": {"c": 1}}, {"d": 2}]}) == ["a", "o", "o.b", "o.b.c", "o.d"]


class Refused(tuple[str, ...]):
    """The facts of a message."""


PYTHON: list[tuple[Column, Any, Any]] = [
    (NUMBER, np.float32(0.5), 0.5),
    (NUMBER, np.array(3), 3.0),
    (NUMBER, Decimal("1.5"), 1.5),
    (CATEGORY, -(10**75), f"-1{'0' * 75}"),
    (CATEGORY, 10**76, Refused(["string", "date", "76 digits"])),
    (CATEGORY, Decimal("7"), "7"),
    (NUMBER, Decimal("1E+999999"), float("inf")),
    (replace(NUMBER, parse=True), " 1.5", 1.5),
    (replace(NUMBER, parse=True), b"1e3", 1000.0),
    (replace(NUMBERS, parse=True), ["1", 2, 2.5], [1.0, 2.0, 2.5]),
    (NUMBER, 1 + 2j, Refused(["number", "complex"])),
    (NUMBERS, np.array([[1, 2], [3, 4]], ">i2"), [1, 2, 3, 4]),
    (NUMBERS, (1, [np.float16(2), np.array([3.0])]), [1, 2, 3]),
    (NUMBERS, np.array([1j]), Refused(["number", "array", "complex128"])),
    (NUMBERS, [1, "2"], Refused(["list", "number", "string", "`parse: true`"])),
    (CATEGORY, np.bool_(True), "true"),
    (CATEGORY, NOON.date(), "2026-11-20"),
    (CATEGORY, NOON, "2026-11-20T12:00:00.5"),
    (CATEGORY, NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=1))), "2026-11-20T11:00:00.5Z"),
    (CATEGORY, np.datetime64("2026-11-20"), "2026-11-20"),
    (CATEGORY, pd.NaT, None),
    (TEXT, np.str_("a"), "a"),
    (TEXT, bytearray(b"a"), "a"),
    (TEXTS, np.array(["a", 1], object), Refused(["list", "string", "integer"])),
    (IMAGE, Path("a.png"), b"fa.png"),
    (IMAGE, b"\xff", b"i\xff"),
    (IMAGE, {"bytes": b"\xff", "path": "/a"}, b"i\xff"),
    (IMAGE, np.zeros((2, 2), np.uint8), Refused(["path or bytes", "list"])),
]


@pytest.mark.parametrize(("column", "value", "expected"), PYTHON)
def test_python_values(column: Column, value: Any, expected: Any) -> None:
    faults: Faults = {}
    (found,) = typed_objects("c", column, [value], ("", ""), faults).to_pylist()
    if isinstance(expected, Refused):
        assert_names(faults[0].message, *expected)
    else:
        assert (found, faults) == (expected, {})


def test_a_surrogate_is_refused() -> None:
    for text in ("\udcff", "\ud800"):
        with pytest.raises(UnicodeDecodeError):
            typed_objects("c", TEXT, [text], ("", ""), {}).to_pylist()


def test_digests() -> None:
    columns = {"t": pa.array(["a", None, "a", ""]), "n": pa.array([1.0, 2.0, 1.0, 1.0])}
    columns["l"] = pa.array([["a", "b"]] * 4)
    keys = row_digests(columns, [1]).to_pylist()
    content = b"6:1:a1:b" + b"8:" + np.float64(1).tobytes() + b"1:a"
    assert keys[0] == keys[2] == blake2b(content, digest_size=16).hexdigest().encode()
    assert keys[1] is None
    assert len(set(keys)) == 3
    assert row_digests({name: columns[name].slice(2) for name in sorted(columns)}, []).to_pylist() == keys[2:]
    split = {**columns, "l": pa.array([["ab"], ["a", "b"], [], None])}
    assert len(set(row_digests(split, []).to_pylist())) == 4
