"""A sample of a plan's rows, keyed and split as in a build, and of their images.

It reads all rows of a small source, or of a folder of images; else only the first rows of some chunks, evenly spread,
however few and large the chunks are.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.images import masks
from recordmill.pipeline.build.images.image_files import ImageFiles
from recordmill.pipeline.build.images.transcode import decodable, decoding_of
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources import batches, faults, source_reader
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.options import ImageFolder
from recordmill.transforms.contract import color_profile, image_facts, image_header
from recordmill.transforms.contract.kinds import category, image
from recordmill.transforms.contract.kinds.mask import MaskOptions
from recordmill.transforms.numpy.image_decode import DecodeError, decode, decode_original, decode_planes

ALL_ROWS = 200_000  # the most listed rows for a complete look
ALL_BYTES = 64 << 20  # the most bytes of rows for a complete look: some seconds
HELD_BYTES = 256 << 20
"""The most bytes of rows in memory: compressed files, and sources of unknown length, may exceed their estimate."""
REJECT_BYTES = 512  # of memory
CHUNKS = 32
CHUNK_ROWS = 2_000
CHUNK_BYTES = 2 << 20
IMAGES = 64
PIXELS = 100_000_000  # of transcoded images, some seconds; then it stops
EXAMPLES = 3
LONGEST = 40  # characters of an example


@dataclass
class ImageSample:
    """A feature's sampled images, without rejected ones."""

    headers: list[image_header.Header] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    counts: Mapping[str, Counter[str]] = field(default_factory=lambda: {what: Counter() for what in image_facts.COUNTS})
    """Images by each of `COUNTS`, and a name."""


@dataclass
class RowSample:
    """Sampled rows, with facts."""

    tables: list[pa.Table] = field(default_factory=list)  # keyed rows (`worker.keyed_rows`)
    rejects: list[faults.Reject] = field(default_factory=list)
    image_rejects: Counter[str] = field(default_factory=Counter)  # rejected images by reason
    image_fault: str = ""  # the first rejected image, and why
    images: dict[str, ImageSample] = field(default_factory=dict)
    is_all: bool = False  # whether all rows were read; opens only some images in any case
    bytes: int = 0  # of `tables`

    @property
    def rows(self) -> int:
        """The number of sampled rows."""
        return sum(table.num_rows for table in self.tables) + len(self.rejects)

    @property
    def opened_images(self) -> int:
        """The number of images opened, or tried."""
        return sum(len(images.headers) for images in self.images.values()) + self.image_rejects.total()

    def of_split(self, names: Sequence[str]) -> dict[str, int]:
        """Counts good rows by split."""
        numbers = np.concatenate([np.zeros(0, np.int64), *(table["@split"].to_numpy() for table in self.tables)])
        return dict(zip(names, np.bincount(numbers, minlength=len(names)).tolist(), strict=True))

    def column(self, name: str) -> pa.ChunkedArray:
        """Returns a column of all good rows."""
        kind = self.tables[0].schema.field(name).type if self.tables else pa.null()
        return pa.chunked_array([chunk for table in self.tables for chunk in table[name].chunks], kind)


def take_sample(plan: BuildPlan, planned: PlannedBuild) -> RowSample:
    """Samples a plan's rows and opens some images. Raises: SourceError, OSError: a source cannot be read."""
    is_listing = all(isinstance(each.source, ImageFolder) for each in plan.sources) and plan.rows <= ALL_ROWS
    whole = is_listing or sum(chunk.bytes for chunk in plan.chunks) <= ALL_BYTES
    chunks = plan.chunks if whole else batches.spread(plan.chunks, CHUNKS)
    sample = RowSample(is_all=len(chunks) == len(plan.chunks))
    for chunk in chunks:
        sample.is_all &= _read(sample, planned, chunk, whole=whole)
    for name, options in planned.images().items():
        if options.is_reference:
            sample.images[name] = _open_images(sample, planned, name, options)
    return sample


def _read(sample: RowSample, planned: PlannedBuild, chunk: source_reader.Chunk, *, whole: bool) -> bool:
    """Adds a chunk's rows, all or the first ones; returns whether these are all."""
    rows, held = 0, sample.bytes
    for block in keyed_blocks(planned, chunk) if held < HELD_BYTES else ():
        sample.tables.append(block.rows)
        sample.rejects += block.rejects
        sample.bytes += block.rows.nbytes + REJECT_BYTES * len(block.rejects)
        rows += block.rows.num_rows + len(block.rejects)
        is_enough = not whole and (rows >= CHUNK_ROWS or sample.bytes - held >= CHUNK_BYTES)
        if is_enough or sample.bytes >= HELD_BYTES:
            return False
    return held < HELD_BYTES


