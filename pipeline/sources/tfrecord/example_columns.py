"""From parsed `tf.train.Example`s to typed columns.

A feature is a list. In a column that is not `many` it has one value, or none, which is missing. Values of bytes are
text, a category or a picture's bytes, as the column wants them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.examples import SEVERAL, Example
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.image_refs import to_piece
from recordmill.pipeline.sources.typing.arrays import as_lists, in_groups
from recordmill.pipeline.sources.typing.faults import Fault, Faults, add_faults
from recordmill.pipeline.sources.typing.values import typed_values

BYTES, PIECES = "bytes_list", "pieces"
ARROW = {BYTES: pa.binary(), PIECES: pa.binary(), "float_list": pa.float32(), "int64_list": pa.int64()}
"""What values of a kind are in Arrow; `PIECES` are references to pictures, ready."""
HEAD = 64  # bytes of a picture: enough to find it by


Piece = tuple[bytes, str, int]
"""A record's data, and where it lies: a file that is not compressed, relative to the source's root, and the offset."""


@dataclass
class _Part:
    """The values of one kind: of which rows, how many each where there may be many, and all of them."""

    rows: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    flat: list[Any] = field(default_factory=list)


class ExampleColumn:
    """One column of some rows, gathered from a few examples at a time."""

    def __init__(self, name: str, column: Column) -> None:
        """`name` is the feature's, too."""
        self._name, self._column = name, column
        self._parts: dict[str, _Part] = {}
        self._faults: Faults = {}

    def add(self, first: int, examples: Sequence[Example], pieces: Sequence[Piece] | None) -> None:
        """Adds the values of the next rows.

        Args:
            first: the number of the first of them.
            examples: one a row.
            pieces: each row's record and its place, where pictures can stay there.
        """
        name, add = self._name, self._add_list if self._column.many else self._add_value
        in_place = pieces if self._column.type is ColumnType.IMAGE else None
        for row, example in enumerate(examples):
            found = example.values(name)
            if found is None:
                continue
            kind, values = found
            if in_place and kind == BYTES:
                kind, values = PIECES, [_reference(value, *in_place[row]) for value in values]
            add(first + row, kind, values)

    def typed(self, rows: int, faults: Faults) -> pa.Array:
        """The column in its Arrow type, shape [rows]: null where a row has no value, or a bad one.

        The faults found are added to `faults`.
        """
        for row, fault in self._faults.items():
            faults.setdefault(row, fault)
        groups = [(part.rows, partial(self._typed, kind, part)) for kind, part in self._parts.items()]
        return in_groups(rows, self._column.arrow, groups, faults)

    def _add_value(self, row: int, kind: str, values: Sequence[Any]) -> None:
        if len(values) == 1:
            part = self._part(kind)
            part.rows.append(row)
            part.flat.append(values[0])
        elif values:
            self._faults[row] = Fault("wrong_type", f"wanted one value, found {len(values)}", self._name)

    def _add_list(self, row: int, kind: str, values: Sequence[Any]) -> None:
        part = self._part(kind)
        part.rows.append(row)
        part.lengths.append(len(values))
        part.flat.extend(values)

    def _part(self, kind: str) -> _Part:
        part = self._parts.get(kind)
        return self._parts.setdefault(kind, _Part()) if part is None else part

    def _typed(self, kind: str, part: _Part, faults: Faults) -> pa.Array:
        if kind == SEVERAL:
            several = Fault("wrong_type", "the steps hold values of several types", self._name)
            add_faults(faults, np.ones(len(part.rows), bool), several)
            return pa.nulls(len(part.rows), self._column.arrow)
        values = pa.array(part.flat, ARROW[kind])
        if self._column.many:
            values = as_lists(np.array(part.lengths), values, np.zeros(len(part.rows), bool))
        if kind == PIECES:
            return values
        return typed_values(self._name, self._column, values, ("", ""), faults)


def _reference(value: bytes, record: bytes, file: str, offset: int) -> bytes | None:
    """Refers to where a value lies in its record: to where the same bytes come first."""
    if not value:
        return None
    at = record.find(value[:HEAD])
    while not record.startswith(value, at):
        at = record.find(value[:HEAD], at + 1)
    return to_piece(file, offset + at, len(value))
