"""Reads PNG, TIFF and NPY as numbers, band by band, and lays them out for the graph: a grey PNG of planes.

The numbers are the file's own: no colour profile, gamma or transparency changes them; grey numbers of a TIFF with 0 for
white are turned, as for 8 bits.
Files of another type than the feature's, palettes, NaN and infinity are rejects, and several pages, unless `pages` are
read. `bands` takes some of a file's bands. EXIF's orientation is kept for the graph.

>>> image = np.array([[[1.5, -2.0]]], np.float32)
>>> planes(image).tolist()  # the high halves of both channels, then the low ones
[[16320], [49152], [0], [0]]
"""

import io
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import putchunk

from recordmill.transforms.base.arrays import ArrayError, ArrayLayout, npy_numbers
from recordmill.transforms.images import image_header, image_parts, image_rules
from recordmill.transforms.images.image_facts import is_from_white, numbers_of
from recordmill.transforms.images.image_header import Header, ImageError
from recordmill.transforms.images.image_stored import MOST_PIXELS, PIXEL_BYTES, PixelOptions

Pixels = npt.NDArray[Any]


def wanted_pixels(options: Mapping[str, Any]) -> PixelOptions:
    """Returns `pixel`, `channels`, `bands` and `pages` of the options of `transcode.decodable`."""
    return PixelOptions(**{name: options[name] for name in ("pixel", "channels", "bands", "pages") if name in options})


def package(data: bytes, form: str) -> str:
    """Names the package that reads a file's numbers; empty for Pillow, which reads PNG but 16 bits of colours."""
    if form == "TIFF":
        return "tifffile"
    return "imagecodecs" if form == "PNG" and data[24] == 16 and data[25] else ""


def is_ready(data: bytes, header: Header, wanted: PixelOptions) -> bool:
    """Whether a file is the graph's form already: a grey PNG for one channel."""
    is_one = (wanted.pixel, wanted.channels, wanted.bands) == ("uint16", 1, None)
    return is_one and header.format == "PNG" and numbers_of(data, "PNG") == ("uint16", 1)


def read(
    data: bytes, header: Header, wanted: PixelOptions, pages: Mapping[int, int | None]
) -> Iterator[tuple[Pixels, bytes]]:
    """Reads a file's page, or several: [height, width, channels] of the wanted `pixel`, and EXIF for the graph, or b"".

    `pages` are as of `image_header.tiff_pages`. Raises: ImageError: `unsupported_format` or `too_many_pixels`; others:
    a damaged file.
    """
    if header.format != "TIFF":
        held = _check(data, header.format, header.width, header.height, wanted)
        if header.format == "PNG":
            with Image.open(io.BytesIO(data), formats=["PNG"]) as file:
                exif = file.info.get("exif", b"").removeprefix(image_parts.EXIF)
                # Pillow would cut colours to 8 bits.
                image = import_module("imagecodecs").png_decode(data) if package(data, "PNG") else np.asarray(file)
        else:
            image, exif = npy(data, wanted.pixel), b""
        yield _taken(image.reshape(header.height, header.width, held), wanted), exif
        return
    with import_module("tifffile").TiffFile(io.BytesIO(data)) as file:
        for number, at in pages.items():
            page = file.pages[number]
            held = _check(data, header.format, page.imagewidth, page.imagelength, wanted, at)
            image_header.check_pixels(page.tilewidth or 1, page.tilelength or 1, MOST_PIXELS)
            image, turn = page.asarray(maxworkers=1), Image.Exif()
            image = np.moveaxis(image, 0, -1) if page.axes == "SYX" else image
            image = image ^ image.dtype.type((1 << page.bitspersample) - 1) if is_from_white(data, at) else image
            turn[image_rules.TAG] = image_parts.tiff_numbers(data, image_rules.TAG, at=at)[0] or 1
            image = image.reshape(page.imagelength, page.imagewidth, held)
            yield _taken(image, wanted), turn.tobytes().removeprefix(image_parts.EXIF)


def _check(data: bytes, form: str, width: int, height: int, wanted: PixelOptions, at: int | None = None) -> int:
    """Checks a page by its header, and returns the bands that it holds. Raises: ImageError: as `read`."""
    pixel, channels, bands = wanted.pixel, wanted.channels, wanted.bands
    found, held = numbers_of(data, form, at)
    if found != pixel and form != "NPY":
        remedy = f"`dtype: {found}` reads it" if found in PIXEL_BYTES else "convert it to float32"
        raise ImageError("unsupported_format", f"the {form} is read as {found}, not the feature's {pixel}: {remedy}")
    taken = bands or range(1, channels + 1)
    if max(taken) > held or (bands is None and held != channels):
        message = f"the {form} has {held} bands, the feature takes {list(bands) if bands else channels}"
        remedy = "name some by `bands`, or give their number by `channels`"
        remedy += f"; {image_header.CHANNELS_LAST}" if form == "NPY" else ""
        raise ImageError("unsupported_format", f"{message}: {remedy}")
    samples = max(held * (2 if pixel == "float32" else 1), wanted.planes)
    image_header.check_pixels(width * samples, height, MOST_PIXELS)
    return held


def _taken(image: Pixels, wanted: PixelOptions) -> Pixels:
    bands = wanted.bands or range(1, wanted.channels + 1)
    taken = np.ascontiguousarray(image[..., [band - 1 for band in bands]], wanted.pixel)
    if wanted.pixel == "float32" and not np.isfinite(taken).all():
        raise ImageError("unsupported_format", ArrayLayout(wanted.pixel, (1,)).out_of_range)
    return taken


def npy(data: bytes, pixel: str) -> Pixels:
    """Reads an array's numbers. Raises: ImageError: `unsupported_format`."""
    try:
        return npy_numbers(data, pixel)
    except ArrayError as error:
        raise ImageError("unsupported_format", str(error)) from None


def planes(image: Pixels) -> Pixels:
    """Lays an image's channels one below the other: uint8 or uint16 [planes * height, width]."""
    stacked = np.moveaxis(image, -1, 0)
    if image.dtype == np.float32:
        halves = np.ascontiguousarray(stacked, "<f4").view("<u2")
        stacked = np.concatenate([halves[..., 1::2], halves[..., ::2]])
    return np.ascontiguousarray(stacked).reshape(-1, image.shape[1])


def png(
    pixels: Pixels, chunks: Iterable[tuple[bytes, bytes]], level: int = 0, strategy: int = zlib.Z_DEFAULT_STRATEGY
) -> bytes:
    """Writes a PNG by hand, uint8 or uint16 [height, width] or [height, width, 3 or 4], with zlib's parameters.

    Pillow searches for the best filter even without compression, and writes other chunks in its own order.
    """
    height, width, channels = (*pixels.shape, 1)[:3]
    colours, file = {1: 0, 3: 2, 4: 6}[channels], io.BytesIO()
    file.write(image_header.PNG)
    putchunk(file, b"IHDR", struct.pack(">II5B", width, height, 8 * pixels.itemsize, colours, 0, 0, 0))
    for kind, data in chunks:
        putchunk(file, kind, data)
    rows = np.zeros((height, 1 + width * channels * pixels.itemsize), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    compressor = zlib.compressobj(level, strategy=strategy)
    putchunk(file, b"IDAT", compressor.compress(rows.data) + compressor.flush())
    putchunk(file, b"IEND")
    return file.getvalue()
