"""JSON as sources: a row is a line of JSON Lines, or an object in a list of a document (`formats.jsonl_parser`).

    source: {format: jsonl, path: documents.jsonl}
    source: {format: json, path: train.json, rows: "data[].paragraphs[].qas[]", keep: ["data[].title"]}

Files of lines are read in byte ranges; compressed files, and encodings other than UTF-8, are one range from the start.
Each line is read once, and its result does not depend on the ranges.

The plan reads each document once, and cuts it between the elements of the path's first list. An element is in memory
as a whole, 64 MiB at most; one with a fault outside its rows is one reject. A row's position is its number.
"""

import json
import posixpath
import re
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from shlex import quote
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.sources import encoded
from recordmill.pipeline.sources.batches import batches, by_key
from recordmill.pipeline.sources.encoded import Lines, codec, is_utf8, naming_damage, open_utf8
from recordmill.pipeline.sources.faults import Fault, Faults, NoRowError, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats import json_document
from recordmill.pipeline.sources.formats.json_document import READ_BYTES, JsonDamageError, Window, naming_place
from recordmill.pipeline.sources.formats.jsonl_parser import Field, Fields, Parser, Steps, peek
from recordmill.pipeline.sources.options import EncodedOptions, Json, JsonLines, json_steps
from recordmill.pipeline.sources.paths import join, note
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, TableReader, TypedRows, has_images
from recordmill.pipeline.sources.typing.arrays import ARROW_TYPES, cuts, python_names
from recordmill.pipeline.sources.typing.python_values import Repeating, comes_twice
from recordmill.transforms.base.bounds import JSON_KEPT, JSON_ROWS
from recordmill.transforms.base.columns import Column, Columns, ColumnType

PEEKED_LINES = 1_000
PEEKED_BYTES = 1 << 20  # 1 MiB
LEAVES = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64()}
UNKNOWN = 1, pa.string()  # the list depth and type of values that are all null or empty lists
LIST = re.compile(rb'"([A-Za-z_]\w*+)"\s*+:\s*+\[\s*+\{')  # the key of a list of objects
AS_JSON = ": `format: json, rows: '{}'` reads it"
LATIN = "latin-1"  # a character a byte: positions are bytes, and invalid UTF-8 stays
BATCH_ROWS = 16_384
JsonOf = TypeVar("JsonOf", bound=EncodedOptions)


