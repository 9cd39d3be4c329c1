"""Guesses boxes and run lengths of masks, on images and in tables with several rows of an image.

Run lengths are texts of starts and lengths such as `1 3 10 5`. Counted along the right side, most pixels touch others
of their object in the next line, a column or a row further.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init import images as pictures
from recordmill.pipeline.init.doubts import Doubt
from recordmill.pipeline.init.guess import FITS, Choice, Guess, feature, left_out
from recordmill.pipeline.init.recognize import NAMING
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.formats.image_fields import IMAGE
from recordmill.pipeline.sources.naming import BOXES, CLASSES, ID, MASK_COLUMN, MAYBE_MASK, POINTS, plain_name
from recordmill.pipeline.sources.paths import listed
from recordmill.transforms.base.bounds import ImageError
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.images.places_spec import ORDERS
from recordmill.transforms.images.shapes import counts_of_runs

NAMED = (
    ("corners", ("x_min xmin min_x minx left xtl x_tl tl_x tlx x_start start_x xstart startx x_lo lo_x",
                 "y_min ymin min_y miny top ytl y_tl tl_y tly y_start start_y ystart starty y_lo lo_y",
                 "x_max xmax max_x maxx right xbr x_br br_x brx x_end end_x xend endx x_hi hi_x",
                 "y_max ymax max_y maxy bottom ybr y_br br_y bry y_end end_y yend endy y_hi hi_y")),
    ("corners", ("x1 x_1", "y1 y_1", "x2 x_2", "y2 y_2")),
    ("corners", ("x0 x_0", "y0 y_0", "x1 x_1", "y1 y_1")),
    ("coco", ("x x_min xmin left x1 x_1 x0 x_0", "y y_min ymin top y1 y_1 y0 y_0", "w width", "h height")),
    ("center", ("x_center xcenter xc cx x_c c_x center_x centerx",
                "y_center ycenter yc cy y_c c_y center_y centery", "w width", "h height")),
)  # fmt: skip
"""Usual names of four columns of boxes, behind the same beginning, with `_`, a blank or a hyphen."""
LIKE = {"corners": ("corners",), "coco": ("coco", "center"), "center": ("center",)}
"""The orders that names may mean: x and y with a width may be a centre."""
WITHOUT_NAMES = re.compile(r"column_\d+")  # as `init` names columns of a file without a header
COLUMNS = "boxes"
CLEAR = 1.2  # times as many pixels that touch others: square images, and nearly square ones, tell nothing
BOTH = "both fit, as with square images; usual on Kaggle"


def box_columns(sample: SourceSample) -> tuple[str, list[str]] | None:
    """Finds four columns of boxes by name, or without names by value, and their order."""
    found = _named(sample.names)
    if found is None and all(map(WITHOUT_NAMES.fullmatch, sample.names)):
        fours = (sample.names[start : start + 4] for start in range(len(sample.names) - 3))
        read = ((four, _rows(sample, four)) for four in fours)
        ends = (four for four, rows in read if rows and "corners" in fitting_orders(_boxes(rows), np.inf))
        found = next((("corners", four) for four in ends), None)
    return found if found and any(_rows(sample, found[1])) else None


def _named(names: Sequence[str]) -> tuple[str, list[str]] | None:
    for order, patterns in NAMED:
        found = dict[str, dict[int, str]]()
        for name, plain in ((name, re.sub("[ -]", "_", name.lower())) for name in names):
            for place, words in enumerate(patterns):
                for start in (plain[: -len(word)] for word in words.split() if plain.endswith(word)):
                    if not start[-1:].isalnum() or start.endswith("box"):
                        found.setdefault(start, {}).setdefault(place, name)
        for four in found.values():
            if len(four) == 4:
                return order, [four[place] for place in range(4)]
    return None


def _rows(sample: SourceSample, four: Sequence[str]) -> list[list[float]]:
    """Reads four columns as the boxes of each good row; empty if they do not fit."""
    if min(sample.read(name, ColumnType.NUMBER, many=True).fit for name in four) < FITS:
        return []
    blocks, _ = sample.take(dict.fromkeys(four, Column(ColumnType.NUMBER, many=True, optional=True)))
    rows = (row for _, block in blocks for row in zip(*(block.table[name].to_pylist() for name in four), strict=True))
    return [list(chain.from_iterable(zip(*row, strict=False))) for row in rows if None not in row]


def _boxes(rows: Sequence[Sequence[float]]) -> "Boxes":
    return np.array(list(chain.from_iterable(rows)), np.float64).reshape(-1, 4)


def guess_columns(sample: SourceSample) -> dict[str, Guess]:
    """Guesses four columns as boxes, and run lengths as a mask; empty if none are."""
    found, runs = box_columns(sample), guess_runs(sample)
    if found is None or COLUMNS in sample.names:
        return runs
    order, four = found
    reading = replace(sample.read(four[0], ColumnType.NUMBER, many=True), values=_rows(sample, four))
    options: dict[str, Choice] = {"order": (order, ""), "columns": (four, "as `order` says")}
    return {COLUMNS: feature(COLUMNS, "numbers", "", reading, **options), **runs}


def shared_images(sample: SourceSample) -> str | None:
    """Finds the column of images of a table with several rows of one image, each with a box or run lengths."""
    if sample.sources[0].format not in NAMING:
        return None
    texts = {name: sample.read(name, ColumnType.TEXT) for name in sample.names}
    image = next((name for name in texts if name == sample.data.image_column or pictures.are_named(texts[name])), None)
    values = texts[image] if image else Reading()
    if len(values.distinct) == len(values.values):
        return None
    lists = [name for name in sample.names if BOXES.fullmatch(plain_name(name))]
    sides = {len(each) for name in lists for each in sample.read(name, ColumnType.NUMBER, many=True).values} - {0}
    four = box_columns(sample)
    are_boxes = sides == {4} or four and sample.read(four[1][0], ColumnType.NUMBER).fit >= FITS
    return image if are_boxes or runs_column(sample) else None


def doubts_of_columns(items: Mapping[str, Guess]) -> Iterator[Doubt]:
    """Doubts run lengths, boxes of four columns with names that do not tell their order, and masks without shapes."""
    for item in items.values():
        if item.kind == "text" and _are_runs(item.reading):
            what = "run lengths of masks are read as text, since no column names their images"
            remedy = "Write the image's file in a column, and the class, if any, in another"
            yield Doubt(f"column '{item.column}'", what, remedy)
        if item.options.get("runs", ("", ""))[1] == BOTH:
            what = "run lengths that fit columns and rows of the images are read as `runs: columns`"
            yield Doubt(f"column '{item.column}'", what, "Look at `recordmill preview`; else `runs: rows`")
        if not item.kind and item.reading.values and MASK_COLUMN.fullmatch(item.column):
            yield Doubt(f"column '{item.column}'", f"left out: {item.options['#'][1]}", "Then run `init` again")
        for why in (item.options[option][1] for option in ("flip_pairs", "#") if option in item.options):
            if why.startswith(pictures.UNPAIRED):
                remedy = "Left would become right in mirrored images: name all in `flip_pairs`, or [] for none"
                yield Doubt(f"column '{item.column}'", why.partition(": ")[0] + ", left out" * (not item.kind), remedy)
        if item.kind == pictures.MASK and item.column == "shapes":
            shapes = [shape for text in item.reading.values for shape in json.loads(text)]
            if lacking := sum(not (shape.get("polygons") or shape.get("rle")) for shape in shapes):
                what = f"{lacking:,} of {count(len(shapes), 'object')} have no shape, and are background in masks"
                yield Doubt("column 'shapes'", what, "Give them polygons, or leave their images out")
        four, order = (item.options.get(option, ((), ""))[0] for option in ("columns", "order"))
        if four and (order in LIKE["coco"] or all(map(WITHOUT_NAMES.fullmatch, four))):
            what = f"read as boxes: {', '.join(ORDERS[order])}"
            yield Doubt(f"columns {listed(four, 4)}", what, "Others: see `order`; numbers: each a feature")


def box_doubts(columns: Mapping[str, Sequence[Any]]) -> list[Doubt]:
    """Doubts that columns beside an image, numbers or lists of equal lengths, are not boxes."""
    alike, boxes = dict[tuple[int, ...], list[str]](), list[str]()
    for name, values in columns.items():
        alike.setdefault(tuple(len(value) for value in values if isinstance(value, list)), []).append(name)
    for lengths, names in alike.items():
        _, four = _named(names) or ("", names if len(names) == 4 and len({*lengths}) > 1 else [])
        boxes = boxes or four
    boxes = boxes or [name for name in columns if POINTS.fullmatch(plain_name(name))]
    what = "each is a feature; boxes or points would not move when the image is padded, cropped or turned"
    remedy = f"Boxes: `kind: boxes` with `columns: [{', '.join(boxes[:4])}]`. Points: `kind: keypoints`"
    return [Doubt(f"columns {listed(boxes, 4)}", what, remedy)] if boxes else []


def runs_column(sample: SourceSample) -> str | None:
    """Finds a column of run lengths."""
    readings = ((name, sample.read(name, ColumnType.TEXT, many=sample.is_grouped)) for name in sample.names)
    return next((name for name, reading in readings if _are_runs(reading)), None)


def _are_runs(texts: Reading) -> bool:
    """Whether nearly all texts are runs, on average at least four each: two may be a box."""
    filled = [text for text in texts.distinct if text.strip()][: pictures.LOOKED_AT]
    runs = [len(_counts(text, 1 << 40)) // 2 for text in filled]  # in as many pixels as any image has
    return sum(map(bool, runs)) >= FITS * len(runs) > 0 and sum(runs) >= 4 * len(runs)


def _counts(text: str, pixels: int) -> list[int]:
    """Returns COCO's counts of runs; none if they are no runs in so many pixels."""
    with suppress(ValueError, ImageError):
        return counts_of_runs(text, pixels).tolist() if " " in text else []
    return []


