"""Transcodes images by Pillow: to PNG before the graph, for images it would decode wrongly; to JPEG after it.

JPEG, PNG, still WebP and plain BMP pass unchanged. GIF and AVIF (first frame), TIFF (first page), HEIF (primary image),
animated WebP, other BMP, lossless JPEG and NPY become 8-bit PNG, with transparency and orientation. So do images with a
colour profile other than sRGB's; `transforms.numpy.color` converts their colours. libjpeg-turbo decodes JPEG, Pillow
all else. A client of the serving model calls the same function; it needs Pillow and this package, but no TensorFlow.
Deep images, of more than 8 bits or other than 1 or 3 channels, become a PNG of planes (`deep_files`).
After the graph, pixels become JPEG with restart markers, from which a reader decodes parts
(`transforms.numpy.jpeg_parts`), with the pixels of the graph's own encoder: libjpeg-turbo with the same tables. A
marker every few blocks adds one to three percent of bytes.

    encoded = decodable(data, {"max_pixels": 64_000_000})
"""

import io
import re
import warnings
import zlib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from recordmill.pipeline.build.images import deep_files
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import is_machine_fault
from recordmill.transforms.contract import color_profile, image_header, image_metadata, image_parts, image_rules
from recordmill.transforms.contract.image_facts import numbers_of
from recordmill.transforms.contract.kinds.image import ImageOptions, PixelOptions
from recordmill.transforms.numpy.color import to_srgb
from recordmill.transforms.numpy.image_decode import inks, jpeg, warn_of_old_pillow, without_ink

EIGHT_BITS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBX": "RGB", "YCbCr": "RGB"}
"""The 8-bit mode for each mode without transparency."""
PHOTOMETRIC, BITS = 262, 258  # TIFF's tags
WHITE_IS_ZERO = 0
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Pillow's transposition that makes an EXIF orientation upright."""
TURNED_BACK = UPRIGHT | {6: UPRIGHT[8], 8: UPRIGHT[6]}  # inverses: only quarter turns differ
NETPBM = re.compile(rb"P([56]) (\d{5}) (\d{5}) 255 ")
JPEG_MODES = {b"5": "L", b"6": "RGB"}
IN_SRGB = (b"sRGB", b"\1")  # PNG's chunk, behind the header, for sRGB pixels by relative colorimetric intent
DENSITY = (300, 300)
INTERVALS = {16: (2, 3, 4, 5, 6, 7, 8), 8: (4, 3, 5, 2, 6, 7, 8)}
"""MCUs between two markers, by an MCU's width in pixels, best first: fewer cost bytes, more cut less finely."""
LEAST_SIDE = 96  # pixels; a smaller image has no markers: cutting costs more than decoding


# Pillow warns about odd metadata, and large images, limited by `max_pixels`; a single thread cannot turn that off.
warnings.filterwarnings("ignore", module=r"PIL\.")


class UndecodableError(image_header.ImageError):
    """Pillow failed: the image is damaged, or memory was short without the codec saying so."""


class MissingPluginError(UserError, ImportError):
    """This machine lacks a format's decoder; the message names the extra. Rejects no row."""


def decodable(data: bytes, options: Mapping[str, Any]) -> bytes:
    """Returns an image file's bytes, or a PNG's if the graph would decode them wrongly.

    Args:
        data: the file.
        options: an image's `max_pixels` and `color`, by default `srgb`. `compress: False` makes a larger PNG in a tenth
            of the time. `pixel`, `channels` and `bands` of deep images, by default uint8, 3 and None, as in
            `contract.kinds.image`; their colours are not converted.

    Raises:
        ImageError: `unsupported_format`, `too_many_pixels`, `too_slow`, `too_large`: its colour profile;
            UndecodableError: `undecodable_image`.
        MissingPluginError: an extra is not installed.
        MemoryError, ImportError, OSError: the machine failed (`pipeline.sources.files`).
    """
    header = image_header.check_header(data, options["max_pixels"])
    wanted, color = deep_files.wanted_pixels(options), options.get("color", "srgb")
    is_deep = wanted.keeps_numbers
    if header.format == "NPY" and not is_deep:
        wanted, is_deep = PixelOptions(channels=3 if numbers_of(data, "NPY")[1] == 3 else 1), True
    profile = color_profile.foreign_profile(data, header.format) if color == "srgb" and not is_deep else b""
    if deep_files.is_ready(data, header, wanted) if is_deep else header.in_graph and not profile:
        return data
    try:
        if is_deep:
            return _to_planes(data, header, options, wanted)
        return _to_png(data, header, profile, options["max_pixels"], options.get("compress", True))
    except image_header.ImageError:
        raise
    except Image.DecompressionBombError:
        message = f"Pillow decodes {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels of a {header.format} at most"
        raise image_header.ImageError("too_many_pixels", message) from None
    except Exception as error:  # hostile bytes raise any: struct.error, KeyError, OverflowError, …
        if is_machine_fault(error):
            raise
        message = f"the {header.format} is cut off, damaged, or of a kind that Pillow does not decode"
        raise UndecodableError("undecodable_image", message) from None


def decoding_of(options: ImageOptions) -> dict[str, Any]:
    """Returns the options for `decodable`."""
    return {name: getattr(options, name) for name in ("max_pixels", "color", "pixel", "channels", "bands")}


