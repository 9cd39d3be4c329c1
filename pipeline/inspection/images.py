"""Stored images as people look at them: format, size, and the pixels that a model gets before they are normalized.

>>> record.values["photo"]  # doctest: +SKIP
StoredImage(JPEG, 224x224, 11,420 bytes)
>>> record.values["photo"].pillow().save("photo.png")  # doctest: +SKIP
"""

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from recordmill.pipeline.dataset.paths import locate, open_file
from recordmill.pipeline.errors import DatasetError
from recordmill.transforms.contract.image_header import ImageError, check_header, read_header
from recordmill.transforms.contract.image_rules import is_transposed
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.numpy.image_decode import DecodeError, decode, decode_original
from recordmill.transforms.numpy.pixels import resize


@dataclass(frozen=True, repr=False)
class StoredImage:
    """An image as a record holds it."""

    data: bytes
    """The file's bytes; of a feature stored as `raw` the pixels themselves."""
    pixels: Pixels
    """The feature's description."""
    orientation: int = 1
    """The EXIF orientation, 1..8, of a feature stored as `original`."""

    def __repr__(self) -> str:
        """Shows the format, the size and the bytes."""
        return f"StoredImage({self})"

    def __str__(self) -> str:
        """Shows the format, the size and the bytes: `JPEG, 224x224, 11,420 bytes`."""
        size = f"{self.width}x{self.height}, " if self.width else ""
        return f"{self.format}, {size}{len(self.data):,} bytes"

    @property
    def format(self) -> str:
        """The file's format, such as `JPEG`; `raw` for pixels, `unknown` for bytes that are no image."""
        return self._header[0]

    @property
    def width(self) -> int:
        """The upright image's width in pixels as it is stored; 0 where the bytes do not state it."""
        return self._header[1]

    @property
    def height(self) -> int:
        """The upright image's height in pixels as it is stored; 0 where the bytes do not state it."""
        return self._header[2]

    @property
    def suffix(self) -> str:
        """The end of a file's name with its dot, such as `.jpeg`; `.bin` for anything that is no file of an image."""
        return ".bin" if self.format in ("raw", "unknown") else f".{self.format.lower()}"

    def array(self) -> npt.NDArray[np.uint8]:
        """Decodes the image as a model gets it with `dtype="uint8"`: [height, width, channels], red first.

        An `original` is turned upright and brought to the feature's size.

        Raises:
            DatasetError: the bytes cannot be decoded, or have another shape than the feature.
        """
        try:
            return self._decoded()
        except DecodeError as error:
            raise DatasetError(f"a stored image cannot be decoded ({error}): run `recordmill verify`") from error

    def pillow(self) -> Image.Image:
        """Returns the pixels of `array` as a Pillow image, of mode L or RGB. Raises: DatasetError, as `array`."""
        array = self.array()
        return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)

    def _decoded(self) -> npt.NDArray[Any]:
        channels = self.pixels.shape[2]
        if self.pixels.encoding == "original":
            options = self.pixels.pixel_options
            return resize(decode_original(self.data, options, self.orientation), options)
        if self.pixels.encoding != "raw":
            return decode(self.data, channels, most=self.pixels.most_pixels)
        height, width = (side or 0 for side in self.pixels.shape[:2])
        if len(self.data) != math.prod((height, width, channels)):
            raise DecodeError(f"it is of {len(self.data):,} bytes, not {height * width * channels:,}")
        return np.frombuffer(self.data, np.uint8).reshape(height, width, channels)

    @cached_property
    def _header(self) -> tuple[str, int, int]:
        if self.pixels.encoding == "raw":
            height, width = (side or 0 for side in self.pixels.shape[:2])
            return "raw", width, height
        try:
            header = read_header(self.data)
        except ImageError:
            return "unknown", 0, 0
        sides = (header.width, header.height)
        return header.format, *(sides[::-1] if is_transposed(self.orientation) else sides)


BOXED_SIDE = 256  # where boxes are drawn
COLORS = ("#ff453a", "#30d158", "#0a84ff", "#ffd60a", "#bf5af2", "#64d2ff", "#ff9f0a", "#ff375f")


def color_of(name: object) -> int:
    """Returns the number of a name's colour, the same in every image."""
    return sum(str(name).encode("utf-8", "surrogateescape")) % len(COLORS)


MOST_PIXELS = 64_000_000
MOST_FILE_BYTES = 64 << 20  # 64 MiB
TRANSPARENT = "#d0d7de"


@contextmanager
def quietly() -> Iterator[None]:
    """Hides Pillow's warnings of metadata that nobody sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def raw_image(sources: Path, path: str) -> Image.Image | None:
    """Opens an image of the sources, upright; None where no image is at this path, or it cannot be decoded.

    Args:
        sources: the folder that paths are relative to; none leaves it.
        path: a key, or a reject's `file`.
    """
    with suppress(DatasetError, OSError, ImageError, ValueError, SyntaxError, Image.DecompressionBombError):
        with open_file(locate(str(sources), path)) as file:
            data = file.read(MOST_FILE_BYTES + 1)
        header = check_header(data, MOST_PIXELS)
        with quietly(), Image.open(io.BytesIO(data), formats=[header.format]) as image:
            upright = ImageOps.exif_transpose(image).convert("RGBA")
            ground = Image.new("RGBA", upright.size, TRANSPARENT)
            return Image.alpha_composite(ground, upright).convert("RGB")
    return None
