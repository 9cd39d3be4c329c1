"""Boxes and key points in an image, transformed with its pixels and stored relative to the stored image."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.feature import Feature, ListFeature
from recordmill.transforms.images.image_spec import image_named
from recordmill.transforms.images.places_stored import BOX_NUMBERS, BoxesDescription, KeypointsDescription

ORDERS: Mapping[str, Sequence[str]] = {
    "corners": ("x_min", "y_min", "x_max", "y_max"),
    "coco": ("x_min", "y_min", "width", "height"),
    "center": ("x_center", "y_center", "width", "height"),
    "tensorflow": ("y_min", "x_min", "y_max", "x_max"),
}
"""The names of a box's four numbers, by order."""
BESIDE_AXIS = re.compile(r"b?n?d?box|min|max|center|tl|br|[^a-z]|c(?=[xy]$)|(?<=^[xy])c$")
"""The rest of a column's name that tells x or y, in lower case."""


class Places(ListFeature):
    """A list of objects on an image, some numbers each."""

    column_type = ColumnType.NUMBER
    image: str = Field(min_length=1)
    """The feature of kind image with the objects."""
    unit: Literal["absolute", "relative"]
    """absolute: pixels in the file's image. relative: 0 to 1 of the height and the width."""
    oriented: Literal["upright", "file"] = "upright"
    """The coordinates' frame if EXIF rotates the image. upright: the displayed image. file: the pixels in the file."""
    length: int | None = Field(default=None, ge=1, strict=True)
    """The required number of objects per row; by default any."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """Keeps the first objects, and pads batches to this number. None: keeps all, and pads to a batch's longest row."""
    columns: tuple[str, ...] = ()
    """Columns of numbers instead of one of lists: of boxes four, as `order` says, such as [x1, y1, x2, y2]; of key
    points x and y of the first, of the second, …"""

    @model_validator(mode="after")
    def _check_column(self) -> Self:
        if self.columns and self.column is not None:
            raise WrongValueError("contradicts `columns`, which name the columns: leave one out", "column")
        return self

    def first_column(self, name: str) -> str:
        return self.columns[0] if self.columns else super().first_column(name)

    @property
    def numbers_of_object(self) -> int:
        return BOX_NUMBERS

    def check(self, features: Mapping[str, Feature]) -> None:
        image_named(self.image, features, f"{self.kind} need a feature of kind image", self.oriented)


class Boxes(Places):
    """A list of boxes, four numbers each."""

    kind: Literal["boxes"]
    order: Literal["corners", "coco", "center", "tensorflow"]
    """The order of a box's four numbers. corners: x_min, y_min, x_max, y_max, as Pascal VOC. coco: x_min, y_min, width,
    height. center: x_center, y_center, width, height, as YOLO. tensorflow: y_min, x_min, y_max, x_max."""

    @model_validator(mode="after")
    def _check_columns(self) -> "Boxes":
        if self.columns and len({*self.columns}) != 4:
            got = f"[{', '.join(self.columns)}]"
            raise WrongValueError(f"should name four columns, {', '.join(ORDERS[self.order])}, got {got}", "columns")
        for name, wanted in zip(self.columns, ORDERS[self.order], strict=False):
            # A name tells another axis or end than wanted; unusual names tell nothing.
            last = re.split("[./]", name.lower())[-1]
            axis = BESIDE_AXIS.sub("", last)
            has_other_end = any(end in last and end not in wanted for end in ("min", "max"))
            if axis in ("x", "y") and (axis != wanted[0] or has_other_end):
                order = f"`order: {self.order}`: {', '.join(ORDERS[self.order])}"
                raise WrongValueError(f"name '{name}' in the place of {wanted} by {order}", "columns")
        return self

    def _column(self) -> Column:
        """Returns a column of lists, four numbers per box, nested lists flattened; or one of four columns."""
        numbers = 1 if self.columns else BOX_NUMBERS
        return replace(super()._column(), multiple=numbers, length=self.length and numbers * self.length)

    def joined_columns(self, name: str) -> dict[str, tuple[str, Column]]:
        return {column: (column, self._column()) for column in self.columns}

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(BoxesDescription, stored="float32", length=self.read_length)


Name = Annotated[str, Field(min_length=1)]
Pairs = tuple[tuple[Name, Name], ...]


class Keypoints(Places):
    """A list of objects, each with the same key points."""

    kind: Literal["keypoints"]
    points: Annotated[tuple[Name, ...], Field(min_length=1)] | Annotated[int, Field(ge=1, strict=True)]
    """The names of an object's points, in the order of the numbers; or only how many there are."""
    flip_pairs: Pairs
    """Points that change places in a mirrored image: [[left_eye, right_eye], …]; [] if there are none."""
    skeleton: Pairs = ()
    """Points joined by lines in pictures: [[nose, left_eye], …]."""
    numbers: Literal[2, 3] = 3
    """The numbers of a point. 3: x, y and COCO's visibility, 0, 1 or 2. 2: x and y; all are visible."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = () if isinstance(self.points, int) else self.points
        if len(set(names)) < len(names):
            raise WrongValueError("holds a name twice: give each point a name of its own", "points")
        for option, pairs in (("flip_pairs", self.flip_pairs), ("skeleton", self.skeleton)):
            for name in (name for pair in pairs for name in pair if name not in names):
                near = did_you_mean(name, names) if names else ": list the names there instead of their number"
                raise WrongValueError(f"names '{name}', which `points` lacks{near}", option)
        flipped = [name for pair in self.flip_pairs for name in pair]
        if twice := [name for name in flipped if flipped.count(name) > 1]:
            raise WrongValueError(f"holds '{twice[0]}' twice: a point has one partner, or none", "flip_pairs")
        if self.columns and len(self.columns) != self.numbers_of_object:
            need = f"{self.count} points of {self.numbers} numbers (`numbers`) need {self.numbers_of_object}"
            raise WrongValueError(f"names {len(self.columns)} columns, {need}", "columns")
        if self.columns and self.length != 1:
            raise WrongValueError("is 1 with `columns`, which hold one object a row: add `length: 1`", "length")
        return self

    @property
    def count(self) -> int:
        return self.points if isinstance(self.points, int) else len(self.points)

    @property
    def numbers_of_object(self) -> int:
        return self.count * self.numbers

    def joined_columns(self, name: str) -> dict[str, tuple[str, Column]]:
        number = Column(ColumnType.NUMBER, optional=True, expected=True)
        return {column: (column, number) for column in self.columns}

    def _column(self) -> Column:
        """Returns a column of lists, all numbers of each object; nested lists are flattened."""
        length = self.length and self.numbers_of_object * self.length
        return replace(super()._column(), multiple=self.numbers_of_object, length=length, visibility=self.numbers == 3)

    def describe(self, statistics: dict[str, Any]) -> Description:
        names = () if isinstance(self.points, int) else self.points
        pairs = {
            option: tuple((names.index(one), names.index(other)) for one, other in getattr(self, option))
            for option in ("flip_pairs", "skeleton")
        }
        found = {"stored": "float32", "length": self.read_length, "count": self.count, "names": names}
        return self._describe(KeypointsDescription, **found, **pairs)
