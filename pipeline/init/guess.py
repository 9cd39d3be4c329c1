"""Guesses a column's kind, with options and reasons; a doubt becomes a comment, not an option.

Reads a column as one type after another, and takes the first that fits nearly all sampled rows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.init.dialect import NUMERIC
from recordmill.pipeline.init.doubts import CODE, NO_JSON_LIST, commas
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.naming import BOXES, TEXTS, is_id, is_label, plain_name
from recordmill.pipeline.sources.typing.values import NO_NUMBER
from recordmill.pipeline.spec.split_by import instant
from recordmill.transforms.base.columns import ColumnType

FITS = 0.9  # the share of rows that must fit a type; the others would be rejects
LABEL_KINDS = ("category", "categories", "number", "numbers")
BETWEEN = {"|": re.compile(r"\|"), ";": re.compile(";"), ",": re.compile(r",(?!\s)")}
"""Separators of names in a cell: a comma only without a space after it."""
FEW_ROWS = 20  # too few to see repetitions
WORD = r"[\p{L}\p{M}\p{N}_]+"  # as in the tokenizer `words`
MESSAGES = re.compile(r'\s*\[\s*\{[^{}\[\]]*"(role|from)"\s*:')  # JSON of messages
CHAT = "chat"  # the name of a chat of several columns
TURNS = {"instruction": "instruction", "output": "output response", "input": "input context", "system": "system"}
DATE = re.compile(r"\d{4}-\d\d-\d\d")
LEADING_ZERO = re.compile(r"\s*[+-]?0\d")

Choice = tuple[Any, str]  # a value in the spec, and the reason


class Header(NamedTuple):
    """An image by its header."""

    width: int
    height: int
    profiles: Sequence[str]  # the name of its colour profile, unless sRGB
    losses: Sequence[str]  # of its pixels
    deep: tuple[str, int] | None  # the type and the bands of a deep one


Looked = Header | str  # an image's header, or the reason code of its reject, perhaps with a message


@dataclass(frozen=True)
class Guess:
    """A column as a feature, or the reason for leaving it out."""

    column: str
    options: Mapping[str, Choice]
    """The feature's options, its kind first. Names that begin with # are comments; # alone gives the reason for leaving
    out."""
    reading: Reading
    headers: Sequence[Sequence[Looked]] = ()  # image headers of about 200 rows

    @property
    def kind(self) -> str | None:
        """The feature's kind; None if left out."""
        return self.options["kind"][0] if "kind" in self.options else None

    @property
    def optional(self) -> dict[str, Choice]:
        """The option that images may be missing, if they may."""
        return {option: choice for option, choice in self.options.items() if option == "optional"}

    def with_options(self, **more: Choice) -> "Guess":
        """Returns a copy with more options."""
        return replace(self, options={**self.options, **more})

    @property
    def inputs(self) -> list[str]:
        """The columns that it reads, other than its own."""
        tools, columns = (self.options.get(option, ((), ""))[0] for option in ("tools", "columns"))
        return [*([tools] if tools else ()), *(columns.values() if isinstance(columns, dict) else columns)]


def feature(name: str, kind: str, why: str, reading: Reading, **options: Choice) -> Guess:
    """Makes a guess, `optional` if sampled rows lack the column."""
    if reading.missing:
        options["optional"] = (True, f"not in {share_of(reading.missing, reading.rows, reading.of)}")
    return Guess(name, {"kind": (kind, why), **options}, reading)


def left_out(name: str, why: str, reading: Reading | None = None) -> Guess:
    """Makes the guess of an unused column."""
    return Guess(name, {"#": (None, why)}, reading or Reading())


def without_unread(source: Mapping[str, Any], read: Iterable[Guess], others: Iterable[str]) -> dict[str, Any]:
    """Drops what neither `read` nor `others` reads from a source's mapping of columns, which a spec refuses."""
    names, columns = {*others}.union(*((item.column, *item.inputs) for item in read)), source.get("columns")
    named = {name: own for name, own in columns.items() if name in names} if isinstance(columns, dict) else columns
    return {option: named if option == "columns" else value for option, value in source.items()}


