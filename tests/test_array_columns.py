"""Columns of arrays and of objects: every notation gives the same; what is none is a fault with a reason."""

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources.faults import Faults
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.pipeline.sources.typing.values import misfit, typed_values
from recordmill.transforms.base.arrays import ArrayError, ArrayLayout, numpy_dtype
from recordmill.transforms.base.columns import Column, ColumnType
from tests.messages import assert_names, raises

BASE = ("", "")
SQUARE = [[1, 2], [3, 4]]


def column(dtype: str, *shape: int | None) -> Column:
    return Column(ColumnType.ARRAY, array=ArrayLayout(dtype, shape))


def npy(values: Any, dtype: str = "float32", **header: Any) -> bytes:
    into = io.BytesIO()
    np.save(into, np.asarray(values, numpy_dtype(dtype) if dtype == "bfloat16" else dtype, **header))
    return into.getvalue()


def of_arrow(wanted: Column, values: pa.Array) -> tuple[list[bytes | None], list[str]]:
    faults: Faults = {}
    made = typed_values("x", wanted, values, BASE, faults).to_pylist()
    return made, [f"{fault.reason}: {fault.message}" for _, fault in sorted(faults.items())]


def of_python(wanted: Column, *values: Any) -> tuple[list[bytes | None], list[str]]:
    faults: Faults = {}
    made = typed_objects("x", wanted, values, BASE, faults).to_pylist()
    return made, [f"{fault.reason}: {fault.message}" for _, fault in sorted(faults.items())]


FORMS: list[Any] = [
    SQUARE,
    [1, 2, 3, 4],
    ((1.0, 2), [3, 4]),
    [np.array([1, 2]), np.array([3, 4])],
    np.array(SQUARE, np.int64),
    np.array(SQUARE, ">f8"),
    np.asfortranarray(np.array(SQUARE, np.float16)),
    npy(SQUARE),
    npy(SQUARE, "int16"),
    npy(np.array(SQUARE).T.copy().T, "float32", order="F"),
    json.dumps(SQUARE),
    json.dumps([1, 2, 3, 4]).encode(),
]


@pytest.mark.parametrize("value", FORMS, ids=range(len(FORMS)))
@pytest.mark.parametrize("shape", [(2, 2), (None, 2)])
def test_every_form_of_an_array_gives_the_same_bytes(value: Any, shape: tuple[int | None, ...]) -> None:
    assert of_python(column("float32", *shape), value) == ([np.array(SQUARE, "<f4").tobytes()], [])


ARROW: list[pa.Array] = [
    pa.array([SQUARE], pa.list_(pa.list_(pa.float64()))),
    pa.array([SQUARE], pa.large_list(pa.list_(pa.int8()))),
    pa.array([SQUARE], pa.list_(pa.list_(pa.float32(), 2), 2)),
    pa.array([[1, 2, 3, 4]], pa.list_(pa.decimal128(5, 1))),
    pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), (2, 2)), pa.array([[1, 2, 3, 4]], pa.list_(pa.float32(), 4))
    ),
    pa.array([npy(SQUARE)], pa.large_binary()),
    pa.array([json.dumps(SQUARE)]),
]


@pytest.mark.parametrize("values", ARROW, ids=lambda values: str(values.type))
def test_every_arrow_type_gives_the_same_bytes(values: pa.Array) -> None:
    assert misfit(column("float32", 2, 2), values.type) is None
    assert of_arrow(column("float32", 2, 2), values) == ([np.array(SQUARE, "<f4").tobytes()], [])


SHAPE = ("float32 [2, 2]", "another shape")
BAD: list[tuple[Any, tuple[str, ...]]] = [
    ([[1, 2], [3]], SHAPE),
    ([[1, 2]], SHAPE),
    ([[[1, 2], [3, 4]]], SHAPE),
    ([1, 2, 3], SHAPE),
    ([], SHAPE),
    ([[1, 2], None], ("null",)),
    ([[1, 2], [3, None]], ("null",)),
    ([[1, 2], [3, 1e39]], ("finite", "float32")),
    ([[1, 2], [3, float("nan")]], ("finite",)),
    (3.5, ("array of numbers", "float")),
]


