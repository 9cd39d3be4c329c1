"""Measures how the driver and the reader scale: CPU and memory at n, 2n and 4n of synthetic inputs.

    make bench ARGS=scale                            all, each in a process of its own: about four minutes on 2 cores
    make bench ARGS="scale --scale 10"               ten times the sizes: 10 million files are planned
    python benchmarks/scale.py planning 1000000      one measurement, as JSON

What is a function of the rows alone (keys, shards, orders) is measured on a sample, since a row costs the same in a
dataset of any size; what the driver or the reader holds as a whole (listing, manifest, index) is made in full.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import check_output
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from measure import ROOT

from recordmill.dataset import open_dataset
from recordmill.pipeline.build.context.build_context import ChunkPages
from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.build.summaries.summary import add_up
from recordmill.pipeline.dataset.counts import Counts, ShardReport, by_split
from recordmill.pipeline.dataset.file_names import shard_file
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Manifest, Shard, Split
from recordmill.pipeline.dataset.placement import Layout, hash_keys
from recordmill.pipeline.reader.order import Ahead, GlobalShuffle
from recordmill.pipeline.reader.records import Records, ShardFile
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.versions.stores.local import LocalStore

REFERENCES = 100_000_000
"""The records of the dataset whose order and index are measured."""
IN_SHARD = 10_000
BATCH = 256
FOLDERS = 1000
SPEC = """
name: photos
source: {format: image_folder, path: /data/photos}
label: label
features:
  image: {kind: image, size: [224, 224]}
  label: {kind: category}
"""

Task = Callable[[], object]


class SyntheticFolder(Files):
    """A folder of images that is nowhere: its listing is made as it is asked for."""

    def __init__(self, count: int) -> None:
        self._count = count

    def match(self, pattern: str) -> FileList:
        """Lists the images: the same ones each time."""
        return FileList(self._files())

    def _files(self) -> Iterator[FileInfo]:
        draw, in_folder = random.Random(1), max(1, self._count // FOLDERS)
        for number in range(self._count):
            folder = f"n{number // in_folder:08d}"
            path = f"/data/photos/train/{folder}/{folder}_{number}.JPEG"
            yield FileInfo(path, draw.randrange(20_000, 400_000), 1.7e9 + draw.random() * 1e6)

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder."""
        return True

    def open(self, path: str) -> BinaryIO:
        """Opens nothing. Raises: FileNotFoundError."""
        raise FileNotFoundError(path)


def spec() -> Spec:
    """The spec of the synthetic images."""
    return parse_spec(SPEC)


def planning(files: int, folder: Path) -> Task:
    """Lists and plans a folder of images, the listing kept as a build keeps it; its making counts, too."""
    return lambda: make_plan(spec(), Listings(SyntheticFolder(files)))


def pages(files: int, folder: Path) -> Task:
    """Writes a plan's chunks as pages for the workers."""
    plan = make_plan(spec(), SyntheticFolder(files))
    return lambda: ChunkPages.write(LocalStore(str(folder)), plan.chunks)


