"""From records to a model's input, for both engines: stored parts by name, columns of a batch, and forms.

>>> from recordmill.transforms.values.values_stored import NumberDescription
>>> price = NumberDescription(stored="float32", normalize="none", indicator=True)
>>> list(stored_features({"price": price}))
['price', 'price_missing']
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import check_types
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.description import Stored as Stored

KEY = "key"  # feature of an Example with the row's key, a reserved name
UNENCODED, LAST = "@pixels", "@last"
"""Suffixes of outputs for workers: images before JPEG encoding, and the luma of their files' last pixels."""
LENGTHS = "lengths"  # suffix of a served input: the number of values in each row's list
IMAGES = ("image", "image_sequence")  # kinds with a column of images
LONGEST = "longest"


def part_name(feature: str, part: str) -> str:
    """Returns a part's name in a record: `caption`, `caption_length`; for `UNENCODED`, `photo@pixels`."""
    return f"{feature}_{part}" if part and not part.startswith("@") else feature + part


def stored_features(features: Mapping[str, Description], *, with_key: bool = False) -> dict[str, Stored]:
    """Returns the stored parts by their names in a record, with `with_key` also the row's key."""
    every = ((name, *each) for name, description in features.items() for each in description.parts.items())
    named = {part_name(name, part): stored for name, part, stored in every}
    return {**named, KEY: Stored("bytes")} if with_key else named


class Ragged(NamedTuple):
    """Lists of varying length, one a row: row i holds `values[splits[i] : splits[i + 1]]`."""

    values: Any  # the concatenated values of all rows: an array, or a list of bytes
    splits: npt.NDArray[np.int64]  # int64 [rows + 1], from 0, never falling: empty lists repeat a number

    def lengths(self) -> npt.NDArray[np.int64]:
        """Counts the values of each row: int64 [rows]."""
        lengths: npt.NDArray[np.int64] = self.splits[1:] - self.splits[:-1]  # a fifth of the time of `np.diff`
        return lengths

    def row(self, number: int) -> Any:
        """Returns the values of a row, from 0: a view of an array."""
        return self.values[int(self.splits[number]) : int(self.splits[number + 1])]


def splits_of(lengths: Any) -> npt.NDArray[np.int64]:
    """Returns the splits of lists by their lengths: int64 [lists + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def positions_of(starts: Any, lengths: Any) -> npt.NDArray[np.int64]:
    """Returns the numbers `start, start + 1, …` of each list, concatenated: int64 [values]."""
    splits = splits_of(lengths)
    positions: npt.NDArray[np.int64] = np.arange(splits[-1]) + np.repeat(starts - splits[:-1], lengths)
    return positions


Bytes: TypeAlias = Sequence[bytes | memoryview]  # one value a row; memoryviews point into the shard's memory
Column: TypeAlias = npt.NDArray[Any] | Bytes | Ragged
"""A stored part: [rows, *shape] of int64 or float32, bytes, or lists of these."""


class ArraySpec(NamedTuple):
    """Shape and dtype of an array in a batch; in `ragged` arrays the second dimension varies by row."""

    shape: tuple[int | None, ...]  # rows first; None varies by batch
    dtype: str  # a NumPy name, `bfloat16`, or `bytes`: an object array of bytes, TensorFlow's strings
    ragged: bool = False


def mapped(function: Callable[..., Any], batch: Any, *others: Any) -> Any:
    """Applies a function to each array, `Ragged` or spec of a batch, and to those at its place in `others`."""
    if isinstance(batch, dict):
        return {name: mapped(function, batch[name], *(each[name] for each in others)) for name in batch}
    if type(batch) is tuple:  # specs and `Ragged` are tuples, too
        return tuple(mapped(function, *parts) for parts in zip(batch, *others, strict=True))
    return function(batch, *others)


def arrays_of(batch: Any) -> list[Any]:
    """Lists the arrays of a batch, or their specs, in order."""
    found = list[Any]()
    mapped(found.append, batch)
    return found


class RowError(Exception):
    """A row of a batch that cannot be read; `row` is its position in the batch, from 0."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row, self.message = row, message


@dataclass(frozen=True, kw_only=True)
class FinishOptions:
    """Forms of images and texts, by default the serving model's. Raises: DatasetError: an invalid value."""

    CHOICES: ClassVar[Mapping[str, Sequence[str]]] = {
        "dtype": ("uint8", "uint16", "float32", "bfloat16"),
        "text": ("padded", "bucketed", "ragged", "packed"),
        "captions": ("all", "first", "random"),
    }
    dtype: str | None = None
    """The dtype of images: `uint8` or `uint16` as stored, `float32` or `bfloat16` normalized; None: the spec's."""
    text: str | None = None
    """The form of texts: `padded` to one length; `bucketed`, padded in batches of similar length; `ragged`; `packed`,
    rows of several records. By default padded; packed if the spec packs all features at one length."""
    text_length: int | str | None = None
    """The length of padded texts: a number of ids, or `longest` for the batch's longest; by default the feature's
    `max_length`, else the batch's longest. Of several packs it chooses one."""
    captions: str = "all"  # from rows with several texts: `all`, the `first`, or a `random` one, another each epoch
    masks: bool = False  # adds `<feature>_mask` to padded texts: bool, True for tokens

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # a reader's state is JSON
                object.__setattr__(self, name, value.item())
        for name, choices in self.CHOICES.items():
            if (value := getattr(self, name)) not in (None, *choices):
                raise DatasetError(f"{name} is one of {', '.join(choices)}, got {cut(repr(value))}")
        check_types(vars(self), {each.name: each.type for each in fields(self)})
        length = self.text_length
        if length not in (None, LONGEST) and not (isinstance(length, int) and length >= 1):
            raise DatasetError(f"text_length is a number of ids, at least 1, or '{LONGEST}', got {length!r}")

    def length_of(self, max_length: int | None) -> int | None:
        """Returns the padded length of a text with this `max_length`; None: the batch's longest."""
        if self.text_length is None:
            return max_length
        return self.text_length if isinstance(self.text_length, int) else None


SERVED = FinishOptions()  # the serving model's options
