"""Files of JSON Lines: planned as byte ranges, read as rows. Serves every source whose rows are such lines.

A compressed file (`pipeline.sources.compression`) can only be read from its start, so it is one range.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import pyarrow as pa

from recordmill.pipeline.dataset.key_hash import content_digest
from recordmill.pipeline.sources.base import Chunk, FileInfo, Files, SourceError
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.compression import codec, open_plain
from recordmill.pipeline.sources.jsonl.fields import Field, Places, Shape, json_fields
from recordmill.pipeline.sources.jsonl.parser import Parsed, Parser, peek
from recordmill.pipeline.sources.lines import Lines, pieces
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.typing.arrow_values import Pictures, lookup, typed_values
from recordmill.pipeline.sources.typing.checks import Faults, RawRows

PEEKED_LINES = 1_000
PEEKED_BYTES = 1 << 20  # 1 MiB
SAMPLE_BYTES = 64 << 10  # 64 KiB: what the number of rows is estimated from
COMPRESSED_SAMPLE_BYTES = 4 << 20  # 4 MiB, decompressed: some blocks of bzip2, which are 900 KB each
COUNTED_BYTES = 1 << 20  # read at a time to count lines


@dataclass(frozen=True)
class JsonRange:
    """A piece of a file: the lines that start in the bytes `[start, end)`, or all lines of a compressed file."""

    start: int
    end: int
    places: Places
    """Where the columns lie in the lines' objects, as the plan found it."""


