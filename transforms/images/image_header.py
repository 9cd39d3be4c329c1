"""The image formats, and an image's header: format, size, and whether the graph can decode it.

A new format needs a row in `FORMATS`, a function in `READERS` that reads its size, and a test. If the graph cannot
decode it, Pillow makes a PNG first (`pipeline.build.images.transcode`). A header is read from the bytes alone; nothing
is decoded or allocated, so hostile bytes may come here first. Parts that cost a decoder time or memory are counted
(`bounds`), including metadata.

>>> read_header(bytes.fromhex("89504e470d0a1a0a 0000000d 49484452 00000007 00000005"))
Header(format='PNG', width=7, height=5, in_graph=True, scans=1)
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from recordmill.transforms.base import bounds
from recordmill.transforms.base.arrays import ArrayError, header_of
from recordmill.transforms.base.bounds import ImageError as ImageError
from recordmill.transforms.images import image_parts
from recordmill.transforms.images.image_parts import JPEG as JPEG
from recordmill.transforms.images.image_parts import PNG as PNG
from recordmill.transforms.images.image_stored import MOST_BANDS

FROM_JPEG = b"Source\0JPEG"
"""Marks a PNG that the build made from a JPEG in another colour space, to be stored as JPEG again."""
LOSSLESS = 0xC3  # the only 8-bit frame header that TensorFlow's libjpeg refuses
PROGRESSIVE = (0xC2, 0xCA)
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
FULL_SCANS = 20  # for `max_pixels`, more for smaller images; programs write 10, for CMYK 18
TURNED = re.compile(rb"\x01\x12\0\x03\0{3}\x01\0[\x05-\x08]|\x12\x01\x03\0\x01\0{3}[\x05-\x08]\0|irot")
"""EXIF's tag of an orientation that swaps width and height, in either byte order, and HEIF's rotation box."""
WIDTH, LENGTH, TILE_WIDTH, TILE_LENGTH = 256, 257, 322, 323  # TIFF's tags
STARTS = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", image_parts.EXIF * (bounds.EXIF_HEADS.most + 1))
"""The first bytes of blocks that Pillow takes for EXIF, the last with too many heads."""

Size = tuple[int, int] | None  # width and height in pixels; None if the header lacks them
Read = tuple[Size, bool, int]  # `Header`'s size, in_graph and scans


@dataclass(frozen=True)
class ImageFormat:
    """A supported format."""

    name: str
    suffixes: tuple[str, ...]  # in lower case, with the dot
    magic: bytes  # pattern of the first bytes
    pillow: str  # Pillow's name, the only opener to try
    turned_by_pillow: bool = False  # Pillow itself applies the EXIF orientation
    plugin: str = ""  # module to import before Pillow reads the format
    extra: str = ""  # extra of `recordmill` with the plugin


FORMATS = (
    ImageFormat("JPEG", (".jpg", ".jpeg"), rb"\xff\xd8\xff", "JPEG"),
    ImageFormat("PNG", (".png",), rb"\x89PNG\r\n\x1a\n", "PNG"),
    ImageFormat("GIF", (".gif",), rb"GIF8[79]a", "GIF"),
    ImageFormat("BMP", (".bmp",), rb"BM", "BMP"),
    ImageFormat("WebP", (".webp",), rb"RIFF....WEBP", "WEBP"),
    ImageFormat("TIFF", (".tif", ".tiff"), rb"II[*+]\0|MM\0[*+]", "TIFF", turned_by_pillow=True),
    ImageFormat("AVIF", (".avif",), rb"....ftyp(avi[fs]|m(if|sf)1....(....){0,16}?avi[fs])", "AVIF"),
    ImageFormat(
        "HEIF",
        (".heic", ".heif", ".hif"),
        rb"....ftyp(he(ic|ix|im|is|vc|vx|vm|vs)|mif1|msf1)",
        "HEIF",
        plugin="pillow_heif.HeifImagePlugin",
        extra="heif",
    ),  # fmt: skip
    ImageFormat("NPY", (), rb"\x93NUMPY", ""),  # an ending `.npy` may be any array's
)
NAMED = {each.name: each for each in FORMATS}
SUFFIXES = frozenset(suffix for each in FORMATS for suffix in each.suffixes)  # the suffixes of image files, in any case
OTHERS = {
    rb"\0\0\x01\0": "ICO",
    rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51": "JPEG 2000",
    rb"\0\0\0\x0cJXL |\xff\x0a": "JPEG XL",
    rb"8BPS": "Photoshop",
    rb"%PDF": "PDF",
    rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?<svg": "SVG",
}
"""Unsupported formats, for messages."""
CHANNELS_LAST = "`np.moveaxis(array, 0, -1)` moves the channels of a file"  # the remedy for a NPY with channels first
HEAD = 512  # bytes to search for OTHERS


def format_of(data: bytes) -> ImageFormat | None:
    """Returns the format of a file by its first bytes; None if unsupported."""
    return next((each for each in FORMATS if re.match(each.magic, data, re.DOTALL)), None)


@dataclass(frozen=True, slots=True)
class Header:
    """The facts in an image's header."""

    format: str  # a name in `FORMATS`
    width: int  # in stored pixels, before EXIF turns them; at least 1. The largest image's in AVIF and HEIF.
    height: int
    in_graph: bool  # the graph decodes it correctly; `pipeline.build.images.transcode` converts others to PNG
    scans: int = 1  # a decoder's passes over the pixels, several for some JPEGs


