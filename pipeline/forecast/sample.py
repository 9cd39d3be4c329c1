"""A sample of a plan's rows, read, keyed and split as in a build; `rehearsal` builds some of them.

It reads all rows of a small source, or of a folder of images; else only the first rows of some chunks, evenly spread,
however few and large the chunks are.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.safe_text import count, cut
from recordmill.pipeline.sources import batches, faults
from recordmill.pipeline.sources.options import ImageFolder
from recordmill.transforms.images import image_facts, image_header

ALL_ROWS = 200_000  # the most listed rows for a complete look
ALL_BYTES = 64 << 20  # the most bytes of rows for a complete look: some seconds
HELD_BYTES = 256 << 20
"""The most bytes of rows in memory: compressed files, and sources of unknown length, may exceed their estimate."""
CHUNKS = 32
CHUNK_BYTES = 2 << 20
EXAMPLES = 3
LONGEST = 40  # characters of an example


@dataclass(frozen=True)
class PackForecast:
    """A pack of the forecast build."""

    length: int  # ids a row
    rows: int  # estimated
    filled: float  # the share of its places with an id


@dataclass
class RowSample:
    """Sampled rows, with facts."""

    tables: list[pa.Table] = field(default_factory=list)  # keyed rows (`worker.keyed_rows`)
    rejects: list[faults.Reject] = field(default_factory=list)  # of reading
    is_all: bool = False  # whether all rows were read
    held: int = 0  # bytes of `tables`
    built_rows: int = 0  # with rejects, as all below
    late: list[faults.Reject] = field(default_factory=list)  # rejects of built rows
    records: int | None = None  # of documents in windows
    packs: list[PackForecast] = field(default_factory=list)  # of the built rows
    headers: dict[str, list[image_header.Header]] = field(default_factory=lambda: defaultdict(list))
    """By feature, of each row's first image."""
    counts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By feature: built images and values by each of `COUNTS`, and name."""
    contents: dict[str, str] = field(default_factory=dict)
    """By feature: the classes of masks by their pixels, in words."""
    notes: list[str] = field(default_factory=list)  # work left out of the build, with its reason

    @property
    def good(self) -> int:
        """The number of rows that can be read."""
        return sum(table.num_rows for table in self.tables)

    @property
    def rows(self) -> int:
        """The number of sampled rows."""
        return self.good + len(self.rejects)

    @property
    def repeated(self) -> int:
        """The number of good rows that repeat a key."""
        return self.good - len(self.firsts)

    def of_split(self, names: Sequence[str]) -> dict[str, int]:
        """Counts good rows by split."""
        numbers = np.concatenate([np.zeros(0, np.int64), *(table["@split"].to_numpy() for table in self.tables)])
        return dict(zip(names, np.bincount(numbers, minlength=len(names)).tolist(), strict=True))

    @cached_property
    def firsts(self) -> list[int]:
        """The good rows that are the first of their keys."""
        return sorted({place: row for row, place in reversed(list(enumerate(self.places())))}.values())

    def places(self) -> list[tuple[int, bytes]]:
        """Lists the group and key of each good row: within a group, all rows of a key but the first are rejected."""
        return list(zip(*(self.column(name).to_pylist() for name in ("@group", "@key")), strict=True))

    def column(self, name: str) -> pa.ChunkedArray:
        """Returns a column of all good rows."""
        kind = self.tables[0].schema.field(name).type if self.tables else pa.null()
        return pa.chunked_array([chunk for table in self.tables for chunk in table[name].chunks], kind)


def take_sample(plan: BuildPlan, planned: PlannedBuild) -> RowSample:
    """Samples a plan's rows. Raises: SourceError, OSError: a source cannot be read."""
    is_listing = all(isinstance(each.source, ImageFolder) for each in plan.sources) and plan.rows <= ALL_ROWS
    whole = is_listing or sum(chunk.bytes for chunk in plan.chunks) <= ALL_BYTES
    chunks = plan.chunks if whole else batches.spread(plan.chunks, CHUNKS)
    sample = RowSample(is_all=len(chunks) == len(plan.chunks))
    for chunk in chunks:
        rows, before = 0, sample.held
        sample.is_all &= before < HELD_BYTES
        for block in keyed_blocks(planned, chunk) if before < HELD_BYTES else ():
            sample.tables.append(block.rows)
            sample.rejects += block.rejects
            sample.held += block.rows.nbytes + 512 * len(block.rejects)  # bytes of memory a reject
            rows += block.rows.num_rows + len(block.rejects)
            is_enough = not whole and (rows >= 2_000 or sample.held - before >= CHUNK_BYTES)
            if is_enough or sample.held >= HELD_BYTES:
                sample.is_all = False
                break
    return sample


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
    losses: Mapping[str, int] = field(default_factory=dict)  # built images or values by loss (`images.image_facts`)

    def __str__(self) -> str:
        facts = [self.kind if self.column == self.name else f"{self.kind} of {cut(self.column)}", *self.facts]
        facts += [f"{self.missing:.1%} missing"] if self.missing else []
        return ", ".join([*facts, *([f"such as {' | '.join(self.examples)}"] if self.examples else [])])


def view_of(name: str, planned: PlannedBuild, sample: RowSample) -> ColumnView:
    """Describes a feature with a column."""
    options, column = planned.features[name], planned.schema.features[name]
    is_optional, counts = planned.schema.columns[column].optional, sample.counts.get(name, {})
    values = sample.column(name).to_pylist()
    is_there = (value not in (None, b"", []) and value == value for value in values)  # no NaN
    present = [value for value, there in zip(values, is_there, strict=True) if there or not is_optional]
    missing, names = 1 - len(present) / len(values) if values else 0.0, list[tuple[Any, int]]()
    if options.is_image:
        facts, examples = [*_image_facts(sample.headers[name], counts)], list[str]()
    else:
        flat = [each for value in present for each in (value if isinstance(value, list) else [value])]
        names = Counter(flat).most_common() if options.counts == "names" else []
        facts = [*_value_facts(present, flat, names), *image_facts.fact_lines(counts)]
        is_array = planned.schema.columns[column].array is not None  # as bytes, which say nothing to people
        shown = [] if is_array else [value for value, _ in names[:EXAMPLES]] or flat[: 1 << 10]
        examples = [*dict.fromkeys(map(_shown, shown))][:EXAMPLES]
    facts += filter(None, [sample.contents.get(name)])
    by_name, lost = {_text(value): rows for value, rows in names}, counts.get("losses", {})
    return ColumnView(name, options.kind, column, missing, tuple(facts), tuple(examples), by_name, lost)


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


def _image_facts(headers: Sequence[image_header.Header], counts: Mapping[str, Any]) -> Iterator[str]:
    if headers:
        formats = Counter(header.format for header in headers)
        yield ", ".join(f"{number:,} {form}" for form, number in formats.most_common())
        sizes = sorted((header.width * header.height, f"{header.width}x{header.height}") for header in headers)
        yield sizes[0][1] if sizes[0] == sizes[-1] else f"{sizes[0][1]} to {sizes[-1][1]} pixels"
    yield from image_facts.fact_lines(counts)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else f"{value:g}"


def _shown(value: Any) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
