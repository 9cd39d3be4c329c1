"""Boxes beside pictures: the order of their four numbers, by whether they lie in the pictures so."""

import re
from collections.abc import Callable, Mapping, Sequence

from recordmill.pipeline.init.column_sample import Sample
from recordmill.pipeline.init.guess_images import PICTURES, Size, header_size
from recordmill.pipeline.init.guess_kind import FITS, Guess, feature, plain_name, share_of
from recordmill.pipeline.sources.columns import Column, ColumnType

NAMED = re.compile(r"(?i)(.*_)?(b?box(es)?|bounding_?box(es)?)")
LIES = 0.98
"""The share of boxes that must lie in their pictures: real data has some that do not."""
SLACK = 1.0  # pixel: some count from 1

Box = tuple[float, float, float, float]
CORNERS: Mapping[str, Callable[[Box], Box]] = {
    "corners": lambda box: box,
    "coco": lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3]),
    "center": lambda box: (box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2),
    "tensorflow": lambda box: (box[1], box[0], box[3], box[2]),
}
"""A box's left, top, right and bottom, by each order."""
USUAL = {
    "absolute": ("corners", "coco", "tensorflow", "center"),
    "relative": ("corners", "center", "coco", "tensorflow"),
}
"""The orders by unit, the most usual first: several may hold."""


def guess_boxes(sample: Sample, name: str, image: str) -> Guess | None:
    """Guesses whether a column is boxes in the pictures of another, `image`; None where it is not."""
    if not NAMED.fullmatch(plain_name(name)):
        return None
    wanted = Column(ColumnType.NUMBER, many=True, optional=True, multiple=4)
    numbers = sample.read(name, wanted)
    if numbers.fit < FITS or not numbers.distinct:
        return None
    boxes = _boxes(sample, name, wanted, image)
    unit = "relative" if all(0 <= number <= 1 for number in numbers.distinct) else "absolute"
    lying = {order: _lying(boxes, order, unit == "relative") for order in USUAL[unit]}
    order, *others = [order for order in lying if boxes and lying[order] >= LIES * len(boxes)] or [""]
    if not order:
        return None
    guessed = feature(
        name, "boxes", f"four numbers each, in {numbers.of}", numbers, image=image, order=order, unit=unit
    )
    count = share_of(lying[order], len(boxes), f"{len(boxes):,} boxes")
    reasons = {
        "order": f"{count} lie in their pictures so{_also(others)}",
        "unit": "all numbers are from 0 to 1" if unit == "relative" else "pixels",
    }
    return Guess(name, guessed.options, {**guessed.why, **reasons}, numbers)


def _also(orders: Sequence[str]) -> str:
    return f"; they would as {' or '.join(orders)}, too" if orders else ""


def _boxes(sample: Sample, name: str, wanted: Column, column: str) -> list[tuple[Box, Size]]:
    """Some boxes with the sizes of their pictures."""
    found = []
    taken = sample.take({column: Column(ColumnType.IMAGE, optional=True), name: wanted}, (), PICTURES)
    for chunk, block in taken.blocks:
        for reference, numbers in zip(block.table[column].to_pylist(), block.table[name].to_pylist(), strict=True):
            size = header_size(sample, chunk.source, reference) if reference and numbers else None
            if isinstance(size, tuple):
                found += [(tuple(numbers[at : at + 4]), size) for at in range(0, len(numbers), 4)]
    return found


def _lying(boxes: Sequence[tuple[Box, Size]], order: str, is_relative: bool) -> int:
    """How many boxes lie in their pictures, if their numbers are in this order."""
    count = 0
    for box, size in boxes:
        width, height = (1.0, 1.0) if is_relative else size
        slack = 0.01 if is_relative else SLACK
        left, top, right, bottom = CORNERS[order](box)
        count += -slack <= left < right <= width + slack and -slack <= top < bottom <= height + slack
    return count
