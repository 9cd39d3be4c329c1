"""Guesses the kind of a column, with its options and their reasons; a doubt becomes a comment, not an option.

A column is read as one type after another, and taken as the first that fits nearly all sampled rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.init.dialect import NUMERIC
from recordmill.pipeline.init.doubts import CODE, NO_JSON_LIST, commas
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.sources.typing.values import NO_NUMBER
from recordmill.pipeline.spec.split_by import instant

FITS = 0.9  # the share of rows that must be readable as a type; the others would be rejects
LABELS = tuple(
    "label labels class cls category target classes categories class_name label_name label_id class_id category_id "
    "sentiment rating".split()
)
"""The usual names of a label, the surest first."""
LABEL_KINDS = ("category", "categories", "number")
TEXTS = re.compile(r"(?i)(text|txt|caption|description|title|content|sentence|question|answer|prompt|comment)s?")
"""The usual names of a text, however often a value comes again."""
BETWEEN = {"|": re.compile(r"\|"), ";": re.compile(";"), ",": re.compile(r",(?!\s)")}
"""The characters between several names in one cell: a comma where no sentence has it."""
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
Header = tuple[int, int, Sequence[str], Sequence[str]] | str
"""Width and height of an image in pixels, as its header has them, the names of its colour profile, if it is not sRGB's,
and of what its pixels would lose; or the reason of its reject."""


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
    why = f"empty in {empty.of}" if empty else texts.why or "of no one type, or of one that no kind reads"
    return left_out(name, why, empty or texts)


def _strings(sample: SourceSample, name: str, texts: Reading) -> Guess:
    filled = [value for value in texts.values if value.strip()]
    if not filled:
        return left_out(name, f"empty in {texts.of}", texts)
    if sample.sources[0].format == "text":
        return _text(name, "text", texts, filled)
    result, are_codes = None, any(LEADING_ZERO.match(value) for value in filled)
    point = getattr(sample.sources[0], "decimal", ".")
    are_lists = commas(filled) in ("codes", "unsure" if point == "." else "codes")
    if all(value.lstrip().startswith("[") and value.rstrip().endswith("]") for value in filled):
        is_wrong = all(map(NO_JSON_LIST.match, filled))
        result = _lists(sample, name) or (feature(name, "raw", "lists that are no JSON", texts) if is_wrong else None)
    elif not are_codes and not are_lists and _are_numbers(filled, point):
        result = _numbers(sample, name)
    result = result or _names_in_cells(sample, name, filled, are_codes=are_lists)
    if are_lists and not result:
        return feature(name, "raw", "whole numbers with commas between them, and not as labels have them", texts)
    if result:
        return result
    if all(DATE.match(value) and instant(value) for value in filled):
        return feature(name, "raw", f"times: `split_by: {{time: {name}, starts: …}}` splits by them", texts)
    has_words = _has_words(filled)
    if is_id(name) and not has_words:
        return _identifier(name, texts)
    if _is_category(name, texts) and not (has_words and TEXTS.fullmatch(plain_name(name))):
        return _category(name, sample.read(name, ColumnType.CATEGORY))
    if has_words or _is_unspaced(filled):
        return _text(name, "text", texts, filled)
    return feature(name, "raw", f"strings without spaces, {distinct(texts)}: names rather than classes", texts)


def _are_numbers(filled: list[str], point: str = ".") -> bool:
    cells = [value.replace(point, ".") for value in filled if value.strip() not in NO_NUMBER]
    return 2 * sum(bool(NUMERIC.fullmatch(cell)) for cell in cells) > len(cells)


def _names_in_cells(sample: SourceSample, name: str, filled: list[str], *, are_codes: bool) -> Guess | None:
    """Several names a row, with a character between them; or several codes, with a comma."""
    for separator, pattern in BETWEEN.items():
        if are_codes or 10 * sum(bool(pattern.search(value)) for value in filled) >= len(filled):
            names = sample.read(name, ColumnType.CATEGORY, many=True, separator=separator)
            are_names = len(names.distinct) < len({*filled}) and not _are_numbers(list(names.distinct))
            are_names = _are_codes(names.values) if are_codes else are_names
            if are_names and names.fit >= FITS and _are_short(names) and _repeats(names):
                between = {"separator": (separator, "between the names of a row")}
                return feature(name, "categories", f"names, {distinct(names)}", names, **between)
    return None


def _are_codes(rows: Sequence[Sequence[str]]) -> bool:
    """Whether lists are of codes as labels are: no row has one twice, and not all have as many."""
    are_labels = len({*map(len, rows)}) > 1 and all(len(set(row)) == len(row) for row in rows)
    return are_labels and all(map(CODE.fullmatch, chain.from_iterable(rows)))


def _lists(sample: SourceSample, name: str) -> Guess | None:
    """Lists of numbers, of names that repeat, or of other strings."""
    for kind in (ColumnType.NUMBER, ColumnType.CATEGORY, ColumnType.TEXT):
        lists = sample.read(name, kind, many=True)
        filled = sum(map(bool, lists.values))
        if filled and lists.fit >= FITS and filled >= FITS * (filled + lists.rejected):
            if kind is ColumnType.NUMBER:
                return feature(name, "numbers", f"lists of numbers, {_range(lists)} in {lists.of}", lists)
            has_words = _has_words(list(lists.distinct))
            are_texts = has_words and (not _are_short(lists) or bool(TEXTS.fullmatch(plain_name(name))))
            if kind is ColumnType.CATEGORY and not are_texts and (_repeats(lists) or len(lists.values) < FEW_ROWS):
                return feature(name, "categories", f"lists of names, {distinct(lists)}", lists)
            if has_words:
                return _texts(name, lists)
            return feature(name, "raw", "lists of strings that hardly ever repeat", lists, many=(True, ""))
    return None


def _spaced(filled: list[str]) -> int:
    return sum(len(value.split()) > 1 for value in filled)


def _has_words(filled: list[str]) -> bool:
    return 4 * _spaced(filled) >= len(filled)


def _is_unspaced(filled: list[str]) -> bool:
    """Whether hardly any texts have spaces, and most are beyond ASCII."""
    return not _has_words(filled) and 2 * sum(not value.isascii() for value in filled) > len(filled)


def _texts(name: str, lists: Reading) -> Guess:
    """Several texts a row, such as captions; as many in every row, where that is so in all rows."""
    counts = {len(value) for value in lists.values}
    number = {"texts_per_row" if lists.is_all else "# texts_per_row": (min(counts), f"in each of {lists.of}")}
    filled = [text for text in chain.from_iterable(lists.values) if text.strip()]
    return _text(name, "texts", lists, filled, **(number if len(counts) == 1 else {}))


def _text(name: str, kind: str, texts: Reading, filled: list[str], **options: Choice) -> Guess:
    """A text of words, or of characters where hardly any have spaces; nothing is cut off it."""
    values, of = pa.array(filled, pa.string()), count(len(filled), "text")
    is_words = not _is_unspaced(filled)
    if not is_words:
        why = "few spaces, hardly any ASCII; `sentencepiece` would learn pieces of words"
        options["tokenizer"] = ("characters", why)
    most = pc.max(pc.count_substring_regex(values, WORD) if is_words else pc.utf8_length(values)).as_py()
    what = "words" if is_words else "characters"
    options["# max_length"] = (max(1, most), f"the most {what} in {of}; by default all stay")
    return feature(name, kind, f"several words in {share_of(_spaced(filled), len(filled), of)}", texts, **options)


def _is_category(name: str, names: Reading) -> bool:
    """Whether strings are classes: short, and the column's name says so or they come again and again."""
    return names.fit >= FITS and _are_short(names) and (is_label(name) or _repeats(names))


