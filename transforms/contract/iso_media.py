"""Boxes of an ISO base media file, AVIF or HEIF (ISO/IEC 14496-12, 23008-12): sizes, colour spaces, and parts counted.

>>> largest_size(b"no box")
"""

import struct
from collections.abc import Iterator
from itertools import count

from recordmill.transforms.contract.bounds import ISO_BOXES, ISO_EXIF, ISO_EXTENTS, ISO_SHARED
from recordmill.transforms.contract.exif import STARTS, check_exif

Box = tuple[bytes, int, int]
"""A box's name, and the offsets where what it holds begins and ends."""
INSIDE = {
    b"": (b"meta", b"moov"),
    b"meta": (b"iprp", b"iloc"),
    b"iprp": (b"ipco",),
    b"ipco": (b"ispe", b"colr", b"av1C", b"hvcC", b"auxC"),
    b"moov": (b"trak", b"meta"),
    b"trak": (b"tkhd", b"meta"),
}
"""The boxes to look into, by the box around them; an empty name is the file."""
VERSION_BYTES = 4  # a version and flags, before what `meta` and `ispe` hold


def largest_size(data: bytes) -> tuple[int, int] | None:
    """Returns the largest image's size of an ISO base media file, whose boxes hold boxes (ISO/IEC 14496-12, 23008-12).

    It may hold many images: tiles of a grid, thumbnails, an alpha channel, frames. Each has a size, `ispe` among the
    properties of its items or `tkhd` of its track, and a decoder may decode any of them.

    Raises:
        ImageError: `too_slow`, of boxes or of items' bytes without end.
    """
    sizes, extents, held = list[tuple[int, int]](), 0, 0
    for box in leaf_boxes(data):
        if box[2] - box[1] >= VERSION_BYTES + 8 and box[0] in (b"ispe", b"tkhd"):
            sizes.append(_size(data, box))
        elif box[2] - box[1] >= VERSION_BYTES + 4 and box[0] == b"iloc":
            for length in _extents(data, box):
                extents, held = extents + 1, held + min(length, len(data))
                ISO_EXTENTS.check(extents)
    ISO_SHARED.check(held - len(data))
    return max(sizes, key=lambda size: size[0] * size[1], default=None)


def check_blocks(data: bytes) -> None:
    """Counts what looks like EXIF, wherever it is, since boxes name its place in many ways.

    Raises:
        ImageError: `too_slow`.
    """
    view, blocks = memoryview(data), count(1)
    for start in STARTS:
        place = data.find(start)
        while place >= 0:
            ISO_EXIF.check(next(blocks))
            check_exif(view[place:])
            place = data.find(start, place + 1)


def _extents(data: bytes, box: Box) -> Iterator[int]:
    """Yields the lengths of the extents of each item that a box `iloc` lists, and a 0 for the item."""
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
    """Yields an ISO base media file's boxes of sizes (`ispe`, `tkhd`), colours, bits, kinds (`auxC`), places (`iloc`).

    Raises:
        ImageError: `too_slow`, of boxes without end.
    """
    return _leaf_boxes(data, (b"", 0, len(data)), count(1))


def _leaf_boxes(data: bytes, around: Box, number: Iterator[int]) -> Iterator[Box]:
    name, start, end = around
    for box in _boxes(data, start + (VERSION_BYTES if name == b"meta" else 0), end, number):
        if box[0] not in INSIDE[name]:
            continue
        if box[0] in INSIDE:
            yield from _leaf_boxes(data, box, number)
        else:
            yield box


def _boxes(data: bytes, start: int, end: int, number: Iterator[int]) -> Iterator[Box]:
    """Yields the boxes, one after another, up to one that is cut off; `number` counts those of the file."""
    while start + 8 <= end:
        ISO_BOXES.check(next(number))
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
