"""Directories of tags, of TIFF and of EXIF, which is one: their values, and the count of what Pillow reads of them.

>>> tiff_values(bytes.fromhex("49492a00 08000000 0100 0001 0300 01000000 07000000"), 256)[256].tolist()
[7]
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from recordmill.transforms.contract.bounds import EXIF_HEADS, EXIF_NUMBERS, EXIF_SHARED, EXIF_TAGS

TIFFS = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
"""The byte order of a TIFF and whether it is a BigTIFF, by its first four bytes."""
EXIF = b"Exif\0\0"
STARTS = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", EXIF * (EXIF_HEADS.most + 1))
"""The first bytes of blocks that Pillow takes for EXIF, and of one that it strips of its heads one by one."""
INNER = (34_665, 34_853, 40_965)  # tags that lead to directories: EXIF, GPS, interoperability
COMPRESSION, JPEGS = 259, (6, 7)  # a TIFF's tag of its compression, and the codes of JPEG
PARTS = {273: 0, 324: 0, 279: 1, 325: 1}  # tags of strips and tiles: 0 their offsets, 1 their bytes
RAW = "Raw profile type exif"  # the keyword of a PNG's text of EXIF in hexadecimal digits; the graph does not read it
BYTES = (1, 2, 7)  # types that Pillow leaves together
TYPES = dict(enumerate("- B B H I 2I b B h i 2i f d I - - Q".split()))
SIZES = {kind: struct.calcsize(f"={code}") for kind, code in TYPES.items() if code != "-"}


def tiff_values(data: bytes, *tags: int, is_second: bool = False) -> dict[int, Any]:
    """Maps tags of a TIFF's first directory, or its second, to arrays of their numbers or bytes, as far as they go."""
    order, big = TIFFS[data[:4]]
    found, word = dict[int, Any](), order + ("Q" if big else "I")
    with suppress(OverflowError, struct.error):
        entries, end = _directory(data, order, big, None)
        if is_second:
            entries, end = _directory(data, order, big, struct.unpack_from(word, data, end)[0] or len(data))
        for tag, kind, values, field in entries if end else ():
            if tag in tags and TYPES.get(kind, "-") in "BHIQ":
                size = SIZES[kind]
                is_far = size * values > len(field)
                place = struct.unpack(word, field)[0] if is_far else 0
                held = memoryview(data if is_far else field)[place : place + size * values]
                found[tag] = np.frombuffer(held[: len(held) // size * size], order + TYPES[kind])
    return found


def tiff_numbers(data: bytes, *tags: int, is_second: bool = False) -> list[int]:
    """Returns the greatest number of each of the tags that `tiff_values` reads; 0 of one that is not there."""
    found = tiff_values(data, *tags, is_second=is_second)
    return [int(found[tag].max(initial=0)) if tag in found else 0 for tag in tags]


def _directory(
    data: bytes | memoryview, order: str, big: bool, start: int | None
) -> tuple[Iterator[tuple[int, int, int, bytes]], int]:
    """Returns a directory's tags, the first one's by default, and the offset behind them; 0 where some are cut off.

    A tag has its type, its number of values, and the field of its value or of the offset of its bytes. Raises:
    OverflowError, struct.error: the directory is not there.
    """
    pointer, head, entry, size = (8, "Q", "HHQ8s", 20) if big else (4, "H", "HHI4s", 12)
    if start is None:
        (start,) = struct.unpack_from(order + entry[2], data, pointer)
    wanted = min(*struct.unpack_from(order + head, data, start), EXIF_TAGS.most + 1)
    start += struct.calcsize("=" + head)
    whole = min(wanted, max(0, len(data) - start) // size)
    end = start + size * whole
    return struct.iter_unpack(order + entry, data[start:end]), end if whole == wanted else 0


def jpeg_parts(data: bytes) -> list[tuple[int, int]]:
    """Returns the offsets and bytes of the strips or tiles of a TIFF's first image, if they are JPEGs; of others none.

    A damaged one has none: no decoder reads it.
    """
    found = tiff_values(data, COMPRESSION, *PARTS)
    if not np.isin(found.pop(COMPRESSION, 0), JPEGS).any():
        return []
    parts = {PARTS[tag]: numbers.tolist() for tag, numbers in found.items() if numbers.itemsize > 1}
    return list(zip(parts.get(0, ()), parts.get(1, ()), strict=False))


def check_exif(data: bytes | memoryview) -> None:
    """Counts what Pillow reads of EXIF or a TIFF. Raises: ImageError: `too_slow`; nothing else, whatever the bytes."""
    data, heads = memoryview(data), 0
    while data[:6] == EXIF:
        data, heads = data[6:], heads + 1
        EXIF_HEADS.check(heads)
    order, big = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]), ""), bytes(data[2:3]) == b"+"
    places: list[int | None] = [None] if order else []
    inline, offset, tags, numbers, held = 8 if big else 4, order + ("Q" if big else "I"), 0, 0, 0
    for start in places:
        with suppress(OverflowError, struct.error):  # a damaged directory: Pillow stops there, too
            for tag, kind, values, field in _directory(data, order, big, start)[0]:
                tags, size = tags + 1, values * SIZES.get(kind, 0)
                if size > inline and size + struct.unpack(offset, field)[0] > len(data):
                    break
                held += size
                if kind not in BYTES:
                    numbers += values if size else 0
                    if tag in INNER and values == 1 and TYPES.get(kind, "-") in "BHIbhiQ":
                        inner = struct.unpack_from(order + TYPES[kind], field)[0]
                        places += [inner] if inner not in places else []
        EXIF_TAGS.check(tags)
        EXIF_SHARED.check(held - len(data))
        EXIF_NUMBERS.check(numbers)
