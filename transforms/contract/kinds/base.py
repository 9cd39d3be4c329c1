"""The contract of a kind of feature: its options as the graph takes them, and its description as the manifest holds it.

A kind stores one value or several parts: the part "" is the feature itself, any other, such as `length`, is stored and
read under the name `<feature>_length`. `Description.parts_of` declares them, once, for every reader and writer. All
that is said of a kind to people and to other tools is said by its description: no other room has a table by kind.
"""

import functools
import keyword
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.json_values import Count, read_as
from recordmill.pipeline.safe_text import cut

TFDS = "tensorflow_datasets.core.features"


@dataclass(frozen=True)
class Stored:
    """The type of a part: `bytes`, `int64` or `float32`, and the shape of a row's values; None for a list."""

    dtype: str
    shape: tuple[int, ...] | None = ()

    def __post_init__(self) -> None:
        """Refuses another type. Raises: DatasetError."""
        if self.dtype not in ("bytes", "int64", "float32"):
            shown = cut(repr(self.dtype), 50)
            raise DatasetError(f"a feature is stored as {shown} in dataset.json: copy the version again")


def argument_name(feature: str) -> str:
    """Returns a feature's name as a serving input: `class_` for `class`, since signatures take no keyword of Python."""
    return f"{feature}_" if keyword.iskeyword(feature) else feature


def tfds_stored(stored: Stored) -> dict[str, Any]:
    """Describes a stored part: a scalar, a tensor, or a sequence of scalars."""
    dtype = "string" if stored.dtype == "bytes" else stored.dtype
    scalar = {"pythonClassName": f"{TFDS}.scalar.Scalar", "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"}}
    if stored.shape is None:
        return tfds_sequence(scalar)
    return tfds_tensor(dtype, stored.shape, "none") if stored.shape else scalar


def tfds_sequence(feature: dict[str, Any]) -> dict[str, Any]:
    """Describes any number of a feature."""
    return {"pythonClassName": f"{TFDS}.sequence_feature.Sequence", "sequence": {"feature": feature, "length": "-1"}}


def tfds_tensor(dtype: str, shape: Sequence[int], encoding: str) -> dict[str, Any]:
    """Describes a tensor; -1 is a side that varies."""
    tensor = {"shape": tfds_shape(shape), "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": f"{TFDS}.tensor_feature.Tensor", "tensor": tensor}


def tfds_shape(shape: Sequence[int]) -> dict[str, list[str]]:
    """Describes a shape."""
    return {"dimensions": [str(side) for side in shape]}


class ExportError(UserError):
    """A version cannot be exported so; the message says which of its features, and what can be done."""


def as_it_is(value: Any) -> Any:
    """Returns the value: the cell of a column that holds decoded values themselves."""
    return value


@dataclass(frozen=True)
class ExportColumn:
    """A column of an export."""

    name: str
    type: str  # `image`, `string`, or the NumPy name of numbers; of the innermost values where `depth` is above 0
    feature: str  # feature whose value it holds
    cell: Callable[[Any], Any] = as_it_is  # makes the cell of a feature's decoded value; None where a row lacks it
    depth: int = 0  # 0 for a value a row, 1 for a list, 2 for lists in a list


class Export(Protocol):
    """The columns of a version as its features add them."""

    @property
    def label(self) -> str | None:
        """The feature that is the label."""

    @property
    def is_learned_elsewhere(self) -> bool:
        """Whether the statistics are not of the version's own rows, so that a build of these would learn others."""

    def vocabulary(self, feature: str) -> list[str]:
        """Returns a feature's words by id. Raises: DatasetError: the vocabulary is damaged."""

    def add(self, name: str, options: dict[str, Any], *columns: ExportColumn) -> None:
        """Adds a feature of the spec with its columns."""

    def add_raw(self, name: str, column: ExportColumn) -> None:
        """Adds a feature of kind raw, which stores what its column holds."""

    def add_column(self, column: ExportColumn) -> None:
        """Adds a column that no feature reads."""

    def add_words(self, feature: str, words: Sequence[str]) -> str:
        """Adds a file of words, one a line; returns its path."""

    def read_as_stored(self, name: str, description: dict[str, Any]) -> None:
        """Reads a part of a record by a description of kind raw, in place of its feature's."""

    def note(self, name: str, sentence: str) -> None:
        """Adds a sentence on values that do not go back as they came."""


Json = Mapping[str, Any]
Value = TypeVar("Value")
UNKNOWN = "[UNK]"  # the name of an unknown word or class


@dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """The options of a feature that the graph and the workers need."""

    kind: ClassVar[str]
    limits: ClassVar[tuple[str, ...]] = ("missing",)  # gate's limits that a feature of the kind may have
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class ListOptions(FeatureOptions):
    """The options of a feature that has several values a row."""

    max_length: int | None = None  # number of values that are kept; None: all


def left_out(default: Value) -> Value:
    """Declares a field that the manifest leaves out where it has its default."""
    return field(default=default, metadata={"left_out": True})


class Decoding(NamedTuple):
    """The facts that a feature's stored values are decoded with."""

    vocabulary: Sequence[str] | None  # words by id; None where there are no ids, or where they are hashes
    statistics: Json
    image: Callable[..., Any]  # makes an image for people of its stored bytes, the description, and its orientation


@dataclass(frozen=True, kw_only=True)
class Description:
    """A feature as `dataset.json` describes it: all that a reader needs to know."""

    kind: ClassVar[str]

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Returns what is stored, by part, of a description in JSON; the first part is "", the feature itself."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, description: Json) -> Self:
        """Reads a description; keys that it does not know are left alone.

        Raises:
            DatasetError: a key is missing, or a value is of another type.
        """
        try:
            return typing.cast(Self, read_as(description, cls, f"a feature of kind {cls.kind}"))
        except DatasetError as error:
            raise DatasetError(f"{error} in dataset.json: restore the manifest from a copy") from None

    def to_json(self) -> dict[str, Any]:
        """Returns the description as the manifest holds it."""
        return {"kind": self.kind, **_written(self)}

    def parts(self) -> dict[str, Stored]:
        """Returns what is stored, by part."""
        return self._parts

    @functools.cached_property
    def _parts(self) -> dict[str, Stored]:
        return self.parts_of(self.to_json())

    @property
    def is_image_file(self) -> bool:
        """Whether the feature itself is stored as files of images."""
        return False

    @property
    def blank(self) -> bytes:
        """The bytes that the serving model takes of a row without a value, where it takes bytes."""
        return b""

    def fault(self, stored: Any) -> str | None:
        """Says what is wrong with the feature itself in a record, whose type is right; None where nothing is."""
        return None

    def words(self) -> str:
        """Describes what is stored of a row: the type and, of a list, the number of values."""
        raise NotImplementedError

    def value(self, parts: Mapping[str, Any], decoding: Decoding) -> Any:
        """Decodes a row's values of the parts for people; None where the row lacks the feature."""
        raise NotImplementedError

    def export(self, into: Export, name: str, options: dict[str, Any]) -> None:
        """Adds the feature's columns to an export, and the features of the spec that store them again.

        Args:
            into: the export.
            name: the feature's name.
            options: the feature's options in the spec that differ from their defaults.

        Raises:
            ExportError: the values cannot be exported.
        """
        raise NotImplementedError

    def tfds(self) -> dict[str, Any]:
        """Describes the feature as TensorFlow Datasets' `features.json` does; by default, as its stored type."""
        return tfds_stored(self.parts()[""])


@dataclass(frozen=True, kw_only=True)
class ListDescription(Description):
    """A feature with several values a row."""

    stored: str
    length: Count | str  # number of values of every row, or `varying`
    max_length: Count | None

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        return {"": Stored(description["stored"], None)}

    def with_length(self, words: str) -> str:
        """Adds the number of a row's values to words."""
        return counted_words(words, self.length, self.max_length)


class Padded(Protocol):
    """A description of lists that are padded when they are read."""

    @property
    def length(self) -> int | str | None:
        """The number of values of every row, or `varying`."""

    @property
    def max_length(self) -> int | None:
        """The number of values that are padded to; None: the batch's longest row."""


def counted_words(words: str, length: int | str, most: int | None) -> str:
    """Adds to words how many values a row has: `length`, or at most `most` where it varies."""
    if isinstance(length, int):
        return f"{words}, {length:,} each"
    return f"{words}, any number" if most is None else f"{words}, at most {most:,}"


def sides_words(shape: Sequence[int | None]) -> str:
    """Describes a shape: `2×3`."""
    return "×".join(map(str, shape))


def short(number: float) -> float:
    """Returns the number of the fewest digits that is the same float32: 0.1 instead of 0.10000000149011612."""
    return float(str(np.float32(number)))


def _written(value: Any) -> dict[str, Any]:
    written = {}
    for declared in fields(value):
        item = getattr(value, declared.name)
        if declared.metadata.get("left_out") and item == declared.default:
            continue
        if is_dataclass(item):
            item = _written(item)
        written[declared.name] = list(item) if isinstance(item, tuple) else item
    return written
