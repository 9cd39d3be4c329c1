"""What a column is: a kind of feature with its options, each with its reason; or why it is of no use.

A column is read as one type after another, and taken as the first that fits nearly all sampled rows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.init.column_sample import Reading, Sample
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.split_by import instant

FITS = 0.9
"""The share of rows that must be readable as a type; the others would be rejects."""
LABELS = (
    "label", "labels", "class", "cls", "category", "target", "classes", "categories", "class_name", "label_name",
    "sentiment", "rating",
)  # fmt: skip
"""What a label is called, the surest names first."""
TEXTS = frozenset("text txt caption description title content sentence question answer prompt comment".split())
"""What a text is called, however often it comes again."""
ID = re.compile(r"(?i:(.*[^a-z])?(id|key|uuid|guid|uid|sha\d*|md5|hash))|.*[a-z](Id|ID|Key|Uuid)")
"""What a column of names is called: `id`, `image_id`, `imageId`."""
MANY_CLASSES = 1_000
MANY_WORDS = 4  # on average: hardly the name of a class
FEW_ROWS = 20  # too few to tell what repeats, or to divide
WORD = r"[\p{L}\p{M}\p{N}_]+"  # as `transforms.tensorflow.tokenizers` has it
SEPARATORS = "|;,"
LONG_NAME = 40  # characters: a longer string is hardly one of several names in a cell
DATE = re.compile(r"\d{4}-\d\d-\d\d")
NUMERIC = re.compile(r"\s*[+-]?(\d[\d.]*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
LEADING_ZERO = re.compile(r"\s*[+-]?0\d")
PERCENTILE = 0.95


@dataclass(frozen=True)
class Guess:
    """What a column is taken for."""

    column: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Those of the feature, its kind first; none where it is of no use."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reasons by option; where there are no options, the only one stands under `kind`."""
    reading: Reading = field(default_factory=Reading)

    @property
    def kind(self) -> str | None:
        """The kind of feature; None where it is of no use."""
        return self.options.get("kind")


def guess(sample: Sample, name: str) -> Guess | None:
    """Guesses what a column without pictures is; None where its parts are columns of their own."""
    for attempt in (_strings, _numbers, _names, _number_lists, _name_lists, _text_lists):
        found = attempt(sample, name)
        if found is not None:
            return found
    return None if any(other.startswith(f"{name}.") for other in sample.names) else _unsuitable(sample, name)


def guess_text(sample: Sample, name: str) -> Guess:
    """The guess of a column that is surely text."""
    texts = read(sample, name, ColumnType.TEXT)
    if not texts.values:
        return useless(name, f"no text in {texts.of}", texts)
    return _words(name, texts, [value for value in texts.values if value.strip()])


def read(sample: Sample, name: str, kind: ColumnType, *, many: bool = False, separator: str = ",") -> Reading:
    """Reads a column of a sample as a type, rows that lack it included."""
    return sample.read(name, Column(kind, many=many, optional=True, separator=separator))


def feature(name: str, kind: str, why: str, reading: Reading, **options: Any) -> Guess:
    """A guess, with `optional` where sampled rows lack the column."""
    reasons = {"kind": why}
    if reading.missing:
        options["optional"] = True
        reasons["optional"] = f"not in {share_of(reading.missing, reading.rows, reading.of)}"
    return Guess(name, {"kind": kind, **options}, reasons, reading)


def useless(name: str, why: str, reading: Reading) -> Guess:
    """A column that is left out."""
    return Guess(name, {}, {"kind": why}, reading)


def share(part: int, whole: int) -> str:
    """A share in words: `96 %`, or the count where it is less than 1 %; never 100 % of what is not all."""
    percent = round(100 * part / whole) if whole else 0
    return f"{percent if part == whole else min(99, percent)} %" if percent else f"{part:,}"


def share_of(part: int, whole: int, of: str) -> str:
    """A share of something in words: `96 % of 1,000 rows`, `1,000 rows` where it is all."""
    return of if part == whole else f"{share(part, whole)} of {of}"


