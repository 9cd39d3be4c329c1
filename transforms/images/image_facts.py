"""Facts of images to count, read from headers: transcoded formats, colour profiles, and losses.

A loss is information in a file that its pixels do not keep: usually grey or RGB with 8 bits a value.

>>> losses(bytes.fromhex("89504e470d0a1a0a 0000000d 49484452 00000007 00000005 1000"), "PNG")
('16 bits',)
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from recordmill.transforms.base import bounds
from recordmill.transforms.base.arrays import header_of
from recordmill.transforms.images import image_header, image_parts
from recordmill.transforms.images.image_header import ImageError
from recordmill.transforms.images.image_stored import MOST_BANDS, PIXEL_BYTES, PixelOptions
from recordmill.transforms.texts.text_stored import ID_COUNTS, IGNORED
from recordmill.transforms.values.values_stored import TINY

COUNTS = ("transcoded", "profiles", "losses", "messages", "ids")  # of images, then of chats, by shard and version
MASK = "read classes of pixels as `kind: mask`"
EARLY = "an early end"
UNLEARNED = "`ignore` and no class but 0"
LOSSES = {
    "bits": ("cut to 8", "give `dtype: uint16`, and the `range` that counts"),
    "palette indices": ("stored as colours or luma", MASK),
    "palette colours": ("stored as such, and no index", ""),
    "extra bands": ("left out", "give their number by `channels`, or name them by `bands`"),
    "alpha": ("laid on the `background`", "save it as a grey image, for another feature"),
    UNLEARNED: ("which teach nothing", "name an object's value in `classes`, and ignore another"),
    IGNORED: ("of special tokens, further pieces of words, or rows without labels", ""),  # tokens
    TINY: ("taken for 0", "scale them in the source"),  # numbers
    "further frames": ("left out", "read them by `kind: image_sequence` with `pages: all`"),
    EARLY: ("and one colour after it", "fetch the files again"),  # JPEG, with an end mark
    "0 for white": ("turned to 0 for black", ""),
    "sides stated of the file": ("though EXIF turns it: boxes may lie elsewhere", "try `oriented: file` in `preview`"),
    "sides stated upright": ("against `oriented: file`: boxes may lie elsewhere", "try without it in `preview`"),
    "nodata values": ("read as numbers", "write others, such as 0, where nothing was measured"),
}
"""Each loss: what happens, and the remedy, empty if pixels are right. Names end in `bits` for `16 bits`."""
FRAMES = {("file", "upright"): "sides stated of the file", ("upright", "file"): "sides stated upright"}
"""Losses by the frame of the sides that an annotation states, and the other frame, of its boxes, masks and points."""
DEFAULTS = PixelOptions()
KEPT = {"further frames", "nodata values", "0 for white", *FRAMES.values()}  # losses of numbers too
VOC = bytes.fromhex("000000 800000 008000 808000 000080 800080 008080 808080 400000 c00000")
"""The first colours of the palette of Pascal VOC, DAVIS and labelme; Windows' differs in the eighth or ninth."""

PAGED = ("GIF", "PNG", "WebP", "TIFF", "AVIF")  # formats of several pages or frames, for `pages: all`
PALETTES = [0] * 128 + [6 << (flags & 7) for flags in range(128, 256)]  # bytes of a GIF's palette, by flags


def fact_lines(statistics: Mapping[str, Any]) -> Iterator[str]:
    """Describes the `COUNTS` of images and chats."""
    for form, images in statistics.get("transcoded", {}).items():
        yield f"{images:,} {form} transcoded"
    for name, images in statistics.get("profiles", {}).items():
        yield f"{images:,} with a broken colour profile" if name == "broken" else f"{images:,} {name} converted to sRGB"
    yield from (what for what, _ in loss_words(statistics.get("losses", {})))
    if messages := statistics.get("messages"):
        trained, stored, whole, chats = (statistics.get("ids", {}).get(name, 0) for name in ID_COUNTS)
        roles = ", ".join(f"{number:,} {role}" for role, number in messages.items())
        cut = f"; {chats:,} chats cut, {whole:,} tokens before" if chats else ""
        yield f"{roles} messages, {trained / max(1, stored):.1%} of {stored:,} tokens trained{cut}"


def loss_lines(counts: Mapping[str, int]) -> Iterator[str]:
    """Describes the losses of pixels, with remedies."""
    return (f"{what}; to keep all, {instead}" for what, instead in loss_words(counts) if instead)


