"""What a file holds, by its name and its first bytes; and what can be done with what no source reads."""

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
LINES = "each line must be one JSON object"
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".tar": "webdataset",
    ".tgz": "webdataset",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".tfrec": "tfrecord",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
}
"""The format of a file by its name's ending."""
JSON_ENDING = ".json"
TO_PARQUET = (
    'make Parquet of it: python -c "import sys, pyarrow.{0} as f, pyarrow.parquet as p; '
    "p.write_table(f.{1}(sys.argv[1]){2}, 'rows.parquet')\" {{0}}"
)
PDF = b"%PDF"
MAGIC = {
    b"PK\3\4": ("a ZIP archive", "unpack it (unzip {0} -d FOLDER), and give the folder"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it (7z x {0} -oFOLDER), and give the folder"),
    b"Rar!": ("a RAR archive", "unpack it, and give the folder"),
    b"\xfd7zXZ": ("compressed by xz", "unpack it (xz -dk {0}), and give the result"),
    PDF: ("a PDF", "extract its text (pdftotext {0} FOLDER/name.txt), and give the folder"),
    b"\x93NUMPY": ("a NumPy array", "write its rows as Parquet, JSON Lines or pictures, and give these"),
    b"ARROW1": (
        "an Arrow file",
        TO_PARQUET.format("ipc", "open_file", ".read_all()"),
    ),
    b"\xff\xff\xff\xff": (
        "an Arrow stream",
        TO_PARQUET.format("ipc", "open_stream", ".read_all()"),
    ),
    b"FEA1": ("a Feather file", TO_PARQUET.format("feather", "read_table", "")),
    b"ORC": ("an ORC file", TO_PARQUET.format("orc", "read_table", "")),
    b"Obj\1": ("an Avro file", "write its rows as Parquet or JSON Lines, and give these"),
    b"SQLite format 3": (
        "an SQLite database",
        "write a table as CSV: sqlite3 -header -csv {0} 'select * from TABLE' > rows.csv",
    ),
    b"\x89HDF": ("an HDF5 file", "write its rows as Parquet, JSON Lines or pictures, and give these"),
    b"\x80\4": ("a Python pickle", "write its rows as Parquet or JSON Lines, and give these"),
    b"\x80\5": ("a Python pickle", "write its rows as Parquet or JSON Lines, and give these"),
    b"\xd0\xcf\x11\xe0": ("an old Office document", "save it as CSV or text, and give that"),
    b"ID3": ("a sound", "sounds are not read"),
    b"OggS": ("a sound", "sounds are not read"),
    b"fLaC": ("a sound", "sounds are not read"),
    b"\x1aE\xdf\xa3": ("a video", "take pictures out of it (ffmpeg -i {0} -r 1 FOLDER/%06d.jpg), and give the folder"),
}
"""What no source reads, by its first bytes: what it is, and what to do."""
ZIPPED = {
    ".xlsx": ("an Excel workbook", "save each sheet as CSV (UTF-8), and give these"),
    ".ods": ("a spreadsheet", "save each sheet as CSV (UTF-8), and give these"),
    ".docx": ("a Word document", "save it as text, and give that"),
    ".npz": ("NumPy arrays", "write their rows as Parquet, JSON Lines or pictures, and give these"),
}
"""ZIP archives that have a name of their own."""


class UnknownDataError(UserError):
    """No source reads it; the message says what was found and what could be done."""


def format_of(files: Files, path: str) -> str:
    """The format of a file that is not empty: a source's, or `json`.

    Raises:
        UnknownDataError: no source reads it.
        OSError: it cannot be read.
    """
    known = format_by_name(path)
    head = read_head(files, path)
    what, advice = _foreign(path, head) or ("", "")
    if what:
        raise UnknownDataError(f"{path} is {what}, which no source reads: {advice.format(quote(path))}")
    if is_image(path):
        raise UnknownDataError(
            f"{path} is one picture: give the folder of the pictures, {posixpath.dirname(path) or '.'}"
        )
    return known or _format_by_content(path, head)


def format_by_name(path: str) -> str | None:
    """The format that a file's name tells: a source's, or `json`; None where it tells none."""
    name = posixpath.basename(uncompressed_name(path)).lower()
    if ".tfrecord" in name:
        return "tfrecord"
    ending = posixpath.splitext(name)[1]
    return "json" if ending == JSON_ENDING else FORMATS.get(ending)


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
    """What a file is that no source reads, and what to do."""
    ending = posixpath.splitext(path)[1].lower()
    if head.startswith(b"PK\3\4") and ending in ZIPPED:
        return ZIPPED[ending]
    if head[4:8] == b"ftyp" and not is_image(path):
        return "a video", MAGIC[b"\x1aE\xdf\xa3"][1]
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return MAGIC[b"ID3"]
    if head.startswith(PDF):
        return MAGIC[PDF]
    is_text = b"\0" not in head  # which may begin with any letters
    return None if is_text else next((found for magic, found in MAGIC.items() if head.startswith(magic)), None)


def _format_by_content(path: str, head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head[257:262] == b"ustar":
        return "webdataset"
    if record_length(head[:HEADER_BYTES]) is not None:
        return "tfrecord"
    if head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh")):
        raise UnknownDataError(f"{path} is compressed; its name must tell by what: let it end in .gz, .zst or .bz2")
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnknownDataError(
            f"{path} is of no format that is known here: it begins with {head[:8]!r}; write its rows as CSV, JSON "
            "Lines or Parquet, or give a folder of pictures"
        )
    return "json" if head.lstrip()[:1] in (b"{", b"[") else "text"


def json_form(head: bytes) -> str:
    """What JSON a file is by its first bytes: `lines` of objects, one `array`, an `object` over lines, or `other`."""
    if head[:1] == b"{" and len(head) == HEAD_BYTES and b"\n" not in head:
        return "lines"
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
    if lines and all(isinstance(_parsed(line), dict) for line in lines[:2]):
        return "lines"
    start = lines[0].lstrip()[:1] if lines else b""
    return {b"[": "array", b"{": "object"}.get(start, "other")


def check_json_lines(files: Files, path: str, head: bytes) -> None:
    """Checks that a file of JSON is one that the source `jsonl` reads.

    Raises:
        UnknownDataError: it is not; the message says how to make lines of it.
        OSError: it cannot be read.
    """
    form = json_form(head)
    if form == "lines":
        return
    text = read_head(files, path, MAX_JSON_BYTES).removeprefix(b"\xef\xbb\xbf")
    whole = _parsed(text) if len(text) < MAX_JSON_BYTES else None
    several = "one JSON object over several lines" if isinstance(whole, dict) else "no JSON Lines"
    what = "one JSON array" if isinstance(whole, list) else several
    lines = f"{posixpath.splitext(path)[0]}.jsonl"
    advice = f"to make lines of it: jq -c {quote(_filter(whole))} {quote(path)} > {quote(lines)}" if whole else LINES
    raise UnknownDataError(f"{path} is {what}, and JSON is read as lines: {advice}")


def _filter(whole: Any) -> str:
    """The filter of `jq` that gives an object a row."""
    rows, start = whole, "."
    if isinstance(whole, dict):
        lists = {key: value for key, value in whole.items() if isinstance(value, list) and value}
        key = max(lists, key=lambda key: len(lists[key]), default=None)
        if key is None:
            return "."
        rows, start = lists[key], f".[{json.dumps(key)}]"
    each = f"{start}[]"
    name = "text" if isinstance(rows[0], str) else "value"
    return each if isinstance(rows[0], dict) else f"{each} | {{{name}: .}}"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