def guess_runs(sample: SourceSample) -> dict[str, Guess]:
    """Guesses a column of run lengths as a mask, of the classes that another column names; empty without one."""
    if (name := runs_column(sample)) is None:
        return {}
    reading = sample.read(name, ColumnType.TEXT, many=True)
    names = next(filter(CLASSES.fullmatch, sample.names), None) if sample.is_grouped else None
    classes = sample.whole().read(names, ColumnType.CATEGORY, many=True) if names else Reading()
    found = ["background", *(sorted(classes.distinct) or ["foreground"])]
    options: dict[str, Choice] = {"image": ("", ""), "runs": ("", "")}
    if classes.is_all and len(found) <= pictures.MOST_CLASSES:
        options["draw"] = "classes", "or `instances`, without these; or `kind: masks`, `draw: objects`"
        options["classes"] = found, "" if names else "the second's name is yours to give"
        options |= {"names": (names, "")} if names else {}
    else:
        why = f"{len(found) - 1:,} classes in {names}, too many or not all: `draw: classes` needs all as `classes`"
        options["draw"] = "instances", why
    left = {names: left_out(names, f"the classes of {name}", classes)} if names else {}
    return {name: feature(name, "mask", f"run lengths in {reading.of}", reading, **options), **left}


def along_image(sample: SourceSample, item: Guess, name: str, image: Guess) -> Guess:
    """Completes a guess of runs with the image `name`, and the side along which they run, by its headers."""
    asked = {image.column: Column(ColumnType.IMAGE, optional=True)}
    asked[item.column] = Column(ColumnType.TEXT, many=True, optional=True)
    blocks, _ = sample.take(asked, rows=pictures.LOOKED_AT)
    pairs = (zip(*(block.table[each].to_pylist() for each in asked), strict=True) for _, block in blocks)
    every = [texts or () for pair in pairs for reference, texts in pair if reference is not None]
    touching, faults = np.zeros(2), list[list[str]]()
    for found, texts in zip(image.headers, every, strict=False):
        width, height = next((header[:2] for header in found if not isinstance(header, str)), (0, 0))
        counts = [_counts(text, width * height) for text in texts if width]
        faults.append([] if all(counts) else ["malformed_row"])
        for each in filter(None, counts):  # the pixels of an object with another one a line further
            ends, pixels = np.cumsum(each), np.where(np.arange(len(each)) % 2, each, 0)
            before = [np.interp(ends + side, ends, np.cumsum(pixels)) for side in (height, width)]
            touching += [(ends_at[1::2] - ends_at[:-1:2]).sum() for ends_at in before]
    columns, rows = touching.tolist()
    why = f"{columns:,.0f} pixels touch others of their object in the next column, {rows:,.0f} in the next row"
    is_clear = max(columns, rows) > CLEAR * min(columns, rows)
    side = ("rows" if rows > columns else "columns", why) if is_clear else ("columns", BOTH)
    return replace(item, options={**item.options, "image": (name, ""), "runs": side}, headers=faults)