def loss_words(counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Describes each loss and its remedy, which is empty if no pixel is lost."""
    for name, images in sorted(counts.items()):
        becomes, instead = LOSSES.get("bits" if name.endswith(" bits") else name, ("lost", "see a later Recordmill"))
        yield f"{images:,} with {name}, {becomes}", instead


def losses(
    data: bytes, form: str, options: PixelOptions = DEFAULTS, stated: str = "", oriented: str = "upright"
) -> tuple[str, ...]:
    """Names the losses of a file with a checked header, and an annotation's sides and frame. Raises: ImageError."""
    found: set[str | bytes] = {*READERS[form](data)} if form in READERS else set()
    if stated:
        found.add(FRAMES.get((image_header.stated_frame(data, stated), oriented), ""))
    if options.pages == "all" and form in PAGED:
        found.discard("further frames")
    if options.keeps_numbers:
        return tuple(sorted(KEPT.intersection(found)))
    names = {_of_palette(each, options) if isinstance(each, bytes) else each for each in found}
    return tuple(sorted(names - {""}))


def has_pages(data: bytes, form: str) -> bool:
    """Whether a file has pages or frames after the first, for `pages: all`. Raises: ImageError: as `losses`."""
    return form in PAGED and "further frames" in READERS[form](data)


def _of_palette(colours: bytes, options: PixelOptions) -> str:
    """Names a palette's loss: none for greys, except for masks (`resize: nearest`), unless each index is its grey."""
    red, green, blue = (colours[part::3] for part in range(3))
    is_mask, is_grey = options.resize == "nearest", red == green == blue
    if is_grey and (not is_mask or red == bytes(range(256))[: len(red)]):
        return ""
    is_voc = len(colours) > 3 and VOC.startswith(colours[: len(VOC)])
    return "palette indices" if is_mask or is_voc or options.channels == 1 else "palette colours"


def _png(data: bytes) -> Iterator[str | bytes]:
    depth, kind = (*data[24:26], 8, 0)[:2]
    yield from ["16 bits"] * (depth == 16) + ["alpha"] * (kind > 3)
    for name, start, end in takewhile(lambda chunk: chunk[0] != b"IDAT", image_parts.png_chunks(data)):
        if name == b"PLTE" and kind == 3:
            yield data[start:end]
        elif name == b"tRNS" and (kind != 3 or data[start:end].strip(b"\xff")):
            yield "alpha"
        elif name == b"acTL" and int.from_bytes(data[start : start + 4], "big") > 1:
            yield "further frames"


def _gif(data: bytes) -> Iterator[str | bytes]:
    """Looks at the first frame, and for a second one within `GIF_BLOCKS`."""
    frames, is_inside = 0, False
    with suppress(IndexError):
        at = first = 13 + PALETTES[data[10]]
        for _ in range(bounds.GIF_BLOCKS.most):
            if is_inside:
                is_inside, at = data[at] > 0, at + 1 + data[at]
            elif data[at] == ord("!"):
                yield from ["alpha"] * (not frames and data[at + 1] == 0xF9 and data[at + 3] & 1)
                is_inside, at = True, at + 2
            elif data[at] == ord(",") and not frames:
                start, at = at + 10, at + 10 + PALETTES[data[at + 9]]
                yield data[start:at] or data[13:first]
                is_inside, frames, at = True, 1, at + 1
            else:
                yield from ["further frames"] * (data[at] == ord(","))
                return


def _webp(data: bytes) -> Iterator[str | bytes]:
    flags = data[20] if data[12:16] == b"VP8X" else data[24] & 16 if data[12:16] == b"VP8L" else 0
    yield from ["alpha"] * (flags & 16 > 0) + ["further frames"] * (flags & 2 > 0 and data.count(b"ANMF") > 1)


def _bmp(data: bytes) -> Iterator[str | bytes]:
    head, bits, used = (int.from_bytes(data[at : at + size], "little") for at, size in ((14, 4), (28, 2), (46, 4)))
    table = data[14 + head :][: 4 * min(256, used or 1 << bits)] if head >= 40 and bits <= 8 else b""
    yield bytes(table[entry + part] for entry in range(0, len(table) - 3, 4) for part in (2, 1, 0))
    yield from ["alpha"] * (head >= 56 and bits == 32 and data[30] == 3 and any(data[66:70]))


def _tiff(data: bytes) -> Iterator[str | bytes]:
    bits, space, samples = image_parts.tiff_numbers(data, 258, 262, 277)
    tags = image_parts.tiff_values(data, 320, 338, NODATA)
    extra = max(0, samples - {2: 3, 5: 4, 6: 3, 8: 3}.get(space, 1))  # after RGB, CMYK, YCbCr, Lab or grey
    alphas = min(extra, int(np.isin(tags.get(338, 2), (1, 2)).sum()))  # by default one is alpha, as in Pillow
    yield from [f"{bits} bits"] * (bits > 8) + ["alpha"] * (alphas > 0) + ["extra bands"] * (extra > alphas)
    nodata = bytes(tags.get(NODATA, b"")).strip(b"\0 ")  # a number as text
    yield from ["0 for white"] * is_from_white(data)
    yield from ["further frames"] * image_parts.has_more_pages(data) + ["nodata values"] * (nodata not in (b"", b"0"))
    if space == 3 and 320 in tags:
        yield (tags[320][: tags[320].size // 3 * 3].reshape(3, -1).T >> 8).astype(np.uint8).tobytes()


def _iso(data: bytes) -> Iterator[str | bytes]:
    for name, start, end in image_parts.leaf_boxes(data):
        held = data[start:end].ljust(18, b"\0")
        yield from ["further frames"] * (name == b"tkhd")
        if name == b"auxC" and re.search(rb":auxiliary:alpha|:auxid:1\0", held):
            yield "alpha"
        elif name == b"hvcC" and held[17] & 7:
            yield f"{8 + (held[17] & 7)} bits"
        elif name == b"av1C" and held[2] & 0x40:
            yield f"{12 if held[2] & 0x20 else 10} bits"


READERS = {"PNG": _png, "GIF": _gif, "WebP": _webp, "BMP": _bmp, "TIFF": _tiff, "AVIF": _iso, "HEIF": _iso}
"""By format; they yield names of losses, and RGB palettes."""

COLOURS = {0: 1, 2: 3, 4: 2, 6: 4}  # the bands of a PNG by its colour type; 3 is a palette
LOSSLESS = {1: "none", 5: "LZW", 8: "deflate", 32946: "deflate", 32773: "PackBits", 50000: "Zstandard"}
"""TIFF's compressions that lose nothing."""
KINDS = {1: "uint", 2: "int", 3: "float"}  # TIFF's types of numbers (`SampleFormat`)
FLOATS = ("int8", "int16", "float16", "float64")  # read as float32, as NumPy converts them; so are those of NPY
BITS, COMPRESSION, PHOTOMETRIC, BANDS, KIND, NODATA = 258, 259, 262, 277, 339, 42113  # TIFF's tags
SIZES = (279, 325)  # of strips and tiles in bytes
PALETTE = 3
_unread = partial(ImageError, "unsupported_format")


def numbers_of(data: bytes, form: str, at: int | None = None) -> tuple[str, int]:
    """Returns the `dtype` of a file's numbers, such as `uint16`, maybe one that no feature has, and its bands.

    `at` is the offset of one page's directory; None: a TIFF has one page. The header must be checked. Raises:
    ImageError: `unsupported_format` or `too_slow`.

    >>> numbers_of(bytes.fromhex("89504e470d0a1a0a 0000000d 49484452 00000007 00000005 1000"), "PNG")
    ('uint16', 1)
    """
    if form == "PNG":
        if data[25] not in COLOURS or any(kind == b"tRNS" for kind, *_ in image_parts.png_chunks(data)):
            raise _unread("the PNG has a palette or a clear colour: save it without")
        return f"uint{data[24]}", COLOURS[data[25]]
    if form == "NPY":
        found = header_of(data)
        whole = "uint8" if found.descr[1:] in ("u1", "i1", "b1") else "uint16"
        return "float32" if "f" in found.descr else whole, (*found.shape, 1)[2]
    if form != "TIFF":
        raise _unread(f"the file is {form}, and `dtype` and `bands` read the numbers of PNG, TIFF and NPY: convert it")
    wanted = BITS, COMPRESSION, PHOTOMETRIC, BANDS, KIND
    bits, code, colours, bands, kind = image_parts.tiff_numbers(data, *wanted, at=at)
    if colours == PALETTE:
        raise _unread("the TIFF has a palette: save it without")
    if (code or 1) not in LOSSLESS:
        raise _unread(f"the TIFF has the compression {code}: save it with {', '.join(sorted({*LOSSLESS.values()}))}")
    if at is None and image_parts.has_more_pages(data):
        raise _unread("the TIFF has several pages: read them by `kind: image_sequence` with `pages: all`")
    sizes = sum(sum(each.tolist()) for each in image_parts.tiff_values(data, *SIZES, at=at).values())
    bounds.TIFF_SHARED.check(sizes - len(data))
    name = KINDS.get(kind or 1, "complex")
    dtype = f"{name}{16 if name == 'uint' and 8 < bits < 16 else bits or 1}"
    return "float32" if dtype in FLOATS else dtype, bands or 1


def is_from_white(data: bytes, at: int | None = None) -> bool:
    """Whether a TIFF's page has grey numbers without sign, 0 for white."""
    found = image_parts.tiff_values(data, PHOTOMETRIC, BANDS, KIND, at=at)
    return PHOTOMETRIC in found and all(each.max(initial=0) <= (tag != PHOTOMETRIC) for tag, each in found.items())


def deep_numbers(data: bytes, form: str) -> tuple[str, int] | None:
    """Returns `numbers_of` a first page that 8-bit grey or RGB cannot hold; None for pictures, as a colour PNG."""
    with suppress(ImageError):
        page = next(image_parts.tiff_pages(data), (0, None))[1] if form == "TIFF" else None
        kind, bands = numbers_of(data, form, page)
        is_picture = bands <= 4 and (kind == "uint8" or form == "PNG" and bands > 1)
        return (kind, bands) if kind in PIXEL_BYTES and bands <= MOST_BANDS and not is_picture else None
    return None
