"""Values stored unchanged: columns of the source, and tensors of the user's own function."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds import base

MISSING: Mapping[str, Any] = {"bytes": b"", "int64": 0, "float32": math.nan}
"""The values that stand for a missing one, by type."""


@dataclass(frozen=True, kw_only=True)
class RawOptions(base.ListOptions):
    """The options of raw values."""

    kind: ClassVar[str] = "raw"
    type: str = "bytes"
    many: bool = False


@dataclass(frozen=True, kw_only=True)
class RawDescription(base.Description):
    """A value a row, or a list."""

    kind: ClassVar[str] = "raw"
    stored: str
    length: Count | str | None = base.left_out(None)  # values of every row, or `varying`; None: not a list
    max_length: Count | None = None
    optional: bool = base.left_out(False)  # a record may lack the value, which is then `blank`

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        """Returns the value, and for an optional one 1 for a record without it."""
        value = {"": base.Stored(description["stored"], None if "length" in description else ())}
        return value | {"missing": base.Stored("int64")} if description.get("optional") else value

    @property
    def blank(self) -> Any:
        return MISSING[self.stored]

    def words(self) -> str:
        return self.stored if self.length is None else base.counted_words(self.stored, self.length, self.max_length)

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> Any:
        return None if parts.get("missing") else _value(parts[""])

    def export(self, into: base.Export, name: str, options: dict[str, Any]) -> None:
        many = self.length is not None
        is_float = self.stored == "float32" and not many  # NaN is a missing number
        column = plain_column(name, self.stored, many=many)
        into.add(name, options | ({"optional": True} if is_float or self.optional else {}), column)

    def to_json(self) -> dict[str, Any]:
        written = super().to_json()
        if self.length is None:
            del written["max_length"]
        return written


@dataclass(frozen=True, kw_only=True)
class OwnDescription(base.Description):
    """A tensor of the user's own function."""

    kind: ClassVar[str] = "own"
    stored: str
    shape: tuple[Count, ...] | None  # a row's shape; None: lists of varying length

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        shape = description["shape"]
        return {"": base.Stored(description["stored"], None if shape is None else tuple(shape))}

    def words(self) -> str:
        if self.shape is None:
            return base.counted_words(self.stored, "varying", None)
        return f"{self.stored} {base.sides_words(self.shape)}".strip()

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> Any:
        """Returns the tensor as a value or as nested lists."""
        return _value(parts[""])

    def export(self, into: base.Export, name: str, options: dict[str, Any]) -> None:
        """Adds one flat list of the tensor's values."""
        if self.shape is not None and len(self.shape) > 1:
            into.note(name, f"a tensor of shape {list(self.shape)} is exported as one list")
        into.add_raw(name, plain_column(name, self.stored, many=self.shape != ()))
        into.note(name, "your own function made it; it goes back as kind raw")


def _value(stored: Any) -> Any:
    if isinstance(stored, bytes | memoryview):
        return bytes(stored)
    if isinstance(stored, list):
        return [bytes(each) for each in stored]
    return _nested(stored.tolist()) if stored.dtype == np.float32 else stored.tolist()


def _nested(numbers: Any) -> Any:
    return [_nested(each) for each in numbers] if isinstance(numbers, list) else base.short(numbers)


def plain_column(name: str, stored: str, *, many: bool) -> base.ExportColumn:
    """Returns a column of stored values, with bytes as text and nested lists flattened."""
    makes: Mapping[str, Callable[[Any], Any]] = {"bytes": _utf8, "float32": _or_missing, "int64": base.as_it_is}
    kind = {"bytes": "string"}.get(stored, stored)
    if not many:
        return base.ExportColumn(name, kind, name, makes[stored])
    each: Callable[[Any], Any] = _utf8 if stored == "bytes" else base.as_it_is
    return base.ExportColumn(name, kind, name, lambda values: [each(value) for value in _flat(values)], depth=1)


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _or_missing(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else number


def _utf8(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise base.ExportError(
            f"it holds bytes that are not UTF-8 ({value[:16]!r}), which no source reads back"
        ) from None
