"""Values stored unchanged: columns of the source, and tensors of the user's own function."""

import math
from collections.abc import Mapping
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

    @property
    def padding(self) -> Any:
        return b"" if self.stored == "bytes" else 0

    def type_words(self) -> str:
        return self.stored if self.length is None else base.counted_words(self.stored, self.length, self.max_length)

    def decode(self, stored: Any, decoding: base.Decoding) -> Any:
        return _value(stored)

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

    @property
    def padding(self) -> Any:
        return b"" if self.stored == "bytes" else 0

    def type_words(self) -> str:
        if self.shape is None:
            return base.counted_words(self.stored, "varying", None)
        return f"{self.stored} {base.sides_words(self.shape)}".strip()

    def decode(self, stored: Any, decoding: base.Decoding) -> Any:
        """Returns the tensor as a value or as nested lists."""
        return _value(stored)


def _value(stored: Any) -> Any:
    if isinstance(stored, bytes | memoryview):
        return bytes(stored)
    if isinstance(stored, list):
        return [bytes(each) for each in stored]
    return _nested(stored.tolist()) if stored.dtype == np.float32 else stored.tolist()


def _nested(numbers: Any) -> Any:
    return [_nested(each) for each in numbers] if isinstance(numbers, list) else base.short(numbers)