def guess(sample: SourceSample, name: str) -> Guess | None:
    """Guesses a column without images; None if its parts are separate columns, or paths give it."""
    if name in sample.of_path:
        return None
    texts = sample.read(name, ColumnType.TEXT)
    if sample.is_grouped and (is_label(name) or texts.rejected) and (of_rows := _lists(sample, name)):
        return of_rows
    if any(map(MESSAGES.match, texts.values[:FEW_ROWS])) and (messages := chat(sample, name)):
        return messages
    if texts.fit >= FITS:
        return _strings(sample, name, texts)
    result, names = _numbers(sample, name), sample.read(name, ColumnType.CATEGORY)
    if result is None and names.fit >= FITS:  # booleans, dates and times, which are read as strings
        if _is_category(name, names) or set(names.distinct) <= {"true", "false"}:
            return feature(name, "category", distinct(names), names)
        return left_out(name, f"{distinct(names)}: as a category each would be a class", names)
    result = result or _lists(sample, name)
    if result or any(other.startswith(f"{name}.") for other in sample.names):
        return result
    lists = sample.read(name, ColumnType.TEXT, many=True)
    empty = next((item for item in (texts, lists) if item.rows and not item.distinct and not item.rejected), None)
    why = f"empty in {empty.of}" if empty else texts.why or "of mixed types, or of a type that no kind reads"
    return left_out(name, why, empty or texts)


def chat(sample: SourceSample, name: str) -> Guess | None:
    """Guesses messages, objects with a role and a text, or their JSON; a column `tools` holds the chat's tools."""
    objects, turns = sample.read(name, ColumnType.OBJECTS), dict[str, str]()
    if name == CHAT and CHAT not in sample.names:  # of an instruction and its output, as in Alpaca's data and Dolly's
        found = {turn: next(filter(sample.names.__contains__, names.split()), "") for turn, names in TURNS.items()}
        texts = {turn: name for turn, name in found.items() if name and sample.read(name, ColumnType.TEXT).fit >= FITS}
        turns = texts if {"instruction", "output"} <= texts.keys() else {}
    if not turns and (objects.fit < FITS or not any(map(MESSAGES.match, objects.values))):
        return None
    model = "set its path: the tokenizer.json of the model to train, with tokenizer_config.json beside it"
    tools = sample.read("tools", ColumnType.OBJECTS)
    has_tools = tools.fit >= FITS and tools.values and name != "tools"
    options = {"model": ("tokenizer.json", model)} | ({"tools": ("tools", "for the template")} if has_tools else {})
    if turns:
        why, objects = "an instruction and its output", sample.read(turns["output"], ColumnType.TEXT)
        return feature(name, "chat", why, objects, **options, columns=(turns, ""))
    return feature(name, "chat", f"messages in {objects.of}", objects, **options)


def _strings(sample: SourceSample, name: str, texts: Reading) -> Guess:
    filled = [value for value in texts.values if value.strip()]
    if not filled:
        return left_out(name, f"empty in {texts.of}", texts)
    if sample.sources[0].format == "text" and not sample.sources[0].joined:
        return _text(name, "text", texts)
    result, are_codes = None, any(LEADING_ZERO.match(value) for value in filled)
    point = getattr(sample.sources[0], "decimal", ".")
    are_lists = commas(filled) in ("codes", "unsure" if point == "." else "codes")
    if all(value.lstrip().startswith("[") and value.rstrip().endswith("]") for value in filled):
        is_wrong = all(map(NO_JSON_LIST.match, filled))
        result = _lists(sample, name) or (feature(name, "raw", "lists that are not JSON", texts) if is_wrong else None)
    elif not are_codes and not are_lists and _are_numbers(filled, point):
        result = _numbers(sample, name)
    result = result or _names_in_cells(sample, name, filled, are_codes=are_lists)
    if result or are_lists:
        return result or feature(name, "raw", "whole numbers with commas between them, unlike labels", texts)
    if all(DATE.match(value) and instant(value) for value in filled):
        return feature(name, "raw", f"times: `split_by: {{time: {name}, starts: …}}` splits by them", texts)
    has_words = 4 * _spaced(filled) >= len(filled)
    if is_id(name) and not has_words:
        return _identifier(name, texts)
    if _is_category(name, texts) and not (has_words and TEXTS.fullmatch(plain_name(name))):
        names = sample.read(name, ColumnType.CATEGORY)
        return feature(name, "category", distinct(names), names)
    if has_words or _is_unspaced(filled):
        return _text(name, "text", texts)
    if not are_codes and "." in filled[0] and _are_numbers(filled) and (result := _numbers(sample, name, parse=True)):
        return result.with_options(parse=(True, "numbers as strings"))
    return feature(name, "raw", f"strings without spaces, {distinct(texts)}: names rather than classes", texts)


