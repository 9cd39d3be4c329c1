"""Lists of augmentations: checked, drawn for a batch, applied in order to an image and its boxes; and groups of them.

The last crop writes into the batch's memory, and later changes work there in place, without further copies.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images.augment import base
from recordmill.transforms.images.augment.base import Acting, Augmentation, Floats, Lying, Movement, Pixels, Values

UserFunction: TypeAlias = Callable[[Pixels, "np.random.Generator"], Pixels]
Boxes: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class OwnFunction(Augmentation):
    """A user's function of pixels, uint8 [height, width, c], and a generator; it returns pixels of that shape.

    It gets a copy that it may change. Boxes stay unchanged.
    """

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    function: UserFunction

    def draw(self, uniforms: Floats) -> Floats:
        """Returns two integers below 2**53, the generator's seed."""
        return np.floor(uniforms * 2.0**53)

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        """Calls the function. Raises: ValueError: it returns something else than pixels."""
        rng = np.random.Generator(np.random.PCG64([int(value) for value in values]))
        result = self.function(pixels.copy(), rng)
        if isinstance(result, np.ndarray) and result.dtype == pixels.dtype and result.shape == pixels.shape:
            return result
        got = f"{result.dtype} {list(result.shape)}" if isinstance(result, np.ndarray) else repr(result)
        name = getattr(self.function, "__name__", self.function)
        raise ValueError(f"augment's function {name} gave {got}; return pixels, {pixels.dtype} {list(pixels.shape)}")


@dataclass(frozen=True)
class Mask:
    """Changes of images of class ids or other values that are not colours: pixels move, but keep their values.

    A scaling crop takes the nearest pixel; colours, cutouts and users' functions are skipped. With the changes of an
    image, its mask moves along.
    """

    changes: Sequence[Augmentation | UserFunction]


class Augment(NamedTuple):
    """Changes of a feature's images, and the parameters drawn for each row."""

    changes: Sequence[Augmentation]
    parameters: Floats  # float64 [rows, numbers]; all images of a row change alike
    mask: bool = False  # pixels are not colours, and only move


def check(augmentations: Sequence[Augmentation | UserFunction]) -> tuple[Augmentation, ...]:
    """Turns changes and users' functions into changes. Raises: ValueError: not a list, or an invalid item."""
    if not isinstance(augmentations, Sequence):
        raise ValueError(f"augment is {augmentations!r}; give a list, such as [RandomResizedCrop(224), RandomFlip()]")
    checked = list[Augmentation]()
    for given in augmentations:
        if isinstance(given, type) and issubclass(given, Augmentation):
            raise ValueError(f"augment holds the class {given.__name__}; write {given.__name__}(...), with its options")
        if not isinstance(given, Augmentation) and (not callable(given) or isinstance(given, type)):
            raise ValueError(f"augment holds {given!r}; give changes such as RandomFlip(), or functions (pixels, rng)")
        checked.append(given if isinstance(given, Augmentation) else OwnFunction(given))
    return tuple(checked)


def check_deep(augmentations: Sequence[Augmentation]) -> None:
    """Refuses all but movements and users' functions for deep images. Raises: ValueError."""
    for each in augmentations:
        if isinstance(each, Changes):
            check_deep(each.inner)
        elif not isinstance(each, Movement | OwnFunction) or isinstance(each, Group):
            raise ValueError(f"{each} changes colours of 8 bits: leave it out, or give a function (pixels, rng)")
        elif isinstance(getattr(each, "fill", 0), tuple):
            raise ValueError(f"{each}: fill is a colour; give a number")


def lanes(augmentations: Sequence[Augmentation]) -> int:
    """Counts the random numbers of an image."""
    return sum(each.lanes for each in augmentations)


def parameters(augmentations: Sequence[Augmentation], uniforms: Floats) -> Floats:
    """Makes parameters, float64 [rows, numbers], from `lanes` random numbers in [0, 1). Raises: ValueError: others."""
    if uniforms.shape[1:] != (lanes(augmentations),):
        raise ValueError(f"random numbers of shape {uniforms.shape}; give [rows, {lanes(augmentations)}]")
    drawn, lane = [np.empty((len(uniforms), 0))], 0
    for each in augmentations:
        drawn.append(each.draw(uniforms[:, lane : lane + each.lanes]))
        lane += each.lanes
    return np.concatenate(drawn, 1)


def output_shape(augmentations: Sequence[Augmentation], shape: base.Shape) -> base.Shape:
    """Returns the result's shape; None for sides that vary by image."""
    for each in augmentations:
        shape = each.output_shape(shape)
    return shape


def acting(augmentations: Sequence[Augmentation], row: Values) -> list[Acting]:
    """Returns the changes that act on an image, groups in parts, with their numbers of its row of `parameters`."""
    ends = accumulate(each.numbers for each in augmentations)
    parts = zip(augmentations, ends, strict=True)
    return [acting for each, end in parts for acting in each.inside(row[end - each.numbers : end])]


