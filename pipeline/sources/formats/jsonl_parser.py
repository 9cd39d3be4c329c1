r"""The parser of JSON Lines: parses many lines at once, with the result of parsing each alone.

A line, stripped of spaces, tabs and carriage returns, is a row unless blank. It must be one JSON object by Arrow's
parser: RFC 8259 with these particulars. An asked key must not repeat (`{"a": 1, "a": 2}` is malformed); others may.
Asked or not, no string may hold an unpaired surrogate (`"\ud800"`), no number exceed float64 (`1e400`), and nothing
nest deeper than `MAX_DEPTH` levels. `NaN`, `Infinity` and `Inf` are accepted where not asked, and of the wrong type
where asked. Invalid UTF-8 is a fault only in asked columns.

One call parses many lines, with a schema from the file's first lines. A line from `{` to `}` leaves no object open (a
string cannot hold a newline), so if rows and lines are equal in number, each line is one object; else the lines are
halved, and Python reads those that do not fit the schema one by one. Both readers give the same values: the schema
affects only speed.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from recordmill.pipeline.sources.encoded import Lines, Rows
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.typing.arrays import absent, arrow_type, flat_values, in_groups, lookup, python_field
from recordmill.pipeline.sources.typing.python_values import Repeating, comes_twice, load_json, typed_objects
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.bounds import JSON_SIGNS
from recordmill.transforms.base.columns import Column, ImageBase

MAX_DEPTH = 200  # less than the limit of each reader, on each Python
STRING = rb'"(?:[^"\\]|\\.)*+"?'  # an unterminated one extends to the end, to be scanned only once
BRACKETS = re.compile(STRING + rb"|[\[{]+|[\]}]+", re.DOTALL)
ODD_NUMBERS = re.compile(STRING + rb"|-?Inf(?!inity)|-NaN", re.DOTALL)
PLAIN_NUMBERS = {b"-NaN": b"NaN", b"Inf": b"Infinity", b"-Inf": b"-Infinity"}
SURROGATE = re.compile("[\ud800-\udfff]")
FEW_LINES = 256  # Python reads them in the time of a dozen calls of Arrow's parser, as halving would need
NOT_ONE_OBJECT = "the row is not one JSON object: "
NO_OBJECT = Fault("malformed_row", f"{NOT_ONE_OBJECT}it must begin with {{ and end with }}")
TOO_DEEP = f"the row is nested deeper than {MAX_DEPTH} levels; flatten it, or write the inner part as a string"

Steps = tuple[tuple[str, int], ...]  # nested keys, each with the number of lists around its value


@dataclass(frozen=True)
class Field:
    """The usual place of a column's values in an object: a key, or, with dots, a key inside another.

    A key with the dots themselves takes precedence. `objects.id` of `{"objects": [{"id": 1}, {"id": 2}]}` is 1, 2.
    """

    steps: Steps
    type: pa.DataType  # the Arrow type of their usual JSON type


Fields = Mapping[str, Field]


def _arrow_fields(tree: dict[str, Any]) -> list[pa.Field]:
    fields = list[pa.Field]()
    for key, (depth, inner) in tree.items():
        kind = pa.struct(_arrow_fields(inner)) if isinstance(inner, dict) else inner
        for _ in range(depth):
            kind = pa.list_(kind)
        fields.append(pa.field(key, kind))
    return fields


@dataclass(frozen=True)
class Parsed:
    """The parsed rows of a piece."""

    rows: Rows
    fields: Fields
    table: pa.Table  # rows read by Arrow: nested fields with nulls, unchecked
    of_table: Rows  # indices in `rows` of the table's rows, rising
    objects: Mapping[int, dict[str, Any]]  # other rows, by index in `rows`
    faults: Faults  # faults of the other non-blank lines, by line

    def typed(self, name: str, column: Column, base: ImageBase, faults: Faults) -> pa.Array:
        """Returns a column in its Arrow type, shape [rows], and adds faults by row, as `typed_values` does."""
        groups = []
        if len(self.of_table):
            stored = lookup(self.table, ".".join(key for key, _ in self.fields[name].steps))
            groups.append((self.of_table, partial(typed_values, name, column, stored, base)))
        if self.objects:
            values = [python_field(row, name) for row in self.objects.values()]
            groups.append((np.array(list(self.objects)), partial(typed_objects, name, column, values, base)))
        return in_groups(len(self.rows), arrow_type(column), groups, faults)


class Parser:
    """Parses lines and reads the given fields."""

    def __init__(self, fields: Fields) -> None:
        """Raises: SourceError: a field is wanted both as a value and as an object."""
        self._fields = fields
        tree: dict[str, Any] = {}
        in_two_ways = "the column {!r} is wanted both as a value and as an object with other columns"
        for name, target in fields.items():
            branch, (*outer, (last, depth)) = tree, target.steps
            for key, lists in outer:
                there = branch.setdefault(key, (lists, {}))
                if there[0] != lists or not isinstance(there[1], dict):
                    raise SourceError(in_two_ways.format(name))
                branch = there[1]
            if branch.setdefault(last, (depth, target.type)) != (depth, target.type):
                raise SourceError(in_two_ways.format(name))
        self._schema = pa.schema(_arrow_fields(tree))
        self._dotted = [name for name, field in fields.items() if "." in name and len(field.steps) == 1]
        nested = [name.split(".") for name, field in fields.items() if len(field.steps) > 1]
        self._dots = {f"{key}.{inner}".encode() for parts in nested for key, inner in pairwise(parts)}

    def parse(self, lines: Lines) -> Parsed:
        """Parses a piece's lines, with the result of parsing each alone."""
        faults = dict.fromkeys(lines.others.tolist(), NO_OBJECT)
        faults |= {line: Fault("too_large", "the row is longer than 64 MiB") for line in lines.too_long.tolist()}
        large = lines.longer_than(JSON_SIGNS.most).tolist()
        signs = {line: count for line in large if (count := signs_of(lines[line])) > JSON_SIGNS.most}
        faults |= {line: Fault(JSON_SIGNS.reason, JSON_SIGNS.beyond(count)) for line, count in signs.items()}
        nested = _without(lines.opening_more_than(MAX_DEPTH), [*signs]).tolist()
        deep = [row for row in nested if depth(lines[row]) > MAX_DEPTH]
        faults |= dict.fromkeys(deep, Fault("malformed_row", TOO_DEEP))
        objects_only = _without(lines.objects, [*deep, *signs])
        misfits = list[int]()
        if any(dots in lines.data for dots in self._dots):  # a key with the dots themselves takes precedence
            each = zip(objects_only.tolist(), lines.each(objects_only), strict=True)
            misfits = [row for row, line in each if any(dots in line for dots in self._dots)]
        quick = _without(objects_only, misfits)
        tables = self._parse(lines, quick, misfits)
        quick = _without(quick, misfits)
        table = pa.concat_tables([self._schema.empty_table(), *tables]).combine_chunks()
        unclear = np.zeros(table.num_rows, bool)
        for name in self._dotted:  # without a value under the dotted key, the field may be nested there
            unclear |= absent(table[name].combine_chunks())
        if unclear.any():
            misfits += quick[unclear].tolist()
            quick, table = quick[~unclear], table.filter(pa.array(~unclear))
        objects = self._by_python(lines, sorted(misfits), faults)
        rows = np.sort(np.concatenate([quick, np.array(list(objects), np.int64)]))
        numbered = dict(zip(np.searchsorted(rows, list(objects)).tolist(), objects.values(), strict=True))
        return Parsed(rows, self._fields, table, np.searchsorted(rows, quick), numbered, faults)

    def _parse(self, lines: Lines, rows: Rows, misfits: list[int]) -> list[pa.Table]:
        """Returns the tables of lines that fit the schema, in order; adds the others to `misfits`."""
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
        """Returns lines' objects, by line; adds faults of those that Arrow's parser always refuses."""
        objects = dict[int, dict[str, Any]]()
        for row in rows:
            try:
                found = _load_line(lines[row])
            except json.JSONDecodeError as invalid:  # its message shows nothing of the line
                faults[row] = Fault("malformed_row", f"{NOT_ONE_OBJECT}{invalid.msg}, character {invalid.pos + 1}")
                continue
            twice = next((name for name in self._fields if comes_twice(found, name)), None)
            if twice is None:
                objects[row] = found
            else:
                faults[row] = Fault("malformed_row", f"{NOT_ONE_OBJECT}{twice} comes twice")
        for row, message in _refused(lines, np.array(list(objects), np.int64)):
            faults[row] = self._unpaired(objects.pop(row)) or Fault("malformed_row", NOT_ONE_OBJECT + message)
        return objects

    def _unpaired(self, row: dict[str, Any]) -> Fault | None:
        for name in self._fields:
            values = flat_values([python_field(row, name)])
            if any(isinstance(value, str) and SURROGATE.search(value) for value in values):
                return Fault("invalid_utf8", "the string is not UTF-8, or holds an unpaired surrogate", name)
        return None


