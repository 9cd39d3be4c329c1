"""The interface of a source's reader, which plans chunks and reads one chunk as Arrow rows.

A source never imports Beam: the job hands it `Files`, which opens whatever Beam's filesystems open.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
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


class SourceError(UserError):
    """The source cannot be read at all; the message is one clear line for the user."""


@dataclass(frozen=True)
class Chunk:
    """A piece of a source that one worker reads at a time."""

    index: int
    """The number of the chunk in the whole build, in the order of (source, path, position)."""
    source: int
    """The number of the source in the spec, from 0."""
    file: str
    """The file, relative to the source's root (POSIX); for a listing, the root itself: ''."""
    bytes: int
    """The number of bytes of input that it stands for."""
    work: Any = None
    """The source's own description of it, such as a byte range or a list of names."""


@dataclass(frozen=True)
class WholeFiles:
    """The work of a chunk whose rows are whole files."""

    packed: bytes
    """Their names: `pack` of a list."""

    @property
    def names(self) -> list[str]:
        """The names of the files, relative to the source's root."""
        return unpacked(self.packed)


@lru_cache(maxsize=8)
def unpacked(packed: bytes) -> list[Any]:
    """Unpacks the rows of a chunk; keeps the last few, since many rejects may lie in one chunk."""
    return list(unpack(packed))


@dataclass(frozen=True)
class Plan:
    """The result of planning a source, before its rows are read."""

    chunks: list[Chunk]
    rows: int
    """The number of rows: exact where a column is an image, otherwise maybe estimated from the inputs' bytes."""
    bytes: int = 0
    """The bytes that will be read, images included."""
    inputs: Sequence[FileInfo] = ()
    """Every file that was found and is used, with paths relative to the root: the build key is made of them."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user: files that were ignored, and why."""
    is_exact: bool = False
    """Whether `rows` is known to be exact."""
    names: Sequence[str] = ()
    """The columns that were found, also those inside others; the files' names and folders give the last of them."""
    of_path: Sequence[str] = ()
    """The columns that come from the path of the file that a row stands for."""
    referred_bytes: int = 0
    """Those of `bytes` that rows only refer to: images in files of their own, or in uncompressed archives."""


@dataclass(frozen=True)
class Block:
    """Some rows of a chunk: `rows_read = table.num_rows + len(rejects)`."""

    table: pa.Table
    """The asked columns by their names (types of `sources.columns`; nulls where a column is optional), `@position`
    (int64: 0-based position in the chunk, strictly rising) and, where asked for, `@key` (binary), the default key.
    No asked column's name begins with `@`."""
    rejects: list[Reject]
    positions: int
    """The number of positions (lines, records, files) of the chunk that it covers, with blank lines."""


@dataclass(frozen=True)
class SourceReader(ABC, Generic[SourceOf]):
    """Plans and reads one source.

    A format gives `plan_chunks` and `read_chunk`, which know the source's own names of columns alone; `plan` and `read`
    are called with the spec's names and translate them by `columns`.
    """

    source: SourceOf

    @abstractmethod
    def root(self, files: Files) -> str:
        """Returns the folder that paths are relative to, with no slash at its end."""

    def image_root(self, files: Files) -> str:
        """Returns the folder that the references to images are relative to."""
        return self.root(files)

    @abstractmethod
    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists every file whose change may change a row, with paths relative to the root; opens none.

        Raises: SourceError: there is no folder where one should be; OSError: one cannot be listed.
        """

    def plan(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the inputs and cuts them into chunks of about `chunk_bytes` of rows (not of images).

        The chunks' `index` and `source` are left 0: the job numbers them.

        Raises: SourceError: nothing is there, or an asked column is in none of the first rows.
        """
        with self._naming_parser():
            return self.plan_chunks(files, self._own(columns), chunk_bytes)

    @contextmanager
    def _naming_parser(self, file: str = "") -> Iterator[None]:
        """Turns an exception of a parser's library, or of ours, into one line that names the file, or the source."""
        try:
            yield
        except (UserError, OSError, MemoryError, ImportError):
            raise
        except Exception as error:
            what = f"{file and f'{file} of '}{self.source.path} cannot be read as {self.source.format}"
            raise SourceError(f"{what}: {type(error).__name__}; is it damaged? If it is not, report it") from None

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads a chunk as blocks of at most about 8 MiB of rows. A bad row is a `Reject`, never an exception.

        `key` are the asked columns that make a row's key; None asks for the default key as column `@key`. A reject
        names the source's own column.
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
        """Returns the function that makes the full path of one in `Plan.inputs`."""
        root = self.root(files)
        return lambda path: f"{root}/{path}"

    @abstractmethod
    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Plans as `plan`, by the source's own names of columns."""

    @abstractmethod
    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads as `read`, by the source's own names of columns."""

    def _own(self, columns: Columns) -> Columns:
        """Maps the columns to the source's own names; one that several names stand for is optional where all are.

        Raises: SourceError: one is wanted as two types.
        """
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
        """Returns the file of a position, relative to the root, and its number in the chunk from 1, as a line or a row.

        The number is None where the file itself is the row.
        """
        if isinstance(chunk.work, WholeFiles):
            return chunk.work.names[position], None
        return chunk.file, position + 1
