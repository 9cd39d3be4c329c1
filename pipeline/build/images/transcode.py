"""Transcodes images by Pillow: to PNG before the graph, for images it would decode wrongly; to JPEG after it.

JPEG, PNG, still WebP and plain BMP pass unchanged. GIF and AVIF (first frame), TIFF (first page), HEIF (primary image),
animated WebP, other BMP, lossless JPEG and NPY become 8-bit PNG, with transparency and orientation. So do images with a
colour profile other than sRGB's; `transforms.images.color` converts their colours. libjpeg-turbo decodes JPEG, Pillow
all else. A client of the serving model calls the same function; it needs Pillow and this package, but no TensorFlow.
Deep images, of more than 8 bits or other than 1 or 3 channels, become a PNG of planes (`deep_files`).
After the graph, pixels become JPEG with restart markers, from which a reader decodes parts
(`transforms.images.jpeg_parts`), with the pixels of the graph's own encoder: libjpeg-turbo with the same tables. A
marker every few blocks adds one to three percent of bytes.

    encoded = decodable(data, {"max_pixels": 64_000_000})
"""

import io
import os
import re
import threading
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count, islice
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from recordmill.pipeline.build.images import deep_files
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import is_machine_fault
from recordmill.transforms.base import bounds
from recordmill.transforms.images import color_profile, image_facts, image_header, image_parts, image_rules
from recordmill.transforms.images.color import to_srgb
from recordmill.transforms.images.decode import inks, jpeg, upright, warn_of_old_pillow, without_ink
from recordmill.transforms.images.image_parts import without_metadata
from recordmill.transforms.images.image_stored import PixelOptions

if TYPE_CHECKING:
    from recordmill.transforms.images.image_spec import Image as ImageFeature

EIGHT_BITS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBX": "RGB", "YCbCr": "RGB"}
"""The 8-bit mode for each mode without transparency."""
PROFILE, WHITE_IS_ZERO = 34_675, 0  # TIFF's tag, and the value of another
TURNS = range(2, 9)  # EXIF's orientations, but the upright one
NETPBM = re.compile(rb"P([56]) (\d{5}) (\d{5}) 255 ")
JPEG_MODES = {b"5": "L", b"6": "RGB"}
IN_SRGB = (b"sRGB", b"\1")  # PNG's chunk, behind the header, for sRGB pixels by relative colorimetric intent
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
    """Returns an image file's bytes, or a PNG's if the graph would decode them wrongly; with `pages`, one for each.

    Args:
        data: the file.
        options: an image's `max_pixels` and `color`, by default `srgb`. `compress: False` makes a larger PNG in a tenth
            of the time. `pixel`, `channels` and `bands` of deep images, by default uint8, 3 and None, as in
            `PixelOptions`; their colours are not converted. `pages: "all"` gives a file's pages or frames, at most
            `max_length`, as joined files, for `pages_of`.

    Raises:
        ImageError: `unsupported_format`, `too_many_pixels`, `too_slow`, `too_large`: its colour profile, or its pages;
            UndecodableError: `undecodable_image`.
        MissingPluginError: an extra is not installed.
        MemoryError, ImportError, OSError: the machine failed (`pipeline.sources.files`).
    """
    header = image_header.check_header(data, options["max_pixels"])
    wanted, color = deep_files.wanted_pixels(options), options.get("color", "srgb")
    is_deep = wanted.keeps_numbers
    if header.format == "NPY" and not is_deep:
        channels = 3 if image_facts.numbers_of(data, "NPY")[1] == 3 else 1
        wanted, is_deep = PixelOptions(channels=channels, pages=wanted.pages), True
    has_pages = wanted.pages == "all" and image_facts.has_pages(data, header.format)
    profile = color_profile.foreign_profile(data, header.format) if color == "srgb" and not is_deep else b""
    is_ready = deep_files.is_ready(data, header, wanted) if is_deep else header.in_graph and not profile
    if is_ready and not has_pages:
        return data
    with naming_damage(header.format):
        if is_deep:
            return _joined(_to_planes(data, header, options, wanted))
        frames: Iterable[_Frame] = _frames(data, header, profile, options, has_pages)
        frames = frames if has_pages else [*frames]  # of one, the file is closed: 4 bytes a pixel
        return _joined(_png_of(frame, header, options.get("compress", True)) for frame in frames) or data


@contextmanager
def naming_damage(what: str) -> Iterator[None]:
    """Raises: ImageError: instead of a decoder's error; faults of the machine pass."""
    try:
        yield
    except image_header.ImageError:
        raise
    except Image.DecompressionBombError:
        message = f"Pillow decodes {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels of a {what} at most"
        raise image_header.ImageError("too_many_pixels", message) from None
    except Exception as error:  # hostile bytes raise any: struct.error, KeyError, OverflowError, …
        if is_machine_fault(error):
            raise
        message = f"the {what} is cut off, damaged, or of a kind that Pillow does not decode"
        raise UndecodableError("undecodable_image", message) from None


