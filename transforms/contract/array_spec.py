"""Names, shapes and dtypes of a batch's arrays, known before anything is read."""

from typing import NamedTuple


class ArraySpec(NamedTuple):
    """One array of a batch; in `ragged` ones the second dimension differs from row to row."""

    shape: tuple[int | None, ...]
    """The first is the rows; None where it differs from batch to batch."""
    dtype: str
    """A NumPy name, `bfloat16`, or `bytes`: an object array of bytes, which TensorFlow has as strings."""
    ragged: bool = False
