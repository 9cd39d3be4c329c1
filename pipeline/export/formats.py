"""The formats of an export: writers of one shard's rows, in bounded memory, and the source options to read them."""

import io
import json
import tarfile
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.export.columns import Columns, ImageFile
from recordmill.pipeline.inspection.records import Record
from recordmill.transforms.contract.kinds.base import ExportColumn, ExportError

ROWS = 1_000  # most rows of a Parquet row group
GROUP_BYTES = 32 << 20  # bytes that end a Parquet row group
IMAGE_SUFFIXES = ("jpeg", "png", "webp", "bmp")  # of stored images

Row = Mapping[str, Any]  # cells by column, including key and split


class ExportWriter(AbstractContextManager["ExportWriter"]):
    """Writes one shard's rows to a file named after the shard, such as `train-00000-of-00004`."""

    source: ClassVar[Mapping[str, str]]
    """The source in the export's spec."""

    @abstractmethod
    def __init__(self, folder: Path, shard: str, columns: Columns) -> None: ...

    @abstractmethod
    def write(self, record: Record, row: Row) -> None:
        """Writes a record's row. Raises: ExportError: the format cannot hold one of its values."""

    @staticmethod
    def check(columns: Columns) -> None:
        """Raises: ExportError: the format cannot hold one of the columns."""

    @staticmethod
    def name_in_spec(name: str, column: ExportColumn | None = None) -> str:
        """Returns the spec's name of a feature's column, or without `column` of the key or the split."""
        return name


ARROW = {"image": pa.binary(), "string": pa.string()}  # the other types have NumPy's names


def _arrow(column: ExportColumn) -> pa.DataType:
    cell: pa.DataType = ARROW.get(column.type) or pa.from_numpy_dtype(column.type)
    for _ in range(column.depth):
        cell = pa.list_(cell)
    return cell


class ParquetWriter(ExportWriter):
    """Writes one Parquet file, with images' bytes in its rows."""

    source = {"format": "parquet", "path": "data/*.parquet"}

    def __init__(self, folder: Path, shard: str, columns: Columns) -> None:
        own = [(name, pa.string()) for name in (*columns.key, columns.split)]
        self._schema = pa.schema([*own, *((column.name, _arrow(column)) for column in columns.columns)])
        self._file = pq.ParquetWriter(path_within(folder, f"data/{shard}.parquet"), self._schema)
        self._rows, self._bytes = list[dict[str, Any]](), 0

    def write(self, record: Record, row: Row) -> None:
        """Collects rows into row groups."""
        self._rows.append({name: _bytes(cell) for name, cell in row.items()})
        self._bytes += record.bytes
        if len(self._rows) >= ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows, self._bytes = [], 0

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and self._rows:
            self._flush()
        self._file.close()


def _bytes(cell: Any) -> Any:
    if isinstance(cell, ImageFile):
        return cell.data
    return [_bytes(each) for each in cell] if isinstance(cell, list) else cell


class WebDatasetWriter(ExportWriter):
    """Writes one tar file of samples: `00000017.json`, and `00000017.photo.jpeg` for the column `photo`."""

    source = {"format": "webdataset", "path": "data/*.tar"}

    def __init__(self, folder: Path, shard: str, columns: Columns) -> None:
        self._file = tarfile.open(path_within(folder, f"data/{shard}.tar"), "w")  # noqa: SIM115 - closed by __exit__

    def write(self, record: Record, row: Row) -> None:
        stem = f"{record.position:08d}"
        images = {name: cell for name, cell in row.items() if isinstance(cell, ImageFile)}
        self._add(f"{stem}.json", _json({name: cell for name, cell in row.items() if name not in images}))
        for name, image in images.items():
            self._add(f"{stem}.{name.lower()}{image.suffix}", image.data)

    def _add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        self._file.addfile(member, io.BytesIO(data))

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @staticmethod
    def check(columns: Columns) -> None:
        """Refuses sequences of images, and names of images that differ only in case."""
        owners = {"json": "the row's values"}
        for column in columns.columns:
            if column.type == "image" and column.depth:
                raise ExportError(f"webdataset cannot hold the several images a row of '{column.feature}': use parquet")
            own = f"the image '{column.name}'"
            if column.type == "image" and (owner := owners.setdefault(column.name.lower(), own)) != own:
                raise ExportError(f"webdataset ignores case, so {own} and {owner} need the same file: use parquet")

    @staticmethod
    def name_in_spec(name: str, column: ExportColumn | None = None) -> str:
        """Returns an image's file extensions in a sample, or another column's field in its JSON."""
        if column is None or column.type != "image":
            return f"json.{name}"
        return ";".join(f"{name.lower()}.{suffix}" for suffix in IMAGE_SUFFIXES)


def _json(values: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(values, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except ValueError:
        name = next(name for name, value in values.items() if not _is_json(value))
        raise ExportError(f"'{name}' holds NaN or an infinite number, invalid in JSON: use parquet") from None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


FORMATS: Mapping[str, type[ExportWriter]] = {"parquet": ParquetWriter, "webdataset": WebDatasetWriter}
