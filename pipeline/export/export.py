"""Exports a version: a file for each shard, written in bounded memory, with the values of `Dataset.records`."""

import io
import json
import shutil
import struct
import tarfile
import tempfile
import zlib
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import UserError, did_you_mean
from recordmill.pipeline.inspection import Record, StoredImage, as_image, read_records
from recordmill.pipeline.safe_text import count
from recordmill.transforms.base.description import UNKNOWN, Description
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import KEY
from recordmill.transforms.images.image_header import JPEG, PNG
from recordmill.transforms.images.image_rules import TAG
from recordmill.transforms.texts.text_stored import WINDOW_PARTS, DecodedText
from recordmill.transforms.values.values_stored import Bucket

ROWS = 1_000  # most rows of a Parquet row group
GROUP_BYTES = 32 << 20  # bytes that end a Parquet row group
EXIF = b"Exif\0\0"
PNG_HEAD = 33  # bytes of a PNG's signature and its first chunk, IHDR
WEBP_FLAGS, HAS_EXIF = 20, 0x08  # the offset of an extended WebP's flags, and the EXIF flag

Row = Mapping[str, Any]  # cells by column, including key and split


class ExportError(UserError):
    """A version that cannot be exported; the message names the feature and the remedy."""


class Column(NamedTuple):
    """A column of an export."""

    feature: str
    type: pa.DataType
    cell: Callable[[Any], Any]  # makes a cell from a decoded value
    is_image: bool


def _columns(name: str, description: Description) -> Iterator[tuple[str, pa.DataType, Callable[[Any], Any]]]:
    """Yields the columns of a feature: name, type, and what makes a cell. Raises: ExportError."""
    image, text, ids = description.as_image, description.as_text, pa.list_(pa.int64())
    if text and text.packed is not None:
        why = "a record holds several rows without their keys"
        raise ExportError(f"'{name}' is packed: {why}. Build it without `pack`")
    if image and image.planes > 1:
        of = f"{image.pixel} with {count(image.shape[2], 'channel')}"
        raise ExportError(f"'{name}' is {of}, which no image file holds: read it by `open_dataset`")
    dtype, depth = description.decoded
    type_ = pa.binary() if dtype == "bytes" else pa.type_for_alias(dtype)
    for _ in range(depth):
        type_ = pa.list_(type_)
    yield name, type_, _plain if description.class_count is None else lambda each: None if each == UNKNOWN else each
    if text and text.several:
        yield f"{name}_ids", pa.list_(ids), lambda texts: [list(each.ids) for each in texts]
    elif text:
        yield f"{name}_ids", ids, lambda each: list(each.ids)
        for part in text.aligned:
            yield f"{name}_{part}", ids, attrgetter(part)
        for part in WINDOW_PARTS if text.window else ():
            yield f"{name}_{part}", pa.int64(), attrgetter(part)


def _plain(value: Any) -> Any:
    match value:
        case Bucket():
            return value.id
        case DecodedText():
            return value.text
        case StoredImage():
            return image_file(value)
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


class ImageFile(NamedTuple):
    """An image file; `suffix` includes the dot: `.png`."""

    suffix: str
    data: bytes


def image_file(image: StoredImage) -> ImageFile:
    """Returns a stored image as a file: raw pixels become PNG, originals get back their EXIF orientation."""
    if image.format != "raw":
        return ImageFile(image.suffix, image.data if image.orientation == 1 else _turned(image.data, image.orientation))
    pixels, into = image.array(), io.BytesIO()
    picture = Image.fromarray(pixels[..., 0]) if pixels.dtype == np.uint16 else as_image(pixels)
    picture.save(into, "PNG")
    return ImageFile(".png", into.getvalue())


def _turned(data: bytes, orientation: int) -> bytes:
    """Returns an original with its EXIF orientation, which a build removed."""
    exif, into = Image.Exif(), io.BytesIO()
    exif[TAG] = orientation
    tiff = exif.tobytes().removeprefix(EXIF)
    with Image.open(io.BytesIO(data)) as file:
        if file.getexif().get(TAG, 1) == orientation:
            return data
        if data.startswith(JPEG):
            return data[:2] + b"\xff\xe1" + struct.pack(">H", len(EXIF + tiff) + 2) + EXIF + tiff + data[2:]
        if data.startswith(PNG):
            chunk = b"eXIf" + tiff
            sized = struct.pack(">I", len(tiff)) + chunk + struct.pack(">I", zlib.crc32(chunk))
            return data[:PNG_HEAD] + sized + data[PNG_HEAD:]
        if data[8:16] == b"WEBPVP8X":
            # An extended WebP: at its end, or before an existing EXIF, since the first one counts.
            end, place = min(len(data), 8 + int.from_bytes(data[4:8], "little")), 12
            while place < end and data[place : place + 4] != b"EXIF":
                size = int.from_bytes(data[place + 4 : place + 8], "little")
                place += 8 + size + size % 2
            chunk = b"EXIF" + struct.pack("<I", len(tiff)) + tiff
            flags = bytes([data[WEBP_FLAGS] | HAS_EXIF])
            body = data[8:WEBP_FLAGS] + flags + data[WEBP_FLAGS + 1 : place] + chunk + data[place:]
            return data[:4] + struct.pack("<I", len(body)) + body
        file.save(into, file.format, exif=exif, lossless=True)  # a simple WebP cannot hold EXIF
        return into.getvalue()


class ExportWriter(AbstractContextManager["ExportWriter"]):
    """Writes one shard's rows to a file named after the shard, such as `train-00000-of-00004`."""

    @abstractmethod
    def __init__(self, folder: Path, shard: str, schema: pa.Schema) -> None: ...

    @abstractmethod
    def write(self, record: Record, row: Row) -> None:
        """Writes a record's row. Raises: ExportError: the format cannot hold one of its values."""

    @staticmethod
    def check(columns: Mapping[str, Column]) -> None:
        """Raises: ExportError: the format cannot hold one of the columns."""


