"""Boxes and key points on an image, moved with it.

>>> eyes = np.array([[[0.5, 0.25, 2], [0.5, 0.5, 1]]], np.float32)  # one object: left, right
>>> moved = MovedKeypoints(eyes, [1, 0])
>>> moved.move(RandomFlip(), (1.0, 0.0), 10, 10)  # doctest: +SKIP
>>> moved.put()  # doctest: +SKIP
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.numpy.augment.base import Movement, Values

NEAR = 2.0**-20  # a share of the image: rounding moves what touches an edge by about a billionth


class Lying(ABC):
    """Places on an image, on their way through its changes."""

    @abstractmethod
    def move(self, change: Movement, values: Values, height: int, width: int) -> None:
        """Moves them with an image of this size by a change with these parameters."""

    @abstractmethod
    def put(self) -> None:
        """Writes them back."""


class MovedBoxes(Lying):
    """Boxes, y_min, x_min, y_max, x_max, 0 to 1; those without area become zeros."""

    def __init__(self, boxes: npt.NDArray[np.floating[Any]]) -> None:
        """Takes floats [n, 4], to be overwritten."""
        self._boxes, self._moved = boxes, np.clip(boxes.astype(np.float64), 0, 1)

    def move(self, change: Movement, values: Values, height: int, width: int) -> None:
        self._moved = change.move_boxes(self._moved, values, height, width)

    def put(self) -> None:
        kept = self._moved.astype(np.float32)
        kept[(kept[:, 2:] - kept[:, :2] < NEAR).any(1)] = 0
        self._boxes[...] = kept


class MovedKeypoints(Lying):
    """Key points, y, x, visibility; those that leave the image, and invisible ones, become zeros."""

    def __init__(self, points: npt.NDArray[np.float32], partners: Sequence[int]) -> None:
        """Takes float32 [n, points, 3], to be overwritten, and the index of each one's partner in a mirror."""
        self._points, self._moved, self._partners = points, points.astype(np.float64), partners

    def move(self, change: Movement, values: Values, height: int, width: int) -> None:
        places = change.move_points(self._moved[..., :2].reshape(-1, 2), values, height, width)
        places = places.reshape(*self._moved.shape[:2], 2)
        inside = ((places >= -NEAR) & (places <= 1 + NEAR)).all(-1, keepdims=True)
        self._moved[..., :2] = np.clip(places, 0, 1)
        self._moved *= inside
        if change.mirrors(values):
            self._moved = self._moved[:, self._partners]

    def put(self) -> None:
        self._points[...] = self._moved * (self._moved[..., 2:] > 0)
