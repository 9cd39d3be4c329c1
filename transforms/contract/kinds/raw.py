"""Values that are stored as they come: columns of the source, and tensors of the user's own function."""

from dataclasses import dataclass
from typing import Any, ClassVar

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds.base import Description, Json, ListOptions, Stored, left_out


@dataclass(frozen=True, kw_only=True)
class RawOptions(ListOptions):
    """The options of raw values."""

    kind: ClassVar[str] = "raw"
    type: str = "bytes"
    many: bool = False


@dataclass(frozen=True, kw_only=True)
class RawDescription(Description):
    """A value a row, or a list."""

    kind: ClassVar[str] = "raw"
    stored: str
    length: Count | str | None = left_out(None)
    """The number of values of every row, or `varying`; None: no lists."""
    max_length: Count | None = None

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Gives the value, or the list."""
        return {"": Stored(description["stored"], None if "length" in description else ())}

    def to_json(self) -> dict[str, Any]:
        """Gives the description as the manifest holds it."""
        written = super().to_json()
        if self.length is None:
            del written["max_length"]
        return written


@dataclass(frozen=True, kw_only=True)
class OwnDescription(Description):
    """A tensor of the user's own function."""

    kind: ClassVar[str] = "own"
    stored: str
    shape: tuple[Count, ...] | None
    """A row's shape; None where rows have different lengths."""

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Gives the tensor."""
        shape = description["shape"]
        return {"": Stored(description["stored"], None if shape is None else tuple(shape))}
