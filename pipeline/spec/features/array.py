"""Arrays of numbers: latents, embeddings per frame, spectrograms, masks."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.feature import Feature
from recordmill.transforms.contract.kinds.array import ArrayDescription, ArrayLayout
from recordmill.transforms.contract.kinds.base import Description

MOST_BYTES = 64 << 20  # 64 MiB, as of a text
Side = Annotated[int, Field(ge=1, strict=True)]


class Array(Feature):
    """An array of numbers."""

    column_type = ColumnType.ARRAY
    is_content = True
    kind: Literal["array"]
    shape: tuple[Side | None, ...] = Field(min_length=1, max_length=8)
    """The sides of each array; the first may be null: it varies by row."""
    dtype: Literal["uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32"] = "float32"
    """The stored and read type of the numbers."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """With a null side: the entries to keep and to pad batches to. None: all, padded to a batch's longest array."""

    @model_validator(mode="after")
    def _check_shape(self) -> "Array":
        if None in self.shape[1:]:
            raise ValueError(f"only the first side of `shape` may be null, got {list(self.shape)}")
        if self.max_length is not None and not self.layout.is_ragged:
            raise ValueError("`max_length` needs null as the first side of `shape`")
        if self.layout.unit > MOST_BYTES:
            raise ValueError(f"an array has at most 64 MiB, one of {self.layout} has {self.layout.unit:,} bytes")
        return self

    @property
    def layout(self) -> ArrayLayout:
        """The dtype and the shape."""
        return ArrayLayout(self.dtype, self.shape)

    def _column(self) -> Column:
        return replace(super()._column(), array=self.layout)

    def read_parts(self) -> tuple[str, ...]:
        """Names `length` if the first side varies."""
        return ("length",) if self.layout.is_ragged else ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(ArrayDescription, "dtype", "shape", "max_length", "optional")