def apply(
    pixels: Pixels,
    boxes: Boxes | None,
    augmentations: Sequence[Augmentation],
    parameters: Floats | Values,
    out: Pixels | None = None,
    *,
    mask: bool = False,
) -> tuple[Pixels, Boxes | None]:
    """Changes one image, uint8 [height, width, c], not empty and never written to, by its row of `parameters`.

    `boxes` are float32 [n, 4], y_min, x_min, y_max, x_max, 0 to 1; `out` is memory for the result, uint8 of its shape,
    with contiguous rows of pixels; pixels of a `mask` only move. Returns the pixels, in `out` if given, else possibly a
    view of the input; and the boxes, clipped to the image, in order: zeros for lost ones. Raises: ValueError: a wrong
    shape of `out`, or of a user's function's result.
    """
    row = np.asarray(parameters).tolist()  # Python's numbers are several times faster
    moved = None if boxes is None else boxes.copy()
    lying = () if moved is None else (base.MovedBoxes(moved),)
    pixels = apply_acting(pixels, lying, acting(augmentations, row), out, mask=mask)
    return pixels, None if moved is None else moved.astype(np.float32)


def apply_acting(
    pixels: Pixels | base.ImagePart,
    lying: Sequence[Lying],
    changes: Sequence[Acting],
    out: Pixels | None = None,
    *,
    mask: bool = False,
    outside: int = 0,
) -> Pixels:
    """Changes one image as `apply`, or a part with all pixels of a leading crop's window, and in place what lies on it.

    `outside` is the value that movements of a whole mask show outside the image; `out` is then left alone.
    """
    if outside:
        assert not isinstance(pixels, base.ImagePart)  # noqa: S101 - of JPEGs, which hold no masks
        hidden = pixels.dtype.type(outside)
        return apply_acting(pixels ^ hidden, lying, changes, mask=mask) ^ hidden  # changes show zeros there
    resizing = sum([change.resizes for change, _ in changes])
    for change, values in changes:
        resizing -= change.resizes
        into = None if resizing else out
        if isinstance(change, Movement):
            sides = (pixels.height, pixels.width) if isinstance(pixels, base.ImagePart) else pixels.shape[:2]
            for each in lying:
                each.move(change, values, *sides)
        if isinstance(pixels, base.ImagePart):
            pixels = change.apply_to_part(pixels, into, mask=mask)  # type: ignore[attr-defined] # a Crop
        elif isinstance(change, Movement):
            pixels = change.apply(pixels, values, into, mask=mask)
        elif not mask:
            pixels = change.apply(pixels, values, into)
    assert not isinstance(pixels, base.ImagePart)  # noqa: S101 - a crop comes first
    if out is not None and pixels is not out:
        pixels = base.copied(pixels, out)
    for each in lying:
        each.put()
    return pixels


NO_POINTS = "Views makes several views of an image, but boxes and key points belong to one: omit them, features=[…]"


class Group(Augmentation):
    """Several changes as one."""

    @abstractmethod
    def inside(self, values: Values) -> Iterable[Acting]:
        """Returns the changes that act on an image with these parameters."""

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None) -> Pixels:
        return apply_acting(pixels, (), list(self.inside(values)), out)


@dataclass(frozen=True)
class Changes(Augmentation):
    """Changes and users' functions, in order."""

    changes: Sequence[Augmentation | UserFunction]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "changes", check(self.changes))

    @property
    def inner(self) -> tuple[Augmentation, ...]:
        return self.changes  # type: ignore[return-value] # by `check`


@dataclass(frozen=True)
class RandomApply(Changes, Group):
    """Applies all changes with probability `p`, or none; they keep the image's size."""

    p: base.Share = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for change in self.inner:
            if change.resizes:
                raise ValueError(f"RandomApply holds {change}, which changes the size: move it outside")

    @property
    def lanes(self) -> int:
        return 1 + lanes(self.inner)

    @property
    def numbers(self) -> int:
        return 1 + sum(change.numbers for change in self.inner)

    def draw(self, uniforms: Floats) -> Floats:
        return np.column_stack([uniforms[:, 0] < self.p, parameters(self.inner, uniforms[:, 1:])])

    def inside(self, values: Values) -> list[Acting]:
        return acting(self.inner, values[1:]) if values[0] > 0 else []


@dataclass(frozen=True)
class Views(Changes, Movement):
    """Returns `count` views of each image, stacked vertically, each with its own draws.

    The result is `count` times as high; `images.reshape(-1, count, height, width, channels)` separates the views of a
    batch without a copy. Boxes belong to one view, so images with boxes are refused.
    """

    resizes: ClassVar[bool] = True
    count: Annotated[int, base.number(int, 1, math.inf, "the number of views, such as 2")] = 2

    @property
    def lanes(self) -> int:
        return self.count * lanes(self.inner)

    @property
    def numbers(self) -> int:
        return self.count * sum(change.numbers for change in self.inner)

    def draw(self, uniforms: Floats) -> Floats:
        return np.column_stack([parameters(self.inner, part) for part in np.split(uniforms, self.count, 1)])

    def output_shape(self, shape: base.Shape) -> base.Shape:
        height, width, channels = output_shape(self.inner, shape)
        return None if height is None else self.count * height, width, channels

    def apply(self, pixels: Pixels, values: Values, out: Pixels | None = None, *, mask: bool = False) -> Pixels:
        height, width, channels = pixels.shape
        shape = self.output_shape((height, width, channels))
        out = base.memory(out, shape, pixels.dtype)  # type: ignore[arg-type] # an image's shape gives a shape without None
        wide = len(values) // self.count
        for view, part in enumerate(np.split(out, self.count)):
            apply(pixels, None, self.inner, values[view * wide : (view + 1) * wide], part, mask=mask)
        return out

    def move_points(self, points: Floats, values: Values, height: int, width: int) -> Floats:
        raise ValueError(NO_POINTS)
