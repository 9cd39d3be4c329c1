"""One JSON document as a source: the objects of a list in it are rows, parsed as lines of JSON Lines.

    source: {format: json, path: train.json, rows: "data[].paragraphs[].qas[]", keep: ["data[].title"]}

The plan reads each document once, and cuts it between the elements of the path's first list. An element is in memory
as a whole, 64 MiB at most; one with a fault outside its rows is one reject. A row's position is its number.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.encoded import can_start_anywhere, is_utf8, naming_damage, open_utf8
from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats import json_document
from recordmill.pipeline.sources.formats.json_document import READ_BYTES, JsonDamageError, Window, naming_place
from recordmill.pipeline.sources.formats.jsonl import PEEKED_BYTES, PEEKED_LINES, find_field, read_objects
from recordmill.pipeline.sources.formats.jsonl_parser import Fields, Parser, peek
from recordmill.pipeline.sources.options import Json, json_steps
from recordmill.pipeline.sources.paths import join, note
from recordmill.pipeline.sources.source_reader import Block, Chunk, Key, NoRowError, Plan, SourceError
from recordmill.pipeline.sources.table import TableReader
from recordmill.pipeline.sources.typing.arrays import python_names
from recordmill.pipeline.sources.typing.python_values import Repeating, comes_twice
from recordmill.transforms.contract.bounds import JSON_KEPT, JSON_ROWS

LATIN = "latin-1"  # a character a byte: positions are bytes, and invalid UTF-8 stays
BATCH_ROWS = 16_384


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

    def elements(self, window: Window, outer: dict[str, str]) -> Iterator[tuple[int, str]]:
        """Yields the elements of the first list, up to the document's end; completes `outer`."""
        yield from json_document.elements(window, self.first, self.kept, outer)
        window.end()

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


class JsonReader(TableReader[Json]):
    """Reads documents with a list of rows."""

    endings: ClassVar[tuple[str, ...]] = (".json",)
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
            chunks += scan.chunks(file)
            total += scan.rows
            without += [file.path] * scan.empty
            first, keys = first or scan.first(), keys or scan.keys()
            faults += [f"{join(root, file.path)}: {scan.fault.message}"] if scan.fault else []
        if faults and not first:
            raise SourceError(faults[0])
        error = SourceError if total or keys else NoRowError
        rows = self._checked(peek(first, Repeating.of), f"{self.source.path}: `rows: {self.source.rows}`", keys, error)
        fields = {name: find_field(rows, name, column) for name, column in columns.items()}
        Parser(fields)  # raises if one column lies inside another
        chunks = [replace(chunk, work=replace(chunk.work, fields=fields)) for chunk in chunks]
        names = list(dict.fromkeys(name for row in rows for name in python_names(row)))
        notes = note(f"elements without rows at `{self.source.rows}`", without)
        return Plan(chunks, total, names=names, notes=notes, is_exact=True)

    def _checked(
        self, rows: list[dict[str, Any]], what: str, keys: Sequence[str], error: type[SourceError]
    ) -> list[dict[str, Any]]:
        """Checks the first rows. Raises: SourceError: they are no objects, or have a kept value's name themselves."""
        if not rows:
            near = next((near for step in json_steps(self.source.rows) if (near := did_you_mean(step, keys))), "")
            said = f"; an element of its first list has {listed(keys)}{near}" if keys else ""
            raise error(f"{what} holds no JSON object in its first rows{said}")
        for name in (json_steps(path)[-1] for path in self.source.keep):
            if any(comes_twice(row, name) for row in rows):
                raise SourceError(f"{what} has rows with {name!r}, also the name of a value in `keep`: leave that out")
        return rows

    def _scan(self, files: Files, path: str, scan: "_Scan", chunk_bytes: int) -> None:
        """Reads a document. Raises: SourceError: it is not JSON, or lacks the list."""
        can_cut = self._can_cut(path)
        with naming_damage(path), open_utf8(files, path, self.source.encoding) as opened:
            window, mark = Window(opened, LATIN), opened.mark_bytes if can_cut else 0
            try:
                with naming_place(window, "byte"):
                    for start, text in scan.path.elements(window, scan.outer):
                        scan.add(start + mark, text, chunk_bytes if can_cut else None)
            except JsonDamageError as error:
                raise SourceError(f"{path} cannot be read as JSON at `rows: {self.source.rows}`: {error}") from None

    def _can_cut(self, path: str) -> bool:
        return can_start_anywhere(path, self.source.encoding) and is_utf8(self.source.encoding)

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[Block]:
        """Reads the rows in the chunk's elements; the default key is the digest of a row with its kept values."""
        yield from read_objects(self, chunk, self._pieces(chunk, files), files, columns, key)

    def _pieces(self, chunk: Chunk, files: Files) -> Iterator[tuple[bytes, Faults]]:
        """Yields rows as lines, about 8 MiB at a time, with the faults of elements by line."""
        work, path = chunk.work, join(self.root(files), chunk.file)
        to_skip = 0 if self._can_cut(path) else work.start
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
    _shown: list[str] = field(default_factory=list)

    def add(self, start: int, text: str, chunk_bytes: int | None) -> None:
        """Adds an element; None adds it to the only chunk."""
        if not self.starts or (chunk_bytes is not None and start - self.starts[-1] >= chunk_bytes):
            self.starts.append(start)
            self.counts.append(0)
        if self.rows < PEEKED_LINES and sum(map(len, self._shown)) < PEEKED_BYTES:
            self._shown.append(text)
        found = self.path.rows(text, {})
        self.counts[-1] += 1
        self.rows += len(found)
        self.empty += not found
        if found and isinstance(found[0], Fault):
            self.fault = self.fault or found[0]

    def chunks(self, file: FileInfo) -> list[Chunk]:
        """Returns the chunks, without fields."""
        sizes = np.diff([*self.starts, max(file.bytes, *self.starts)]).tolist() if self.starts else []
        parts = zip(self.starts, self.counts, sizes, strict=True)
        return [
            Chunk(0, 0, file.path, size, JsonElements(start, count, self.outer, {})) for start, count, size in parts
        ]

    def keys(self) -> list[str]:
        """Returns the keys of the first element, if it is an object."""
        return [key for row in peek(text.encode(LATIN) for text in self._shown[:1]) for key in row]

    def first(self) -> list[bytes]:
        """Returns the first rows."""
        rows = (row for text in self._shown for row in self.path.rows(text, self.outer))
        return [row for row in rows if isinstance(row, bytes)][:PEEKED_LINES]
