"""From parsed `tf.train.Example`s to typed columns.

A feature is a list. In a column that is not `many` it has one value, or none, which is missing. Values of bytes are
text, a category or an image's bytes, as the column wants them.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.examples import SEVERAL, Example
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.image_refs import to_piece
from recordmill.pipeline.sources.typing.arrays import arrow_type, as_lists, in_groups
from recordmill.pipeline.sources.typing.faults import Fault, Faults, add_faults
from recordmill.pipeline.sources.typing.values import typed_values

BYTES, PIECES = "bytes_list", "pieces"
ARROW = {BYTES: pa.binary(), PIECES: pa.binary(), "float_list": pa.float32(), "int64_list": pa.int64()}
"""The Arrow types of the kinds of values; `PIECES` are references to images, ready."""
HEAD = 64  # bytes of an image: enough to find it by


class Piece(NamedTuple):
    """A record in a file that is not compressed."""

    data: bytes
    file: str
    """Relative to the source's root."""
    offset: int
    """The byte of the file where its data begins."""


@dataclass
class _Part:
    """The values of one kind: their rows, how many each row has where there may be many, and all of them."""

    rows: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    flat: list[Any] = field(default_factory=list)


class ExampleColumn:
    """One column of some rows, gathered from one example after another: few parsed ones are in memory at once."""

    def __init__(self, name: str, column: Column) -> None:
        """Takes the column; its name is the feature's, too."""
        self._name, self._column = name, column
        self._many, self._is_image = column.many, column.type is ColumnType.IMAGE
        self._parts: dict[str, _Part] = {}
        self._faults: Faults = {}

    def add(self, row: int, example: Example, piece: Piece | None) -> None:
        """Adds the values of a row; `piece` is its record, where images can stay there."""
        kind_and_values = example.values(self._name)
        if kind_and_values is None:
            return
        kind, values = kind_and_values
        if piece and kind == BYTES and self._is_image:
            kind, values = PIECES, [_reference(value, piece) for value in values]
        if not self._many and len(values) != 1:
            if values:
                self._faults[row] = Fault("wrong_type", f"wanted one value, found {len(values)}", self._name)
            return
        part = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = _Part()
        part.rows.append(row)
        if self._many:
            part.lengths.append(len(values))
            part.flat.extend(values)
        else:
            part.flat.append(values[0])

    def typed(self, rows: int, faults: Faults) -> pa.Array:
        """Gives the column in its Arrow type, shape [rows]: null where a row has no value, or a bad one.

        The faults are added to `faults`.
        """
        for row, fault in self._faults.items():
            faults.setdefault(row, fault)
        groups = [(part.rows, partial(self._typed, kind, part)) for kind, part in self._parts.items()]
        return in_groups(rows, arrow_type(self._column), groups, faults)

    def _typed(self, kind: str, part: _Part, faults: Faults) -> pa.Array:
        count = len(part.rows)
        if kind == SEVERAL:
            several = Fault("wrong_type", "the steps hold values of several types", self._name)
            add_faults(faults, np.ones(count, bool), several)
            return pa.nulls(count, arrow_type(self._column))
        values = pa.array(part.flat, ARROW[kind])
        if self._many:
            values = as_lists(np.array(part.lengths), values, np.zeros(count, bool))
        return values if kind == PIECES else typed_values(self._name, self._column, values, ("", ""), faults)


def _reference(value: bytes, piece: Piece) -> bytes | None:
    """Refers to a value by its place in its record: where the same bytes come first."""
    if not value:
        return None
    offset = piece.data.find(value[:HEAD])
    while not piece.data.startswith(value, offset):
        offset = piece.data.find(value[:HEAD], offset + 1)
    return to_piece(piece.file, piece.offset + offset, len(value))
