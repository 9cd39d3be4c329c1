"""The contract of a kind of feature: its options as the graph takes them, and its description as the manifest holds it.

A kind stores one value or several parts: the part "" is the feature itself, any other, such as `length`, is stored and
read under the name `<feature>_length`. `Description.parts_of` declares them, once, for every reader and writer.
"""

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Self, TypeVar

from recordmill.pipeline.errors import DatasetError

Json = Mapping[str, Any]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Stored:
    """The type of a part: `bytes`, `int64` or `float32`, and the shape of a row's values; None for a list."""

    dtype: str
    shape: tuple[int, ...] | None = ()


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
        return _read(cls, description, f"a feature of kind {cls.kind}")

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
    length: int | str
    """The number of values of every row, or `varying`."""
    max_length: int | None

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Gives the list."""
        return {"": Stored(description["stored"], None)}


def _read(cls: type[Any], values: Json, what: str) -> Any:
    read: dict[str, Any] = {}
    for name, (declared, hint) in _fields(typing.cast(Any, cls)).items():
        if name in values:
            read[name] = _checked(values[name], hint, f"{what}: `{name}`")
        elif declared.default is MISSING:
            raise DatasetError(f"{what} has no `{name}` in dataset.json: restore the manifest from a copy")
    return cls(**read)


@functools.cache
def _fields(cls: type[Any]) -> dict[str, tuple["Field[Any]", Any]]:
    hints = typing.get_type_hints(cls)
    return {each.name: (each, hints[each.name]) for each in fields(cls)}


def _checked(value: Any, hint: Any, what: str) -> Any:
    """Gives a JSON value as a field of this type takes it: lists become tuples, objects dataclasses."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if is_dataclass(option) and isinstance(value, Mapping):
            return _read(typing.cast(type[Any], option), value, what)
        if typing.get_origin(option) is tuple and isinstance(value, list | tuple):
            kinds = typing.get_args(option)
            kinds = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
            if len(kinds) == len(value):
                return tuple(_checked(item, kind, what) for item, kind in zip(value, kinds, strict=True))
        if option is float and type(value) is int:
            return float(value)
        if isinstance(option, type) and type(value) is option:
            return value
    raise DatasetError(f"{what} is {value!r:.50} in dataset.json, of another type: restore the manifest from a copy")


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
