"""Stored images as files that any program opens, and that a build stores as the same bytes again."""

import io
import struct
import zlib
from typing import NamedTuple

from PIL import Image

from recordmill.pipeline.inspection.values import StoredImage
from recordmill.transforms.contract.image_header import JPEG, PNG
from recordmill.transforms.contract.image_rules import TAG

SHORT_TYPE = 3
PNG_HEAD = 33
"""The bytes of a PNG's signature and its first chunk, IHDR."""
WEBP_FLAGS, HAS_EXIF = 20, 0x08
"""The place of an extended WebP's flags, and the one that announces EXIF."""


class ImageFile(NamedTuple):
    """A file of an image."""

    suffix: str
    """The end of its name, such as `.png`."""
    data: bytes


def image_file(image: StoredImage | None) -> ImageFile | None:
    """Returns the file of a stored image: its own bytes; pixels as PNG; an original turned by EXIF, as it came."""
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
    """Returns an original with the orientation that its metadata said before a build removed them."""
    if image.orientation == 1 or _orientation(image.data) == image.orientation:
        return image.data
    exif = _exif(image.orientation)
    if image.data.startswith(JPEG):
        return image.data[:2] + _jpeg_segment(exif) + image.data[2:]
    if image.data.startswith(PNG):
        return image.data[:PNG_HEAD] + _png_chunk(exif) + image.data[PNG_HEAD:]
    if image.data[8:16] == b"WEBPVP8X":
        return _webp_with(image.data, exif)
    return _saved_again(image)


def _saved_again(image: StoredImage) -> bytes:
    """Returns a WebP of one frame, whose header has no place for EXIF, with the same pixels."""
    into = io.BytesIO()
    exif = Image.Exif()
    exif[TAG] = image.orientation
    with Image.open(io.BytesIO(image.data)) as file:
        file.save(into, file.format, exif=exif, lossless=True)
    return into.getvalue()


def _orientation(data: bytes) -> int:
    with Image.open(io.BytesIO(data)) as file:
        return int(file.getexif().get(TAG, 1))


def _exif(orientation: int) -> bytes:
    """Makes EXIF that holds the orientation alone: an even number of bytes."""
    entry = struct.pack(">HHIHH", TAG, SHORT_TYPE, 1, orientation, 0)
    return b"MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)


def _jpeg_segment(exif: bytes) -> bytes:
    body = b"Exif\0\0" + exif
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body


def _png_chunk(exif: bytes) -> bytes:
    body = b"eXIf" + exif
    return struct.pack(">I", len(exif)) + body + struct.pack(">I", zlib.crc32(body))


def _webp_with(data: bytes, exif: bytes) -> bytes:
    """Puts EXIF into an extended WebP: at its end, or before its own, since the first one counts."""
    end, place = min(len(data), 8 + int.from_bytes(data[4:8], "little")), 12
    while place < end and data[place : place + 4] != b"EXIF":
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    chunk = b"EXIF" + struct.pack("<I", len(exif)) + exif
    flags = bytes([data[WEBP_FLAGS] | HAS_EXIF])
    body = data[8:WEBP_FLAGS] + flags + data[WEBP_FLAGS + 1 : place] + chunk + data[place:]
    return data[:4] + struct.pack("<I", len(body)) + body
