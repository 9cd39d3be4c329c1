"""The table of image formats: each one's name, its files' suffixes, its first bytes, and the decoder that Pillow uses.

A format needs a row here, a function in `image_header` that reads its size, and a test. Where the graph does not decode
it, Pillow makes PNG of it before (`pipeline.build.images.transcode`).

>>> format_of(b"GIF89a").suffixes
('.gif',)
"""

import re
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
    ),
)
NAMED = {each.name: each for each in FORMATS}
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


def other_format(data: bytes) -> str | None:
    """Returns the name of a known format that is not read."""
    return next((name for magic, name in OTHERS.items() if re.match(magic, data[:HEAD], re.DOTALL)), None)


_MAGIC = {each.name: re.compile(each.magic, re.DOTALL) for each in FORMATS}
