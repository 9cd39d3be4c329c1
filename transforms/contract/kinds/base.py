"""The contract of a kind of feature: its options as the graph takes them, and its description as the manifest holds it.

A kind stores one value or several parts: the part "" is the feature itself, any other, such as `length`, is stored and
read under the name `<feature>_length`. `Description.parts_of` declares them, once, for every reader and writer.
"""

import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Self, TypeVar

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, read_as
from recordmill.pipeline.safe_text import cut

Json = Mapping[str, Any]
Value = TypeVar("Value")


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


@dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """The options of a feature that the graph and the workers need."""

    kind: ClassVar[str]
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class ListOptions(FeatureOptions):
    """The options of a feature that has several values a row."""

    max_length: int | None = None
    """The number of values that are kept; None: all."""


def left_out(default: Value) -> Value:
    """Declares a field that the manifest leaves out where it has its default."""
    return field(default=default, metadata={"left_out": True})


@dataclass(frozen=True, kw_only=True)
class Description:
    """A feature as `dataset.json` describes it: all that a reader needs to know."""

    kind: ClassVar[str]

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Gives what is stored, by part, of a description in JSON; the first part is "", the feature itself."""
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
        """Gives the description as the manifest holds it."""
        return {"kind": self.kind, **_written(self)}

    def parts(self) -> dict[str, Stored]:
        """Gives what is stored, by part."""
        return self._parts

    @functools.cached_property
    def _parts(self) -> dict[str, Stored]:
        return self.parts_of(self.to_json())


@dataclass(frozen=True, kw_only=True)
class ListDescription(Description):
    """A feature with several values a row."""

    stored: str
    length: Count | str
    """The number of values of every row, or `varying`."""
    max_length: Count | None

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Gives the list."""
        return {"": Stored(description["stored"], None)}


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
