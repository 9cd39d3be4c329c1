"""Decoded pixels resized and normalized without TensorFlow, as `decode_graph` and `image_graph` do.

Scaled pixels are weighted sums, rounded half to even. `nearest` equals TensorFlow; other methods differ by at most one
level, because they sum in another order. Normalized pixels are uint8, or `(pixel - offset) * scale` in float32 or
bfloat16, with the bits of `image_graph`: bfloat16 is the float32 result rounded to even.

>>> halved = Pixels(stored="bytes", encoding="png", shape=(1, 2, 1), dtype="float32", offset=(0.0,), scale=(0.5,))
>>> out = np.empty((1, 2, 1), np.float32)
>>> normalizer(halved, np.dtype(np.float32))(np.array([[[3], [4]]], np.uint8), out)
>>> out[..., 0]
array([[1.5, 2. ]], dtype=float32)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from recordmill.transforms.base.buffers import Array
from recordmill.transforms.images import opencv
from recordmill.transforms.images.image_rules import Placement, padding_levels, placement
from recordmill.transforms.images.image_stored import PixelOptions, Pixels

Sides = tuple[int, int]  # height and width in pixels, or y and x


@lru_cache(maxsize=1024)
def placed(sides: Sides, options: PixelOptions) -> Placement:
    """Places an image, in Python's integers; cached, as datasets have few sizes."""
    return Placement(*(tuple(pair.tolist()) for pair in placement(np.array(sides, np.int64), options)))


def resize(pixels: Array, options: PixelOptions) -> Array:
    """Resizes an image, [h, w, channels]: [height, width, channels] of its type."""
    goal = placed((pixels.shape[0], pixels.shape[1]), options)
    if options.size is None or options.fit != "crop":
        pixels = scale(pixels, goal.scaled, options.resize, options.antialias)
        if options.size is None or options.fit != "pad":
            return pixels
        framed = np.empty((*goal.output, options.channels), pixels.dtype)
        framed[...] = padding_levels(options)
        _cut(framed, goal.offset, goal.scaled)[...] = pixels
        return framed
    pixels = scale(_cut(pixels, goal.start, goal.box), goal.scaled, options.resize, options.antialias)
    return _cut(pixels, (-goal.offset[0], -goal.offset[1]), goal.output)


def _cut(pixels: Array, start: Sides, size: Sides) -> Array:
    return pixels[start[0] : start[0] + size[0], start[1] : start[1] + size[1]]


def scale(pixels: Array, size: Sides, method: str, antialias: bool, out: Array | None = None) -> Array:
    """Scales an image, [h, w, channels], not empty, to a height and width, at least (1, 1), in its own type.

    The method and `antialias` are as in `Image.resize`; `out` is optional memory of the result's shape.
    """
    sides = pixels.shape[:2]
    if size == sides:
        return pixels
    if method == "auto":
        method, antialias = ("area" if math.prod(size) <= math.prod(sides) else "bilinear"), False
    if method == "nearest":
        rows, columns = (_nearest(*each) for each in zip(sides, size, strict=True))
        return pixels[rows].take(columns, 1)  # both at once take three times as long and more
    is_area = method == "area" and size[0] <= sides[0] and size[1] <= sides[1]
    if opencv.takes(pixels) and (is_area or method == "bilinear" and not antialias):  # within one level of TensorFlow
        out = np.empty((*size, pixels.shape[2]), np.uint8) if out is None else out
        way = opencv.cv2.INTER_AREA if is_area else opencv.cv2.INTER_LINEAR
        opencv.cv2.resize(pixels, size[::-1], dst=out, interpolation=way)
        return out
    high, wide = (
        _area(*each) if method == "area" else _kernel(*KERNELS[method], antialias, *each)
        for each in zip(sides, size, strict=True)
    )
    sums = _summed(np.swapaxes(_summed(pixels, high), 0, 1), wide)
    if pixels.dtype != np.float32:
        sums = np.clip(np.rint(sums), 0, np.iinfo(pixels.dtype).max).astype(pixels.dtype)
    return np.swapaxes(sums, 0, 1)


@lru_cache(maxsize=64)
def _nearest(source: int, target: int) -> Array:
    step = np.float32(source) / np.float32(target)
    return np.minimum(np.floor((np.arange(target, dtype=np.float32) + np.float32(0.5)) * step), source - 1).astype(int)


Weights = tuple[Array, Array]
"""Source pixels of each result pixel, int64 [target, taps], and their shares, float32 [target, taps]."""


def _summed(pixels: Array, weights: Weights) -> Array:
    """Weighs the first axis, tap by tap: float32 [target, …]."""
    sums = np.zeros((len(weights[0]), *pixels.shape[1:]), np.float32)
    for positions, shares in zip(*(part.T for part in weights), strict=True):
        sums += pixels[positions] * shares[:, np.newaxis, np.newaxis]
    return sums


def _area(source: int, target: int) -> Weights:
    """Weighs source pixels by their area in a result pixel."""
    step = np.float32(source) / np.float32(target)
    start = np.arange(target, dtype=np.float32) * step
    end = np.arange(1, target + 1, dtype=np.float32) * step
    first = np.floor(start).astype(np.int64)
    positions = first[:, np.newaxis] + np.arange(int((np.ceil(end) - first).max()))
    shares = np.minimum(positions + 1, end[:, np.newaxis]) - np.maximum(positions, start[:, np.newaxis])
    shares = np.maximum(shares, 0) / step
    return np.minimum(positions, source - 1), shares.astype(np.float32)