def _are_short(names: Reading) -> bool:
    words = sum(len(value.split()) * count for value, count in names.distinct.items())
    return 0 < words <= MANY_WORDS * sum(names.distinct.values())


def _repeats(names: Reading) -> bool:
    """Whether each value comes twice on average; of a few rows, whether any does."""
    count = sum(names.distinct.values())
    if len(names.values) < FEW_ROWS:
        return len(names.distinct) < count
    return 2 * len(names.distinct) <= count and len(names.distinct) <= MANY_CLASSES


def _category(name: str, names: Reading) -> Guess:
    return feature(name, "category", distinct(names), names)


def is_id(name: str) -> bool:
    """Whether a column is called as those that identify something, and not as labels are."""
    return bool(ID.fullmatch(plain_name(name))) and not is_label(name)


def _identifier(name: str, values: Reading, **options: Choice) -> Guess:
    """Names or numbers that identify something: no input of a model, unless the user says so."""
    if _repeats(values):
        options["# kind"] = ("category", f"as an input: {distinct(values)}")
    return feature(name, "raw", "identifies something, by the column's name", values, **options)


def is_label(name: str) -> bool:
    """Whether a column is called as labels are."""
    return plain_name(name).lower() in LABELS


def label_of(guesses: Mapping[str, Guess]) -> str | None:
    """The column of the surest usual name of a label; a list only where it is of the row."""
    known = dict[str, str]()
    for name, item in guesses.items():
        if item.kind in LABEL_KINDS and (plain_name(name) == name or item.kind != "categories"):
            known.setdefault(plain_name(name).lower(), name)
    return next((known[label] for label in LABELS if label in known), None)


def plain_name(name: str) -> str:
    """The last part of a name: `label` of `image/class/label`, `json.label` and `objects.label`."""
    return re.split(r"[./]", name)[-1]


def _numbers(sample: SourceSample, name: str) -> Guess | None:
    numbers = sample.read(name, ColumnType.NUMBER)
    if numbers.fit < FITS:
        return None
    is_whole = all(map(float.is_integer, numbers.distinct))
    names = sample.read(name, ColumnType.CATEGORY)  # none are floats, whole or not
    if is_whole and is_label(name) and names.fit >= FITS and (_repeats(numbers) or len(numbers.distinct) <= 2):
        return _category(name, names)
    if is_whole and is_id(name):
        return _identifier(name, sample.read(name, ColumnType.INTEGER), type=("int64", ""))
    are_few = 1 < len(numbers.distinct) <= FEW_CLASSES and _repeats(numbers)
    maybe_codes = is_whole and names.fit >= FITS and (is_label(name) or are_few)
    codes = {"# kind": ("category", f"codes? {distinct(numbers)}")} if maybe_codes else {}
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
    return f"{count(len(names.distinct), 'distinct value')} in {names.of}"


def share_of(part: int, whole: int, of: str) -> str:
    """A share in words: `96 % of 1,000 rows`, the count where it is less than 1 %, all alone where it is all."""
    percent = round(100 * part / whole) if whole else 0
    return of if part == whole else f"{min(99, percent)} % of {of}" if percent else f"{part:,} of {of}"
