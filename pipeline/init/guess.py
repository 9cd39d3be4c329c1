"""Guesses the kind of a column, with its options and their reasons; a doubt becomes a comment, not an option.

A column is read as one type after another, and taken as the first that fits nearly all sampled rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.init.recognize import NUMERIC, counted
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.spec.split_by import instant

FITS = 0.9
"""The share of rows that must be readable as a type; the others would be rejects."""
LABELS = tuple(
    "label labels class cls category target classes categories class_name label_name sentiment rating".split()
)
"""The usual names of a label, the surest first."""
TEXTS = frozenset("text txt caption description title content sentence question answer prompt comment".split())
"""The usual names of a text, however often a value comes again."""
ID = re.compile(r"(?i:(.*[^a-z])?(id|key|uuid|guid|uid|sha\d*|md5|hash))|.*[a-z](Id|ID|Key|Uuid)")
"""The usual names of a column that identifies something: `id`, `image_id`, `imageId`."""
MANY_CLASSES = 1_000
FEW_CLASSES = 20
MANY_WORDS = 4  # on average: hardly the name of a class
FEW_ROWS = 20  # too few to see repetitions
WORD = r"[\p{L}\p{M}\p{N}_]+"  # as the tokenizer `words` has it
DATE = re.compile(r"\d{4}-\d\d-\d\d")
LEADING_ZERO = re.compile(r"\s*[+-]?0\d")

Choice = tuple[Any, str]
"""A value of the spec, and why."""
Header = tuple[int, int] | str
"""Width and height of an image in pixels, as its header has them, or the reason of its reject."""


@dataclass(frozen=True)
class Guess:
    """A column as a feature, or the reason why it is left out."""

    column: str
    options: Mapping[str, Choice]
    """The options of the feature, its kind first. One whose name begins with # is a comment; the reason why a column is
    left out is that of #."""
    reading: Reading
    headers: Sequence[Sequence[Header]] = ()
    """The headers of the images of about 200 rows."""

    @property
    def kind(self) -> str | None:
        """The kind of feature; None where the column is left out."""
        return self.options["kind"][0] if "kind" in self.options else None


def feature(name: str, kind: str, why: str, reading: Reading, **options: Choice) -> Guess:
    """A guess, with `optional` where sampled rows lack the column."""
    if reading.missing:
        options["optional"] = (True, f"not in {share_of(reading.missing, reading.rows, reading.of)}")
    return Guess(name, {"kind": (kind, why), **options}, reading)


def left_out(name: str, why: str, reading: Reading) -> Guess:
    """A column that no feature reads."""
    return Guess(name, {"#": (None, why)}, reading)


def guess(sample: SourceSample, name: str) -> Guess | None:
    """Guesses what a column without images is; None where its parts are columns of their own."""
    texts = sample.read(name, ColumnType.TEXT)
    if texts.fit >= FITS:
        return _strings(sample, name, texts)
    result = _numbers(sample, name) or _names(sample, name) or _lists(sample, name)
    if result or any(other.startswith(f"{name}.") for other in sample.names):
        return result
    lists = sample.read(name, ColumnType.TEXT, many=True)
    empty = next((item for item in (texts, lists) if item.rows and not item.distinct and not item.rejected), None)
    why = f"empty in {empty.of}" if empty else "of no one type, or of one that no kind reads"
    return left_out(name, why, empty or texts)


def _strings(sample: SourceSample, name: str, texts: Reading) -> Guess:
    filled = [value for value in texts.values if value.strip()]
    if not filled:
        return left_out(name, f"empty in {texts.of}", texts)
    if sample.sources[0].format == "text":
        return _text(name, texts, filled)
    result, are_codes = None, any(LEADING_ZERO.match(value) for value in filled)
    if all(value.lstrip().startswith("[") and value.rstrip().endswith("]") for value in filled):
        result = _lists(sample, name)
    elif not are_codes and 2 * sum(bool(NUMERIC.fullmatch(value)) for value in filled) > len(filled):
        result = _numbers(sample, name)
    if result:
        return result
    if all(DATE.match(value) and instant(value) for value in filled):
        return feature(name, "raw", f"times: `split_by: {{time: {name}, starts: …}}` splits by them", texts)
    has_words = _has_words(filled)
    if _is_category(name, texts) and not (has_words and plain_name(name).lower() in TEXTS):
        return _category(name, sample.read(name, ColumnType.CATEGORY))
    if has_words or _is_unspaced(filled):
        return _text(name, texts, filled)
    return feature(name, "raw", f"strings without spaces, {distinct(texts)}: names rather than classes", texts)


def _lists(sample: SourceSample, name: str) -> Guess | None:
    """Lists of numbers, of names that repeat, or of other strings."""
    for kind in (ColumnType.NUMBER, ColumnType.CATEGORY, ColumnType.TEXT):
        lists = sample.read(name, kind, many=True)
        filled = sum(map(bool, lists.values))
        if filled and lists.fit >= FITS and filled >= FITS * (filled + lists.rejected):
            if kind is ColumnType.NUMBER:
                return feature(name, "numbers", f"lists of numbers, {_range(lists)} in {lists.of}", lists)
            if kind is ColumnType.CATEGORY and (_repeats(lists) or len(lists.values) < FEW_ROWS):
                return feature(name, "categories", f"lists of names, {distinct(lists)}", lists)
            return feature(name, "raw", "lists of strings that hardly ever repeat", lists, many=(True, ""))
    return None


def _spaced(filled: list[str]) -> int:
    return sum(len(value.split()) > 1 for value in filled)


