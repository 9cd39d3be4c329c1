"""WebDataset's tar files as a source: a row is a sample, its columns are its members, by their extensions.

    source: {format: webdataset, path: "shards/train-*.tar"}

A sample is explained in `webdataset.tar_samples`, its columns in `webdataset.sample_columns`. Files on a
local disk are cut where samples begin; compressed ones, and those behind a URL, are a chunk each. An image's bytes are
not copied out of a file that is not compressed: a reference to them is delivered.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import ClassVar

import numpy as np
import pyarrow as pa

from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files, Plan, SourceError
from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.options import WebDataset
from recordmill.pipeline.sources.paths import is_utf8, join, note, path_key
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.table import ArchiveReader, at_once, has_images
from recordmill.pipeline.sources.typing.blocks import RawRows, as_reject, make_block
from recordmill.pipeline.sources.typing.faults import Fault, Faults
from recordmill.pipeline.sources.typing.fields import python_names
from recordmill.pipeline.sources.webdataset.sample_columns import KEY, SampleColumn, object_in, parts, wanted
from recordmill.pipeline.sources.webdataset.tar_samples import DamagedTarError, Sample, Tar, samples

BLOCK_SAMPLES = 4096
HEAD_SAMPLES = 100  # looked at when planning
GZIP = (".gz", ".tgz")


@dataclass(frozen=True)
class Samples:
    """A piece of a file: the samples that start in the bytes `[start, end)`."""

    start: int = 0
    end: int | None = None
    size: int | None = None
    """The file's bytes; None where it is compressed."""


@dataclass
class Look:
    """The result of a look at a file, or at its first samples."""

    starts: list[int] = field(default_factory=lambda: [0])
    """The bytes where chunks start."""
    rows: int = 0
    extensions: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    """The names of members that are no part of a sample."""
    no_end: bool = False
    """Whether the mark is missing that a tar file ends with."""
    damage: str = ""
    """A message about the damage of the file; empty for a good file."""


class WebDatasetReader(ArchiveReader[WebDataset]):
    """Reads tar files of WebDataset."""

    endings: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz")

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts local files where samples begin, so that `rows` is exact; of others it is estimated by all their heads.

        Raises:
            SourceError: the first file holds no sample.
            OSError: a file cannot be read.
        """
        looks = at_once(partial(_look, files, root, self.chunk_bytes(columns, chunk_bytes)), inputs)
        chunks = [
            Chunk(0, 0, file.path, (file.bytes if end is None else end) - start, Samples(start, end, _size(file)))
            for file, look in zip(inputs, looks, strict=True)
            for start, end in zip(look.starts, [*look.starts[1:], None], strict=True)
        ]
        extensions = sorted({extension for look in looks for extension in look.extensions})
        if not extensions:
            damage = next((f": {look.damage}" for look in looks if look.damage), "")
            raise SourceError(f"{join(root, inputs[0].path)} holds no sample, such as 0001.jpg and 0001.txt{damage}")
        names = _names(columns, extensions + _fields(files, root, inputs[0], extensions))
        plain = sum(file.bytes for file in inputs if _size(file) is not None) if has_images(columns) else 0
        rows = sum(look.rows for look in looks)
        return Plan(chunks, rows, names=names, notes=_notes(inputs, looks), referred_bytes=plain)

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads the samples that start in the chunk's bytes; a row's default key is its sample's.

        Raises:
            OSError: the file cannot be read any more.
        """
        in_place = chunk.work.size is not None
        base = self.image_base(files, chunk)
        file = chunk.file if in_place else None
        made = {name: SampleColumn(name, column, file, base) for name, column in columns.items()}
        path, first = join(self.root(files), chunk.file), 0
        read = _read(files, path, chunk.work, wanted(columns, images=not in_place))
        for batch in batches(read, _bytes, BLOCK_SAMPLES):
            raw = _raw_rows(chunk, first, batch, made, key is None)
            yield make_block(chunk, raw, columns, key)
            first += len(batch)


def _size(file: FileInfo) -> int | None:
    """The bytes of a tar file that is not compressed."""
    return None if file.path.lower().endswith(GZIP) else file.bytes


