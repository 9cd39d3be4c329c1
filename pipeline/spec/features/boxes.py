"""Boxes: of things in a picture, moved as the picture is; stored by where they lie in what is stored of it."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.base import Description, Feature, tfds_sequence
from recordmill.pipeline.spec.features.lists import ListFeature


class Boxes(ListFeature):
    """Any number of boxes a row, four numbers each."""

    kind: Literal["boxes"]
    image: str = Field(min_length=1)
    """The feature of kind image that they are boxes of."""
    order: Literal["corners", "coco", "center", "tensorflow"]
    """What a box's four numbers are. corners: x_min, y_min, x_max, y_max, as Pascal VOC. coco: x_min, y_min, width,
    height. center: x_center, y_center, width, height, as YOLO. tensorflow: y_min, x_min, y_max, x_max."""
    unit: Literal["absolute", "relative"]
    """absolute: pixels of the file's picture. relative: 0 to 1 of its height and width."""
    oriented: Literal["upright", "file"] = "upright"
    """What they are measured in, where EXIF turns the picture. upright: the picture as viewers show it. file: the
    pixels as they lie in the file."""
    length: int | None = Field(default=None, ge=1, strict=True)
    """The number of boxes that every row must have; any number where it is not given."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """The number of boxes that are kept, and that a batch is padded to; none: all, and a batch's most."""

    def check(self, features: Mapping[str, Feature]) -> None:
        """Checks that the image is one.

        Raises:
            WrongValueError: it is no feature, or of another kind.
        """
        name, found = self.image, features.get(self.image)
        if found is None:
            raise WrongValueError(f"'{name}' is none of the features{did_you_mean(name, features)}", "image")
        if found.kind != "image":
            raise WrongValueError(f"'{name}' is of kind {found.kind}: boxes are of a feature of kind image", "image")

    def raw_column(self) -> Column:
        """A list of numbers, four a box; nested lists are one list."""
        return Column(
            ColumnType.NUMBER,
            many=True,
            optional=self.optional,
            separator=self.separator,
            multiple=4,
            length=self.length and 4 * self.length,
        )

    def describe(self, statistics: dict[str, Any]) -> Description:
        """What they are boxes of, and how many there are."""
        return {"kind": self.kind, "stored": "float32", "image": self.image, **self.describe_length()}

    def tfds(self, description: Description) -> dict[str, Any]:
        """A sequence of `BBoxFeature`."""
        name = "tensorflow_datasets.core.features.bounding_boxes.BBoxFeature"
        shape = {"dimensions": ["4"]}
        box = {"shape": shape, "dtype": "float32", "bboxFormat": "REL_YXYX"}
        return tfds_sequence({"pythonClassName": name, "boundingBox": box})
