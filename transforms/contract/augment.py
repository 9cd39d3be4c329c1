"""Random changes of training images: their options, and the parameters that are drawn for each image.

A change takes `lanes` random numbers an image and makes `numbers` parameters of them. Values that depend on an image's
size, such as where a crop begins, follow from the parameters by exactly rounded operations (+, -, *, /, root, floor in
float64), so every machine takes the same pixels. `transforms.numpy.augment` applies them, in the list's order, to
uint8 [height, width, c].

>>> changes = check([RandomResizedCrop(224), RandomFlip()])
>>> uniforms = np.random.default_rng(0).random((64, lanes(changes)))
>>> parameters(changes, uniforms).shape
(64, 6)
>>> output_shape(changes, (None, None, 3))
(224, 224, 3)
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.contract.augment_places import Move, Window, around
from recordmill.transforms.contract.color_matrix import SAME_COLORS, color_numbers

Floats: TypeAlias = npt.NDArray[np.float64]
Shape: TypeAlias = tuple[int | None, int | None, int]
"""Height, width and channels; None for a side that is not known before the image."""
UserFunction: TypeAlias = Callable[[npt.NDArray[np.uint8], np.random.Generator], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class Augmentation:
    """A change of one image; its options are checked when it is made.

    Raises:
        ValueError: an option is out of its range.
    """

    lanes: ClassVar[int] = 0
    """The random numbers of an image."""
    numbers: ClassVar[int] = 0
    """The parameters that are made from them."""

    def draw(self, uniforms: Floats) -> Floats:
        """Makes parameters, float64 [rows, numbers], of random numbers, float64 [rows, lanes] in [0, 1)."""
        return uniforms

    def output_shape(self, shape: Shape) -> Shape:
        """Gives the result's shape."""
        return shape

    def acts(self, values: Sequence[float]) -> bool:
        """Whether an image of these parameters changes at all."""
        return True

    def move(self, values: Sequence[float], height: int, width: int) -> Move | None:
        """Gives the map of boxes, by the image's size before; None where they stay."""
        return None


@dataclass(frozen=True)
class Crop(Augmentation):
    """Cuts a window and, where it `scales`, brings it to a size, in pixels: height and width, or one number for both.

    Scaling is bilinear with half-pixel centres and without antialiasing.
    """

    scales: ClassVar[bool] = False
    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        _check_size(self, self.size)

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the result."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def output_shape(self, shape: Shape) -> Shape:
        """Gives the size, for any image."""
        return (*self.sides, shape[2])

    def window(self, values: Sequence[float], height: int, width: int) -> Window:
        """Gives the window of an image of some size, by its parameters."""
        raise NotImplementedError

    def move(self, values: Sequence[float], height: int, width: int) -> Move:
        """Gives the map from the image to the window."""
        y, x, high, wide = self.window(values, height, width)
        # Times reciprocals, not divided: a box keeps the bits that it always had.
        down, across = 1.0 / high, 1.0 / wide
        return Move(False, height * down, width * across, -y * down, -x * across)


@dataclass(frozen=True)
class RandomResizedCrop(Crop):
    """Cuts a random part of the image and brings it to `size` (Szegedy et al. 2014, as torchvision's).

    `area` is the part's share of the image's pixels, uniform; `aspect` its width by its height, uniform in its
    logarithm. A side that is longer than the image's is shortened to it: there is one draw, never another try.
    """

    lanes: ClassVar[int] = 4
    numbers: ClassVar[int] = 4
    scales: ClassVar[bool] = True
    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise ValueError(f"{self}: area is no range of shares; give (least, most) of 0 to 1, such as (0.08, 1)")
        if not 0 < self.aspect[0] <= self.aspect[1] < math.inf:
            raise ValueError(f"{self}: aspect is no range of ratios; give (least, most) above 0, such as (0.75, 1.33)")

    def draw(self, uniforms: Floats) -> Floats:
        """Gives the part's height and width by the root of the image's area, and its offsets as shares of the room."""
        narrow, wide = math.log(self.aspect[0]), math.log(self.aspect[1])
        area = self.area[0] + (self.area[1] - self.area[0]) * uniforms[:, 0]
        aspect = np.exp(narrow + (wide - narrow) * uniforms[:, 1])
        return np.column_stack([np.sqrt(area / aspect), np.sqrt(area * aspect), uniforms[:, 2:]])

    def window(self, values: Sequence[float], height: int, width: int) -> Window:
        """Rounds sides half up, to 1 at least."""
        root = math.sqrt(height * width)
        high = min(max(math.floor(values[0] * root + 0.5), 1), height)
        wide = min(max(math.floor(values[1] * root + 0.5), 1), width)
        y = math.floor(values[2] * (height - high + 1))
        return Window(y, math.floor(values[3] * (width - wide + 1)), high, wide)


