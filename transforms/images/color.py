"""Converts pixels to sRGB by an image's colour profile: LittleCMS through Pillow, with the result of browsers.

The intent is relative colorimetric with black point compensation. Unreadable profiles, and profiles for other colours
than the image's, are ignored.
"""

import io
from collections.abc import Callable
from functools import lru_cache, partial

from PIL import Image, ImageCms

MODES = {b"RGB ": "RGB", b"GRAY": "L", b"CMYK": "CMYK"}  # Pillow's modes by a profile's colour space
GREY = ("1", "L", "LA", "La", "I;16", "I;16B")
FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION


def to_srgb(profile: bytes, mode: str) -> Callable[[Image.Image], Image.Image] | None:
    """Returns a function that applies a profile to pixels of Pillow's `mode`; None if it cannot be applied.

    It takes grey, RGB, RGBA or CMYK of 8 bits, and returns RGB, or grey for a grey profile, keeping alpha.
    """
    space, own = MODES.get(profile[16:20]), "CMYK" if mode == "CMYK" else "L" if mode in GREY else "RGB"
    transform = _transform(profile, space) if space == own or (space, own) == ("RGB", "L") else None
    return partial(_apply, transform, space) if transform and space else None


@lru_cache(maxsize=8)  # each holds its profile, 16 MiB at most
def _transform(profile: bytes, space: str) -> ImageCms.ImageCmsTransform | None:
    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        srgb = ImageCms.createProfile("sRGB")
        return ImageCms.buildTransform(opened, srgb, space, "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC, FLAGS)
    except (OSError, ValueError, TypeError, ImageCms.PyCMSError):
        return None


def _apply(transform: ImageCms.ImageCmsTransform, space: str, image: Image.Image) -> Image.Image:
    colours = transform.apply(image if image.mode == space else image.convert(space))
    if space == "L":
        colours = colours.convert("L")
    if image.mode == "RGBA":
        colours.putalpha(image.getchannel("A"))
    return colours
