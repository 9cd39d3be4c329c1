"""Stored images as files that any viewer shows upright."""

import io
import struct
import zlib
from typing import NamedTuple

import numpy as np
from PIL import Image

from recordmill.pipeline.inspection.values import StoredImage, as_image
from recordmill.transforms.contract.image_header import JPEG, PNG
from recordmill.transforms.contract.image_rules import TAG

EXIF = b"Exif\0\0"
PNG_HEAD = 33  # bytes of a PNG's signature and its first chunk, IHDR
WEBP_FLAGS, HAS_EXIF = 20, 0x08  # the offset of an extended WebP's flags, and the EXIF flag


class ImageFile(NamedTuple):
    """An image file; `suffix` includes the dot: `.png`."""

    suffix: str
    data: bytes


def image_file(image: StoredImage) -> ImageFile:
    """Returns a stored image as a file: raw pixels become PNG, originals get back their EXIF orientation."""
    if image.format != "raw":
        return ImageFile(image.suffix, image.data if image.orientation == 1 else _turned(image.data, image.orientation))
    pixels, into = image.array(), io.BytesIO()
    picture = Image.fromarray(pixels[..., 0]) if pixels.dtype == np.uint16 else as_image(pixels)
    picture.save(into, "PNG")
    return ImageFile(".png", into.getvalue())


def _turned(data: bytes, orientation: int) -> bytes:
    """Returns an original with its EXIF orientation, which a build removed."""
    exif, into = Image.Exif(), io.BytesIO()
    exif[TAG] = orientation
    tiff = exif.tobytes().removeprefix(EXIF)
    with Image.open(io.BytesIO(data)) as file:
        if file.getexif().get(TAG, 1) == orientation:
            return data
        if data.startswith(JPEG):
            return data[:2] + b"\xff\xe1" + struct.pack(">H", len(EXIF + tiff) + 2) + EXIF + tiff + data[2:]
        if data.startswith(PNG):
            chunk = b"eXIf" + tiff
            sized = struct.pack(">I", len(tiff)) + chunk + struct.pack(">I", zlib.crc32(chunk))
            return data[:PNG_HEAD] + sized + data[PNG_HEAD:]
        if data[8:16] == b"WEBPVP8X":
            return _webp_with(data, tiff)
        file.save(into, file.format, exif=exif, lossless=True)  # a simple WebP cannot hold EXIF
        return into.getvalue()


def _webp_with(data: bytes, exif: bytes) -> bytes:
    """Adds EXIF to an extended WebP: at its end, or before an existing one, since the first one counts."""
    end, place = min(len(data), 8 + int.from_bytes(data[4:8], "little")), 12
    while place < end and data[place : place + 4] != b"EXIF":
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    chunk = b"EXIF" + struct.pack("<I", len(exif)) + exif
    flags = bytes([data[WEBP_FLAGS] | HAS_EXIF])
    body = data[8:WEBP_FLAGS] + flags + data[WEBP_FLAGS + 1 : place] + chunk + data[place:]
    return data[:4] + struct.pack("<I", len(body)) + body
