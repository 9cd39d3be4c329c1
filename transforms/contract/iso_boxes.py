"""The sizes that an ISO base media file states: AVIF and HEIF, whose boxes hold boxes (ISO/IEC 14496-12, 23008-12).

A file may hold many images: tiles of a grid, thumbnails, an alpha channel, the frames of an animation. Each has a size,
`ispe` among the properties of its items or `tkhd` of its track, and a decoder may decode any of them.

>>> size = struct.pack(">I4sIII", 20, b"ispe", 0, 7, 5)
>>> properties = struct.pack(">I4sI4s", 36, b"iprp", 28, b"ipco") + size
>>> largest_size(struct.pack(">I4sI", 48, b"meta", 0) + properties)
(7, 5)
"""

import struct
from collections.abc import Iterator

INSIDE = {
    b"": (b"meta", b"moov"),
    b"meta": (b"iprp",),
    b"iprp": (b"ipco",),
    b"ipco": (b"ispe",),
    b"moov": (b"trak",),
    b"trak": (b"tkhd",),
}
"""The boxes to look into, by the box around them; an empty name is the file."""
VERSION_BYTES = 4  # a version and flags, before what `meta` and `ispe` hold
MAX_BOXES = 10_000  # of a file; a phone's photo has about 100

Box = tuple[bytes, int, int]
"""A box's name, and the offsets where what it holds begins and ends."""


def largest_size(data: bytes) -> tuple[int, int] | None:
    """Returns width and height of the largest image, in pixels; None where no size is stated."""
    budget = iter(range(MAX_BOXES))
    sizes = [_size(data, box) for box in _size_boxes(data, (b"", 0, len(data)), budget)]
    return max(sizes, key=lambda size: size[0] * size[1], default=None)


def _size_boxes(data: bytes, around: Box, budget: Iterator[int]) -> Iterator[Box]:
    """Yields the boxes inside another that state a size."""
    name, start, end = around
    for box in _boxes(data, start + (VERSION_BYTES if name == b"meta" else 0), end, budget):
        if box[0] not in INSIDE[name]:
            continue
        if box[0] in INSIDE:
            yield from _size_boxes(data, box, budget)
        elif box[2] - box[1] >= VERSION_BYTES + 8:
            yield box


def _boxes(data: bytes, start: int, end: int, budget: Iterator[int]) -> Iterator[Box]:
    """Yields the boxes that lie one after another, up to one that is cut off or as long as the budget lasts."""
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