@pytest.mark.parametrize(("value", "facts"), BAD)
def test_a_bad_array_is_a_fault_wherever_it_comes_from(value: Any, facts: tuple[str, ...]) -> None:
    wanted = column("float32", 2, 2)
    found = [of_python(wanted, value, SQUARE)]
    if isinstance(value, list) and None not in value and not any(isinstance(row, list) and any(
            isinstance(each, list) for each in row) for row in value):  # fmt: skip
        nested = not value or isinstance(value[0], list)
        found.append(of_arrow(wanted, pa.array([value, SQUARE if nested else [1, 2, 3, 4]])))
    for made, messages in found:
        assert made == [None, np.array(SQUARE, "<f4").tobytes()]
        (message,) = messages
        assert_names(message, *facts)


@pytest.mark.parametrize(
    ("dtype", "values", "facts"),
    [
        ("uint8", [0, 256], ("uint8", "0 to 255")),
        ("int16", [0, -32769], ("int16", "-32768 to 32767")),
        ("int64", [0, 1 << 63], ("int64", str((1 << 63) - 1))),
        ("int32", [0, 1.5], ("whole numbers", "float64")),
        ("float16", [0, 70000], ("range", "float16")),
        ("bfloat16", [0, 1e39], ("range", "bfloat16")),
        ("int32", ["1", "2"], ("array of numbers", "string")),
        ("uint8", [True, False], ("array of numbers", "boolean")),
    ],
)
def test_a_number_that_the_dtype_does_not_hold_is_a_fault(
    dtype: str, values: list[Any], facts: tuple[str, ...]
) -> None:
    made, messages = of_python(column(dtype, 2), values)
    assert made == [None]
    assert_names(messages[0], *facts)


def header(text: str, numbers: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + numbers


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 2), }"
FILES = [
    (npy(SQUARE)[:-1], (".npy", "15", "16")),
    (npy(SQUARE) + b"\0", (".npy", "17", "16")),
    (npy(SQUARE)[:40], (".npy", "header", "longer")),
    (npy([[1, 2]]), ("another shape",)),
    (header(HUGE), ()),
    (header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }"), (".npy", "something else")),
    (header("__import__('os').abort()"), (".npy", "something else")),
    (header("{'descr': '<V2', 'fortran_order': False, 'shape': (2, 2), }", b"\0" * 8), (".npy", "V2")),
    (npy(SQUARE, "complex64"), (".npy", "something else")),
    (header("{'descr': 'M8[25s/0]', 'fortran_order': False, 'shape': (2, 2), }"), (".npy", "M8[25s/0]")),
    (b"\x89PNG", ("JSON list", ".npy")),
    (b"\x93NUMPY", (".npy",)),
    (b"[1, 2", ("JSON list",)),
    (b"[" * 100_000, ("JSON list",)),
]


@pytest.mark.parametrize(("data", "facts"), FILES, ids=range(len(FILES)))
@pytest.mark.parametrize("shape", [(2, 2), (None, 2)])
def test_a_bad_file_is_refused_before_it_is_read(
    data: bytes, facts: tuple[str, ...], shape: tuple[int | None, ...]
) -> None:
    if shape[0] is None and data == npy([[1, 2]]):
        return
    made, messages = of_arrow(column("float32", *shape), pa.array([data], pa.binary()))
    assert made == [None]
    (message,) = messages
    assert_names(message, *facts)


def test_null_is_absent_and_a_bfloat16_file_is_read() -> None:
    made = [None, b"", np.array([1, 2], "<i8").tobytes()]
    assert of_arrow(column("int64", None, 2), pa.array([None, [], [[1, 2]]])) == (made, [])
    assert of_python(column("int64", None, 2), None, []) == ([None, b""], [])
    made, messages = of_python(column("bfloat16", 2), npy([1.5, -2], "bfloat16"), [1.5, -2])
    assert (made, messages) == ([b"\xc0\x3f\x00\xc0"] * 2, [])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.sampled_from(["uint8", "int32", "float16", "bfloat16"]))
def test_lists_of_any_lengths_give_what_was_put_in(counts: list[int], dtype: str) -> None:
    layout = ArrayLayout(dtype, (None, 2, 3))
    rows = [np.arange(6 * count).reshape(count, 2, 3) for count in counts]
    wanted = Column(ColumnType.ARRAY, array=layout)
    lists = [row.tolist() for row in rows]
    nested = pa.list_(pa.list_(pa.list_(pa.int64())))
    for made, messages in (of_python(wanted, *lists), of_arrow(wanted, pa.array(lists, nested))):
        assert messages == []
        assert [layout.decode(cell or b"").tolist() for cell in made] == [row.tolist() for row in rows]