def _look(files: Files, root: str, chunk_bytes: int, file: FileInfo) -> Look:
    """Walks through a file, or through the first samples of one that is compressed or far away."""
    look, path, size = Look(), join(root, file.path), _size(file)
    limit = HEAD_SAMPLES if size is None or "://" in path else None
    with files.open(path) as opened:
        tar = Tar(opened, size)
        try:
            for sample in samples(tar, (), look.left_out.append):
                if look.rows == limit:
                    look.rows = round(limit * file.bytes / tar.consumed)
                    break
                look.rows += 1
                look.extensions |= sample.members.keys()
                if limit is None and sample.start - look.starts[-1] >= chunk_bytes:
                    look.starts.append(sample.start)
            else:
                look.no_end = not tar.has_end
        except DamagedTarError as damage:
            look.rows += 1
            look.damage = str(damage)
    if tar.has_global_headers:  # they hold for all that lies behind them
        look.starts = [0]
    return look


def _read(files: Files, path: str, part: Samples, extensions: Collection[str]) -> Iterator[Sample | str]:
    """The samples of a piece; last, what is wrong with the file, if anything is."""
    with files.open(path) as opened:
        if part.start:
            opened.seek(part.start)
        try:
            for sample in samples(Tar(opened, part.size), extensions, lambda _: None):
                if part.end is not None and sample.start >= part.end:
                    return
                yield sample
        except DamagedTarError as damage:
            yield f"{damage}; the sample there, and what lies behind it in the file, cannot be read"


def _bytes(sample: Sample | str) -> int:
    return sum(len(member.data or b"") for member in sample.members.values()) if isinstance(sample, Sample) else 0


def _raw_rows(
    chunk: Chunk, first: int, batch: list[Sample | str], columns: Mapping[str, SampleColumn], with_key: bool
) -> RawRows:
    """Makes rows of samples; `first` is the position of the first one in the chunk."""
    good, rows, unparsed = list[Sample](), list[int](), list[Reject]()
    for position, sample in enumerate(batch, first):
        if isinstance(sample, str):
            unparsed.append(as_reject(chunk, position, Fault("damaged_record", sample)))
        elif not is_utf8(sample.key):
            unparsed.append(as_reject(chunk, position, Fault("invalid_utf8", "the sample's name is not UTF-8")))
        elif sample.twice:
            fault = Fault("malformed_row", f"the sample has two members .{sample.twice}")
            unparsed.append(as_reject(chunk, position, fault, sample.key if with_key else None))
        else:
            good.append(sample)
            rows.append(position)
    faults: Faults = {}
    return RawRows(
        {name: column.typed(good, faults) for name, column in columns.items()},
        np.array(rows, np.int64),
        pa.array([path_key(sample.key) for sample in good], pa.binary()) if with_key else None,
        len(batch),
        faults,
        unparsed,
    )


def _fields(files: Files, root: str, file: FileInfo, extensions: Sequence[str]) -> list[str]:
    """The fields of the JSON objects in the first samples, such as `json.caption`."""
    objects = {extension for extension in extensions if extension.split(".")[-1] == "json"}
    if not objects:
        return []
    names = dict[str, None]()
    read = _read(files, join(root, file.path), Samples(size=_size(file)), objects)
    for sample in (sample for sample in islice(read, HEAD_SAMPLES) if isinstance(sample, Sample)):
        for extension in sorted(objects & sample.members.keys()):
            row = object_in(sample, extension)
            if isinstance(row, dict):
                names |= dict.fromkeys(f"{extension}.{name}" for name in python_names(row))
    return list(names)


def _names(columns: Columns, found: list[str]) -> list[str]:
    """The columns that are there: those asked for that are there in any way, and all others."""
    ways = {
        name: {f"{part.extension}.{part.field}" if part.field else part.extension for part in parts(name)}
        for name in columns
    }
    used = set().union(*ways.values())
    there = [name for name, names in ways.items() if name == KEY or not names.isdisjoint(found)]
    return there + [name for name in found if name not in used]


def _notes(inputs: Sequence[FileInfo], looks: list[Look]) -> list[str]:
    left_out = [name for look in looks for name in look.left_out]
    no_end = [file.path for file, look in zip(inputs, looks, strict=True) if look.no_end]
    cut_off = "maybe cut off, because the mark is missing that a tar file ends with"
    return note("members that are no part of a sample, left out", left_out) + note(cut_off, no_end)
