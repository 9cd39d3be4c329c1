"""Regularization: filled rectangles of an image, and mixtures of a batch's rows (MixUp, CutMix).

A mixture mixes each row with the next, the last with the first, by the row's share. It mixes images and the label;
texts, numbers, boxes and other features stay.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.base.stored import Ragged
from recordmill.transforms.images import opencv
from recordmill.transforms.images.augment import base
from recordmill.transforms.images.augment.base import Augmentation, Fill, Floats, Pixels, Values, Window


@dataclass(frozen=True)
class RandomCutout(Augmentation):
    """Fills a rectangle of `size`, in pixels, around a random point, cut off at the image's edge (DeVries 2017)."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    size: base.Size
    fill: Fill = 0

    def window(self, values: Values, height: int, width: int) -> Window:
        return base.window_around(values, base.as_pair(self.size), height, width)

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        y, x, high, wide = self.window(values, *pixels.shape[:2])
        out = base.copied(pixels, out)
        out[y : y + high, x : x + wide] = base.fill_levels(self.fill, pixels.shape[2])
        return out


@dataclass(frozen=True)
class RandomErasing(Augmentation):
    """Fills, with probability `p`, a random part of the image (Zhong et al. 2017, arXiv:1708.04896).

    `area` is the part's share of the pixels, uniform; `aspect` its width by its height, log-uniform; the part is always
    inside the image. `fill` is a level, a colour, or `random` for independent levels.
    """

    lanes: ClassVar[int] = 7
    numbers: ClassVar[int] = 7
    p: base.Share = 0.5
    area: base.Area = (0.02, 0.33)
    aspect: base.Aspect = (0.3, 3.3)
    fill: Annotated[Fill | Literal["random"], lambda fill: None if fill == "random" else base.check_fill(fill)] = 0

    def draw(self, uniforms: Floats) -> Floats:
        """Returns 1 to erase, the part, and two integers below 2**53 as the seed of random levels."""
        part = base.draw_part(self.area, self.aspect, uniforms[:, 1:5])
        return np.column_stack([uniforms[:, 0] < self.p, part, np.floor(uniforms[:, 5:] * 2.0**53)])

    def acts(self, values: Values) -> bool:
        return values[0] > 0

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        channels = pixels.shape[2]
        y, x, high, wide = base.part_window(values[1:5], *pixels.shape[:2])
        out = base.copied(pixels, out)
        part = out[y : y + high, x : x + wide]
        if self.fill == "random":
            rng = np.random.Generator(np.random.PCG64([int(value) for value in values[5:7]]))
            part[...] = rng.integers(0, 256, (high, wide, channels), np.uint8)
        else:
            part[...] = base.fill_levels(self.fill, channels)
        return out


Array: TypeAlias = npt.NDArray[Any]
POSITIVE = base.number(Real, base.ABOVE_0, base.LARGEST, "a positive number, such as 0.2 or 1.0")
Alpha: TypeAlias = Annotated[float, POSITIVE]


@dataclass(frozen=True)
class BatchAugmentation(base.Checked, ABC):
    """A mixture of each row with the next; a row's share is drawn from Beta(`alpha`, `alpha`).

    `num_classes` is the number of the label's classes, unless the label is floats, such as multi-hot. `images` names
    the features to mix; None: all with at least four dimensions, [rows, …, height, width, c]. Raises: ValueError: an
    option is out of range.
    """

    lanes: ClassVar[int] = 0  # random numbers a row
    least: ClassVar[int] = 4  # dimensions of a mixed feature

    alpha: Alpha = 1.0
    num_classes: Annotated[
        int | None, lambda count: None if count is None or count >= 1 else "the number of classes"
    ] = None
    images: tuple[str, ...] | None = None

    @abstractmethod
    def draw(self, uniforms: Floats) -> Floats:
        """Makes parameters, float64 [rows, numbers], from random numbers, float64 [rows, lanes] in [0, 1)."""

    @abstractmethod
    def mix(self, batch: Array, parameters: Floats) -> Array:
        """Mixes images, [rows, …, height, width, c], in place; returns rows' own shares, float32 [rows]."""

    def apply(self, features: Mapping[str, Any], label: Any, uniforms: Floats) -> tuple[dict[str, Array], Array | None]:
        """Mixes a batch's rows by random numbers, float64 [rows, lanes] in [0, 1).

        **Images, uint8 or floats, are overwritten**; uint8 is rounded half up. The label is class ids, integers [rows],
        or floats [rows, …]; it becomes float32, [rows, num_classes] for ids, where an invalid id, such as -1, gets no
        share. Its shares are the first image's. Raises: ValueError: no image, or an integer label of anything but class
        ids.
        """
        drawn = self.draw(uniforms)
        sides = {name: array.ndim for name, array in features.items() if not isinstance(array, Ragged)}
        shares = [self.mix(features[name], drawn) for name in self.mixed(sides)]
        if label is None:
            return dict(features), None
        self.check_label(label)
        if label.dtype.kind in "iu":
            label = label[:, np.newaxis] == np.arange(self.num_classes or 0)
        label = label.astype(np.float32)
        own = shares[0].reshape(-1, *[1] * (label.ndim - 1))
        return dict(features), own * label + (1 - own) * np.roll(label, -1, 0)

    def mixed(self, dimensions: Mapping[str, int]) -> list[str]:
        """Returns the features to mix, given all features' numbers of dimensions."""
        names = self.images or [name for name, count in dimensions.items() if count >= 4]
        missing = [name for name in names if dimensions.get(name, 0) < self.least]
        if missing or not names:
            fit = (name for name, count in dimensions.items() if count >= self.least)
            raise ValueError(f"{self} finds no image {missing}; set images to some of: {', '.join(fit)}")
        return list(names)

    def check_label(self, label: Array | Ragged) -> None:
        """Refuses ragged lists, strings, and integers of anything but class ids. Raises: ValueError."""
        values = label.values if isinstance(label, Ragged) else label
        is_id = values.dtype.kind in "iu" and values.ndim == 1 and self.num_classes is not None
        if isinstance(label, Ragged) or (values.dtype.kind in "iuO" and not is_id):
            remedy = "give num_classes for one class a row, or read several as multi-hot"
            raise ValueError(f"{self} cannot mix a label of {values.dtype} {list(values.shape)}: {remedy}")