def check_header(data: bytes, max_pixels: int, stated: str = "") -> Header:
    """Refuses, before any decoder, unsupported formats, too many pixels, parts or scans, and other sides than `stated`.

    Those are an annotation's, as `200 x 100`: its boxes would lie elsewhere. Raises: ImageError: `unsupported_format`,
    `too_many_pixels`, `too_slow` or `malformed_row`; no other.
    """
    header = read_header(data)
    _check(header, max_pixels)
    has = f"{header.width} x {header.height}"
    if stated not in ("", has) and stated_frame(data, stated) != "upright":
        wrong = f"the annotation states {stated} pixels, and the image has {has}: correct the annotation's size"
        raise ImageError("malformed_row", wrong)
    return header


def stated_frame(data: bytes, stated: str) -> str:
    """Returns the frame with the stated sides of an image that EXIF turns, `file` or `upright`; "" for any other."""
    header = read_header(data)
    frames = {f"{header.width} x {header.height}": "file", f"{header.height} x {header.width}": "upright"}
    found = TURNED.search(data) if len(frames) == 2 and stated in frames else None
    is_turned = found and (found[0] != b"irot" or header.format in ("HEIF", "AVIF"))
    return frames[stated] if is_turned else ""


def _check(header: Header, max_pixels: int) -> None:
    check_pixels(header.width, header.height, max_pixels)
    allowed = min(bounds.JPEG_SCANS.most, FULL_SCANS * max_pixels // (header.width * header.height))
    if header.scans > allowed:
        size = f"{header.width} x {header.height} pixels in {header.scans} scans"
        raise ImageError("too_slow", f"the {header.format} has {size}, above the limit of {allowed} for this size")


def check_together(pixels: int, max_pixels: int) -> None:
    """Refuses too many pixels of all pages. Raises: ImageError: `too_many_pixels`."""
    if pixels > FULL_SCANS * max_pixels:
        allowed = f"`max_pixels` allows {FULL_SCANS * max_pixels:,}, or give `max_length`"
        raise ImageError("too_many_pixels", f"the pages read have {pixels:,} pixels or more together; {allowed}")


def tiff_pages(data: bytes, max_pixels: int, most: int | None) -> dict[int, int | None]:
    """Maps the numbers of a TIFF's first `most` pages to the offsets of their directories; checks each.

    A file of nothing but smaller copies and masks has one page, its first. Raises: ImageError: as `check_header`.
    """
    pages: dict[int, int | None] = {**dict(islice(image_parts.tiff_pages(data), most))}
    image_parts.check_exif(data, [*pages.values()] or [None])
    pixels = 0
    for start in pages.values():
        width, height = image_parts.tiff_numbers(data, WIDTH, LENGTH, at=start)
        _check(Header("TIFF", width, max(1, height), False, _tiff_scans(data, start)), max_pixels)
        check_together(pixels := pixels + width * height, max_pixels)
    return pages or {0: None}


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Refuses too many pixels. Raises: ImageError: `too_many_pixels`."""
    if width * height > max_pixels:
        size = f"{width} x {height} = {width * height} pixels"
        raise ImageError("too_many_pixels", f"the header states {size}; max_pixels allows {max_pixels}")


def check_tile(tags: Mapping[int, Any], max_pixels: int) -> None:
    """Refuses a TIFF with too large tiles, which are allocated whole. Raises: ImageError: `too_many_pixels`."""
    check_pixels(tags.get(TILE_WIDTH, 1), tags.get(TILE_LENGTH, 1), max_pixels)


def check_colours(data: bytes, form: str) -> None:
    """Refuses a TIFF that Pillow cannot read as colours. Raises: ImageError: `unsupported_format`."""
    bits, bands, kind = image_parts.tiff_numbers(data, 258, 277, 339) if form == "TIFF" else (8, 3, 1)
    if bits > 16 or bands > 6 or kind in (2, 3):
        sign = {2: " with a sign", 3: " of floating point"}.get(kind, "")
        what = f"the TIFF has {bits} bits{sign} in each of {bands or 1} bands"
        raise ImageError("unsupported_format", f"{what}: give `dtype` uint8, uint16 or float32, `channels` and `bands`")


def read_header(data: bytes) -> Header:
    """Reads a file's first header, and counts parts. Raises: ImageError: `unsupported_format` or `too_slow`."""
    form = format_of(data)
    if form is None:
        other = next((name for magic, name in OTHERS.items() if re.match(magic, data[:HEAD], re.DOTALL)), "no image")
        what = f"the file is {other}" if data else "the file is empty"
        *names, last = (each.name for each in FORMATS)
        raise ImageError("unsupported_format", f"{what}; {', '.join(names)} and {last} are read")
    size, in_graph, scans = READERS[form.name](data)
    if size is None or not all(size):
        raise ImageError("unsupported_format", f"the file begins as {form.name}, but its header lacks the size")
    return Header(form.name, *size, in_graph, scans)


def _jpeg(data: bytes) -> Read:
    frame, size, components, scans, exif, previews = 0, None, 0, 1, list[bytes](), list[bytes]()
    for marker, offset, end in image_parts.jpeg_segments(data):
        if marker in FRAMES and not frame:
            height, width, components = struct.unpack_from(">HHB", data, offset + 5)
            frame, size = marker, (width, height)
        elif marker == image_parts.SCAN and (frame in PROGRESSIVE or data[offset + 4] != components):
            scans = 0
            for number, (each, *_) in enumerate(image_parts.jpeg_walk(data, offset)):  # to the end; a film may follow
                bounds.JPEG_SEGMENTS.check(number)
                scans += each == image_parts.SCAN
        elif marker in (image_parts.APP1, image_parts.APP2) and data[offset + 4 : offset + 8] in (b"Exif", b"MPF\0"):
            (exif if marker == image_parts.APP1 else previews).append(data[offset + 8 : end])
            bounds.JPEG_EXIF.check(len(exif))
    for block in (b"".join(piece[2:] for piece in exif), *previews):  # joined as Pillow does
        image_parts.check_exif(block)
    return size, frame != LOSSLESS, scans


def jpeg_frame(data: bytes) -> tuple[int, int, int] | None:
    """Returns a JPEG's height, width and number of components; None without a frame. Raises: ImageError: `too_slow`."""
    offset = next((offset for marker, offset, _ in image_parts.jpeg_segments(data) if marker in FRAMES), None)
    return None if offset is None else struct.unpack_from(">HHB", data, offset + 5)


def _png(data: bytes) -> Read:
    profiles = texts = 0
    for kind, start, end in image_parts.png_chunks(data):
        if kind == b"eXIf":
            image_parts.check_exif(data[start:end])
        profiles += kind == b"iCCP"
        texts += kind in (b"zTXt", b"iTXt")
        bounds.PNG_PROFILES.check(profiles)
        bounds.PNG_TEXTS.check(texts)
    has_size = data[12:16] == b"IHDR" and len(data) >= 24
    return struct.unpack_from(">II", data, 16) if has_size else None, True, 1


def _gif(data: bytes) -> Read:
    """Counts blocks before the first frame, as Pillow reads them."""
    offset = 13 + (6 << (data[10] & 7) if data[10:11] >= b"\x80" else 0)
    blocks = comments = 0
    while data[offset : offset + 1] not in (b",", b";", b""):
        blocks, offset = blocks + 1, offset + 1
        if data[offset - 1] == ord("!"):
            is_comment = data[offset : offset + 1] == b"\xfe"
            least = 0 if is_comment else 2 if data.startswith(b"NETSCAPE2.0", offset + 2) else 1
            end, offset = blocks + least, offset + 1
            while offset < len(data) and (data[offset] or blocks < end) and blocks <= bounds.GIF_BLOCKS.most:
                blocks, comments, offset = blocks + 1, comments + is_comment, offset + 1 + data[offset]
            offset += 1
        bounds.GIF_COMMENTS.check(comments)
        bounds.GIF_BLOCKS.check(blocks)
    return struct.unpack_from("<HH", data, 6) if len(data) >= 10 else None, False, 1


def _webp(data: bytes) -> Read:
    """Reads the canvas size of an extended file, else the frame's."""
    for kind, start, end in image_parts.webp_chunks(data):
        if kind == b"EXIF":
            image_parts.check_exif(data[start:end])
    if len(data) < 30:
        return None, True, 1
    kind, size = data[12:16], None
    if kind == b"VP8X":
        size = 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    elif kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        size = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        size = width & 0x3FFF, height & 0x3FFF
    is_animated = kind == b"VP8X" and data[20] & 2 > 0
    return size, not is_animated, 1


def _bmp(data: bytes) -> Read:
    """TensorFlow decodes 24 bits, uncompressed, without bytes after the pixels."""
    if len(data) < 26 or data[14:18] == b"\x0c\0\0\0":  # OS/2's first header
        return struct.unpack_from("<HH", data, 18) if len(data) >= 26 else None, False, 1
    start, head, width, height, _, bits, packing = struct.unpack_from("<IIiiHHI", data[:54].ljust(54, b"\0"), 10)
    if packing in (1, 2):  # run lengths; Pillow expands them in Python
        bounds.BMP_WIDTH.check(width)
        bounds.BMP_RUNS.check(len(data))
    row = (width * 3 + 3) // 4 * 4
    is_plain = len(data) >= 54 and head >= 40 and bits == 24 and packing == 0 and len(data) == start + row * abs(height)
    return (width, abs(height)) if width > 0 else None, is_plain, 1


def _tiff(data: bytes) -> Read:
    image_parts.check_exif(data)
    width, height = image_parts.tiff_numbers(data, WIDTH, LENGTH)
    return (width, height), False, _tiff_scans(data)


def _tiff_scans(data: bytes, at: int | None = None) -> int:
    """Counts the scans of a page's JPEG strips or tiles, by default the first's, on average."""
    parts = image_parts.jpeg_parts(data, at)
    bounds.TIFF_SHARED.check(sum(size for _, size in parts) - len(data))
    scans = sum(data.count(b"\xff\xda", start, start + size) for start, size in parts)
    return max(1, scans // max(1, len(parts)))


def _iso(data: bytes) -> Read:
    """Counts possible EXIF anywhere, as boxes can refer to it in many ways."""
    blocks = count(1)
    for start in STARTS:
        place = data.find(start)
        while place >= 0:
            bounds.ISO_EXIF.check(next(blocks))
            image_parts.check_exif(memoryview(data)[place:])
            place = data.find(start, place + 1)
    return image_parts.largest_size(data), False, 1


def _npy(data: bytes) -> Read:
    """Reads the sides of an array: [height, width], or [height, width, channels]."""
    try:
        shape = header_of(data).shape
    except ArrayError as error:
        raise ImageError("unsupported_format", str(error)) from None
    if len(shape) not in (2, 3) or not 1 <= (*shape, 1)[2] <= MOST_BANDS:
        wanted = f"wanted [height, width] or [height, width, channels], of 1 to {MOST_BANDS} channels"
        remedy = f"`shape` reads numbers of rows in another order, {CHANNELS_LAST}"
        raise ImageError("unsupported_format", f"{wanted}, found an array of the shape {list(shape[:9])}: {remedy}")
    return (shape[1], shape[0]), False, 1


READERS: Mapping[str, Callable[[bytes], Read]] = {
    "JPEG": _jpeg, "PNG": _png, "GIF": _gif, "BMP": _bmp, "WebP": _webp, "TIFF": _tiff, "AVIF": _iso, "HEIF": _iso,
    "NPY": _npy,
}  # fmt: skip
"""The readers of headers, by format (`FORMATS`)."""
