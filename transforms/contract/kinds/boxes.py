"""Boxes of things in an image."""

from dataclasses import dataclass
from typing import ClassVar

from recordmill.transforms.contract.kinds.base import ListDescription, ListOptions


@dataclass(frozen=True, kw_only=True)
class BoxesOptions(ListOptions):
    """The options of boxes: four float32 numbers each, one list a row."""

    kind: ClassVar[str] = "boxes"
    image: str
    order: str
    unit: str
    oriented: str = "upright"


@dataclass(frozen=True, kw_only=True)
class _OfImage:
    stored: str
    image: str
    """The feature that they are boxes of."""


@dataclass(frozen=True, kw_only=True)
class BoxesDescription(ListDescription, _OfImage):
    """Any number of boxes a row: `y_min, x_min, y_max, x_max`, 0..1."""

    kind: ClassVar[str] = "boxes"
