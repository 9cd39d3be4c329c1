r"""The parser of JSON Lines: what a row is, and how many are parsed at once with the outcome that each has alone.

A line, without the spaces, tabs and carriage returns around it, is a row unless it is blank. It is accepted if it is
one JSON object, alone, by Arrow's parser: RFC 8259 with these particulars. A key that is asked for comes once (`{"a":
1, "a": 2}` is malformed), one that is not may repeat. Asked for or not, no string holds an unpaired surrogate
(`"\ud800"`), no number is beyond float64 (`1e400`), and nothing lies deeper than `MAX_DEPTH` levels. `NaN`, `Infinity`
and `Inf` are taken where nobody asks for them, and are of the wrong type where somebody does. Bytes that are not UTF-8
are a fault only in columns that are asked for.

Many lines are parsed in one call, by a schema that the file's first lines suggest. A line that begins with `{` and ends
with `}` leaves no object open (a string cannot hold a newline), so where as many rows as lines come out each line is
one object; else the lines are halved, and those that do not fit the schema are read one by one by Python. Both readers
give the same values, so the schema decides how fast a line is read, and nothing else.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from recordmill.pipeline.sources.columns import Column
from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.pipeline.sources.images import ImageBase
from recordmill.pipeline.sources.lines import Lines, Rows
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.sources.typing.arrays import absent, arrow_type, flat_values, in_groups, lookup, python_field
from recordmill.pipeline.sources.typing.python_values import Repeating, comes_twice, load_json, typed_objects
from recordmill.pipeline.sources.typing.values import typed_values

MAX_DEPTH = 200  # each reader, on each Python, takes more
STRING = rb'"(?:[^"\\]|\\.)*+"?'  # one without an end goes to the end, so that none is looked at twice
STRINGS = re.compile(STRING, re.DOTALL)
BRACKETS = re.compile(rb"[\[{]+|[\]}]+")
ODD_NUMBERS = re.compile(STRING + rb"|-?Inf(?!inity)|-NaN", re.DOTALL)
SURROGATE = re.compile("[\ud800-\udfff]")
FEW_LINES = 256  # Python reads them in the time of a dozen calls of Arrow's parser, which halving them would take
NOT_ONE_OBJECT = "the line is not one JSON object: "
TOO_DEEP = f"the line is nested deeper than {MAX_DEPTH} levels; flatten it, or write the inner part as a string"

Steps = tuple[tuple[str, int], ...]
"""Keys, one inside the other, each with the number of lists around its value."""


@dataclass(frozen=True)
class Field:
    """The usual place of a column's values in an object.

    A column is a key of the object, or, where its name is dotted, a key inside another (`meta.author.name`); a key that
    holds the dot itself comes first. Objects may lie in lists: of `{"objects": [{"id": 1}, {"id": 2}]}` the column
    `objects.id` is 1, 2.
    """

    steps: Steps
    type: pa.DataType
    """The Arrow type of their usual JSON type."""

    @property
    def path(self) -> str:
        """The keys, with dots between them."""
        return ".".join(key for key, _ in self.steps)


Fields = Mapping[str, Field]
"""The place of each column, by its name."""


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


@dataclass(frozen=True)
class Parsed:
    """The rows of a piece of lines."""

    rows: Rows
    """The lines that are rows."""
    fields: Fields
    table: pa.Table
    """The rows that Arrow read: the fields, one inside the other, nulls included, nothing checked."""
    of_table: Rows
    """The numbers among `rows` of those in `table`, rising."""
    objects: Mapping[int, dict[str, Any]]
    """The other rows, by their number among `rows`."""
    faults: Faults
    """The other lines that are not blank, by line."""

    def typed(self, name: str, column: Column, base: ImageBase, faults: Faults) -> pa.Array:
        """Returns a column in its Arrow type, shape [rows], and adds the faults, by row, as `typed_values` does."""
        groups = []
        if len(self.of_table):
            stored = lookup(self.table, self.fields[name].path)
            groups.append((self.of_table, partial(typed_values, name, column, stored, base)))
        if self.objects:
            values = [python_field(row, name) for row in self.objects.values()]
            groups.append((np.array(list(self.objects)), partial(typed_objects, name, column, values, base)))
        return in_groups(len(self.rows), arrow_type(column), groups, faults)


class Parser:
    """Parses lines, of which it reads some fields."""

    def __init__(self, fields: Fields) -> None:
        """Raises: SourceError: one field is wanted as a value, and another as a part of it."""
        self._fields = fields
        self._schema = arrow_schema(fields)
        self._dotted = [name for name, field in fields.items() if "." in name and len(field.steps) == 1]
        nested = [name.split(".") for name, field in fields.items() if len(field.steps) > 1]
        self._dots = {f"{key}.{inner}".encode() for parts in nested for key, inner in pairwise(parts)}

    def parse(self, lines: Lines) -> Parsed:
        """Parses the lines of a piece; each has the outcome that it has alone."""
        faults = {line: Fault("malformed_row", f"{NOT_ONE_OBJECT}it does not begin with {{ and end with }}")
                  for line in lines.others.tolist()}  # fmt: skip
        faults |= {line: Fault("too_large", "the line is longer than 64 MiB") for line in lines.too_long.tolist()}
        deep = [row for row in lines.opening_more_than(MAX_DEPTH).tolist() if depth(lines[row]) > MAX_DEPTH]
        faults |= {line: Fault("malformed_row", TOO_DEEP) for line in deep}
        objects_only = _without(lines.objects, deep)
        misfits = self._with_dotted_keys(lines, objects_only)
        quick = _without(objects_only, misfits)
        tables = self._parse(lines, quick, misfits)
        quick = _without(quick, misfits)
        table = pa.concat_tables([self._schema.empty_table(), *tables]).combine_chunks()
        unclear = self._without_dotted_keys(table)
        if unclear.any():
            misfits += quick[unclear].tolist()
            quick, table = quick[~unclear], table.filter(pa.array(~unclear))
        objects = self._by_python(lines, sorted(misfits), faults)
        rows = np.sort(np.concatenate([quick, np.array(list(objects), np.int64)]))
        numbered = dict(zip(np.searchsorted(rows, list(objects)).tolist(), objects.values(), strict=True))
        return Parsed(rows, self._fields, table, np.searchsorted(rows, quick), numbered, faults)

    def _with_dotted_keys(self, lines: Lines, rows: Rows) -> list[int]:
        """Finds lines whose own keys may hold the dots of a field inside others: such a key would come first."""
        if not any(dots in lines.data for dots in self._dots):
            return []
        return [row for row, line in zip(rows.tolist(), lines.each(rows), strict=True)
                if any(dots in line for dots in self._dots)]  # fmt: skip

    def _without_dotted_keys(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Marks rows without a value under a key that holds dots: the field may lie inside others there."""
        unclear = np.zeros(table.num_rows, bool)
        for name in self._dotted:
            unclear |= absent(table[name].combine_chunks())
        return unclear

    def _parse(self, lines: Lines, rows: Rows, misfits: list[int]) -> list[pa.Table]:
        """Returns the tables of the lines that fit the schema, in their order, and adds the others to `misfits`."""
        if not len(rows):
            return []
        table = _read(lines.take(rows), self._schema)
        if not isinstance(table, str) and table.num_rows == len(rows):
            return [table]
        if len(rows) <= FEW_LINES:
            misfits += rows.tolist()
            return []
        return [table for half in np.array_split(rows, 2) for table in self._parse(lines, half, misfits)]

    def _by_python(self, lines: Lines, rows: list[int], faults: Faults) -> dict[int, dict[str, Any]]:
        """Returns the objects of some lines, by line, and adds the faults of those that Arrow's parser never takes."""
        objects = dict[int, dict[str, Any]]()
        for row in rows:
            result = self._object(lines[row])
            if isinstance(result, Fault):
                faults[row] = result
            else:
                objects[row] = result
        for row, message in _refused(lines, np.array(list(objects), np.int64)):
            faults[row] = self._unpaired(objects.pop(row)) or Fault("malformed_row", NOT_ONE_OBJECT + message)
        return objects

    def _object(self, line: bytes) -> dict[str, Any] | Fault:
        """Parses a line, or says what is wrong with it, and nothing of what the line holds."""
        try:
            row = _load_line(line)
        except json.JSONDecodeError as invalid:
            return Fault("malformed_row", f"{NOT_ONE_OBJECT}{invalid.msg}, character {invalid.pos + 1}")
        twice = next((name for name in self._fields if comes_twice(row, name)), None)
        return row if twice is None else Fault("malformed_row", f"{NOT_ONE_OBJECT}{twice} comes twice")

    def _unpaired(self, row: dict[str, Any]) -> Fault | None:
        """Finds a field that holds an unpaired surrogate."""
        for name in self._fields:
            values = flat_values([python_field(row, name)])
            if any(isinstance(value, str) and SURROGATE.search(value) for value in values):
                return Fault("invalid_utf8", "the string is not UTF-8, or holds an unpaired surrogate", name)
        return None


