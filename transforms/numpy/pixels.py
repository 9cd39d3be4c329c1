"""Operations on the pixels of one image, by OpenCV where it is installed, else by NumPy.

Every function takes uint8 [height, width, c], c of 1 or 3, whatever its strides, and gives uint8 of the new shape; into
`out` where that is given: an array of that shape whose rows of pixels are whole, such as a slice of a batch. `flip`,
`recolor` and `copied` may be given the image's own memory. OpenCV and NumPy give the same pixels, but for `resize`:
they differ by at most 1 of 255 levels.

>>> flip(np.array([[[1], [2]]], np.uint8), horizontal=True, vertical=False)[..., 0]
array([[2, 1]], dtype=uint8)
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.contract.color_matrix import mean_grey

cv2: Any
try:
    import cv2
except ImportError:
    cv2 = None
else:
    cv2.setNumThreads(1)  # the reader has threads, each with its own image

Pixels: TypeAlias = npt.NDArray[np.uint8]
TIE = 2.0**-12  # a quarter of the maps' unit, so that no sum lies between two levels, which OpenCV rounds in two ways


def resize(pixels: Pixels, size: tuple[int, int], out: Pixels | None = None) -> Pixels:
    """Scales to a height and a width: bilinear, half-pixel centres, no antialiasing, rounded."""
    out = _memory(out, (*size, pixels.shape[2]))
    if cv2 is not None:
        cv2.resize(pixels, (size[1], size[0]), dst=out, interpolation=cv2.INTER_LINEAR)
        return out
    top, bottom, down = _neighbours(pixels.shape[0], size[0])
    left, right, across = _neighbours(pixels.shape[1], size[1])
    down, across = down[:, np.newaxis, np.newaxis], across[:, np.newaxis]
    rows = pixels[top] * (1 - down) + pixels[bottom] * down
    out[...] = rows[:, left] * (1 - across) + rows[:, right] * across + np.float32(0.5)
    return out


def nearest(pixels: Pixels, size: tuple[int, int], out: Pixels | None = None) -> Pixels:
    """Scales to a height and a width; each pixel is the one that lies at its centre."""
    out = _memory(out, (*size, pixels.shape[2]))
    rows, columns = (nearest_places(*sides) for sides in zip(pixels.shape[:2], size, strict=True))
    out[...] = pixels[rows[:, np.newaxis], columns]
    return out


def nearest_places(before: int, after: int) -> npt.NDArray[np.int64]:
    """Gives the pixel of `before` at the centre of each of `after`, in whole numbers."""
    return (2 * np.arange(after, dtype=np.int64) + 1) * before // (2 * after)


def flip(pixels: Pixels, *, horizontal: bool, vertical: bool, out: Pixels | None = None) -> Pixels:
    """Mirrors left with right, top with bottom, or both; at least one."""
    out = _memory(out, pixels.shape)
    if cv2 is not None:
        cv2.flip(pixels, -1 if horizontal and vertical else int(horizontal), dst=out)
    else:
        out[...] = pixels[:: -1 if vertical else 1, :: -1 if horizontal else 1]
    return out


def turn(pixels: Pixels, quarters: int, out: Pixels | None = None) -> Pixels:
    """Turns counterclockwise by 1, 2 or 3 quarters."""
    height, width, channels = pixels.shape
    out = _memory(out, (width, height, channels) if quarters % 2 else pixels.shape)
    if cv2 is not None:
        cv2.rotate(pixels, 3 - quarters, dst=out)  # 0 is a quarter clockwise, 1 a half, 2 a quarter counterclockwise
    else:
        out[...] = np.rot90(pixels, quarters)
    return out


def recolor(pixels: Pixels, numbers: Sequence[float], out: Pixels | None = None) -> Pixels:
    """Maps the colours by the numbers that `transforms.contract.color_matrix.color_numbers` gives of an image."""
    out = _memory(out, pixels.shape)
    offset = numbers[1] and numbers[1] * mean_grey(_sums(pixels), pixels.shape[0] * pixels.shape[1])
    if pixels.shape[2] == 1:
        rows = [[numbers[0]]]
    else:
        rows = [[*numbers[start : start + 3]] for start in (2, 5, 8)]
    if cv2 is not None:
        cv2.transform(pixels, np.array([[*row, offset + TIE] for row in rows], np.float32), dst=out)
    else:
        mapped = pixels.astype(np.float32) @ np.array(rows, np.float32).T + np.float32(offset + 0.5)
        out[...] = np.clip(mapped, 0, 255)
    return out


def copied(pixels: Pixels, out: Pixels | None = None) -> Pixels:
    """Copies."""
    out = _memory(out, pixels.shape)
    if out is not pixels:
        np.copyto(out, pixels)
    return out


def blend(image: npt.NDArray[Any], other: npt.NDArray[Any], share: float) -> None:
    """Makes `share` of an image and 1 - `share` of another, in the first one's memory.

    Both are of one shape, contiguous, of uint8, which is rounded half up, or of floats, which are reckoned in float32.
    Shares are whole numbers of 1/1024.
    """
    if image.dtype == np.uint8 and cv2 is not None:
        flat, others = image.reshape(len(image), -1), other.reshape(len(image), -1)
        cv2.addWeighted(flat, share, others, 1 - share, TIE, dst=flat)
        return
    mixed = image.astype(np.float32) * np.float32(share) + other.astype(np.float32) * np.float32(1 - share)
    image[...] = mixed + np.float32(0.5) if image.dtype == np.uint8 else mixed


def _sums(pixels: Pixels) -> list[int]:
    """Sums each channel; OpenCV's sums, in float64, are exact for any image that fits into memory."""
    if cv2 is not None:
        return [int(each) for each in cv2.sumElems(pixels)[: pixels.shape[2]]]
    return [int(each) for each in pixels.sum((0, 1), dtype=np.int64)]


def _neighbours(before: int, after: int) -> tuple[Any, Any, npt.NDArray[np.float32]]:
    """Gives for each of `after` pixels the two of `before` around its centre, and the second one's share."""
    centres = (np.arange(after) + 0.5) * (before / after) - 0.5
    first = np.floor(centres).astype(np.int64)
    share = (centres - first).astype(np.float32)
    return np.maximum(first, 0), np.minimum(first + 1, before - 1), share


def _memory(out: Pixels | None, shape: tuple[int, ...]) -> Pixels:
    """Gives the result's memory; OpenCV would silently leave memory of another shape unchanged."""
    if out is None:
        return np.empty(shape, np.uint8)
    if out.shape != shape:
        raise ValueError(f"the image's result has the shape {shape}, the memory for it {out.shape}")
    return out
