"""Parts of JPEGs, cut out without decoding the rest; their pixels equal those of the whole, bit by bit.

A JPEG may hold a restart marker every few blocks. Decoding after a marker does not depend on earlier data (ITU-T T.81,
B.2.1 and E.1.4), so segments outside a part can be dropped: with a smaller height and width in the header and
renumbered markers, the rest is a smaller JPEG for any decoder. The build writes such JPEGs
(`pipeline.build.images.transcode`).
"""

import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images.augment.base import Window, overlap

Offsets = npt.NDArray[np.int64]
BASELINE, HUFFMAN, SCAN, QUANTIZATION, INTERVAL = 0xC0, 0xC4, 0xDA, 0xDB, 0xDD
SKIPPED = {HUFFMAN, QUANTIZATION, 0xFE, *range(0xE0, 0xF0)}  # tables, comments, applications' data
FIRST_RESTART = 0xD0  # second byte of the first of eight consecutive markers
END = b"\xd9"  # second byte of the last one
WHOLE_SCAN = b"\x00\x3f\x00"  # a sequential scan: all coefficients, all bits
LONGEST_FRAME = 19  # bytes of the header of three components
BLOCK = 8
WORD = 8  # bytes
MARGIN = 2  # pixels around a part that affect its border's colours, for subsampled chroma
LEAST_WIDTH = 16  # libjpeg upsamples chroma of narrower images differently


class JpegPart(NamedTuple):
    """A JPEG of some segments of an image."""

    data: memoryview
    y: int  # its first row in the image, in pixels
    x: int  # its first column
    height: int  # image's height in pixels
    width: int
    window: Window  # the window that selected the segments


