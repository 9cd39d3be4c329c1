"""Measures the job that writes the shards on four machines, one of which is eight times as slow as the others.

    make flink
    .venv/bin/python benchmarks/slow_machine.py --shards 64 --seconds 3

The machines are TaskManagers of this machine, whose workers sleep instead of working (`slow_worker.py`): sleeping needs
no cores. The ideal is the job on four equal machines, but with the work divided by 3 + 1/8 machines instead of by 4.
A worker starts slower here than on a machine of its own, and a backup starts workers, too: small jobs look worse.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

from flink import build, cluster, shards

ROWS = 20  # of a shard
MACHINES, SLOWER = 4, 8
SPEC = """
name: rows
source: {{format: jsonl, path: "rows-*.jsonl"}}
key: id
splits: {{train: 100}}
shards: {shards}
features: {{number: {{kind: number}}}}
"""


def write_inputs(folder: Path, count: int) -> None:
    """Writes the spec and the rows, in two files a machine."""
    (folder / "dataset.yaml").write_text(SPEC.format(shards=count))
    for part in range(2 * MACHINES):
        rows = (json.dumps({"id": str(row), "number": row}) for row in range(part, ROWS * count, 2 * MACHINES))
        (folder / f"rows-{part}.jsonl").write_text("\n".join(rows))


def write_worker(folder: Path, seconds: float, slow: int | None) -> Path:
    """Writes the workers' program, and how long a shard takes; `slow` is the process of the slow TaskManager."""
    program = folder / "worker"
    shutil.copy(Path(__file__).with_name("slow_worker.py"), folder)
    (folder / "slow_worker.json").write_text(json.dumps({"seconds": seconds, "slower": {str(slow): SLOWER}}))
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/slow_worker.py "$@"\n')
    program.chmod(0o755)
    return program


def write_seconds(folder: Path, name: str, seconds: float, *, is_slow: bool, more: list[str]) -> float:
    """Builds on a new cluster; gives the seconds of the job that writes, to the end of it and of its backup."""
    run = folder / name
    with cluster(run, MACHINES) as (address, options):
        pid = json.loads((run / "cluster.json").read_text())["processes"]["taskmanager-1"]
        worker = write_worker(folder, seconds, pid if is_slow else None)
        build(folder, f"out-{name}", *options, "--flink-workers", str(worker), *more)
        with urlopen(f"http://{address}/v1/jobs/overview") as answer:
            jobs = sorted(json.load(answer)["jobs"], key=lambda job: job["start-time"])
        writing = [job for job in jobs if not job["name"].endswith("-backup")][-1]
        return float(max(job["end-time"] for job in jobs) - writing["start-time"]) / 1000


def main() -> None:
    """Prints both times, the ideal and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one shard on a machine that is not slow")
    parser.add_argument("more", nargs="*", help="options of the build, after --")
    given = parser.parse_args()
    os.environ["RECORDMILL_WORKER_THREADS"] = "1"
    folder = Path(tempfile.mkdtemp(prefix="recordmill-slow-"))
    write_inputs(folder, given.shards)
    equal, slow = (
        write_seconds(folder, name, given.seconds, is_slow=name == "slow", more=given.more)
        for name in ("equal", "slow")
    )
    work = given.shards * given.seconds
    ideal = equal - work / MACHINES + work / (MACHINES - 1 + 1 / SLOWER)
    print(f"{given.shards:,} shards of {given.seconds:g} s on {MACHINES} machines: {equal:.0f} s if all are equal")
    print(f"one {SLOWER} times as slow: {slow:.0f} s, ideal {ideal:.0f} s, ratio {slow / ideal:.2f}")
    if shards(folder / "out-equal") != shards(folder / "out-slow"):
        sys.exit("the bytes are not the same")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
