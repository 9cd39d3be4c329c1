"""Boxes around things in an image, moved with its pixels; stored relative to the stored image."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.feature import Feature, ListFeature, feature_named
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.boxes import BoxesDescription, BoxesOptions


class Boxes(ListFeature):
    """Any number of boxes a row, four numbers each."""

    column_type = ColumnType.NUMBER
    contract = BoxesOptions
    kind: Literal["boxes"]
    image: str = Field(min_length=1)
    """The feature of kind image that they are boxes of."""
    order: Literal["corners", "coco", "center", "tensorflow"]
    """The order of a box's four numbers. corners: x_min, y_min, x_max, y_max, as Pascal VOC. coco: x_min, y_min, width,
    height. center: x_center, y_center, width, height, as YOLO. tensorflow: y_min, x_min, y_max, x_max."""
    unit: Literal["absolute", "relative"]
    """absolute: pixels of the file's image. relative: 0 to 1 of its height and width."""
    oriented: Literal["upright", "file"] = "upright"
    """The coordinates' frame, where EXIF turns the image. upright: the image as viewers show it. file: the pixels as
    they lie in the file."""
    length: int | None = Field(default=None, ge=1, strict=True)
    """The number of boxes that every row must have; any number where it is not given."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """The number of boxes kept, and that a batch is padded to. None: all are kept, and a batch is padded to its
    longest."""

    def check(self, features: Mapping[str, Feature]) -> None:
        """Checks that the image is one."""
        kind = feature_named(self.image, features, "image").kind
        if kind != "image":
            raise WrongValueError(f"'{self.image}' is of kind {kind}: boxes are of a feature of kind image", "image")

    def _column(self) -> Column:
        """Returns a column of lists of numbers, four a box; nested lists are one list."""
        return replace(super()._column(), multiple=4, length=self.length and 4 * self.length)

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._make(BoxesDescription, stored="float32", length=self.read_length)
