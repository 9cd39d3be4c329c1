"""The image formats, and an image's header: its format, its size, and whether the graph decodes it as it is.

A format needs a row in `FORMATS`, a function in `READERS` that reads its size, and a test. Where the graph does not
decode it, Pillow makes PNG of it before (`pipeline.build.images.transcode`).

A header is read from the bytes alone. Nothing is decoded or allocated, so that hostile bytes may come here first.
(Pillow's `open` would: it fills the canvas of an animated PNG before it looks at its size, and its warnings cannot be
silenced for one thread.)

>>> read_header(bytes.fromhex("89504e470d0a1a0a 0000000d 49484452 00000007 00000005"))
Header(format='PNG', width=7, height=5, in_graph=True, scans=1)
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ImageFormat:
    """A format that is read."""

    name: str
    suffixes: tuple[str, ...]
    """The ends of file names in small letters, with the dot."""
    magic: bytes
    """A regular expression that the first bytes match."""
    pillow: str
    """Pillow's name of the format; no other of its openers is tried."""
    turned_by_pillow: bool = False
    """Whether Pillow applies the EXIF orientation by itself when it loads the pixels."""
    plugin: str = ""
    """The module that teaches Pillow the format when it is imported; empty where Pillow knows it by itself."""
    extra: str = ""
    """The extra of `recordmill` that installs the plugin."""


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
)
NAMED = {each.name: each for each in FORMATS}
_MAGIC = {each.name: re.compile(each.magic, re.DOTALL) for each in FORMATS}
SUFFIXES = frozenset(suffix for each in FORMATS for suffix in each.suffixes)
"""The suffixes of files that are listed as images, in any case."""
OTHERS = {
    rb"\0\0\x01\0": "ICO",
    rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51": "JPEG 2000",
    rb"\0\0\0\x0cJXL |\xff\x0a": "JPEG XL",
    rb"8BPS": "Photoshop",
    rb"%PDF": "PDF",
    rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?<svg": "SVG",
}
"""The names of formats that are not read, for messages."""
HEAD = 512  # bytes that are searched for a name of OTHERS


def format_of(data: bytes) -> ImageFormat | None:
    """Returns the format of a file by its first bytes; None for one that is not read."""
    return next((each for each in FORMATS if _MAGIC[each.name].match(data)), None)


JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"
FROM_JPEG = b"Source\0JPEG"
"""A text of PNGs that the build makes of JPEGs in another colour space: what is made of them is stored as JPEG."""
TIFFS = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
"""The byte order of a TIFF and whether it is a BigTIFF, by its first four bytes."""
LOSSLESS = 0xC3  # the only frame header of 8 bits that TensorFlow's libjpeg refuses
PROGRESSIVE = (0xC2, 0xCA)
END, SCAN = 0xD9, 0xDA  # markers of JPEG
MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")  # not those that stand alone, nor bytes that fill
MAX_MARKERS = 10_000  # before a JPEG's first scan; real files have some hundreds
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
FULL_SCANS = 20  # of a JPEG of `max_pixels`, more of a smaller one; programs write 10, of CMYK 18
MAX_SCANS = 100  # of any JPEG: each costs about a nanosecond a pixel, and the time that its bytes take
WIDTH, LENGTH = 256, 257  # TIFF's tags
MAX_ENTRIES = 4_096  # of a TIFF's first directory; real ones hold about 30

Size = tuple[int, int] | None
"""Width and height in pixels, or None where the header does not state them."""


