"""Arrays of numbers of a shape, whose first side may differ from row to row: latents, spectrograms, masks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.array_layout import DTYPES, ArrayLayout
from recordmill.transforms.contract.kinds.base import (
    Decoding,
    Description,
    Export,
    ExportColumn,
    FeatureOptions,
    Json,
    Stored,
    left_out,
    tfds_tensor,
)


@dataclass(frozen=True, kw_only=True)
class ArrayOptions(FeatureOptions):
    """The options of arrays."""

    kind: ClassVar[str] = "array"
    dtype: str
    shape: tuple[int | None, ...]
    max_length: int | None = None
    """The entries along a varying first side that are kept; None: all."""

    @property
    def layout(self) -> ArrayLayout:
        """The dtype and the shape."""
        return ArrayLayout(self.dtype, self.shape)


@dataclass(frozen=True, kw_only=True)
class ArrayDescription(Description):
    """An array a row, stored as its bytes, little-endian, in C order."""

    kind: ClassVar[str] = "array"
    stored: str = "bytes"
    dtype: str
    shape: tuple[Count | None, ...]
    max_length: Count | None = left_out(None)
    optional: bool = left_out(False)

    def __post_init__(self) -> None:
        """Refuses another dtype, and a shape that no feature has. Raises: DatasetError."""
        if self.dtype not in DTYPES:
            shown = cut(repr(self.dtype), 50)
            raise DatasetError(f"an array's `dtype` is {shown} in dataset.json, this release knows {', '.join(DTYPES)}")
        if not self.shape or None in self.shape[1:] or 0 in self.shape:
            shown = cut(repr(list(self.shape)), 50)
            raise DatasetError(f"dataset.json states arrays of shape {shown}: it is damaged, copy the version again")

    @property
    def layout(self) -> ArrayLayout:
        """The dtype and the shape."""
        return ArrayLayout(self.dtype, self.shape)

    @property
    def blank(self) -> bytes:
        return bytes(self.layout.unit)

    @property
    def length(self) -> str:
        """The number of entries along the first side, where rows differ in it."""
        return "varying"

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Returns the bytes; of an optional fixed shape 1 for a row without an array, which is zeros."""
        parts = {"": Stored("bytes")}
        may_lack = description.get("optional") and description["shape"][0] is not None
        return parts | {"missing": Stored("int64")} if may_lack else parts

    def words(self) -> str:
        most = "any" if self.max_length is None else f"at most {self.max_length:,}"
        return f"{self.dtype} {'×'.join(most if side is None else str(side) for side in self.shape)}"

    def value(self, parts: Mapping[str, Any], decoding: Decoding) -> list[Any] | None:
        """Returns the numbers, as lists in lists."""
        return None if parts.get("missing") else self.layout.decode(bytes(parts[""])).tolist()

    def export(self, into: Export, name: str, options: dict[str, Any]) -> None:
        """Adds lists in lists; float16 and bfloat16 as the same numbers in float32."""
        kind = "float32" if self.dtype in ("float16", "bfloat16") else self.dtype
        into.add(name, options, ExportColumn(name, kind, name, depth=len(self.shape)))

    def tfds(self) -> dict[str, Any]:
        """Describes a `Tensor` as bytes; bytes alone where rows differ in shape, which it cannot read."""
        if self.layout.is_ragged:
            return super().tfds()
        return tfds_tensor(self.dtype, self.layout.inner, "bytes")

    def fault(self, stored: Any) -> str | None:
        return self.layout.fault(len(stored))
