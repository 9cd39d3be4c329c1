"""Random operations of AutoAugment's kind: RandAugment and TrivialAugment, in torchvision's spaces.

An operation is another augmentation, with parameters by strength; each image draws the operation and its direction.
"""

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, TypeAlias

import numpy as np

from recordmill.transforms.images.augment import colors
from recordmill.transforms.images.augment.affine import RandomAffine, affine_numbers, turn_numbers
from recordmill.transforms.images.augment.base import Acting, Augmentation, Fill, Floats, Values, number, rounded
from recordmill.transforms.images.augment.chain import Group

Bins: TypeAlias = Annotated[int, number(int, 2, math.inf, "the number of strengths, 2 or more")]
WIDTH = 12  # parameters of a chosen operation: its number, and at most 11 of its own


class Space(NamedTuple):
    """The greatest strength of each operation."""

    shear: float
    translate: float  # as a share of the side
    translate_pixels: float
    degrees: float
    factor: float  # greatest distance from 1 for brightness, contrast, colour and sharpness
    bits: int  # bits dropped by posterizing


RAND_AUGMENT = Space(0.3, 150.0 / 331.0, 0.0, 30.0, 0.9, 4)
WIDE = Space(0.99, 0.0, 32.0, 135.0, 0.99, 6)


class Operation(NamedTuple):
    """An augmentation, its strengths by bin, and their conversion to parameters."""

    change: Augmentation
    strengths: Floats
    parameters: Callable[[Floats], Floats]
    signed: bool = True  # a draw decides the strength's sign


class Policy(Group):
    """A choice of operations for each image."""

    space: ClassVar[Space]
    bins: int
    fill: Fill

    @abstractmethod
    def draw(self, uniforms: Floats) -> Floats:
        """Chooses operations, by `chosen`."""

    def chosen(self, choice: Floats, strength_bin: Floats, sign: Floats) -> Floats:
        """Makes parameters, float64 [rows, WIDTH], from random numbers and `strength_bin`, float64 [rows] each."""
        every = operations(self)
        numbers = np.floor(choice * len(every))
        drawn = np.zeros((len(choice), WIDTH))
        drawn[:, 0] = numbers
        for place, operation in enumerate(every):
            rows = np.flatnonzero(numbers == place)
            strengths = operation.strengths[strength_bin[rows].astype(int)]
            if operation.signed:
                strengths = np.where(sign[rows] < 0.5, -strengths, strengths)
            drawn[rows, 1 : 1 + operation.change.numbers] = operation.parameters(strengths)
        return drawn

    def inside(self, values: Values) -> Iterator[Acting]:
        for start in range(0, len(values), WIDTH):
            change = operations(self)[int(values[start])].change
            yield from change.inside(values[start + 1 : start + 1 + change.numbers])


@dataclass(frozen=True)
class RandAugment(Policy):
    """Applies `num_ops` independently chosen operations of one strength (Cubuk et al. 2019, arXiv:1909.13719).

    `magnitude` is the strength, 0 to `bins` - 1; `fill` is for uncovered areas.
    """

    space: ClassVar[Space] = RAND_AUGMENT
    num_ops: Annotated[int, number(int, 1, math.inf, "the number of operations, such as 2")] = 2
    magnitude: int = 9
    bins: Bins = 31
    fill: Fill = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.magnitude, int) and 0 <= self.magnitude < self.bins):
            raise ValueError(f"{self}: magnitude is {self.magnitude}; give a strength, 0 to {self.bins - 1}")

    @property
    def lanes(self) -> int:
        return 2 * self.num_ops

    @property
    def numbers(self) -> int:
        return WIDTH * self.num_ops

    def draw(self, uniforms: Floats) -> Floats:
        strength = np.full(len(uniforms), float(self.magnitude))
        pairs = np.split(uniforms, self.num_ops, 1)
        return np.column_stack([self.chosen(choice, strength, sign) for choice, sign in (pair.T for pair in pairs)])


@dataclass(frozen=True)
class TrivialAugmentWide(Policy):
    """Applies one operation of random strength, from a wide range (Müller and Hutter 2021, arXiv:2103.10158)."""

    space: ClassVar[Space] = WIDE
    lanes: ClassVar[int] = 3
    numbers: ClassVar[int] = WIDTH
    bins: Bins = 31
    fill: Fill = 0

    def draw(self, uniforms: Floats) -> Floats:
        choice, strength, sign = uniforms.T
        return self.chosen(choice, np.floor(strength * self.bins), sign)


@functools.lru_cache(maxsize=64)
def operations(policy: Policy) -> tuple[Operation, ...]:
    """Lists a policy's operations, in torchvision's order."""
    space, strengths = policy.space, np.linspace(0, 1, policy.bins)
    nothing, moved, jitter = 0 * strengths, RandomAffine(fill=policy.fill), colors.ColorJitter()
    column, none = (lambda each: each[:, np.newaxis]), (lambda each: np.empty((len(each), 0)))
    dropped = np.rint(np.arange(policy.bins) / ((policy.bins - 1) / space.bits))
    return (
        Operation(jitter, nothing, _factor(0)),  # the identity
        Operation(moved, space.shear * strengths, lambda shear: affine_numbers(1, shear, 0, 1, center=0)),
        Operation(moved, space.shear * strengths, lambda shear: affine_numbers(1, 0, shear, 1, center=0)),
        Operation(moved, strengths, _shift(space, 0)),
        Operation(moved, strengths, _shift(space, 1)),
        Operation(moved, space.degrees * strengths, turn_numbers),
        Operation(jitter, space.factor * strengths, _factor(0)),  # brightness
        Operation(jitter, space.factor * strengths, _factor(2)),  # colour
        Operation(jitter, space.factor * strengths, _factor(1)),  # contrast
        Operation(colors.RandomSharpness(), space.factor * strengths, lambda change: rounded(1 + change[:, None])),
        Operation(colors.Posterize(8), 8 - dropped, column, signed=False),
        Operation(colors.Solarize(), 255 * strengths[::-1], column, signed=False),
        Operation(colors.AutoContrast(), nothing, none, signed=False),
        Operation(colors.Equalize(), nothing, none, signed=False),
    )


def _factor(number: int) -> Callable[[Floats], Floats]:
    """Returns a function from changes of one factor, brightness, contrast or saturation, to colour maps."""

    def numbers(changes: Floats) -> Floats:
        factors = np.ones((3, len(changes)))
        factors[number] += changes
        return colors.color_numbers(factors[0], factors[1], factors[2], np.zeros(len(changes)))

    return numbers


def _shift(space: Space, axis: int) -> Callable[[Floats], Floats]:

    def numbers(strengths: Floats) -> Floats:
        shares, pixels = ([0.0 * strengths, 0.0 * strengths] for _ in range(2))
        shares[axis], pixels[axis] = space.translate * strengths, space.translate_pixels * strengths
        return affine_numbers(1, 0, 0, 1, shares=shares, pixels=pixels)

    return numbers
