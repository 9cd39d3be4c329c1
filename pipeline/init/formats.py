"""The format of a file, by its name and its first bytes; and the options of a file of cells."""

import csv
import posixpath
import re
from typing import Any

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.compression import naming_damage, open_plain, uncompressed_name
from recordmill.pipeline.sources.csv.source import SEPARATORS
from recordmill.pipeline.sources.lines import BYTE_ORDER_MARK
from recordmill.pipeline.sources.paths import is_image

HEAD_BYTES = 64 << 10  # 64 KiB
ENDINGS = {
    "csv": ".csv", "tsv": ".tsv .tab", "jsonl": ".jsonl .ndjson", "parquet": ".parquet .pq", "webdataset": ".tar .tgz",
    "tfrecord": ".tfrecord .tfrecords .tfrec", "text": ".txt .text", "json": ".json",
}  # fmt: skip
FORMATS = {ending: form for form, endings in ENDINGS.items() for ending in endings.split()}
"""The format of a file by the ending of its name: a source's, or `json`."""
NUMERIC = re.compile(r"\s*[+-]?(\d[\d.]*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
"""A number as a cell."""
ROWS = "write its rows as Parquet, JSON Lines or CSV, and give these"
ARCHIVE = "an archive, which no source reads: unpack it, and give the folder"
WORKBOOK = "an Excel workbook, which no source reads: save each sheet as CSV (UTF-8), and give these"
FOREIGN = {
    **dict.fromkeys((".zip", ".rar", ".7z"), ARCHIVE),
    **dict.fromkeys((".xlsx", ".xls"), WORKBOOK),
    **dict.fromkeys((".npy", ".npz"), f"a NumPy array, which no source reads: {ROWS}"),
    **dict.fromkeys((".pkl", ".pickle"), f"a Python pickle, which no source reads: {ROWS}"),
}
"""The commonest files that no source reads: what they are, and the remedy, by the endings of their names."""


class UnknownDataError(UserError):
    """No source reads the data; the message says what it is and what could be done."""


def format_of(files: Files, path: str) -> str:
    """The format of a file that is not empty: a source's, or `json`; by its name, or text if it has no zero byte.

    Raises:
        UnknownDataError: no source reads it.
        OSError: it cannot be read.
    """
    foreign = FOREIGN.get(posixpath.splitext(path)[1].lower())
    if foreign:
        raise UnknownDataError(f"{path} is {foreign}")
    if is_image(path):
        raise UnknownDataError(f"{path} is one image: give the folder of the images, {posixpath.dirname(path) or '.'}")
    form = format_by_name(path)
    if form is None and b"\0" in read_head(files, path):
        raise UnknownDataError(f"{path} is of no format that is known by its name: {ROWS}, or give a folder of images")
    return form or "text"


def format_by_name(path: str) -> str | None:
    """The format that a file's name states: a source's, or `json`; None where it states none."""
    name = posixpath.basename(uncompressed_name(path)).lower()
    return "tfrecord" if ".tfrecord" in name else FORMATS.get(posixpath.splitext(name)[1])


def read_head(files: Files, path: str) -> bytes:
    """The first 64 KiB of a file, without a byte order mark, decompressed where its name says that it is compressed.

    Raises:
        SourceError: compressed data is damaged.
        OSError: it cannot be read.
    """
    with naming_damage(path), open_plain(files, path) as file:
        return file.read(HEAD_BYTES).removeprefix(BYTE_ORDER_MARK)


def cell_options(head: bytes, form: str) -> tuple[dict[str, Any], dict[str, str]]:
    r"""Reads the options of a file of cells, `csv` or `tsv`, off its first line.

    >>> cell_options(b"a;b\n1;2\n", "csv")[0]
    {'separator': ';'}

    Returns:
        The options that are not the source's defaults, and the reason of each.
    """
    first, default = head.partition(b"\n")[0].decode(errors="replace").strip("\r"), "\t" if form == "tsv" else ","
    separator = max(default + SEPARATORS, key=first.count)  # the first one of equals
    cells = next(csv.reader([first], delimiter=separator), [])
    options, why = dict[str, Any](), dict[str, str]()
    if separator != default:
        options["separator"], why["separator"] = separator, f"{len(cells):,} cells in the first line"
    if any(is_image(cell) or NUMERIC.fullmatch(cell) for cell in cells):
        options["header"] = [f"column_{number}" for number in range(1, len(cells) + 1)]
        why["header"] = "the first line looks like data: name the columns here, or remove this"
    return options, why
