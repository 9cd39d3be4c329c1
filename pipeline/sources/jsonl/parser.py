r"""The parser of JSON Lines: what a row is, and how many are parsed at once with the outcome that each has alone.

A line, without the spaces, tabs and carriage returns around it, is a row unless it is blank. It is accepted if it is
one JSON object, alone, by Arrow's parser: RFC 8259 with these particulars. A key that is asked for comes once (`{"a":
1, "a": 2}` is malformed), one that is not may repeat. No string holds an unpaired surrogate (`"\ud800"`) and no number
is beyond float64 (`1e400`), asked for or not. `NaN` and `Infinity` are taken where nobody asks for them, and are of the
wrong type where somebody does. Bytes that are not UTF-8 are a fault only in columns that are asked for. Nesting has no
limit. Integers are read as numbers; `1.0` is no integer.

Many lines are parsed in one call. A line that begins with `{` and ends with `}` leaves no object open (a string cannot
hold a newline), so where as many rows as lines come out each line is one object; else the lines are halved until the
lines at fault stand alone. The outcome of a line is therefore its own.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from recordmill.pipeline.sources.columns import INT64
from recordmill.pipeline.sources.jsonl.fields import Field, Fields, Shape, arrow_schema
from recordmill.pipeline.sources.lines import Lines, Rows
from recordmill.pipeline.sources.typing.faults import Fault

WANTED = {pa.string(): "a string", pa.float64(): "a number", pa.int64(): "a 64-bit integer", pa.bool_(): "a boolean"}
JSON_NAMES = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    dict: "an object",
    list: "a list",
}
SURROGATE = re.compile("[\ud800-\udfff]")
FEW_LINES = 32
DIGITS = 40  # enough to be beyond 64 bits; Python refuses to convert more than 4,300


@dataclass(frozen=True)
class Parsed:
    """The rows of a piece of lines."""

    rows: Rows
    """The lines that are rows of `table`."""
    table: pa.Table
    """The fields, one inside the other, nulls included, nothing checked; each value has its JSON type."""
    faults: dict[int, Fault]
    """The other lines that are not blank."""


class Parser:
    """Parses lines, of which it reads some fields."""

    def __init__(self, fields: Fields) -> None:
        """Takes the fields.

        Raises:
            SourceError: one is wanted as a value, and another as a part of it.
        """
        self._fields = fields
        self._schema = arrow_schema(fields)

    def parse(self, lines: Lines) -> Parsed:
        """Parses the lines of a piece; each has the outcome that it has alone."""
        objects = lines.objects
        faults = {
            line: Fault("malformed_row", "the line is not one JSON object: it does not begin with { and end with }")
            for line in lines.others.tolist()
        }
        faults |= {line: Fault("too_large", "the line is longer than 64 MiB") for line in lines.too_long.tolist()}
        tables = self._parse(lines, objects, faults)
        rows = objects[[line not in faults for line in objects.tolist()]] if faults else objects
        return Parsed(rows, pa.concat_tables([self._schema.empty_table(), *tables]).combine_chunks(), faults)

    def _parse(self, lines: Lines, rows: Rows, faults: dict[int, Fault]) -> list[pa.Table]:
        """Gives the tables of the lines that are good, in their order, and adds the faults of the others."""
        if not len(rows):
            return []
        data = lines.take(rows)
        table = _read(data, self._schema)
        if not isinstance(table, str) and table.num_rows == len(rows):
            return [table]
        if len(rows) == 1:
            row = int(rows[0])
            faults[row] = _explain(lines[row], self._fields) or _parser_fault(table)
            return []
        parts = self._around_faults(lines, rows, faults) if len(rows) <= FEW_LINES else np.array_split(rows, 2)
        return [table for part in parts for table in self._parse(lines, part, faults)]

    def _around_faults(self, lines: Lines, rows: Rows, faults: dict[int, Fault]) -> list[Rows]:
        """Cuts a few rows, one of which is bad, so that those that look bad stand alone; never gives them back whole.

        Lines with a value of another JSON type are taken out at once: the parser never takes them, and a call of it
        costs 100 microseconds, which a column of the wrong type would cost twice a line.
        """
        parts: list[list[int]] = [[]]
        for row, line in zip(rows.tolist(), lines.each(rows), strict=True):
            fault = _explain(line, self._fields)
            if fault is None:
                parts[-1].append(row)
            elif fault.reason == "wrong_type":
                faults[row] = fault
            else:
                parts += [[row], []]
        if len(parts[0]) == len(rows):
            return np.array_split(rows, 2)
        return [np.array(part, np.int64) for part in parts]


def peek(lines: Iterable[bytes]) -> Shape:
    """Looks at what some lines hold; those that are no JSON object are passed over."""
    shape = Shape()
    for line in lines:
        try:
            row = _loads(line)
            if isinstance(row, dict):
                shape.add(row)
        except (ValueError, RecursionError):
            continue
    return shape


def _read(data: bytes, schema: pa.Schema) -> pa.Table | str:
    """The rows of some lines, or the parser's error."""
    try:
        return pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        return str(error)