@dataclass(frozen=True)
class RandomCrop(Crop):
    """Cuts a part of `size` at a random place; `pad` zeros on every side are there first.

    An image that is smaller all the same lies in the middle of zeros.
    """

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    pad: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad < 0:
            raise ValueError(f"{self}: pad is negative; give pixels, 0 for none")

    def window(self, values: Sequence[float], height: int, width: int) -> Window:
        """Gives every place the same chance."""

        def start(value: float, side: int, size: int) -> int:
            canvas = max(side + 2 * self.pad, size)
            return math.floor(value * (canvas - size + 1)) - math.floor((canvas - side) * 0.5)

        high, wide = self.sides
        return Window(start(values[0], height, high), start(values[1], width, wide), high, wide)


@dataclass(frozen=True)
class CenterCrop(Crop):
    """Cuts the middle, of `size`; a smaller image lies in the middle of zeros."""

    def window(self, values: Sequence[float], height: int, width: int) -> Window:
        """Leaves the larger half of an odd margin below and to the right."""
        high, wide = self.sides
        return Window(math.floor((height - high) * 0.5), math.floor((width - wide) * 0.5), high, wide)


@dataclass(frozen=True)
class Resize(Crop):
    """Brings the whole image to `size`; its shape is stretched to the size's."""

    scales: ClassVar[bool] = True

    def window(self, values: Sequence[float], height: int, width: int) -> Window:
        """Gives the whole image."""
        return Window(0, 0, height, width)


@dataclass(frozen=True)
class RandomFlip(Augmentation):
    """Mirrors the image: left with right by the probability `horizontal`, top with bottom by `vertical`."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    horizontal: float = 0.5
    vertical: float = 0.0

    def __post_init__(self) -> None:
        _check_shares(self, horizontal=self.horizontal, vertical=self.vertical)

    def draw(self, uniforms: Floats) -> Floats:
        """Gives 1 for mirrored images, else 0: horizontally, vertically."""
        return (uniforms < [self.horizontal, self.vertical]).astype(np.float64)

    def acts(self, values: Sequence[float]) -> bool:
        """Whether the image is mirrored."""
        return any(values)

    def move(self, values: Sequence[float], height: int, width: int) -> Move:
        """Maps a mirrored point p to 1 - p."""
        horizontal, vertical = values[0], values[1]
        return Move(False, 1.0 - 2.0 * vertical, 1.0 - 2.0 * horizontal, vertical, horizontal)


@dataclass(frozen=True)
class RandomRotation90(Augmentation):
    """Turns the image, with probability `p`, by 90, 180 or 270 degrees, each as likely.

    An image that is not square is turned by 180 degrees, so that it keeps its size.
    """

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 1
    p: float = 0.75

    def __post_init__(self) -> None:
        _check_shares(self, p=self.p)

    def draw(self, uniforms: Floats) -> Floats:
        """Gives quarter turns, 0 to 3, of a square image."""
        return (uniforms[:, :1] < self.p) * (1.0 + np.floor(uniforms[:, 1:] * 3.0))

    def acts(self, values: Sequence[float]) -> bool:
        """Whether the image is turned."""
        return values[0] > 0

    def turns(self, values: Sequence[float], height: int, width: int) -> int:
        """Gives quarter turns, counterclockwise, of an image of some size: 0 to 3; 0 or 2 where it is not square."""
        return int(values[0]) if height == width else 2 * min(int(values[0]), 1)

    def move(self, values: Sequence[float], height: int, width: int) -> Move:
        """Transposes at odd turns, then mirrors: top with bottom at 1 and 2, left with right at 2 and 3."""
        turns = self.turns(values, height, width)
        down, across = float(turns in (1, 2)), float(turns in (2, 3))
        return Move(turns % 2 == 1, 1.0 - 2.0 * down, 1.0 - 2.0 * across, down, across)


@dataclass(frozen=True)
class ColorJitter(Augmentation):
    """Changes brightness, contrast, saturation and hue, all in one step; their order makes no difference.

    `brightness`, `contrast` and `saturation`, 0 to 1, draw a factor from 1 - x to 1 + x; `hue`, 0 to 0.5, draws a turn
    of the colours from -x to x. 0 leaves it alone. Grey images have neither saturation nor hue.
    """

    lanes: ClassVar[int] = 4
    numbers: ClassVar[int] = 11
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        _check_shares(self, brightness=self.brightness, contrast=self.contrast, saturation=self.saturation)
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"{self}: hue is {self.hue}; give the largest turn, 0 to 0.5")

    def draw(self, uniforms: Floats) -> Floats:
        """Makes color maps of the three factors and the turn (`transforms.contract.color_matrix`)."""
        change = (2 * uniforms - 1) * [self.brightness, self.contrast, self.saturation, self.hue]
        return color_numbers(1 + change[:, 0], 1 + change[:, 1], 1 + change[:, 2], change[:, 3])

    def acts(self, values: Sequence[float]) -> bool:
        """Whether the map changes any color."""
        return tuple(values) != SAME_COLORS


@dataclass(frozen=True)
class RandomCutout(Augmentation):
    """Fills a rectangle of `size`, in pixels, around a random point; cut off at the image's edge (DeVries 2017)."""

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    size: int | tuple[int, int]
    fill: int = 0

    def __post_init__(self) -> None:
        _check_size(self, self.size)
        if not 0 <= self.fill <= 255:
            raise ValueError(f"{self}: fill is {self.fill}; give a level, 0 to 255")

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the rectangle."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def window(self, values: Sequence[float], height: int, width: int) -> Window:
        """Gives the filled rectangle, which lies inside of the image."""
        y, high = around(values[0], self.sides[0], height)
        x, wide = around(values[1], self.sides[1], width)
        return Window(y, x, high, wide)


