"""The usual places of columns in JSON objects, by a file's first objects: the schema that Arrow reads by.

A column is a key of the object, or, where its name is dotted, a key inside another (`meta.author.name`); a key that
holds the dot itself comes first. Objects may lie in lists: of `{"objects": [{"id": 1}, {"id": 2}]}` the column
`objects.id` is 1, 2. Objects of other shapes are read by `jsonl.parser` without this schema, with the same values.

>>> rows = [{"objects": [{"box": [1, 2]}, {"box": [3, 4]}]}]
>>> find_field(rows, "objects.box", Column(ColumnType.NUMBER, many=True))
Field(steps=(('objects', 1), ('box', 1)), type=DataType(double))
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.sources.typing.arrays import ARROW_TYPES, cuts

LEAVES = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64()}
UNKNOWN = 1, pa.string()
"""The number of lists, and the type, of values that are all null or empty lists."""


Steps = tuple[tuple[str, int], ...]
"""Keys, one inside the other, each with the number of lists around its value."""


@dataclass(frozen=True)
class Field:
    """The usual place of a column's values in an object."""

    steps: Steps
    type: pa.DataType
    """The Arrow type of their usual JSON type."""

    @property
    def path(self) -> str:
        """The keys, with dots between them."""
        return ".".join(key for key, _ in self.steps)


Fields = Mapping[str, Field]
"""The place of each column, by its name."""


def find_field(rows: Sequence[Mapping[str, Any]], name: str, column: Column) -> Field:
    """Returns the place of a column in some objects; one that none of them holds lies where its name says."""
    steps, leaf = _steps(rows, name, column.many or column.array is not None)
    return Field(steps, _type(column, steps, leaf))


def _steps(rows: Sequence[Mapping[str, Any]], name: str, many: bool) -> tuple[Steps, pa.DataType]:
    """Returns the steps, and the Arrow type of the first value that is no list and no object."""
    for key, rest in cuts(name):
        values = list(_in_lists(row[key] for row in rows if key in row))
        objects = [(depth, value) for depth, value in values if isinstance(value, dict)]
        if rest is not None and objects:
            steps, leaf = _steps([value for _, value in objects], rest, many)
            return ((key, objects[0][0]), *steps), leaf
        if rest is None and any(key in row for row in rows):
            depth, leaf = next(((at, LEAVES[type(each)]) for at, each in values if type(each) in LEAVES), UNKNOWN)
            return ((key, depth if many else 0),), leaf
    *outer, last = name.split(".")
    return (*((key, 0) for key in outer), (last, int(many))), pa.string()


def _in_lists(values: Iterable[Any], depth: int = 0) -> Iterator[tuple[int, Any]]:
    """Yields the values in nested lists, each with the number of lists around it."""
    for value in values:
        if isinstance(value, list):
            yield from _in_lists(value, depth + 1)
        else:
            yield depth, value


def _type(column: Column, steps: Steps, leaf: pa.DataType) -> pa.DataType:
    is_text, may_be_text = pt.is_string(leaf), column.many or column.array is not None
    is_one_string = may_be_text and is_text and not any(depth for _, depth in steps)
    if column.type is ColumnType.IMAGE or is_one_string or (column.parse and is_text):
        return pa.string()
    if column.array is not None:
        return pa.int64() if column.array.holds_integers else pa.float64()
    return leaf if column.type is ColumnType.CATEGORY and not pt.is_floating(leaf) else ARROW_TYPES[column.type]


def arrow_schema(fields: Fields) -> pa.Schema:
    """Makes the schema for Arrow's parser: the fields, one inside the other.

    Raises: SourceError: one column is wanted as a value, and another as a part of it.
    """
    tree: dict[str, Any] = {}
    in_two_ways = "the column {!r} is wanted in two ways: as a value, and as an object that holds others"
    for name, target in fields.items():
        branch, (*outer, (last, depth)) = tree, target.steps
        for key, lists in outer:
            there = branch.setdefault(key, (lists, {}))
            if there[0] != lists or not isinstance(there[1], dict):
                raise SourceError(in_two_ways.format(name))
            branch = there[1]
        if branch.setdefault(last, (depth, target.type)) != (depth, target.type):
            raise SourceError(in_two_ways.format(name))
    return pa.schema(_arrow_fields(tree))


def _arrow_fields(tree: dict[str, Any]) -> list[pa.Field]:
    types = {
        key: pa.struct(_arrow_fields(value)) if isinstance(value, dict) else value for key, (_, value) in tree.items()
    }
    return [pa.field(key, _nested(types[key], depth)) for key, (depth, _) in tree.items()]


def _nested(kind: pa.DataType, depth: int) -> pa.DataType:
    """The type of lists of lists of it, so many."""
    return kind if depth == 0 else pa.list_(_nested(kind, depth - 1))
