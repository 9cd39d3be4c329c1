"""Measures the safeties of a build, in per cent of the CPU of an image build and of a text build; prints Markdown.

    python benchmarks/safeties.py images --runs 5 --photos 1000
    python benchmarks/safeties.py text --runs 5 --documents 40000

Builds run in this process. One safety alone is too little to be seen in a whole build's time: its cost is the CPU time
of the threads inside its functions. `--isolated` is another build beside those, its processes included.
"""

import argparse
import hashlib
import os
import pkgutil
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import psutil
from inputs import Inputs
from measure import ROOT

sys.path.insert(0, str(ROOT))

from recordmill.pipeline.build.runners.worker_environment import TENSORFLOW

os.environ |= TENSORFLOW

from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.images.isolation import shared_isolation
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.spec.model import load_spec

BUILD, DATASET = "recordmill.pipeline.build", "recordmill.pipeline.dataset"
SAFETIES = {
    "header check": f"{BUILD}.images.read.check_header",
    "size check of an image": f"{BUILD}.images.image_files._check_bytes",
    "CRC-32C of records": f"{DATASET}.tfrecord.masked_crc",
    "digests of contents": f"{BUILD}.worker.build_shard.digest_rows",
    "digest of a batch's inputs": f"{BUILD}.worker.batch.RowBatch.digest",
    "fsync": "os.fsync",
}
"""The functions that make a build safe, as their callers look them up; the shards' SHA-256 is patched by itself."""


class Meter:
    """CPU seconds inside functions, by name; nanoseconds of the thread's clock."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, and its time is counted."""

        def run(*arguments: Any, **named: Any) -> Any:
            started = time.thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                self.spent[name] += time.thread_time_ns() - started

        return run

    def sha256(self, *arguments: Any) -> Any:
        """Gives a SHA-256 whose time is counted."""
        digest = hashlib.sha256(*arguments)
        update = self.timed("SHA-256 of shards", digest.update)
        return SimpleNamespace(update=update, hexdigest=digest.hexdigest)


@contextmanager
def measured(meter: Meter) -> Iterator[None]:
    """Counts the time inside each safety."""
    with ExitStack() as stack:
        for name, path in SAFETIES.items():
            stack.enter_context(patch(path, meter.timed(name, pkgutil.resolve_name(path))))
        timed_hashlib = SimpleNamespace(sha256=meter.sha256, blake2b=hashlib.blake2b)
        stack.enter_context(patch(f"{DATASET}.tfrecord.hashlib", timed_hashlib))
        yield


def cpu(spec: Path, isolated: bool = False) -> float:
    """The CPU seconds of a build, of this process and of those that it starts."""
    started = _cpu()
    with tempfile.TemporaryDirectory(prefix="safeties-") as out:
        build(load_spec(str(spec)), f"{out}/out", RunOptions(isolated=isolated))
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out, exist_ok=True)
    return _cpu() - started


def _cpu() -> float:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


def compare(spec: Path, runs: int, isolated: bool) -> None:
    """Measures one kind of build."""
    meter, plain, apart = Meter(), list[float](), list[float]()
    for is_isolated in (False, True)[: 1 + isolated]:
        cpu(spec, is_isolated)  # what is loaded once
    for _ in range(runs):
        with measured(meter):
            cpu(spec)
        plain.append(cpu(spec))
        if isolated:
            apart.append(cpu(spec, isolated=True))
        print(f"  {spec.stem}: {plain[-1]:.2f} {apart[-1:]}", file=sys.stderr)
    whole = statistics.median(plain)
    print(f"\n### {spec.stem}: {whole:.2f} s of CPU\n\n| safety | share |\n| --- | --- |")
    for name, spent in meter.spent.most_common():
        print(f"| {name} | {spent / 1e9 / runs / whole:.2%} |")
    print(f"| together | {meter.spent.total() / 1e9 / runs / whole:.2%} |")
    if apart:
        more = statistics.median(other / alone - 1 for alone, other in zip(plain, apart, strict=True))
        print(f"| `--isolated`, more | {more:.0%} |")


def main() -> None:
    """Reads the arguments and measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["images", "text"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--photos", type=int, default=1_000)
    parser.add_argument("--documents", type=int, default=40_000)
    arguments = parser.parse_args()
    inputs = Inputs(ROOT / "bench-data")
    if arguments.what == "images":
        compare(inputs.image_spec(inputs.photos(arguments.photos)), arguments.runs, isolated=True)
    else:
        compare(inputs.text_spec(inputs.documents(count=arguments.documents)), arguments.runs, isolated=False)
    shared_isolation().close()


if __name__ == "__main__":
    main()
