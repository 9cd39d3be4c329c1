"""Guesses boxes, and the order of their numbers: the one that fits, or the user's answer."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import UserError
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
"""The share of an image's side by which a box may leave it."""

Boxes = npt.NDArray[np.float64]
"""Boxes as the data has them, shape [boxes, 4]."""


@dataclass(frozen=True)
class Answers:
    """The user's answers to what no data can tell."""

    order: str | None = None
    """The order of all boxes."""
    encoding: str | None = None
    """The encoding of files of text."""
    ask: Callable[[str, Sequence[str]], str] | None = None
    """Asks a question at the terminal, and returns one of the possible answers; None where nobody is there."""

    def order_of(self, name: str, orders: Sequence[str]) -> str:
        """Decides between the orders that fit the boxes of a column.

        Raises: UserError: nobody answers, or the answer does not fit.
        """
        if self.order is not None and self.order not in orders:
            fit = f"{' and '.join(orders)} would" if orders else "no other order would, either"
            raise UserError(f"--order {self.order}: as such, many boxes of '{name}' end outside images; {fit} fit")
        if self.order is not None or len(orders) == 1:
            return self.order or orders[0]
        meanings = "; ".join(f"{order}: {ORDERS[order]}" for order in orders)
        question = f"the four numbers of '{name}' fit several orders ({meanings})"
        if self.ask is None:
            raise UserError(f"{question}: give the right one by {' or '.join(f'--order {order}' for order in orders)}")
        return self.ask(question, orders)


def guess_boxes(
    item: Guess, name: str, image: Guess, answers: Answers, known: Mapping[str, Choice] | None = None
) -> Guess:
    """Makes boxes of a guess whose column is called so and holds lists of four numbers; returns any other as it is.

    Args:
        item: a guess of any kind.
        name: the feature of the image that they are boxes of.
        image: its guess, whose headers bound the boxes; EXIF may have turned its sides.
        answers: decide between several orders.
        known: the order and the unit, where the source's format states them.

    Raises: UserError: they do not.
    """
    is_called = item.kind == "numbers" and BOXES.fullmatch(plain_name(item.column))
    if not is_called or any(len(value) % 4 for value in item.reading.values):
        return item
    boxes = np.array(list(chain.from_iterable(item.reading.values)), np.float64).reshape(-1, 4)
    what = ("boxes", f"{counted(len(boxes), 'box', 'boxes')}, by the column's name")
    if known:
        return replace(item, options={**item.options, "kind": what, "image": (name, ""), **known})
    is_relative = bool((boxes >= 0).all() and (boxes <= 1).all())
    sizes = [header[:2] for header in chain.from_iterable(image.headers) if isinstance(header, tuple)]
    sides = np.array(sizes).max(axis=0) if sizes and not is_relative else np.full(2, 1 if is_relative else np.inf)
    orders = _without_unlikely(fitting_orders(boxes, sides.max()), boxes, sides)
    if not orders:
        return left_out(item.column, "boxes by its name, but in no known order are they inside images", item.reading)
    order = answers.order_of(item.column, orders)
    options: dict[str, Choice] = {
        "kind": what,
        "image": (name, ""),
        "order": (
            order,
            f"{ORDERS[order]}; {'as answered' if len(orders) > 1 else 'no other order fits'}",
        ),
        "unit": ("relative", "no number is above 1") if is_relative else ("absolute", f"numbers up to {boxes.max():g}"),
    }
    return replace(item, options={**item.options, **options})


def _without_unlikely(orders: list[str], boxes: Boxes, sides: npt.NDArray[Any]) -> list[str]:
    """Leaves `tensorflow` out where only `corners` keeps to width and height; not the reverse: EXIF may turn them."""
    corners, others = ((boxes[:, ends] <= sides * (1 + SLACK)).all(axis=1).mean() for ends in ([2, 3], [3, 2]))
    return [order for order in orders if order != "tensorflow"] if others < ENOUGH <= corners else orders


def fitting_orders(boxes: Boxes, side: float) -> list[str]:
    """Lists the orders in which nearly all boxes end behind their start, inside images of at most that side."""
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
