"""A filled rectangle."""

from dataclasses import dataclass
from typing import ClassVar

from recordmill.transforms.numpy.augment.base import (
    Augmentation,
    Pixels,
    Values,
    Window,
    both_sides,
    check_size,
    copied,
    window_around,
)


@dataclass(frozen=True)
class RandomCutout(Augmentation):
    """Fills a rectangle of `size`, in pixels, around a random point; cut off at the image's edge (DeVries 2017)."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    size: int | tuple[int, int]
    fill: int = 0

    def __post_init__(self) -> None:
        check_size(self, self.size)
        if not 0 <= self.fill <= 255:
            raise ValueError(f"{self}: fill is {self.fill}; give a level, 0 to 255")

    def window(self, values: Values, height: int, width: int) -> Window:
        """Gives the filled rectangle, which lies inside of the image."""
        return window_around(values, both_sides(self.size), height, width)

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Fills the rectangle."""
        y, x, high, wide = self.window(values, *pixels.shape[:2])
        out = copied(pixels, out)
        out[y : y + high, x : x + wide] = self.fill
        return out
