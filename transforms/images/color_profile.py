"""The colour profile of an image: read from the file without decoding, and recognised by its values.

Pixels are sRGB unless the file has a profile (ICC.1, or code points of H.273) that says otherwise. A profile counts as
sRGB, whatever its name, if it moves no colour by more than `TOLERANCE` levels. Others are applied before the graph
(`transforms.images.color`); this module only looks at numbers.

>>> profile_name(made_profile(PRIMARIES["Display P3"], SRGB_CURVE))
'Display P3'
"""

import re
import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.base.bounds import ImageError
from recordmill.transforms.images.image_parts import APP2, jpeg_segments, leaf_boxes, png_chunks, tiff_values

Array = npt.NDArray[np.float64]

MOST_BYTES = 16 << 20  # 16 MiB, the most that 255 JPEG segments hold; press profiles have about 2 MiB
MOST_INFLATED = 1 << 20  # 1 MiB, Pillow's limit for a profile inside a PNG
MOST_TAGS = 256
SMALL = 64 << 10  # 64 KiB: larger profiles are tables, never sRGB's primaries and curve
TOLERANCE = 2.0  # of 255 levels; sRGB's variants differ by 0.5, a curve of 2.2 by 7
ICC_MARK = b"ICC_PROFILE\0"
TIFF_TAG = 34_675
NAMES = {b"RGB ": "RGB", b"GRAY": "grey", b"CMYK": "CMYK"}  # the supported colour spaces
BROKEN = b"broken"  # stands for an unreadable profile

D65, D50 = (0.3127, 0.3290), (0.9642, 1.0, 0.8249)  # the white of displays, as chromaticity, and of profiles, in XYZ
Primaries = tuple[tuple[float, float], ...]  # chromaticities x, y of white, red, green and blue
PRIMARIES: Mapping[str, Primaries] = {
    "sRGB": (D65, (0.64, 0.33), (0.30, 0.60), (0.15, 0.06)),
    "Display P3": (D65, (0.68, 0.32), (0.265, 0.69), (0.15, 0.06)),
    "Adobe RGB": (D65, (0.64, 0.33), (0.21, 0.71), (0.15, 0.06)),
    "ProPhoto RGB": ((0.3457, 0.3585), (0.7347, 0.2653), (0.1596, 0.8404), (0.0366, 0.0001)),
    "Rec. 2020": (D65, (0.708, 0.292), (0.170, 0.797), (0.131, 0.046)),
}
CODED_PRIMARIES = {1: "sRGB", 9: "Rec. 2020", 12: "Display P3"}
Curve = tuple[float, ...]  # numbers g, a, b, c and d of ICC's parametric curve 3: (ax + b) ** g from d on, cx below
SRGB_CURVE: Curve = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
CODED_CURVES = {4: (2.2, 1.0, 0.0, 0.0, 0.0), 8: (1.0, 1.0, 0.0, 0.0, 0.0), 13: SRGB_CURVE}
"""The supported transfer functions of H.273: neither video nor HDR."""
BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
LEVELS = np.arange(0, 256, 15)
SAME = 0.01  # greatest difference between the matrices of equal primaries


def foreign_profile(data: bytes, form: str) -> bytes:
    """Returns the ICC profile of an image in other colours than sRGB; empty for any other image.

    The header must be checked. Raises: ImageError: `too_large`, above any size in use; no other, whatever the bytes.
    """
    profile = _profile_in(data, form)
    if len(profile) > MOST_BYTES:
        raise _too_large(form, MOST_BYTES)
    return profile if profile and profile_name(profile) != "sRGB" else b""


def _too_large(form: str, most: int) -> ImageError:
    return ImageError("too_large", f"the {form}'s colour profile has more than {most >> 20} MiB")


def _profile_in(data: bytes, form: str) -> bytes:
    """Returns a file's profile, empty without one; of an AVIF or HEIF the first one, else its first code points."""
    if form == "JPEG":  # numbered pieces; a missing piece makes a broken profile
        pieces = dict[int, bytes]()
        for marker, offset, end in jpeg_segments(data):
            if marker == APP2 and data[offset + 4 : offset + 16] == ICC_MARK and len(data) > offset + 18:
                pieces.setdefault(data[offset + 16], data[offset + 18 : end])
        return b"".join(pieces[number] for number in sorted(pieces)) or (BROKEN if pieces else b"")
    if form == "PNG":
        return _of_png(data)
    if form == "WebP":
        has_profile = data[12:16] == b"VP8X" and data[20] & 0x20 and data[30:34] == b"ICCP"
        return (data[38 : 38 + int.from_bytes(data[34:38], "little")] or BROKEN) if has_profile else b""
    if form == "TIFF":
        found = tiff_values(data, TIFF_TAG)
        return found[TIFF_TAG].tobytes() or BROKEN if found else b""
    if form not in ("AVIF", "HEIF"):
        return b""
    colours = [data[start:end] for name, start, end in leaf_boxes(data) if name == b"colr"]
    profiles = (colour[4:] or BROKEN for colour in colours if colour[:4] in (b"prof", b"rICC"))
    codes = (_of_code_points(colour[5], colour[7]) for colour in colours if colour[:4] == b"nclx" and len(colour) > 7)
    return next(profiles, b"") or next(codes, b"")


def _of_png(data: bytes) -> bytes:
    chunks = takewhile(lambda chunk: chunk[0] != b"IDAT", png_chunks(data))
    found = next((data[start:end] for kind, start, end in chunks if kind == b"iCCP"), None)
    if found is None:
        return b""
    try:
        profile = zlib.decompressobj().decompress(found.partition(b"\0")[2][1:], MOST_INFLATED + 1)
    except zlib.error:
        return BROKEN
    if len(profile) > MOST_INFLATED:
        raise _too_large("PNG", MOST_INFLATED)
    return profile or BROKEN


