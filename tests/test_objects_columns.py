"""Columns of objects: every notation gives the same JSON; what is no list of objects is a fault with a reason."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.faults import Faults
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.pipeline.sources.typing.values import misfit, typed_values
from tests.messages import assert_names

BASE = ("", "")
COLUMN = Column(ColumnType.OBJECTS)
SAID: Any = [{"role": "user", "content": "é\n"}, {"role": "assistant", "content": "ho", "n": [1, {"a": True}]}]
CANONICAL = json.dumps(SAID, ensure_ascii=False, separators=(",", ":"))
STRUCTS = pa.array([[{**each, "n": None} for each in SAID]])


def of_arrow(values: pa.Array) -> tuple[list[str | None], list[str]]:
    faults: Faults = {}
    made = typed_values("x", COLUMN, values, BASE, faults).to_pylist()
    return made, [f"{fault.reason}: {fault.message}" for _, fault in sorted(faults.items())]


def of_python(*values: Any) -> tuple[list[str | None], list[str]]:
    faults: Faults = {}
    made = typed_objects("x", COLUMN, values, BASE, faults).to_pylist()
    return made, [f"{fault.reason}: {fault.message}" for _, fault in sorted(faults.items())]


FORMS: list[Any] = [
    SAID,
    tuple(SAID),
    np.array(SAID, object),
    json.dumps(SAID),
    json.dumps(SAID, indent=2).encode(),
    [{**SAID[0], "name": None}, {**SAID[1], "n": [np.int64(1), {"a": np.bool_(True), "b": None}]}],
]


@pytest.mark.parametrize("value", FORMS, ids=range(len(FORMS)))
def test_every_form_of_objects_gives_the_same_json(value: Any) -> None:
    assert of_python(value) == ([CANONICAL], [])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()])
def test_json_in_arrow(kind: pa.DataType) -> None:
    assert of_arrow(pa.array([json.dumps(SAID), " ", None], pa.string()).cast(kind)) == ([CANONICAL, None, None], [])


def test_structs_lose_nulls() -> None:
    without = json.dumps([{name: each[name] for name in ("role", "content")} for each in SAID], ensure_ascii=False)
    assert of_arrow(STRUCTS) == ([without.replace(", ", ",").replace(": ", ":")], [])
    assert of_arrow(pa.array([[], None], STRUCTS.type)) == (["[]", None], [])


def test_maps_are_objects() -> None:
    kind = pa.list_(pa.map_(pa.string(), pa.string()))
    assert of_arrow(pa.array([[[("role", "user")]]], kind)) == (['[{"role":"user"}]'], [])


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
    made, faults = of_python(value, SAID)
    assert made == [None, CANONICAL]
    assert len(faults) == 1
    assert_names(faults[0], "wrong_type", "a list of objects", found)


def test_structs_that_are_not_utf8_are_faults() -> None:
    flat = pa.array([b"\xff", b"ok"], pa.binary()).view(pa.string())
    structs = pa.StructArray.from_arrays([flat], ["role"])
    made, faults = of_arrow(pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), structs))
    assert made == [None, '[{"role":"ok"}]']
    assert [fault.partition(":")[0] for fault in faults] == ["invalid_utf8"]


def test_types_of_whole_columns() -> None:
    assert misfit(COLUMN, STRUCTS.type) is None
    assert misfit(COLUMN, pa.string()) is None
    assert_names(misfit(COLUMN, pa.float64()), "a list of objects", "a float")
