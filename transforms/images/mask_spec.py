"""Masks of an image, from files or drawn: an index for each pixel, or a mask for each object."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.feature import Feature, ListFeature
from recordmill.transforms.images.image_spec import MAX_BYTES, Byte, Image, image_named
from recordmill.transforms.images.image_stored import MaskDescription, MasksDescription, PixelOptions, levels_of
from recordmill.transforms.values.category_spec import Classes, ClassName, distinct

Value = Annotated[int, Field(ge=0, le=65_535)]
_LevelOrColor = Annotated[Byte, Tag("a level")] | Annotated[tuple[Byte, Byte, Byte], Tag("a colour")]
Color = Annotated[_LevelOrColor, Discriminator(lambda value: "a level" if isinstance(value, int) else "a colour")]
MaskClasses = Annotated[
    Annotated[Classes, Tag("names")]
    | Annotated[dict[Value, ClassName], Field(min_length=1), AfterValidator(distinct), Tag("names by value")],
    Discriminator(lambda value: "names by value" if isinstance(value, dict) else "names"),
]
IGNORED = "ignore"  # the name in `colors` of the ignored value


class OfImage(Feature):
    """A feature with values for each pixel of an image."""

    column_type = ColumnType.IMAGE
    is_image = True
    is_mask = True
    strips: ClassVar[bool] = False
    image: str = Field(min_length=1)
    """The feature of kind image with the masked pixels: gives the mask its `size`, `shorter_side` and `fit`."""
    oriented: Literal["upright", "file"] = "upright"
    """The mask's frame if EXIF rotates the image. upright: the displayed image. file: the pixels in the file."""
    store: Literal["png", "raw"] = "png"
    """png; raw: pixels."""
    resize: Literal["nearest"] | None = None
    """nearest: a mask of another size is scaled to its image's by the nearest pixel. By default it is a reject."""
    max_pixels: int = Field(default=64_000_000, ge=1, strict=True)
    """The largest number of pixels; masks with more, by their header, are rejected before decoding."""
    max_bytes: int = Field(default=MAX_BYTES, ge=1, le=1 << 30, strict=True)
    """The largest number of bytes; larger masks are rejected before reading."""
    draw: str | None = None
    runs: Literal["columns", "rows"] | None = None
    """Draws texts, `1 3 10 5` an object of pixels 1 to 3, and 5 from 10 on. columns: counted down the image's columns,
    as usual on Kaggle. rows: along its rows. By default shapes are objects."""
    _image: Image | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_runs(self) -> Self:
        if self.runs and not self.draw:
            raise WrongValueError("are of drawn objects: give `draw`", "runs")
        if self.resize and self.draw:
            raise WrongValueError("is for files, and `draw` makes masks of their image's size: leave it out", "resize")
        return self

    def check(self, features: Mapping[str, Feature]) -> None:
        self._image = image_named(self.image, features, "a mask needs one of kind image", self.oriented)

    def _column(self) -> Column:
        shapes = ColumnType.TEXT if self.runs else ColumnType.OBJECTS
        return Column(shapes, bool(self.runs), self.optional) if self.draw else super()._column()

    def joined_columns(self, name: str) -> dict[str, tuple[str, Column]]:
        return {"runs": (self.first_column(name), self._column())} if self.runs else {}

    @property
    def pixel(self) -> str:
        return "uint8"

    @property
    def is_reference(self) -> bool:
        return self.draw is None

    @cached_property
    def pixel_options(self) -> PixelOptions:
        """The options from values to the stored pixels: they only move, and `ignore` is around them."""
        outside = getattr(self, "ignore", None) or 0
        around: dict[str, Any] = {"fill": float(outside), "padding": (outside,) * 3}
        return PixelOptions(**self._sides(), resize="nearest", channels=1, pixel=self.pixel, **around)

    def _sides(self) -> dict[str, Any]:
        """Returns the image's options that decide a pixel's place."""
        return {name: getattr(self._image, name) for name in ("size", "shorter_side", "fit")} if self._image else {}

    def _pixels(self) -> dict[str, Any]:
        shape = (*(self._sides().get("size") or (None, None)), 1)
        stored = {"stored": "bytes", "encoding": self.store, "shape": shape}
        return {**stored, "pixel": self.pixel, "dtype": self.pixel, "offset": (0.0,), "scale": (1.0,)}


