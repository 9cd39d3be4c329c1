"""Removes an image file's metadata: place, time, device, previews and colour profile.

A file stored unchanged (`store: original`, or a JPEG that already fits) would carry a phone's position into a dataset.
The bytes that decode to pixels stay, so every decoder gives the same pixels.

>>> without_metadata(b"neither JPEG nor PNG nor WebP")
b'neither JPEG nor PNG nor WebP'
"""

import struct
from collections.abc import Iterator
from itertools import count

from recordmill.transforms.contract.bounds import JPEG_SEGMENTS
from recordmill.transforms.contract.image_header import AFTER_SCAN, END, MARKER, PNG, SCAN, png_chunks, segment_end

METADATA = frozenset(range(0xE0, 0xF0)) | {0xFE}  # markers of application segments and comments
KEPT_CHUNKS = frozenset(b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB sBIT bKGD pHYs acTL fcTL fdAT".split())
KEPT_WEBP = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"))
WEBP_FLAGS = 0x20 | 0x08 | 0x04  # VP8X's bits for a profile, EXIF and XMP


def without_metadata(data: bytes) -> bytes:
    """Returns a JPEG, PNG or WebP without metadata and trailing bytes; any other file unchanged."""
    if data.startswith(b"\xff\xd8\xff"):
        return b"\xff\xd8" + b"".join(_jpeg_pieces(data))
    if data.startswith(PNG):
        return PNG + b"".join(data[at - 8 : end + 4] for kind, at, end in png_chunks(data) if kind in KEPT_CHUNKS)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        body = b"WEBP" + b"".join(_webp_chunks(data))
        return b"RIFF" + struct.pack("<I", len(body)) + body
    return data


def _jpeg_pieces(data: bytes) -> Iterator[bytes]:
    """Yields the bytes to keep. A truncated metadata segment ends the file, as it does for a decoder.

    After more segments than any real file has, the rest is kept unchanged.
    """
    match, segments = MARKER.search(data, 2), count()
    while match is not None:
        start, marker = match.start(), data[match.start() + 1]
        if next(segments) == 2 * JPEG_SEGMENTS.most:
            yield data[start:]
            return
        if marker == END:
            yield data[start : start + 2]
            return
        end = segment_end(data, start)
        if marker in METADATA and end > len(data):
            yield b"\xff" + bytes([END])
            return
        yield _colours(data[start:end]) if marker in METADATA else data[start:end]
        if marker == SCAN:
            match = AFTER_SCAN.search(data, end)
            yield data[end : match.start() if match else len(data)]
        else:
            match = MARKER.search(data, end)


def _colours(segment: bytes) -> bytes:
    """Returns a segment's facts about colour components; removes JFIF's thumbnail."""
    if segment[1] == 0xE0 and segment[4:9] == b"JFIF\0" and len(segment) >= 18:
        return segment[:2] + b"\0\x10" + segment[4:16] + b"\0\0"
    if segment[1] == 0xEE and segment[4:9] == b"Adobe" and len(segment) >= 16:
        return segment[:2] + b"\0\x0e" + segment[4:16]
    return b""


def _webp_chunks(data: bytes) -> Iterator[bytes]:
    offset, last = 12, 8 + int.from_bytes(data[4:8], "little")
    while offset < min(last, len(data)):
        kind, size = data[offset : offset + 4], int.from_bytes(data[offset + 4 : offset + 8], "little")
        end = offset + 8 + size + size % 2
        if kind == b"VP8X" and offset + 8 < len(data):
            flags = data[offset + 8] & ~WEBP_FLAGS
            yield data[offset : offset + 8] + bytes([flags]) + data[offset + 9 : end]
        elif kind in KEPT_WEBP:
            yield data[offset:end]
        offset = end
