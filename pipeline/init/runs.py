"""Guesses run lengths of masks, texts of starts and lengths such as `1 3 10 5`, and along which sides they run.

Counted along the right side, most pixels touch others of their object in the next line, a column or a row further.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from recordmill.pipeline.init.doubts import Doubt
from recordmill.pipeline.init.guess import FITS, Choice, Guess, feature, left_out
from recordmill.pipeline.init.images import LOOKED_AT, MOST_CLASSES
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.transforms.contract.bounds import ImageError
from recordmill.transforms.contract.shapes import counts_of_runs

LEAST_RUNS = 4  # a text, on average: two may be a box
ALL_PIXELS = 1 << 40
CLASSES = re.compile(
    r"(?i:(.*[^a-z])?(class|category|label|type)(_?(id|name))?)|.*[a-z](Class|Category|Label|Type)(Id)?"
)
"""Usual names of the column of an object's class."""
CLEAR = 1.2  # times as many pixels that touch others: square images, and nearly square ones, tell nothing
BOTH = "both fit, as with square images; usual on Kaggle"


def runs_column(sample: SourceSample) -> str | None:
    """Finds a column of run lengths."""
    readings = ((name, sample.read(name, ColumnType.TEXT, many=sample.is_grouped)) for name in sample.names)
    return next((name for name, reading in readings if _are_runs(reading)), None)


def _are_runs(texts: Reading) -> bool:
    """Whether nearly all texts are runs, several each."""
    filled = [text for text in texts.distinct if text.strip()][:LOOKED_AT]
    runs = [len(_counts(text, ALL_PIXELS)) // 2 for text in filled]
    return sum(map(bool, runs)) >= FITS * len(runs) > 0 and sum(runs) >= LEAST_RUNS * len(runs)


def _counts(text: str, pixels: int) -> list[int]:
    """Returns COCO's counts of runs; none if they are no runs in so many pixels."""
    try:
        return counts_of_runs(text, pixels).tolist() if " " in text else []
    except (ValueError, OverflowError, ImageError):
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
    if classes.is_all and len(found) <= MOST_CLASSES:
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
    blocks, _ = sample.take(asked, rows=LOOKED_AT)
    pairs = (zip(*(block.table[each].to_pylist() for each in asked), strict=True) for _, block in blocks)
    every = [texts or () for pair in pairs for reference, texts in pair if reference is not None]
    touching, faults = np.zeros(2), list[list[str]]()
    for found, texts in zip(image.headers, every, strict=False):
        width, height = next((header[:2] for header in found if not isinstance(header, str)), (0, 0))
        counts = [_counts(text, width * height) for text in texts if width]
        faults.append([] if all(counts) else ["malformed_row"])
        touching += [sum(_touching(each, side) for each in counts if each) for side in (height, width)]
    columns, rows = touching.tolist()
    why = f"{columns:,.0f} pixels touch others of their object in the next column, {rows:,.0f} in the next row"
    is_clear = max(columns, rows) > CLEAR * min(columns, rows)
    side = ("rows" if rows > columns else "columns", why) if is_clear else ("columns", BOTH)
    return replace(item, options={**item.options, "image": (name, ""), "runs": side}, headers=faults)


def _touching(counts: list[int], line: int) -> float:
    """Counts the pixels of an object with another one a line further."""
    ends = np.cumsum(counts)
    inside = np.cumsum(np.where(np.arange(len(counts)) % 2, counts, 0))  # pixels before each end
    before = np.interp(ends + line, ends, inside)
    return float((before[1::2] - before[:-1:2]).sum())


def doubts_of_runs(items: Iterable[Guess]) -> Iterator[Doubt]:
    """Doubts run lengths that fit both sides, and those without a column of images."""
    for item in items:
        place = f"column '{item.column}'"
        if item.kind == "text" and _are_runs(item.reading):
            remedy = "Write the image's file in a column, and the class, if any, in another"
            yield Doubt(place, "run lengths of masks are read as text, since no column names their images", remedy)
        if item.options.get("runs", ("", ""))[1] == BOTH:
            what = "run lengths that fit columns and rows of the images are read as `runs: columns`"
            yield Doubt(place, what, "Look at `recordmill preview`; else `runs: rows`")