def _explain(line: bytes, fields: Fields) -> Fault | None:
    """Says what may be wrong with a line, and nothing of what the line holds; None where nothing is found.

    What it calls `wrong_type` the parser never takes.
    """
    try:
        row = _loads(line)
    except json.JSONDecodeError as invalid:
        return Fault("malformed_row", f"the line is not one JSON object: {invalid.msg}, character {invalid.pos + 1}")
    except (ValueError, RecursionError):
        return None
    faults = (_misfit(row, name, field) for name, field in fields.items())
    return next(filter(None, faults), None)


def _misfit(row: dict[str, Any], name: str, field: Field) -> Fault | None:
    """Finds a field's first value that does not fit; None where all fit."""
    values: list[Any] = [row]
    for key, lists in field.steps:
        for value in values:
            if not isinstance(value, dict):
                return _wrong("an object", value, name)
        values = _filled(value.get(key) for value in values)
        for _ in range(lists):
            for value in values:
                if not isinstance(value, list):
                    return _wrong("a list", value, name)
            values = _filled(inner for value in values for inner in value)
    for value in values:
        if isinstance(value, str) and SURROGATE.search(value):
            return Fault("invalid_utf8", "the string is not UTF-8, or holds an unpaired surrogate", name)
        if not _fits(value, field.type):
            return _wrong(WANTED[field.type], value, name)
    return None


def _filled(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _wrong(wanted: str, value: object, name: str) -> Fault:
    is_other = _is_number(value) and wanted in (WANTED[pa.int64()], WANTED[pa.float64()])
    kind = "another number" if is_other else JSON_NAMES[type(value)]
    return Fault("wrong_type", f"wanted {wanted}, found {kind}", name)


def _parser_fault(result: pa.Table | str) -> Fault:
    """Makes a fault of the parser's result for one line: an error, or several rows."""
    reason = result if isinstance(result, str) else "it holds more than one"
    reason = reason.removeprefix("JSON parse error: ").removesuffix(" in row 0").rstrip(".")
    reason = reason.partition(", couldn't parse")[0]  # what follows is the value
    return Fault("malformed_row", f"the line is not one JSON object: {reason}")


def _loads(line: bytes) -> Any:
    """Parses a line; bytes that are not UTF-8 come as surrogates."""
    return json.loads(line.decode("utf-8", "surrogateescape"), parse_int=lambda digits: int(digits[:DIGITS]))


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _fits(value: object, wanted: pa.DataType) -> bool:
    if wanted == pa.int64():
        return type(value) is int and value in INT64
    if wanted == pa.float64():
        return _is_number(value)
    return type(value) is (str if wanted == pa.string() else bool)