def peek(lines: Iterable[bytes], pairs: Callable[[Any], Any] | None = None) -> list[dict[str, Any]]:
    """Returns the objects in lines, made of their `pairs`; skips other lines."""
    rows = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            is_bounded = signs_of(line) <= JSON_SIGNS.most and depth(line) <= MAX_DEPTH
            row = load_json(line, pairs) if is_bounded else None
            rows += [row] if isinstance(row, dict) else []
    return rows


def depth(line: bytes) -> int:
    """Returns the nesting depth of objects and lists; ignores brackets in strings."""
    level = deepest = 0
    for found in BRACKETS.finditer(line):
        sign, size = found[0][:1], found.end() - found.start()
        level += (sign in b"{[") * size - (sign in b"]}") * size
        deepest = max(deepest, level)
    return deepest


def signs_of(line: bytes) -> int:
    """Counts what may be a value in JSON, also in strings."""
    return sum(map(line.count, (b",", b":", b"[", b"{")))


def _load_line(line: bytes) -> Any:
    """Parses a line like Arrow's parser: with `Inf`, `-NaN` and the sign of `-0`. Raises: json.JSONDecodeError."""
    try:
        return load_json(line, Repeating.of, signed_zero=True)
    except json.JSONDecodeError:
        plain = ODD_NUMBERS.sub(lambda odd: PLAIN_NUMBERS.get(odd[0], odd[0]), line)
        if plain == line:
            raise
        return load_json(plain, Repeating.of, signed_zero=True)


def _without(rows: Rows, others: list[int]) -> Rows:
    return np.setdiff1d(rows, others, assume_unique=True) if others else rows


def _refused(lines: Lines, rows: Rows) -> list[tuple[int, str]]:
    """Finds the lines that Arrow's parser refuses with any schema, and its messages."""
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