class Mask(OfImage):
    """An index for each pixel of an image: its class, or the number of its object."""

    kind: Literal["mask"]
    classes: MaskClasses | None = None
    """The classes' names, ordered by value, or by value, `{0: background, 15: person}`. Other values are rejects. By
    default all values are good."""
    dtype: Literal["uint8", "uint16"] = "uint8"
    """The type of a pixel: uint16 for values above 255, such as the numbers of many objects."""
    ignore: Value | None = None
    """The value of pixels that count for no class, also of padding. By default none, and padding is 0."""
    colors: dict[ClassName, Color] | None = None
    """The colour of each class in the files, or its grey level; `ignore` names the ignored value. By default the pixels
    are the values: a palette's indices, or levels of grey."""
    draw: Literal["classes", "instances"] | None = None
    """Draws the column's shapes, polygons and run lengths. classes: later objects cover earlier ones. instances: the
    object's number in the row, from 1. By default the column holds images."""
    crowd: Literal["ignore", "draw"] = "ignore"
    """ignore: drawn groups, COCO's crowds, get the value `ignore`, which they need. draw: as other objects."""
    names: str | None = Field(default=None, min_length=1)
    """The column of the objects' classes, with `runs`. By default all are of the one class with a value above 0."""

    @model_validator(mode="after")
    def _check(self) -> "Mask":
        names = {name: value for value, name in self.named}
        for option, value in {"classes": max(names.values(), default=0), "ignore": self.ignore or 0}.items():
            if value >= levels_of(self.dtype):
                raise WrongValueError(f"{value} is above {self.dtype}'s 255: give `dtype: uint16`", option)
        if self.ignore is not None:
            if self.ignore in names.values():
                raise WrongValueError(f"{self.ignore} is the value of a class: give one that no class has", "ignore")
            names.setdefault(IGNORED, self.ignore)
        for name in self.colors or ():
            if name not in names:
                message = f"names '{name}', which is no class{did_you_mean(name, names)}"
                raise WrongValueError(f"{message}; add it to `classes`, or give `ignore`", "colors")
        if len({*self._colors.values()}) < len(self._colors):
            raise WrongValueError("gives two classes one colour", "colors")
        if self.draw and (self.draw == "classes") != bool(self.classes):
            message = "are the names of shapes by value: `draw: classes` needs them, `draw: instances` has none"
            raise WrongValueError(message, "classes")
        if self.names and not (self.runs and self.classes):
            raise WrongValueError("is for `runs` with `draw: classes`: leave it out", "names")
        if self.runs and self.classes and not self.names and sum(value > 0 for value, _ in self.named) != 1:
            raise WrongValueError("has not one value above 0: give `names`, the column of objects' classes", "classes")
        if self.draw and self.colors:
            raise WrongValueError("are of files, and `draw` makes masks of shapes: leave one out", "colors")
        return self

    @property
    def named(self) -> tuple[tuple[int, str], ...]:
        """The values of classes, with their names."""
        return tuple(self.classes.items() if isinstance(self.classes, dict) else enumerate(self.classes or ()))

    @property
    def _colors(self) -> dict[str, tuple[int, int, int]]:
        given = (self.colors or {}).items()
        return {name: color if isinstance(color, tuple) else (color, color, color) for name, color in given}

    def joined_columns(self, name: str) -> dict[str, tuple[str, Column]]:
        names = Column(ColumnType.CATEGORY, many=True, optional=self.optional)
        return super().joined_columns(name) | ({"name": (self.names, names)} if self.names else {})

    def read_parts(self) -> tuple[str, ...]:
        return ("shape",) if self._image and self._image.size is None else ()

    @property
    def pixel(self) -> str:
        return self.dtype

    @property
    def value_colors(self) -> tuple[tuple[tuple[int, int, int], int], ...] | None:
        """The values by colour; None: pixels are values."""
        values: dict[str, Any] = {IGNORED: self.ignore, **{name: value for value, name in self.named}}
        return tuple((color, values[name]) for name, color in self._colors.items()) or None

    @property
    def only_class(self) -> str | None:
        """The class of runs without a name, that of the largest value."""
        return max(self.named)[1] if self.runs and self.named else None

    def describe(self, statistics: dict[str, Any]) -> Description:
        names = {str(value): name for value, name in self.named} or None
        return self._describe(MaskDescription, **self._pixels(), classes=names)


class Masks(OfImage, ListFeature):
    """A list of masks, one an object of an image: 1 in the object, else 0."""

    ignore: ClassVar[None] = None
    named: ClassVar[tuple[tuple[int, str], ...]] = ()
    kind: Literal["masks"]
    draw: Literal["objects"] | None = None
    """Draws the column's shapes, polygons and run lengths, a mask an object, crowds as others. By default the column
    holds lists of images, with 0 outside of the object and one other value inside."""

    def check(self, features: Mapping[str, Feature]) -> None:
        """Checks the feature named by `image`: its size is that of all masks."""
        super().check(features)
        if self._image and self._image.size is None:
            raise WrongValueError(f"'{self.image}' keeps its images' sizes: masks of objects need its `size`", "image")
        if self.draw and self.length:
            raise WrongValueError("is for lists of images: of drawn objects give `max_length`", "length")

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(MasksDescription, **self._pixels(), length=self.read_length)
