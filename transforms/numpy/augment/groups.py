"""Changes made of others: some with a probability, and several views of one image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recordmill.transforms.numpy.augment.base import (
    Augmentation,
    Floats,
    Movement,
    Pixels,
    Shape,
    Values,
    check_shares,
    memory,
)
from recordmill.transforms.numpy.augment.chain import (
    UserFunction,
    apply,
    by_change,
    check,
    lanes,
    output_shape,
    parameters,
)

NO_BOXES = "Views gives several views of an image, and boxes belong to one: leave the boxes out, features=[…]"


@dataclass(frozen=True)
class Group(Movement):
    """Changes, and users' functions, one after another."""

    changes: Sequence[Augmentation | UserFunction]

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", check(self.changes))

    @property
    def inner(self) -> tuple[Augmentation, ...]:
        """The changes, checked."""
        return self.changes  # type: ignore[return-value] # `check` made them so


@dataclass(frozen=True)
class RandomApply(Group):
    """Makes all of the changes with probability `p`, or none; they keep the image's size."""

    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, p=self.p)
        for change in self.inner:
            if change.resizes:
                raise ValueError(f"RandomApply holds {change}, which changes the size: put it before or behind")

    @property
    def lanes(self) -> int:
        """One for the choice, and the changes'."""
        return 1 + lanes(self.inner)

    @property
    def numbers(self) -> int:
        """The choice, and the changes' parameters."""
        return 1 + sum(change.numbers for change in self.inner)

    def draw(self, uniforms: Floats) -> Floats:
        """Returns 1 where the changes are made, and their parameters."""
        return np.column_stack([uniforms[:, 0] < self.p, parameters(self.inner, uniforms[:, 1:])])

    def acts(self, values: Values) -> bool:
        """Whether the changes are made."""
        return values[0] > 0

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Makes the changes."""
        return apply(pixels, None, self.inner, values[1:], out)[0]

    def apply_to_mask(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Moves pixels as the changes do."""
        return apply(pixels, None, self.inner, values[1:], out, mask=True)[0]

    def move_boxes(self, boxes: Floats, values: Values, height: int, width: int) -> Floats:
        """Moves boxes as the changes do."""
        for change, own in by_change(self.inner, values[1:]):
            if change.acts(own):
                boxes = change.move_boxes(boxes, own, height, width)
        return boxes


@dataclass(frozen=True)
class Views(Group):
    """Returns `count` views of each image, one below the other, each changed by draws of its own.

    The result is `count` times as high; `images.reshape(-1, count, height, width, channels)` parts the views of a batch
    without a copy. Boxes belong to one view, so images with boxes are refused.
    """

    resizes: ClassVar[bool] = True
    count: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.count, int) and self.count > 0):
            raise ValueError(f"{self}: count is {self.count}; give the number of views, such as 2")

    @property
    def lanes(self) -> int:
        """Those of each view."""
        return self.count * lanes(self.inner)

    @property
    def numbers(self) -> int:
        """Those of each view."""
        return self.count * sum(change.numbers for change in self.inner)

    def draw(self, uniforms: Floats) -> Floats:
        """Draws each view's parameters."""
        return np.column_stack([parameters(self.inner, part) for part in np.split(uniforms, self.count, 1)])

    def output_shape(self, shape: Shape) -> Shape:
        """Multiplies the height by the number of views."""
        height, width, channels = output_shape(self.inner, shape)
        return None if height is None else self.count * height, width, channels

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Changes each view."""
        return self._views(pixels, values, out, mask=False)

    def apply_to_mask(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Moves each view's pixels."""
        return self._views(pixels, values, out, mask=True)

    def _views(self, pixels: Pixels, values: Values, out: Pixels | None, *, mask: bool) -> Pixels:
        height, width, channels = pixels.shape
        shape = self.output_shape((height, width, channels))
        out = memory(out, shape)  # type: ignore[arg-type] # an image's shape gives a shape without None
        wide = len(values) // self.count
        for view, part in enumerate(np.split(out, self.count)):
            apply(pixels, None, self.inner, values[view * wide : (view + 1) * wide], part, mask=mask)
        return out

    def move_boxes(self, boxes: Floats, values: Values, height: int, width: int) -> Floats:
        """Refuses boxes. Raises: ValueError."""
        raise ValueError(NO_BOXES)
