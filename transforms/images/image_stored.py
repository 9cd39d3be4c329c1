"""Images, one or several a row, and masks: a class or a number of each pixel of an image, or a mask for each object.

Pixels of a mask only move, and keep their values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count
from recordmill.pipeline.safe_text import count, cut
from recordmill.transforms.base import description as base

ENCODINGS = {"auto": "JPEG or PNG", "jpeg": "JPEG", "png": "PNG", "raw": "pixels", "original": "original files"}
MAX_SIDE = 16_384  # the longest side of a scaled image, in pixels; `shorter_side` scales longer strips to this instead
MOST_PIXELS = (1 << 29) // 3  # the most pixels to decode, 512 MiB of RGB: the limit of TensorFlow and Pillow
LEAST_PIXELS = 1 << 20
"""Images up to this are always decoded: an error about the shape says more than one about the header."""
PIXEL_BYTES = {"uint8": 1, "uint16": 2, "float32": 4}  # the types of pixels, with their bytes
KNOWN = {"pixel": (*PIXEL_BYTES,), "dtype": (*PIXEL_BYTES, "bfloat16"), "channel_order": ("rgb", "bgr")}
"""The values that a manifest may state of an image: NumPy parses no other type."""
MOST_BANDS = 16  # the most channels of an image
LARGE = 256  # pixels of the longer side: decoding a smaller JPEG costs less than the choice of a reduction
SPARE = 2  # times the result's sides: with less, photos look different (docs/images.md)


def planes_of(pixel: str, channels: int) -> int:
    """Returns the planes of a deep image's PNG; 0 for grey or RGB of 8 bits, which need none.

    A deep image is a grey PNG of 8 or 16 bits, with a plane for each channel, one below the other. float32 takes two
    planes: first those of the high halves of all channels, then those of the low ones.
    """
    if pixel == "uint8" and channels in (1, 3):
        return 0
    return 2 * channels if pixel == "float32" else channels


@dataclass(frozen=True, kw_only=True)
class PixelOptions:
    """The options from an image's bytes to its final pixels; in the manifest if originals are stored."""

    size: tuple[int, int] | None = None  # height and width in pixels; None: each image keeps its own
    shorter_side: int | None = None
    fit: str = "pad"
    resize: str = "auto"
    antialias: bool = True
    channels: int = 3
    background: tuple[int, int, int] = (255, 255, 255)
    dct_scaling: bool = True
    pixel: str = base.left_out("uint8")
    padding: tuple[int, int, int] | None = base.left_out(None)
    """The colour around a padded image; None: `background`, as of earlier Recordmills."""
    fill: float = base.left_out(0.0)  # the number around a padded deep image, in place of `background`
    bands: tuple[int, ...] | None = base.left_out(None)
    """The file's bands to take, from 1; None: all, one for each channel."""
    pages: str = base.left_out("first")  # `all`: the pages or frames of each file are images of a sequence

    @property
    def planes(self) -> int:
        return planes_of(self.pixel, self.channels)

    @property
    def reduced_from(self) -> int | None:
        """The longer side from which a JPEG may be decoded at a half, a quarter or an eighth of its size."""
        least = min(self.size) if self.size else self.shorter_side
        is_averaged = self.dct_scaling and self.resize in ("auto", "area")
        return max(2 * SPARE * least, LARGE) if is_averaged and least is not None else None

    @property
    def keeps_numbers(self) -> bool:
        """Whether files are read as numbers: deep images, and chosen bands."""
        return self.planes > 0 or self.bands is not None


