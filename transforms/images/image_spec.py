"""Images, one per row or several: decoded, oriented by EXIF, scaled, stored encoded. The reader normalizes them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.yaml_document import Options, number_or_list
from recordmill.transforms.base.arrays import ArrayLayout
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.feature import Feature, ListFeature, feature_named
from recordmill.transforms.images import image_stored as kinds

Byte = Annotated[int, Field(ge=0, le=255, strict=True)]
Side = Annotated[int, Field(ge=1, le=16_384, strict=True)]
Sides = Annotated[
    tuple[Side, Side],
    BeforeValidator(lambda value: number_or_list(value, 2), json_schema_input_type=Side | tuple[Side, Side]),
]
Mean = Annotated[float, Field(allow_inf_nan=False)]
Deviation = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ENCODED_SHARE = {"auto": 0.35, "jpeg": 0.35, "png": 0.6, "raw": 1.0, "original": 0.15}
"""Estimated stored bytes per uint8 value, by encoding."""
MAX_BYTES = 64 << 20  # 64 MiB, as for a line of text
OWN_SIDES = (480, 640)  # the height and width assumed for images that keep their size


class Normalization(Options):
    """The mean and standard deviation per channel, for pixels from 0 to 1, or as they are in uint16 and float32."""

    mean: tuple[Mean, ...] = Field(min_length=1, max_length=kinds.MOST_BANDS)
    """Subtracted from the channels."""
    std: tuple[Deviation, ...] = Field(min_length=1, max_length=kinds.MOST_BANDS)
    """Divides the channels afterwards."""


OF_THREE_CHANNELS = {
    "imagenet": Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    "clip": Normalization(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)),
}
"""Statistics of the training data of model families: ImageNet, and CLIP (Radford et al. 2021)."""
CAFFE_MEANS = (103.939, 116.779, 123.68)  # ImageNet's mean blue, green and red, as subtracted by Caffe's models
RANGES = {"uint8": (0, 255), "uint16": (0, 65_535)}  # the least and largest pixel, by dtype
Named = Literal["zero_one", "minus_one_one", "dataset", "imagenet", "clip", "inception", "caffe", "none"]
Normalize = Annotated[
    Annotated[Named, Tag("a name")] | Annotated[Normalization, Tag("mean and std")],
    Discriminator(lambda value: "mean and std" if isinstance(value, dict | Normalization) else "a name"),
]


class Image(Feature):
    """An image, scaled or in its original size."""

    column_type = ColumnType.IMAGE
    limits = "missing", "appearance", "pixels"
    is_content = True
    is_image = True
    is_reference: ClassVar[bool] = True  # whether the column refers to image files
    kind: Literal["image"]
    size: Sides | None = None
    """Height and width in pixels, or one number for both. None: images keep their sizes."""
    shorter_side: Side | None = None
    """Scales the shorter side to this many pixels, keeping the aspect ratio; with `size`, then crops the centre."""
    fit: Literal["pad", "crop", "stretch", "none"] = "pad"
    """pad: the whole image, centred on `padding`; crop: a centre that fills the size; stretch: each side scaled
    separately; none: keeps the size."""
    resize: Literal[
        "auto", "area", "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"
    ] = "auto"
    """The method. auto: area averaging when shrinking, bilinear when enlarging."""
    antialias: bool = True
    """Whether the kernel widens when shrinking, as in Pillow; ignored by auto, area and nearest."""
    shape: tuple[Side, Side] | tuple[Side, Side, Side] | None = None
    """The shape of an image's numbers in a cell, a list or an array: [height, width], [height, width, channels]
    or [channels, height, width]. None: the column holds files."""
    dtype: Literal["uint8", "uint16", "float32"] = "uint8"
    """The type of a pixel. uint16 and float32 take files of 9 to 16 bits or of floats, and keep every number."""
    channels: int = Field(default=3, ge=1, le=kinds.MOST_BANDS, strict=True)
    """3: RGB; 1: greyscale; with another `dtype` or number, the bands of the file."""
    bands: tuple[Annotated[int, Field(ge=1, le=256, strict=True)], ...] | None = None
    """The file's bands to take, from 1, in this order; None: all."""
    range: tuple[Mean, Mean] | None = None
    """The least and largest pixel, scaled by `normalize` to 0..1 or -1..1: [0, 4095] for 12 bits in uint16. None: 0 and
    65535."""
    store: Literal["auto", "jpeg", "png", "raw", "original"] = "auto"
    """auto: JPEG for JPEG sources, else PNG; raw: uint8; original: the file; the reader decodes, rotates and scales."""
    quality: int = Field(default=95, ge=1, le=100, strict=True)
    """The quality of encoded JPEGs."""
    chroma: Literal["4:2:0", "4:4:4"] = "4:2:0"
    """The colour resolution of encoded JPEGs: half the brightness' resolution in both directions, or the same."""
    metadata: Literal["strip", "keep"] = "strip"
    """strip: files stored unchanged lose EXIF, XMP, comments and colour profile; keep: they keep them."""
    color: Literal["srgb", "ignore"] = "srgb"
    """srgb: converts colours to sRGB by the file's colour profile; ignore: ignores profiles."""
    normalize: Normalize = "zero_one"
    """zero_one: 0..1; minus_one_one: -1..1; by model family: imagenet and clip, with their mean and standard deviation;
    inception, -1..1; caffe, BGR minus its means. dataset: mean 0 and variance 1 per channel over the train split; none:
    unchanged pixels; or `mean` and `std` as numbers: of pixels from 0 to 1, but of uint16 and float32 in their own
    units."""
    background: tuple[Byte, Byte, Byte] | Mean = (255, 255, 255)
    """The RGB colour behind transparent pixels; for deep images the number around padded ones, by default 0."""
    padding: tuple[Byte, Byte, Byte] = (0, 0, 0)
    """The RGB colour around padded images."""
    max_pixels: int = Field(default=64_000_000, ge=1, strict=True)
    """The largest number of pixels; images with more, by their header, are rejected before decoding."""
    max_bytes: int = Field(default=MAX_BYTES, ge=1, le=1 << 30, strict=True)
    """The largest number of bytes; larger images are rejected before reading."""
    dct_scaling: bool = True
    """Whether JPEGs that are averaged down further may be decoded at 1/2, 1/4 or 1/8 size."""
    _frame: Literal["upright", "file"] = PrivateAttr(default="upright")

    @model_validator(mode="before")
    @classmethod
    def _no_size(cls, value: Any) -> Any:
        """Sets `fit: none` if other options imply it."""
        if not isinstance(value, dict) or value.get("size") is not None:
            return value
        keeps_shape = value.get("shorter_side") is not None or value.get("store") == "original"
        return {"fit": "none", **value} if keeps_shape else value

    @model_validator(mode="before")
    @classmethod
    def _of_bands(cls, value: Any) -> Any:
        """Sets the defaults of deep images, and as many channels as `bands`."""
        if not isinstance(value, dict):
            return value
        dtype, bands = value.get("dtype", "uint8"), value.get("bands")
        value = {"channels": len(bands), **value} if isinstance(bands, list | tuple) else value
        if dtype == "uint8" and value.get("channels", 3) in (1, 3):
            return value
        has_scale = dtype != "float32" or value.get("range") is not None
        return {"background": 0, **({} if has_scale else {"normalize": "none"}), **value}

    @model_validator(mode="after")
    def _check(self) -> "Image":
        for message, *path in (*self._wrong_size(), *self._wrong_pixels()):
            raise WrongValueError(message, *path)
        return self

    @property
    def planes(self) -> int:
        return kinds.planes_of(self.dtype, self.channels)

    @property
    def oriented(self) -> Literal["upright", "file"]:
        return self._frame

    def _wrong_size(self) -> Iterator[tuple[str, ...]]:
        """Yields contradictions, each with the path of an option."""
        if self.size is None:
            if self.fit != "none":
                yield "is needed; with `fit: none` each image keeps its size", "size"
            if self.store == "raw":
                yield "`raw` pixels need one `size`: give it, or store `png`", "store"
            return
        if self.fit == "none":
            yield "`none` keeps each image's size and contradicts `size`: leave one out", "fit"
        if self.shorter_side is not None and self.fit != "crop":
            yield f"`size` and `shorter_side` crop the centre: give `fit: crop`, got `{self.fit}`", "fit"
        if self.shorter_side is not None and self.shorter_side < max(self.size):
            wanted = f"{max(self.size)} or more, the larger side of `size`"
            yield f"should be {wanted}, got `{self.shorter_side}`", "shorter_side"

    def _wrong_pixels(self) -> Iterator[tuple[str, ...]]:
        sides = self.shape or ()
        held = min(sides[0], sides[2]) if len(sides) == 3 else 1  # channels: the smaller of the first and the last side
        allowed = held <= kinds.MOST_BANDS if self.bands else held in ((self.channels,) if self.planes else (1, 3))
        if sides and not allowed:
            wanted = f"[height, width], or with the {self.channels} `channels` as the last or the first side"
            yield f"should be {wanted}, got {list(sides)}", "shape"
        if (self.normalize == "caffe" or self.normalize in OF_THREE_CHANNELS) and (self.channels != 3 or self.planes):
            of = f"3 channels of uint8, and this image has {self.channels} of {self.dtype}"
            yield f"`{self.normalize}` is for {of}: give `mean` and `std`", "normalize"
        for name, numbers in self.normalize if isinstance(self.normalize, Normalization) else ():
            if len(numbers) != self.channels:
                wanted = f"a list of {self.channels}, one for each channel"
                yield f"should be {wanted}, got {list(numbers)}", "normalize", name
        if self.bands is not None and len(self.bands) != self.channels:
            yield f"has {len(self.bands)} bands for {self.channels} `channels`: omit one", "bands"
        if (self.planes or self.bands) and self.store in ("jpeg", "original"):
            yield f"`{self.store}` holds grey or RGB of 8 bits: store `png` or `raw`", "store"
        if self.range is not None and (self.dtype == "uint8" or self.range[0] >= self.range[1]):
            wanted = "the least and the largest pixel of `dtype: uint16` or `float32`, such as [0, 4095]"
            yield f"should be {wanted}, got {list(self.range)}", "range"
        if self.range is not None and self.normalize not in ("zero_one", "minus_one_one", "inception"):
            yield "is for `normalize: zero_one` or `minus_one_one`: leave one out", "range"
        if self.dtype == "uint16" and isinstance(self.normalize, Normalization) and max(self.normalize.std) <= 1:
            wanted = "in the pixel's units, 0 to 65,535: multiply shares"
            yield f"is of uint16 {wanted}, got {list(self.normalize.std)}", "normalize", "std"
        if self.dtype == "float32" and self.normalize == "dataset":
            yield "`dataset` sums whole numbers: give `mean` and `std` for float32", "normalize"
        needs_range = self.normalize != "none" and isinstance(self.normalize, str)
        if self.dtype == "float32" and self.range is None and needs_range:
            yield f"`{self.normalize}` of float32 needs `range`, the least and largest pixel", "normalize"
        given, most = self.background, RANGES.get(self.dtype)
        is_pixel = isinstance(given, float) and (most is None or (given.is_integer() and 0 <= given <= most[1]))
        if not (is_pixel if self.planes else isinstance(given, tuple)):
            wanted = f"a pixel of {self.dtype}, such as 0" if self.planes else "a colour: red, green, blue"
            yield f"should be {wanted}, got `{given}`", "background"

    def _column(self) -> Column:
        return replace(super()._column(), array=self.shape and ArrayLayout(self.dtype, self.shape))

    @property
    def learns(self) -> Sequence[str]:
        return ("pixels",) if self.normalize == "dataset" else ()

    @cached_property
    def pixel_options(self) -> kinds.PixelOptions:
        deep = {"fill": self.background, "background": (0, 0, 0)} if self.planes else {}
        around = None if self.planes or self.fit != "pad" else self.padding
        values = {**dict(self), "pixel": self.dtype, "padding": around, **deep}
        names = [each.name for each in fields(kinds.PixelOptions) if each.name in values]
        return kinds.PixelOptions(**{name: values[name] for name in names})

    @property
    def is_encoded(self) -> bool:
        """Whether images may be encoded as JPEG."""
        return self.store in ("auto", "jpeg") and not self.planes

    @property
    def strips(self) -> bool:
        """Whether metadata is removed from stored bytes that may hold it."""
        return self.metadata == "strip" and (self.is_encoded or self.store == "original")

    def read_parts(self) -> tuple[str, ...]:
        return super().read_parts() + (("shape",) if self.size is None else ())

    @property
    def expected_bytes(self) -> float:
        """The stored bytes of an image, estimated from the options."""
        height, width = self.size or OWN_SIDES
        if self.size is None and self.shorter_side is not None:
            height, width = self.shorter_side, self.shorter_side * width // height
        return height * width * self.channels * kinds.PIXEL_BYTES[self.dtype] * ENCODED_SHARE[self.store]

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(kinds.ImageDescription, **self.pixels(statistics))

    def pixels(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields of the description for decoding and normalizing."""
        offset, scale = self._normalization(statistics)
        return {
            "stored": "bytes",
            "encoding": self.store,
            "shape": (*(self.size or (None, None)), self.channels),
            "pixel": self.dtype,
            "dtype": self.dtype if self.normalize == "none" else "float32",
            "offset": tuple(offset),
            "scale": tuple(scale),
            "channel_order": "bgr" if self.normalize == "caffe" else "rgb",
            "options": self.pixel_options if self.store == "original" else None,
        }

    def _normalization(self, statistics: dict[str, Any]) -> tuple[list[float], list[float]]:
        given = self.normalize
        if given == "caffe":
            return list(CAFFE_MEANS), [1.0] * 3
        if isinstance(given, str):
            given = OF_THREE_CHANNELS.get(given, given)
        if isinstance(given, Normalization):
            unit = 255 if self.dtype == "uint8" else 1
            return [unit * mean for mean in given.mean], [1 / (unit * deviation) for deviation in given.std]
        if given == "dataset":
            deviations = [math.sqrt(variance) for variance in statistics["variance"]]
            return statistics["mean"], [1 / deviation if deviation else 1.0 for deviation in deviations]
        least, most = self.range or RANGES.get(self.dtype, (0, 1))
        middle, half = (least + most) / 2, (most - least) / 2
        scales = {"none": (0.0, 1.0), "zero_one": (float(least), 1 / (most - least))}
        offset, scale = scales.get(given, (middle, 1 / half))
        return [offset] * self.channels, [scale] * self.channels


class ImageSequence(Image, ListFeature):
    """A list of images with the options of one."""

    kind: Literal["image_sequence"]  # type: ignore[assignment]
    shape: None = None
    """None: the images are files."""
    size: Sides
    """Height and width in pixels, or one number for both."""
    fit: Literal["pad", "crop", "stretch"] = "pad"
    """pad: the whole image, centred on `padding`; crop: a centre that fills the size; stretch: each side alone."""
    store: Literal["auto", "jpeg", "png", "raw"] = "auto"
    """auto: JPEG for JPEG sources, else PNG; raw: uint8 pixels."""
    pages: Literal["first", "all"] = "first"
    """first: each file is an image; all: each page or frame of a file (TIFF, GIF, PNG, WebP, AVIF) is one, in order."""

    def _column(self) -> Column:
        """Returns the column; files' pages, not files, have a `length`."""
        return super()._column() if self.pages == "first" else replace(super()._column(), length=None)

    @model_validator(mode="before")
    @classmethod
    def _no_size(cls, value: Any) -> Any:
        return value

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe(kinds.ImageSequenceDescription, **self.pixels(statistics), length=self.read_length)


def image_named(name: str, features: Mapping[str, Feature], wanted: str, oriented: Literal["upright", "file"]) -> Image:
    """Finds the image of a feature in the frame `oriented`. Raises: WrongValueError: another kind."""
    image = feature_named(name, features, "image")
    if not isinstance(image, Image) or image.kind != "image":
        raise WrongValueError(f"'{name}' is of kind {image.kind}: {wanted}", "image")
    if oriented == "file":
        image._frame = "file"
    return image
