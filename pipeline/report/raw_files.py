"""Finds the file that a row came from, where the sources' folder is at hand, and opens it as people see it."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from PIL import Image, ImageOps

from recordmill.pipeline.dataset.paths import locate, open_file
from recordmill.pipeline.errors import DatasetError
from recordmill.transforms.contract.image_header import ImageError, check_header

MOST_PIXELS = 64_000_000
MOST_BYTES = 64 << 20  # 64 MiB
TRANSPARENT = "#d0d7de"


@contextmanager
def quietly() -> Iterator[None]:
    """Hides Pillow's warnings of metadata that nobody sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def raw_image(sources: Path, path: str) -> Image.Image | None:
    """Opens an image of the sources, upright; None where no image lies at this path, or it cannot be decoded.

    Args:
        sources: the folder that paths are relative to; none leaves it.
        path: a key, or a reject's `file`.
    """
    with suppress(DatasetError, OSError, ImageError, ValueError, SyntaxError, Image.DecompressionBombError):
        with open_file(locate(str(sources), path)) as file:
            data = file.read(MOST_BYTES + 1)
        header = check_header(data, MOST_PIXELS)
        with quietly(), Image.open(io.BytesIO(data), formats=[header.format]) as image:
            upright = ImageOps.exif_transpose(image).convert("RGBA")
            ground = Image.new("RGBA", upright.size, TRANSPARENT)
            return Image.alpha_composite(ground, upright).convert("RGB")
    return None