class ParquetWriter(ExportWriter):
    """Writes one Parquet file, with images' bytes in its rows."""

    def __init__(self, folder: Path, shard: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = pq.ParquetWriter(path_within(folder, f"data/{shard}.parquet"), schema)
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

    def __init__(self, folder: Path, shard: str, schema: pa.Schema) -> None:
        self._file = tarfile.open(path_within(folder, f"data/{shard}.tar"), "w")  # noqa: SIM115 - closed by __exit__

    def write(self, record: Record, row: Row) -> None:
        stem = f"{record.position:08d}"
        images = {name: cell for name, cell in row.items() if isinstance(cell, ImageFile)}
        values = {name: cell for name, cell in row.items() if name not in images}
        for name, cell in values.items():
            _check_text(name, cell)
        files = {f"{stem}.json": json.dumps(values, ensure_ascii=False, default=bytes.decode).encode() + b"\n"}
        files |= {f"{stem}.{name.lower()}{image.suffix}": image.data for name, image in images.items()}
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            self._file.addfile(member, io.BytesIO(data))

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @staticmethod
    def check(columns: Mapping[str, Column]) -> None:
        """Refuses sequences of images, and names of images that differ only in case."""
        owners = {"json": "the row's values"}
        for name, column in columns.items():
            if not column.is_image:
                continue
            if column.type == pa.list_(pa.binary()):
                raise ExportError(f"webdataset cannot hold several images a row, as in '{column.feature}': use parquet")
            own = f"the image '{name}'"
            if (owner := owners.setdefault(name.lower(), own)) != own:
                raise ExportError(f"webdataset ignores case, so {own} and {owner} need the same file: use parquet")


def _check_text(name: str, cell: Any) -> None:
    """Raises: ExportError: JSON cannot hold a cell, with its bytes as texts."""
    try:
        json.dumps(cell, allow_nan=False, default=bytes.decode)
    except ValueError as error:
        what = "bytes that are not UTF-8" if isinstance(error, UnicodeDecodeError) else "NaN or an infinite number"
        raise ExportError(f"'{name}' holds {what}, invalid in JSON: use parquet") from None


FORMATS: Mapping[str, type[ExportWriter]] = {"parquet": ParquetWriter, "webdataset": WebDatasetWriter}


@dataclass(frozen=True)
class Exported:
    """The outcome of an export."""

    rows: int
    files: int
    bytes: int


def export(dataset: DatasetVersion, to: str, target: Path, split: str | None = None) -> Exported:
    """Writes a version's rows, or a split's, into a new or empty folder, completely or not at all.

    Raises: ExportError: the format is unknown, or cannot hold a feature; or the folder is not empty, or the current
    one. DatasetError: the split is unknown, or a record is damaged. OSError: the folder cannot be written.
    """
    if to not in FORMATS:
        raise ExportError(f"unknown format '{to}'{did_you_mean(to, FORMATS)}; known: {', '.join(FORMATS)}")
    given, target = target, target.resolve()  # a rename replaces no link
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{given} is not empty: name a new folder")
    if target == Path.cwd() or target.is_mount():
        what = "the current folder" if target == Path.cwd() else "a mount point"
        raise ExportError(f"{given} is {what}, which cannot be replaced: name a folder in it")
    writer, columns = FORMATS[to], dict[str, Column]()
    for feature, description in read_descriptions(dataset.features).items():
        for name, type_, cell in _columns(feature, description):
            if name in columns:
                both = f"'{columns[name].feature}' and '{feature}' both need the column '{name}'"
                raise ExportError(f"{both}: rename one of them and build the dataset again")
            columns[name] = Column(feature, type_, cell, description.as_image is not None)
    writer.check(columns)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        folder.chmod(0o755)  # `mkdtemp` lets only the owner read
        rows = _write(dataset, writer, columns, folder, split)
        files = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        folder.rename(target)  # also replaces an empty folder
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(folder)
        raise
    return Exported(rows, len(files), sum(files))


def _write(
    dataset: DatasetVersion, writer: type[ExportWriter], columns: Mapping[str, Column], folder: Path, split: str | None
) -> int:
    """Writes a file for each nonempty shard; returns the number of rows."""
    rows, spans = 0, ["span"] if dataset.manifest.spans else []
    own = [name if name not in columns else f"{name}_" for name in (*spans, KEY, "split")]
    schema = pa.schema([*((name, pa.string()) for name in own), *((name, each.type) for name, each in columns.items())])
    for name in dataset.splits if split is None else [split]:
        shards = dataset.manifest.split(name).shards
        ends = list(accumulate(shard.records for shard in shards))  # shards in other folders may share a file name
        by_shard = groupby(read_records(dataset, name), key=lambda record: bisect_right(ends, record.position))  # noqa: B023
        for number, records in by_shard:
            with writer(folder, f"{name}-{number:05d}-of-{len(shards):05d}", schema) as shard:
                for record in records:
                    ids = ([record.span] if spans else []) + [record.key, record.split]
                    try:
                        values = ((name, record.values[each.feature], each.cell) for name, each in columns.items())
                        cells = {name: None if value is None else cell(value) for name, value, cell in values}
                        record.key.encode()
                        shard.write(record, dict(zip(own, ids, strict=True)) | cells)
                    except UnicodeEncodeError:
                        raise ExportError(f"the key {record.key!a} is not UTF-8, so it cannot be exported") from None
                    except ExportError as error:
                        raise ExportError(f"row '{record.key}': {error}") from None
                    rows += 1
    return rows