def peek(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Returns the objects of some lines; those that are no JSON object are passed over."""
    rows = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            if depth(line) <= MAX_DEPTH and isinstance(row := load_json(line), dict):
                rows.append(row)
    return rows


def depth(line: bytes) -> int:
    """Counts the objects and lists that lie inside each other; brackets in strings do not count."""
    level = deepest = 0
    for brackets in BRACKETS.findall(STRINGS.sub(b"", line)):
        level += len(brackets) if brackets[0] in b"{[" else -len(brackets)
        deepest = max(deepest, level)
    return deepest


def _load_line(line: bytes) -> Any:
    """Parses a line as Arrow's parser does: with `Inf`, `-NaN` and the sign of `-0`. Raises: json.JSONDecodeError."""
    try:
        return load_json(line, Repeating.of, signed_zero=True)
    except json.JSONDecodeError:
        plain = ODD_NUMBERS.sub(_plain_number, line)
        if plain == line:
            raise
        return load_json(plain, Repeating.of, signed_zero=True)


def _plain_number(token: re.Match[bytes]) -> bytes:
    text = token[0]
    if text.startswith(b'"'):
        return text
    return b"NaN" if text == b"-NaN" else text + b"inity"


def _without(rows: Rows, others: list[int]) -> Rows:
    return np.setdiff1d(rows, others, assume_unique=True) if others else rows


def _refused(lines: Lines, rows: Rows) -> list[tuple[int, str]]:
    """Finds the lines that Arrow's parser takes by no schema, and its messages."""
    table = _read(lines.take(rows), pa.schema([])) if len(rows) else pa.table({})
    if not isinstance(table, str) and table.num_rows == len(rows):
        return []
    if len(rows) > 1:
        return [fault for half in np.array_split(rows, 2) for fault in _refused(lines, half)]
    message = table if isinstance(table, str) else "it holds more than one"
    return [(int(rows[0]), message.removeprefix("JSON parse error: ").removesuffix(" in row 0").rstrip("."))]


def _read(data: bytes, schema: pa.Schema) -> pa.Table | str:
    try:
        return pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        return str(error)
