"""CSV and TSV as sources: a row is a record. What a record is: `pipeline.sources.csv.records`.

    source: {format: csv, path: rows.csv}

The plan reads every file once, to count the rows and to find where records start: so files that are not compressed are
read in ranges, and each record is read once, whatever its quoted cells hold.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files, SourceError
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.csv.ranges import cut_file
from recordmill.pipeline.sources.csv.records import Dialect
from recordmill.pipeline.sources.csv.rows import CsvFile, check_once, first_record, read_csv
from recordmill.pipeline.sources.encoded import Encoding, name_encoding
from recordmill.pipeline.sources.paths import check_names, join
from recordmill.pipeline.sources.table import Cut, Table
from recordmill.pipeline.sources.typing.checks import check_columns, make_block

SEPARATORS = ",;\t|"


def _character(value: str) -> str:
    if len(value) != 1 or not value.isascii() or value in "\0\r\n":
        raise ValueError(f'should be one ASCII character, such as "," or "\\t", got {value!r}')
    return value


Character = Annotated[str, AfterValidator(_character)]


def _header(value: Any) -> Any:
    if value is not True and not isinstance(value, list | tuple):
        raise ValueError(f"should be true, or the list of the columns' names of files without a header, got {value!r}")
    return value


Header = Annotated[Literal[True] | Annotated[tuple[str, ...], Field(min_length=1)], BeforeValidator(_header)]


class Delimited(Table):
    """Files of records whose cells have a separator between them."""

    separator: Character = ","
    """The character between two cells."""
    quote: Character | None = '"'
    """The character around a cell that holds separators, line breaks or itself, which is doubled; none: no cell is."""
    header: Header = True
    """Whether the first record names the columns; or their names, where the files have no header."""
    encoding: Encoding = "utf-8"
    """The files' encoding, by any name that Python knows."""

    @model_validator(mode="after")
    def _check(self) -> "Delimited":
        if self.quote == self.separator:
            raise ValueError(f"`quote` and `separator` are both {self.quote!r}")
        if self.header is not True and len(set(self.header)) < len(self.header):
            raise ValueError(f"`header` has a name twice: {', '.join(self.header)}")
        return self

    def cut(self, files: Files, root: str, inputs: list[FileInfo], columns: Columns, chunk_bytes: int) -> Cut:
        """Cuts the files where records start, into ranges of about `chunk_bytes`; `rows` is exact.

        Raises:
            SourceError: a header is no CSV, or not of the encoding, or lacks a column, or has it twice.
            OSError: a file cannot be read, or its compressed data is damaged.
        """
        chunks, rows, names = list[Chunk](), 0, dict[str, None]()
        needed = [name for name, column in columns.items() if not column.optional]
        for file in inputs:
            path = join(root, file.path)
            form = self._form(files, path)
            self._check_separator(path, needed, form.names)
            check_names(path, needed, form.names)
            check_once(path, form.names, columns)
            ranges, found = cut_file(files, path, file.bytes, form, chunk_bytes)
            chunks += [Chunk(0, 0, file.path, (part.end or file.bytes) - part.start, part) for part in ranges]
            rows += found
            names |= dict.fromkeys(form.names)
        return Cut(chunks, rows, list(names), is_exact=True)

    def _check_separator(self, path: str, needed: list[str], names: tuple[str, ...]) -> None:
        """Says it where the header looks as if it had another separator."""
        if len(names) == 1 and needed and names[0] not in needed:
            near = max(SEPARATORS, key=names[0].count)
            if near in names[0] and near != self.separator:
                raise SourceError(f"{path} has one column, {names[0]!r}; set `separator`, maybe to {near!r}")

    def _form(self, files: Files, path: str) -> CsvFile:
        """How a file is read, with the names of its columns."""
        dialect, has_header = Dialect(self.separator, self.quote), self.header is True
        names = first_record(files, path, dialect, self.encoding) if self.header is True else self.header
        return CsvFile(dialect, self.encoding, tuple(names), has_header)

    def read(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads the records of a chunk; a row's default key is the digest of its cells.

        Raises:
            OSError: the file cannot be read any more.
        """
        path, places = join(self.root(files), chunk.file), (self.image_root(files), self.image_folder(chunk))
        for raw in read_csv(chunk, path, files, columns, places, chunk.work, key is None):
            checked = check_columns(raw, columns)
            name_encoding(raw.faults, self.encoding)
            yield make_block(chunk, raw, checked, raw.keys, key)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """The file and the 1-based line inside the chunk where the record starts."""
        return chunk.file, position + 1


class Csv(Delimited):
    """Files of comma-separated values."""

    endings: ClassVar[tuple[str, ...]] = (".csv",)
    format: Literal["csv"]


class Tsv(Delimited):
    """Files of tab-separated values."""

    endings: ClassVar[tuple[str, ...]] = (".tsv",)
    format: Literal["tsv"]
    separator: Character = "\t"
    """The character between two cells."""
