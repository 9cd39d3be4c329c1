"""Exports a version: a file for each shard, written in bounded memory, and a spec that rebuilds the same rows.

>>> export(open_dataset("out/emoji"), "parquet", Path("emoji-parquet")).rows  # doctest: +SKIP
10000
"""

import io
import json
import math
import shutil
import tarfile
import tempfile
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.export.columns import Columns, ImageFile, columns_of
from recordmill.pipeline.inspection.records import Record, read_records
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.contract.kinds.base import ExportColumn, ExportError

SPEC_FILE = "dataset.yaml"
OPTIONS = ("shards", "together")  # copied to the export's spec, besides name, splits, features and label
ROWS = 1_000  # most rows of a Parquet row group
GROUP_BYTES = 32 << 20  # bytes that end a Parquet row group
IMAGE_SUFFIXES = ("jpeg", "png", "webp", "bmp")  # of stored images

Row = Mapping[str, Any]  # cells by column, including key and split


class ExportWriter(AbstractContextManager["ExportWriter"]):
    """Writes one shard's rows to a file named after the shard, such as `train-00000-of-00004`."""

    source: ClassVar[Mapping[str, str]]  # the source in the export's spec

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
                raise ExportError(f"webdataset cannot hold several images a row, as in '{column.feature}': use parquet")
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


@dataclass(frozen=True)
class Exported:
    """The outcome of an export."""

    rows: int
    files: int
    bytes: int
    notes: list[str]
    has_spec: bool  # whether the export includes a spec; a build needs rows of `train`


def export(dataset: DatasetVersion, to: str, target: Path, split: str | None = None) -> Exported:
    """Writes a version's rows into a folder, completely or not at all, with a few rows in memory.

    Args:
        dataset: the version.
        to: the format, a name in `FORMATS`.
        target: a new or empty folder; not the current one.
        split: the only split to write; None: all.

    Raises:
        ExportError: the format is unknown, or cannot hold a feature; or the folder is not empty, or the current one.
        SpecError: the rows cannot be rebuilt by a spec.
        DatasetError: the split is unknown, or a record is damaged.
        OSError: the folder cannot be written.
    """
    if to not in FORMATS:
        raise ExportError(f"unknown format '{to}'{did_you_mean(to, FORMATS)}; known: {', '.join(FORMATS)}")
    writer, target, columns = FORMATS[to], _target(target), columns_of(dataset)
    writer.check(columns)
    spec = _spec(dataset, writer, columns) if split in (None, "train") else None
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        folder.chmod(0o755)  # `mkdtemp` lets only the owner read
        rows = _write(dataset, writer, columns, folder, split)
        if spec is not None:
            for path, lines in columns.files.items():
                path_within(folder, path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            (folder / SPEC_FILE).write_text(spec, encoding="utf-8")
        files = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        folder.rename(target)  # also replaces an empty folder
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(folder)
        raise
    return Exported(rows, len(files), sum(files), columns.notes, spec is not None)


def _target(given: Path) -> Path:
    """Resolves the links of a target's path. Raises: ExportError: a rename cannot replace it."""
    target = given.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{given} is not empty: name a new folder")
    if target == Path.cwd() or target.is_mount():
        what = "the current folder" if target == Path.cwd() else "a mount point"
        raise ExportError(f"{given} is {what}, which cannot be replaced: name a folder in it")
    return target


def _write(
    dataset: DatasetVersion, writer: type[ExportWriter], columns: Columns, folder: Path, split: str | None
) -> int:
    """Writes a file for each nonempty shard; returns the number of rows."""
    rows = 0
    features = {**dataset.features, **columns.as_stored}
    dataset = DatasetVersion(dataset.folder, replace(dataset.manifest, features=features))
    for name in dataset.splits if split is None else [split]:
        shards = len(dataset.manifest.split(name).shards)
        for number, records in _by_shard(dataset, name):
            with writer(folder, f"{name}-{number:05d}-of-{shards:05d}", columns) as shard:
                for record, row in _rows(records, columns):
                    try:
                        shard.write(record, row)
                    except ExportError as error:
                        raise ExportError(f"row '{record.key}': {error}") from None
                    rows += 1
    return rows


def _by_shard(dataset: DatasetVersion, split: str) -> Iterator[tuple[int, Iterator[Record]]]:
    """Groups a split's records by shard number, since shards in other versions' folders may share a file name."""
    ends = list(accumulate(shard.records for shard in dataset.manifest.split(split).shards))
    return groupby(read_records(dataset, split), key=lambda record: bisect_right(ends, record.position))


def _rows(records: Iterator[Record], columns: Columns) -> Iterator[tuple[Record, Row]]:
    own = (*columns.key, columns.split)
    for record in records:
        span = (record.span,) if columns.is_by_span else ()
        row: dict[str, Any] = dict(zip(own, (*span, _key(record), record.split), strict=True))
        for column in columns.columns:
            try:
                row[column.name] = column.cell(record.values[column.feature])
            except ExportError as error:
                raise ExportError(f"row '{record.key}', feature '{column.feature}': {error}") from None
        yield record, row


def _key(record: Record) -> str:
    try:
        record.key.encode()
    except UnicodeEncodeError:
        raise ExportError(f"the key {record.key!a} is not UTF-8, so it cannot be exported") from None
    return record.key


def _spec(dataset: DatasetVersion, writer: type[ExportWriter], columns: Columns) -> str:
    """Returns the spec of the exported rows. Raises: SpecError: a spec cannot describe them."""
    given = dataset.manifest.spec
    version = " ".join(dataset.version.split())  # a line break would end the comment
    notes = [f"Rebuilds the rows of {dataset.name} {version}: recordmill build {SPEC_FILE} --output DIR"]
    spec = {
        "name": dataset.name,
        "source": writer.source,
        "key": [writer.name_in_spec(name) for name in (*columns.key, *columns.windows)],
        "splits": given.get("splits"),
        "split_by": {"column": writer.name_in_spec(columns.split)},
        **{name: given[name] for name in OPTIONS if given.get(name)},
        "features": _features(writer, columns),
        **({"label": dataset.label} if dataset.label else {}),
    }
    copied = json.loads(json.dumps(spec))  # YAML writes an object that occurs twice as an anchor and an alias
    yaml_text = yaml.safe_dump(copied, default_flow_style=None, sort_keys=False, allow_unicode=True, width=math.inf)
    text = "".join(f"# {note}\n" for note in [*notes, *columns.notes]) + yaml_text
    parse_spec(text)
    return text


def _features(writer: type[ExportWriter], columns: Columns) -> dict[str, Any]:
    """Returns the spec's features, each with its column's name if that differs."""
    by_name = {column.name: column for column in columns.columns}
    features = {}
    for name, options in columns.features.items():
        column = options.get("column", name)
        read = writer.name_in_spec(column, by_name[column])
        features[name] = options if read == name else {**options, "column": read}
    return features