@lru_cache(maxsize=64)
def _of_code_points(primaries: int = 0, transfer: int = 0) -> bytes:
    if primaries not in CODED_PRIMARIES or transfer not in CODED_CURVES:
        return b""
    return made_profile(PRIMARIES[CODED_PRIMARIES[primaries]], CODED_CURVES[transfer])


def profile_name(profile: bytes) -> str:
    """Names a profile by its values: `sRGB`, another of `PRIMARIES`, `RGB`, `grey`, `CMYK`, or `broken`."""
    space = NAMES.get(profile[16:20]) if profile[36:40] == b"acsp" else None
    if space is None:
        return "broken"
    return _recognised(profile) or space if len(profile) <= SMALL else space


@lru_cache(maxsize=64)
@np.errstate(all="ignore")  # hostile numbers overflow
def _recognised(profile: bytes) -> str | None:
    """Names the primaries of a profile without tables; None if unknown, or if sRGB's have another curve."""
    count = min(MOST_TAGS, int.from_bytes(profile[128:132], "big"), (len(profile) - 132) // 12)
    entries = (struct.unpack_from(">4sII", profile, 132 + 12 * number) for number in range(count))
    tags = {name: profile[offset : offset + size] for name, offset, size in entries}
    if profile[20:24] != b"XYZ " or any(re.match(rb"[AD]2B\d", tag) for tag in tags):
        return None
    try:
        if b"kTRC" in tags:
            return "sRGB" if _moved(_linear(tags[b"kTRC"]), LEVELS) <= TOLERANCE else None
        matrix = np.stack([_fixed(tags[name], 3) for name in (b"rXYZ", b"gXYZ", b"bXYZ")], 1)
        name = next((each for each in PRIMARIES if np.abs(_matrix(PRIMARIES[each]) - matrix).max() < SAME), None)
        if name != "sRGB":
            return name
        curves = [_linear(tags[name]) for name in (b"rTRC", b"gTRC", b"bTRC")]
    except (KeyError, ValueError, struct.error):
        return None
    light, levels = (np.stack(np.meshgrid(*axes, indexing="ij"), -1) for axes in (curves, [LEVELS] * 3))
    linear = light @ np.linalg.solve(_matrix(PRIMARIES["sRGB"]), matrix).T
    return "sRGB" if _moved(linear, levels) <= TOLERANCE else None


def _fixed(tag: bytes, count: int, offset: int = 8) -> Array:
    """Reads 16.16 fixed-point numbers. Raises: struct.error: the tag is cut off."""
    return np.array(struct.unpack_from(f">{count}i", tag, offset)) / 65_536


def _linear(tag: bytes) -> Array:
    """Returns a curve's light at `LEVELS`. Raises: ValueError, struct.error: an unsupported curve."""
    x, kind = LEVELS / 255, tag[:4] + tag[8:10]
    if kind in (b"para\0\3", b"para\0\4"):
        g, a, b, c, d, e, f = _fixed(tag, 7 if kind[-1] == 4 else 5, 12).tolist() + [0.0] * (4 - kind[-1]) * 2
        return np.asarray(np.where(x >= d, np.maximum(a * x + b, 0) ** g + e, c * x + f))
    if tag[:4] != b"curv":
        raise ValueError(kind)
    (count,) = struct.unpack_from(">I", tag, 8)
    points = np.frombuffer(tag, np.dtype(">u2"), count, 12)
    if len(points) < 2:
        return x ** (points[0] / 256) if len(points) else x
    return np.interp(x, np.linspace(0, 1, len(points)), points / 65_535)


def _moved(linear: Array, levels: npt.NDArray[np.int64]) -> float:
    """Returns the greatest distance between levels and sRGB's levels for some light."""
    light = linear.clip(0, 1)
    encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return float(np.abs(255 * encoded - levels).max())


@lru_cache(maxsize=64)
def _matrix(primaries: Primaries) -> Array:
    """Returns linear RGB to XYZ under D50, adapted by Bradford's method: float64 [3, 3]."""
    x, y = np.array(primaries).T
    white, *colours = np.stack([x, y, 1 - x - y], 1) / y[:, None]
    columns = np.array(colours).T
    cone = BRADFORD @ white
    adapted = np.linalg.solve(BRADFORD, (BRADFORD @ D50 / cone)[:, None] * BRADFORD)
    matrix: Array = adapted @ (columns * np.linalg.solve(columns, white))
    return matrix


def made_profile(primaries: Primaries, curve: Curve) -> bytes:
    """Makes a display profile (ICC.1) from primaries and a curve. Raises: struct.error, ArithmeticError, ValueError."""

    def fixed(numbers: Any) -> bytes:
        return struct.pack(f">{len(numbers)}i", *(round(65_536 * float(number)) for number in numbers))

    with np.errstate(all="raise"):
        columns = _matrix(primaries).T
    xyz = [b"XYZ \0\0\0\0" + fixed(column) for column in (D50, *columns)]
    tags = dict(zip((b"wtpt", b"rXYZ", b"gXYZ", b"bXYZ"), xyz, strict=True))
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), b"para\0\0\0\0\0\3\0\0" + fixed(curve))
    index, body = b"", b""
    for name, data in tags.items():
        index += struct.pack(">4sII", name, 132 + 12 * len(tags) + len(body), len(data))
        body += data
    rest = struct.pack(">I", len(tags)) + index + body
    head = struct.pack(">I4xI4s4s4s12x4s", 128 + len(rest), 0x0420_0000, b"mntr", b"RGB ", b"XYZ ", b"acsp")
    return head + bytes(28) + fixed(D50) + bytes(48) + rest
