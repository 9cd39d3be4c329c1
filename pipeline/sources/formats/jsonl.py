"""JSON Lines as a source: a line is a row, as `formats.jsonl_parser` reads it.

    source: {format: jsonl, path: documents.jsonl}

Files are read in byte ranges; compressed files, and encodings other than UTF-8, are one range from the start. Each line
is read once, and its result does not depend on the ranges.
"""

import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt

from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.encoded import Lines, codec, is_utf8, naming_damage, open_utf8, pieces
from recordmill.pipeline.sources.faults import Faults, Reject
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.jsonl_parser import Field, Fields, Parser, Steps, peek
from recordmill.pipeline.sources.options import JsonLines
from recordmill.pipeline.sources.source_reader import Block, Chunk, Key, Plan, SourceError
from recordmill.pipeline.sources.table import TableReader
from recordmill.pipeline.sources.typing.arrays import cuts, python_names
from recordmill.pipeline.sources.typing.blocks import TypedRows, make_block

PEEKED_LINES = 1_000
PEEKED_BYTES = 1 << 20  # 1 MiB
SAMPLE_BYTES = 64 << 10  # 64 KiB, to estimate the number of rows
COMPRESSED_SAMPLE_BYTES = 4 << 20  # 4 MiB, decompressed: several bzip2 blocks of 900 KB
LEAVES = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64()}
UNKNOWN = 1, pa.string()  # the list depth and type of values that are all null or empty lists
LIST = re.compile(rb'"([A-Za-z_]\w*+)"\s*+:\s*+\[\s*+\{')  # the key of a list of objects
AS_JSON = ": `format: json, rows: '{}'` reads it"
COUNTED_BYTES = 1 << 20  # read at once to count lines


@dataclass(frozen=True)
class JsonRange:
    """A piece of a file: the lines that start in the bytes `[start, end)`, or all lines."""

    start: int
    end: int
    fields: Fields  # the places of columns in the lines' objects, found by the plan


class JsonLinesReader(TableReader[JsonLines]):
    """Reads files of JSON objects, one a line."""

    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    looks_at: ClassVar[str] = " in its first lines"

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts the files into byte ranges of at most `chunk_bytes`, after looking at the first file's first lines."""
        encoding = self.source.encoding
        rows = first_objects(files, f"{root}/{inputs[0].path}", encoding)
        fields = {name: find_field(rows, name, column) for name, column in columns.items()}
        Parser(fields)  # raises if one column lies inside another
        chunks = [chunk for file in inputs for chunk in _chunks(file, fields, chunk_bytes, encoding)]
        names = list(dict.fromkeys(name for row in rows for name in python_names(row)))
        return Plan(chunks, self._count(files, columns, root, inputs), names=names)

    def _count(self, files: Files, columns: Columns, root: str, inputs: Sequence[FileInfo]) -> int:
        """Counts the rows exactly if they name images, else estimates them by the first file of each compression.

        The count selects the images to measure: it must not depend on the order of files, small beside images.
        """
        if any(column.type is ColumnType.IMAGE for column in columns.values()):
            return counted_rows(files, [f"{root}/{file.path}" for file in inputs], self.source.encoding)
        alike: dict[str | None, list[FileInfo]] = {}
        for file in inputs:
            alike.setdefault(codec(file.path), []).append(file)
        totals = [(f"{root}/{some[0].path}", sum(file.bytes for file in some)) for some in alike.values()]
        return sum(estimated_rows(files, path, total) for path, total in totals)

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[Block]:
        """Reads the lines that start in the chunk; the default key is the line's digest."""
        path, part = f"{self.root(files)}/{chunk.file}", chunk.work
        read = ((data, Faults()) for data in pieces(files, path, self.source.encoding, part.start, part.end))
        yield from read_objects(self, chunk, read, files, columns, key)


def read_objects(
    reader: TableReader[Any],
    chunk: Chunk,
    read: Iterable[tuple[bytes, Faults]],
    files: Files,
    columns: Columns,
    key: Key,
) -> Iterator[Block]:
    """Reads a chunk's lines, pieces of whole ones with known faults by line, as rows; a line is a position."""
    known: Fields = chunk.work.fields
    parser = Parser({name: known.get(name) or find_field((), name, column) for name, column in columns.items()})
    base, first = reader.image_base(files, chunk), 0
    for data, stated in read:
        lines, faults = Lines(data), Faults()
        parsed = parser.parse(lines)
        typed = {name: parsed.typed(name, column, base, faults) for name, column in columns.items()}
        keys = None if key is not None else pa.array(map(content_digest, lines.each(parsed.rows)), pa.binary())
        unparsed = list[Reject]()
        for line, fault in (parsed.faults | stated).items():
            unknown = key is not None or line in stated or fault.reason == "too_large"  # such a line may be truncated
            digest = None if unknown else content_digest(lines[line]).decode()
            unparsed.append(fault.reject(chunk.index, first + line, digest))
        raw = TypedRows(typed, parsed.rows + first, keys, len(lines), faults, unparsed)
        yield make_block(chunk, raw, columns, key, reader.source.encoding)
        first += len(lines)