def decoding_of(options: "ImageFeature") -> dict[str, Any]:
    """Returns the options for `decodable`."""
    names, wanted = ("pixel", "channels", "bands", "pages"), options.pixel_options
    most = {"max_pixels": options.max_pixels, "max_length": getattr(options, "max_length", None)}
    return {**most, "color": options.color, **{name: getattr(wanted, name) for name in names}}


def pages_of(joined: bytes) -> list[bytes]:
    """Cuts joined PNGs (`decodable`); any other file is one page."""
    pages, at = list[bytes](), 0
    while joined.startswith(image_header.PNG, at):
        *_, (_, _, end) = image_parts.png_chunks(joined, at)
        pages.append(joined[at : end + 4])
        at = end + 4
    return pages if pages and at == len(joined) else [joined]


def _joined(pages: Iterable[bytes]) -> bytes:
    """Joins pages. Raises: ImageError: `too_large`: together."""
    held, size = list[bytes](), 0
    for page in pages:
        held.append(page)
        size += len(page)
        bounds.ROW_BYTES.check(size if len(held) > 1 else 0)
    return b"".join(held)


def open_image(data: bytes, form: image_header.ImageFormat, max_pixels: int) -> Image.Image:
    """Opens an image with its format's one decoder, without decoding.

    Raises: ImageError: `too_many_pixels`: a frame or tile exceeds the file's header; UndecodableError: a PNG has
    several headers; MissingPluginError: an extra is not installed; any other, for hostile bytes.
    """
    warn_of_old_pillow()
    if form.plugin:
        require(form.plugin.partition(".")[0], form.name, form.extra)
        import_module(form.plugin)
    if form.name == "PNG" and sum(kind == b"IHDR" for kind, *_ in image_parts.png_chunks(data)) > 1:
        # Pillow would fill a canvas of the last one's size
        raise UndecodableError("undecodable_image", "the PNG has more than one header")
    image = Image.open(io.BytesIO(data), formats=[form.pillow])
    image_header.check_pixels(*image.size, max_pixels)
    image_header.check_tile(getattr(image, "tag_v2", {}), max_pixels)
    return image


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
    require(form.plugin.partition(".")[0], form.name, form.extra)
    if deep_files.wanted_pixels(options).keeps_numbers:
        require(deep_files.package(data, form.name), f"{form.name} read as numbers", "deep")


def _to_planes(
    data: bytes, header: image_header.Header, options: Mapping[str, Any], wanted: PixelOptions
) -> Iterator[bytes]:
    """Makes a PNG of planes of each page, or for 1 or 3 bands of 8 bits a plain one."""
    require_decoder(data, image_header.NAMED[header.format], options)
    if header.format == "PNG":
        open_image(data, image_header.NAMED["PNG"], options["max_pixels"]).close()
    level = int(options.get("compress", True))
    pages: Mapping[int, int | None] = {0: None}
    if wanted.pages == "all" and header.format == "TIFF":
        pages = image_header.tiff_pages(data, options["max_pixels"], options.get("max_length"))
    for image, exif in deep_files.read(data, header, wanted, pages):
        pixels = deep_files.planes(image) if wanted.planes else image
        yield deep_files.png(pixels, [(b"eXIf", exif)] if exif else [], level)


_Frame = tuple[Image.Image, Callable[[Image.Image], Image.Image] | None, int, Any]
"""A frame of 8 bits, or CMYK to convert; its conversion to sRGB; EXIF's orientation, and metadata to keep."""


def _frames(
    data: bytes, header: image_header.Header, profile: bytes, options: Mapping[str, Any], has_pages: bool
) -> Iterator[_Frame]:
    """Decodes a file's first frame, or with `pages` all; yields none if the graph decodes the file."""
    image_header.check_colours(data, header.format)
    with open_image(data, image_header.NAMED[header.format], options["max_pixels"]) as image:
        for tags in _sought(image, data, options) if has_pages else [getattr(image, "tag_v2", {})]:
            convert = to_srgb(profile, image.mode) if profile else None
            if header.in_graph and not (convert or has_pages):
                return
            turn = 1 if header.in_graph else image.getexif().get(image_rules.TAG, 1)
            metadata = image.info.get("exif", b"") if header.in_graph else Image.Exif()  # the graph has its own rule
            frame: Image.Image = image
            if header.format == "JPEG":  # by libjpeg-turbo: a profile must not choose Pillow's decoder
                pixels = inks(data) if image.mode == "CMYK" else jpeg(data, len(image.mode))
                size = (pixels.shape[1], pixels.shape[0])
                frame = Image.frombuffer(image.mode, size, pixels, "raw", image.mode, 0, 1)
            frame.load()
            yield frame if convert and frame.mode == "CMYK" else _plain(frame, tags), convert, turn, metadata


