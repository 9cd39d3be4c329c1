"""Files of JSON Lines: planned as byte ranges, read as rows. Serves every source whose rows are such lines."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import pyarrow as pa

from pipeline.columns import ARROW_TYPES, Columns
from pipeline.rejects import Reject
from pipeline.sources.base import Chunk, FileInfo, Files, SourceError
from pipeline.sources.checks import RawRows
from pipeline.sources.json_parser import Parsed, arrow_schema, parse_lines, peek
from pipeline.sources.lines import Lines, pieces

PEEKED_LINES = 1_000
PEEKED_BYTES = 1 << 20  # 1 MiB
SAMPLE_BYTES = 64 << 10  # 64 KiB: what the number of rows is estimated from
COUNTED_BYTES = 1 << 20  # read at a time to count lines

Fields = Mapping[str, str]
"""The JSON field of a column, where it is not the column's name."""


@dataclass(frozen=True)
class JsonRange:
    """A piece of a file: the lines that start in the bytes `[start, end)`."""

    start: int
    end: int
    category_types: Mapping[str, str]
    """The JSON type of each category: string, integer or boolean, as the plan found it."""


def json_ranges(file: FileInfo, category_types: Mapping[str, str], chunk_bytes: int) -> list[JsonRange]:
    """Cuts a file into ranges of about equal length, of at most `chunk_bytes`; an empty file has none."""
    parts = -(-file.bytes // chunk_bytes)
    bounds = [file.bytes * part // parts for part in range(parts + 1)] if parts else []
    return [JsonRange(start, end, category_types) for start, end in zip(bounds, bounds[1:], strict=False)]


def first_fields(files: Files, path: str) -> tuple[list[str], dict[str, str]]:
    """Looks at a file's first lines: the fields that their objects have, and a field's type if it may be a category.

    Raises:
        SourceError: none of the lines is a JSON object.
        OSError: the file cannot be read.
    """
    with files.open(path) as file:
        lines = (line for data in pieces(file, 0, PEEKED_BYTES) for line in _filled(Lines(data)))
        found = peek(islice(lines, PEEKED_LINES))
    if not found.objects:
        raise SourceError(f"{path} holds no JSON object in its first lines; each line must be one: {{…}}")
    return found.fields, found.types


def estimated_rows(files: Files, path: str, total_bytes: int) -> int:
    """Estimates the rows of `total_bytes` by the mean line of a file's first 64 KiB; at least 1.

    Raises:
        OSError: the file cannot be read.
    """
    with files.open(path) as file:
        sample = file.read(SAMPLE_BYTES)
    whole = sample.rfind(b"\n") + 1 or len(sample)  # one line, or the beginning of one
    return max(1, round(total_bytes * max(1, sample.count(b"\n")) / max(1, whole)))


def counted_rows(files: Files, paths: Iterable[str]) -> int:
    """Counts the lines of files, blank ones too; about 1 s a GB.

    Raises:
        OSError: a file cannot be read.
    """
    rows = 0
    for path in paths:
        last = b"\n"
        with files.open(path) as file:
            while block := file.read(COUNTED_BYTES):
                rows += block.count(b"\n")
                last = block[-1:]
        rows += last != b"\n"
    return rows


def read_json_lines(
    chunk: Chunk, json_range: JsonRange, path: str, files: Files, columns: Columns, fields: Fields, with_key: bool
) -> Iterator[RawRows]:
    """Reads the rows of a range, about 8 MiB at a time; the default key of a row is the digest of its line.

    Raises:
        OSError: the file cannot be read.
    """
    schema = arrow_schema(columns, fields, json_range.category_types)
    first = 0
    with files.open(path) as file:
        for data in pieces(file, json_range.start, json_range.end):
            lines = Lines(data)
            parsed = parse_lines(lines, schema)
            yield _raw_rows(chunk, first, lines, parsed, columns, with_key)
            first += len(lines)


def _raw_rows(chunk: Chunk, first: int, lines: Lines, parsed: Parsed, columns: Columns, with_key: bool) -> RawRows:
    """Names the columns and places the rows; `first` is the place of the first line in the chunk."""
    values = zip(columns.items(), parsed.table.columns, strict=True)
    unparsed = [
        Reject(chunk.index, first + line, fault.reason, fault.message, _reject_key(lines, line, with_key), fault.column)
        for line, fault in parsed.faults.items()
    ]
    return RawRows(
        columns={name: _combined(column).cast(ARROW_TYPES[kind]) for (name, kind), column in values},
        positions=parsed.rows + first,
        keys=pa.array([_digest(line).encode() for line in lines.each(parsed.rows)], pa.binary()) if with_key else None,
        faults={},
        unparsed=unparsed,
        covered=len(lines),
    )


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _reject_key(lines: Lines, line: int, with_key: bool) -> str | None:
    """No digest where the line may be cut."""
    return _digest(lines[line]) if with_key and line not in lines.too_long else None


def _digest(line: bytes) -> str:
    return blake2b(line, digest_size=16).hexdigest()


def _filled(lines: Lines) -> Iterator[bytes]:
    return lines.each(lines.filled)
