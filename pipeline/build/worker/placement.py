"""The look that decides rows' places, by a small table of each chunk; and the cuts of strata.

The tables hold the rows' contents, to find duplicates (`duplicates.fingerprints`), with images read for them, or the
classes and hashes for stratified splits. A chunk's file is its commit: a later attempt reuses it.

Each class is cut by the splits' shares, exact to the row: counts by bucket first, then the few buckets with a cut. A
bucket is a range of split hashes, so buckets in order hold rising hashes. A row's split follows from the keys of its
class alone; the bounds replace those of all rows (`dataset.placement.split_bounds`).

    class_hashes ─ by hash ─▶ write_classes: distinct ones, and counts ─▶ cut_strata, of the files with cuts
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import accumulate
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.arrow_files import read_table, write_table
from recordmill.pipeline.build.context.build_context import PlannedBuild, Strata
from recordmill.pipeline.build.context.reports import chunk_step, write_rejects
from recordmill.pipeline.build.duplicates import fingerprints
from recordmill.pipeline.build.duplicates.decisions import read_decisions
from recordmill.pipeline.build.images import read
from recordmill.pipeline.build.images.read import BuildImageReader, Loaded
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.dataset.placement import hash_keys
from recordmill.pipeline.sources.faults import Fault, Reject
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.transforms.images.image_header import ImageError, check_header
from recordmill.transforms.images.image_spec import Image

CONTENTS, STRATA = "placement/contents", "placement/strata"  # the folders of the chunks' files
BUCKETS = "decisions/strata"  # the folder of the buckets of classes and hashes
PLACE = ("@source", "@chunk", "@position")
Summarize = Callable[[pa.Table, list[Reject]], pa.Table]
RowImages = tuple[Mapping[str, bytes], Mapping[str, bytes]]
"""The digests of the files of a row's images, and the images' perceptual hashes, by feature."""
END = 1 << 64


def look_at(
    planned: PlannedBuild, chunk: Chunk, summaries: Mapping[str, Summarize], images: Collection[str] = ()
) -> pa.Table:
    """Reads a chunk's table from its file; if no attempt wrote it, reads the chunk and writes its tables.

    Keeps the rejects of unreadable files with the first table: the next attempt retries them. `summaries` make the
    tables, by folder; the first is returned, and written last. `images` are the images that the tables need.
    """
    step, workspace, (folder, *_) = chunk_step(chunk.index), planned.workspace, summaries
    if (kept_table := read_table(workspace, f"{folder}/{step}.arrow")) is not None:
        return kept_table
    rejects, tables = list[Reject](), {name: list[pa.Table]() for name in summaries}
    for block in keyed_blocks(planned, chunk, images):
        rejects += block.rejects
        for name, of_rows in summaries.items():
            tables[name].append(of_rows(block.rows, rejects))
    write_rejects(workspace, f"{folder}/{step}", [reject for reject in rejects if reject.path])
    joined = {name: pa.concat_tables(parts) if parts else pa.table({}) for name, parts in tables.items()}
    for name in reversed(joined):
        write_table(workspace, f"{name}/{step}.arrow", joined[name])
    return joined[folder]


def contents_of_chunk(planned: PlannedBuild, chunk: int) -> pa.Table:
    """Reads a chunk's contents back."""
    return read_table(planned.workspace, f"{CONTENTS}/{chunk_step(chunk)}.arrow")