def _sought(image: Any, data: bytes, options: Mapping[str, Any]) -> Iterator[Mapping[int, Any]]:
    """Seeks each page or frame, composed as viewers show it, within the limits; yields its tags."""
    max_pixels, most, pixels, profiles = options["max_pixels"], options.get("max_length"), 0, set[bytes | None]()
    numbers: Iterable[int] = count()  # of a GIF: counting frames takes as long as decoding them
    if image.format == "TIFF":
        numbers = image_header.tiff_pages(data, max_pixels, most)
    elif image.format != "GIF":
        numbers = range(int(getattr(image, "default_image", False)), image.n_frames)
    for done, number in enumerate(islice(numbers, most)):
        try:
            image.seek(number)
        except EOFError:
            if image.format == "GIF":
                return
            raise
        bounds.PAGES.check(done + 1)
        image_header.check_pixels(image.width, image.height, max_pixels)
        image_header.check_together(pixels := pixels + image.width * image.height, max_pixels)
        tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
        image_header.check_tile(tags, max_pixels)
        profiles.add(tags.get(PROFILE))
        if len(profiles) > 1 and options.get("color", "srgb") == "srgb":
            message = f"page {number + 1} has another colour profile than the first: `color: ignore` ignores all"
            raise image_header.ImageError("unsupported_format", message)
        yield tags


def _png_of(frame: _Frame, header: image_header.Header, compress: bool) -> bytes:
    (plain, convert, turn, metadata), facts = frame, PngInfo()
    if convert:
        plain = convert(plain)
        facts.add(*IN_SRGB)
        if header.format == "JPEG" and header.in_graph:
            facts.add(b"tEXt", image_header.FROM_JPEG)
    plain.info.clear()  # a broken colour profile would make a broken PNG
    if turn in TURNS:
        metadata[image_rules.TAG] = turn  # the graph turns it, and knows that it did
        if image_header.NAMED[header.format].turned_by_pillow:
            back = {6: 8, 8: 6}.get(turn, turn)  # only quarter turns are not their own inverses
            plain = Image.fromarray(upright(np.asarray(plain), back))
    if not compress:
        exif = metadata.tobytes() if turn in TURNS else metadata or b""
        kept = [(kind, data) for kind, data, *_ in facts.chunks]
        kept += [(b"eXIf", exif.removeprefix(image_parts.EXIF))] if exif else []
        return deep_files.png(np.asarray(plain), kept)
    file = io.BytesIO()
    plain.save(file, "PNG", compress_level=1, compress_type=zlib.Z_RLE, exif=metadata, pnginfo=facts)
    return file.getvalue()


def is_converted(ready: bytes) -> bool:
    """Whether `decodable` applied a colour profile to this PNG."""
    return ready[37:41] == IN_SRGB[0]


def _plain(image: Image.Image, tags: Mapping[int, Any]) -> Image.Image:
    """Converts an image to 8 bits: grey, RGB or RGBA."""
    if image.mode.startswith("I;16"):  # grey of 9 to 16 bits
        grey = (np.asarray(image) >> (tags.get(image_facts.BITS, (16,))[0] - 8)).astype(np.uint8)
        return Image.fromarray(255 - grey if tags.get(image_facts.PHOTOMETRIC) == WHITE_IS_ZERO else grey)
    if image.mode == "CMYK":
        return Image.fromarray(without_ink(np.asarray(image)))
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode not in EIGHT_BITS:
        message = f"pixels of Pillow's mode {image.mode} have an unknown range of colours or need a profile"
        raise image_header.ImageError("unsupported_format", message)
    return image.convert(EIGHT_BITS[image.mode])


def as_jpeg(image: bytes, options: "ImageFeature") -> bytes:
    """Encodes the transform graph's Netpbm as JPEG; strips a stored file of excluded metadata.

    `image` is Netpbm from `transforms.images.image_graph`, JPEG, PNG, or empty if missing.
    """
    header = NETPBM.match(image)
    if header is None:
        return without_metadata(image) if options.strips else image
    width, height = int(header[2]), int(header[3])
    mode, data = JPEG_MODES[header[1]], np.frombuffer(image, np.uint8, offset=header.end())  # not a copy
    pixels = Image.frombuffer(mode, (width, height), data, "raw", mode, 0, 1)
    file = _files.file
    file.seek(0)
    subsampling = options.chroma if options.channels == 3 else "4:4:4"
    blocks = interval(width, 16 if subsampling == "4:2:0" else 8) if min(width, height) >= LEAST_SIDE else 0
    pixels.save(
        file, "JPEG", quality=options.quality, subsampling=subsampling, dpi=(300, 300), restart_marker_blocks=blocks
    )
    size = file.tell()
    file.seek(0)
    return file.read(size)


class _MemoryFiles(threading.local):
    """A file in memory for each thread: into one, Pillow encodes without Python's lock."""

    def __init__(self) -> None:
        self.file: BinaryIO = io.BytesIO()
        with suppress(AttributeError, OSError):  # another system than Linux, or a forbidden call
            self.file = os.fdopen(os.memfd_create("jpeg"), "w+b", 0)  # type: ignore[assignment]


_files = _MemoryFiles()


def interval(width: int, unit: int) -> int:
    """Returns the MCUs, `unit` pixels wide (8 or 16), between two restart markers; they divide a row evenly."""
    row = -(-width // unit)
    return next((blocks for blocks in INTERVALS[unit] if row % blocks == 0), row)