def _kernel(kernel: Callable[[Array], Array], radius: float, antialias: bool, source: int, target: int) -> Weights:
    """Weighs pixels by a kernel, wider when shrinking, cut at edges, in float32 as TensorFlow's ScaleAndTranslate."""
    step = 1 / (np.float32(target) / np.float32(source))
    wider = max(step, np.float32(1)) if antialias else np.float32(1)
    center = (np.arange(target, dtype=np.float32) + np.float32(0.5)) * step
    reach = np.float32(radius) * wider
    first = np.maximum(np.ceil(center - reach - np.float32(0.5)), 0)[:, np.newaxis]
    last = np.minimum(np.floor(center + reach - np.float32(0.5)), source - 1)[:, np.newaxis]
    positions = first + np.arange(int((last - first).max()) + 1, dtype=np.float32)
    shares = kernel(np.abs((positions + np.float32(0.5) - center[:, np.newaxis]) * (1 / wider))) * (positions <= last)
    shares /= shares.sum(1, keepdims=True)
    return np.minimum(positions, source - 1).astype(np.int64), shares.astype(np.float32)


def _cubic(x: Array) -> Array:
    """Keys' kernel of 1981 with a = -1/2."""
    near, far = ((1.5 * x - 2.5) * x) * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _mitchell(x: Array) -> Array:
    """Mitchell and Netravali's kernel of 1988 with B = C = 1/3."""
    near, far = ((7 / 6 * x - 2) * x) * x + 8 / 9, ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(radius: int) -> Callable[[Array], Array]:
    return lambda x: np.where(x <= radius, np.sinc(x) * np.sinc(x / radius), 0)


KERNELS: Mapping[str, tuple[Callable[[Array], Array], float]] = {
    "bilinear": (lambda x: np.maximum(1 - x, 0), 1.0),
    "bicubic": (_cubic, 2.0),
    "mitchellcubic": (_mitchell, 2.0),
    "gaussian": (lambda x: np.where(x < 1.5, np.exp(x * x / -0.5), 0), 1.5),
    "lanczos3": (_lanczos(3), 3.0),
    "lanczos5": (_lanczos(5), 5.0),
}
"""A kernel of the distance in pixels, and its radius."""

Normalize: TypeAlias = Callable[[Array, Array], None]
"""Writes pixels, [..., width, channels], into an array of that shape."""


def normalizer(described: Pixels, dtype: "np.dtype[Any]") -> Normalize:
    """Returns a function that writes stored pixels, or the result itself, as the described numbers, of a dtype."""
    to_float = _float32(described.offset, described.scale)

    def as_stored(pixels: Array, out: Array) -> None:
        if pixels is not out:
            out[...] = pixels

    def rounded_each(pixels: Array, out: Array) -> None:
        numbers = np.empty(out.shape, np.float32)
        to_float(pixels, numbers)
        out[...] = numbers.astype(dtype)

    in_order: Normalize = to_float if dtype == np.float32 else rounded_each
    if described.are_as_stored:
        in_order = as_stored
    elif dtype != np.float32 and described.pixel == "uint8":
        in_order = _rounded(to_float, dtype, described.shape[2])
    if described.channel_order == "rgb":
        return in_order

    def reversed_first(pixels: Array, out: Array) -> None:
        if opencv.cv2 is None or not pixels.size:
            in_order(np.ascontiguousarray(pixels[..., ::-1]), out)
        else:
            rows = pixels.reshape(-1, *pixels.shape[-2:])  # several images, one below the other
            in_order(opencv.cv2.cvtColor(rows, opencv.cv2.COLOR_RGB2BGR).reshape(pixels.shape), out)

    return reversed_first


def for_people(pixels: Array) -> Array:
    """Shows grey or RGB of 8 bits as it is, other pixels `stretched`."""
    return pixels if pixels.dtype == np.uint8 and pixels.shape[-1] in (1, 3) else stretched(pixels)


def stretched(pixels: Array) -> Array:
    """Shows pixels of any type: uint8 [h, w, 1 or 3], each channel's 1st to 99th percentile stretched to 0..255.

    Of two channels it shows the first, of four and more the first three. NaN and infinities become 0.
    """
    shown, (low, high) = pixels[..., : 1 if pixels.shape[2] < 3 else 3].astype(np.float64), black_and_white(pixels)
    scaled = (np.where(np.isfinite(shown), shown, low) - low) * (255 / np.maximum(high - low, 1e-30))
    return np.rint(scaled.clip(0, 255)).astype(np.uint8)


def black_and_white(pixels: Array) -> Array:
    """Returns the pixels that `stretched` shows as black and as white: float64 [2, 1 or 3]."""
    shown = pixels[..., : 1 if pixels.shape[2] < 3 else 3].astype(np.float64)
    finite = shown[np.isfinite(shown).all(-1)]
    bounds: Array = np.percentile(finite, [1, 99], axis=0) if len(finite) else np.array([[0.0], [1.0]])
    return bounds


def _float32(offset: Sequence[float], scale: Sequence[float]) -> Normalize:
    @lru_cache(maxsize=8)
    def rows(width: int) -> tuple[Array, Array]:
        """Repeats the channels' numbers for a row of pixels: three numbers alone take NumPy several times as long."""
        first, second = (np.tile(np.array(numbers, np.float32), (width, 1)) for numbers in (offset, scale))
        return first, second

    def normalize(pixels: Array, out: Array) -> None:
        offsets, scales = rows(out.shape[-2])
        out[...] = pixels
        out -= offsets
        out *= scales

    return normalize


def _rounded(to_float: Normalize, dtype: "np.dtype[Any]", channels: int) -> Normalize:
    """Rounds by a table of all levels: rounding each number takes twice as long, and holds Python's lock."""
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