@dataclass(frozen=True)
class JpegLayout:
    """The header of a baseline, single-scan JPEG with restart markers that divide each row of MCUs into segments.

    An MCU is the unit of coding: blocks of all components. Images that a build resized to one size share a header.
    """

    header: bytes  # all bytes before the first segment
    height: int
    width: int
    unit: tuple[int, int]  # height and width in pixels of an MCU
    interval: int  # MCUs between two restart markers
    frame: int  # offset of the frame header

    @cached_property
    def grid(self) -> tuple[int, int]:
        """The lines of segments, and the segments of a line."""
        return -(-self.height // self.unit[0]), -(-self.width // (self.unit[1] * self.interval))

    def part(self, data: bytes | memoryview, window: Window) -> JpegPart | None:
        """Cuts out the segments that a window touches; None if markers do not fit, all are needed, or none."""
        high, step = self.unit[0], self.unit[1] * self.interval
        lines, columns = self.grid
        margin = 0 if self.unit == (BLOCK, BLOCK) else MARGIN
        top, bottom = _touched(window.y, window.height, self.height, margin, high)
        left, right = _touched(window.x, window.width, self.width, margin, step)
        left -= left > 0 and min(right * step, self.width) - left * step < LEAST_WIDTH
        if (bottom - top) * (right - left) in (0, lines * columns):
            return None
        scan = np.frombuffer(data, np.uint8)[len(self.header) :]
        is_marker = np.zeros(-(-len(scan) // WORD) * WORD, np.bool_)
        np.equal(scan[:-1], 0xFF, out=is_marker[: len(scan) - 1])
        is_marker[: len(scan) - 1] &= scan[1:].view(np.bool_)  # other bytes of 255 are followed by 0
        marks = _places(is_marker)
        if len(marks) != lines * columns or scan.take(marks + 1).tobytes() != _markers(lines * columns):
            return None
        bounds = np.empty(lines * columns + 1, np.int64)  # the offset of each segment, and the end
        bounds[0] = len(self.header)
        np.add(marks, len(self.header) + 2, out=bounds[1:])
        starts = bounds[:-1].reshape(lines, columns)[top:bottom, left]
        joined = _joined(self.header, data, starts, bounds[1:].reshape(lines, columns)[top:bottom, left:right])
        height, width = min(bottom * high, self.height) - top * high, min(right * step, self.width) - left * step
        struct.pack_into(">HH", joined, self.frame + 5, height, width)
        return JpegPart(memoryview(joined), top * high, left * step, self.height, self.width, window)


def _places(mask: npt.NDArray[np.bool_]) -> Offsets:
    """Returns the indices of rare True values, a multiple of 8 long, in a third of the time of `np.flatnonzero`."""
    words = mask.view(np.uint64)
    some = words.astype(np.bool_).nonzero()[0]
    inner = words.take(some).view(np.bool_).nonzero()[0]
    return some.take(inner >> 3) * 8 + (inner & 7)


def _joined(header: bytes, data: bytes | memoryview, starts: Offsets, ends: Offsets) -> bytearray:
    """Joins lines of segments behind a header, by lines' starts and segments' ends, and renumbers their end markers."""
    stops = ends[:, -1]
    sizes = stops - starts
    shifts = sizes.cumsum()
    shifts -= sizes + starts - (len(header) - 1)
    lines = zip(starts.tolist(), stops.tolist(), strict=True)
    joined = bytearray().join([header, *[data[start:stop] for start, stop in lines]])
    numbered = np.frombuffer(joined, np.uint8)
    numbered[ends + shifts[:, np.newaxis]] = np.frombuffer(_markers(ends.size), np.uint8).reshape(ends.shape)
    return joined


@lru_cache(maxsize=256)
def _markers(count: int) -> bytes:
    """Returns the second bytes of the end markers of so many segments."""
    return bytes(FIRST_RESTART + number % 8 for number in range(count - 1)) + END


def _touched(start: int, length: int, side: int, margin: int, step: int) -> tuple[int, int]:
    """Returns the first and end step of a side that a line of pixels touches; (0, 0) for none."""
    first, end, _ = overlap(start, length, side)
    return (max(first - margin, 0) // step, -(-min(end + margin, side) // step)) if first < end else (0, 0)


def read_layout(data: bytes | memoryview, latest: JpegLayout | None = None) -> JpegLayout | None:
    """Reads a JPEG's header, or returns an equal `latest`; None without usable restart markers."""
    if latest is not None and bytes(data[: len(latest.header)]) == latest.header:
        return latest
    found = _single_scan(data)
    if found is None or not found.interval or -(-found.width // found.unit[1]) % found.interval:
        return None
    return found


def is_one_run(data: bytes | memoryview) -> bool:
    """Whether a JPEG is baseline, with a single scan without restart markers: where it ends, all the rest is grey."""
    found = _single_scan(data)
    return found is not None and not found.interval


def _single_scan(data: bytes | memoryview) -> JpegLayout | None:
    """Reads the header of a baseline, single-scan JPEG, with an interval of 0 if it has no markers; None for others."""
    offset, most = 2, len(data) - 4
    frame, unit, interval = None, None, 0
    while offset < most and data[offset] == 0xFF:
        marker, length = data[offset + 1], int.from_bytes(data[offset + 2 : offset + 4], "big")
        if marker == SCAN:
            break
        if marker == BASELINE and frame is None and offset + LONGEST_FRAME < most:
            frame, unit = offset, _unit(data, offset)
        elif marker == INTERVAL and length == 4:
            interval = int.from_bytes(data[offset + 4 : offset + 6], "big")
        elif marker not in SKIPPED:
            return None
        offset += 2 + length
    else:
        return None
    if frame is None or unit is None:
        return None
    height, width, components = struct.unpack_from(">HHB", data, frame + 5)
    scan = offset + 2 + length
    is_whole = length == 6 + 2 * components and data[offset + 4] == components and data[scan - 3 : scan] == WHOLE_SCAN
    if not is_whole or not height or not width:
        return None
    return JpegLayout(bytes(data[:scan]), height, width, unit, interval, frame)


def _unit(data: bytes | memoryview, offset: int) -> tuple[int, int] | None:
    """Returns the height and width in pixels of a frame header's MCU; None for a rare one."""
    bits, components = data[offset + 4], data[offset + 9]
    if bits != 8 or components not in (1, 3) or data[offset + 3] != 8 + 3 * components or data[offset + 2]:
        return None
    if components == 1:  # the scan has single blocks, whatever the factors
        return BLOCK, BLOCK
    factors = [data[offset + 11 + 3 * component] for component in range(3)]
    wide, high = factors[0] >> 4, factors[0] & 15
    return (BLOCK * high, BLOCK * wide) if wide in (1, 2) and high in (1, 2) and factors[1:] == [0x11] * 2 else None
