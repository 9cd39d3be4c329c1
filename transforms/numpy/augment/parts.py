"""Random parts of an image, by their share of its area and their aspect ratio: what is drawn, and the window of it."""

import math

import numpy as np

from recordmill.transforms.numpy.augment.base import Augmentation, Floats, Values, Window, check_pair


def check_part(augmentation: Augmentation, area: tuple[float, float], aspect: tuple[float, float]) -> None:
    """Refuses what is no range of shares, or of ratios. Raises: ValueError."""
    check_pair(augmentation, "area", area, "(0.08, 1)")
    check_pair(augmentation, "aspect", aspect, "(0.75, 1.33)")
    if not 0 < area[0] <= area[1] <= 1:
        raise ValueError(f"{augmentation}: area is no range of shares; give (least, most) of 0 to 1, such as (0.08, 1)")
    if not 0 < aspect[0] <= aspect[1] < math.inf:
        message = "aspect is no range of ratios; give (least, most) above 0, such as (0.75, 1.33)"
        raise ValueError(f"{augmentation}: {message}")


def draw_part(area: tuple[float, float], aspect: tuple[float, float], uniforms: Floats) -> Floats:
    """Draws parts, float64 [rows, 4], of random numbers, float64 [rows, 4].

    Gives a part's height and width by the root of the image's area, and its offsets as shares of the room.
    """
    narrow, wide = math.log(aspect[0]), math.log(aspect[1])
    share = area[0] + (area[1] - area[0]) * uniforms[:, 0]
    ratio = np.exp(narrow + (wide - narrow) * uniforms[:, 1])
    return np.column_stack([np.sqrt(share / ratio), np.sqrt(share * ratio), uniforms[:, 2:]])


def part_window(values: Values, height: int, width: int) -> Window:
    """Gives a part's window, inside of the image; sides are rounded half up, to 1 at least."""
    root = math.sqrt(height * width)
    high = min(max(math.floor(values[0] * root + 0.5), 1), height)
    wide = min(max(math.floor(values[1] * root + 0.5), 1), width)
    y = math.floor(values[2] * (height - high + 1))
    return Window(y, math.floor(values[3] * (width - wide + 1)), high, wide)
