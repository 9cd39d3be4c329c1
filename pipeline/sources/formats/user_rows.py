"""A user's own function as a source: it yields rows as dictionaries.

    source: {format: python, rows: "reader:rows", options: {folder: scans/}}

    def rows(folder):                      # reader.py, beside the spec
        for path in sorted(Path(folder).glob("*.xml")):
            yield {"id": path.stem, "text": read(path), "image": path.with_suffix(".png").read_bytes()}

It runs in the spec's folder, where its relative paths begin, and must yield the same rows in the same order on each
call. `typing.python_values` lists the accepted values.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.options import UserRows
from recordmill.pipeline.sources.paths import check_names, planning
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, SourceReader, TypedRows
from recordmill.pipeline.sources.typing.arrays import python_field, python_names
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.pipeline.sources.user_code import FAILURES, blame, in_its_folder, load
from recordmill.transforms.base.columns import Columns, required

BLOCK_ROWS = 4096
PEEKED_ROWS = 20
VALUE_BYTES = 16  # the assumed size of other values


class UserRowsReader(SourceReader[UserRows]):
    """Reads rows that a user's function yields."""

    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Asks for the parts, one a chunk, and looks at the first rows."""
        rows, parts = self.source.rows, [None]
        if name := self.source.parts:
            parts = _call(name, self.source.options)
            try:
                json.dumps(parts)
            except (TypeError, ValueError) as error:
                raise SourceError(f"`{name}` should give a list of JSON values: {error}") from error
            if not isinstance(parts, list) or not parts:
                raise SourceError(f"`{name}` should give a list of at least one part, got {type(parts).__name__}")
        chunks = [Chunk(0, 0, f"{rows} {json.dumps(part)}" if self.source.parts else rows, 0, part) for part in parts]
        first = list(islice((row for chunk in chunks for row in self._each(chunk)), PEEKED_ROWS))
        names = dict.fromkeys(name for row in first if isinstance(row, Mapping) for name in python_names(row))
        if not names:
            raise SourceError(f"`{rows}` yields no row: it should yield dictionaries, such as {{'text': 'a b'}}")
        check_names(f"`{rows}`", required(columns), names, " in its first rows")
        with planning(self.source.path):
            inputs = self.list_inputs(files, columns)
        known = len(first) < PEEKED_ROWS
        weight = sum(_bytes(python_field(row, name)) for row in first if isinstance(row, Mapping) for name in columns)
        count = len(first) if known else self.source.count or len(first)
        unknown = f"the files that `{rows}` reads are unknown: give `inputs`, or changed data starts no build"
        uncounted = f"the number of rows of `{rows}` is unknown: give `count`, which decides the number of shards"
        notes = [unknown] * (not self.source.inputs) + [uncounted] * (not known and not self.source.count)
        return Plan(chunks, count, weight * count // len(first), inputs, notes)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        base = (self.image_root(files), "")
        for batch in batches((_values(row, columns) for row in self._each(chunk)), _bytes, BLOCK_ROWS):
            rows = {position: row for position, row in enumerate(batch) if isinstance(row, list)}
            broken = {position: fault for position, fault in enumerate(batch) if isinstance(fault, Fault)}
            faults, typed = Faults(), dict[str, Any]()
            for number, (name, column) in enumerate(columns.items()):
                typed[name] = typed_objects(name, column, [row[number] for row in rows.values()], base, faults)
            yield TypedRows(typed, len(batch), faults, np.array(list(rows), np.int64), None, broken)

    def _each(self, chunk: Chunk) -> Iterator[Any]:
        name, part = self.source.rows, {"part": chunk.work} if self.source.parts else {}
        rows = _call(name, {**self.source.options, **part})
        if not isinstance(rows, Iterable):
            raise SourceError(f"`{name}` should yield dictionaries, but gave a value of the type {type(rows).__name__}")
        each, end = _called(lambda: iter(rows), name, self.source.options), object()
        while (row := _called(lambda: next(each, end), name, self.source.options)) is not end:
            yield row

    def list_inputs(self, files: Files, columns: Columns) -> list[FileInfo]:
        """Lists the files of `inputs`. Raises: SourceError: a pattern matches none."""
        root = self.root(files)
        inputs: dict[str, FileInfo] = {}
        for pattern in self.source.inputs:
            folder = "" if pattern.startswith("/") or "://" in pattern else f"{root}/"
            matched = files.match(f"{escape(folder)}{pattern}")
            if not matched:
                raise SourceError(f"`inputs`: no file matches {pattern}")
            for file in matched:
                path = file.path.removeprefix(folder)
                inputs[path] = file._replace(path=path)
        return [inputs[path] for path in sorted(inputs)]


def _values(row: Any, columns: Columns) -> list[Any] | Fault:
    """Returns a row's asked values, copied at once: a function may reuse its dictionary."""
    if isinstance(row, Mapping):
        return [python_field(row, name) for name in columns]
    return Fault("malformed_row", f"the row is not a dictionary, but a value of the type {type(row).__name__}")


def _call(reference: str, options: Mapping[str, Any]) -> Any:
    with in_its_folder():
        function: Callable[..., Any] = load(reference)
    try:
        inspect.signature(function).bind(**options)
    except ValueError:  # functions in C have no signature
        pass
    except TypeError as error:
        raise SourceError(f"`{reference}` cannot be called with {', '.join(options) or 'nothing'}: {error}") from None
    return _called(lambda: function(**options), reference, options)


def _called(call: Callable[[], Any], reference: str, options: Mapping[str, Any]) -> Any:
    try:
        with in_its_folder():
            return call()
    except FAILURES as error:
        raise blame(error, reference, dict(options)) from None


def _bytes(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    return int(getattr(value, "nbytes", VALUE_BYTES))