def json_chunks(file: FileInfo, places: Places, chunk_bytes: int) -> list[Chunk]:
    """Cuts a file into ranges of about equal length, of at most `chunk_bytes`; an empty file has none."""
    if codec(file.path):
        return [Chunk(0, 0, file.path, file.bytes, JsonRange(0, sys.maxsize, places))]
    parts = -(-file.bytes // chunk_bytes)
    bounds = [file.bytes * part // parts for part in range(parts + 1)] if parts else []
    ranges = [JsonRange(start, end, places) for start, end in zip(bounds, bounds[1:], strict=False)]
    return [Chunk(0, 0, file.path, one.end - one.start, one) for one in ranges]


def first_shape(files: Files, path: str) -> Shape:
    """Looks at a file's first lines: what their objects hold.

    Raises:
        SourceError: none of the lines is a JSON object, the file is one JSON array, or its compressed data is damaged.
        OSError: the file cannot be read.
    """
    with _opened(files, path) as file:
        lines = (line for data in pieces(file, 0, PEEKED_BYTES) for line in _filled(Lines(data)))
        first = list(islice(lines, PEEKED_LINES))
    found = peek(first)
    if found.inner is None or (first[0].startswith(b"[") and not first[0].endswith(b"]")):
        raise SourceError(f"{path} holds no JSON object in its first lines; each line must be one: {{…}}{_hint(first)}")
    return found


def _hint(first: list[bytes]) -> str:
    """How lines are made of a file that is one JSON array, or whose objects are spread over lines."""
    start = first[0][:1] if first else b""
    if start == b"[":
        return ". It is one JSON array; to make lines of it: jq -c '.[]' FILE > FILE.jsonl"
    return ". To make one line of each object: jq -c . FILE > FILE.jsonl" if start == b"{" else ""


def places_of(columns: Columns, shape: Shape) -> Places:
    """Where the columns lie in a file's objects.

    Raises:
        SourceError: a column is wanted as a value, and another as a part of it.
    """
    places = {name: shape.place(name, many=column.many) for name, column in columns.items()}
    Parser(json_fields(columns, places))
    return places


def estimated_rows(files: Files, path: str, total_bytes: int) -> int:
    """Estimates the rows of `total_bytes` of files that are compressed alike by the beginning of one; at least 1.

    Its mean line is that of its first 64 KiB, or of its first 4 MiB if it is compressed.

    Raises:
        SourceError: the compressed data is damaged.
        OSError: the file cannot be read.
    """
    with files.open(path) as file, _naming(path):
        if name := codec(path):
            plain = pa.CompressedInputStream(pa.PythonFile(file, "r"), name)
            sample, whole = plain.read(COMPRESSED_SAMPLE_BYTES), file.tell()
        else:
            sample = file.read(SAMPLE_BYTES)
            whole = sample.rfind(b"\n") + 1 or len(sample)  # one line, or the beginning of one
    return max(1, round(total_bytes * max(1, sample.count(b"\n")) / max(1, whole)))


def counted_rows(files: Files, paths: Iterable[str]) -> int:
    """Counts the lines of files, blank ones too; about 1 s a GB, decompressed.

    Raises:
        SourceError: compressed data is damaged.
        OSError: a file cannot be read.
    """
    rows = 0
    for path in paths:
        last = b"\n"
        with _opened(files, path) as file:
            while block := file.read(COUNTED_BYTES):
                rows += block.count(b"\n")
                last = block[-1:]
        rows += last != b"\n"
    return rows


def read_json_lines(
    chunk: Chunk, path: str, files: Files, columns: Columns, pictures: Pictures, *, with_key: bool
) -> Iterator[RawRows]:
    """Reads the rows of a range, about 8 MiB at a time; the default key of a row is the digest of its line.

    `chunk.work` is a `JsonRange`; `pictures` are the root and the folder that paths of pictures are relative to
    (`pipeline.sources.typing.image_cells`).

    Raises:
        SourceError: the compressed data is damaged.
        OSError: the file cannot be read.
    """
    work: JsonRange = chunk.work
    fields = json_fields(columns, work.places)
    parser, first = Parser(fields), 0
    with _opened(files, path) as file:
        for data in pieces(file, work.start, work.end):
            lines = Lines(data)
            parsed = parser.parse(lines)
            faults: Faults = {}
            yield RawRows(
                columns=_columns(parsed, fields, columns, pictures, faults),
                positions=parsed.rows + first,
                keys=_digests(lines, parsed) if with_key else None,
                faults=faults,
                unparsed=_unparsed(chunk, first, lines, parsed, with_key),
                covered=len(lines),
            )
            first += len(lines)


def _columns(
    parsed: Parsed, fields: list[Field], columns: Columns, pictures: Pictures, faults: Faults
) -> dict[str, pa.Array]:
    read = {field.name: lookup(parsed.table, field.path) for field in fields}
    return {name: typed_values(name, columns[name], values, pictures, faults) for name, values in read.items()}


def _unparsed(chunk: Chunk, first: int, lines: Lines, parsed: Parsed, with_key: bool) -> list[Reject]:
    """The lines that are no rows; `first` is the place of the first line in the chunk."""
    return [
        Reject(chunk.index, first + line, fault.reason, fault.message, _reject_key(lines, line, with_key), fault.column)
        for line, fault in parsed.faults.items()
    ]


def _reject_key(lines: Lines, line: int, with_key: bool) -> str | None:
    """No digest where the line may be cut."""
    return content_digest(lines[line]).decode() if with_key and line not in lines.too_long else None


def _digests(lines: Lines, parsed: Parsed) -> pa.Array:
    return pa.array([content_digest(line) for line in lines.each(parsed.rows)], pa.binary())


def _filled(lines: Lines) -> Iterator[bytes]:
    return lines.each(lines.filled)


@contextmanager
def _opened(files: Files, path: str) -> Iterator[BinaryIO]:
    """A file, decompressed; it can be sought in only where it is not compressed."""
    with open_plain(files, path) as file, _naming(path):
        yield file


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Makes an error of decompression one that names the file."""
    try:
        yield
    except OSError as error:
        if codec(path) is None:
            raise
        raise SourceError(f"{path} cannot be read as {codec(path)}: {error}; is it cut off or damaged?") from error
