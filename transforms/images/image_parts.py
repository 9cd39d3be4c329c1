"""Parts of image files, read and counted from the bytes alone: segments, chunks, directories and boxes.

An EXIF block is a TIFF; AVIF and HEIF are ISO base media files (ISO/IEC 14496-12, 23008-12).

>>> tiff_values(bytes.fromhex("49492a00 08000000 0100 0001 0300 01000000 07000000"), 256)[256].tolist()
[7]
"""

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import numpy as np

from recordmill.transforms.base import bounds

JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"
END, SCAN, APP0, APP1, APP2 = 0xD9, 0xDA, 0xE0, 0xE1, 0xE2  # markers of JPEG
MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")  # neither standalone markers nor fill bytes
AFTER_SCAN = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
"""The marker that ends a scan, unlike stuffed bytes, restarts, and damaged bytes that decoders skip."""
TIFFS = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
"""Byte order, and whether it is a BigTIFF, by the first four bytes."""
EXIF = b"Exif\0\0"
INNER = (34_665, 34_853, 40_965)  # tags of further directories: EXIF, GPS, interoperability
WIDTH, SUBFILE, COPY_OR_MASK = 256, 254, 0b101  # TIFF's tags, and the bits of pages that are none
COMPRESSION, JPEGS = 259, (6, 7)  # TIFF's compression tag, and the codes of JPEG
PARTS = {273: 0, 324: 0, 279: 1, 325: 1}  # tags of strips and tiles: 0 for offsets, 1 for sizes
RAW = "Raw profile type exif"  # keyword of hexadecimal EXIF in a PNG's text, which the graph ignores
BYTES = (1, 2, 7)  # types that Pillow does not split
TYPES = dict(enumerate("- B B H I 2I b B h i 2i f d I - - Q".split()))
SIZES = {kind: struct.calcsize(f"={code}") for kind, code in TYPES.items() if code != "-"}
Box = tuple[bytes, int, int]  # name, and the content's start and end
INSIDE = {
    b"": (b"meta", b"moov"),
    b"meta": (b"iprp", b"iloc"),
    b"iprp": (b"ipco",),
    b"ipco": (b"ispe", b"colr", b"av1C", b"hvcC", b"auxC"),
    b"moov": (b"trak", b"meta"),
    b"trak": (b"tkhd", b"meta"),
}
"""The boxes to visit, by their parent; the empty name is the file."""
VERSION_BYTES = 4  # version and flags before the content of `meta` and `ispe`