def _has_words(filled: list[str]) -> bool:
    return 4 * _spaced(filled) >= len(filled)


def _is_unspaced(filled: list[str]) -> bool:
    """Whether hardly any texts have spaces, and most are beyond ASCII."""
    return not _has_words(filled) and 2 * sum(not value.isascii() for value in filled) > len(filled)


def _text(name: str, texts: Reading, filled: list[str]) -> Guess:
    """A text of words, or of characters where hardly any have spaces; nothing is cut off it."""
    values, of = pa.array(filled, pa.string()), counted(len(filled), "text")
    is_words, options = not _is_unspaced(filled), dict[str, Choice]()
    if not is_words:
        why = "few spaces, hardly any ASCII; `sentencepiece` would learn pieces of words"
        options["tokenizer"] = ("characters", why)
    most = pc.max(pc.count_substring_regex(values, WORD) if is_words else pc.utf8_length(values)).as_py()
    what = "words" if is_words else "characters"
    options["# max_length"] = (max(1, most), f"the most {what} in {of}; without it no text is cut")
    return feature(name, "text", f"several words in {share_of(_spaced(filled), len(filled), of)}", texts, **options)


def _is_category(name: str, names: Reading) -> bool:
    """Whether strings are classes: short, and the column's name says so or they come again and again."""
    words = sum(len(value.split()) * count for value, count in names.distinct.items())
    is_short = names.fit >= FITS and 0 < words <= MANY_WORDS * len(names.values)
    return is_short and (is_label(name) or _repeats(names))


def _repeats(names: Reading) -> bool:
    """Whether each value comes twice on average; of a few rows, whether any does."""
    count = sum(names.distinct.values())
    if len(names.values) < FEW_ROWS:
        return len(names.distinct) < count
    return 2 * len(names.distinct) <= count and len(names.distinct) <= MANY_CLASSES


def _category(name: str, names: Reading) -> Guess:
    return feature(name, "category", distinct(names), names)


def is_label(name: str) -> bool:
    """Whether a column is called as labels are."""
    return plain_name(name).lower() in LABELS


def plain_name(name: str) -> str:
    """The last part of a name: `label` of `image/class/label`, `json.label` and `objects.label`."""
    return re.split(r"[./]", name)[-1]


def _numbers(sample: SourceSample, name: str) -> Guess | None:
    numbers = sample.read(name, ColumnType.NUMBER)
    if numbers.fit < FITS:
        return None
    is_whole = all(map(float.is_integer, numbers.distinct))
    if is_whole and is_label(name) and (_repeats(numbers) or len(numbers.distinct) <= 2):
        return _category(name, sample.read(name, ColumnType.CATEGORY))
    if is_whole and ID.fullmatch(plain_name(name)):
        why = "whole numbers that identify something, by the column's name"
        return feature(name, "raw", why, sample.read(name, ColumnType.INTEGER), type=("int64", ""))
    maybe_codes = is_whole and (is_label(name) or (len(numbers.distinct) <= FEW_CLASSES and _repeats(numbers)))
    codes = {"# kind": ("category", f"if they are codes: {distinct(numbers)}")} if maybe_codes else {}
    return feature(name, "number", f"numbers, {_range(numbers)} in {numbers.of}", numbers, **codes)


def _range(numbers: Reading) -> str:
    least, most = min(numbers.distinct), max(numbers.distinct)
    return f"from {least:g} to {most:g}" if least < most else f"always {least:g}"


def _names(sample: SourceSample, name: str) -> Guess | None:
    """Booleans, dates and times, which are strings when they are read."""
    names = sample.read(name, ColumnType.CATEGORY)
    if names.fit < FITS:
        return None
    if _is_category(name, names) or set(names.distinct) <= {"true", "false"}:
        return _category(name, names)
    return left_out(name, f"{distinct(names)}: as a category each would be a class of its own", names)


def distinct(names: Reading) -> str:
    """The number of different values, in words."""
    return f"{counted(len(names.distinct), 'distinct value')} in {names.of}"


def share_of(part: int, whole: int, of: str) -> str:
    """A share in words: `96 % of 1,000 rows`, the count where it is less than 1 %, all alone where it is all."""
    percent = round(100 * part / whole) if whole else 0
    return of if part == whole else f"{min(99, percent)} % of {of}" if percent else f"{part:,} of {of}"


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


def guess_boxes(item: Guess, name: str, image: Guess) -> Guess:
    """Makes boxes of a guess whose column is called so and holds lists of four numbers; returns any other as it is.

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
        return left_out(item.column, "boxes by its name, but in no known order are they inside images", item.reading)
    options: dict[str, Choice] = {
        "kind": ("boxes", f"{counted(len(boxes), 'box', 'boxes')}, by the column's name"),
        "image": (name, ""),
        "order": (" or ".join(orders), _why(orders)),
        "unit": ("relative", "no number is above 1") if is_relative else ("absolute", f"numbers up to {boxes.max():g}"),
    }
    return replace(item, options={**item.options, **options})


def answered(item: Guess) -> Guess:
    """Returns a guess with the first answer to its question, if it has one, so that it can be tried."""
    if "order" not in item.options:
        return item
    order, why = item.options["order"]
    return replace(item, options={**item.options, "order": (order.split()[0], why)})


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


def _why(orders: list[str]) -> str:
    meanings = "; ".join(f"{order}: {ORDERS[order]}" for order in orders)
    return f"the only order that fits them; {meanings}" if len(orders) == 1 else f"keep the right one; {meanings}"
