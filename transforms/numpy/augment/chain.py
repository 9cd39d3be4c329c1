"""Lists of augmentations: checked, drawn for a batch, applied in order to an image and its boxes; and groups of them.

The last crop writes into the batch's memory, and what follows changes it there: nothing is copied beyond.

>>> changes = check([RandomResizedCrop(224), RandomFlip()])  # doctest: +SKIP
>>> parameters(changes, np.random.default_rng(0).random((64, lanes(changes)))).shape  # doctest: +SKIP
(64, 6)
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.numpy.augment.base import (
    Augmentation,
    Floats,
    ImagePart,
    Movement,
    Pixels,
    Shape,
    Values,
    Window,
    check_shares,
    copied,
    memory,
)
from recordmill.transforms.numpy.augment.movements import Crop

UserFunction: TypeAlias = Callable[[Pixels, np.random.Generator], Pixels]
Boxes: TypeAlias = npt.NDArray[np.floating[Any]]
Acting: TypeAlias = tuple[Augmentation, Values]  # change that acts on an image, and its parameters
LEAST_SIDE = 2.0**-20
"""The least side of a box, as a share of the image: a box that only touches a window may be a billionth wide."""


@dataclass(frozen=True)
class OwnFunction(Augmentation):
    """A user's function of pixels, uint8 [height, width, c], and a generator; it gives pixels of that shape.

    It gets a copy that it may change, and is not shown boxes, which stay.
    """

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    function: UserFunction

    def draw(self, uniforms: Floats) -> Floats:
        """Returns two whole numbers below 2**53, the generator's seed."""
        return np.floor(uniforms * 2.0**53)

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Calls the function. Raises: ValueError where it gives something else than pixels."""
        rng = np.random.Generator(np.random.PCG64([int(value) for value in values]))
        result = self.function(pixels.copy(), rng)
        if isinstance(result, np.ndarray) and result.dtype == np.uint8 and result.shape == pixels.shape:
            return result
        got = f"{result.dtype} {list(result.shape)}" if isinstance(result, np.ndarray) else repr(result)
        name = getattr(self.function, "__name__", self.function)
        raise ValueError(f"augment's function {name} gave {got}; return pixels, uint8 {list(pixels.shape)}")


@dataclass(frozen=True)
class Mask:
    """Changes of images whose values are no colours, such as classes of pixels: the values move, and do not change.

    A crop that scales takes the nearest pixel; colours, cutouts and functions of the user's are left out. With the same
    changes as an image's, mask and image move together.
    """

    changes: Sequence[Augmentation | UserFunction]


class Augment(NamedTuple):
    """Changes of the images of a feature, and what was drawn for each row."""

    changes: Sequence[Augmentation]
    parameters: Floats  # float64 [rows, numbers], of `parameters`; all images of a row are changed alike
    mask: bool = False  # marks values that are no colours: pixels move, and do not change


def check(augmentations: Sequence[Augmentation | UserFunction]) -> tuple[Augmentation, ...]:
    """Checks changes and users' functions, and gives them all as changes.

    Raises:
        ValueError: it is no list, or an item is neither.
    """
    if not isinstance(augmentations, Sequence):
        raise ValueError(f"augment is {augmentations!r}; give a list, such as [RandomResizedCrop(224), RandomFlip()]")
    return tuple(_checked(each) for each in augmentations)


def _checked(given: Any) -> Augmentation:
    if isinstance(given, Augmentation):
        return given
    if isinstance(given, type) and issubclass(given, Augmentation):
        raise ValueError(f"augment holds the class {given.__name__}; write {given.__name__}(...), with its options")
    if not callable(given) or isinstance(given, type):
        raise ValueError(f"augment holds {given!r}; give changes such as RandomFlip(), or functions (pixels, rng)")
    return OwnFunction(given)


def lanes(augmentations: Sequence[Augmentation]) -> int:
    """Counts the random numbers of an image."""
    return sum(each.lanes for each in augmentations)


def parameters(augmentations: Sequence[Augmentation], uniforms: Floats) -> Floats:
    """Makes the images' parameters of random numbers.

    Args:
        augmentations: what `check` gave.
        uniforms: float64 [rows, lanes] in [0, 1).

    Returns:
        float64 [rows, numbers]: of each change as many columns as its `numbers`, one after another.

    Raises:
        ValueError: there are not `lanes` random numbers a row.
    """
    if uniforms.shape[1:] != (lanes(augmentations),):
        raise ValueError(f"random numbers of shape {uniforms.shape}; give [rows, {lanes(augmentations)}]")
    drawn, lane = [np.empty((len(uniforms), 0))], 0
    for each in augmentations:
        drawn.append(each.draw(uniforms[:, lane : lane + each.lanes]))
        lane += each.lanes
    return np.concatenate(drawn, 1)


def output_shape(augmentations: Sequence[Augmentation], shape: Shape) -> Shape:
    """Returns the result's shape; None where it differs from image to image."""
    for each in augmentations:
        shape = each.output_shape(shape)
    return shape


