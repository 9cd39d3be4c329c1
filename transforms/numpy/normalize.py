"""Normalization of pixels: as they are, or `(pixel - offset) * scale` in float32 or bfloat16.

The bits are those of `tensorflow.image`: float32 in every step, and bfloat16 is the float32 result rounded to even.

>>> normalize = normalizer([0.0], [0.5], np.dtype(np.float32))
>>> out = np.empty((1, 2, 1), np.float32)
>>> normalize(np.array([[[3], [4]]], np.uint8), out)
>>> out[..., 0]
array([[1.5, 2. ]], dtype=float32)
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from recordmill.transforms.numpy import opencv
from recordmill.transforms.numpy.buffers import Array

Normalize: TypeAlias = Callable[[Array, Array], None]
"""Writes pixels, uint8 [..., width, channels], into an array of their shape."""


def normalizer(
    offset: Sequence[float], scale: Sequence[float], dtype: "np.dtype[Any]", channel_order: str = "rgb"
) -> Normalize:
    """Returns a function that writes an image's pixels as numbers of a dtype, by the offset and scale of each channel.

    Its argument may be its result already, where that is uint8. With the order `bgr`, red and blue change places first.
    """
    in_order = _in_order(offset, scale, dtype)
    return in_order if channel_order == "rgb" else lambda pixels, out: in_order(_reversed(pixels), out)


def _in_order(offset: Sequence[float], scale: Sequence[float], dtype: "np.dtype[Any]") -> Normalize:
    if dtype == np.uint8:
        return _as_they_are
    to_float = _float32(offset, scale)
    return to_float if dtype == np.float32 else _rounded(to_float, dtype, len(offset))


def _reversed(pixels: Array) -> Array:
    """Copies pixels, red and blue in each other's place."""
    if opencv.cv2 is None or not pixels.size:
        return np.ascontiguousarray(pixels[..., ::-1])
    rows = pixels.reshape(-1, *pixels.shape[-2:])  # several images, one below the other
    result: Array = opencv.cv2.cvtColor(rows, opencv.cv2.COLOR_RGB2BGR).reshape(pixels.shape)
    return result


def _as_they_are(pixels: Array, out: Array) -> None:
    if pixels is not out:
        out[...] = pixels


def _float32(offset: Sequence[float], scale: Sequence[float]) -> Normalize:
    @lru_cache(maxsize=8)
    def rows(width: int) -> tuple[Array, Array]:
        """Repeats the channels' numbers for a row of pixels: with three numbers NumPy takes several times as long."""
        first, second = (np.tile(np.array(numbers, np.float32), (width, 1)) for numbers in (offset, scale))
        return first, second

    def normalize(pixels: Array, out: Array) -> None:
        offsets, scales = rows(out.shape[-2])
        out[...] = pixels
        out -= offsets
        out *= scales

    return normalize


def _rounded(to_float: Normalize, dtype: "np.dtype[Any]", channels: int) -> Normalize:
    """Rounds by a table of every pixel: rounding each number takes twice as long, and holds Python's lock."""
    levels = np.arange(256, dtype=np.uint8)
    numbers = np.empty((1, 256, channels), np.float32)
    to_float(np.stack([levels] * channels, -1)[np.newaxis], numbers)
    table = numbers.astype(dtype).view(np.uint16)

    def normalize(pixels: Array, out: Array) -> None:
        bits = out.view(np.uint16)
        if not bits.size:
            return
        if opencv.cv2 is None:
            bits[...] = table[0][pixels, np.arange(channels)]
        elif bits.flags.c_contiguous:
            flat = (-1, *bits.shape[-2:])  # several images, one below the other
            opencv.cv2.LUT(pixels.reshape(flat), table, bits.reshape(flat))
        else:
            bits[...] = opencv.cv2.LUT(pixels, table).reshape(bits.shape)

    return normalize