class ObjectsReader(TableReader[JsonOf], Generic[JsonOf]):
    """Reads objects of JSON; the plan finds the places of columns in the first ones."""

    @abstractmethod
    def pieces(self, chunk: Chunk, files: Files) -> Iterable[tuple[bytes, Faults]]:
        """Yields a chunk's rows as whole lines, about 8 MiB at a time, with known faults by line."""

    def fields(self, rows: Sequence[Mapping[str, Any]], columns: Columns) -> tuple[Fields, list[str]]:
        """Returns the places of columns in the first rows, and all names there. Raises: SourceError: one in another."""
        fields = {name: find_field(rows, name, column) for name, column in columns.items()}
        Parser(fields)  # raises
        return fields, list(dict.fromkeys(name for row in rows for name in python_names(row)))

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads a chunk's lines; the default key is the digest of a line, of a document's row with its kept values."""
        known: Fields = chunk.work.fields
        parser = Parser({name: known.get(name) or find_field((), name, column) for name, column in columns.items()})
        base = self.image_base(files, chunk)
        for data, stated in self.pieces(chunk, files):
            lines, faults = Lines(data), Faults()
            parsed = parser.parse(lines)
            typed = {name: parsed.typed(name, column, base, faults) for name, column in columns.items()}
            cut = {line for line, fault in parsed.faults.items() if fault.reason == "too_large"}  # perhaps truncated
            whole = parsed.faults.keys() - cut - stated.keys() if key is None else ()
            broken_keys = {line: content_digest(lines[line]).decode() for line in whole}
            keys = map(content_digest, lines.each(parsed.rows))
            yield TypedRows(typed, len(lines), faults, parsed.rows, keys, parsed.faults | stated, broken_keys)


@dataclass(frozen=True)
class JsonRange:
    """A piece of a file: the lines that start in the bytes `[start, end)`, or all lines."""

    start: int
    end: int
    fields: Fields  # the places of columns in the lines' objects, found by the plan


class JsonLinesReader(ObjectsReader[JsonLines]):
    """Reads files of JSON objects, one a line."""

    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    looks_at: ClassVar[str] = " in its first lines"

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts the files into byte ranges of at most `chunk_bytes`, after looking at the first file's first lines."""
        path, chunks = join(root, inputs[0].path), list[Chunk]()
        some = map(Lines, encoded.pieces(files, path, self.source.encoding, 0, PEEKED_BYTES))
        first = list(islice((line for lines in some for line in lines.each(lines.filled)), PEEKED_LINES))
        rows = peek(first)
        if not rows or (first[0].startswith(b"[") and not first[0].endswith(b"]")):
            hint = lines_hint(first, path)
            raise SourceError(f"{path} holds no JSON object in its first lines; each line must be one: {{…}}{hint}")
        fields, names = self.fields(rows, columns)
        for file in inputs:
            parts, bounds = max(1, -(-file.bytes // chunk_bytes)), [0, sys.maxsize]
            if is_cut := codec(file.path) is None and is_utf8(self.source.encoding):
                bounds = [file.bytes * part // parts for part in range(parts + 1)]
            chunks += [
                Chunk(0, 0, file.path, end - start if is_cut else file.bytes, JsonRange(start, end, fields))
                for start, end in pairwise(bounds)
            ]
        if has_images(columns):  # the count selects the images to measure: it must not depend on the order of files
            count = sum(counted_rows(files, join(root, file.path), self.source.encoding) for file in inputs)
            return Plan(chunks, count, names=names)
        alike = by_key(inputs, lambda file: codec(file.path))
        sizes = [(join(root, some[0].path), sum(file.bytes for file in some)) for some in alike.values()]
        return Plan(chunks, sum(estimated_rows(files, path, size) for path, size in sizes), names=names)

    def pieces(self, chunk: Chunk, files: Files) -> Iterable[tuple[bytes, Faults]]:
        path, part = join(self.root(files), chunk.file), chunk.work
        return ((data, Faults()) for data in encoded.pieces(files, path, self.source.encoding, part.start, part.end))


def find_field(rows: Sequence[Mapping[str, Any]], name: str, column: Column) -> Field:
    """Returns a column's place in objects; a missing one lies where its name says.

    >>> rows = [{"objects": [{"box": [1, 2]}, {"box": [3, 4]}]}]
    >>> find_field(rows, "objects.box", Column(ColumnType.NUMBER, many=True))
    Field(steps=(('objects', 1), ('box', 1)), type=DataType(double))
    """
    steps, leaf = _steps(rows, name, column.is_list)
    is_text = pt.is_string(leaf)
    is_one_string = column.is_list and is_text and not any(depth for _, depth in steps)
    if column.is_file or is_one_string or (column.parse and is_text):
        return Field(steps, pa.string())
    if column.type is ColumnType.CATEGORY and not pt.is_floating(leaf):
        return Field(steps, leaf)
    if column.array is None:
        return Field(steps, ARROW_TYPES[column.type])
    return Field(steps, pa.int64() if column.array.holds_integers else pa.float64())


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
            sample, whole = plain.read(4 << 20), file.tell()  # several bzip2 blocks of 900 KB
        else:
            sample = file.read(64 << 10)
            whole = sample.rfind(b"\n") + 1 or len(sample)  # a line, or its beginning
    return max(1, round(total_bytes * max(1, sample.count(b"\n")) / max(1, whole)))


def counted_rows(files: Files, path: str, encoding: str) -> int:
    """Counts a file's lines, including blank ones; about 1 s a GB, decompressed."""
    rows, last = 0, b"\n"
    with naming_damage(path), open_utf8(files, path, encoding) as file:
        while block := file.read(READ_BYTES):
            rows += block.count(b"\n")
            last = block[-1:]
    return rows + (last != b"\n")


@dataclass(frozen=True)
class JsonElements:
    """The work of a chunk: some elements of the path's first list, from a byte of the file's UTF-8."""

    start: int
    count: int
    outer: Mapping[str, str]  # the texts of kept values around the list, by name
    fields: Fields  # the places of columns in rows, found by the plan


@dataclass(frozen=True)
class RowsPath:
    """A path to rows, divided behind its first list, with the values kept on the way."""

    first: Sequence[str]
    inner: Sequence[str]
    kept: Sequence[Mapping[str, str]]  # the names of kept values, by key, for each step

    @classmethod
    def of(cls, source: Json) -> "RowsPath":
        steps, kept = json_steps(source.rows), [json_steps(path) for path in source.keep]
        by_step = [{name: name for *around, name in kept if len(around) == at} for at in range(len(steps))]
        first = steps.index("[]") + 1
        return cls(steps[:first], steps[first:], by_step)

    def rows(self, element: str, outer: Mapping[str, str]) -> list[bytes | Fault]:
        """Returns the rows in an element, or one fault."""
        texts, size = list[str](), 0
        try:
            for text in json_document.rows_of(element, self.inner, self.kept[len(self.first) :], outer):
                texts.append(text)
                if (size := size + len(text)) > JSON_ROWS.most:
                    return [Fault(JSON_ROWS.reason, JSON_ROWS.beyond(size))]
        except (JsonDamageError, json.JSONDecodeError, RecursionError) as error:
            why = getattr(error, "msg", str(error))
            return [Fault("malformed_row", f"the element of `{''.join(self.first)}` around rows: {why}")]
        return [text.replace("\n", " ").replace("\r", " ").encode(LATIN) for text in texts]


class JsonReader(ObjectsReader[Json]):
    """Reads documents with a list of rows."""

    looks_at: ClassVar[str] = " in its first rows"

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts the documents into chunks of about `chunk_bytes`; `rows` is exact."""
        chunks, total, without = list[Chunk](), 0, list[str]()
        first, keys, faults = list[bytes](), list[str](), list[str]()
        for file in inputs:
            scan = _Scan(RowsPath.of(self.source))
            self._scan(files, join(root, file.path), scan, chunk_bytes)
            if (kept := scan.rows * sum(map(len, scan.outer.values()))) > JSON_KEPT.most:
                raise SourceError(f"{join(root, file.path)}: {JSON_KEPT.beyond(kept)}: leave large ones out of `keep`")
            sizes = np.diff([*scan.starts, max(file.bytes, *scan.starts)]).tolist() if scan.starts else []
            for start, count, size in zip(scan.starts, scan.counts, sizes, strict=True):
                chunks.append(Chunk(0, 0, file.path, size, JsonElements(start, count, scan.outer, {})))
            total += scan.rows
            without += [file.path] * scan.empty
            found = (row for text in scan.shown for row in scan.path.rows(text, scan.outer))
            first = first or [row for row in found if isinstance(row, bytes)][:PEEKED_LINES]
            keys = keys or [key for row in peek(text.encode(LATIN) for text in scan.shown[:1]) for key in row]
            faults += [f"{join(root, file.path)}: {scan.fault.message}"] if scan.fault else []
        if faults and not first:
            raise SourceError(faults[0])
        rows, what = peek(first, Repeating.of), f"{self.source.path}: `rows: {self.source.rows}`"
        if not rows:
            near = next((near for step in json_steps(self.source.rows) if (near := did_you_mean(step, keys))), "")
            said = f"; an element of its first list has {listed(keys)}{near}" if keys else ""
            error = SourceError if total or keys else NoRowError
            raise error(f"{what} holds no JSON object in its first rows{said}")
        for name in (json_steps(path)[-1] for path in self.source.keep):
            if any(comes_twice(row, name) for row in rows):
                raise SourceError(f"{what} has rows with {name!r}, also the name of a value in `keep`: leave that out")
        fields, names = self.fields(rows, columns)
        chunks = [replace(chunk, work=replace(chunk.work, fields=fields)) for chunk in chunks]
        notes = note(f"elements without rows at `{self.source.rows}`", without)
        return Plan(chunks, total, names=names, notes=notes, is_exact=True)

    def _scan(self, files: Files, path: str, scan: "_Scan", chunk_bytes: int) -> None:
        """Reads a document. Raises: SourceError: it is not JSON, or lacks the list."""
        can_cut = codec(path) is None and is_utf8(self.source.encoding)
        with naming_damage(path), open_utf8(files, path, self.source.encoding) as opened:
            window, mark = Window(opened, LATIN), opened.mark_bytes if can_cut else 0
            try:
                with naming_place(window, "byte"):
                    for start, text in json_document.elements(window, scan.path.first, scan.path.kept, scan.outer):
                        scan.add(start + mark, text, chunk_bytes if can_cut else None)
                    window.end()
            except JsonDamageError as error:
                raise SourceError(f"{path} cannot be read as JSON at `rows: {self.source.rows}`: {error}") from None

    def pieces(self, chunk: Chunk, files: Files) -> Iterator[tuple[bytes, Faults]]:
        """Yields rows as lines, with the faults of elements by line."""
        work, path = chunk.work, join(self.root(files), chunk.file)
        to_skip = 0 if codec(path) is None and is_utf8(self.source.encoding) else work.start
        with open_utf8(files, path, self.source.encoding, work.start - to_skip) as opened:
            while to_skip and (data := opened.read(min(to_skip, READ_BYTES))):
                to_skip -= len(data)
            rows = self._rows(Window(opened, LATIN), work)
            for batch in batches(rows, lambda row: len(row) if isinstance(row, bytes) else 0, BATCH_ROWS):
                faults = {line: row for line, row in enumerate(batch) if isinstance(row, Fault)}
                yield b"\n".join(row if isinstance(row, bytes) else b"?" for row in batch), faults

    def _rows(self, window: Window, work: JsonElements) -> Iterator[bytes | Fault]:
        path = RowsPath.of(self.source)
        for number in range(work.count):
            if number:
                window.take(",", "expecting ','")
            yield from path.rows(window.text(), work.outer)


@dataclass
class _Scan:
    """The chunks of a document, found element by element."""

    path: RowsPath
    outer: dict[str, str] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # the number of elements in each chunk
    rows: int = 0
    empty: int = 0  # the number of elements without rows
    fault: Fault | None = None  # the first of an element
    shown: list[str] = field(default_factory=list)  # the first elements

    def add(self, start: int, text: str, chunk_bytes: int | None) -> None:
        """Adds an element; None adds it to the only chunk."""
        if not self.starts or (chunk_bytes is not None and start - self.starts[-1] >= chunk_bytes):
            self.starts.append(start)
            self.counts.append(0)
        if self.rows < PEEKED_LINES and sum(map(len, self.shown)) < PEEKED_BYTES:
            self.shown.append(text)
        found = self.path.rows(text, {})
        self.counts[-1] += 1
        self.rows += len(found)
        self.empty += not found
        if found and isinstance(found[0], Fault):
            self.fault = self.fault or found[0]
