"""Measures the CPU of a build on a Flink cluster which loses a worker every minute, beside the same build in peace.

    make flink
    .venv/bin/python benchmarks/lost_workers.py [--rows 1500] [--every 60]

Two TaskManagers of this machine start a worker each. Every process counts, the dead ones up to half a second before
their death, but not the cluster's own start.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from flink import build, cluster, shards
from PIL import Image

SAMPLE_SECONDS = 0.5
IMAGES = 8
SIDE = 3000
SHARDS = 64
SPEC = """
name: rows
source: {{format: csv, path: rows.csv}}
key: id
splits: {{train: 100}}
shards: {shards}
features: {{image: {{kind: image, size: [64, 64]}}}}
"""


def write_inputs(folder: Path, rows: int) -> None:
    """Writes the spec, and rows with large images, which take a tenth of a second to decode."""
    (folder / "dataset.yaml").write_text(SPEC.format(shards=SHARDS))
    pixels = np.random.default_rng(0).integers(0, 255, (SIDE // 50, SIDE // 50, 3), np.uint8)
    for number in range(IMAGES):
        image = Image.fromarray(np.roll(pixels, number, 0)).resize((SIDE, SIDE))
        image.save(folder / f"{number}.png", compress_level=1)
    lines = [f"{row},{row % IMAGES}.png" for row in range(rows)]
    (folder / "rows.csv").write_text("\n".join(["id,image", *lines]))


class Cpu(threading.Thread):
    """Adds up the CPU seconds of processes by a mark in their environment; kills a worker now and then."""

    def __init__(self, mark: str, every: float | None) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self._mark, self._every, self._done = mark, every, threading.Event()
        self._seconds = dict[psutil.Process, float]()

    def run(self) -> None:
        """Samples until `stop`."""
        next_kill = time.monotonic() + (self._every or float("inf"))
        while not self._done.wait(SAMPLE_SECONDS):
            workers = [process for process in psutil.process_iter() if self._sample(process)]
            if time.monotonic() >= next_kill and workers:
                workers[self.killed % len(workers)].send_signal(signal.SIGKILL)
                self.killed += 1
                next_kill += self._every or 0

    def _sample(self, process: psutil.Process) -> bool:
        """Notes a process' time; returns whether it is a worker."""
        with suppress(psutil.Error):
            if process.environ().get("RECORDMILL_BENCHMARK") == self._mark:
                self._seconds[process] = sum(process.cpu_times()[:2])
                command = " ".join(process.cmdline())
                return "worker_boot" in command or "recordmill-worker" in command
        return False

    def stop(self) -> float:
        """Returns the seconds."""
        self._done.set()
        self.join()
        return sum(self._seconds.values())


def cpu_seconds(folder: Path, name: str, every: float | None) -> tuple[float, float, int]:
    """Builds on a new cluster; returns CPU and wall seconds, and how many workers were killed."""
    os.environ["RECORDMILL_BENCHMARK"] = mark = f"{os.getpid()}-{name}"
    with cluster(folder / name, 2) as (_, options):
        cpu = Cpu(mark, every)
        cpu.start()
        wall = build(folder, f"out-{name}", *options, "--attempts", "50")
        return cpu.stop(), wall, cpu.killed


def main() -> None:
    """Prints both builds, and the ratio of their CPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two killed workers")
    given = parser.parse_args()
    os.environ["RECORDMILL_WORKER_THREADS"] = "1"
    folder = Path(tempfile.mkdtemp(prefix="recordmill-lost-"))
    write_inputs(folder, given.rows)
    used = {name: cpu_seconds(folder, name, every) for name, every in (("peace", None), ("lost", given.every))}
    print(json.dumps(used))
    print(f"{used['lost'][2]} workers killed: {used['lost'][0] / used['peace'][0]:.2f} times the CPU")
    if shards(folder / "out-peace") != shards(folder / "out-lost"):
        sys.exit("the bytes are not the same")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