def acting(augmentations: Sequence[Augmentation], row: Values) -> list[Acting]:
    """Returns the changes that act on an image, by its row of `parameters`, each with its own part of it."""
    ends = accumulate(each.numbers for each in augmentations)
    parts = [(each, row[end - each.numbers : end]) for each, end in zip(augmentations, ends, strict=True)]
    return [(change, values) for change, values in parts if change.acts(values)]


def first_window(changes: Sequence[Acting], height: int, width: int) -> Window | None:
    """Returns the window that acting changes begin with, of an image of some size; None where they need all pixels."""
    first, values = changes[0] if changes else (None, ())
    return first.window(values, height, width) if isinstance(first, Crop) else None


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
        augmentations: what `check` gave.
        parameters: the image's row of `parameters`.
        out: where the result is written, uint8 of its shape; any memory whose rows of pixels are whole.
        mask: the values are no colours, such as a mask's classes: pixels move and do not change. A crop takes the
            nearest pixel; colours, cutout and users' functions are left out.

    Returns:
        The pixels, which are `out` where that is given, else may be a view of what was given; and the boxes, float32
        [n, 4], clipped to the image, each in its place: zeros where nothing of it is left.

    Raises:
        ValueError: `out` has another shape than the result, or a user's function gave something else than pixels.
    """
    row = np.asarray(parameters).tolist()  # single numbers of Python's are several times faster
    return apply_acting(pixels, boxes, acting(augmentations, row), out, mask=mask)


def apply_acting(
    pixels: Pixels | ImagePart, boxes: Boxes | None, changes: Sequence[Acting], out: Pixels | None = None, *, mask: bool
) -> tuple[Pixels, Boxes | None]:
    """Changes one image, as `apply`, or the part of an image that holds all pixels of `first_window`."""
    moved = None if boxes is None else np.clip(boxes.astype(np.float64), 0, 1)
    resizing = sum([change.resizes for change, _ in changes])
    for change, values in changes:
        resizing -= change.resizes
        into = None if resizing else out
        if moved is not None:
            moved = change.move_boxes(moved, values, *_sides(pixels))
        if isinstance(pixels, ImagePart):
            pixels = change.apply_to_part(pixels, into, mask=mask)  # type: ignore[attr-defined] # a Crop
        else:
            change_pixels = change.apply_to_mask if mask else change.apply
            pixels = change_pixels(pixels, values, into)
    assert not isinstance(pixels, ImagePart)  # noqa: S101 - its first change is a crop
    if out is not None and pixels is not out:
        pixels = copied(pixels, out)
    return pixels, None if moved is None else _without_slivers(moved)


def _sides(pixels: Pixels | ImagePart) -> tuple[int, int]:
    return (pixels.height, pixels.width) if isinstance(pixels, ImagePart) else pixels.shape[:2]


def _without_slivers(boxes: Floats) -> Boxes:
    """Makes boxes of no area zeros."""
    kept = boxes.astype(np.float32)
    kept[(kept[:, 2:] - kept[:, :2] < LEAST_SIDE).any(1)] = 0
    return kept


NO_BOXES = "Views gives several views of an image, and boxes belong to one: leave the boxes out, features=[…]"


class Group(Movement):
    """A movement that is several changes, one after another."""

    @abstractmethod
    def inside(self, values: Values) -> Iterable[Acting]:
        """Returns the changes that act on an image of these parameters."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        return apply_acting(pixels, None, list(self.inside(values)), out, mask=False)[0]

    def apply_to_mask(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        return apply_acting(pixels, None, list(self.inside(values)), out, mask=True)[0]

    def move_boxes(self, boxes: Floats, values: Values, height: int, width: int) -> Floats:
        for change, own in self.inside(values):
            boxes = change.move_boxes(boxes, own, height, width)
        return boxes


@dataclass(frozen=True)
class Changes(Movement):
    """Changes, and users' functions, one after another."""

    changes: Sequence[Augmentation | UserFunction]

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", check(self.changes))

    @property
    def inner(self) -> tuple[Augmentation, ...]:
        """The changes, checked."""
        return self.changes  # type: ignore[return-value] # `check` made them so


@dataclass(frozen=True)
class RandomApply(Changes, Group):
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
        return values[0] > 0

    def inside(self, values: Values) -> list[Acting]:
        return acting(self.inner, values[1:])


@dataclass(frozen=True)
class Views(Changes):
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
        return np.column_stack([parameters(self.inner, part) for part in np.split(uniforms, self.count, 1)])

    def output_shape(self, shape: Shape) -> Shape:
        height, width, channels = output_shape(self.inner, shape)
        return None if height is None else self.count * height, width, channels

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        return self._views(pixels, values, out, mask=False)

    def apply_to_mask(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
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
