"""Where columns lie in JSON objects: what the first objects hold, and what a parser is to read of each.

A column is a key of the object, or, where its name is dotted, a key inside another (`meta.author.name`); a key that
holds the dot itself comes first. Objects may lie in lists: of `{"objects": [{"id": 1}, {"id": 2}]}` the column
`objects.id` is 1, 2. How many lists there are, and of what JSON type the values are, is what the first object says.

>>> shape = Shape()
>>> shape.add({"objects": [{"box": [1, 2]}, {"box": [3, 4]}]})
>>> shape.names()
['objects', 'objects.box']
>>> shape.place("objects.box", many=True)
Place(steps=(('objects', 1), ('box', 1)), leaf='integer')
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from recordmill.pipeline.sources.base import SourceError
from recordmill.pipeline.sources.columns import ARROW_TYPES, Column, Columns, ColumnType

LEAVES = {str: "string", int: "integer", bool: "boolean", float: "number"}
CATEGORY_TYPES: Mapping[str, pa.DataType] = {"string": pa.string(), "integer": pa.int64(), "boolean": pa.bool_()}


@dataclass(frozen=True)
class Place:
    """Where a column's values lie in an object."""

    steps: tuple[tuple[str, int], ...]
    """Keys, one inside the other, each with the number of lists around what it holds."""
    leaf: str = "string"
    """The JSON type of the values: string, integer, boolean or number."""


@dataclass
class Shape:
    """What stands under one key, or in a whole row."""

    leaf: tuple[int, str] | None = None
    """Of the first value that is no list and no object: the number of lists around it, and its JSON type."""
    inner: int | None = None
    """The number of lists around the first object."""
    lists: int = 0
    """The most lists around anything."""
    fields: dict[str, "Shape"] = field(default_factory=dict)
    """What stands under the keys of the objects, in the order of their first appearance."""

    def add(self, value: Any, depth: int = 0) -> None:
        """Looks at one more value, which is what `json.loads` gives."""
        if isinstance(value, list):
            self.lists = max(self.lists, depth + 1)
            for one in value:
                self.add(one, depth + 1)
        elif isinstance(value, dict):
            self.inner = depth if self.inner is None else self.inner
            for key, one in value.items():
                self.fields.setdefault(key, Shape()).add(one)
        elif value is not None and self.leaf is None:
            self.leaf = depth, LEAVES[type(value)]

    def names(self, levels: int = 16) -> list[str]:
        """The columns, those inside others behind them, down to so many levels."""
        found = dict[str, None]()
        for key, shape in self.fields.items() if levels else ():
            found |= dict.fromkeys([key, *(f"{key}.{name}" for name in shape.names(levels - 1))])
        return list(found)

    def place(self, name: str, *, many: bool) -> Place:
        """Where a column lies; one that no object holds lies where its name says."""
        return self._found(name, many) or self._guessed(name, many)

    def _found(self, name: str, many: bool) -> Place | None:
        if name in self.fields:
            shape = self.fields[name]
            depth, leaf = shape.leaf or (max(shape.lists, 1), "string")
            return Place(((name, depth if many else 0),), leaf)
        for key, rest, lists in self._inside(name):
            below = self.fields[key]._found(rest, many)
            if below:
                return Place(((key, lists), *below.steps), below.leaf)
        return None

    def _guessed(self, name: str, many: bool) -> Place:
        for key, rest, lists in self._inside(name):
            below = self.fields[key]._guessed(rest, many)
            return Place(((key, lists), *below.steps), below.leaf)
        *outer, last = name.split(".")
        return Place((*((key, 0) for key in outer), (last, int(many))))

    def _inside(self, name: str) -> list[tuple[str, str, int]]:
        """The keys of objects that a dotted name may begin with, the longest first: key, rest, lists around it."""
        parts = name.split(".")
        cuts = [(".".join(parts[:end]), ".".join(parts[end:])) for end in range(len(parts) - 1, 0, -1)]
        found = [(key, rest, self.fields[key].inner) for key, rest in cuts if key in self.fields]
        return [(key, rest, lists) for key, rest, lists in found if lists is not None]


Places = Mapping[str, Place]
"""Where each column lies."""


@dataclass(frozen=True)
class Field:
    """What the parser reads for one column."""

    name: str
    steps: tuple[tuple[str, int], ...]
    type: pa.DataType
    """The Arrow type of its values' JSON type."""

    @property
    def path(self) -> str:
        """The keys, with dots between them."""
        return ".".join(key for key, _ in self.steps)


def json_fields(columns: Columns, places: Places) -> list[Field]:
    """What is read for each column, in their order; one that has no place lies where its name says."""
    found = [
        (name, column, places.get(name) or Shape().place(name, many=column.many)) for name, column in columns.items()
    ]
    return [Field(name, place.steps, _type(column, place)) for name, column, place in found]


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    """What is given to Arrow's parser: the fields, one inside the other.

    Raises:
        SourceError: one column is wanted as a value, and another as a part of it.
    """
    tree: dict[str, Any] = {}
    for one in fields:
        *outer, (last, depth) = one.steps
        branch = tree
        for key, lists in outer:
            there = branch.setdefault(key, (lists, {}))
            if there[0] != lists or not isinstance(there[1], dict):
                raise _in_two_ways(one.name)
            branch = there[1]
        if branch.setdefault(last, (depth, one.type)) != (depth, one.type):
            raise _in_two_ways(one.name)
    return pa.schema(_arrow_fields(tree))


def _in_two_ways(name: str) -> SourceError:
    return SourceError(f"the column {name!r} is wanted in two ways: as a value, and as an object that holds others")


def _arrow_fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [pa.field(key, _nested(_arrow_type(value), depth)) for key, (depth, value) in tree.items()]


def _arrow_type(value: Any) -> pa.DataType:
    return pa.struct(_arrow_fields(value)) if isinstance(value, dict) else value


def _nested(kind: pa.DataType, depth: int) -> pa.DataType:
    """The type of lists of lists of it, so many."""
    return kind if depth == 0 else pa.list_(_nested(kind, depth - 1))


def _type(column: Column, place: Place) -> pa.DataType:
    is_one_string = column.many and place.leaf == "string" and not any(depth for _, depth in place.steps)
    if column.type is ColumnType.IMAGE or is_one_string:
        return pa.string()
    if column.type is ColumnType.CATEGORY:
        return CATEGORY_TYPES.get(place.leaf, pa.string())
    return ARROW_TYPES[column.type]
