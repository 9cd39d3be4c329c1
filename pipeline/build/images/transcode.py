"""Transcodes images by Pillow: before the graph to PNG where it would not decode them rightly, after it to JPEG.

JPEG, PNG, WebP of one image and plain BMP pass as they are. GIF and AVIF (their first frame), TIFF (its first page),
HEIF (its primary image), animated WebP, every other BMP and lossless JPEG become PNG of 8 bits, with their transparency
and their orientation; so does an image whose colour profile is not sRGB's, its colours converted by
`transforms.numpy.color`. Pillow decodes all but JPEG, which libjpeg-turbo does. A client of the serving model calls the
same function; it needs Pillow and this package, no TensorFlow. After the graph, its pixels become JPEG with restart
markers, which a reader cuts parts out of (`transforms.numpy.jpeg_parts`). They are those of the graph's own encoder:
libjpeg-turbo both times, with the same tables. A marker every few blocks adds one to three percent of bytes.

    encoded = decodable(data, {"max_pixels": 64_000_000})
"""

import io
import re
import struct
import warnings
import zlib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from PIL import Image
from PIL.Image import Transpose
from PIL.PngImagePlugin import PngInfo, putchunk

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import is_machine_fault
from recordmill.transforms.contract.color_profile import foreign_profile
from recordmill.transforms.contract.image_header import (
    FROM_JPEG,
    NAMED,
    PNG,
    Header,
    ImageError,
    ImageFormat,
    check_header,
    check_pixels,
    check_tile,
    png_chunks,
)
from recordmill.transforms.contract.image_metadata import without_metadata
from recordmill.transforms.contract.image_parts import EXIF
from recordmill.transforms.contract.image_rules import TAG as ORIENTATION
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.numpy.color import to_srgb
from recordmill.transforms.numpy.image_decode import inks, jpeg, warn_of_old_pillow, without_ink

EIGHT_BITS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBX": "RGB", "YCbCr": "RGB"}
"""The 8-bit mode that each mode without transparency becomes."""
PHOTOMETRIC, BITS = 262, 258  # TIFF's tags
WHITE_IS_ZERO = 0
UPRIGHT = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
"""Pillow's way to make an image of an EXIF orientation upright."""
TURNED_BACK = UPRIGHT | {6: UPRIGHT[8], 8: UPRIGHT[6]}  # the inverse; all but the quarter turns are their own
NETPBM = re.compile(rb"P([56]) (\d{5}) (\d{5}) 255 ")
JPEG_MODES = {b"5": "L", b"6": "RGB"}
IN_SRGB = (b"sRGB", b"\1")
"""PNG's chunk, behind its header, that says that pixels are sRGB's, by the relative colorimetric intent."""
DENSITY = (300, 300)
INTERVALS = {16: (2, 3, 4, 5, 6, 7, 8), 8: (4, 3, 5, 2, 6, 7, 8)}
"""The MCUs between two markers, by an MCU's width in pixels, the best first: fewer cost bytes, more cut less finely."""
LEAST_SIDE = 96  # the shorter side in pixels of images that have markers: to decode less costs less than to cut


# Pillow warns about odd metadata and large images, which `max_pixels` decides. Its warnings cannot be turned
# off for one thread.
warnings.filterwarnings("ignore", module=r"PIL\.")


class UndecodableError(ImageError):
    """Pillow failed: the image is damaged, or memory was short and a codec does not say so."""


class MissingPluginError(UserError, ImportError):
    """This machine lacks the library that decodes a format; the message names the extra. No row is rejected for it."""


def decodable(data: bytes, options: Mapping[str, Any]) -> bytes:
    """Returns an image's bytes, or those of a PNG where the graph would not decode them rightly.

    Args:
        data: the file.
        options: those of an image; of them `max_pixels` and `color`, by default `srgb`. `compress: False` makes a PNG
            that is larger, in a tenth of the time.

    Raises:
        ImageError: `unsupported_format`, `too_many_pixels`, `too_slow`, `too_large`: its colour profile;
            UndecodableError: `undecodable_image`.
        MissingPluginError: an extra is not installed.
        MemoryError, ImportError, OSError: the machine failed (`pipeline.sources.files`).
    """
    header = check_header(data, options["max_pixels"])
    profile = foreign_profile(data, header.format) if options.get("color", "srgb") == "srgb" else b""
    if header.in_graph and not profile:
        return data
    try:
        return _to_png(data, header, profile, options["max_pixels"], options.get("compress", True))
    except ImageError:
        raise
    except Image.DecompressionBombError:
        message = f"Pillow decodes {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels of a {header.format} at most"
        raise ImageError("too_many_pixels", message) from None
    except Exception as error:  # hostile bytes bring out any: struct.error, KeyError, OverflowError, …
        if is_machine_fault(error):
            raise
        message = f"the {header.format} is cut off, damaged, or of a kind that Pillow does not decode"
        raise UndecodableError("undecodable_image", message) from None


def open_image(data: bytes, form: ImageFormat, max_pixels: int) -> Image.Image:
    """Opens an image with the one decoder of its format; decodes nothing yet.

    Raises:
        ImageError: `too_many_pixels`: a frame or a tile is larger than the file's header says.
        UndecodableError: a PNG has several headers.
        MissingPluginError: an extra is not installed.
        Exception: any other, of hostile bytes.
    """
    warn_of_old_pillow()
    if form.plugin:
        require_plugin(form)
        import_module(form.plugin)
    if form.name == "PNG" and sum(kind == b"IHDR" for kind, *_ in png_chunks(data)) > 1:
        # Pillow takes the last one's size, and fills a canvas first
        raise UndecodableError("undecodable_image", "the PNG has more than one header")
    image = Image.open(io.BytesIO(data), formats=[form.pillow])
    check_pixels(*image.size, max_pixels)
    check_tile(getattr(image, "tag_v2", {}), max_pixels)
    return image


