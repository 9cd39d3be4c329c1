"""Images, one per row or several: decoded, oriented by EXIF, scaled, stored encoded. The reader normalizes them."""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.spec.features.feature import Feature, ListFeature
from recordmill.pipeline.yaml_document import Options, number_or_list
from recordmill.transforms.contract.kinds import image as kinds
from recordmill.transforms.contract.kinds.base import Description

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
MAX_BYTES = 64 << 20
"""64 MiB, as for a line of text."""
OWN_SIDES = (480, 640)
"""The height and width assumed for images that keep their size."""


class Normalization(Options):
    """The mean and standard deviation per channel, for pixels from 0 to 1."""

    mean: tuple[Mean, ...] = Field(min_length=1, max_length=3)
    """Subtracted from the channels."""
    std: tuple[Deviation, ...] = Field(min_length=1, max_length=3)
    """Divides the channels afterwards."""


OF_THREE_CHANNELS = {
    "imagenet": Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    "clip": Normalization(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)),
}
"""Statistics of the training data of model families: ImageNet, and CLIP (Radford et al. 2021)."""
CAFFE_MEANS = (103.939, 116.779, 123.68)
"""ImageNet's mean blue, green and red, as subtracted by Caffe's models."""
OF_ANY_CHANNELS = {
    "zero_one": (0.0, 1 / 255),
    "minus_one_one": (127.5, 1 / 127.5),
    "inception": (127.5, 1 / 127.5),
    "none": (0.0, 1.0),
}
"""Offset and scale, the same for every channel."""
Normalize = Annotated[
    Annotated[
        Literal["zero_one", "minus_one_one", "dataset", "imagenet", "clip", "inception", "caffe", "none"], Tag("a name")
    ]
    | Annotated[Normalization, Tag("mean and std")],
    Discriminator(lambda value: "mean and std" if isinstance(value, dict | Normalization) else "a name"),
]