@dataclass(frozen=True)
class OwnFunction(Augmentation):
    """A user's function of pixels, uint8 [height, width, c], and a generator; it gives pixels of that shape.

    It gets a copy that it may change, and is not shown boxes, which stay.
    """

    lanes: ClassVar[int] = 2
    numbers: ClassVar[int] = 2
    function: UserFunction

    def draw(self, uniforms: Floats) -> Floats:
        """Gives two whole numbers below 2**53, the generator's seed."""
        return np.floor(uniforms * 2.0**53)


@dataclass(frozen=True)
class Mask:
    """Changes of images whose values are no colours, such as classes of pixels: the values move, and do not change.

    A crop that scales takes the nearest pixel; colours, cutouts and functions of the user's are left out. With the same
    changes as an image's, mask and image move together.
    """

    changes: Sequence[Augmentation | UserFunction]


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
    """The random numbers of an image."""
    return sum(each.lanes for each in augmentations)


def numbers(augmentations: Sequence[Augmentation]) -> int:
    """The parameters that are made from them."""
    return sum(each.numbers for each in augmentations)


def parameters(augmentations: Sequence[Augmentation], uniforms: Floats) -> Floats:
    """Makes the images' parameters of random numbers.

    Args:
        augmentations: what `check` gave.
        uniforms: float64 [rows, lanes] in [0, 1).

    Returns:
        float64 [rows, numbers]: of each change as many columns as its `numbers`, one after another. `by_change` parts
        a row of it.

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


def by_change(augmentations: Sequence[Augmentation], row: Any) -> Iterator[tuple[Augmentation, Any]]:
    """Gives each change with its own parameters, a part of a row of `parameters`."""
    start = 0
    for each in augmentations:
        yield each, row[start : start + each.numbers]
        start += each.numbers


def output_shape(augmentations: Sequence[Augmentation], shape: Shape) -> Shape:
    """Gives the result's shape; None where it differs from image to image."""
    for each in augmentations:
        shape = each.output_shape(shape)
    return shape


def _check_shares(augmentation: Augmentation, **options: float) -> None:
    for name, value in options.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{augmentation}: {name} is {value}; give a number of 0 to 1")


def _check_size(augmentation: Augmentation, size: Any) -> None:
    sides = size if isinstance(size, tuple) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError(f"{augmentation}: the size is no number of pixels; give such as 224, or (192, 256)")
