"""Serializes stored tensors as `tf.train.Example`s, the same bytes in every process; packs documents into shared ones.

The protocol buffer's own deterministic encoder sorts the features by name; tfx_bsl's encoder does not.

Documents of a shard are packed by the bounded-space best fit of Csirik and Johnson (1991): a document goes into the
fullest of the open rows that still holds it, else opens a row; where more than `OPEN_ROWS` are open, the fullest is
closed. The rows follow from the order of the documents alone. A document that is longer than a row is cut into pieces,
each but the last a row of its own; one without ids is in no row. Nothing else is left out.

>>> packer = RowPacker(4)
>>> [row.lengths for row in packer.add(b"a", np.arange(3))], [row.lengths for row in packer.add(b"b", np.arange(5))]
([], [[4], [3, 1]])
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from recordmill.transforms.contract.stored import KEY, part_name


def to_lists(stored: Any) -> list[list[Any]]:
    """Returns a stored tensor, of shape [rows, …] or ragged, as one list of values a row."""
    if isinstance(stored, tf.RaggedTensor):
        values, splits = stored.values.numpy().tolist(), stored.row_splits.numpy().tolist()
        return [values[start:end] for start, end in zip(splits, splits[1:], strict=False)]
    values = stored.numpy()
    return values.reshape(len(values), math.prod(values.shape[1:])).tolist()


def encode(keys: Sequence[bytes], stored: Mapping[str, Any]) -> list[bytes]:
    """Serializes rows: every stored feature, and the row's key as feature `key`; no rows give no examples."""
    columns = [(name, _FIELDS[tensor.dtype], to_lists(tensor)) for name, tensor in stored.items()]
    columns.append((KEY, "bytes_list", [[key] for key in keys]))
    return [_serialize([(name, field, rows[row]) for name, field, rows in columns]) for row in range(len(keys))]


_FIELDS = {tf.string: "bytes_list", tf.int64: "int64_list", tf.float32: "float_list"}


def _serialize(row: list[tuple[str, str, list[Any]]]) -> bytes:
    example = tf.train.Example()
    features = example.features.feature
    for name, kind, values in row:
        getattr(features[name], kind).value.extend(values)
    return example.SerializeToString(deterministic=True)


Ids = npt.NDArray[np.int64]
OPEN_ROWS = 64  # 0.1 to 2 % of the places stay empty; 256 rows save next to nothing, 8 waste up to three times as much


@dataclass
class PackedRow:
    """A row that is being filled; its key is that of its first document."""

    key: bytes
    documents: int = 0
    """The number of documents that begin in it."""
    pieces: list[Ids] = field(default_factory=list)

    @property
    def lengths(self) -> list[int]:
        """The number of ids of each document, or piece of one."""
        return [len(piece) for piece in self.pieces]


class RowPacker:
    """Packs one shard's documents; holds the ids of at most `open_rows` rows."""

    def __init__(self, width: int, open_rows: int = OPEN_ROWS) -> None:
        """Takes the number of ids that a row holds, at least 1, and how many rows may be open."""
        self._width, self._open_rows = width, open_rows
        self._open: dict[int, PackedRow] = {}
        self._spaces: list[tuple[int, int]] = []
        """The free places and the number of each open row, ascending: the fullest comes first, then the oldest."""
        self._opened = 0

    def add(self, key: bytes, ids: Ids) -> list[PackedRow]:
        """Takes the next document, int64 of shape [ids], and returns the rows that it closes, in order."""
        closed: list[PackedRow] = []
        for start in range(0, len(ids), self._width):
            row = self._place(key, ids[start : start + self._width])
            row.documents += int(start == 0)
            if self._spaces[0][0] == 0 or len(self._spaces) > self._open_rows:
                closed.append(self._open.pop(self._spaces.pop(0)[1]))
        return closed

    def rest(self) -> list[PackedRow]:
        """Returns the rows that are still open, in the order in which they were opened."""
        rows = list(self._open.values())
        self._open, self._spaces = {}, []
        return rows

    def _place(self, key: bytes, piece: Ids) -> PackedRow:
        """Puts a piece into the fullest row that has room for it, or into a new one."""
        fullest = bisect_left(self._spaces, (len(piece), 0))
        if fullest < len(self._spaces):
            free, number = self._spaces.pop(fullest)
        else:
            free, number, self._opened = self._width, self._opened, self._opened + 1
            self._open[number] = PackedRow(key)
        self._open[number].pieces.append(piece.copy())  # a view would keep all ids of its batch in memory
        insort(self._spaces, (free - len(piece), number))
        return self._open[number]


class PackedRecords:
    """Packs one shard's documents into Examples: the row's ids as bytes, each document's length, the first one's key.

    >>> packing = PackedRecords("text", 1024)                              # doctest: +SKIP
    >>> records = [record for batch in batches for record in packing.add(*batch)]  # doctest: +SKIP
    >>> records += packing.rest()                                          # doctest: +SKIP
    """

    def __init__(self, feature: str, width: int) -> None:
        """Takes the text's name and the number of ids that a record holds."""
        self._feature = feature
        self._packer = RowPacker(width)
        self._documents = 0
        self._ids = 0

    def add(self, keys: Sequence[bytes], stored: Mapping[str, tf.RaggedTensor]) -> list[bytes]:
        """Packs the next documents, the text ragged int64 [documents, None]; returns the complete records."""
        ids = stored[self._feature]
        values, splits = ids.values.numpy(), ids.row_splits.numpy()
        rows = []
        for key, start, end in zip(keys, splits, splits[1:], strict=False):
            self._documents += int(start == end)  # it is in no row
            rows += self._packer.add(key, values[start:end])
        return self._encoded(rows)

    def rest(self) -> list[bytes]:
        """Returns the records that were not full."""
        return self._encoded(self._packer.rest())

    def report(self) -> dict[str, int]:
        """Returns the number of documents, those without ids among them, and of ids that the records hold."""
        return {"documents": self._documents, "ids": self._ids}

    def _encoded(self, rows: Sequence[PackedRow]) -> list[bytes]:
        if not rows:
            return []
        self._documents += sum(row.documents for row in rows)
        self._ids += sum(sum(row.lengths) for row in rows)
        lengths = [len(row.lengths) for row in rows]
        parts = {
            "": tf.constant([np.concatenate(row.pieces).astype("<i4").tobytes() for row in rows]),
            "lengths": tf.RaggedTensor.from_row_lengths(np.concatenate([row.lengths for row in rows]), lengths),
        }
        return encode(
            [row.key for row in rows], {part_name(self._feature, part): values for part, values in parts.items()}
        )