def _chunks(file: FileInfo, fields: Fields, chunk_bytes: int, encoding: str) -> list[Chunk]:
    if codec(file.path) or not is_utf8(encoding):
        return [Chunk(0, 0, file.path, file.bytes, JsonRange(0, sys.maxsize, fields))]
    parts = max(1, -(-file.bytes // chunk_bytes))
    bounds = [file.bytes * part // parts for part in range(parts + 1)]
    return [
        Chunk(0, 0, file.path, end - start, JsonRange(start, end, fields))
        for start, end in zip(bounds, bounds[1:], strict=False)
    ]


def first_objects(files: Files, path: str, encoding: str) -> list[dict[str, Any]]:
    """Reads the objects in a file's first lines. Raises: SourceError: no objects, or damaged data."""
    pieces_of_lines = map(Lines, pieces(files, path, encoding, 0, PEEKED_BYTES))
    first = list(islice((line for lines in pieces_of_lines for line in lines.each(lines.filled)), PEEKED_LINES))
    rows = peek(first)
    if not rows or (first[0].startswith(b"[") and not first[0].endswith(b"]")):
        hint = lines_hint(first, path)
        raise SourceError(f"{path} holds no JSON object in its first lines; each line must be one: {{…}}{hint}")
    return rows


def find_field(rows: Sequence[Mapping[str, Any]], name: str, column: Column) -> Field:
    """Returns a column's place in objects; a missing one lies where its name says.

    >>> rows = [{"objects": [{"box": [1, 2]}, {"box": [3, 4]}]}]
    >>> find_field(rows, "objects.box", Column(ColumnType.NUMBER, many=True))
    Field(steps=(('objects', 1), ('box', 1)), type=DataType(double))
    """
    steps, leaf = _steps(rows, name, column.is_list)
    return Field(steps, _type(column, steps, leaf))


def _steps(rows: Sequence[Mapping[str, Any]], name: str, many: bool) -> tuple[Steps, pa.DataType]:
    """Returns the steps, and the Arrow type of the first value besides lists and objects."""
    for key, rest in cuts(name):
        values = _in_lists((row[key] for row in rows if key in row), 0, [])
        objects = [(depth, value) for depth, value in values if isinstance(value, dict)]
        if rest is not None and objects:
            steps, leaf = _steps([value for _, value in objects], rest, many)
            return ((key, objects[0][0]), *steps), leaf
        if rest is None and any(key in row for row in rows):
            depth, leaf = next(((at, LEAVES[type(each)]) for at, each in values if type(each) in LEAVES), UNKNOWN)
            return ((key, depth if many else 0),), leaf
    *outer, last = name.split(".")
    return (*((key, 0) for key in outer), (last, int(many))), pa.string()


def _in_lists(values: Iterable[Any], depth: int, found: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Adds the values in nested lists to `found`, each with its depth in lists."""
    for value in values:
        if isinstance(value, list):
            _in_lists(value, depth + 1, found)
        else:
            found.append((depth, value))
    return found


def _type(column: Column, steps: Steps, leaf: pa.DataType) -> pa.DataType:
    is_text, may_be_text = pt.is_string(leaf), column.is_list
    is_one_string = may_be_text and is_text and not any(depth for _, depth in steps)
    if column.is_file or is_one_string or (column.parse and is_text):
        return pa.string()
    if column.type is ColumnType.CATEGORY and not pt.is_floating(leaf):
        return leaf
    return pa.type_for_alias(column.innermost)


def lines_hint(first: list[bytes], path: str) -> str:
    """Returns the source of a JSON array or a list inside, or the command that writes an object as one line."""
    text = b"".join(first)
    if text.startswith(b"["):
        of_objects = text[1:].lstrip().startswith(b"{")
        return f". It is one JSON array{AS_JSON.format('[]') if of_objects else ', not of objects: write each as one'}"
    if text.startswith(b"{") and (inner := LIST.search(text)):
        return f". For one row an object in `{inner[1].decode()}`{AS_JSON.format(f'{inner[1].decode()}[]')}"
    files = f"{quote(path)} > {quote(f'{posixpath.splitext(path)[0]}-lines.jsonl')}"
    return f". For one line an object: jq -c . {files}" if text.startswith(b"{") else ""


def estimated_rows(files: Files, path: str, total_bytes: int) -> int:
    """Estimates the rows of `total_bytes` of files by one file's first 64 KiB, or 4 MiB if compressed; at least 1."""
    with files.open(path) as file, naming_damage(path):
        if name := codec(path):
            plain = pa.CompressedInputStream(pa.PythonFile(file, "r"), name)
            sample, whole = plain.read(COMPRESSED_SAMPLE_BYTES), file.tell()
        else:
            sample = file.read(SAMPLE_BYTES)
            whole = sample.rfind(b"\n") + 1 or len(sample)  # a line, or its beginning
    return max(1, round(total_bytes * max(1, sample.count(b"\n")) / max(1, whole)))


def counted_rows(files: Files, paths: Iterable[str], encoding: str) -> int:
    """Counts lines, including blank ones; about 1 s a GB, decompressed."""
    rows = 0
    for path in paths:
        last = b"\n"
        with naming_damage(path), open_utf8(files, path, encoding) as file:
            while block := file.read(COUNTED_BYTES):
                rows += block.count(b"\n")
                last = block[-1:]
        rows += last != b"\n"
    return rows