def open_image(data: bytes, form: image_header.ImageFormat, max_pixels: int) -> Image.Image:
    """Opens an image with its format's one decoder, without decoding.

    Raises: ImageError: `too_many_pixels`: a frame or tile exceeds the file's header; UndecodableError: a PNG has
    several headers; MissingPluginError: an extra is not installed; any other, for hostile bytes.
    """
    warn_of_old_pillow()
    if form.plugin:
        require_plugin(form)
        import_module(form.plugin)
    if form.name == "PNG" and sum(kind == b"IHDR" for kind, *_ in image_header.png_chunks(data)) > 1:
        # Pillow would fill a canvas of the last one's size
        raise UndecodableError("undecodable_image", "the PNG has more than one header")
    image = Image.open(io.BytesIO(data), formats=[form.pillow])
    image_header.check_pixels(*image.size, max_pixels)
    image_header.check_tile(getattr(image, "tag_v2", {}), max_pixels)
    return image


def require_plugin(form: image_header.ImageFormat) -> None:
    """Raises: MissingPluginError: the format's plugin is not installed."""
    require(form.plugin.partition(".")[0], form.name, form.extra)


@cache
def require(package: str, what: str, extra: str) -> None:
    """Raises: MissingPluginError: a package, if one is named, is not installed."""
    if package and find_spec(package) is None:
        raise MissingPluginError(
            f"an image is {what}, which needs an extra: pip install "
            f'"recordmill[{extra}]" (missing: {package}); then run the same command again'
        )


def require_decoder(data: bytes, form: image_header.ImageFormat, options: Mapping[str, Any]) -> None:
    """Raises: MissingPluginError: a package to decode a file by these options is not installed."""
    require_plugin(form)
    if deep_files.wanted_pixels(options).keeps_numbers:
        require(deep_files.package(data, form.name), f"{form.name} read as numbers", "deep")


def _to_planes(data: bytes, header: image_header.Header, options: Mapping[str, Any], wanted: PixelOptions) -> bytes:
    """Makes a PNG of planes, or for 1 or 3 bands of 8 bits a plain one."""
    require_decoder(data, image_header.NAMED[header.format], options)
    if header.format == "PNG":
        open_image(data, image_header.NAMED["PNG"], options["max_pixels"]).close()
    image, exif = deep_files.read(data, header, wanted)
    pixels = deep_files.planes(image) if wanted.planes else image
    return deep_files.png(pixels, [(b"eXIf", exif)] if exif else [], level=int(options.get("compress", True)))


def _to_png(data: bytes, header: image_header.Header, profile: bytes, max_pixels: int, compress: bool) -> bytes:
    form, facts = image_header.NAMED[header.format], PngInfo()
    image_header.check_colours(data, form.name)
    with open_image(data, form, max_pixels) as image:
        convert = to_srgb(profile, image.mode) if profile else None
        if header.in_graph and not convert:
            return data
        tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
        turn = 1 if header.in_graph else image.getexif().get(image_rules.TAG, 1)
        metadata: Any = image.info.get("exif", b"") if header.in_graph else Image.Exif()  # the graph has its own rule
        image = _of_jpeg(data, image.mode) if form.name == "JPEG" else image
        image.load()
        plain = image if convert and image.mode == "CMYK" else _plain(image, tags)
    del image  # 4 bytes a pixel
    if convert:
        plain = convert(plain)
        facts.add(*IN_SRGB)
        if header.format == "JPEG" and header.in_graph:
            facts.add(b"tEXt", image_header.FROM_JPEG)
    plain.info.clear()  # a broken colour profile would make a broken PNG
    if turn in TURNED_BACK:
        metadata[image_rules.TAG] = turn  # the graph turns it, and knows that it did
        if form.turned_by_pillow:
            plain = plain.transpose(TURNED_BACK[turn])
    if not compress:
        return _uncompressed(plain, facts, metadata.tobytes() if turn in TURNED_BACK else metadata or b"")
    file = io.BytesIO()
    plain.save(file, "PNG", compress_level=1, compress_type=zlib.Z_RLE, exif=metadata, pnginfo=facts)
    return file.getvalue()


def _of_jpeg(data: bytes, mode: str) -> Image.Image:
    """Decodes a JPEG by libjpeg-turbo: a profile must not choose Pillow's decoder."""
    pixels = inks(data) if mode == "CMYK" else jpeg(data, len(mode))
    height, width, _ = pixels.shape
    return Image.frombuffer(mode, (width, height), pixels, "raw", mode, 0, 1)


def _uncompressed(image: Image.Image, facts: PngInfo, metadata: bytes) -> bytes:
    exif = [(b"eXIf", metadata.removeprefix(image_parts.EXIF))] if metadata else []
    return deep_files.png(np.asarray(image), [*((kind, data) for kind, data, *_ in facts.chunks), *exif])


def is_converted(ready: bytes) -> bool:
    """Whether `decodable` applied a colour profile to this PNG."""
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
        message = f"pixels of Pillow's mode {image.mode} have an unknown range of colours or need a profile"
        raise image_header.ImageError("unsupported_format", message)
    return image.convert(EIGHT_BITS[image.mode])


def as_jpeg(image: bytes, options: ImageOptions) -> bytes:
    """Encodes the transform graph's Netpbm as JPEG; strips a stored file of excluded metadata.

    `image` is Netpbm from `transforms.tensorflow.image`, JPEG, PNG, or empty if missing.
    """
    header = NETPBM.match(image)
    if header is None:
        return image_metadata.without_metadata(image) if options.strips else image
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
    """Returns the MCUs, `unit` pixels wide (8 or 16), between two restart markers; they divide a row evenly."""
    row = -(-width // unit)
    return next((blocks for blocks in INTERVALS[unit] if row % blocks == 0), row)