class Image(Feature):
    """An image, scaled or in its original size."""

    column_type = ColumnType.IMAGE
    contract: ClassVar[type[kinds.ImageOptions]] = kinds.ImageOptions
    kind: Literal["image"]
    size: Sides | None = None
    """Height and width in pixels, or one number for both. None: images keep their sizes."""
    shorter_side: Side | None = None
    """Scales the shorter side to this many pixels, keeping the aspect ratio; with `size`, then crops the centre."""
    fit: Literal["pad", "crop", "stretch", "none"] = "pad"
    """pad: the whole image, centred on the background; crop: a centre that fills the size; stretch: each side scaled
    separately; none: keeps the size."""
    resize: Literal[
        "auto", "area", "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"
    ] = "auto"
    """The method. auto: area averaging when shrinking, bilinear when enlarging."""
    antialias: bool = True
    """Whether the kernel widens when shrinking, as in Pillow; ignored by auto, area and nearest."""
    channels: Literal[1, 3] = 3
    """3: RGB; 1: greyscale."""
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
    unchanged uint8; or `mean` and `std` as numbers."""
    background: tuple[Byte, Byte, Byte] = (255, 255, 255)
    """The RGB colour behind transparent pixels and around padded images."""
    max_pixels: int = Field(default=64_000_000, ge=1, strict=True)
    """The largest number of pixels; images with more, by their header, are rejected before decoding."""
    max_bytes: int = Field(default=MAX_BYTES, ge=1, le=1 << 30, strict=True)
    """The largest number of bytes; larger images are rejected before reading."""
    dct_scaling: bool = True
    """Whether JPEGs that are averaged down further may be decoded at 1/2, 1/4 or 1/8 size."""

    @model_validator(mode="before")
    @classmethod
    def _no_size(cls, value: Any) -> Any:
        """Sets `fit: none` if other options imply it."""
        if isinstance(value, dict) and value.get("size") is None:
            keeps_shape = value.get("shorter_side") is not None or value.get("store") == "original"
            return {"fit": "none", **value} if keeps_shape else value
        return value

    @model_validator(mode="after")
    def _check(self) -> "Image":
        self._check_size()
        self._check_channels()
        return self

    def _check_size(self) -> None:
        if self.size is None:
            if self.fit != "none":
                raise WrongValueError("is needed; with `fit: none` each image keeps its size", "size")
            if self.store == "raw":
                raise WrongValueError("`raw` pixels need one `size`: give it, or store `png`", "store")
            return
        if self.fit == "none":
            raise WrongValueError("`none` keeps each image's size and contradicts `size`: leave one out", "fit")
        if self.shorter_side is None:
            return
        if self.fit != "crop":
            message = f"`size` and `shorter_side` crop the centre: give `fit: crop`, got `{self.fit}`"
            raise WrongValueError(message, "fit")
        if self.shorter_side < max(self.size):
            message = f"should be {max(self.size)} or more, the larger side of `size`, got `{self.shorter_side}`"
            raise WrongValueError(message, "shorter_side")

    def _check_channels(self) -> None:
        if self.channels != 3 and (self.normalize == "caffe" or self.normalize in OF_THREE_CHANNELS):
            raise WrongValueError(f"`{self.normalize}` is for 3 channels: give `mean` and `std` for one", "normalize")
        if isinstance(self.normalize, Normalization):
            for name in ("mean", "std"):
                numbers = getattr(self.normalize, name)
                if len(numbers) != self.channels:
                    message = f"should be a list of {self.channels}, one for each channel, got {list(numbers)}"
                    raise WrongValueError(message, "normalize", name)

    def options(self, *, is_label: bool = False) -> kinds.ImageOptions:
        return self._make(self.contract, measured=self.normalize == "dataset")

    def parts(self) -> tuple[str, ...]:
        """Names `orientation` of originals, and `missing` with `optional`."""
        return tuple(kinds.ImageDescription.parts_of({"encoding": self.store, "optional": self.optional}))[1:]

    def read_parts(self) -> tuple[str, ...]:
        """Names `shape`, height and width, if images keep their sizes."""
        shape = ("shape",) if self.size is None else ()
        return (*super().read_parts(), *shape)

    @property
    def expected_bytes(self) -> float:
        """The stored bytes of an image, estimated from the options."""
        height, width = self.size or OWN_SIDES
        if self.size is None and self.shorter_side is not None:
            height, width = self.shorter_side, self.shorter_side * width // height
        return height * width * self.channels * ENCODED_SHARE[self.store]

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._make(kinds.ImageDescription, **self.pixels(statistics))

    def pixels(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields of the description for decoding and normalizing."""
        offset, scale = self._normalization(statistics)
        return {
            "stored": "bytes",
            "encoding": self.store,
            "shape": (*(self.size or (None, None)), self.channels),
            "dtype": "uint8" if self.normalize == "none" else "float32",
            "offset": tuple(offset),
            "scale": tuple(scale),
            "channel_order": "bgr" if self.normalize == "caffe" else "rgb",
            "options": self._make(kinds.PixelOptions) if self.store == "original" else None,
        }

    def _normalization(self, statistics: dict[str, Any]) -> tuple[list[float], list[float]]:
        given = self.normalize
        if given == "caffe":
            return list(CAFFE_MEANS), [1.0] * 3
        if isinstance(given, str):
            given = OF_THREE_CHANNELS.get(given, given)
        if isinstance(given, Normalization):
            return [255 * mean for mean in given.mean], [1 / (255 * deviation) for deviation in given.std]
        if given == "dataset":
            deviations = [math.sqrt(variance) for variance in statistics["variance"]]
            return statistics["mean"], [1 / deviation if deviation else 1.0 for deviation in deviations]
        offset, scale = OF_ANY_CHANNELS[given]
        return [offset] * self.channels, [scale] * self.channels


class ImageSequence(Image, ListFeature):
    """A list of images with the options of one."""

    contract = kinds.ImageSequenceOptions
    kind: Literal["image_sequence"]  # type: ignore[assignment]
    size: Sides
    """Height and width in pixels, or one number for both."""
    fit: Literal["pad", "crop", "stretch"] = "pad"
    """pad: the whole image, centred on the background; crop: a centre that fills the size; stretch: each side alone."""
    store: Literal["auto", "jpeg", "png", "raw"] = "auto"
    """auto: JPEG for JPEG sources, else PNG; raw: uint8 pixels."""

    @model_validator(mode="before")
    @classmethod
    def _no_size(cls, value: Any) -> Any:
        """Keeps `fit`: `size` is required."""
        return value

    def parts(self) -> tuple[str, ...]:
        """Names none: a list is stored as one tensor."""
        return ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._make(kinds.ImageSequenceDescription, **self.pixels(statistics), length=self.read_length)