class ContentReader:
    """Reads the contents of chunks, one chunk at a time."""

    def __init__(self, planned: PlannedBuild) -> None:
        self._planned = planned
        self._names = fingerprints.content_features(planned.features, planned.schema)
        self._images = {name: options for name, options in planned.images().items() if name in self._names}
        self._hashed = planned.hashed_images()

    @cached_property
    def _reader(self) -> BuildImageReader:
        return read.image_reader(self._planned)

    def read(self, chunk: Chunk) -> pa.Table:
        """Returns the contents, with `row` and `unit`; rejects rows with unreadable images."""
        summaries = {CONTENTS: self._contents}
        if self._planned.decisions.strata is None:  # not cut yet: the same read gives the classes
            summaries |= strata_summary(self._planned, chunk)
        return look_at(self._planned, chunk, summaries, self._images)

    def _contents(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        loaded: list[RowImages] = [({}, {})] * rows.num_rows
        if self._images:
            references = rows.select([*PLACE, *self._images]).to_pylist()
            wanted = ((row["@source"], row[name], each) for row in references for name, each in self._images.items())
            with (
                self._reader.reading_ahead(read.arguments(wanted)) as reader,
                ThreadPoolExecutor(self._planned.threads) as pool,
            ):
                found = list(pool.map(partial(self._row, reader, rejects), references))
            rows = rows.filter(pa.array([row is not None for row in found], pa.bool_()))
            loaded = [row for row in found if row is not None]
        files = {name: [of_row[name] for of_row, _ in loaded] for name in self._images}
        looks = {name: [of_row[name] for _, of_row in loaded] for name in self._hashed}
        table = fingerprints.content_table(rows, fingerprints.digest_rows(rows, self._names, files), looks)
        chunk, positions = rows["@chunk"].to_numpy(), rows["@position"].to_numpy()
        numbers = fingerprints.numbered(int(chunk[0]), positions) if len(chunk) else positions
        return table.append_column("row", pa.array(numbers, pa.int64())).append_column("unit", rows["@unit"])

    def _row(self, reader: BuildImageReader, rejects: list[Reject], row: Mapping[str, Any]) -> RowImages | None:
        """Reads a row's images; returns None for a reject."""
        files, looks = dict[str, bytes](), dict[str, bytes]()
        try:
            for name, options in self._images.items():
                source, references = row["@source"], read.kept(row[name], options)
                images: Iterable[Loaded] = read.together(
                    self._load(reader, source, each, options) for each in references
                )
                if name in self._hashed:  # one image; a sequence is never hashed, and read one by one
                    images = list(images)
                    looks[name] = read.perceptual_hash_of(images, options)
                files[name] = fingerprints.file_digests(image.source for image in images)
        except ImageError as error:
            rejects.append(Fault(error.reason, error.message, None, error.path).reject(row["@chunk"], row["@position"]))
            return None
        return files, looks

    def _load(self, reader: BuildImageReader, source: int, reference: bytes, options: Image) -> Loaded:
        """Loads an image as its shard will; decodes it only for perceptual hashes."""
        if self._hashed:
            return reader.load(source, reference, options)
        data = reader.read(source, reference, options.max_bytes)
        check_header(data, options.max_pixels, parse(reference).sides)
        return Loaded(data, data, 0)


def read_classes(planned: PlannedBuild, chunk: Chunk) -> pa.Table:
    """Reads the classes and hashes of a chunk's rows; none of a source with a fixed split.

    A read of the contents leaves them, including rows to drop, which this function removes.
    """
    summary = strata_summary(planned, chunk)
    table = look_at(planned, chunk, summary) if summary else pa.table({})
    if not table.num_rows:
        return table
    dropped = read_decisions(planned.decisions.dropped, planned, chunk.index)
    if dropped is not None:
        table = table.filter(pc.invert(pc.is_in(table["position"], dropped["position"].combine_chunks())))
    return table.drop_columns(["position"])


def strata_summary(planned: PlannedBuild, chunk: Chunk) -> dict[str, Summarize]:
    """Maps the folder of the table of classes to the function that makes it; empty if nothing is stratified."""
    by, splits = planned.schema.split_by, planned.schema.source_splits
    if by is None or by.stratify is None or (splits and splits[chunk.source] is not None):
        return {}
    feature = by.stratify
    return {STRATA: lambda rows, rejects: class_hashes(rows, feature)}


def class_hashes(rows: pa.Table, feature: str) -> pa.Table:
    """Returns `class` (binary), split `hash` (uint64) and `position` of keyed rows, one for each class of a row."""
    hashes, _, _ = hash_keys(rows["@key"].to_pylist())
    classes, positions = rows[feature].combine_chunks(), rows["@position"].to_numpy()
    if pa.types.is_list(classes.type):
        parents = pc.list_parent_indices(classes).to_numpy()
        hashes, positions, classes = hashes[parents], positions[parents], pc.list_flatten(classes)
    return pa.table({"class": classes, "hash": hashes, "position": positions})


def write_classes(planned: PlannedBuild, bucket: int, table: pa.Table) -> int:
    """Writes the distinct classes and hashes of a bucket, and their counts; returns the number of classes."""
    grouped = table.select(["class", "hash"]).group_by(["class", "hash"]).aggregate([])
    found = grouped.sort_by([("class", "ascending"), ("hash", "ascending")])
    counts = found["class"].value_counts()
    counted = pa.table({"class": counts.field("values"), "count": counts.field("counts")})
    write_table(planned.workspace, f"{BUCKETS}/rows/{bucket:04d}.arrow", found)
    write_table(planned.workspace, f"{BUCKETS}/counts/{bucket:04d}.arrow", counted)
    return int(counted.num_rows)


class Cut(NamedTuple):
    """The bound of a split in one class, as the rank of its hash among the class's hashes in a bucket."""

    name: bytes
    split: int
    rank: int


def cut_strata(planned: PlannedBuild) -> Strata:
    """Returns for each class the upper bounds of the splits' ranges of hashes, of all buckets; the last is 2**64."""
    of_class: dict[bytes, dict[int, int]] = defaultdict(dict)  # the number of hashes in each bucket
    for name in sorted(planned.workspace.sizes(f"{BUCKETS}/counts")):
        counts: pa.Table = read_table(planned.workspace, name)
        for row in counts.to_pylist():
            of_class[row["class"]][int(PurePath(name).stem)] = row["count"]
    shares = [round(weight * 1_000_000) for weight in planned.layout.weights.values()]  # exact on every machine
    total, inside = sum(shares), defaultdict[int, list[Cut]](list)
    for of, buckets in of_class.items():
        ends = list(accumulate(buckets.values()))
        for split, cumulated in enumerate(accumulate(shares)):
            rank = (2 * ends[-1] * cumulated + total) // (2 * total)
            place = int(np.searchsorted(ends, rank, side="right"))
            if place < len(ends):
                inside[list(buckets)[place]].append(Cut(of, split, rank - (ends[place - 1] if place else 0)))
    strata = {of.decode(): [END] * len(shares) for of in sorted(of_class)}
    for bucket, places in inside.items():
        table: pa.Table = read_table(planned.workspace, f"{BUCKETS}/rows/{bucket:04d}.arrow")
        names, hashes = table["class"].to_pylist(), table["hash"].to_numpy()
        starts = {of: start for start, of in reversed(list(enumerate(names)))}
        for cut in places:
            strata[cut.name.decode()][cut.split] = int(hashes[starts[cut.name] + cut.rank])
    return strata
