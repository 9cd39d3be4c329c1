"""Colour profiles made from nothing (ICC.1): of displays, of grey, and of a press by a table."""

import io
import struct
from itertools import product

import numpy as np
from PIL import Image as Picture
from PIL import ImageCms

from recordmill.transforms.images.color_profile import PRIMARIES, SRGB_CURVE, made_profile

P3, ADOBE, PROPHOTO = (
    made_profile(PRIMARIES[name], (gamma, 1.0, 0.0, 0.0, 0.0) if gamma else SRGB_CURVE)
    for name, gamma in (("Display P3", 0.0), ("Adobe RGB", 563 / 256), ("ProPhoto RGB", 1.8))
)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
"""LittleCMS's own."""
D50 = (0.9642, 1.0, 0.8249)
SRGB_COLUMNS = ((0.43607, 0.22249, 0.01392), (0.38515, 0.71687, 0.09708), (0.14307, 0.06061, 0.7141))
"""Those of sRGB IEC61966-2.1, as most cameras write it."""


def profile(space: bytes, connection: bytes, tags: dict[bytes, bytes], kind: bytes = b"mntr") -> bytes:
    """A profile of version 2.4."""
    index, body = b"", b""
    for name, data in tags.items():
        index += struct.pack(">4sII", name, 132 + 12 * len(tags) + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    rest = struct.pack(">I", len(tags)) + index + body
    head = struct.pack(">I4xI4s4s4s12x4s", 128 + len(rest), 0x0240_0000, kind, space, connection, b"acsp")
    return head + bytes(28) + fixed(*D50) + bytes(48) + rest


def fixed(*numbers: float) -> bytes:
    return struct.pack(f">{len(numbers)}i", *(round(65_536 * number) for number in numbers))


def xyz(*numbers: float) -> bytes:
    return b"XYZ \0\0\0\0" + fixed(*numbers)


def curve(*points: int) -> bytes:
    """A curve of points of 16 bits; of one, an exponent in 256ths."""
    return b"curv\0\0\0\0" + struct.pack(f">I{len(points)}H", len(points), *points)


def display(curves: bytes, columns: tuple[tuple[float, ...], ...] = SRGB_COLUMNS, **more: bytes) -> bytes:
    """A display's profile of version 2: one curve, and the primaries in XYZ under D50."""
    tags = {b"wtpt": xyz(0.9505, 1.0, 1.0891)}
    tags |= {name + b"XYZ": xyz(*column) for name, column in zip((b"r", b"g", b"b"), columns, strict=True)}
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curves)
    return profile(b"RGB ", b"XYZ ", tags | {name.encode(): data for name, data in more.items()})


def srgb_points(count: int) -> list[int]:
    """sRGB's curve by some points, as HP's profile has it by 1,024."""
    x = np.linspace(0, 1, count)
    light = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return np.rint(65_535 * light).astype(int).tolist()


def grey(gamma: float) -> bytes:
    return profile(b"GRAY", b"XYZ ", {b"wtpt": xyz(*D50), b"kTRC": curve(round(256 * gamma))})


def press() -> bytes:
    """The profile of a press of four inks by a table (mft1) of their darkest and lightest: each ink takes its light."""
    nodes = b""
    for cyan, magenta, yellow, black in product((0, 1), repeat=4):
        lightness = 100 * (1 - 0.9 * black) * (1 - 0.3 * cyan) * (1 - 0.4 * magenta) * (1 - 0.1 * yellow)
        a, b = (1 - black) * (70 * magenta - 35 * cyan), (1 - black) * (80 * yellow - 45 * cyan)
        nodes += bytes([round(2.55 * lightness), round(128 + a), round(128 + b)])
    head = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    table = head + bytes(range(256)) * 4 + nodes + bytes(range(256)) * 3
    return profile(b"CMYK", b"Lab ", {b"wtpt": xyz(*D50), b"A2B0": table}, b"prtr")


def in_srgb(picture: Picture.Image, profile: bytes) -> np.ndarray:
    """Returns the picture's pixels by LittleCMS."""
    flags, intent = ImageCms.Flags.BLACKPOINTCOMPENSATION, ImageCms.Intent.RELATIVE_COLORIMETRIC
    source, goal = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
    return np.asarray(ImageCms.profileToProfile(picture, source, goal, intent, "RGB", flags=flags))
