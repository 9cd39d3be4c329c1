"""Brightness, contrast, saturation and hue as one map of a pixel's colours, of whole numbers; NumPy alone.

With luma Y = w · (R, G, B) and the image's mean grey m, a pixel x becomes

    brightness b:  b x              contrast c:    c x + (1 - c) m
    saturation s:  s x + (1 - s) Y  hue, a turn t: I and Q of YIQ turned by t (Haeberli 1993)

Saturation and hue change neither Y nor greys, so the four commute, m of the result being b m. Together they are

    x' = b c M x + b (1 - c) m,     M = 1 w^T + s cos(t) (1 - 1 w^T) + s sin(t) Q

The map's numbers are rounded to 1/1024. Then every product and sum is exact in float32, in any order, and OpenCV and
NumPy give the same level: x' rounded half up, at least 0, at most 255. Rows of the map have one sum: grey stays grey.

>>> color_numbers(np.ones(1), np.ones(1), np.ones(1), np.zeros(1))
array([[1., 0., 1., 0., 0., 0., 1., 0., 0., 0., 1.]])
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recordmill.transforms.contract.luma import luma

Floats = npt.NDArray[np.float64]

UNIT = 1024.0
LUMA = np.array([0.299, 0.587, 0.114])
CHROMA = (
    0.492111 / 0.877283
)  # U is 0.492111 (B - Y), V is 0.877283 (R - Y); I and Q are the same plane, turned by 33 degrees


def _quarter_turn() -> Floats:
    """The map that turns the plane of chroma by 90 degrees, and takes luma to 0."""
    red = CHROMA * (np.array([0.0, 0.0, 1.0]) - LUMA)
    blue = (LUMA - np.array([1.0, 0.0, 0.0])) / CHROMA
    return np.stack([red, -(LUMA[0] * red + LUMA[2] * blue) / LUMA[1], blue])


QUARTER_TURN = _quarter_turn()
GREY = np.tile(LUMA, (3, 1))
SAME_COLORS = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
"""The numbers of the map that changes nothing."""


def color_numbers(brightness: Floats, contrast: Floats, saturation: Floats, hue: Floats) -> Floats:
    """Makes the color maps of images.

    Args:
        brightness: factors of 0 to 2, float64 [rows]; `contrast` and `saturation` too.
        contrast: around the mean grey.
        saturation: 0 is grey.
        hue: turns, -0.5 to 0.5, float64 [rows].

    Returns:
        float64 [rows, 11], multiples of 1/1024: the factor of a grey pixel, the factor of the mean grey, and the map of
        red, green and blue, row by row.
    """
    factor, pivot = _rounded(brightness * contrast), _rounded(brightness * (1 - contrast))
    cosine, sine = (np.reshape(saturation * f(2 * np.pi * hue), (-1, 1, 1)) for f in (np.cos, np.sin))
    maps = GREY + cosine * (np.eye(3) - GREY) + sine * QUARTER_TURN
    maps = _rounded(np.reshape(brightness * contrast, (-1, 1, 1)) * maps)
    maps += np.eye(3) * (factor[:, np.newaxis] - maps.sum(2))[:, :, np.newaxis]
    return np.column_stack([factor, pivot, maps.reshape(-1, 9)])


def mean_grey(sums: Sequence[int], pixels: int) -> int:
    """Gives an image's mean grey in whole numbers: the luma of the sums, by the pixels, rounded half up.

    Args:
        sums: the sum of each channel, 1 or 3 whole numbers.
        pixels: the number of pixels.
    """
    total = sums[0] if len(sums) == 1 else luma(*sums)
    return (2 * total + pixels) // (2 * pixels)


def _rounded(numbers: Floats) -> Floats:
    return np.rint(numbers * UNIT) / UNIT
