"""A sample of the rows that a plan reads, keyed and split as a build does it, and of their images.

All rows of a small source, or of a folder of images, are looked at; else the first rows of some chunks, evenly spread.
Neither reads nor holds more of a large source, however few chunks it has.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.row_schema import RowDecisions
from recordmill.pipeline.build.images.image_files import image_files
from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.build.worker.keyed_rows import KeyedBlock, keyed_blocks
from recordmill.pipeline.sources.base import Chunk
from recordmill.pipeline.sources.image_folder.source import ImageFolder
from recordmill.pipeline.sources.rejects import Reject
from recordmill.transforms.contract.image_header import Header, ImageError, check_header
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.numpy.image_decode import FORMATS, DecodeError, decode_original
from recordmill.transforms.numpy.image_resize import resize

ALL_ROWS = 200_000
"""The most rows that are all looked at where a listing names them."""
ALL_BYTES = 64 << 20
"""The most bytes of rows that are all looked at: some seconds."""
HELD_BYTES = 256 << 20
"""The most bytes of rows that are held: compressed files, and rows of unknown number, may be larger than they look."""
CHUNKS = 32
CHUNK_ROWS = 2_000
CHUNK_BYTES = 2 << 20
IMAGES = 64
DECODED_AS = {"JPEG", *(form.upper() for form in FORMATS)}


@dataclass
class ImageSample:
    """The sampled images of a feature."""

    options: ImageOptions
    headers: list[Header] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    decoded: int = 0
    seconds: float = 0.0
    """The time in which `decoded` images were decoded and scaled, by one core."""


@dataclass
class Sample:
    """Rows of a plan, and the facts of them."""

    tables: list[pa.Table] = field(default_factory=list)
    """Keyed rows (`worker.keyed_rows`)."""
    rejects: list[Reject] = field(default_factory=list)
    image_rejects: Counter[str] = field(default_factory=Counter)
    """The sampled images that a build would reject, by reason."""
    images: dict[str, ImageSample] = field(default_factory=dict)
    is_all: bool = False
    """Whether all rows were read; of their images only some are opened."""
    bytes: int = 0
    """The bytes of `tables`."""
    seconds: float = 0.0
    """The time in which the rows were read, without their images."""

    def add(self, block: KeyedBlock) -> None:
        """Adds the rows of a block."""
        self.tables.append(block.rows)
        self.rejects += block.rejects
        self.bytes += block.rows.nbytes

    @property
    def rows(self) -> int:
        """The number of rows that were read."""
        return sum(table.num_rows for table in self.tables) + len(self.rejects)

    def column(self, name: str) -> pa.ChunkedArray:
        """Gives a column of all good rows."""
        return pa.chunked_array([chunk for table in self.tables for chunk in table[name].chunks], self._type(name))

    def _type(self, name: str) -> pa.DataType | None:
        return self.tables[0].schema.field(name).type if self.tables else pa.null()


def take_sample(plan: BuildPlan, planned: PlannedBuild) -> Sample:
    """Reads a sample of a plan's rows and opens some of their images.

    Raises:
        SourceError, OSError: a source cannot be read.
    """
    chunks, whole = _chosen(plan)
    sample = Sample(is_all=len(chunks) == len(plan.chunks))
    _warm_up(planned, chunks)
    started = time.perf_counter()
    for chunk in chunks:
        sample.is_all &= _read(sample, planned, chunk, whole=whole)
    sample.seconds = time.perf_counter() - started
    for name, options in planned.images().items():
        sample.images[name] = _look_at_images(sample, planned, name, options)
    return sample


def _chosen(plan: BuildPlan) -> tuple[Sequence[Chunk], bool]:
    """Chooses the chunks that are read, and whether each is read to its end."""
    chunks = plan.chunks
    is_listing = all(isinstance(each.source, ImageFolder) for each in plan.sources) and plan.rows <= ALL_ROWS
    if is_listing or sum(chunk.bytes for chunk in chunks) <= ALL_BYTES:
        return chunks, True
    count = min(CHUNKS, len(chunks))
    return [chunks[len(chunks) * number // count] for number in range(count)], False


def _warm_up(planned: PlannedBuild, chunks: Sequence[Chunk]) -> None:
    """Reads a first block, because Arrow imports pandas at the first value: no row costs that second."""
    for chunk in chunks[:1]:
        next(keyed_blocks(planned, RowDecisions(), chunk), None)


def _read(sample: Sample, planned: PlannedBuild, chunk: Chunk, *, whole: bool) -> bool:
    """Adds the rows of a chunk, to its end or only the first ones; returns whether these are all."""
    rows, held = 0, sample.bytes
    for block in keyed_blocks(planned, RowDecisions(), chunk) if held < HELD_BYTES else ():
        sample.add(block)
        rows += block.rows.num_rows + len(block.rejects)
        is_enough = not whole and (rows >= CHUNK_ROWS or sample.bytes - held >= CHUNK_BYTES)
        if is_enough or sample.bytes >= HELD_BYTES:
            return False
    return held < HELD_BYTES


def _look_at_images(sample: Sample, planned: PlannedBuild, name: str, options: ImageOptions) -> ImageSample:
    """Opens some images, evenly spread over the sampled rows."""
    result, files = ImageSample(options), image_files(planned)
    for source, reference in _references(sample, name):
        try:
            data = files.read(source, reference, options.max_bytes)
            header = check_header(data, options.max_pixels)
            _decode(result, data, header)
        except ImageError as error:
            sample.image_rejects[error.reason] += 1
        except DecodeError:
            sample.image_rejects["undecodable_image"] += 1
        else:
            result.headers.append(header)
            result.bytes.append(len(data))
    return result


def _decode(result: ImageSample, data: bytes, header: Header) -> None:
    """Decodes and scales an image as a reader of originals does; formats that only a build reads are not timed."""
    if header.format.upper() not in DECODED_AS:
        return
    started = time.perf_counter()
    resize(decode_original(data, result.options, 1), result.options)
    result.seconds += time.perf_counter() - started
    result.decoded += 1


def _references(sample: Sample, name: str) -> Iterator[tuple[int, bytes]]:
    """Gives the source and the reference of some images, the first one of a row that has several."""
    sources, column = sample.column("@source"), sample.column(name)
    step = max(1, math.ceil(len(column) / IMAGES))
    for row in range(0, len(column), step):
        value: Any = column[row].as_py()
        first = value[0] if isinstance(value, list) and value else value
        if first:
            yield sources[row].as_py(), first