ENOUGH = 0.95  # the share of boxes that must fit an order: other images may be larger
SLACK = 0.01  # the share of an image's side by which a box may leave it

Boxes = npt.NDArray[np.float64]  # boxes as in the data, shape [boxes, 4]


@dataclass(frozen=True)
class Answers:
    """The user's answers to undecidable questions."""

    order: str | None = None
    encoding: str | None = None
    ask: Callable[[str, Sequence[str]], str] | None = None
    """Asks at the terminal, and returns one of the given answers; None without a terminal."""

    def order_of(self, name: str, orders: Sequence[str]) -> str:
        """Decides between fitting orders for a column's boxes. Raises: UserError: no answer, or it does not fit."""
        if self.order is not None and self.order not in orders:
            fit = f"{' and '.join(orders)} would fit" if orders else "no other order fits either"
            raise UserError(f"--order {self.order}: with it, many boxes of '{name}' end outside images; {fit}")
        if self.order is not None or len(orders) == 1:
            return self.order or orders[0]
        meanings = "; ".join(f"{order}: {', '.join(ORDERS[order])}" for order in orders)
        question = f"the four numbers of '{name}' fit several orders ({meanings})"
        if self.ask is None:
            raise UserError(f"{question}: give the right one by {' or '.join(f'--order {order}' for order in orders)}")
        return self.ask(question, orders)


