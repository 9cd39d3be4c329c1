"""Applies random changes to one image and its boxes, by NumPy and, where it is installed, OpenCV.

The last crop writes into the batch's memory, and what follows changes it there: nothing is copied beyond.

>>> pixels = np.array([[[1], [2]]], np.uint8)
>>> apply(pixels, None, [RandomFlip()], [1.0, 0.0])[0][..., 0]
array([[2, 1]], dtype=uint8)
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.contract.augment import (
    Augmentation,
    CenterCrop,
    ColorJitter,
    Crop,
    Floats,
    OwnFunction,
    RandomCrop,
    RandomCutout,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    Resize,
    by_change,
)
from recordmill.transforms.contract.augment_places import LEAST_SIDE, Move, overlap
from recordmill.transforms.numpy.pixels import Pixels, copied, flip, nearest, recolor, resize, turn

Boxes: TypeAlias = npt.NDArray[np.floating[Any]]
Values: TypeAlias = Sequence[float]
Scale: TypeAlias = Callable[[Pixels, tuple[int, int], Pixels | None], Pixels]
Change: TypeAlias = Callable[[Any, Values, Pixels, Pixels | None], Pixels]
"""Changes an image by its options and parameters; the memory for the result may be the image's own."""


class Augment(NamedTuple):
    """Changes of the images of a feature, and what was drawn for each row."""

    changes: Sequence[Augmentation]
    parameters: Floats
    """float64 [rows, numbers], of `transforms.contract.augment.parameters`; all images of a row are changed alike."""
    mask: bool = False
    """Marks values that are no colours: pixels move, and do not change."""


def apply(
    pixels: Pixels,
    boxes: Boxes | None,
    augmentations: Sequence[Augmentation],
    parameters: Floats | Values,
    out: Pixels | None = None,
    *,
    mask: bool = False,
) -> tuple[Pixels, Boxes | None]:
    """Changes one image; images that belong together, such as frames, are given the same parameters.

    Args:
        pixels: uint8 [height, width, c], c of 1 or 3, at least one pixel. It is never written to.
        boxes: float32 [n, 4], y_min, x_min, y_max, x_max, 0 to 1; None for none.
        augmentations: what `transforms.contract.augment.check` gave.
        parameters: the image's row of `transforms.contract.augment.parameters`.
        out: where the result is written, uint8 of its shape; any memory whose rows of pixels are whole.
        mask: the values are no colours, such as a mask's classes: pixels move and do not change. A crop takes the
            nearest pixel; colours, cutout and users' functions are left out.

    Returns:
        The pixels, which are `out` where that is given, else may be a view of what was given; and the boxes, float32
        [n, 4], clipped to the image, each in its place: zeros where nothing of it is left.

    Raises:
        ValueError: `out` has another shape than the result, or a user's function gave something else than pixels.
    """
    if isinstance(parameters, np.ndarray):
        parameters = parameters.tolist()  # single numbers of Python's are several times faster
    changes = _MASK_CHANGES if mask else _CHANGES
    active = [
        (change, values)
        for change, values in by_change(augmentations, parameters)
        if type(change) in changes and change.acts(values)
    ]
    moved = None if boxes is None else np.clip(boxes.astype(np.float64), 0, 1)
    sized = max((number for number, (change, _) in enumerate(active) if isinstance(change, Crop)), default=0)
    for number, (change, values) in enumerate(active):
        if moved is not None:
            moved = _moved(moved, change.move(values, pixels.shape[0], pixels.shape[1]))
        pixels = changes[type(change)](change, values, pixels, out if number >= sized else None)
    if out is not None and pixels is not out:
        pixels = copied(pixels, out)
    return pixels, None if moved is None else _kept(moved)


def _crop(change: Any, values: Values, pixels: Pixels, out: Pixels | None, scale: Scale = resize) -> Pixels:
    """Crops; gives a view where nothing is scaled and nothing lies beyond the image."""
    height, width, channels = pixels.shape
    y, x, high, wide = change.window(values, height, width)
    if change.scales:
        return scale(pixels[y : y + high, x : x + wide], change.sides, out)
    top, bottom, above = overlap(y, high, height)
    left, right, before = overlap(x, wide, width)
    inside = pixels[top:bottom, left:right]
    if inside.shape[:2] == (high, wide):
        return inside
    out = copied(np.zeros((high, wide, channels), np.uint8), out)
    out[above : above + bottom - top, before : before + right - left] = inside
    return out


def _flip(change: Any, values: Values, pixels: Pixels, out: Pixels | None) -> Pixels:
    return flip(pixels, horizontal=values[0] > 0, vertical=values[1] > 0, out=out)


def _rotate(change: Any, values: Values, pixels: Pixels, out: Pixels | None) -> Pixels:
    pixels = pixels.copy() if pixels is out else pixels
    return turn(pixels, change.turns(values, *pixels.shape[:2]), out)


def _recolor(change: Any, values: Values, pixels: Pixels, out: Pixels | None) -> Pixels:
    return recolor(pixels, values, out)


def _cut_out(change: Any, values: Values, pixels: Pixels, out: Pixels | None) -> Pixels:
    y, x, high, wide = change.window(values, *pixels.shape[:2])
    out = copied(pixels, out)
    out[y : y + high, x : x + wide] = change.fill
    return out


def _call(change: Any, values: Values, pixels: Pixels, out: Pixels | None) -> Pixels:
    rng = np.random.Generator(np.random.PCG64([int(value) for value in values]))
    given = change.function(pixels.copy(), rng)
    if isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.shape == pixels.shape:
        return given
    got = f"{given.dtype} {list(given.shape)}" if isinstance(given, np.ndarray) else repr(given)
    name = getattr(change.function, "__name__", change.function)
    raise ValueError(f"augment's function {name} gave {got}; return pixels, uint8 {list(pixels.shape)}")


_MASK_CHANGES: dict[type, Change] = {
    **dict.fromkeys((RandomResizedCrop, Resize, RandomCrop, CenterCrop), partial(_crop, scale=nearest)),
    RandomFlip: _flip,
    RandomRotation90: _rotate,
}
_CHANGES: dict[type, Change] = {
    **_MASK_CHANGES,
    **dict.fromkeys((RandomResizedCrop, Resize, RandomCrop, CenterCrop), _crop),
    ColorJitter: _recolor,
    RandomCutout: _cut_out,
    OwnFunction: _call,
}


def _moved(boxes: Floats, move: Move | None) -> Floats:
    """Moves both corners, float64 [n, 4], to the image's edge at most."""
    if move is None:
        return boxes
    corners = boxes.reshape(-1, 2, 2)
    if move.swap:
        corners = corners[..., ::-1]
    corners = np.clip(corners * (move.scale_y, move.scale_x) + (move.shift_y, move.shift_x), 0, 1)
    return np.concatenate([corners.min(1), corners.max(1)], 1)


def _kept(boxes: Floats) -> Boxes:
    """Zeros for boxes of no area."""
    kept = boxes.astype(np.float32)
    kept[(kept[:, 2:] - kept[:, :2] < LEAST_SIDE).any(1)] = 0
    return kept