@cache
def require_plugin(form: ImageFormat) -> None:
    """Raises: MissingPluginError: the format's plugin is not installed."""
    package = form.plugin.partition(".")[0]
    if package and find_spec(package) is None:
        raise MissingPluginError(
            f"an image is {form.name}, which needs an extra: pip install "
            f'"recordmill[{form.extra}]" (missing: {package}); then run the same command again'
        )


def _to_png(data: bytes, header: Header, profile: bytes, max_pixels: int, compress: bool) -> bytes:
    form, facts = NAMED[header.format], PngInfo()
    with open_image(data, form, max_pixels) as image:
        convert = to_srgb(profile, image.mode) if profile else None
        if header.in_graph and not convert:
            return data
        tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
        turn = 1 if header.in_graph else image.getexif().get(ORIENTATION, 1)
        exif: Any = image.info.get("exif", b"") if header.in_graph else Image.Exif()  # the graph has its own rule
        image = _of_jpeg(data, image.mode) if form.name == "JPEG" else image
        image.load()
        plain = image if convert and image.mode == "CMYK" else _plain(image, tags)
    del image  # 4 bytes a pixel
    if convert:
        plain = convert(plain)
        facts.add(*IN_SRGB)
        if header.format == "JPEG" and header.in_graph:
            facts.add(b"tEXt", FROM_JPEG)
    plain.info.clear()  # a broken colour profile would make a broken PNG
    if turn in TURNED_BACK:
        exif[ORIENTATION] = turn  # the graph turns it, and knows that it did
        if form.turned_by_pillow:
            plain = plain.transpose(TURNED_BACK[turn])
    if not compress:
        return _uncompressed(plain, facts, exif.tobytes() if turn in TURNED_BACK else exif or b"")
    file = io.BytesIO()
    plain.save(file, "PNG", compress_level=1, compress_type=zlib.Z_RLE, exif=exif, pnginfo=facts)
    return file.getvalue()


def _of_jpeg(data: bytes, mode: str) -> Image.Image:
    """Decodes a JPEG by libjpeg-turbo, so that nobody chooses Pillow's decoder by a profile."""
    pixels = inks(data) if mode == "CMYK" else jpeg(data, len(mode))
    height, width, _ = pixels.shape
    return Image.frombuffer(mode, (width, height), pixels, "raw", mode, 0, 1)


def _uncompressed(image: Image.Image, facts: PngInfo, exif: bytes) -> bytes:
    """Writes a PNG by hand, since Pillow looks for the filter that compresses best, also where nothing does."""
    (width, height), colours, file = image.size, {"L": 0, "RGB": 2, "RGBA": 6}[image.mode], io.BytesIO()
    file.write(PNG)
    putchunk(file, b"IHDR", struct.pack(">II5B", width, height, 8, colours, 0, 0, 0))
    for kind, data, *_ in (*facts.chunks, *([(b"eXIf", exif.removeprefix(EXIF))] if exif else ())):
        putchunk(file, kind, data)
    putchunk(file, b"IDAT", zlib.compress(np.insert(np.asarray(image).reshape(height, -1), 0, 0, axis=1).data, 0))
    putchunk(file, b"IEND")
    return file.getvalue()


def is_converted(ready: bytes) -> bool:
    """Whether a PNG of `decodable` had a colour profile, which was applied."""
    return ready[37:41] == IN_SRGB[0]


def _plain(image: Image.Image, tags: Mapping[int, Any]) -> Image.Image:
    """Converts an image to 8 bits: grey, RGB or RGBA."""
    if image.mode.startswith("I;16"):  # grey of 9 to 16 bits
        grey = (np.asarray(image) >> (tags.get(BITS, (16,))[0] - 8)).astype(np.uint8)
        return Image.fromarray(255 - grey if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO else grey)
    if image.mode == "CMYK":
        return Image.fromarray(without_ink(np.asarray(image)))
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode not in EIGHT_BITS:
        message = f"the pixels are of Pillow's mode {image.mode}, which has no range of colours or needs a profile"
        raise ImageError("unsupported_format", message)
    return image.convert(EIGHT_BITS[image.mode])


def as_jpeg(image: bytes, options: ImageOptions) -> bytes:
    """Encodes an image that the transform graph left as Netpbm; strips a stored file of what its options leave out.

    Args:
        image: Netpbm as `transforms.tensorflow.image` writes it, JPEG, PNG, or nothing for a missing image.
        options: an image's.
    """
    header = NETPBM.match(image)
    if header is None:
        return without_metadata(image) if options.strips else image
    width, height = int(header[2]), int(header[3])
    mode, data = JPEG_MODES[header[1]], np.frombuffer(image, np.uint8, offset=header.end())  # not a copy
    pixels = Image.frombuffer(mode, (width, height), data, "raw", mode, 0, 1)
    file = io.BytesIO()
    subsampling = options.chroma if options.channels == 3 else "4:4:4"
    blocks = interval(width, 16 if subsampling == "4:2:0" else 8) if min(width, height) >= LEAST_SIDE else 0
    pixels.save(
        file, "JPEG", quality=options.quality, subsampling=subsampling, dpi=DENSITY, restart_marker_blocks=blocks
    )
    return file.getvalue()


def interval(width: int, unit: int) -> int:
    """Returns the MCUs, `unit` pixels wide (8 or 16), between two restart markers: as many fit a row exactly."""
    row = -(-width // unit)
    return next((blocks for blocks in INTERVALS[unit] if row % blocks == 0), row)
