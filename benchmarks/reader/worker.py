"""Runs one pipeline in this process and prints what it measured as one line of JSON.

    python benchmarks/reader/worker.py images grain bench-data/reader/images '{"batch_size": 32, "seed": 0}'

The clock of the first batch starts when the pipeline's module, and with it its libraries, was imported. After a warm-up
batches are counted for some seconds; CPU is that of this process and all its descendants meanwhile.
"""

import argparse
import importlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from settings import SIDE, Batch, Settings


@dataclass(frozen=True)
class Measured:
    """What one run of a pipeline measured."""

    first_batch: float
    """Seconds from the imports to the first batch."""
    units: int
    """Pictures, or tokens without padding, in the window."""
    seconds: float
    cpu: float
    """Seconds of all cores in the window, of the whole process tree."""
    memory: int
    """Bytes after the window: of the whole tree, shared ones once, without mapped files."""
    padding: float
    """The share of ids that are padding; 0 for pictures."""


def processes() -> list[psutil.Process]:
    """This process and its descendants."""
    root = psutil.Process()
    return [root, *root.children(recursive=True)]


def cpu_seconds() -> float:
    """Sums the CPU of the tree; a child that ended stands in its parent's."""
    total = 0.0
    for process in processes():
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def memory_bytes() -> int:
    """Sums the tree's memory that is no mapped file, shared pages once."""
    total = 0
    for process in processes():
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total


def count_pictures(batch: Batch) -> tuple[int, int]:
    """Counts a batch's pictures, twice."""
    return len(batch[0]), len(batch[0])


def count_tokens(batch: Batch) -> tuple[int, int]:
    """Counts a batch's tokens, and its ids with the padding."""
    ids, real, _ = batch
    values = np.asarray(real)
    return int(values.sum() if values.ndim == 1 else np.count_nonzero(values)), int(np.prod(ids.shape))


def check_pictures(batch: Batch, settings: Settings) -> None:
    """Raises a ValueError unless the batch is what was asked for."""
    pixels = np.asarray(batch[0])
    shapes = [(settings.batch_size, SIDE, SIDE, 3), (settings.batch_size, 3, SIDE, SIDE)]
    if pixels.shape not in shapes or pixels.dtype != settings.dtype or len(batch[1]) != settings.batch_size:
        raise ValueError(f"pixels {pixels.shape} {pixels.dtype}, {len(batch[1])} labels; asked for {settings}")
    if pixels.std() < (1 if settings.dtype == "uint8" else 0.01):
        raise ValueError("all pixels are alike: nothing was decoded")


def check_tokens(batch: Batch, settings: Settings) -> None:
    """Raises a ValueError unless the batch is what was asked for."""
    ids, (tokens, cells) = np.asarray(batch[0]), count_tokens(batch)
    if ids.ndim != 2 or not 0 < tokens <= cells or np.count_nonzero(ids) != tokens:
        raise ValueError(f"ids {ids.shape} {ids.dtype}, of which {tokens} are said to be tokens; asked for {settings}")


def pipeline_of(task: str, name: str) -> Any:
    """Imports a pipeline and with it its libraries."""
    if name.startswith("recordmill"):
        return importlib.import_module("ours").Ours(task, name)
    return importlib.import_module(f"{task}.{name}")


def measure(pipeline: Any, data: Path, settings: Settings, warm_up: float, seconds: float, text: bool) -> Measured:
    """Runs a pipeline."""
    count, check = (count_tokens, check_tokens) if text else (count_pictures, check_pictures)
    began = time.perf_counter()
    rows: Iterator[Batch] = pipeline.batches(data, settings)
    first = next(rows)
    first_batch = time.perf_counter() - began
    check(first, settings)
    if settings.rows:
        units = sum(count(batch)[0] for batch in itertools.islice(rows, settings.rows // settings.batch_size))
        return Measured(first_batch, units, time.perf_counter() - began, cpu_seconds(), memory_bytes(), 0.0)
    warm = time.perf_counter() + warm_up
    while time.perf_counter() < warm:
        next(rows)
    units = cells = 0
    cpu, start = cpu_seconds(), time.perf_counter()
    end = start + seconds
    for batch in itertools.takewhile(lambda _: time.perf_counter() < end, rows):
        real, wide = count(batch)
        units, cells = units + real, cells + wide
    elapsed, used = time.perf_counter() - start, cpu_seconds() - cpu
    padding = 1 - units / cells if cells else 0.0
    return Measured(first_batch, units, elapsed, used, memory_bytes(), padding)


def main() -> None:
    """Reads the command line, runs the pipeline, and leaves without waiting for its threads and processes."""
    parser = argparse.ArgumentParser(description="Measures one pipeline; prints JSON.")
    parser.add_argument("modules", choices=("images", "text"))
    parser.add_argument("name", help="a module of this folder, or one of ours")
    parser.add_argument("data", type=Path, help="the task's data")
    parser.add_argument("settings", type=json.loads, help="JSON")
    parser.add_argument("--warm-up", type=float, default=1.5, help="seconds (default: 1.5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the window (default: 5)")
    options = parser.parse_args()
    if cores := options.settings.get("cores", 0):  # before libraries are imported, which count them
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    pipeline = pipeline_of(options.modules, options.name)
    workers = options.settings.pop("workers", pipeline.WORKERS)
    settings = Settings(workers=workers, **options.settings)
    measured = measure(pipeline, options.data, settings, options.warm_up, options.seconds, options.modules == "text")
    print(json.dumps(asdict(measured)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
