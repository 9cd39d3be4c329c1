r"""Guesses the dialect of a file of cells: its encoding, its separator, and whether it has a header.

>>> guess_dialect(b"a;b\n1;2\n3;4\n", "csv")[0]
{'separator': ';'}
"""

import codecs
import csv
import io
from collections import Counter
from typing import Any, Literal

from recordmill.pipeline.sources.csv.source import SEPARATORS
from recordmill.pipeline.sources.paths import is_image

RECORDS = 200
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
UNDEFINED = b"\x81\x8d\x8f\x90\x9d"  # in Windows-1252

Cells = list[list[str]]
"""The first records of a file; a broken one is empty."""


def guess_dialect(head: bytes, form: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Guesses how a file of cells is written by its first bytes; `form` is `csv` or `tsv`.

    Returns:
        The options that are not the source's defaults, and the reason of each.
    """
    options, why = guess_encoding(head)
    text = codecs.getincrementaldecoder(options.get("encoding", "utf-8"))("replace").decode(head).removeprefix("\ufeff")
    default = "\t" if form == "tsv" else ","
    choices = [(separator, quote) for quote in ('"', None) for separator in dict.fromkeys(default + SEPARATORS)]
    cells = {choice: _cells(text, *choice) for choice in choices}
    separator, quote = max(choices, key=lambda choice: _regularity(cells[choice]))  # of equals the first
    records = cells[separator, quote]
    if separator != default:
        options["separator"] = separator
        why["separator"] = f"{len(records[0]):,} cells in most of the first {len(records):,} records"
    if quote is None:
        options["quote"] = None
        why["quote"] = "a quote is a character like others: read as quotes, they would break records"
    if records and not _has_header(records):
        options["header"] = [f"column_{number}" for number in range(1, len(records[0]) + 1)]
        why["header"] = "the first record looks like data: name the columns here"
    return options, why


def guess_encoding(head: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Guesses the option `encoding`, with its reason; no option where it is UTF-8."""
    for mark, name in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return {"encoding": name}, {"encoding": "by its byte order mark"}
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    wrong = text.count("\ufffd")
    if sum(character > "\x7f" for character in text) >= 2 * wrong:
        return {}, {}  # most is UTF-8, and the rest is damaged
    name = "latin-1" if any(byte in head for byte in UNDEFINED) else "cp1252"
    return {"encoding": name}, {"encoding": f"a guess, see the accents: {wrong:,} bytes of the first are not UTF-8"}


def _cells(text: str, separator: str, quote: str | None) -> Cells:
    records: Cells = []
    quoting: Literal[0, 3] = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    lines = io.StringIO(text[: text.rfind("\n") + 1] or text, newline="")
    try:
        for record in csv.reader(lines, delimiter=separator, quoting=quoting, strict=True):
            if record:
                records.append(record)
            if len(records) == RECORDS:
                break
    except csv.Error:
        records.append([])
    return records


def _regularity(records: Cells) -> tuple[float, int]:
    """The share of the records that are as long as the first one, and its length."""
    if not records or len(records[0]) < 2:
        return 0.0, 1
    length = len(records[0])
    return sum(len(record) == length for record in records) / len(records), length


def _has_header(records: Cells) -> bool:
    """Whether the first record names the columns: its cells differ, also from the type of the cells below."""
    first, below = records[0], [record for record in records[1:] if len(record) == len(records[0])]
    if len(set(first)) < len(first):
        return False
    usual = [Counter(_type(record[column]) for record in below).most_common(1) for column in range(len(first))]
    typed = [(_type(cell), kind[0][0]) for cell, kind in zip(first, usual, strict=True) if kind]
    typed = [(own, other) for own, other in typed if other != "text"]
    return not typed or any(own != other for own, other in typed)


def _type(cell: str) -> str:
    try:
        float(cell)
    except ValueError:
        return "image" if is_image(cell) else "text"
    return "number"
