"""What every source checks: lists, their lengths, and what may be absent."""

from typing import Any

import pyarrow as pa
import pytest

from recordmill.pipeline.sources.faults import Faults
from recordmill.pipeline.sources.typing.arrays import ARROW_TYPES, arrow_type
from recordmill.pipeline.sources.typing.checks import check_column
from recordmill.transforms.base.columns import Column, ColumnType
from tests.messages import assert_names

NUMBERS = Column(ColumnType.NUMBER, many=True)
NAMES = Column(ColumnType.CATEGORY, many=True)
ABSENT = ("missing_value", ["absent"])


def check(column: Column, values: list[Any]) -> tuple[list[Any], dict[int, tuple[str, str]]]:
    """The checked values, and the reason and message of each row's fault."""
    faults: Faults = {}
    found = check_column("c", column, pa.array(values, arrow_type(column)), faults)
    assert found.type == arrow_type(column)
    assert all(fault.column == "c" for fault in faults.values())
    return found.to_pylist(), {row: (fault.reason, fault.message) for row, fault in faults.items()}


@pytest.mark.parametrize(
    ("column", "values", "faults"),
    [
        (NUMBERS, [[1.0], [], None], {2: ABSENT}),
        (Column(ColumnType.NUMBER, many=True, optional=True), [[1.0], None], {}),
        (NUMBERS, [[1.0, None], [2.0, 1e39]], {
            0: ("missing_value", [" list: ", "absent"]),
            1: ("wrong_type", [" list: ", "float32"]),
        }),
        (NAMES, [["a", " "], None, ["b\nc"]], {
            0: ("missing_value", [" list: ", "blank"]),
            1: ABSENT,
            2: ("wrong_type", [" list: ", "line break"]),
        }),
        (Column(ColumnType.NUMBER, many=True, multiple=4), [[0.0] * 8, [0.0] * 6, []],
         {1: ("wrong_type", ["multiple of 4"])}),
        (Column(ColumnType.INTEGER, many=True, length=2), [[1, 2], [3]],
         {1: ("wrong_type", ["2 values"])}),
        (Column(ColumnType.INTEGER, many=True, length=2, optional=True), [[1, 2], [], None, [3]],
         {3: ("wrong_type", ["2 values"])}),
    ],
)  # fmt: skip
def test_lists(column: Column, values: list[Any], faults: dict[int, tuple[str, list[str]]]) -> None:
    _, found = check(column, values)
    assert found.keys() == faults.keys()
    for row, (reason, facts) in faults.items():
        assert found[row][0] == reason
        assert_names(found[row][1], *facts)


@pytest.mark.parametrize("kind", ColumnType)
def test_what_is_optional_may_be_absent(kind: ColumnType) -> None:
    values, faults = check(Column(kind, optional=True), [None])
    assert (values, faults) == ([None], {})
    assert check(Column(kind), [None])[1][0][0] == "missing_value"
    assert ARROW_TYPES[kind] == arrow_type(Column(kind))
    assert check(Column(ColumnType.CATEGORY, optional=True), ["a", "  "]) == (["a", None], {}), "a blank one is absent"
