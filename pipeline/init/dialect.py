r"""Finds how files of cells are written by their first lines: what stands before the header, escapes, blanks.

>>> find_dialect(["sep=;", "a;b", "1;2"], ",")[0]
{'separator': ';', 'skip': 1}
"""

from collections.abc import Sequence
from typing import Any

from recordmill.pipeline.sources.formats.csv import SEPARATOR_LINE, SEPARATORS, cells_of
from recordmill.pipeline.sources.formats.csv_records import Dialect

WRITTEN: tuple[dict[str, Any], ...] = ({}, {"escape": "\\"}, {"trim": True}, {"escape": "\\", "trim": True})
WHY = {"escape": 'quotes are written as \\", or NULL as \\N', "trim": "blanks stand before cells"}


Found = tuple[dict[str, Any], dict[str, str], Sequence[str], Sequence[str]]
"""The options that are not the source's defaults, their reasons, the cells of the header, and the lines behind it."""


def find_dialect(lines: Sequence[str], default: str) -> Found:
    """Finds how a file is written whose first lines, none of them blank, are given; `default` is the separator."""
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
        options["header"], why["header"] = names, "separators at the ends of lines: the file's own does not fit"
    if total := skip + ("header" in options):
        options["skip"], why["skip"] = total, "lines that are no rows: comments, `sep=`, or a header"
    return options, why, names, rest


def _stands_before(line: str, lines: Sequence[str]) -> bool:
    """Whether a line is `sep=;`, or a comment: begins with `#`, and is no header of the next one that does not."""
    below = next((other for other in lines if not other.startswith("#")), "")
    if not line.startswith("#") or not below:
        return SEPARATOR_LINE.fullmatch(line.strip('"')) is not None
    separator = max(SEPARATORS, key=below.count)
    cells, others = line.count(separator), below.count(separator)
    if line[1:2].isalnum():  # `#id,text`
        return cells == 0 < others
    return cells != others or not others or not any(map(str.isdigit, below))  # NumPy's `# a,b` above numbers


def _fit(lines: Sequence[str], separator: str, options: dict[str, Any]) -> tuple[int, bool]:
    r"""Counts the rows as long as the header, less others; of equals, blanks behind all separators or `\N` decide."""
    rows, text = _rows(lines, separator, options), "\n".join(lines)
    is_spaced = 0 < text.count(separator) == text.count(f"{separator} ")
    has_null = any(cell == r"\N" for line in lines for cell in line.split(separator))
    is_usual = is_spaced and options == {"trim": True} or has_null and options == {"escape": "\\"}
    return 2 * sum(len(row) == len(rows[0]) for row in rows) - len(rows), is_usual


def _rows(lines: Sequence[str], separator: str, options: dict[str, Any]) -> list[list[str]]:
    cells = cells_of((f"{line}\n".encode() for line in lines), Dialect(separator, **options))
    return [row for row in cells if row is not None]
