"""Flips and quarter turns."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recordmill.transforms.numpy import opencv
from recordmill.transforms.numpy.augment.base import Floats, Movement, Pixels, Values, check_shares, mapped, memory


@dataclass(frozen=True)
class RandomFlip(Movement):
    """Mirrors the image: left with right by the probability `horizontal`, top with bottom by `vertical`."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    horizontal: float = 0.5
    vertical: float = 0.0

    def __post_init__(self) -> None:
        check_shares(self, horizontal=self.horizontal, vertical=self.vertical)

    def draw(self, uniforms: Floats) -> Floats:
        """Returns 1 for mirrored images, else 0: horizontally, vertically."""
        return (uniforms < [self.horizontal, self.vertical]).astype(np.float64)

    def acts(self, values: Values) -> bool:
        """Whether the image is mirrored."""
        return any(values)

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Mirrors the image."""
        horizontal, vertical = values[0] > 0, values[1] > 0
        out = memory(out, pixels.shape)
        if opencv.cv2 is not None:
            opencv.cv2.flip(pixels, -1 if horizontal and vertical else int(horizontal), dst=out)
        else:
            out[...] = pixels[:: -1 if vertical else 1, :: -1 if horizontal else 1]
        return out

    def move_boxes(self, boxes: Floats, values: Values, height: int, width: int) -> Floats:
        """Maps a mirrored point p to 1 - p."""
        horizontal, vertical = values[0], values[1]
        return mapped(boxes, (1.0 - 2.0 * vertical, 1.0 - 2.0 * horizontal), (vertical, horizontal))


@dataclass(frozen=True)
class RandomRotation90(Movement):
    """Turns the image, with probability `p`, by 90, 180 or 270 degrees, each as likely.

    An image that is not square is turned by 180 degrees, so that it keeps its size.
    """

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 1
    p: float = 0.75

    def __post_init__(self) -> None:
        check_shares(self, p=self.p)

    def draw(self, uniforms: Floats) -> Floats:
        """Returns quarter turns, 0 to 3, of a square image."""
        return (uniforms[:, :1] < self.p) * (1.0 + np.floor(uniforms[:, 1:] * 3.0))

    def acts(self, values: Values) -> bool:
        """Whether the image is turned."""
        return values[0] > 0

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Turns the image counterclockwise."""
        quarters = self._quarters(values, *pixels.shape[:2])
        pixels = pixels.copy() if pixels is out else pixels
        out = memory(out, pixels.shape)
        if opencv.cv2 is not None:  # 0 is a quarter clockwise, 1 a half, 2 a quarter counterclockwise
            opencv.cv2.rotate(pixels, 3 - quarters, dst=out)
        else:
            out[...] = np.rot90(pixels, quarters)
        return out

    def move_boxes(self, boxes: Floats, values: Values, height: int, width: int) -> Floats:
        """Transposes at odd turns, then mirrors: top with bottom at 1 and 2, left with right at 2 and 3."""
        quarters = self._quarters(values, height, width)
        down, across = float(quarters in (1, 2)), float(quarters in (2, 3))
        scale = 1.0 - 2.0 * down, 1.0 - 2.0 * across
        return mapped(boxes, scale, (down, across), transposed=quarters % 2 == 1)

    @staticmethod
    def _quarters(values: Values, height: int, width: int) -> int:
        """Returns quarter turns, counterclockwise, of an image of some size: 1 to 3; 2 where it is not square."""
        return int(values[0]) if height == width else 2
