"""Boxes of objects in an image."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from recordmill.transforms.contract.kinds import base

NUMBERS = 4  # the numbers of a box


class Box(NamedTuple):
    """A box as fractions of the image's height and width, 0..1."""

    y_min: float
    x_min: float
    y_max: float
    x_max: float


@dataclass(frozen=True, kw_only=True)
class PlacesOptions(base.ListOptions):
    """The options of places on an image, in one list of numbers a row."""

    image: str
    unit: str
    oriented: str = "upright"

    @property
    def numbers_of_object(self) -> int:
        """The numbers of an object in the list."""
        return NUMBERS


@dataclass(frozen=True, kw_only=True)
class BoxesOptions(PlacesOptions):
    """The options of boxes: four float32 numbers each."""

    kind: ClassVar[str] = "boxes"
    order: str


@dataclass(frozen=True, kw_only=True)
class _OfImage:
    stored: str
    image: str  # the feature with the image


@dataclass(frozen=True, kw_only=True)
class PlacesDescription(base.ListDescription, _OfImage):
    """Places on an image, which move with it: any number of objects a row."""

    @property
    def as_places(self) -> Self:
        return self

    @property
    def partners(self) -> list[int] | None:
        """By point, the index of the one that takes its place in a mirror; None for boxes."""
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an object's numbers."""
        return (NUMBERS,)

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> list[Any]:
        return super().value({"": np.reshape(parts[""], (-1, *self.shape)).tolist()}, decoding)

    @property
    def decoded(self) -> tuple[str, int]:
        return self.stored, 1 + len(self.shape)


@dataclass(frozen=True, kw_only=True)
class BoxesDescription(PlacesDescription):
    """Any number of boxes a row: `y_min, x_min, y_max, x_max`, 0..1."""

    kind: ClassVar[str] = "boxes"

    def type_words(self) -> str:
        return f"float32 boxes of {self.image}"

    def decode(self, stored: Any, decoding: base.Decoding) -> Box:
        return Box(*map(base.short, stored))

    def tfds(self) -> dict[str, Any]:
        """Describes a sequence of `BBoxFeature`."""
        box = {"shape": base.tfds_shape((NUMBERS,)), "dtype": "float32", "bboxFormat": "REL_YXYX"}
        return base.tfds_sequence({"pythonClassName": f"{base.TFDS}.bounding_boxes.BBoxFeature", "boundingBox": box})
