"""The interface of a source's reader, which plans chunks and reads each as Arrow rows.

Sources never import Beam: the job passes `Files`, which open all that Beam's filesystems open.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

import pyarrow as pa

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.batches import unpack
from recordmill.pipeline.sources.columns import Column, Columns
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.options import SourceOptions

SourceOf = TypeVar("SourceOf", bound=SourceOptions)
Key = Sequence[str] | None  # the columns of a row's key; None: the default key


class SourceError(UserError):
    """Raised if a source cannot be read at all; the message is one clear line for the user."""


class NoRowError(SourceError):
    """No file of a source holds a row."""


@dataclass(frozen=True)
class Chunk:
    """A piece of a source, read by one worker."""

    index: int  # the chunk's number in the whole build, in order of (source, path, position)
    source: int  # the source's number in the spec, from 0
    file: str
    """The file, relative to the source's root (POSIX); '' for rows of several files, which `locate` finds by itself."""
    bytes: int
    work: Any = None  # the format's own description, such as a byte range or a list of names


@dataclass(frozen=True)
class WholeFiles:
    """The work of a chunk of whole files, one a row."""

    packed: bytes  # their names: a packed list

    @property
    def names(self) -> list[str]:
        """The files' names, relative to the source's root."""
        return unpacked(self.packed)


@lru_cache(maxsize=8)
def unpacked(packed: bytes) -> list[Any]:
    """Unpacks the rows of a chunk; caches the last few, since one chunk may have many rejects."""
    return list(unpack(packed))


@dataclass(frozen=True)
class Plan:
    """The result of planning a source, before its rows are read."""

    chunks: list[Chunk]
    rows: int  # the number of rows: exact for images, otherwise possibly estimated from the inputs' bytes
    bytes: int = 0  # the bytes to read, including images
    inputs: Sequence[FileInfo] = ()  # every used file, with paths relative to the root; part of the build key
    notes: list[str] = field(default_factory=list)  # notes for the user: ignored files, and why
    is_exact: bool = False
    names: Sequence[str] = ()
    """The columns found, including nested ones; those from files' names and folders come last."""
    of_path: Sequence[str] = ()  # the columns that come from the path of a row's file
    stated: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The files' own `classes`; `points`; `flip_pairs` and `skeleton` as pairs of points' numbers from 0."""
    referred_bytes: int = 0
    """The part of `bytes` that rows only refer to: images in separate files or in uncompressed archives."""


@dataclass(frozen=True)
class Block:
    """Some rows of a chunk: `rows_read = table.num_rows + len(rejects)`."""

    table: pa.Table
    """The asked columns by name (types of `sources.columns`; null where optional), `@position` (int64: 0-based in the
    chunk, strictly rising) and, if asked for, `@key` (binary), the default key. No asked column begins with `@`."""
    rejects: list[Reject]
    positions: int  # the number of positions (lines, records, files) covered, including blank lines


@dataclass(frozen=True)
class SourceReader(ABC, Generic[SourceOf]):
    """Plans and reads one source: `plan` and `read` take the spec's column names, a format the source's own."""

    source: SourceOf

    @abstractmethod
    def root(self, files: Files) -> str:
        """Returns the folder of relative paths, without a trailing slash."""

    def image_root(self, files: Files) -> str:
        """Returns the folder of image references."""
        return self.root(files)

    @abstractmethod
    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists files that affect a row, relative to the root; opens none. Raises: SourceError: no folder; OSError."""

    def plan(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the inputs and cuts them into unnumbered chunks of about `chunk_bytes` of rows (without images).

        Raises: SourceError: the source is empty, or an asked column is missing in the first rows.
        """
        with self._naming_parser():
            return self.plan_chunks(files, self._own(columns), chunk_bytes)

    @contextmanager
    def _naming_parser(self, file: str = "") -> Iterator[None]:
        """Turns an exception of a parser, a library's or ours, into one line that names the file or the source."""
        try:
            yield
        except (UserError, OSError, MemoryError, ImportError):
            raise
        except Exception as error:
            what = f"{file and f'{file} of '}{self.source.path} cannot be read as {self.source.format}"
            raise SourceError(f"{what}: {type(error).__name__}; is it damaged? If not, report it") from None

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[Block]:
        """Reads a chunk as blocks of at most about 8 MiB of rows. A bad row is a `Reject`, never an exception.

        `key` names the key's columns; None asks for the default key, `@key`. Rejects name the source's own columns.
        """
        own_key = [self.source.columns.get(name, name) for name in key] if key and self.source.columns else key
        with self._naming_parser(chunk.file):
            for block in self.read_chunk(chunk, files, self._own(columns), own_key):
                if self.source.columns:
                    named = {name: block.table[self.source.columns.get(name, name)] for name in columns}
                    added = {name: block.table[name] for name in block.table.column_names if name.startswith("@")}
                    block = replace(block, table=pa.table(named | added))
                yield block

    def input_path(self, files: Files) -> Callable[[str], str]:
        """Returns a function that maps a path of `Plan.inputs` to its full path; lists of images may lie anywhere."""
        root = self.root(files)
        return lambda path: path if "://" in path else f"{root}/{path}"

    @abstractmethod
    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Plans as `plan`, by the source's column names."""

    @abstractmethod
    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[Block]:
        """Reads as `read`, by the source's column names."""

    def _own(self, columns: Columns) -> Columns:
        """Maps columns to the source's names, optional if all uses are. Raises: SourceError: wanted as two types."""
        own: dict[str, Column] = {}
        for asked, column in columns.items():
            name = self.source.columns.get(asked, asked)
            known = own.setdefault(name, column)
            if replace(known, optional=column.optional, presence=column.presence) != column:
                message = f"is wanted as {known} and, for {asked!r}, as {column}: a column is read as one type"
                raise SourceError(f"{self.source.path}: `columns`: column {name!r} {message}")
            own[name] = replace(
                known, optional=known.optional and column.optional, presence=known.presence and column.presence
            )
        return own

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """Returns a position's file, relative to the root, and its 1-based line or row; None if the file is the row."""
        if isinstance(chunk.work, WholeFiles):
            return chunk.work.names[position], None
        return chunk.file, position + 1