def test_what_the_layout_cannot_hold_is_an_array_error() -> None:
    with raises(ArrayError, "uint8 [3]"):
        ArrayLayout("uint8", (3,)).encode(np.zeros((3, 1), np.uint8))


OBJECTS = Column(ColumnType.OBJECTS)
SAID: Any = [{"role": "user", "content": "é\n"}, {"role": "assistant", "content": "ho", "n": [1, {"a": True}]}]
CANONICAL = json.dumps(SAID, ensure_ascii=False, separators=(",", ":"))
STRUCTS = pa.array([[{**each, "n": None} for each in SAID]])


OBJECT_FORMS: list[Any] = [
    SAID,
    tuple(SAID),
    np.array(SAID, object),
    json.dumps(SAID),
    json.dumps(SAID, indent=2).encode(),
    [SAID[0], {**SAID[1], "n": np.array([np.int64(1), {"a": np.bool_(True)}], object)}],
]


@pytest.mark.parametrize("value", OBJECT_FORMS, ids=range(len(OBJECT_FORMS)))
def test_every_form_of_objects_gives_the_same_json(value: Any) -> None:
    assert of_python(OBJECTS, value) == ([CANONICAL], [])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()])
def test_json_in_arrow(kind: pa.DataType) -> None:
    cells = pa.array([json.dumps(SAID), " ", None], pa.string()).cast(kind)
    assert of_arrow(OBJECTS, cells) == ([CANONICAL, None, None], [])


def test_structs_alone_lose_nulls() -> None:
    said = [{"a": None, "b": [{"c": None}]}]
    kept = json.dumps(said, separators=(",", ":"))
    assert of_python(OBJECTS, said) == of_python(OBJECTS, kept) == of_arrow(OBJECTS, pa.array([kept])) == ([kept], [])
    kind = pa.struct({"m": pa.map_(pa.string(), pa.int64()), "b": pa.list_(pa.struct({"c": pa.int64()}))})
    structs = pa.array([[{"m": [("k", None)], "b": [{"c": None}]}]], pa.list_(kind))
    assert of_arrow(OBJECTS, structs) == (['[{"m":{"k":null},"b":[{}]}]'], [])
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [structs.flatten()])
    assert len(of_arrow(OBJECTS, pa.ListArray.from_arrays([0, 1], union))[0]) == 1
    without = json.dumps([{name: each[name] for name in ("role", "content")} for each in SAID], ensure_ascii=False)
    assert of_arrow(OBJECTS, STRUCTS) == ([without.replace(", ", ",").replace(": ", ":")], [])
    assert of_arrow(OBJECTS, pa.array([[], None], STRUCTS.type)) == (["[]", None], [])
    kind = pa.list_(pa.map_(pa.string(), pa.string()))
    assert of_arrow(OBJECTS, pa.array([[[("role", "user")]]], kind)) == (['[{"role":"user"}]'], [])


WRONG: dict[str, tuple[Any, str]] = {
    "text": ("hello", "a string"),
    "an object": ({"role": "user"}, "an object"),
    "a list of strings": (["a"], "another list"),
    "a list with a null": ([{"a": 1}, None], "another list"),
    "JSON of an object": ('{"role": "user"}', "a string"),
    "a number": (7, "an integer"),
    "not a number": ([{"a": float("nan")}], "another list"),
    "JSON nested too deeply": ("[" * 100_000, "a string"),
}


@pytest.mark.parametrize(("value", "found"), WRONG.values(), ids=WRONG)
def test_other_values_are_faults(value: Any, found: str) -> None:
    made, faults = of_python(OBJECTS, value, SAID)
    assert made == [None, CANONICAL]
    assert len(faults) == 1
    assert_names(faults[0], "wrong_type", "a list of objects", found)


def test_structs_that_are_not_utf8_are_faults() -> None:
    flat = pa.array([b"\xff", b"ok"], pa.binary()).view(pa.string())
    structs = pa.StructArray.from_arrays([flat], ["role"])
    made, faults = of_arrow(OBJECTS, pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), structs))
    assert made == [None, '[{"role":"ok"}]']
    assert [fault.partition(":")[0] for fault in faults] == ["invalid_utf8"]


def test_types_of_whole_columns() -> None:
    assert misfit(OBJECTS, STRUCTS.type) is None
    assert misfit(OBJECTS, pa.string()) is None
    assert_names(misfit(OBJECTS, pa.float64()), "a list of objects", "a float")
