"""Estimates a build by its number of records: shards, bytes, requests and CPU; prints Markdown.

    python benchmarks/cost.py                        10**6, 10**8 and 10**9 records
    python benchmarks/cost.py 50000000

Shards and chunks come from the plan's own functions; a row's CPU and bytes are measured ones, named beside each.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from measure import table

from recordmill.pipeline.build.plan.plan import BATCH_BYTES, MAX_PACK_BYTES, SHARD_BYTES
from recordmill.pipeline.build.run_options import CHUNK_BYTES
from recordmill.pipeline.dataset.placement import shard_count
from recordmill.pipeline.spec.model import MOST_SHARDS
from recordmill.pipeline.versions.stores.open_store import READ_BYTES

RECORDS = (1_000_000, 100_000_000, 1_000_000_000)
MANIFEST_BYTES = 279  # a shard; make bench ARGS=scale

BATCH_OVERHEAD = 1740
"""Bytes of a packed batch beside its rows: `python benchmarks/shuffle.py`."""
REQUEST_CPU = 0.3e-3
"""Seconds of CPU for a request to S3 or GCS; python benchmarks/buckets.py."""
PART_BYTES = 8 << 20
"""The bytes that one request writes."""
GET_BYTES = READ_BYTES
"""The bytes of a file of rows, read in order, that one request reads."""
GB, TB = 10**9, 10**12


@dataclass(frozen=True)
class Kind:
    """One kind of rows, with the costs of a row."""

    title: str
    source_bytes: int
    planned_bytes: int
    """The bytes of a record as the plan estimates them."""
    counted_bytes: int
    """The bytes that a row counts when chunks are cut."""
    packed_bytes: int
    """The bytes across a cluster's shuffle; python benchmarks/shuffle.py."""
    cpu: float
    """Seconds; docs/performance.md."""
    is_file: bool
    """True where a row is an object that is read by a request of its own."""


KINDS = (
    Kind("photos of 110 KB to 224×224, each a file", 110_000, 52_685, 2 << 10, 66, 2.11e-3, True),
    Kind("documents of 550 bytes, JSON Lines", 550, 550, 550, 277, 50.7e-6, False),
)


def estimate(kind: Kind, records: int) -> Sequence[str]:
    """Gives the column of a table."""
    shards = min(MOST_SHARDS, shard_count(kind.planned_bytes * records, SHARD_BYTES))
    chunk_bytes = min(MAX_PACK_BYTES, max(CHUNK_BYTES, shards * BATCH_BYTES))
    chunks = -(-records * kind.counted_bytes // chunk_bytes)
    in_batch = max(1.0, records / chunks / shards)
    shuffled = records * (kind.packed_bytes + BATCH_OVERHEAD / in_batch)
    hours = records * kind.cpu / 3600
    stored = kind.planned_bytes * records
    reads = records if kind.is_file else 2 * records * kind.source_bytes / GET_BYTES
    writes = stored / PART_BYTES + 5 * shards + 3 * chunks + (records / 1000 if kind.is_file else 0)
    return (
        f"{shards:,} of {size(stored / shards)}",
        f"{chunks:,} of {records / chunks:,.0f} rows",
        f"{in_batch:,.0f}",
        size(shuffled),
        size(shards * MANIFEST_BYTES),
        size(8 * records),
        f"{reads:,.0f} / {writes:,.0f}",
        f"{hours:,.1f} h",
        f"{hours + reads * REQUEST_CPU / 3600:,.1f} h",
    )


ROWS = (
    "shards, by the plan's estimate of a record",
    "chunks",
    "rows of a chunk in a shard",
    "bytes across a cluster's shuffle",
    "manifest",
    "the reader's indexes, on the disk",
    "requests: reads / writes and lists",
    "CPU, sources on a disk",
    "CPU, sources in a bucket",
)


def size(count: float) -> str:
    """Formats bytes."""
    for unit, name in ((TB, "TB"), (GB, "GB"), (10**6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1000:,.1f} KB"


def main() -> None:
    """Reads the command line; prints a table for each kind of rows."""
    parser = argparse.ArgumentParser(description="Estimates builds by their number of records; prints Markdown.")
    parser.add_argument("records", nargs="*", type=int, default=RECORDS)
    arguments = parser.parse_args()
    for kind in KINDS:
        columns = [ROWS, *(estimate(kind, records) for records in arguments.records)]
        header = ("records", *(f"{records:,}" for records in arguments.records))
        table(kind.title, header, zip(*columns, strict=True))


if __name__ == "__main__":
    main()