def counted(count: int, what: str) -> str:
    """A count in words: `1 text`, `2,000 texts`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _unsuitable(sample: Sample, name: str) -> Guess:
    readings = [read(sample, name, kind, many=many) for kind in ColumnType for many in (False, True)]
    rows = max(readings, key=lambda reading: reading.rows)
    if any(reading.rows and not reading.distinct and not reading.rejected for reading in readings):
        return useless(name, f"empty in {rows.of}", rows)
    return useless(name, "of no one type, or of one that no kind reads", rows)


def _strings(sample: Sample, name: str) -> Guess | None:
    texts = read(sample, name, ColumnType.TEXT)
    if texts.fit < FITS:
        return None
    filled = [value for value in texts.values if value.strip()]
    if not filled:
        return useless(name, f"empty in {texts.of}", texts)
    if _are_numeric(filled) and not any(LEADING_ZERO.match(value) for value in filled):
        numbers = _numbers(sample, name)
        if numbers is not None:
            return numbers
    return _cells(sample, name, filled) or _text(sample, name, texts, filled)


def _cells(sample: Sample, name: str, filled: list[str]) -> Guess | None:
    """Lists that are written as one string."""
    if all(value.lstrip().startswith("[") and value.rstrip().endswith("]") for value in filled):
        return _number_lists(sample, name) or _name_lists(sample, name)
    for separator in (*SEPARATORS, " "):
        several = [value for value in filled if separator in value.strip()]
        if 2 * len(several) < len(filled):
            continue
        if _are_numeric([part for value in several for part in value.split(separator) if part.strip()]):
            return _number_lists(sample, name, separator)
        names = None if separator == " " else _name_lists(sample, name, separator)
        if names is not None and _are_names(names.reading, len(filled), separator):
            return names
    return None


def _are_numeric(texts: list[str]) -> bool:
    """Whether most strings are numbers: to try them as such is worth its cost."""
    return 2 * sum(bool(NUMERIC.fullmatch(text)) for text in texts) > len(texts)


def _are_names(names: Reading, cells: int, separator: str) -> bool:
    """Whether parts of strings are names: short, and few that come again and again; between commas prose may stand."""
    return (
        cells >= FEW_ROWS
        and 2 * len(names.distinct) <= sum(names.distinct.values())
        and len(names.distinct) < cells
        and all(
            len(value) <= LONG_NAME and value.count(" ") < (1 if separator == "," else 3) for value in names.distinct
        )
    )


def _text(sample: Sample, name: str, texts: Reading, filled: list[str]) -> Guess:
    """One of texts, categories and what is only passed on."""
    names = read(sample, name, ColumnType.CATEGORY)
    if all(DATE.match(value) and instant(value) for value in filled):
        return feature(name, "raw", f"times: `split_by: {{time: {name}, starts: …}}` splits by them", texts)
    if is_category(name, names) and not (plain_name(name).lower() in TEXTS and _is_prose(filled)):
        return _category(name, names)
    if _is_prose(filled) or _is_foreign(filled):
        return _words(name, texts, filled)
    return feature(name, "raw", f"strings without spaces, {distinct(texts)}: names rather than classes", texts)


def _spaced(filled: list[str]) -> int:
    """How many of them are of several words."""
    return sum(len(value.split()) > 1 for value in filled)


def _is_prose(filled: list[str]) -> bool:
    return 4 * _spaced(filled) >= len(filled)


def _is_foreign(filled: list[str]) -> bool:
    """Whether most of them are beyond ASCII, as what is written without spaces is."""
    return 2 * sum(not value.isascii() for value in filled) > len(filled)


def _words(name: str, texts: Reading, filled: list[str]) -> Guess:
    """A text: of words, or of characters where there are no spaces between words."""
    values = pa.array(texts.values, pa.string())
    why = f"several words in {share_of(_spaced(filled), len(filled), counted(len(filled), 'text'))}"
    if _is_prose(filled) or not _is_foreign(filled):
        return _with_length(name, texts, pc.count_substring_regex(values, WORD), why, "words")
    tokenizer = "few spaces, hardly any ASCII; `sentencepiece` would learn pieces of words"
    return _with_length(name, texts, pc.utf8_length(values), why, "characters", tokenizer)


def _with_length(name: str, texts: Reading, lengths: pa.Array, why: str, tokens: str, tokenizer: str = "") -> Guess:
    """A text whose tokens are words or characters, cut where few texts are longer."""
    counts = sorted(lengths.to_pylist())
    most = max(1, counts[min(len(counts) - 1, int(PERCENTILE * len(counts)))])
    length = -(-most // 8) * 8 if most > 8 else most
    held = share_of(sum(count <= length for count in counts), len(counts), counted(len(counts), "text"))
    options = {"tokenizer": tokens} if tokenizer else {}
    guessed = feature(name, "text", why, texts, **options, max_length=length)
    reasons = {"tokenizer": tokenizer, "max_length": f"enough {tokens} for {held}"}
    return replace(guessed, why={**guessed.why, **reasons})


def is_category(name: str, names: Reading) -> bool:
    """Whether values are classes: each one comes several times, or the name says so and they are too few to tell."""
    if names.fit < FITS or not names.values:
        return False
    if sum(len(value.split()) * count for value, count in names.distinct.items()) > MANY_WORDS * len(names.values):
        return False
    if len(names.values) < FEW_ROWS:
        is_word = all(len(str(value).split()) < 3 for value in names.values)
        return is_word and (_is_label(name) or len(names.distinct) < len(names.values))
    return 2 * len(names.distinct) <= len(names.values) and len(names.distinct) <= MANY_CLASSES


def _category(name: str, names: Reading) -> Guess:
    return _constant(name, names) or feature(name, "category", distinct(names), names)


def _constant(name: str, values: Reading) -> Guess | None:
    """A column that holds one value alone, unless it may be the label or is not known to the end."""
    if len(values.distinct) > 1 or values.missing or not values.is_all or values.rows < FEW_ROWS or _is_label(name):
        return None
    return useless(name, f"always {next(iter(values.distinct))!s:.40} in {values.of}", values)


def _is_label(name: str) -> bool:
    return plain_name(name).lower() in LABELS


def plain_name(name: str) -> str:
    """The last part of a name: `label` of `image/class/label`, `json.label` and `objects.label`."""
    return re.split(r"[./]", name)[-1]


def distinct(names: Reading) -> str:
    """How many different values there are, in words."""
    count = len(names.distinct)
    return f"{count:,} distinct {'value' if count == 1 else 'values'} in {names.of}"


def _numbers(sample: Sample, name: str) -> Guess | None:
    numbers = read(sample, name, ColumnType.NUMBER)
    if numbers.fit < FITS:
        return None
    whole = read(sample, name, ColumnType.INTEGER)
    is_whole = whole.fit >= FITS
    classes = read(sample, name, ColumnType.CATEGORY)
    if is_whole and _is_label(name) and (is_category(name, classes) or len(classes.distinct) <= 2):
        return _category(name, classes)
    if is_whole and ID.fullmatch(plain_name(name)):
        return feature(name, "raw", "whole numbers that name something, by the column's name", whole, type="int64")
    return _constant(name, numbers) or feature(name, "number", f"numbers, {_range(numbers)} in {numbers.of}", numbers)


def _range(numbers: Reading) -> str:
    flat = list(numbers.distinct)
    return f"from {min(flat):g} to {max(flat):g}" if len(flat) > 1 else f"always {flat[0]:g}"


def _names(sample: Sample, name: str) -> Guess | None:
    """Booleans, dates and times, which are strings when they are read."""
    names = read(sample, name, ColumnType.CATEGORY)
    if names.fit < FITS:
        return None
    if is_category(name, names) or set(names.distinct) <= {"true", "false"}:
        return _category(name, names)
    return useless(name, f"{distinct(names)}: as a category each would be a class of its own", names)


def _number_lists(sample: Sample, name: str, separator: str = ",") -> Guess | None:
    numbers = read(sample, name, ColumnType.NUMBER, many=True, separator=separator)
    lengths = {len(value) for value in numbers.values}
    if numbers.fit < FITS or not any(lengths) or not _fits_filled(numbers):
        return None
    return _list(name, "numbers", numbers, f"lists of numbers, {_range(numbers)} in {numbers.of}", separator)


def _name_lists(sample: Sample, name: str, separator: str = ",") -> Guess | None:
    names = read(sample, name, ColumnType.CATEGORY, many=True, separator=separator)
    if names.fit < FITS or not names.distinct or not _fits_filled(names):
        return None
    if 2 * len(names.distinct) > sum(names.distinct.values()) and len(names.values) >= FEW_ROWS:
        return _list(name, "raw", names, "lists of strings that hardly ever repeat", separator, many=True)
    return _list(name, "categories", names, f"lists of names, {distinct(names)}", separator)


def _text_lists(sample: Sample, name: str) -> Guess | None:
    texts = read(sample, name, ColumnType.TEXT, many=True)
    if texts.fit < FITS or not texts.distinct or not _fits_filled(texts):
        return None
    return _list(name, "raw", texts, "lists of texts", ",", many=True)


def _fits_filled(lists: Reading) -> bool:
    """Whether what is not empty fits, too."""
    filled = sum(bool(value) for value in lists.values)
    return filled >= FITS * (filled + lists.rejected)


def _list(name: str, kind: str, lists: Reading, why: str, separator: str, **options: Any) -> Guess:
    reasons = {}
    if separator != ",":
        options["separator"] = separator
        reasons["separator"] = "what stands between the values of a cell"
    lengths = {len(value) for value in lists.values}
    if len(lengths) == 1 and len(lists.values) >= FEW_ROWS:
        options["length"] = lengths.pop()
        reasons["length"] = f"in {lists.of}"
    guessed = feature(name, kind, why, lists, **options)
    return replace(guessed, why={**guessed.why, **reasons})