def guess_boxes(item: Guess, name: str, image: Guess, answers: Answers, known: Mapping[str, Choice]) -> Guess:
    """Turns lists of four numbers, by name, into boxes of the image `name`; `known` has options. Raises: UserError."""
    is_called = item.kind == "numbers" and BOXES.fullmatch(plain_name(item.column))
    if not is_called or any(len(value) % 4 for value in item.reading.values):
        return item
    boxes = _boxes(item.reading.values)
    what = ("boxes", f"{'1 box' if len(boxes) == 1 else f'{len(boxes):,} boxes'}, by the names")
    if known:
        return replace(item, options={**item.options, "kind": what, "image": (name, ""), **known})
    is_relative = bool((boxes >= 0).all() and (boxes <= 1).all())
    sizes = [header[:2] for header in chain.from_iterable(image.headers) if not isinstance(header, str)]
    sides = np.array(sizes).max(axis=0) if sizes and not is_relative else np.full(2, 1 if is_relative else np.inf)
    orders = fitting_orders(boxes, sides.max())
    corners, turned = ((boxes[:, ends] <= sides * (1 + SLACK)).all(axis=1).mean() for ends in ([2, 3], [3, 2]))
    if turned < ENOUGH <= corners:  # not the reverse: EXIF may turn width and height
        orders = [order for order in orders if order != "tensorflow"]
    if stated := item.options.get("order"):
        orders = [order for order in LIKE.get(stated[0], ()) if order in orders] or [stated[0]]
        orders = [answers.order] if answers.order in orders else orders[:1]
    if not orders:
        return left_out(item.column, "boxes by its name, but outside images in every known order", item.reading)
    order = answers.order_of(item.column, orders)
    reason = "by the names" if stated else "as answered" if len(orders) > 1 else "no other order fits"
    why = f"{', '.join(ORDERS[order])}; {reason}"
    unit = ("relative", "no number is above 1") if is_relative else ("absolute", f"numbers up to {boxes.max():g}")
    chosen = {"kind": what, "image": (name, ""), "order": (order, why), "unit": unit}
    return replace(item, options={**item.options, **chosen})


def fitting_orders(boxes: Boxes, side: float) -> list[str]:
    """Lists the orders in which nearly all boxes end after their start, inside images of at most that side."""
    first, second = boxes[:, :2], boxes[:, 2:]
    corners, half = (first, second), second / 2
    ends = {"corners": corners, "coco": (first, first + second), "center": (first - half, first + half)}
    slack, fitting = 0 if np.isinf(side) else SLACK * side, list[str]()
    for order, (start, end) in {**ends, "tensorflow": corners}.items():
        fits = ((start >= -slack) & (start <= end) & (end <= side + slack)).all(axis=1)
        fitting += [order] if fits.mean() >= ENOUGH else []
    return fitting


def on_image(
    sample: SourceSample, guesses: Mapping[str, Guess], names: dict[str, str], answers: Answers
) -> dict[str, Guess]:
    """Guesses masks and boxes of the first image, and names these."""
    images = [item for item in guesses.values() if item.kind == IMAGE]
    image = next((item for item in images if not MAYBE_MASK.fullmatch(item.column)), images[0])
    if (ID.fullmatch(image.column) or "*" in image.column) and IMAGE not in names.values():
        names[image.column] = IMAGE
    drawn = next((column for column, item in guesses.items() if "draw" in item.options), None)
    if drawn and pictures.MASK not in names.values():
        names[drawn] = pictures.MASK
    known, name = sample.data.known, names[image.column]
    named = {each.column for each in images if MAYBE_MASK.fullmatch(each.column)}
    found, masks = {**guesses}, ("masks", "an image an object, by the name")
    for column, item in guesses.items():
        if item.kind == "image_sequence" and MASK_COLUMN.fullmatch(column):
            found[column] = replace(item, options={"kind": masks, "image": (name, ""), **item.optional})
    for column in guesses.keys() & {*named, *sample.data.sources[0].get("beside", ())} - {image.column}:
        found[column] = pictures.guess_mask(sample, guesses[column], name, image)
    found |= {each: along_image(sample, item, name, image) for each, item in found.items() if "runs" in item.options}
    return {column: guess_boxes(item, name, image, answers, known.get(column, {})) for column, item in found.items()}
