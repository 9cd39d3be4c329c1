"""Images, one or several a row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count
from recordmill.pipeline.safe_text import count, cut
from recordmill.transforms.contract.kinds import base

ENCODINGS = {"auto": "JPEG or PNG", "jpeg": "JPEG", "png": "PNG", "raw": "pixels", "original": "original files"}

MAX_SIDE = 16_384  # the longest side of a scaled image, in pixels; `shorter_side` scales longer strips to this instead

MOST_PIXELS = (1 << 29) // 3  # the most pixels to decode, 512 MiB of RGB: the limit of TensorFlow and Pillow
LEAST_PIXELS = 1 << 20
"""Images up to this are always decoded: an error about the shape says more than one about the header."""


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


@dataclass(frozen=True, kw_only=True)
class ImageOptions(PixelOptions, base.FeatureOptions):
    """The options of images."""

    kind: ClassVar[str] = "image"
    limits: ClassVar[tuple[str, ...]] = ("missing", "appearance", "pixels")
    store: str = "auto"
    quality: int = 95
    chroma: str = "4:2:0"
    metadata: str = "strip"  # `strip` or `keep`, for files stored unchanged
    color: str = "srgb"  # `srgb` applies colour profiles before the graph; `ignore`
    measured: bool = False  # for `normalize: dataset`, the analysis measures pixels
    max_pixels: int
    max_bytes: int
    max_length: int | None = None  # keeps the first images of a sequence; None: all

    @property
    def is_encoded(self) -> bool:
        """Whether images may be encoded as JPEG."""
        return self.store in ("auto", "jpeg")

    @property
    def strips(self) -> bool:
        """Whether metadata is removed from stored bytes that may hold it."""
        return self.metadata == "strip" and (self.is_encoded or self.store == "original")

    @property
    def is_reference(self) -> bool:
        """Whether the column refers to image files."""
        return True


@dataclass(frozen=True, kw_only=True)
class ImageSequenceOptions(ImageOptions):
    """The options of image sequences."""

    kind: ClassVar[str] = "image_sequence"


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """The decoding of stored images to arrays: `(pixel - offset) * scale`, by channel, in `channel_order`."""

    stored: str
    encoding: str  # `auto`, `jpeg` or `png`; `raw`: uint8 pixels; `original`: the file's bytes
    shape: tuple[Count | None, Count | None, Count]  # height, width, channels; None: varying sides
    dtype: str
    offset: tuple[float, ...]
    scale: tuple[float, ...]
    options: PixelOptions | None = base.left_out(None)  # of originals
    is_mask: ClassVar[bool] = False
    """Pixels are indices, not colours: they only move, and are never normalized or cast."""
    channel_order: str = base.left_out("rgb")
    """`bgr` is the order after reading; images are stored and augmented as `rgb`."""

    def __post_init__(self) -> None:
        """Refuses an unknown channel order and impossible sides. Raises: DatasetError."""
        if any(not 0 < side <= MAX_SIDE for side in self.shape if side is not None):
            raise DatasetError(
                f"dataset.json states images of shape {list(self.shape)}; sides have at most {MAX_SIDE:,} pixels: "
                "it is damaged, copy the version again"
            )
        if self.channel_order not in ("rgb", "bgr"):
            order = f"an image's `channel_order` is {cut(repr(self.channel_order))} in dataset.json"
            raise DatasetError(f"{order}; this release knows rgb and bgr: install a newer one")

    @property
    def padding(self) -> int:
        """The value around an image in a batch, and of a missing image."""
        return 0

    @property
    def most_pixels(self) -> int:
        """The largest size that a stored image may state: the fixed size, or 1,048,576 pixels if that is more."""
        height, width, _ = self.shape
        return MOST_PIXELS if None in (height, width) else max(LEAST_PIXELS, (height or 0) * (width or 0))

    @property
    def is_image_file(self) -> bool:
        """Whether the stored bytes are image files, not pixels."""
        return self.encoding != "raw"

    def words(self) -> str:
        """Describes the encoding and the size."""
        encoding = ENCODINGS.get(self.encoding, self.encoding)
        *sides, channels = self.shape
        if None in sides:
            return f"{encoding}, each of its own size, {count(channels or 0, 'channel')}"
        return f"{encoding}{' read as' if self.encoding == 'original' else ''} {base.sides_words(self.shape)}"

    def tfds(self) -> dict[str, Any]:
        """Describes an `Image`, or raw pixels as a uint8 `Tensor`."""
        height, width, channels = self.shape
        varies = height is None or width is None or self.encoding == "original"
        shape = (-1, -1, channels) if varies else (height or 0, width or 0, channels)
        if self.encoding == "raw":
            return base.tfds_tensor("uint8", shape, "bytes")
        encoding = "jpeg" if self.encoding == "jpeg" else "png"
        image = {"shape": base.tfds_shape(shape), "dtype": "uint8", "encodingFormat": encoding}
        return {"pythonClassName": f"{base.TFDS}.image_feature.Image", "image": image}

    @property
    def pixel_options(self) -> PixelOptions:
        """The options of an original. Raises: DatasetError: the manifest lacks them."""
        if self.options is None:
            raise DatasetError("an image is stored as `original`, but dataset.json lacks the `options` to read it")
        return self.options


@dataclass(frozen=True, kw_only=True)
class ImageDescription(Pixels, base.Description):
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

    def export(self, into: base.Export, name: str, options: dict[str, Any]) -> None:
        into.add(name, options, base.ExportColumn(name, "image", name))

    def tfds(self) -> dict[str, Any]:
        """Describes an image, or bytes if it may be missing."""
        return base.Description.tfds(self) if self.optional else super().tfds()


@dataclass(frozen=True, kw_only=True)
class ImageSequenceDescription(base.ListDescription, Pixels):
    """Any number of images a row, all of one size."""

    kind: ClassVar[str] = "image_sequence"
    optional: ClassVar[bool] = False

    @property
    def is_image_file(self) -> bool:
        return self.encoding != "raw"

    def words(self) -> str:
        return self.with_length(Pixels.words(self))

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> list[Any]:
        return [decoding.image(bytes(data), self) for data in parts[""]]

    def export(self, into: base.Export, name: str, options: dict[str, Any]) -> None:
        into.add(name, options, base.ExportColumn(name, "image", name, depth=1))

    def tfds(self) -> dict[str, Any]:
        """Describes a sequence of images or of uint8 tensors."""
        return base.tfds_sequence(Pixels.tfds(self))
