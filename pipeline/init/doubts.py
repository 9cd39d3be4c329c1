"""Doubts of `recordmill init`: readings of the data that may be wrong; written before all guesses.

>>> print(Doubt("a.tsv, column 'n'", "'1,5' is read as 1.5", "Two codes: remove `decimal`"))
In doubt: a.tsv, column 'n': '1,5' is read as 1.5. Two codes: remove `decimal`.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from recordmill.pipeline.dataset.placement import SPLITS
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.naming import PART_FILE, PART_FOLDER, are_divided
from recordmill.pipeline.sources.paths import listed

DAY = re.compile(r"(?<!\d)(\d{4})([-_/]?)(0[1-9]|1[0-2])\2([0-2]\d|3[01])(?=/)")  # a folder of a day
HARDLY_ANY, FEW_FILES, LARGE_BYTES, MANY_COLUMNS = 20, 100, 100_000, 100
COMMAS, THOUSANDS = re.compile(r"[+-]?\d++((\.\d{3})*,\d+)*"), re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
NO_JSON_LIST = re.compile(r"\s*(\[\s*(['\"\d.-]|b'|None|True|False)|([+-]?[\d.]+\s+){3}[\s\d.+-]*$)")
REMEDIES = {  # by the meaning of commas
    "unsure": "Numbers: `decimal: ','`. Codes: `kind: categories, separator: ','`",
    "thousands": "Thousands: write numbers without commas between them. Codes: `kind: categories, separator: ','`",
    "decimal": "Numbers: write them with a point, and with nothing between thousands, such as 1234.5",
}
UNIT = re.compile(r"([$€£¥]?)\s*+[+-]?[\d.,]*\d\s*+([^\s\d.,;|]{0,5})")  # a number with a unit around it
CODE = re.compile(r"0|[1-9]\d{0,3}")
EXPORTS = {
    "region_shape_attributes": ("VIA's regions, whose boxes and shapes are read from its JSON alone",
                                "Export annotations as JSON in VIA, and give `init` that file"),
    "annotation_kind": ("Labelbox's objects, whose shapes are no mask", "Write COCO's JSON, and give `init` that file"),
}  # fmt: skip
"""Other tools' exports by a column: what they are, and the remedy."""


class UnknownDataError(UserError):
    """Raised for data that no source reads; the message says what it is and what to do."""


@dataclass(frozen=True)
class Doubt:
    """A reading that may be wrong: its place, the reading, and the alternative."""

    place: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"In doubt: {self.place[:120]}: {self.what[:150]}. {self.remedy}."  # at most 400 letters of comment


Written = tuple[dict[str, Any], dict[str, str], list[Doubt]]  # options as files are written, their reasons, and doubts


def folder_doubts(paths: Sequence[str]) -> list[Doubt]:
    """Doubts that files are rows, classed by folder, if they pair by name, or folders are named as parts of a row."""
    start, folders = posixpath.commonprefix(paths).rfind("/") + 1, dict[str, list[tuple[str, str]]]()
    for path in paths if len(paths) > 1 else ():
        folder, name = posixpath.split(path[start:])
        below = DAY.sub("", f"{folder}/").strip("/")
        inside = "/".join(part for part in below.split("/") if part.lower() not in SPLITS) or below and folder
        folders.setdefault(inside, []).append((folder, PART_FILE.sub("", posixpath.splitext(name)[0])))
    times = Counter(chain.from_iterable({stem for _, stem in some} for some in folders.values()))
    twice = sum(count > 1 for count in times.values())
    are_paired = 10 * twice >= 9 * len(times) and not folders.keys() <= SPLITS.keys()
    names = {folder for folder in folders if are_paired or (len(folders) > 1 and PART_FOLDER.fullmatch(folder))}
    names |= {folder or "." for folder, some in folders.items() if 10 * len(set(some)) <= 9 * len(some)}
    alone = {posixpath.dirname(folder) for folder in names if len(folders.get(folder, "")) == 1}
    remedy = "Masks, if no JPEG: `beside: {mask: FOLDER}`. Pairs: a table, a row a pair, a column a file"
    remedy += ". One part alone: give its folder to `init`"
    if len(alone) > 1 and not are_paired:  # a folder an image
        remedy = 'A mask an object, an image a folder: JSON Lines of {"image": FILE, "masks": [FILE, …]}, `kind: masks`'
    what = "each file is a row, but by the names may be a part of one, such as an image or its mask"
    return [Doubt(f"folders {listed(sorted(names), 3)}", what, remedy)] if names else []


