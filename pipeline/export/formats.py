"""The formats of an export: how each writes rows of one shard, and how a spec reads them.

A writer holds some rows at a time, whatever the size of the shard.
"""

import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.pipeline.dataset.names import safe_name
from recordmill.pipeline.dataset.safe_paths import path_within
from recordmill.pipeline.export.columns import Column, Columns, ExportError
from recordmill.pipeline.export.image_files import ImageFile
from recordmill.pipeline.inspection.records import Record

ROWS = 1_000
"""Rows of a row group of Parquet at most."""
GROUP_BYTES = 32 << 20
"""Bytes of a row group of Parquet, after which the next begins."""
IMAGE_SUFFIXES = ("jpeg", "png", "webp", "bmp")
"""The files of images that a version can hold."""

Row = Mapping[str, Any]
"""The cells of a row by column, its key and its split among them."""


class Writer(AbstractContextManager["Writer"], Protocol):
    """Writes the rows of one shard."""

    def write(self, record: Record, row: Row) -> None:
        """Writes a row, of this record."""


@dataclass(frozen=True)
class Format:
    """A format."""

    source: Mapping[str, Any]
    """The source of the spec that reads it."""
    open: Callable[[Path, str, Columns], Writer]
    """Opens the writer of a shard: the folder of the export, the shard's name such as `train-00000-of-00004`, and the
    columns."""
    refused: Sequence[str] = ()
    """The types of columns that it cannot hold."""
    column: Callable[[Column], str] = lambda column: column.name
    """Gives the name by which the spec reads a column."""
    plain_column: Callable[[str], str] = lambda name: name
    """Gives the name by which the spec reads the key and the split."""
    has_members: bool = False
    """Whether a row is files in an archive, one `json` and one for each image, whose column it names without capitals.
    """
    is_of_images: bool = False
    """Whether each row is one image's."""


ARROW = {
    "image": pa.binary(),
    "images": pa.list_(pa.binary()),
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
    "int64": pa.int64(),
    "int64s": pa.list_(pa.int64()),
    "float32": pa.float32(),
    "float32s": pa.list_(pa.float32()),
    "boxes": pa.list_(pa.list_(pa.float32())),
}


class ParquetWriter:
    """Writes one Parquet file, with images' bytes in its rows."""

    def __init__(self, folder: Path, name: str, columns: Columns) -> None:
        path = path_within(folder, f"data/{name}.parquet")
        own = [(name, pa.string()) for name in (*columns.key, columns.split)]
        self._schema = pa.schema([*own, *((column.name, ARROW[column.type]) for column in columns.columns)])
        self._file = pq.ParquetWriter(path, self._schema)
        self._rows, self._bytes = list[dict[str, Any]](), 0

    def __enter__(self) -> Self:
        return self

    def write(self, record: Record, row: Row) -> None:
        """Keeps a row, and writes all kept ones where they are many."""
        self._rows.append({name: _bytes(cell) for name, cell in row.items()})
        self._bytes += record.bytes
        if len(self._rows) >= ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows, self._bytes = [], 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._rows:
            self._flush()
        self._file.close()


def _bytes(cell: Any) -> Any:
    if isinstance(cell, ImageFile):
        return cell.data
    return [_bytes(each) for each in cell] if isinstance(cell, list) else cell


class JsonLinesWriter:
    """Writes one file of JSON Lines, and the images beside it in `images/`."""

    def __init__(self, folder: Path, name: str, columns: Columns) -> None:
        self._images, self._file = (
            folder / "images",
            open(path_within(folder, f"data/{name}.jsonl"), "w", encoding="utf-8"),
        )

    def __enter__(self) -> Self:
        return self

    def write(self, record: Record, row: Row) -> None:
        """Writes a line, and a file for each image."""
        stem = f"{safe_name(record.split)}/{record.position:08d}"
        self._file.write(_line({name: self._named(cell, f"{stem}-{name}") for name, cell in row.items()}))

    def _named(self, cell: Any, stem: str) -> Any:
        """Writes images, and gives their paths instead."""
        if isinstance(cell, ImageFile):
            path_within(self._images, stem + cell.suffix).write_bytes(cell.data)
            return stem + cell.suffix
        if isinstance(cell, list):
            return [self._named(each, f"{stem}-{number}") for number, each in enumerate(cell)]
        return cell

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class WebDatasetWriter:
    """Writes one tar file of samples: `00000017.json`, and `00000017.photo.jpeg` for the column `photo`."""

    def __init__(self, folder: Path, name: str, columns: Columns) -> None:
        self._file = tarfile.open(path_within(folder, f"data/{name}.tar"), "w")  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def write(self, record: Record, row: Row) -> None:
        """Writes a sample."""
        stem = f"{record.position:08d}"
        images = {name: cell for name, cell in row.items() if isinstance(cell, ImageFile)}
        values = {name: cell for name, cell in row.items() if name not in images}
        self._add(f"{stem}.json", _line(values).encode())
        for name, image in images.items():
            self._add(f"{stem}.{name.lower()}{image.suffix}", image.data)

    def _add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        self._file.addfile(member, io.BytesIO(data))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class FolderWriter:
    """Writes images in folders by split and class, and a line for each to `metadata.jsonl`."""

    def __init__(self, folder: Path, name: str, columns: Columns) -> None:
        self._folder, self._label = folder / "images", columns.label
        [self._image] = [column.name for column in columns.columns if column.type == "image"]
        self._metadata = open(path_within(self._folder, "metadata.jsonl"), "a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def write(self, record: Record, row: Row) -> None:
        """Writes an image and its line."""
        image, label = row[self._image], row.get(self._label or "")
        folders = [safe_name(name) for name in (record.split, label) if isinstance(name, str)]
        path = f"{'/'.join(folders)}/{record.position:08d}{image.suffix}"
        path_within(self._folder, path).write_bytes(image.data)
        self._metadata.write(_line({"file_name": path} | {name: row[name] for name in row if name != self._image}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metadata.close()


def _line(values: Mapping[str, Any]) -> str:
    try:
        return json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        name = next(name for name, value in values.items() if not _is_json(value))
        raise ExportError(f"'{name}' holds an infinite number or NaN, which JSON does not know: use parquet") from None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _member(column: Column) -> str:
    """Gives the extensions of a column's members in a sample, or its field in their JSON."""
    if column.type != "image":
        return f"json.{column.name}"
    return ";".join(f"{column.name.lower()}.{suffix}" for suffix in IMAGE_SUFFIXES)


FORMATS: Mapping[str, Format] = {
    "parquet": Format({"format": "parquet", "path": "data/*.parquet"}, ParquetWriter),
    "jsonl": Format({"format": "jsonl", "path": "data/*.jsonl", "images": "images"}, JsonLinesWriter),
    "webdataset": Format(
        {"format": "webdataset", "path": "data/*.tar"},
        WebDatasetWriter,
        refused=("images",),
        column=_member,
        plain_column=lambda name: f"json.{name}",
        has_members=True,
    ),
    "folder": Format(
        {"format": "image_folder", "path": "images"},
        FolderWriter,
        refused=("images",),
        column=lambda column: "image" if column.type == "image" else column.name,
        is_of_images=True,
    ),
}
"""The formats by the names that the command takes."""
