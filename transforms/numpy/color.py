"""Applies an image's colour profile: its pixels become sRGB's, by LittleCMS as Pillow has it, as browsers show them.

The intent is relative colorimetric with black point compensation. A profile that LittleCMS does not read, or of other
colours than the image's, is ignored.

    convert = to_srgb(profile, image.mode)
    pixels = convert(image) if convert else image
"""

import io
from collections.abc import Callable
from functools import lru_cache, partial

from PIL import Image, ImageCms

MODES = {b"RGB ": "RGB", b"GRAY": "L", b"CMYK": "CMYK"}
"""Pillow's modes of the pixels that profiles of a colour space are for."""
GREY = ("1", "L", "LA", "La", "I;16", "I;16B")
FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION


def to_srgb(profile: bytes, mode: str) -> Callable[[Image.Image], Image.Image] | None:
    """Returns the function of images that applies a profile; None where it cannot be applied.

    Args:
        profile: as `contract.color_profile.foreign_profile` found it.
        mode: Pillow's mode of the pixels as the file has them.

    Returns:
        The function takes grey, RGB, RGBA or CMYK of 8 bits, and returns RGB, or grey where the profile is grey's; with
        the alpha that it got.
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