@dataclass(frozen=True, kw_only=True)
class Pixels(base.Description):
    """The decoding of stored images to arrays: `(pixel - offset) * scale`, by channel, in `channel_order`."""

    stored: str
    encoding: str  # `auto`, `jpeg` or `png`; `raw`: pixels, little-endian; `original`: the file's bytes
    shape: tuple[Count | None, Count | None, Count]  # height, width, channels; None: varying sides
    dtype: str
    offset: tuple[float, ...]
    scale: tuple[float, ...]
    options: PixelOptions | None = base.left_out(None)  # of originals
    is_mask: ClassVar[bool] = False  # pixels are indices, not colours: they only move, and are never normalized or cast
    channel_order: str = base.left_out("rgb")
    """`bgr` is the order after reading; images are stored and augmented as `rgb`."""
    pixel: str = base.left_out("uint8")  # the type of a stored pixel: `uint8`, `uint16` or `float32`

    def __post_init__(self) -> None:
        """Refuses an unknown type or channel order, and impossible sides. Raises: DatasetError."""
        for name, known in KNOWN.items():
            if (given := getattr(self, name)) not in known:
                stated = f"an image's `{name}` is {cut(repr(given))} in dataset.json"
                raise DatasetError(f"{stated}; this release knows {', '.join(known)}: install a newer one")
        if any(not 0 < side <= MAX_SIDE for side in self.shape if side is not None):
            stated = f"dataset.json states images of shape {list(self.shape)}; sides have at most {MAX_SIDE:,} pixels"
            raise DatasetError(f"{stated}: it is damaged, copy the version again")

    @property
    def planes(self) -> int:
        return planes_of(self.pixel, self.shape[2])

    @property
    def are_as_stored(self) -> bool:
        """Whether the read numbers, of `dtype`, equal the stored ones."""
        return self.dtype == self.pixel and (self.pixel != "float32" or not any(self.offset) and {*self.scale} == {1})

    @property
    def most_pixels(self) -> int:
        """The largest size that a stored image may state: the fixed size, or 1,048,576 pixels if that is more."""
        height, width, _ = self.shape
        size = (height or 0) * (width or 0) * max(1, self.planes)
        return MOST_PIXELS if None in (height, width) else max(LEAST_PIXELS, size)

    @property
    def is_image_file(self) -> bool:
        return self.encoding != "raw"

    @property
    def as_image(self) -> Self:
        return self

    def type_words(self) -> str:
        encoding = ENCODINGS.get("png" if self.planes and self.encoding == "auto" else self.encoding, self.encoding)
        encoding += f" of {self.pixel}" * (self.pixel != "uint8")
        *sides, channels = self.shape
        if None in sides:
            return f"{encoding}, each of its own size, {count(channels or 0, 'channel')}"
        return f"{encoding}{' read as' if self.encoding == 'original' else ''} {base.sides_words(self.shape)}"

    def tfds(self) -> dict[str, Any]:
        """Describes an `Image`, raw pixels as a `Tensor`, or several planes as bytes."""
        height, width, channels = self.shape
        varies = height is None or width is None or self.encoding == "original"
        shape = (-1, -1, channels) if varies else (height or 0, width or 0, channels)
        if self.encoding == "raw":
            return base.tfds_tensor(self.pixel, shape, "bytes")
        if self.planes > 1:
            return base.tfds_stored(base.Stored("bytes"))
        encoding = "jpeg" if self.encoding == "jpeg" else "png"
        image = {"shape": base.tfds_shape(shape), "dtype": self.pixel, "encodingFormat": encoding}
        return {"pythonClassName": f"{base.TFDS}.image_feature.Image", "image": image}

    @property
    def pixel_options(self) -> PixelOptions:
        """The options of an original. Raises: DatasetError: the manifest lacks them."""
        if self.options is None:
            raise DatasetError("an image is stored as `original`, but dataset.json lacks the `options` to read it")
        return self.options


@dataclass(frozen=True, kw_only=True)
class ImageDescription(Pixels):
    """One image a row; with `optional`, at most one."""

    kind: ClassVar[str] = "image"
    optional: bool = base.left_out(False)

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        """Returns the bytes, an original's EXIF orientation (1..8), and 1 for a row without an image."""
        parts = {"": base.Stored("bytes")}
        if description["encoding"] == "original":
            parts["orientation"] = base.Stored("int64")
        return parts | {"missing": base.Stored("int64")} if description.get("optional") else parts

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> Any:
        if parts.get("missing"):
            return None
        return decoding.image(bytes(parts[""]), self, int(parts.get("orientation", 1)))

    def tfds(self) -> dict[str, Any]:
        return base.Description.tfds(self) if self.optional else super().tfds()


@dataclass(frozen=True, kw_only=True)
class ImageSequenceDescription(base.ListDescription, Pixels):
    """Any number of images a row, all of one size."""

    kind: ClassVar[str] = "image_sequence"
    optional: ClassVar[bool] = False

    def decode(self, stored: Any, decoding: base.Decoding) -> Any:
        return decoding.image(bytes(stored), self)

    def tfds(self) -> dict[str, Any]:
        return base.tfds_sequence(Pixels.tfds(self))


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


AnyImages: TypeAlias = ImageDescription | ImageSequenceDescription  # masks, too
Masked: TypeAlias = MaskDescription | MasksDescription
