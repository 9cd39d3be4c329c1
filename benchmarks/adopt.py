"""Adopting TFRecord files: CPU beside `sha256sum`, bytes written, memory by records, and the first batch.

make bench ARGS=adopt
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from measure import Usage, measure, table

from recordmill.pipeline.dataset.tfrecord import frame

FILES, BYTES, RECORD = 4, 1 << 30, 20_000
COUNTS = (100_000, 1_000_000, 10_000_000)
FIRST = """
import sys
from recordmill import open_dataset
next(iter(open_dataset(sys.argv[1]).training_input("train", batch_size=256, seed=1, workers=0)))
"""
Values = dict[str, bytes | int]


def varint(value: int) -> bytes:
    """Returns a number as protocol buffers have it."""
    low = bytes([value & 127 | 128 * (value > 127)])
    return low + (varint(value >> 7) if value > 127 else b"")


def field(number: int, content: bytes) -> bytes:
    """Returns a field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(values: Values) -> bytes:
    """Returns a framed `tf.train.Example`."""
    features = b""
    for name, value in values.items():
        held = field(1, field(1, value)) if isinstance(value, bytes) else field(3, field(1, varint(value)))
        features += field(1, field(1, name.encode()) + field(2, held))
    return frame(field(1, features))


def large(records: int) -> Iterator[Values]:
    """Yields records of an image's size, each with its own bytes."""
    random = np.random.default_rng(1)
    for number in range(records):
        jpeg = b"\xff\xd8\xff\xc0\0\x11\x08\0\xc8\0\xc8\3" + bytes(9) + random.bytes(RECORD - 120)
        yield {"image": jpeg, "label": number % 1000, "height": 200, "width": 200, "name": b"photo-%07d.jpg" % number}


def small(records: int) -> Iterator[Values]:
    """Yields records of a few numbers; the same ones again and again."""
    some: list[Values] = [{"id": number, "label": number % 10, "text": b"number %d" % number} for number in range(5000)]
    for number in range(records):
        yield some[number % len(some)]


def written(folder: Path, rows: Iterator[Values], records: int, files: int) -> list[Path]:
    """Writes files of records once."""
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for file in range(files):
            with open(partial / f"train-{file:05d}-of-{files:05d}.tfrecord", "wb") as opened:
                for _ in range(records // files):
                    opened.write(record(next(rows)))
        partial.rename(folder)
    return sorted(folder.glob("*.tfrecord"))


def adopt(data: Path, runs: int) -> None:
    """Measures adoption."""
    records = BYTES // RECORD
    files = written(data / f"adopt-large-{records}", large(records), records, FILES)
    output = data / "adopted"
    for path in files:
        path.read_bytes()  # into the page cache
    ours, theirs = [], []
    for _ in range(runs):
        theirs.append(measure(["sha256sum", *files]).cpu)
        ours.append(_adopted(files, output).cpu)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    cost = median(ours) / records * 1e6
    figures = (
        f"{median(theirs):.2f} s",
        f"{median(ours):.2f} s",
        f"{ratio:.2f}",
        f"{cost:.0f} µs",
        f"{size / records:.1f}",
    )
    header = "CPU of `sha256sum`", "of `recordmill adopt`", "times", "a record", "bytes written a record"
    table(f"{records:,} records of 20 KB", header, [figures])
    rows = []
    for count in COUNTS:
        some = written(data / f"adopt-small-{count}", small(count), count, 1)
        usage = _adopted(some, output, memory=True)
        rows.append((f"{count:,}", f"{usage.cpu / count * 1e6:.1f} µs", f"{usage.anonymous / 1e6:.0f} MB"))
        if count == COUNTS[1]:
            first = _first_batches(output, data, runs)
    table("Small records", ("records", "CPU a record", "memory"), rows)
    print(f"\nThe first batch of {COUNTS[1]:,} adopted records takes {first:.2f} times that of built ones.")


def _adopted(files: Sequence[Path], output: Path, *, memory: bool = False) -> Usage:
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "recordmill", "adopt", *files, "--split", "train", "-o", output, "--quiet"]
    return measure(command, memory)


def _first_batches(output: Path, data: Path, runs: int) -> float:
    """Returns the ratio to a version of the same records in its own folder, as a build writes it."""
    built = data / "as-built"
    shutil.rmtree(built, ignore_errors=True)
    shutil.copytree(output, built)
    (path,) = built.glob("versions/*/dataset.json")
    manifest = json.loads(path.read_text())
    for shard in manifest["splits"]["train"]["shards"]:
        shutil.copy(Path(shard.pop("root"), shard["file"]), path.parent)
        del shard["frames"]
    path.write_text(json.dumps({**manifest, "adopted": {}}))
    ratios = list[float]()
    for _ in range(runs):
        ours, theirs = (measure([sys.executable, "-c", FIRST, each]).cpu for each in (output, built))
        ratios.append(ours / theirs)
    return float(median(ratios))
