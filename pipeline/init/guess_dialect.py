r"""How a file of cells is written: its encoding, its separator, and whether it has a header.

>>> guess_dialect(b"a;b\n1;2\n3;4\n", "csv").options
{'separator': ';'}
"""

import codecs
import csv
import io
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from recordmill.pipeline.sources.csv.source import SEPARATORS
from recordmill.pipeline.sources.paths import is_image

RECORDS = 200
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
UNDEFINED = b"\x81\x8d\x8f\x90\x9d"  # in Windows-1252


@dataclass(frozen=True)
class Dialect:
    """The options that are not a source's defaults, and why each option is as it is."""

    options: dict[str, Any] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)


def guess_dialect(head: bytes, form: str) -> Dialect:
    """Guesses how a file of cells is written by its first bytes; `form` is `csv` or `tsv`."""
    encoding, reason = guess_encoding(head)
    options: dict[str, Any] = {} if encoding == "utf-8" else {"encoding": encoding}
    why = {"encoding": reason} if reason else {}
    text = _text(head, encoding)
    default = "\t" if form == "tsv" else ","
    separator, quote, records = _cells(text, default)
    if separator != default:
        options["separator"] = separator
        why["separator"] = f"{len(records[0]):,} cells each in {_share(records)} first records"
    if quote is None:
        options["quote"] = None
        why["quote"] = "a quote is a character like others: taken as quotes, they would break records"
    if records and not _has_header(records):
        options["header"] = [f"column_{place}" for place in range(1, len(records[0]) + 1)]
        why["header"] = "the first record looks like data: name the columns here"
    return Dialect(options, why)


def guess_encoding(head: bytes) -> tuple[str, str]:
    """Guesses an encoding, and says why it is not UTF-8."""
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name, "a byte order mark says so"
    zeros = head[:1000].count(0)
    if zeros > len(head[:1000]) / 4:
        return (
            ("utf-16-le", "every second byte is 0") if head[1:2] == b"\0" else ("utf-16-be", "every second byte is 0")
        )
    text = _text(head, "utf-8")
    wrong = text.count("\ufffd")
    if sum(character > "\x7f" and character != "\ufffd" for character in text) >= wrong:
        return "utf-8", ""  # where most is UTF-8, the rest is damaged
    known = not any(byte in head for byte in UNDEFINED)
    return ("cp1252" if known else "latin-1"), f"not UTF-8, because of {_first_wrong(head)}: a guess, see the accents"


def _first_wrong(head: bytes) -> str:
    """The first byte that is not UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as error:
        return f"the byte 0x{head[error.start]:02x}"
    return "no byte"


def _text(head: bytes, encoding: str) -> str:
    """The text, of which a last character that is cut is left out."""
    return codecs.getincrementaldecoder(encoding)("replace").decode(head).removeprefix("\ufeff")


def _cells(text: str, default: str) -> tuple[str, str | None, list[list[str]]]:
    """The separator and the quote that give the most records of one length above 1, and the records."""
    best: tuple[str, str | None, list[list[str]]] = (default, '"', _records(text, default, '"'))
    for quote in ('"', None):
        for separator in dict.fromkeys(default + SEPARATORS):
            records = _records(text, separator, quote)
            if _score(records) > _score(best[2]):
                best = separator, quote, records
    return best


def _records(text: str, separator: str, quote: str | None) -> list[list[str]]:
    """The first records; one that is broken is empty."""
    records = []
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


def _score(records: list[list[str]]) -> tuple[float, int]:
    """The share of the records that are as long as the first one, and its length."""
    if not records or len(records[0]) < 2:
        return 0.0, 1
    length = len(records[0])
    return sum(len(record) == length for record in records) / len(records), length


def _share(records: list[list[str]]) -> str:
    alike = sum(len(record) == len(records[0]) for record in records)
    return f"the {alike:,}" if alike == len(records) else f"{alike:,} of {len(records):,}"


def _has_header(records: list[list[str]]) -> bool:
    """Whether the first record names the columns: not where it is like what stands below it."""
    first, below = records[0], [record for record in records[1:] if len(record) == len(records[0])]
    if len(set(first)) < len(first):
        return False
    kinds = [Counter(_kind(record[place]) for record in below).most_common(1) for place in range(len(first))]
    told = [(cell, kind[0][0]) for cell, kind in zip(first, kinds, strict=True) if kind and kind[0][0] != "text"]
    return not told or any(_kind(cell) != kind for cell, kind in told)


def _kind(cell: str) -> str:
    try:
        float(cell)
    except ValueError:
        return "picture" if is_image(cell) else "text"
    return "number"
