"""Boxes and key points of objects in an image, such as joints of persons and corners of faces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count
from recordmill.transforms.base import description as base

BOX_NUMBERS = 4  # the numbers of a box


class Box(NamedTuple):
    """A box as fractions of the image's height and width, 0..1."""

    y_min: float
    x_min: float
    y_max: float
    x_max: float


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
        return (BOX_NUMBERS,)

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
        box = {"shape": base.tfds_shape((BOX_NUMBERS,)), "dtype": "float32", "bboxFormat": "REL_YXYX"}
        return base.tfds_sequence({"pythonClassName": f"{base.TFDS}.bounding_boxes.BBoxFeature", "boundingBox": box})


POINT_NUMBERS = 3  # the stored numbers of a point
VISIBLE = 2.0


class Keypoint(NamedTuple):
    """A point as fractions of the image's height and width, 0..1; zeros if it is not labelled."""

    y: float
    x: float
    visibility: float  # as in COCO, 0: not labelled, or outside the image; 1: labelled, but hidden; 2: visible


@dataclass(frozen=True, kw_only=True)
class KeypointsDescription(PlacesDescription):
    """The key points of any number of objects a row: `y, x, visibility` each."""

    kind: ClassVar[str] = "keypoints"
    count: Count  # the points of an object
    names: tuple[str, ...] = base.left_out(())
    flip_pairs: tuple[tuple[Count, Count], ...] = ()  # indices of points that change places in a mirror
    skeleton: tuple[tuple[Count, Count], ...] = base.left_out(())  # indices of joined points, for pictures

    def __post_init__(self) -> None:
        """Refuses pairs of unknown points. Raises: DatasetError."""
        if any(point >= self.count for pair in (*self.flip_pairs, *self.skeleton) for point in pair):
            raise DatasetError(f"dataset.json pairs more than the {self.count} key points: copy the version again")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.count, POINT_NUMBERS

    @property
    def partners(self) -> list[int]:
        """The index of each point's partner in a mirror, by default itself."""
        swapped = {one: other for pair in self.flip_pairs for one, other in (pair, pair[::-1])}
        return [swapped.get(point, point) for point in range(self.count)]

    def type_words(self) -> str:
        return f"objects of {self.count} float32 key points of {self.image}"

    def decode(self, stored: Any, decoding: base.Decoding) -> tuple[Keypoint, ...]:
        return tuple(Keypoint(*map(base.short, point)) for point in stored)

    def tfds(self) -> dict[str, Any]:
        return base.tfds_sequence(base.tfds_tensor("float32", self.shape, "none"))
