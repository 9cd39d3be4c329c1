"""The parts of large files, as files: what a spec is tried on, whatever the size of the data.

Of a file of lines some pieces are taken, evenly spread, since rows are often sorted; of other files the beginning. A
part ends where a row does, so that a source reads it as it reads the whole file.
"""

import io
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO, cast

import pyarrow as pa

from recordmill.pipeline.sources.base import FileInfo, Files, Source
from recordmill.pipeline.sources.compression import codec, open_plain
from recordmill.pipeline.sources.csv.records import Dialect, find_records
from recordmill.pipeline.sources.encoded import can_start_anywhere
from recordmill.pipeline.sources.lines import pieces
from recordmill.pipeline.sources.paths import is_image
from recordmill.pipeline.sources.table import Table
from recordmill.pipeline.sources.tfrecord.frames import walk
from recordmill.pipeline.sources.webdataset.tar_members import DamagedTarError, Tar
from recordmill.pipeline.sources.webdataset.tar_samples import samples

SAMPLED_FILES = 16
PIECE_BYTES = 64 << 10  # 64 KiB
RECORD_BYTES = 8 << 20  # 8 MiB: of a file of records that may hold pictures
HELD_BYTES = 64 << 20  # 64 MiB
METADATA = "metadata."
LINES, CELLS, RECORDS = ("jsonl", "text"), ("csv", "tsv"), ("tfrecord", "webdataset")


class SampledFiles:
    """Files, of which a source is shown few, and parts of large ones; pictures as they are."""

    def __init__(self, files: Files, source: Source) -> None:
        """Takes the source whose files they are; its path, encoding and quotes count."""
        self._files, self._source = files, source
        self._listed: dict[str, list[FileInfo]] = {}
        self._folders: dict[str, bool] = {}
        self._parts: dict[str, bytes | None] = {}
        self.is_whole = True
        """Whether all that was listed so far is shown."""

    def match(self, pattern: str) -> list[FileInfo]:
        """Lists the files that a glob matches, each time the same."""
        if pattern not in self._listed:
            found = self._files.match(pattern)
            self._listed[pattern] = self._shown(found) if self._is_read(pattern) else found
        return self._listed[pattern]

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a folder."""
        if path not in self._folders:
            self._folders[path] = self._files.is_folder(path)
        return self._folders[path]

    def open(self, path: str) -> BinaryIO:
        """Opens a file, or the part of it that is shown. Raises: OSError when it is missing or unreadable."""
        part = self._parts.get(path)
        return self._files.open(path) if part is None else io.BytesIO(part)

    def _is_read(self, pattern: str) -> bool:
        """Whether what it matches is read; a table's source lists what lies around, too."""
        return pattern == self._source.path or not (isinstance(self._source, Table) and pattern.endswith("/**"))

    def _shown(self, found: list[FileInfo]) -> list[FileInfo]:
        rows = [file for file in found if self._form(file.path)]
        chosen = spread(rows, SAMPLED_FILES)
        for file in chosen:
            part = self._part(file, max(1, SAMPLED_FILES // len(chosen)))
            self.is_whole &= part is None
            self._parts[file.path] = self._held(file) if part is None else part
        self.is_whole &= len(chosen) == len(rows)
        left_out = {file.path for file in rows} - {file.path for file in chosen}
        return [self._sampled(file) for file in found if file.path not in left_out]

    def _held(self, file: FileInfo) -> bytes | None:
        """A small file that is far away: it will be read many times."""
        if "://" not in file.path or file.bytes > HELD_BYTES:
            return None
        with self._files.open(file.path) as opened:
            return opened.read()

    def _sampled(self, file: FileInfo) -> FileInfo:
        part = self._parts.get(file.path)
        return file if part is None else FileInfo(file.path, len(part), file.modified)

    def _form(self, path: str) -> str | None:
        """The format of the rows that a file holds; None where it holds none."""
        name = posixpath.basename(path)
        if isinstance(self._source, Table):
            is_document = getattr(self._source, "document", "line") == "file"
            return None if is_document or is_image(name) else self._source.format
        return name.removeprefix(METADATA) if name.startswith(METADATA) else None

    def _part(self, file: FileInfo, count: int) -> bytes | None:
        """At most so many pieces of a file; None where the whole file is no more, or cannot be cut."""
        form = self._form(file.path)
        size = count * PIECE_BYTES
        if form in RECORDS:
            return self._first_records(file, form)
        if form not in LINES + CELLS or not can_start_anywhere("", getattr(self._source, "encoding", "utf-8")):
            return None
        if codec(file.path):
            return self._compressed_part(file.path, form, size)
        if file.bytes <= size:
            return None
        with self._files.open(file.path) as opened:
            starts = [file.bytes * place // count for place in range(count)]
            lines = [b"".join(pieces(opened, start, start + PIECE_BYTES)) for start in starts]
            if form in LINES or not any(self._quote in piece for piece in lines):
                return b"".join(piece if piece.endswith(b"\n") else piece + b"\n" for piece in lines)
            opened.seek(0)
            return self._whole_rows(opened.read(size), form)

    @property
    def _quote(self) -> bytes:
        quote: str | None = getattr(self._source, "quote", '"')
        return b"\0" if quote is None else quote.encode()

    def _whole_rows(self, data: bytes, form: str) -> bytes:
        """The rows that are whole in the beginning of a file; all of it where there is none."""
        if form in LINES:
            return data[: data.rfind(b"\n") + 1] or data
        dialect = Dialect(getattr(self._source, "separator", ","), getattr(self._source, "quote", '"'))
        return data[: find_records(data, dialect, is_last=False).end] or data

    def _compressed_part(self, path: str, form: str, size: int) -> bytes | None:
        """The beginning of a compressed file, compressed alike."""
        with open_plain(self._files, path) as opened:
            data = opened.read(size + 1)
        if len(data) <= size:
            return None
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec(path)) as compressed:
            compressed.write(self._whole_rows(data, form))
        return cast(bytes, sink.getvalue().to_pybytes())

    def _first_records(self, file: FileInfo, form: str) -> bytes | None:
        """The beginning of a file of records, or samples, that is not compressed."""
        if file.bytes <= RECORD_BYTES:
            return None
        with self._files.open(file.path) as opened:
            data = opened.read(RECORD_BYTES)
        last = max(_starts(data, form), default=0)
        return data[:last] or None


def _starts(data: bytes, form: str) -> Iterator[int]:
    """Where records, or samples, begin in the beginning of a file, as far as they can be found."""
    if form == "tfrecord":
        yield from walk(io.BytesIO(data), len(data))
        return
    with suppress(DamagedTarError):
        for sample in samples(Tar(io.BytesIO(data), size=len(data)), (), lambda _: None):
            yield sample.start


def spread(some: list[Any], count: int) -> list[Any]:
    """At most so many of them, evenly spread, the first one included.

    >>> spread([0, 1, 2, 3, 4, 5], 3)
    [0, 2, 4]
    """
    return some if len(some) <= count else [some[len(some) * place // count] for place in range(count)]