def keys(rows: int, folder: Path) -> Task:
    """Hashes the keys of rows, and assigns the rows to splits and shards."""
    made = [b"train/n%08d/%d.JPEG" % (row // 1000, row) for row in range(rows)]
    splits, positions = np.random.default_rng(1).integers(0, 1 << 64, (2, rows), np.uint64)
    layout = Layout({"train": 0.9, "validation": 0.1}, {"train": 8192, "validation": 1024})
    return lambda: (hash_keys(made), layout.group_of(layout.split_of(splits), positions))


def merge(words: int, folder: Path) -> Task:
    """Adds up the word counts of eight chunks that share half of their words."""
    numbers = np.random.default_rng(1).integers(0, words // 2, words)
    table = pa.table({"word": pa.array([b"word-%d" % number for number in numbers]), "count": np.ones(words, np.int64)})
    parts = [table.slice(start, words // 8) for start in range(0, words, words // 8)]
    return lambda: add_up(parts, ["word"], {"count": "sum"})


def reports(shards: int, folder: Path) -> Task:
    """Takes the reports of shards of 900 images with 590 of 1,000 classes and as many prices, as JSON in memory."""
    ids = {str(id_): 1 for id_ in range(590)}
    histogram = {"lost": 0, "keys": [10**6 + 977 * value for value in range(900)], "counts": [1] * 900}
    profile = {
        "label": {"rows": 900, "missing": 0, "ids": ids, "tokens": 900, "unknown": 0},
        "price": {"rows": 900, "missing": 0, "histogram": histogram},
    }
    file = shard_file("photos", "train", "tfrecord", 1, shards)
    facts = {"file": file, "bytes": 1 << 27, "records": 900, "sha256": "0" * 64}
    report = json.dumps({"split": "train", "rejected": 0, **facts, "label_counts": ids, "profile": profile})

    def task() -> tuple[dict[str, Counts], list[ShardReport]]:
        small = list[ShardReport]()

        def read() -> Iterator[ShardReport]:
            for _ in range(shards):
                each = ShardReport.of_json(json.loads(report))
                small.append(each.small)
                yield each

        return by_split(read()), small

    return task


def manifest(shards: int) -> Manifest:
    """A manifest of this many shards."""
    kinds = ("tfrecord", "index")
    names = ([shard_file("photos", "train", what, number, shards) for what in kinds] for number in range(shards))
    listed = tuple(
        Shard(file, (128 << 20) + number, IN_SHARD, f"{number:064x}", index)
        for number, (file, index) in enumerate(names)
    )
    return Manifest("photos", "20261122T120000Z-4f1c9a2e", "0" * 64, None, {}, {"train": Split(listed)})


def manifest_written(shards: int, folder: Path) -> Task:
    """Writes a manifest."""
    made = manifest(shards)
    return lambda: (folder / MANIFEST_FILE).write_text(made.to_text())


def manifest_opened(shards: int, folder: Path) -> Task:
    """Opens a dataset by its manifest."""
    (folder / MANIFEST_FILE).write_text(manifest(shards).to_text())
    return lambda: open_dataset(folder)


def index_checked(shards: int, folder: Path) -> Task:
    """Checks shards and their indexes as an input does when it is opened; the files are sparse."""
    files = [sparse_shard(folder, number) for number in range(shards)]

    def task() -> Records:
        records = Records(files)
        records.check()
        return records

    return task


def sparse_shard(folder: Path, number: int) -> ShardFile:
    """Makes the files of a shard of 1 GB, of which the disk holds the index' last offset alone."""
    shard = ShardFile(str(folder / f"{number}.tfrecord"), str(folder / f"{number}.index"), IN_SHARD, 1 << 30, "")
    with open(shard.file, "wb") as file:
        file.truncate(shard.bytes)
    with open(shard.index, "wb") as file:
        file.seek(8 * shard.records)
        file.write(shard.bytes.to_bytes(8, "little"))
    return shard


def order(positions: int, folder: Path) -> Task:
    """Gives the shuffled records at positions of an epoch, and their shards, a batch at a time."""
    shuffle = Ahead(GlobalShuffle(REFERENCES, seed=1))
    firsts = np.arange(0, REFERENCES + 1, IN_SHARD)
    starts = range(0, positions, BATCH)

    def task() -> None:
        for start in starts:
            records = shuffle(0, np.arange(start, start + BATCH))
            np.searchsorted(firsts[1:], records, side="right")

    return task


@dataclass(frozen=True)
class Subject:
    """One thing that is measured."""

    title: str
    unit: str
    most: int
    """4n."""
    prepare: Callable[[int, Path], Task]


SUBJECTS = {
    "planning": Subject("planning a folder of images", "file", 1_000_000, planning),
    "pages": Subject("chunks to pages", "file", 1_000_000, pages),
    "keys": Subject("keys, splits and shards of rows", "row", 2_000_000, keys),
    "merge": Subject("adding up word counts", "word", 4_000_000, merge),
    "reports": Subject("adding up shards' reports", "shard", 65_536, reports),
    "manifest-write": Subject("writing a manifest", "shard", 100_000, manifest_written),
    "manifest-open": Subject("opening a manifest", "shard", 100_000, manifest_opened),
    "index": Subject(f"checking shards of {IN_SHARD:,} records", "shard", 10_000, index_checked),
    "order": Subject(f"shuffled order of {REFERENCES:,} records", "row", 4_000_000, order),
}


@dataclass(frozen=True)
class Cost:
    """CPU seconds, and the bytes by which the peak memory lies above what was there before."""

    cpu: float
    bytes: int


def cost_of(name: str, size: int) -> Cost:
    """Measures a subject in this process."""
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        task = SUBJECTS[name].prepare(size, Path(folder))
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, start = memory("VmRSS"), time.process_time()
        held = task()
        cost = Cost(time.process_time() - start, memory("VmHWM") - before)
        del held
    return cost


def memory(field: str) -> int:
    """Gives a field of this process' status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


HEADER = ("", "n", "CPU at n", "2n", "4n", "4n over n", "CPU a unit", "memory a unit", "peak at 4n")


def rows(scaled: Callable[[int], int]) -> Iterator[Sequence[str]]:
    """Measures every subject; yields its row of a table."""
    for name, subject in SUBJECTS.items():
        sizes = [scaled(subject.most) // parts for parts in (4, 2, 1)]
        commands = ([sys.executable, __file__, name, str(size)] for size in sizes)
        yield row(subject, sizes, [Cost(**json.loads(check_output(command, cwd=ROOT))) for command in commands])


def row(subject: Subject, sizes: Sequence[int], costs: Sequence[Cost]) -> Sequence[str]:
    """Formats what was measured at n, 2n and 4n; the marginal costs lie between n and 4n."""
    (few, _, many), added = costs, sizes[-1] - sizes[0]
    return (
        subject.title,
        f"{sizes[0]:,} {subject.unit}s",
        *(f"{cost.cpu:.2f} s" for cost in costs),
        f"{many.cpu / few.cpu:.1f}×",
        f"{(many.cpu - few.cpu) / added * 1e6:.3g} µs",
        f"{max(0, many.bytes - few.bytes) / added:.0f} B",
        f"{many.bytes / 1e6:.0f} MB",
    )


def main(arguments: Iterable[str]) -> None:
    """Measures one subject at one size; prints JSON."""
    name, size = arguments
    print(json.dumps(vars(cost_of(name, int(size)))))


if __name__ == "__main__":
    main(sys.argv[1:])
