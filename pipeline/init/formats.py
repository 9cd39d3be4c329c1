"""The format of a file, by its name and its first bytes; and advice for what no source reads."""

import json
import posixpath
from shlex import quote
from typing import Any

from recordmill.pipeline.dataset.tfrecord import HEADER_BYTES, record_length
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.compression import codec, open_plain, uncompressed_name
from recordmill.pipeline.sources.paths import is_image

HEAD_BYTES = 64 << 10  # 64 KiB
MAX_JSON_BYTES = 64 << 20  # 64 MiB
ENDINGS = {
    "csv": ".csv", "tsv": ".tsv .tab", "jsonl": ".jsonl .ndjson", "parquet": ".parquet .pq", "webdataset": ".tar .tgz",
    "tfrecord": ".tfrecord .tfrecords .tfrec", "text": ".txt .text .md", "json": ".json",
}  # fmt: skip
FORMATS = {ending: form for form, endings in ENDINGS.items() for ending in endings.split()}
"""The format of a file by the ending of its name: a source's, or `json`."""
ROWS = "write its rows as Parquet or JSON Lines, and give these"
SHEETS = "save each sheet as CSV (UTF-8), and give these"
TO_PARQUET = (
    'make Parquet of it: python -c "import sys, pyarrow.ipc as f, pyarrow.parquet as p; '
    "p.write_table(f.{}(sys.argv[1]).read_all(), 'rows.parquet')\" {{0}}"
)
PDF, ZIP = b"%PDF", b"PK\3\4"
MAGIC = {
    ZIP: ("a ZIP archive", "unpack it (unzip {0} -d FOLDER), and give the folder"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it, and give the folder"),
    b"\xfd7zXZ": ("compressed by xz", "unpack it (xz -dk {0}), and give the result"),
    PDF: ("a PDF", "extract its text (pdftotext {0} FOLDER/name.txt), and give the folder"),
    b"ARROW1": ("an Arrow file", TO_PARQUET.format("open_file")),
    b"\xff\xff\xff\xff": ("an Arrow stream", TO_PARQUET.format("open_stream")),
    b"SQLite format 3": ("an SQLite database", "write it as CSV: sqlite3 -header -csv {0} 'select * from T' > t.csv"),
    b"\x1aE\xdf\xa3": ("a video", "extract its frames (ffmpeg -i {0} -r 1 FOLDER/%06d.jpg), and give the folder"),
    b"\x93NUMPY": ("a NumPy array", ROWS),
    b"\x89HDF": ("an HDF5 file", ROWS),
    b"\x80\4": ("a Python pickle", ROWS),
    b"\x80\5": ("a Python pickle", ROWS),
}
"""The files that no source reads, by their first bytes: their name, and the remedy."""
ZIPPED = {".xlsx": ("an Excel workbook", SHEETS), ".ods": ("a spreadsheet", SHEETS), ".npz": ("NumPy arrays", ROWS)}


class UnknownDataError(UserError):
    """No source reads the data; the message says what it is and what could be done."""


def format_of(files: Files, path: str) -> str:
    """The format of a file that is not empty: a source's, or `json`.

    Raises:
        UnknownDataError: no source reads it.
        OSError: it cannot be read.
    """
    head = read_head(files, path)
    what, advice = _foreign(path, head) or ("", "")
    if what:
        raise UnknownDataError(f"{path} is {what}, which no source reads: {advice.format(quote(path))}")
    if is_image(path):
        raise UnknownDataError(f"{path} is one image: give the folder of the images, {posixpath.dirname(path) or '.'}")
    return format_by_name(path) or _format_by_content(path, head)


def format_by_name(path: str) -> str | None:
    """The format that a file's name states: a source's, or `json`; None where it states none."""
    name = posixpath.basename(uncompressed_name(path)).lower()
    return "tfrecord" if ".tfrecord" in name else FORMATS.get(posixpath.splitext(name)[1])


def read_head(files: Files, path: str, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file, decompressed where its name says that it is compressed.

    Raises:
        UnknownDataError: compressed data is damaged.
        OSError: it cannot be read.
    """
    try:
        with open_plain(files, path) as file:
            return file.read(size)
    except OSError as error:
        if codec(path) is None:
            raise
        raise UnknownDataError(f"{path} cannot be read as {codec(path)}: {error}; is it cut off or damaged?") from error


def _foreign(path: str, head: bytes) -> tuple[str, str] | None:
    """The name of a format that no source reads, and the remedy."""
    ending = posixpath.splitext(path)[1].lower()
    if head.startswith(ZIP) and ending in ZIPPED:
        return ZIPPED[ending]
    if is_image(path) or (b"\0" not in head and not head.startswith(PDF)):  # text may begin with any letters
        return None
    return next((MAGIC[magic] for magic in MAGIC if head.startswith(magic)), None)


def _format_by_content(path: str, head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head[257:262] == b"ustar":
        return "webdataset"
    if record_length(head[:HEADER_BYTES]) is not None:
        return "tfrecord"
    if head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh")):
        raise UnknownDataError(f"{path} is compressed, and its name must say by what: let it end in .gz, .zst or .bz2")
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        what = f"{path} is of no format that is known here: it begins with {head[:8]!r}"
        raise UnknownDataError(f"{what}; write its rows as CSV, JSON Lines or Parquet, or give a folder of images")
    return "json" if head.lstrip()[:1] in (b"{", b"[") else "text"


def are_json_lines(head: bytes) -> bool:
    """Whether a file of JSON is lines of objects, by its first bytes."""
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
    if len(lines) == 1 and len(head) == HEAD_BYTES:
        return head.startswith(b"{")  # one long row: its end is not known
    return bool(lines) and all(isinstance(_parsed(line), dict) for line in lines[:2])


def check_json_lines(files: Files, path: str) -> None:
    """Checks that a file of JSON is one that the source `jsonl` reads.

    Raises:
        UnknownDataError: it is not; the message holds the command that makes lines of it.
        OSError: it cannot be read.
    """
    if are_json_lines(read_head(files, path)):
        return
    text = read_head(files, path, MAX_JSON_BYTES).removeprefix(b"\xef\xbb\xbf")
    whole = _parsed(text) if len(text) < MAX_JSON_BYTES else None
    several = "one JSON object over several lines" if isinstance(whole, dict) else "no JSON Lines"
    what = "one JSON array" if isinstance(whole, list) else several
    advice = "each line must be one JSON object"
    if whole and isinstance(whole, list | dict):
        lines = quote(f"{posixpath.splitext(path)[0]}.jsonl")
        advice = f"to make lines of it: jq -c {quote(_filter(whole))} {quote(path)} > {lines}"
    raise UnknownDataError(f"{path} is {what}, and JSON is read as lines: {advice}")


def _filter(whole: Any) -> str:
    """The filter of `jq` that gives one object for each row."""
    rows, start = whole, "."
    if isinstance(whole, dict):
        lists = {key: value for key, value in whole.items() if isinstance(value, list) and value}
        if not lists:
            return "."
        key = max(lists, key=lambda key: len(lists[key]))
        rows, start = lists[key], f".[{json.dumps(key)}]"
    name = "text" if isinstance(rows[0], str) else "value"
    return f"{start}[]" if isinstance(rows[0], dict) else f"{start}[] | {{{name}: .}}"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