@dataclass(frozen=True)
class MixUp(BatchAugmentation):
    """Adds images and labels by their shares (Zhang et al. 2018)."""

    lanes: ClassVar[int] = 2
    least: ClassVar[int] = 2
    alpha: Alpha = 0.2

    def draw(self, uniforms: Floats) -> Floats:
        return base.rounded(symmetric_beta(self.alpha, uniforms[:, 0], uniforms[:, 1])[:, np.newaxis])

    def mix(self, batch: Array, parameters: Floats) -> Array:
        for row, other, share in zip(batch, _next(batch), parameters[:, 0].tolist(), strict=True):
            if row.dtype == np.uint8 and opencv.cv2 is not None:
                flat, others = row.reshape(len(row), -1), other.reshape(len(row), -1)
                opencv.cv2.addWeighted(flat, share, others, 1 - share, opencv.TIE, dst=flat)
                continue
            mixed = row.astype(np.float32) * np.float32(share) + other.astype(np.float32) * np.float32(1 - share)
            row[...] = mixed + np.float32(0.5) if row.dtype.kind == "u" else mixed
        return parameters[:, 0].astype(np.float32)


@dataclass(frozen=True)
class CutMix(BatchAugmentation):
    """Pastes a rectangle of the next image; labels mix by the pixels' shares (Yun et al. 2019).

    The rectangle has the image's shape and the other's share of its area, around a random point, cut off at the edge.
    """

    lanes: ClassVar[int] = 4

    def draw(self, uniforms: Floats) -> Floats:
        side = np.sqrt(1 - symmetric_beta(self.alpha, uniforms[:, 0], uniforms[:, 1]))
        return np.column_stack([side, uniforms[:, 2:]])

    def window(self, values: Values, height: int, width: int) -> Window:
        """Returns the rectangle, inside the image; its sides are rounded half up."""
        sides = math.floor(values[0] * height + 0.5), math.floor(values[0] * width + 0.5)
        return base.window_around(values[1:], sides, height, width)

    def mix(self, batch: Array, parameters: Floats) -> Array:
        height, width = batch.shape[-3:-1]
        own, pixel = [], 1.0 / max(1, height * width)
        for row, other, values in zip(batch, _next(batch), parameters.tolist(), strict=True):
            y, x, high, wide = self.window(values, height, width)
            row[..., y : y + high, x : x + wide, :] = other[..., y : y + high, x : x + wide, :]
            own.append(1.0 - high * wide * pixel)
        return np.array(own, np.float32)


def symmetric_beta(alpha: float, first: Floats, second: Floats) -> Floats:
    """Makes Beta(alpha, alpha) from two random numbers in [0, 1), in one step, for any alpha above 0.

    Source: Devroye 1996, "Random variate generation in one line of code": 1/2 + T / (2 sqrt(2 alpha + T ** 2)) is Beta,
    if T, Student's with 2 alpha degrees of freedom, is sqrt(2 alpha (U ** (-1 / alpha) - 1)) cos(2 pi V) (Bailey 1994).
    Here both sides of the fraction are multiplied by U ** (1 / alpha), to avoid overflow.
    """
    power, cosine = first ** (1 / alpha), np.cos(2 * np.pi * second)
    squared = (1 - power) * cosine**2
    return 0.5 + np.copysign(0.5, cosine) * np.sqrt(squared / (power + squared))


def _next(batch: Array) -> list[Array]:
    """Returns each row's next one; the last one's is a copy, as the first row is mixed earlier."""
    return [*batch[1:], *batch[:1].copy()]