def _are_numbers(filled: list[str], point: str = ".") -> bool:
    cells = [value.replace(point, ".") for value in filled if value.strip() not in NO_NUMBER]
    return 2 * sum(bool(NUMERIC.fullmatch(cell)) for cell in cells) > len(cells)


def _names_in_cells(sample: SourceSample, name: str, filled: list[str], *, are_codes: bool) -> Guess | None:
    """Guesses several names in a cell, by separator, or several codes with a comma."""
    for separator, pattern in BETWEEN.items():
        if are_codes or 10 * sum(bool(pattern.search(value)) for value in filled) >= len(filled):
            names = sample.read(name, ColumnType.CATEGORY, many=True, separator=separator)
            are_names = len(names.distinct) < len({*filled}) and not _are_numbers(list(names.distinct))
            if are_codes:  # as labels: no repetition in a row, and different lengths
                are_names = len({*map(len, names.values)}) > 1 and all(map(CODE.fullmatch, names.distinct))
                are_names &= all(len({*row}) == len(row) for row in names.values)
            if are_names and names.fit >= FITS and _are_short(names) and _repeats(names):
                between = {"separator": (separator, "between the names of a row")}
                return feature(name, "categories", f"names, {distinct(names)}", names, **between)
    return None


def _lists(sample: SourceSample, name: str) -> Guess | None:
    """Guesses lists of labels, of numbers, of repeating names, or of other strings."""
    if "input_ids" in sample.names and (ids := sample.read(name, ColumnType.INTEGER, many=True)).fit >= FITS:
        return feature(name, "raw", "made by a tokenizer", ids, type=("int64", ""), many=(True, ""))
    names = sample.read(name, ColumnType.CATEGORY, many=True)
    numbers, texts = (sample.read(name, kind, many=True) for kind in (ColumnType.NUMBER, ColumnType.TEXT))
    if numbers.rejected + texts.rejected > names.rows and any(map(CODE.fullmatch, names.distinct)):
        return None  # both in each row, such as `[[0, 4, "PER"]]`
    lengths, are_marks = {*map(len, numbers.values)}, numbers.fit >= FITS and numbers.distinct.keys() <= {0, 1}
    if is_label(name) and are_marks and len(lengths) == 1 < max(lengths):
        return feature(name, "numbers", "0 or 1 a class", numbers, length=(max(lengths), ""), normalize=("none", ""))
    if is_label(name) and any(names.values) and names.fit >= FITS and _repeats(names):
        return feature(name, "categories", f"lists of labels, {distinct(names)}", names)
    for kind in (ColumnType.NUMBER, ColumnType.CATEGORY, ColumnType.TEXT):
        multiple = 4 if sample.is_grouped and kind is ColumnType.NUMBER and BOXES.fullmatch(plain_name(name)) else 1
        lists = sample.read(name, kind, many=True, multiple=multiple)
        filled = sum(map(bool, lists.values))
        if filled and lists.fit >= FITS and filled >= FITS * (filled + lists.rejected):
            if kind is ColumnType.NUMBER:
                return feature(name, "numbers", f"lists of numbers, {_range(lists)} in {lists.of}", lists)
            has_words = 4 * _spaced([*lists.distinct]) >= len(lists.distinct)
            are_texts = has_words and (not _are_short(lists) or bool(TEXTS.fullmatch(plain_name(name))))
            if kind is ColumnType.CATEGORY and not are_texts and (_repeats(lists) or len(lists.values) < FEW_ROWS):
                return feature(name, "categories", f"lists of names, {distinct(lists)}", lists)
            if has_words:
                counts = {len(value) for value in lists.values}
                option = "texts_per_row" if lists.is_all else "# texts_per_row"
                number: dict[str, Choice] = {option: (min(counts), f"in each of {lists.of}")}
                return _text(name, "texts", lists, **(number if len(counts) == 1 else {}))
            return feature(name, "raw", "lists of strings that hardly ever repeat", lists, many=(True, ""))
    return None