class ImageError(Exception):
    """An image that is rejected before the graph sees it."""

    def __init__(self, reason: str, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """`unsupported_format`, `too_many_pixels`, `too_slow`, …, as in `pipeline.sources.faults`."""
        self.message = message
        self.path = path
        """The path in its source of a file that was not there or could not be opened; None otherwise."""


@dataclass(frozen=True, slots=True)
class Header:
    """The facts that an image's header states."""

    format: str
    """The name of one of `FORMATS`."""
    width: int
    """In pixels as they are stored, before EXIF turns them; at least 1. Of AVIF and HEIF the largest image's."""
    height: int
    in_graph: bool
    """Whether the graph decodes it, and rightly; `pipeline.build.images.transcode` makes a PNG of any other."""
    scans: int = 1
    """The number of passes of a decoder over the pixels: more than one for a JPEG of several scans."""


def check_header(data: bytes, max_pixels: int) -> Header:
    """Refuses images that no decoder may see: of a format that is not read, of too many pixels, or of many scans.

    Raises:
        ImageError: `unsupported_format`, `too_many_pixels` or `too_slow`; nothing else, whatever the bytes.
    """
    header = read_header(data)
    check_pixels(header.width, header.height, max_pixels)
    allowed = min(MAX_SCANS, FULL_SCANS * max_pixels // (header.width * header.height))
    if header.scans > allowed:
        size = f"{header.width} x {header.height} pixels in {header.scans} scans"
        raise ImageError("too_slow", f"the JPEG is of {size}; of this size {allowed} are allowed")
    return header


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Refuses a size of too many pixels. Raises: ImageError: `too_many_pixels`."""
    if width * height > max_pixels:
        size = f"{width} x {height} = {width * height} pixels"
        raise ImageError("too_many_pixels", f"the header states {size}; max_pixels allows {max_pixels}")


def read_header(data: bytes) -> Header:
    """Reads the header of an image's first frame.

    Raises:
        ImageError: `unsupported_format`; nothing else, whatever the bytes.
    """
    form = format_of(data)
    if form is None:
        raise _unsupported(data)
    size, in_graph, scans = READERS[form.name](data)
    if size is None or not all(size):
        raise ImageError("unsupported_format", f"the file begins as {form.name}, but its header states no size")
    return Header(form.name, *size, in_graph, scans)


def _unsupported(data: bytes) -> ImageError:
    other = next((name for magic, name in OTHERS.items() if re.match(magic, data[:HEAD], re.DOTALL)), "no image")
    what = f"the file is {other}" if data else "the file is empty"
    *names, last = (form.name for form in FORMATS)
    return ImageError("unsupported_format", f"{what}; {', '.join(names)} and {last} are read")


Read = tuple[Size, bool, int]
"""A header's size, whether the graph decodes the image, and rightly, and its scans."""


def _jpeg(data: bytes) -> Read:
    """Finds the frame header as libjpeg does, and counts the scans."""
    frame, size, components = 0, None, 0
    for marker, offset in jpeg_segments(data):
        if marker in FRAMES and not frame:
            height, width, components = struct.unpack_from(">HHB", data, offset + 5)
            frame, size = marker, (width, height)
        elif marker == SCAN:
            several = frame in PROGRESSIVE or data[offset + 4] != components
            return size, frame != LOSSLESS, data.count(b"\xff\xda", offset) if several else 1
    return size, frame != LOSSLESS, 1


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields a JPEG's markers with their offsets, up to its first scan, 10 bytes before the end or more.

    Raises:
        ImageError: `unsupported_format`, of markers without end.
    """
    match = MARKER.search(data, 2)
    for _ in range(MAX_MARKERS):
        if match is None or match.start() >= len(data) - 9:
            return
        offset = match.start()
        yield data[offset + 1], offset
        if data[offset + 1] in (END, SCAN):
            return
        match = MARKER.search(data, offset + 2 + int.from_bytes(data[offset + 2 : offset + 4], "big"))
    raise ImageError("unsupported_format", f"the JPEG has more than {MAX_MARKERS:,} markers before its pixels")


def _png(data: bytes) -> Read:
    has_size = data[12:16] == b"IHDR" and len(data) >= 24
    return struct.unpack_from(">II", data, 16) if has_size else None, True, 1


def _webp_size(data: bytes) -> Size:
    """Returns the size of an extended file's canvas, else of the one frame."""
    kind = data[12:16]
    if len(data) < 30:
        return None
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _is_animated_webp(data: bytes) -> bool:
    return data[12:16] == b"VP8X" and len(data) > 20 and bool(data[20] & 2)


def _bmp_size(data: bytes) -> Size:
    if len(data) < 26:
        return None
    if data[14:18] == b"\x0c\0\0\0":  # OS/2's first header
        return struct.unpack_from("<HH", data, 18)
    width, height = struct.unpack_from("<ii", data, 18)
    return (width, abs(height)) if width > 0 else None


def _is_plain_bmp(data: bytes) -> bool:
    """Whether TensorFlow decodes it rightly: 24 bits, uncompressed, and nothing after its pixels."""
    if len(data) < 54:
        return False
    start, head, width, height, _, bits, compression = struct.unpack_from("<IIiiHHI", data, 10)
    row = (width * 3 + 3) // 4 * 4
    return head >= 40 and bits == 24 and compression == 0 and len(data) == start + row * abs(height)


def tiff_tags(data: bytes, *tags: int) -> list[tuple[int, int]]:
    """Reads tags of a TIFF's first directory: each one's number of values, and its value, or the offset of its bytes.

    Raises:
        KeyError, OverflowError, struct.error: the directory lacks one of them, or is damaged.
    """
    order, big = TIFFS[data[:4]]
    pointer, count, entry, value, size = (8, "Q", 20, 12, "Q") if big else (4, "H", 12, 8, "I")
    (offset,) = struct.unpack_from(order + size, data, pointer)
    (entries,) = struct.unpack_from(order + count, data, offset)
    offset += struct.calcsize(order + count)
    found = {}
    for start in range(offset, offset + entry * min(entries, MAX_ENTRIES), entry):
        tag, kind, values = struct.unpack_from(f"{order}HH{size}", data, start)
        if tag in tags:
            code = {1: size, 3: "H", 4: "I", 7: size, 16: "Q"}[kind]  # bytes stand elsewhere
            found[tag] = values, *struct.unpack_from(order + code, data, start + value)
    return [found[tag] for tag in tags]


def _tiff_size(data: bytes) -> Size:
    try:
        (_, width), (_, height) = tiff_tags(data, WIDTH, LENGTH)
    except (KeyError, OverflowError, struct.error):
        return None
    return width, height


INSIDE = {
    b"": (b"meta", b"moov"),
    b"meta": (b"iprp",),
    b"iprp": (b"ipco",),
    b"ipco": (b"ispe", b"colr"),
    b"moov": (b"trak",),
    b"trak": (b"tkhd",),
}
"""The boxes to look into, by the box around them; an empty name is the file."""
VERSION_BYTES = 4  # a version and flags, before what `meta` and `ispe` hold
MAX_BOXES = 10_000  # of a file; a phone's photo has about 100

Box = tuple[bytes, int, int]
"""A box's name, and the offsets where what it holds begins and ends."""


def _largest_size(data: bytes) -> Size:
    """Returns the largest image's size of an ISO base media file, whose boxes hold boxes (ISO/IEC 14496-12, 23008-12).

    It may hold many images: tiles of a grid, thumbnails, an alpha channel, frames. Each has a size, `ispe` among the
    properties of its items or `tkhd` of its track, and a decoder may decode any of them.
    """
    sizes = [_size(data, box) for box in leaf_boxes(data) if box[0] != b"colr" and box[2] - box[1] >= VERSION_BYTES + 8]
    return max(sizes, key=lambda size: size[0] * size[1], default=None)


def leaf_boxes(data: bytes) -> Iterator[Box]:
    """Yields the boxes of an ISO base media file that state a size (`ispe`, `tkhd`) or a colour space (`colr`)."""
    return _leaf_boxes(data, (b"", 0, len(data)), iter(range(MAX_BOXES)))


def _leaf_boxes(data: bytes, around: Box, budget: Iterator[int]) -> Iterator[Box]:
    name, start, end = around
    for box in _boxes(data, start + (VERSION_BYTES if name == b"meta" else 0), end, budget):
        if box[0] not in INSIDE[name]:
            continue
        if box[0] in INSIDE:
            yield from _leaf_boxes(data, box, budget)
        else:
            yield box


def _boxes(data: bytes, start: int, end: int, budget: Iterator[int]) -> Iterator[Box]:
    """Yields the boxes, one after another, up to one that is cut off or as long as the budget lasts."""
    while start + 8 <= end and next(budget, None) is not None:
        size, name = struct.unpack_from(">I4s", data, start)
        head = 8
        if size == 1 and start + 16 <= end:
            (size,) = struct.unpack_from(">Q", data, start + 8)
            head = 16
        size = size or end - start
        if size < head or start + size > end:
            return
        yield name, start + head, start + size
        start += size


def _size(data: bytes, box: Box) -> tuple[int, int]:
    name, start, end = box
    if name == b"ispe":
        return struct.unpack_from(">II", data, start + VERSION_BYTES)
    width, height = struct.unpack_from(">II", data, end - 8)  # 16 bits before the point, 16 behind
    return width >> 16, height >> 16


READERS: Mapping[str, Callable[[bytes], Read]] = {
    "JPEG": _jpeg,
    "PNG": _png,
    "GIF": lambda data: (struct.unpack_from("<HH", data, 6) if len(data) >= 10 else None, False, 1),
    "BMP": lambda data: (_bmp_size(data), _is_plain_bmp(data), 1),
    "WebP": lambda data: (_webp_size(data), not _is_animated_webp(data), 1),
    "TIFF": lambda data: (_tiff_size(data), False, 1),
    "AVIF": lambda data: (_largest_size(data), False, 1),
    "HEIF": lambda data: (_largest_size(data), False, 1),
}
"""The readers of headers, by the format's name (`FORMATS`)."""
