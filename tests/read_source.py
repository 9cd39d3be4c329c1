"""Reads a whole source, and holds what every source promises of its blocks."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.source_reader import Plan, SourceReader
from recordmill.pipeline.sources.typing.arrays import arrow_type

FILES = BeamFiles()
TEXT, CATEGORY, NUMBER, INTEGER, IMAGE, *_ = map(Column, ColumnType)


class FarFiles:
    """Files of a URL, in memory."""

    def __init__(self, **contents: bytes) -> None:
        self._contents = {f"mem://far/{name.replace('_', '.')}": data for name, data in contents.items()}

    def match(self, pattern: str) -> list[FileInfo]:
        return [FileInfo(path, len(data), 0.0) for path, data in self._contents.items() if path == pattern]

    def is_folder(self, path: str) -> bool:
        return False

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self._contents[path])


@dataclass
class Read:
    """What was read; a row's chunk and position, and its key, are gone from it."""

    plan: Plan
    rows: list[dict[str, Any]]
    keys: list[bytes]
    rejects: list[Reject]

    @property
    def faults(self) -> list[tuple[str, str | None, str]]:
        """Reason, column and message of each reject."""
        return [(reject.reason, reject.column, reject.message) for reject in self.rejects]


def read(
    source: SourceReader[Any],
    columns: Columns,
    chunk_bytes: int = 1 << 20,
    key: Sequence[str] | None = None,
    files: Files = FILES,
) -> Read:
    """Plans and reads all chunks."""
    found = Read(source.plan(files, columns, chunk_bytes), [], [], [])
    for chunk in found.plan.chunks:
        covered, places = 0, list[int]()
        for block in source.read(chunk, files, columns, key):
            table = block.table.to_pydict()
            assert {name: block.table.schema.field(name).type for name in columns} == {
                name: arrow_type(column) for name, column in columns.items()
            }
            here = sorted(table.pop("@position") + [reject.position for reject in block.rejects])
            assert all(covered <= place < covered + block.positions for place in here)
            places += here
            covered += block.positions
            found.keys += table.pop("@key", [])
            found.rows += [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
            found.rejects += block.rejects
        assert places == sorted(set(places))
        assert all(source.locate(chunk, place)[0] for place in places)
    return found
