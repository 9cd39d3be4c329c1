"""Masks: the class, or the number, of each pixel of an image, or a mask for each of its objects.

Pixels of a mask only move, and keep their values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds import base
from recordmill.transforms.contract.kinds.image import PIXEL_BYTES, ImageDescription, ImageSequenceDescription


def levels_of(pixel: str) -> int:
    """Counts the values of a pixel of this type."""
    return int(256 ** PIXEL_BYTES[pixel])


@dataclass(frozen=True, kw_only=True)
class MaskDescription(ImageDescription):
    """One mask a row; with `optional`, at most one."""

    kind: ClassVar[str] = "mask"
    is_mask: ClassVar[bool] = True
    is_served: ClassVar[bool] = False
    image: str
    classes: Mapping[str, str] | None = base.left_out(None)  # names by value, in decimal
    ignore: Count | None = base.left_out(None)

    @property
    def padding(self) -> int:
        return self.ignore or 0

    def words(self) -> str:
        """Describes the encoding, the image and the classes."""
        classes = f", classes: {len(self.classes)}" if self.classes else ""
        ignored = "" if self.ignore is None else f", {self.ignore} ignored"
        return f"{super().words()} of {self.image}{classes}{ignored}"


@dataclass(frozen=True, kw_only=True)
class MasksDescription(ImageSequenceDescription):
    """Any number of masks a row, 0 and 1, all of one size."""

    kind: ClassVar[str] = "masks"
    is_mask: ClassVar[bool] = True
    is_served: ClassVar[bool] = False
    ignore: ClassVar[None] = None
    image: str

    def words(self) -> str:
        return f"{super().words()} of objects of {self.image}"


Masked: TypeAlias = MaskDescription | MasksDescription
