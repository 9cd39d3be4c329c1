"""A batch's values between the steps of the NumPy reader, and the error that blames one row of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt


class Ragged(NamedTuple):
    """Lists of different lengths, one a row: row i holds `values[splits[i] : splits[i + 1]]`."""

    values: Any
    """An array, or a list of bytes: the values of all rows, one after another."""
    splits: npt.NDArray[np.int64]
    """int64 [rows + 1], from 0, never falling."""

    def lengths(self) -> npt.NDArray[np.int64]:
        """Counts the values of each row: int64 [rows]."""
        lengths: npt.NDArray[np.int64] = self.splits[1:] - self.splits[:-1]  # a fifth of the time of `np.diff`
        return lengths


Bytes: TypeAlias = Sequence[bytes | memoryview]
"""One value a row of a feature of bytes; memoryviews show the shard's own memory."""
Column: TypeAlias = npt.NDArray[Any] | Bytes | Ragged
"""A stored part: [rows, *shape] of int64 or float32, bytes, or lists of these."""


class ArraySpec(NamedTuple):
    """Shape and dtype of an array of a batch; in `ragged` ones the second dimension differs from row to row."""

    shape: tuple[int | None, ...]
    """The first is the rows; None where it differs from batch to batch."""
    dtype: str
    """A NumPy name, `bfloat16`, or `bytes`: an object array of bytes, which TensorFlow has as strings."""
    ragged: bool = False


class RowError(Exception):
    """One row of a batch cannot be read; `row` is its position in the batch, from 0."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row
        self.message = message