def _open_images(sample: RowSample, planned: PlannedBuild, name: str, options: image.ImageOptions) -> ImageSample:
    """Decodes some images, evenly spread over the sampled rows."""
    result, files, pixels = ImageSample(), ImageFiles.of(planned), 0
    for source, reference in _references(sample, name):
        if pixels > PIXELS:
            break
        try:
            data = files.read(source, reference, options.max_bytes)
            header = image_header.check_header(data, options.max_pixels, parse(reference).sides)
            profile = color_profile.foreign_profile(data, header.format) if options.converts_colors else b""
            if isinstance(options, MaskOptions):
                _ = masks.file_values(data, options)
            elif decodable(data, decoding_of(options)) is not data:
                pixels += header.width * header.height
            elif options.planes:
                _ = decode_planes(data, options.pixel, options.channels)
            else:
                original = header.format != "PNG"  # only the graph reads 16 bits with a transparent colour
                _ = decode_original(data, options, 1) if original else decode(data, options.channels)
        except (image_header.ImageError, DecodeError) as error:
            sample.image_rejects[getattr(error, "reason", "undecodable_image")] += 1
            sample.image_fault = sample.image_fault or f"an image of '{name}': {error}"
        else:
            result.headers.append(header)
            result.bytes.append(len(data))
            result.counts["profiles"].update([color_profile.profile_name(profile)] if profile else ())
            if not isinstance(options, MaskOptions):
                result.counts["losses"].update(image_facts.losses(data, header.format, options, parse(reference).sides))
    return result


def _references(sample: RowSample, name: str) -> Iterator[tuple[int, bytes]]:
    """Yields source and reference of some images; of several in a row, the first."""
    sources, column = sample.column("@source"), sample.column(name)
    rows = range(0, len(column), max(1, math.ceil(len(column) / IMAGES)))
    for row in (row for start in range(8) for row in rows[start::8]):  # the first of them are spread, too
        value: Any = column[row].as_py()
        first = value[0] if isinstance(value, list) and value else value
        if first:
            yield sources[row].as_py(), first


@dataclass(frozen=True)
class ColumnView:
    """A feature's column in the sample."""

    name: str
    kind: str
    column: str  # the source's column, by its name in the spec
    missing: float  # the share of good rows without a value, 0..1; 0 if required
    facts: tuple[str, ...]  # facts in words: `7 names, 31.0% dog`
    examples: tuple[str, ...] = ()
    names: Mapping[str, int] = field(default_factory=dict)  # rows by name, the most frequent first
    losses: Mapping[str, int] = field(default_factory=dict)  # opened images by loss (`contract.image_facts`)


def column_views(planned: PlannedBuild, sample: RowSample) -> list[ColumnView]:
    """Describes all features with a column."""
    return [_view(name, column, planned, sample) for name, column in planned.schema.features.items()]


def _view(name: str, column: str, planned: PlannedBuild, sample: RowSample) -> ColumnView:
    options, optional = planned.features[name], planned.schema.columns[column].optional
    values = sample.column(name).to_pylist()
    present = [value for value in values if not (optional and _is_missing(value))]
    missing = 1 - len(present) / len(values) if values else 0.0
    if (images := sample.images.get(name)) is not None:
        lost = dict(images.counts["losses"])
        return ColumnView(name, options.kind, column, missing, tuple(_image_facts(images)), losses=lost)
    flat = [each for value in present for each in (value if isinstance(value, list) else [value])]
    names = Counter(flat).most_common() if isinstance(options, category.NameOptions) else []
    facts = tuple(_value_facts(present, flat, names))
    examples = dict.fromkeys(map(_shown, [value for value, _ in names[:EXAMPLES]] or flat[: 1 << 10]))
    by_name = {_text(value): rows for value, rows in names}
    return ColumnView(name, options.kind, column, missing, facts, tuple(examples)[:EXAMPLES], by_name)


def _is_missing(value: Any) -> bool:
    return value in (None, b"", []) or (isinstance(value, float) and math.isnan(value))


def _value_facts(rows: Sequence[Any], values: Sequence[Any], names: Sequence[tuple[Any, int]]) -> Iterator[str]:
    if rows and isinstance(rows[0], list):
        lengths = list(map(len, rows))
        yield f"{min(lengths):,} to {max(lengths):,} values a row"
    if names:
        name, most = names[0]
        yield f"{count(len(names), 'name')}, {most / len(values):.1%} {_shown(name)}"
    elif values and isinstance(values[0], bytes):
        lengths = list(map(len, values))
        yield f"{sum(lengths) / len(lengths):,.0f} bytes in the mean, at most {max(lengths):,}"
    elif numbers := [value for value in values if not math.isnan(value)]:
        yield f"{min(numbers):g} to {max(numbers):g}, {math.fsum(numbers) / len(numbers):.4g} in the mean"


def _image_facts(images: ImageSample) -> Iterator[str]:
    if not images.headers:
        return
    formats = Counter(header.format for header in images.headers)
    yield ", ".join(f"{number:,} {form}" for form, number in formats.most_common())
    sizes = sorted((header.width * header.height, f"{header.width}x{header.height}") for header in images.headers)
    yield sizes[0][1] if sizes[0] == sizes[-1] else f"{sizes[0][1]} to {sizes[-1][1]} pixels"
    yield f"{sum(images.bytes) / len(images.bytes):,.0f} bytes in the mean"
    yield from image_facts.fact_lines(images.counts)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else f"{value:g}"


def _shown(value: Any) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
