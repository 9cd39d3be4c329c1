"""Finds the orders that the four numbers of a box may have; where several fit, the spec holds a question for the user.

>>> fitting_orders(np.array([[10, 20, 90, 60], [40, 50, 50, 45]]), side=100)
['coco']
"""

import re
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.init.guess import Choice, Guess, left_out, plain_name
from recordmill.pipeline.init.recognize import counted

BOXES = re.compile(r"(?i)(.*_)?(b?box(es)?|bounding_?box(es)?)")
"""The usual names of boxes."""
ORDERS = {
    "corners": "x_min, y_min, x_max, y_max",
    "coco": "x_min, y_min, width, height",
    "center": "x_center, y_center, width, height",
    "tensorflow": "y_min, x_min, y_max, x_max",
}
ENOUGH = 0.95
"""The share of boxes that must be possible in an order: images outside the sample may be larger."""
SLACK = 0.01
"""The share of an image's side that a box may lie outside of it."""

Boxes = npt.NDArray[np.float64]
"""Boxes as the data has them, shape [boxes, 4]."""


def guess_boxes(item: Guess, name: str, image: Guess) -> Guess:
    """Makes boxes of a guess whose column is called so and holds lists of four numbers; gives any other back.

    Args:
        item: a guess of any kind.
        name: the feature of the image that they are boxes of.
        image: its guess, whose headers bound the boxes; EXIF may have turned its sides.
    """
    is_called = item.kind == "numbers" and BOXES.fullmatch(plain_name(item.column))
    if not is_called or any(len(value) % 4 for value in item.reading.values):
        return item
    boxes = np.array(list(chain.from_iterable(item.reading.values)), np.float64).reshape(-1, 4)
    is_relative = bool((boxes >= 0).all() and (boxes <= 1).all())
    sides = [side for header in chain.from_iterable(image.headers) if isinstance(header, tuple) for side in header]
    orders = fitting_orders(boxes, 1 if is_relative else max(sides, default=np.inf))
    if not orders:
        return left_out(item.column, "boxes by its name, but in no known order do they lie in images", item.reading)
    options: dict[str, Choice] = {
        "kind": ("boxes", f"{counted(len(boxes), 'box', 'boxes')}, by the column's name"),
        "image": (name, ""),
        "order": (" or ".join(orders), _why(orders)),
        "unit": ("relative", "no number is above 1") if is_relative else ("absolute", f"numbers up to {boxes.max():g}"),
    }
    return replace(item, options={**item.options, **options})


def answered(item: Guess) -> Guess:
    """Gives a guess with the first answer to its question, if it has one, so that it can be tried."""
    if "order" not in item.options:
        return item
    order, why = item.options["order"]
    return replace(item, options={**item.options, "order": (order.split()[0], why)})


def fitting_orders(boxes: Boxes, side: float) -> list[str]:
    """Lists the orders in which nearly all boxes end behind their start, and lie in images of at most that side."""
    first, second = boxes[:, :2], boxes[:, 2:]
    ends: dict[str, tuple[Any, Any]] = {
        "corners": (first, second),
        "coco": (first, first + second),
        "center": (first - second / 2, first + second / 2),
        "tensorflow": (first, second),
    }
    slack = 0 if np.isinf(side) else SLACK * side
    possible = {
        order: ((start >= -slack) & (start <= end) & (end <= side + slack)).all(axis=1)
        for order, (start, end) in ends.items()
    }
    return [order for order, fits in possible.items() if fits.mean() >= ENOUGH]


def _why(orders: list[str]) -> str:
    meanings = "; ".join(f"{order}: {ORDERS[order]}" for order in orders)
    return f"the only order that fits them; {meanings}" if len(orders) == 1 else f"keep the right one; {meanings}"