def document_doubts(sizes: Mapping[str, int]) -> list[Doubt]:
    """Doubts that each of a few text files is a row; takes the files' sizes in bytes."""
    mean, names = sum(sizes.values()) // max(1, len(sizes)), [posixpath.basename(path) for path in sorted(sizes)]
    if not 0 < len(sizes) < (FEW_FILES if mean >= LARGE_BYTES else HARDLY_ANY):
        return []
    words = [[word for word in re.split("[^a-z]+", name.lower()) if word in SPLITS] for name in names]
    names = [names[0], *sorted(names[1:], key=lambda name: words[names.index(name)] != words[0])][:2]
    columns = ", ".join(f"{part}: {name}" for part, name in zip("ab", names, strict=False))
    join = f"Line n of one belongs to line n of another: `columns: {{{columns}}}`"
    what = f"each whole file is one row, {mean:,} bytes on average"
    place = f"{len(sizes):,} files such as {' and '.join(names)}"
    return [Doubt(place, what, f"Each line is a row: `document: line`. {join}")]


def commas(cells: Sequence[str]) -> str | None:
    """Classifies commas in a column of numbers: decimal, codes, thousands or unsure; None without commas.

    >>> [commas(cells) for cells in (["1,05"], ["4", "27", "4,27"], ["1,2,3"], ["1,000"], ["1,5"], ["7"])]
    ['decimal', 'codes', 'codes', 'thousands', 'unsure', None]
    """
    numbers = [cell for cell in cells if COMMAS.fullmatch(cell)]
    some, alone = [cell.split(",") for cell in numbers if "," in cell], set(cells)
    parts, thousands = list(chain.from_iterable(some)), [cell for cell in numbers if THOUSANDS.fullmatch(cell)]
    if not some or 2 * len(numbers) <= sum(map(bool, cells)):
        return None
    if len(thousands) == len(some):
        return "thousands"
    if max(map(len, some)) == 2 and not all(map(CODE.fullmatch, parts)):
        return "decimal"
    is_known = 10 * sum(part in alone for part in parts) >= 9 * len(parts)
    return "codes" if is_known or max(map(len, some)) > 2 else "unsure"


def value_doubts(name: str, cells: Sequence[str], kind: str) -> list[Doubt]:
    """Doubts commas, lists written as text, units, splits of some rows only, and the code -1 as a class."""
    numbers, found = [cell.strip() for cell in cells], list[tuple[str, str]]()
    meaning, are_texts = commas(numbers), kind in ("raw", "text", "category")
    if meaning in REMEDIES and (meaning != "decimal" or kind not in ("number", "numbers")):
        found.append((next(cell for cell in numbers if "," in cell and COMMAS.fullmatch(cell)), REMEDIES[meaning]))
    lists = list(filter(NO_JSON_LIST.match, cells))
    if are_texts and 2 * len(lists) > len(cells):
        found.append((cut(lists[0], 40), "A list: write JSON, by Python's `json.dumps`"))
    filled = list(filter(None, numbers))
    units = {match and "".join(match.groups()) for match in map(UNIT.fullmatch, filled)} if are_texts else {None}
    if len(units) == 1 and (unit := units.pop()):
        found.append((filled[0], f"Numbers: write them without {unit}"))
    named = [cell for cell in filled if cell.lower() in SPLITS] if are_texts else []
    if len(named) < len(cells) and are_divided(SPLITS[cell.lower()] for cell in named):
        found.append((named[0], f"Splits: `split_by: {{column: {name}, values: …}}`; other rows are rejects"))
    if kind == "category" and {"-1", "0"} <= {*cells}:
        found.append(("-1", "Rows without a label: leave them out"))
    return [Doubt(f"column '{name}'", f"'{cell}' is read as `kind: {kind}`", remedy) for cell, remedy in found]


def column_doubts(names: Sequence[str]) -> list[Doubt]:
    """Doubts that hundreds of numbered columns are as many features, and that other tools' objects are features."""
    exported = [name for name in names if name.rpartition(".")[2] in EXPORTS]
    if exported:
        return [Doubt(f"column '{exported[0]}'", *EXPORTS[exported[0].rpartition(".")[2]])]
    starts = Counter(re.sub(r"\d+", "…", name) for name in names if name[-1:].isdecimal())
    remedy = "Of CSV one feature: `column: f*`, of `kind: image` with a `shape`, or `array`. Else write one of lists"
    many = [(start, count) for start, count in starts.items() if count >= MANY_COLUMNS]
    return [Doubt(f"columns {start}", f"{count:,} numbered columns, each a feature", remedy) for start, count in many]
