"""A case of the table: one feature, its raw values in each row, and the values that are right, written by hand.

A dataset of the table has eight rows: six of the split `train`, one of `validation`, one of `test`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import yaml

ROWS = tuple(f"row-{number}" for number in range(8))
SPLITS = {"train": slice(0, 6), "validation": slice(6, 7), "test": slice(7, 8)}
TRAIN = SPLITS["train"]
LARGE = 30  # values that are not told one by one
ABSENT = object()
"""A raw value that a row lacks."""
Parts = Mapping[str, Sequence[Any]]
"""Values by part and row; the part "" is the feature itself."""


@dataclass(frozen=True)
class File:
    """A raw value in a file, which a row names by its path."""

    suffix: str  # with its dot
    content: bytes


@dataclass(frozen=True)
class Rejected:
    """In `read`: the row is a reject because of this feature; its dataset allows `rejects: {max_share: 1}`."""

    code: str


@dataclass(frozen=True)
class Check:
    """A value that many bytes are right for: `wrong` says why some are not, or returns None."""

    wrong: Callable[[Any], str | None]


class Windows(tuple[Any, ...]):
    """A row's values by window, each of which is a record."""


@dataclass(frozen=True)
class Case:
    """One feature of the table."""

    options: str
    """The feature's options in YAML; the column is the feature's name, or stands in `columns`."""
    raw: Sequence[Any]
    """By row: JSON, `ABSENT`, a `File` or a list of them."""
    read: Parts
    """The arrays that a model gets of a row, by part; a part `+length` is the reader's, and no record holds it."""
    stored: Parts | None = None
    """The values of records, flattened; by default those of `read`."""
    padding: Mapping[str, Any] = field(default_factory=dict)
    """The values that pad a batch, by part; by default 0, or empty bytes."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The raw values of further columns."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files that the options name, by path in the dataset's folder."""
    shown: Sequence[Any] | None = None
    """The values for people, as `head --json` has them: of an object the fields that matter."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the feature in dataset.json that no value of a row shows."""
    within: float = 0.0
    """The largest right difference of numbers, beside float32's rounding."""
    dataset: str = "main"
    """The dataset, for features that cannot stand in one spec; the families' `SPECS` hold its further options."""

    @cached_property
    def feature(self) -> dict[str, Any]:
        """The options as a mapping."""
        return dict(yaml.safe_load(self.options))

    @property
    def kind(self) -> str:
        """The kind's name."""
        return str(self.feature["kind"])

    def rejects(self) -> dict[str, str]:
        """Returns the codes of the rows that the feature makes rejects, by key."""
        given = (each for values in self.read.values() for each in zip(ROWS, values, strict=True))
        return {key: value.code for key, value in given if isinstance(value, Rejected)}

    def model_ready(self) -> dict[str, Sequence[Any]]:
        """Returns the values that a model gets, by part."""
        return {part.removeprefix("+"): values for part, values in self.read.items()}

    def in_records(self) -> Parts:
        """Returns the values of records, by part."""
        if self.stored is not None:
            return self.stored
        return {part: values for part, values in self.read.items() if not part.startswith("+")}


def named(feature: str, part: str) -> str:
    """Returns the name of a part's tensor."""
    return f"{feature}_{part}" if part else feature


def difference(expected: Any, found: Any, *, within: float = 0.0, fill: Any = None) -> str | None:
    """Says how a found value differs from the expected one, or returns None.

    With `fill` the found array may be larger at its ends, and holds that value there.
    """
    if isinstance(expected, Check):
        return expected.wrong(found)
    if isinstance(expected, Rejected):
        return f"kept, not rejected as {expected.code}"
    wanted, given = _array(expected), _array(found)
    if fill is not None and wanted.ndim == given.ndim and wanted.shape != given.shape:
        inner = tuple(slice(0, side) for side in wanted.shape)
        rest = np.ones(given.shape, bool)
        rest[inner] = False
        if not np.array_equal(given[rest], np.full(int(rest.sum()), fill, given.dtype), equal_nan=_is_nan(fill)):
            return f"padded by {given[rest].tolist()!r}, not {fill!r}"
        given = given[inner]
    if wanted.dtype != given.dtype:
        return f"dtype {given.dtype}, not {wanted.dtype}"
    if wanted.shape != given.shape:
        return f"shape {given.shape}, not {wanted.shape}"
    if wanted.dtype.kind == "f":
        same = np.allclose(given.astype(float), wanted.astype(float), rtol=1e-5, atol=within or 1e-6, equal_nan=True)
    elif wanted.dtype.kind in "iu" and within:
        same = bool(np.all(np.abs(given.astype(np.int64) - wanted.astype(np.int64)) <= within))
    else:
        same = bool(np.array_equal(given, wanted))
    return None if same else _told(wanted, given)


def _told(wanted: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> str:
    """Says all values, of large arrays only the first place that differs."""
    if wanted.size <= LARGE:
        return f"{given.tolist()!r}, not {wanted.tolist()!r}"
    differs = given != wanted
    place, most = tuple(np.argwhere(differs)[0].tolist()), ""
    if wanted.dtype.kind in "fiu":
        most = f", by {np.abs(given.astype(float) - wanted.astype(float)).max():.4g} at most"
    return f"{given[place]!r}, not {wanted[place]!r} at {place}: {int(differs.sum())} of {wanted.size} differ{most}"


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    array = np.array(value, object if _holds_bytes(value) else None)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _holds_bytes(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, list | tuple) and any(map(_holds_bytes, value)))


def _is_nan(fill: Any) -> bool:
    return isinstance(fill, float) and math.isnan(fill)


def int64(values: Sequence[Any]) -> list[Any]:
    """Returns each row's whole numbers as int64, for lists that may be empty."""
    return [np.array(value, np.int64) for value in values]


def float32(values: Sequence[Any]) -> list[Any]:
    """Returns each row's numbers as float32."""
    return [np.array(value, np.float32) for value in values]
