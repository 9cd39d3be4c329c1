"""Stored images as files that any program opens, and that a build stores as the same bytes again."""

import io
import struct
from typing import NamedTuple

from PIL import Image

from recordmill.pipeline.inspection.images import StoredImage
from recordmill.transforms.contract.image_header import JPEG
from recordmill.transforms.contract.orientation import TAG

SHORT_TYPE = 3


class ImageFile(NamedTuple):
    """A file of an image."""

    suffix: str
    """The end of its name, such as `.png`."""
    data: bytes


def image_file(image: StoredImage | None) -> ImageFile | None:
    """Gives the file of a stored image: its own bytes; pixels as PNG; an original turned by EXIF, as it came."""
    if image is None:
        return None
    if image.format == "raw":
        return ImageFile(".png", _png(image))
    return ImageFile(image.suffix, _turned(image))


def _png(image: StoredImage) -> bytes:
    into = io.BytesIO()
    image.pillow().save(into, "PNG")
    return into.getvalue()


def _turned(image: StoredImage) -> bytes:
    """Gives an original with the orientation that its metadata said before they were left out."""
    if image.orientation == 1 or _orientation(image.data) == image.orientation:
        return image.data
    if image.data.startswith(JPEG):
        return image.data[:2] + _exif_segment(image.orientation) + image.data[2:]
    into = io.BytesIO()
    exif = Image.Exif()
    exif[TAG] = image.orientation
    with Image.open(io.BytesIO(image.data)) as file:
        file.save(into, file.format, exif=exif, lossless=True)
    return into.getvalue()


def _orientation(data: bytes) -> int:
    with Image.open(io.BytesIO(data)) as file:
        return int(file.getexif().get(TAG, 1))


def _exif_segment(orientation: int) -> bytes:
    """Makes a JPEG's segment APP1 that holds the orientation alone."""
    entry = struct.pack(">HHIHH", TAG, SHORT_TYPE, 1, orientation, 0)
    body = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
