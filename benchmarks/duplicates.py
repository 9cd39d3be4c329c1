"""Measures the cost of finding duplicates: `duplicates: drop` on synthetic contents, bucket by bucket, in one process.

    python -m benchmarks.duplicates --rows 10000000 --buckets 64

Rows lie in scratch files between the steps, as on the local runner; one row in ten repeats another's content, and one
in a hundred another's key. Prints the CPU seconds of each step, the peak memory, which is that of one bucket at a time,
as in a worker, and the bytes of the counts of all buckets: the driver holds nothing else.
"""

import argparse
import json
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.duplicates.counts import Counts, add_up, count
from recordmill.pipeline.build.duplicates.decisions import dropped
from recordmill.pipeline.build.duplicates.find import follow_firsts, members
from recordmill.pipeline.build.duplicates.fingerprints import BUCKET, by_hash, numbered
from recordmill.pipeline.build.worker.packing import Packed, pack, unpack

CHUNK_ROWS = 200_000
Shuffled = dict[int, list[Packed]]
Step = Callable[[pa.Table], pa.Table]


def synthetic(chunk: int, rows: int, total: int) -> pa.Table:
    """Fingerprints of a chunk's rows, of as many contents and keys as give the shares of repeats."""
    random = np.random.default_rng(chunk)
    keys, contents = (random.integers(1, int(total * times), rows, np.uint64) for times in (50, 5))
    spread = np.uint64(0x9E3779B97F4A7C15)
    columns = {"hash": keys * spread, "sample": keys, "high": contents * spread, "low": contents}
    split = pa.array(keys % np.uint64(3), pa.int16())
    return pa.table({"row": numbered(chunk, np.arange(rows)), "split": split, **columns})


@dataclass
class Bench:
    """The steps so far."""

    scratch: str
    buckets: int
    seconds: dict[str, float] = field(default_factory=dict)

    def shuffle(self, name: str, tables: Iterable[pa.Table], column: str) -> Shuffled:
        """Sends rows to buckets by a column; measures the time that making the tables takes, too."""
        start, shuffled = time.process_time(), defaultdict(list)
        for table in tables:
            for bucket, packed in pack(by_hash(table, column, self.buckets), self.scratch):
                shuffled[bucket].append(packed)
        self.seconds[name] = round(time.process_time() - start, 1)
        return shuffled


def in_turn(shuffled: Shuffled, step: Step) -> Iterator[pa.Table]:
    """Takes one bucket at a time."""
    return (step(unpack(shuffled[bucket]).drop_columns([BUCKET])) for bucket in sorted(shuffled))


def find_duplicates(rows: int, buckets: int) -> dict[str, object]:
    """Finds and counts duplicates; gives the CPU seconds of each step, the counts, and the peak memory in MB."""
    with tempfile.TemporaryDirectory() as scratch:
        bench, before = Bench(scratch, buckets), peak()
        sizes = [min(CHUNK_ROWS, rows - start) for start in range(0, rows, CHUNK_ROWS)]
        keyed = bench.shuffle("by key", (synthetic(chunk, size, rows) for chunk, size in enumerate(sizes)), "hash")
        settled = bench.shuffle("follow firsts, by content", in_turn(keyed, follow_firsts), "high")
        start, left_out, reports = time.process_time(), 0, list[str]()
        for found in in_turn(settled, partial(members)):
            left_out += dropped(found).num_rows
            reports.append(json.dumps(count(found).to_json()))
        bench.seconds["find, count, drop"] = round(time.process_time() - start, 1)
        total = add_up(Counts.of_json(json.loads(report)) for report in reports)
        bytes_ = sum(path.stat().st_size for path in Path(scratch).iterdir())
    return {
        "rows": rows,
        "buckets": buckets,
        "seconds": bench.seconds,
        "left_out": left_out,
        "groups": total.groups,
        "scratch_bytes_a_row": round(bytes_ / rows),
        "driver_bytes": sum(map(len, reports)),
        "peak_mb": {"before": before, "after": peak()},
    }


def peak() -> int:
    """The largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--buckets", type=int, default=16)
    options = parser.parse_args()
    print(json.dumps(find_duplicates(options.rows, options.buckets), indent=1))


if __name__ == "__main__":
    main()
