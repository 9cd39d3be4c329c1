r"""Finds how text files are written, by their first bytes: encoding, and for cells separator, escapes and header.

>>> find_encoding("a.csv", ["Köln".encode("cp1252")])
('cp1252', 'not UTF-8; as cp1252 a word is Köln; --encoding names another')

>>> find_dialect(["sep=;", "a;b", "1;2"], ",")[0]
{'separator': ';', 'skip': 1}
"""

import codecs
import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.doubts import Doubt, Written, commas
from recordmill.pipeline.sources.formats.csv import SEPARATOR_LINE, SEPARATORS, cells_of
from recordmill.pipeline.sources.formats.csv_records import Dialect
from recordmill.pipeline.sources.naming import PIXELS
from recordmill.pipeline.sources.paths import is_image, listed

MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
         codecs.BOM_UTF16_BE: "utf-16"}  # fmt: skip
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # bytes undefined in cp1252
HIGH = re.compile(rb"[\x80-\xff]")
WORD = re.compile(rb"[^\s,;\"']+")
NUMERIC = re.compile(r"\s*[+-]?(\d[\d.]*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)  # a number in a cell
LEAST_SIDE, BYTE = 8, re.compile(r"\d\d?|1\d\d|2[0-4]\d|25[0-5]")  # of images in columns
POINT = re.compile(r"[+-]?\d+\.\d+")
SHOWN, SHOWN_LINES, SENTENCE, FEW_LINES = 3, 1_000, 4, 3
WRITTEN: tuple[dict[str, Any], ...] = ({}, {"escape": "\\"}, {"trim": True}, {"escape": "\\", "trim": True})
WHY = {"escape": 'quotes are written as \\", or NULL as \\N', "trim": "blanks stand before cells"}


def find_encoding(path: str, heads: Sequence[bytes]) -> tuple[str, str]:
    """Finds files' encoding by their first bytes, and why ('' for UTF-8). Raises: UserError: not even cp1252."""
    for head in heads:
        if mark := next((mark for mark in MARKS if head.startswith(mark)), None):
            return MARKS[mark], "by the byte order mark"
        for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            if 2 * head[start::2].count(0) > len(head[start::2]):
                return name, "every other byte is 0"
    others = [head for head in heads if not _is_utf8(head)]
    if not others:
        return "utf-8", ""
    head = others[0]
    if UNDEFINED.search(head) or 3 * len(HIGH.findall(head)) > len(re.findall(rb"[A-Za-z]", head)):
        message = "is neither UTF-8 nor, by its bytes, cp1252: name its encoding, such as --encoding cp1251 or gb18030"
        raise UserError(f"{path} {message}")
    word = min(filter(HIGH.search, WORD.findall(head)), key=len).decode("cp1252")
    also = "; some files are UTF-8: give them a source" if any(map(HIGH.search, {*heads} - {*others})) else ""
    return "cp1252", f"not UTF-8; as cp1252 a word is {word}; --encoding names another{also}"


def _is_utf8(head: bytes) -> bool:
    """Whether text is UTF-8, tolerating fewer damaged bytes than letters beyond ASCII."""
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(head)
        return True
    text = head.decode("utf-8", "surrogateescape")
    damaged = sum("\udc80" <= letter <= "\udcff" for letter in text)
    return 2 * damaged <= sum(letter > "\x7f" for letter in text)


def cell_options(
    head: bytes, form: str, path: str = "", more: Sequence[str] = (), beside: Callable[[], Any] = list, own: int = 0
) -> Written:
    r"""Finds the options of a file of cells, `csv` or `tsv`, by its first lines and those of more files.

    >>> cell_options(b"a;b\n1;2\n", "csv")[0]
    {'separator': ';'}

    Returns options other than the defaults, their reasons, and doubts. If files `beside` the data name classes, numbers
    with a comma are read as codes if possible. The first `own` of `more` are of the same source.
    """
    first, *others = re.split("\r\n?|\n", head.decode(errors="replace"))
    default = "\t" if form == "tsv" else ","
    options, why, names, lines = find_dialect(list(filter(None, [first, *others[:-1]]))[:SHOWN_LINES], default)
    separator = options.get("separator", default)
    rows = ([cell.strip('" ') for cell in line.split(separator)] for line in lines)
    columns = list(zip(*(row for row in rows if len(row) == len(names)), strict=True))
    unnamed = sum(any(cells) for name, cells in zip(names, columns, strict=False) if not name)
    behind = [] if "skip" in options else more
    firsts, doubts = [names, *(next(csv.reader([line], delimiter=separator), []) for line in behind)], list[Doubt]()
    if "header" not in options and (data := _not_names(firsts, columns)):
        options["header"] = [f"column_{number}" for number in range(1, len(names) + 1)]
        if square(len(names) - 1) and all(map(BYTE.fullmatch, {*names, *chain.from_iterable(columns)})):
            pixels = [f"pixel{number}" for number in range(len(names) - 1)]  # beside a label: corners hardly vary
            start, end = (len({*columns[at]}) if columns else 0 for at in (0, -1))
            is_last = 1 < end and (start == 1 or end < start)
            options["header"] = [*pixels, "label"] if is_last else ["label", *pixels]
        doubts = [Doubt(path, f"the first line is a row: {data}", "Name the columns in `header`, or remove it")]
    elif tuple(names) in zip(*columns, strict=True):
        doubts = [Doubt(path, f"the header is repeated: {listed(names, SHOWN)}", "Two tables? Remove that header")]
    elif unnamed > 1 or any(name.count(" ") >= SENTENCE for name in names) or not set.intersection(*map(set, firsts)):
        remedy = "A row: `header: [column_1, …]`. A title: `skip`. Several tables: give one to `init`"
        doubts = [Doubt(path, f"the first line is read as names: {listed(names, SHOWN)}", remedy)]
    elif apart := [each for each in firsts[1 : own + 1] if 2 * len({*each} & {*names}) <= min(len(each), len(names))]:
        what = f"another file has the columns {listed(apart[0], SHOWN)}, and its rows are others"
        doubts = [Doubt(path, what, "Parts of the same rows? Join them by their id, or give one file to `init`")]
    if options.keys().isdisjoint(WHY) and _are_plain(lines, separator, len(names)):
        options["quote"], why["quote"] = None, "a cell begins with an unclosed quote"
    kinds = [] if separator == "," else list(map(commas, columns))
    is_decimal = "decimal" in kinds or ("unsure" in kinds and not beside())
    if is_decimal and not any(map(POINT.fullmatch, chain.from_iterable(columns))):
        options["decimal"], why["decimal"] = ",", "numbers such as 1,5, and none such as 1.5"
    return options, why, doubts


def numbered_pixels(names: Iterable[str]) -> list[str]:
    """Replaces columns of a square image's pixels by one name.

    >>> numbered_pixels(["label", *(f"pixel{number}" for number in range(64))])
    ['label', 'pixel*']
    """
    every = [(name, re.sub("[0-9]+", "*", name)) for name in names]
    stars = Counter(star for _, star in every if PIXELS.search(star))
    return list(dict.fromkeys(star if square(stars[star]) else name for name, star in every))


def square(numbers: int) -> list[int] | None:
    """Returns the shape of a square image of as many numbers, of one channel or three; None for others."""
    side, colour = math.isqrt(max(0, numbers)), math.isqrt(max(0, numbers) // 3)
    shape = [side, side] if side * side == numbers else [colour, colour, 3]
    return shape if LEAST_SIDE**2 <= numbers == math.prod(shape) else None


def _not_names(firsts: Sequence[Sequence[str]], columns: Sequence[Sequence[str]]) -> str:
    """Returns why the cells of files' first lines are not column names; '' if they may be."""
    names, are_alike = firsts[0], len(set(map(len, firsts))) == 1 < len(firsts)
    digits = [int(cell) for cell in names if cell.isdecimal()]
    if len(digits) > LEAST_SIDE and digits == list(range(digits[0], digits[0] + len(digits))) and digits[0] < 2:
        return ""  # pandas' names of an array's columns
    data = [cell for cell in names if is_image(cell) or NUMERIC.fullmatch(cell)]
    sentences = [cell for cell in names if cell.endswith((".", "!", "?"))]
    data += sentences if 2 * len(sentences) > len(names) > 1 else []
    again = [name for name, cells in zip(names, columns, strict=False) if name and name in cells]
    if data or 0 < len(again) < len(names):  # all names again: a file was appended with its header
        return f"'{[*data, *again][0]}' is {'a value' if data else 'in its column again'}"
    return "the files share no name" if are_alike and not set.intersection(*map(set, firsts)) else ""


def _are_plain(lines: Sequence[str], separator: str, cells: int) -> bool:
    """Whether each line has all cells only if quotes are plain characters."""
    if cells == 1 or any(line.count(separator) != cells - 1 for line in lines):
        return False
    with suppress(csv.Error):
        return len(list(csv.reader(lines, delimiter=separator, strict=True))) < len(lines)
    return True


def form_of(lines: Sequence[str]) -> str:
    """Returns the format of lines of text, `tsv` or `csv` where all have as many separators."""
    for separator, form, least in (("\t", "tsv", 1), (";", "csv", 2), ("|", "csv", 2), (",", "csv", 2)):
        counts = {line.count(separator) for line in lines[:SHOWN_LINES] if line.strip()}
        if len(counts) == 1 and min(counts) >= least and len(lines) > FEW_LINES and lines[0][:1] not in "[{":
            return form
    return "text"


Found = tuple[dict[str, Any], dict[str, str], Sequence[str], Sequence[str]]
"""Options other than the defaults, their reasons, the header's cells, and the lines after it."""


def find_dialect(lines: Sequence[str], default: str) -> Found:
    """Finds how a file with these non-blank first lines is written; `default` is the separator."""
    skip = next((number for number, line in enumerate(lines) if not _stands_before(line, lines[number:])), 0)
    named, lines = [SEPARATOR_LINE.fullmatch(line.strip('"')) for line in lines[:skip]], lines[skip:]
    first, *rest = lines or [""]
    separator = next((found[1] for found in named if found), max(default + SEPARATORS, key=first.count))
    best = max(WRITTEN, key=lambda options: _fit(lines, separator, options))
    names, *rows = _rows(lines, separator, best) or [[]]
    options, why = dict(best), {name: WHY[name] for name in best}
    if separator != default:
        options["separator"], why["separator"] = separator, f"{len(names):,} cells in the first line"
    is_even = len({*map(len, rows)}) == 1 and len({*names}) == len(names)
    width = len(rows[0]) if is_even else len(names)
    if width != len(names) and not any(any(cells[min(width, len(names)) :]) for cells in (names, *rows)):
        names = [*names, *(f"column_{number}" for number in range(len(names) + 1, width + 1))][:width]
        options["header"], why["header"] = names, "separators at the ends of lines: the file's own header does not fit"
    if total := skip + ("header" in options):
        options["skip"], why["skip"] = total, "lines before the rows: comments, `sep=`, or a header"
    return options, why, names, rest


def _stands_before(line: str, lines: Sequence[str]) -> bool:
    """Whether a line is `sep=;` or a comment: it begins with `#`, and does not fit as the header of the lines below."""
    below = next((other for other in lines if not other.startswith("#")), "")
    if not line.startswith("#") or not below:
        return SEPARATOR_LINE.fullmatch(line.strip('"')) is not None
    separator = max(SEPARATORS, key=below.count)
    cells, others = line.count(separator), below.count(separator)
    if line[1:2].isalnum():  # `#id,text`
        return cells == 0 < others
    return cells != others or not others or not any(map(str.isdigit, below))  # NumPy's `# a,b` above numbers


def _fit(lines: Sequence[str], separator: str, options: dict[str, Any]) -> tuple[int, bool]:
    r"""Counts rows as long as the header, less others; of equals, blanks after all separators or `\N` decide."""
    rows, text = _rows(lines, separator, options), "\n".join(lines)
    is_spaced = 0 < text.count(separator) == text.count(f"{separator} ")
    has_null = any(cell == r"\N" for line in lines for cell in line.split(separator))
    is_usual = is_spaced and options == {"trim": True} or has_null and options == {"escape": "\\"}
    return 2 * sum(len(row) == len(rows[0]) for row in rows) - len(rows), is_usual


def _rows(lines: Sequence[str], separator: str, options: dict[str, Any]) -> list[list[str]]:
    cells = cells_of((f"{line}\n".encode() for line in lines), Dialect(separator, **options))
    return [row for row in cells if row is not None]