def _spaced(filled: list[str]) -> int:
    return sum(len(value.split()) > 1 for value in filled)


def _is_unspaced(filled: list[str]) -> bool:
    """Whether texts hardly have spaces, and are mostly beyond ASCII."""
    return 4 * _spaced(filled) < len(filled) and 2 * sum(not value.isascii() for value in filled) > len(filled)


def _text(name: str, kind: str, texts: Reading, **options: Choice) -> Guess:
    """Guesses texts of words, or of characters if spaces are rare, without truncating."""
    every = chain.from_iterable(texts.values) if kind == "texts" else texts.values
    filled = [text for text in every if text.strip()]
    values, of = pa.array(filled, pa.string()), count(len(filled), "text")
    what, lengths = "words", pc.count_substring_regex(values, WORD)
    if _is_unspaced(filled):
        what, lengths = "characters", pc.utf8_length(values)
        options["tokenizer"] = what, "few spaces, hardly any ASCII; `sentencepiece` would learn pieces of words"
    most = pc.max(lengths).as_py()
    options["# max_length"] = (max(1, most), f"the most {what} in {of}; by default all stay")
    return feature(name, kind, f"several words in {share_of(_spaced(filled), len(filled), of)}", texts, **options)


def _is_category(name: str, names: Reading) -> bool:
    """Whether strings are classes: short, and named as a label or repeating."""
    return names.fit >= FITS and _are_short(names) and (is_label(name) or _repeats(names))


def _are_short(names: Reading) -> bool:
    words = sum(len(value.split()) * count for value, count in names.distinct.items())
    return 0 < words <= 4 * sum(names.distinct.values())  # a class name has few


def _repeats(names: Reading) -> bool:
    """Whether at most 1,000 values come twice on average, or, in a few rows, any value repeats."""
    count = sum(names.distinct.values())
    if len(names.values) < FEW_ROWS:
        return len(names.distinct) < count
    return 2 * len(names.distinct) <= count and len(names.distinct) <= 1_000


def _identifier(name: str, values: Reading, **options: Choice) -> Guess:
    """Guesses names or numbers that identify: not a model's input, unless the user says so."""
    if _repeats(values):
        options["# kind"] = ("category", f"as an input: {distinct(values)}")
    return feature(name, "raw", "identifies something, by the column's name", values, **options)


def _numbers(sample: SourceSample, name: str, *, parse: bool = False) -> Guess | None:
    numbers = sample.read(name, ColumnType.NUMBER, parse=parse)
    if numbers.fit < FITS:
        return None
    is_whole = all(map(float.is_integer, numbers.distinct))
    names = sample.read(name, ColumnType.CATEGORY)  # refuses floats, even whole ones
    if is_whole and is_label(name) and names.fit >= FITS and (_repeats(numbers) or len(numbers.distinct) <= 2):
        return feature(name, "category", distinct(names), names)
    if is_whole and is_id(name):
        return _identifier(name, sample.read(name, ColumnType.INTEGER), type=("int64", ""))
    are_few = 1 < len(numbers.distinct) <= 20 and _repeats(numbers)
    maybe_codes = is_whole and names.fit >= FITS and (is_label(name) or are_few)
    codes = {"# kind": ("category", f"codes? {distinct(numbers)}")} if maybe_codes else {}
    return feature(name, "number", f"numbers, {_range(numbers)} in {numbers.of}", numbers, **codes)


def _range(numbers: Reading) -> str:
    least, most = min(numbers.distinct), max(numbers.distinct)
    return f"from {least:g} to {most:g}" if least < most else f"always {least:g}"


def distinct(names: Reading) -> str:
    """Describes the number of different values."""
    return f"{count(len(names.distinct), 'distinct value')} in {names.of}"


def share_of(part: int, whole: int, of: str) -> str:
    """Describes a share: `96 % of 1,000 rows`, a count if below 1 %, and only `of` for all."""
    percent = round(100 * part / whole) if whole else 0
    return of if part == whole else f"{min(99, percent)} % of {of}" if percent else f"{part:,} of {of}"
