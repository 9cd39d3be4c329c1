"""Key points of objects in an image, transformed with its pixels and stored relative to the stored image."""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.boxes import Places
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.keypoints import KeypointsDescription

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
        if self.columns:
            self._check_columns(self.columns)
        return self

    def _check_columns(self, columns: tuple[str, ...]) -> None:
        if len(columns) != self.numbers_of_object:
            each = f"{self.count} points of {self.numbers} numbers (`numbers`)"
            raise WrongValueError(f"names {len(columns)} columns, {each} need {self.numbers_of_object}", "columns")
        if self.length != 1:
            raise WrongValueError("is 1 with `columns`, which hold one object a row: add `length: 1`", "length")

    @property
    def count(self) -> int:
        """The number of an object's points."""
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
        return self._describe(KeypointsDescription, "image", "max_length", **found, **pairs)
