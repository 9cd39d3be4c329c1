"""The usual places of columns in JSON objects, by the shape of a file's first objects: the schema that Arrow reads by.

A column is a key of the object, or, where its name is dotted, a key inside another (`meta.author.name`); a key that
holds the dot itself comes first. Objects may lie in lists: of `{"objects": [{"id": 1}, {"id": 2}]}` the column
`objects.id` is 1, 2. Objects of other shapes are read by `jsonl.parser` without this schema, with the same values.

>>> shape = Shape()
>>> shape.add({"objects": [{"box": [1, 2]}, {"box": [3, 4]}]})
>>> shape.names()
['objects', 'objects.box']
>>> shape.field("objects.box", Column(ColumnType.NUMBER, many=True))
Field(steps=(('objects', 1), ('box', 1)), type=DataType(double))
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.sources.typing.arrays import ARROW_TYPES

LEAVES = {str: "string", int: "integer", bool: "boolean", float: "number"}
CATEGORY_TYPES: Mapping[str, pa.DataType] = {"string": pa.string(), "integer": pa.int64(), "boolean": pa.bool_()}


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


@dataclass
class Shape:
    """The shape of the values under one key, or of a whole row."""

    leaf: tuple[int, str] | None = None
    """The number of lists around the first value that is no list and no object, and its JSON type."""
    inner: int | None = None
    """The number of lists around the first object."""
    lists: int = 0
    """The most lists around anything."""
    fields: dict[str, "Shape"] = field(default_factory=dict)
    """The shapes under the keys of the objects, in the order of their first appearance."""

    def add(self, value: Any, depth: int = 0) -> None:
        """Looks at one more value, which is what `json.loads` gives."""
        if isinstance(value, list):
            self.lists = max(self.lists, depth + 1)
            for item in value:
                self.add(item, depth + 1)
        elif isinstance(value, dict):
            self.inner = depth if self.inner is None else self.inner
            for key, item in value.items():
                self.fields.setdefault(key, Shape()).add(item)
        elif value is not None and self.leaf is None:
            self.leaf = depth, LEAVES[type(value)]

    def names(self, levels: int = 16) -> list[str]:
        """Lists the columns, those inside others behind them, down to so many levels."""
        names = dict[str, None]()
        for key, shape in self.fields.items() if levels else ():
            names |= dict.fromkeys([key, *(f"{key}.{name}" for name in shape.names(levels - 1))])
        return list(names)

    def field(self, name: str, column: Column) -> Field:
        """Returns the place of a column; one that no object holds lies where its name says."""
        many = column.many or column.array is not None
        steps, leaf = self._found(name, many) or (self._guessed(name, many), "string")
        return Field(steps, _type(column, steps, leaf))

    def _found(self, name: str, many: bool) -> tuple[Steps, str] | None:
        """The steps, and the JSON type of the values."""
        if name in self.fields:
            shape = self.fields[name]
            depth, leaf = shape.leaf or (max(shape.lists, 1), "string")
            return ((name, depth if many else 0),), leaf
        for key, rest, lists in self._inside(name):
            below = self.fields[key]._found(rest, many)
            if below:
                return ((key, lists), *below[0]), below[1]
        return None

    def _guessed(self, name: str, many: bool) -> Steps:
        for key, rest, lists in self._inside(name):
            return ((key, lists), *self.fields[key]._guessed(rest, many))
        *outer, last = name.split(".")
        return (*((key, 0) for key in outer), (last, int(many)))

    def _inside(self, name: str) -> list[tuple[str, str, int]]:
        """The keys of objects that a dotted name may begin with, the longest first: key, rest, lists around it."""
        parts = name.split(".")
        cuts = [(".".join(parts[:end]), ".".join(parts[end:])) for end in range(len(parts) - 1, 0, -1)]
        known = [(key, rest, self.fields[key].inner) for key, rest in cuts if key in self.fields]
        return [(key, rest, lists) for key, rest, lists in known if lists is not None]


def _type(column: Column, steps: Steps, leaf: str) -> pa.DataType:
    may_be_text = column.many or column.array is not None
    is_one_string = may_be_text and leaf == "string" and not any(depth for _, depth in steps)
    if column.type is ColumnType.IMAGE or is_one_string or (column.parse and leaf == "string"):
        return pa.string()
    if column.array is not None:
        return pa.int64() if column.array.holds_integers else pa.float64()
    return CATEGORY_TYPES.get(leaf, pa.string()) if column.type is ColumnType.CATEGORY else ARROW_TYPES[column.type]


def arrow_schema(fields: Fields) -> pa.Schema:
    """Makes the schema for Arrow's parser: the fields, one inside the other.

    Raises: SourceError: one column is wanted as a value, and another as a part of it.
    """
    tree: dict[str, Any] = {}
    for name, target in fields.items():
        branch, (*outer, (last, depth)) = tree, target.steps
        for key, lists in outer:
            there = branch.setdefault(key, (lists, {}))
            if there[0] != lists or not isinstance(there[1], dict):
                raise _in_two_ways(name)
            branch = there[1]
        if branch.setdefault(last, (depth, target.type)) != (depth, target.type):
            raise _in_two_ways(name)
    return pa.schema(_arrow_fields(tree))


def _in_two_ways(name: str) -> SourceError:
    return SourceError(f"the column {name!r} is wanted in two ways: as a value, and as an object that holds others")


def _arrow_fields(tree: dict[str, Any]) -> list[pa.Field]:
    types = {
        key: pa.struct(_arrow_fields(value)) if isinstance(value, dict) else value for key, (_, value) in tree.items()
    }
    return [pa.field(key, _nested(types[key], depth)) for key, (depth, _) in tree.items()]


def _nested(kind: pa.DataType, depth: int) -> pa.DataType:
    """The type of lists of lists of it, so many."""
    return kind if depth == 0 else pa.list_(_nested(kind, depth - 1))
