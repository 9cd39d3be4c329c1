"""Files of rows that tests write, sources of them, and what a whole source gives: what each promises of its blocks."""

import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from pydantic import TypeAdapter

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.options import AnySource
from recordmill.pipeline.sources.source_reader import Plan, SourceReader
from recordmill.pipeline.sources.typing.arrays import arrow_type
from recordmill.transforms.base.columns import Column, Columns, ColumnType

FILES = BeamFiles()
TEXT, CATEGORY, NUMBER, INTEGER, IMAGE, *_ = map(Column, ColumnType)
SOURCES: TypeAdapter[Any] = TypeAdapter(AnySource)
Member = tuple[str, bytes | str] | tarfile.TarInfo


def write(path: Path, content: str | bytes) -> Path:
    """Writes a file, and makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def tar(*members: Member, **options: Any) -> bytes:
    """A tar file; links and devices are given as `TarInfo`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, **{"mode": "w", **options}) as opened:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                opened.addfile(member)
                continue
            name, content = member
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def source(form: str, path: object, **options: Any) -> SourceReader[Any]:
    """A source of a format, by its options in a spec."""
    return reader_of(SOURCES.validate_python({"format": form, "path": str(path), **options}))


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
            json.dumps(block.positions)  # it stands in a report
            covered += block.positions
            found.keys += table.pop("@key", [])
            found.rows += [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
            found.rejects += block.rejects
        assert places == sorted(set(places))
        assert all(source.locate(chunk, place)[0] for place in places)
    return found