def jpeg_walk(data: bytes, at: int = 2) -> Iterator[tuple[int, int, int]]:
    """Yields the markers of a JPEG from a byte to the image's end, with the offsets and ends of their segments."""
    match = MARKER.search(data, at)
    while match:
        offset, marker = match.start(), data[match.start() + 1]
        if marker == END:
            yield END, offset, offset + 2
            return
        end = offset + 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")
        yield marker, offset, end
        match = (AFTER_SCAN if marker == SCAN else MARKER).search(data, end)


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields `jpeg_walk` up to the first scan, 10 bytes before the end. Raises: ImageError: `too_slow`."""
    before, loose, number = 2, 0, 0
    for number, (marker, offset, end) in enumerate(jpeg_walk(data)):
        loose += offset - before
        bounds.JPEG_LOOSE.check(loose)
        bounds.JPEG_SEGMENTS.check(number)
        if offset >= len(data) - 9:
            return
        yield marker, offset, end
        if marker in (END, SCAN):
            return
        before, loose = end, loose + (end - offset if marker < APP0 else 0)
    bounds.JPEG_LOOSE.check(loose + len(data) - before)


def png_chunks(data: bytes, at: int = 0) -> Iterator[Box]:
    """Yields the chunks, as boxes, of a PNG that begins `at` this byte. Raises: ImageError: `too_slow`: too many."""
    start, kind, chunks = at + len(PNG) + 8, b"", count(1)
    while start <= len(data) and kind != b"IEND":
        bounds.PNG_CHUNKS.check(next(chunks))
        size, kind = struct.unpack_from(">I4s", data, start - 8)
        yield kind, start, start + size
        start += size + 12


def webp_chunks(data: bytes) -> Iterator[Box]:
    """Yields the chunks of a WebP, as boxes. Raises: ImageError: `too_slow`: too many."""
    start, chunks = 20, count(1)
    while start <= len(data):
        bounds.WEBP_CHUNKS.check(next(chunks))
        kind, size = struct.unpack_from("<4sI", data, start - 8)
        yield kind, start, start + size
        start += size + size % 2 + 8


def tiff_values(data: bytes, *tags: int, at: int | None = None) -> dict[int, Any]:
    """Maps tags of a TIFF's first directory, or one at an offset, to arrays; truncated data gives fewer."""
    order, big = TIFFS[data[:4]]
    found, word = dict[int, Any](), order + ("Q" if big else "I")
    with suppress(OverflowError, struct.error):
        entries, end = _directory(data, order, big, at)
        for tag, kind, values, field in entries if end else ():
            if tag in tags and TYPES.get(kind, "-") in "BHIQ":
                size = SIZES[kind]
                is_far = size * values > len(field)
                place = struct.unpack(word, field)[0] if is_far else 0
                held = memoryview(data if is_far else field)[place : place + size * values]
                found[tag] = np.frombuffer(held[: len(held) // size * size], order + TYPES[kind])
    return found


def tiff_numbers(data: bytes, *tags: int, at: int | None = None) -> list[int]:
    """Returns the greatest number of each tag (`tiff_values`); 0 for a missing tag."""
    found = tiff_values(data, *tags, at=at)
    return [int(found[tag].max(initial=0)) if tag in found else 0 for tag in tags]


def tiff_pages(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields numbers and offsets of pages' directories, but of copies and masks. Raises: ImageError: `too_slow`."""
    (order, big), seen, held = TIFFS[data[:4]], set[int](), 0
    word, place = order + ("Q" if big else "I"), 8 if big else 4
    with suppress(OverflowError, struct.error):
        while (start := struct.unpack_from(word, data, place)[0]) and start not in seen:
            bounds.PAGES.check(len(seen) + 1)
            width, kind = tiff_numbers(data, WIDTH, SUBFILE, at=start)
            if width and not kind & COPY_OR_MASK:
                yield len(seen), start
            seen.add(start)
            place = _directory(data, order, big, start)[1] or len(data)
            held += place - start
            bounds.EXIF_SHARED.check(held - len(data))


def has_more_pages(data: bytes) -> bool:
    """Whether a page follows a TIFF's first directory."""
    return any(number for number, _ in tiff_pages(data))


def _directory(
    data: bytes | memoryview, order: str, big: bool, start: int | None
) -> tuple[Iterator[tuple[int, int, int, bytes]], int]:
    """Returns a directory's tags, by default the first's, and the offset behind them; 0 if some are cut off.

    A tag has its type, its number of values, and a field with the value or the offset of its bytes. Raises:
    OverflowError, struct.error: the directory is missing.
    """
    pointer, head, entry, size = (8, "Q", "HHQ8s", 20) if big else (4, "H", "HHI4s", 12)
    if start is None:
        (start,) = struct.unpack_from(order + entry[2], data, pointer)
    wanted = min(*struct.unpack_from(order + head, data, start), bounds.EXIF_TAGS.most + 1)
    start += struct.calcsize("=" + head)
    whole = min(wanted, max(0, len(data) - start) // size)
    end = start + size * whole
    return struct.iter_unpack(order + entry, data[start:end]), end if whole == wanted else 0


def jpeg_parts(data: bytes, at: int | None = None) -> list[tuple[int, int]]:
    """Returns offsets and sizes of a TIFF's first page's JPEG strips or tiles, or those of one at an offset; if any."""
    found = tiff_values(data, COMPRESSION, *PARTS, at=at)
    if not np.isin(found.pop(COMPRESSION, 0), JPEGS).any():
        return []
    parts = {PARTS[tag]: numbers.tolist() for tag, numbers in found.items() if numbers.itemsize > 1}
    return list(zip(parts.get(0, ()), parts.get(1, ()), strict=False))


def check_exif(data: bytes | memoryview, pages: Sequence[int | None] = (None,)) -> None:
    """Counts what Pillow reads of EXIF, or of a TIFF's pages, by default the first. Raises: ImageError: `too_slow`."""
    data, heads = memoryview(data), 0
    while data[:6] == EXIF:
        data, heads = data[6:], heads + 1
        bounds.EXIF_HEADS.check(heads)
    order, big = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]), ""), bytes(data[2:3]) == b"+"
    places: list[int | None] = [*pages] if order else []
    inline, offset, tags, numbers, held = 8 if big else 4, order + ("Q" if big else "I"), 0, 0, 0
    for start in places:
        with suppress(OverflowError, struct.error):  # damaged: Pillow stops there, too
            for tag, kind, values, field in _directory(data, order, big, start)[0]:
                tags, size = tags + 1, values * SIZES.get(kind, 0)
                if size > inline and size + struct.unpack(offset, field)[0] > len(data):
                    break
                held += size
                numbers += 1 if kind in BYTES else values if size else 0
                if tag in INNER and values == 1 and kind not in BYTES and TYPES.get(kind, "-") in "BHIbhiQ":
                    inner = struct.unpack_from(order + TYPES[kind], field)[0]
                    places += [inner] if inner not in places else []
        bounds.EXIF_TAGS.check(tags // len(pages))
        bounds.EXIF_SHARED.check(held - len(data))
        bounds.EXIF_NUMBERS.check(numbers)


def largest_size(data: bytes) -> tuple[int, int] | None:
    """Returns the size of the largest image in an ISO base media file. Raises: ImageError: `too_slow`.

    Tiles, thumbnails, alpha channels and frames are images too, each with an item's `ispe` or a track's `tkhd`.
    """
    sizes, extents, held = list[tuple[int, int]](), 0, 0
    for box in leaf_boxes(data):
        name, start, end = box
        if end - start >= VERSION_BYTES + 8 and name == b"ispe":
            sizes.append(struct.unpack_from(">II", data, start + VERSION_BYTES))
        elif end - start >= VERSION_BYTES + 8 and name == b"tkhd":
            width, height = struct.unpack_from(">II", data, end - 8)  # 16 bits before the point, 16 behind
            sizes.append((width >> 16, height >> 16))
        elif end - start >= VERSION_BYTES + 4 and name == b"iloc":
            for length in _extents(data, box):
                extents, held = extents + 1, held + min(length, len(data))
                bounds.ISO_EXTENTS.check(extents)
    bounds.ISO_SHARED.check(held - len(data))
    return max(sizes, key=lambda size: size[0] * size[1], default=None)


def _extents(data: bytes, box: Box) -> Iterator[int]:
    """Yields the extent lengths of each item in an `iloc` box, and a 0 per item."""
    _, at, end = box
    version, at = data[at], at + VERSION_BYTES

    def number(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : min(at, end)], "big")

    sizes, id_size = number(2), 4 if version == 2 else 2
    offset, length, base, index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    for _ in range(number(id_size)):
        number(id_size + (4 if version else 2) + base)
        yield 0
        for _ in range(number(2)):
            number((index if version else 0) + offset)
            yield number(length)
        if at >= end:
            return


def leaf_boxes(data: bytes) -> Iterator[Box]:
    """Yields boxes of sizes, colours, bits, kinds (`auxC`) and places (`iloc`). Raises: ImageError: `too_slow`."""
    number = count(1)

    def leaves(name: bytes, start: int, end: int) -> Iterator[Box]:
        for box in _boxes(data, start + (VERSION_BYTES if name == b"meta" else 0), end, number):
            if box[0] in INSIDE[name]:
                yield from leaves(*box) if box[0] in INSIDE else [box]

    return leaves(b"", 0, len(data))


def _boxes(data: bytes, start: int, end: int, number: Iterator[int]) -> Iterator[Box]:
    """Yields successive boxes up to a truncated one; `number` counts the file's boxes."""
    while start + 8 <= end:
        bounds.ISO_BOXES.check(next(number))
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


METADATA = frozenset(range(APP0, 0xF0)) | {0xFE}  # markers of application segments and comments
KEPT_CHUNKS = frozenset(b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB sBIT bKGD pHYs acTL fcTL fdAT".split())
KEPT_WEBP = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"))
WEBP_FLAGS = 0x20 | 0x08 | 0x04  # VP8X's bits for a profile, EXIF and XMP


def without_metadata(data: bytes) -> bytes:
    """Returns a JPEG, PNG or WebP without metadata and trailing bytes, with the same pixels; others unchanged."""
    if data.startswith(JPEG):
        return JPEG[:2] + b"".join(_jpeg_pieces(data))
    if data.startswith(PNG):
        return PNG + b"".join(data[at - 8 : end + 4] for kind, at, end in png_chunks(data) if kind in KEPT_CHUNKS)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        body, last = b"WEBP", 8 + int.from_bytes(data[4:8], "little")
        chunks = [(kind, data[at - 8 : end + (end - at) % 2]) for kind, at, end in webp_chunks(data) if at < last + 8]
        for kind, chunk in chunks:
            if kind == b"VP8X":
                chunk = chunk[:8] + bytes(flags & ~WEBP_FLAGS for flags in chunk[8:9]) + chunk[9:]
            body += chunk if kind in KEPT_WEBP else b""
        return b"RIFF" + struct.pack("<I", len(body)) + body
    return data


def _jpeg_pieces(data: bytes) -> Iterator[bytes]:
    """Yields the bytes to keep, up to a truncated metadata segment; after far too many segments, the rest."""
    scan: int | None = None  # the end of a scan's head; its data reach to the next marker
    for number, (marker, start, end) in enumerate(jpeg_walk(data)):
        yield b"" if scan is None else data[scan:start]
        if number == 2 * bounds.JPEG_SEGMENTS.most:
            yield data[start:]
            return
        if marker in METADATA and end > len(data):
            yield b"\xff" + bytes([END])
            return
        scan, segment = end if marker == SCAN else None, data[start:end]
        if marker == APP0 and segment[4:9] == b"JFIF\0" and len(segment) >= 18:
            yield segment[:2] + b"\0\x10" + segment[4:16] + b"\0\0"  # without a thumbnail
        elif marker == 0xEE and segment[4:9] == b"Adobe" and len(segment) >= 16:
            yield segment[:2] + b"\0\x0e" + segment[4:16]
        elif marker not in METADATA:
            yield segment
    yield b"" if scan is None else data[scan:]
