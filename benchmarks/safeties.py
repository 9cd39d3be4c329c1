"""What the safeties of a build cost, in per cent of the CPU of an image build and of a text build; prints Markdown.

    python benchmarks/safeties.py images --runs 5 --photos 1000
    python benchmarks/safeties.py text --runs 5 --documents 40000

Builds run in this process, by turns: as they are, and with all safeties patched out; the median of the differences is
what they cost together. What one costs alone is too little to be seen so: it is the CPU time of its threads inside
its functions, of the builds that are as they are. `--isolated` is another build beside those, its processes included.
"""

import argparse
import hashlib
import importlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from inputs import Inputs
from measure import ROOT

sys.path.insert(0, str(ROOT))

from recordmill.pipeline.cli.session import TENSORFLOW

os.environ |= TENSORFLOW

from recordmill.pipeline.build.driver import build
from recordmill.pipeline.build.images.isolation import shared_isolation
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.spec.model import load_spec
from recordmill.transforms.contract.image_header import Header

DIGEST = bytes(32)


class NoDigest:
    """A digest of nothing."""

    def update(self, data: bytes) -> None:
        """Takes no time."""

    def hexdigest(self) -> str:
        """Zeros."""
        return DIGEST.hex()

    def digest(self) -> bytes:
        """Zeros."""
        return DIGEST


@dataclass(frozen=True)
class Safety:
    """A function that makes builds safe, and what does nothing in its place."""

    name: str
    module: str
    attribute: str
    nothing: Any

    @property
    def place(self) -> str:
        """Where it is looked up."""
        return f"{self.module}.{self.attribute}"

    def original(self) -> Any:
        """The function itself."""
        found: Any = importlib.import_module(self.module)
        for name in self.attribute.split("."):
            found = getattr(found, name)
        return found


def no_second_try(action: Callable[[], Any], *_: Any) -> Any:
    """Does it once."""
    return action()


SAFETIES = [
    Safety(
        "header gate",
        "recordmill.pipeline.build.images.read",
        "check_header",
        lambda data, most: Header("JPEG", 500, 375, True),
    ),
    Safety(
        "bytes of an image checked", "recordmill.pipeline.build.images.read", "_check_bytes", lambda size, most: None
    ),
    Safety("CRC-32C of records", "recordmill.pipeline.dataset.tfrecord", "masked_crc", lambda data: 0),
    Safety(
        "SHA-256 of images' files",
        "recordmill.pipeline.build.worker.load_images",
        "file_digests",
        lambda files: DIGEST,
    ),
    Safety(
        "digests of contents",
        "recordmill.pipeline.build.worker.build_shard",
        "digest_rows",
        lambda rows, *_: [DIGEST[:16]] * rows.num_rows,
    ),
    Safety(
        "digest of a batch's inputs",
        "recordmill.pipeline.build.worker.batch",
        "Batch.digest",
        lambda self, keys: DIGEST,
    ),
    Safety("fsync", "os", "fsync", lambda descriptor: None),
]
"""Those that are functions; the second try, the shards' SHA-256 and the lease are patched by themselves."""


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

    def digest(self, *arguments: Any) -> Any:
        """A SHA-256 whose time is counted."""
        return TimedDigest(self.timed("SHA-256 of shards", hashlib.sha256(*arguments).update), arguments)


class TimedDigest:
    """A digest that counts its time."""

    def __init__(self, update: Callable[[bytes], None], _: Any) -> None:
        self.update = update

    def hexdigest(self) -> str:
        """Zeros: the time is what counts."""
        return DIGEST.hex()


@contextmanager
def measured(meter: Meter) -> Iterator[None]:
    """Counts the time inside each safety."""
    with ExitStack() as stack:
        for one in SAFETIES:
            stack.enter_context(patch(one.place, meter.timed(one.name, one.original())))
        stack.enter_context(patch("recordmill.pipeline.dataset.tfrecord.hashlib", _hashlib(meter.digest)))
        yield


@contextmanager
def without() -> Iterator[None]:
    """No safety at all."""
    with ExitStack() as stack:
        for one in SAFETIES:
            stack.enter_context(patch(one.place, one.nothing))
        stack.enter_context(patch("recordmill.pipeline.dataset.tfrecord.hashlib", _hashlib(lambda *_: NoDigest())))
        stack.enter_context(
            patch("recordmill.pipeline.build.images.read.retry_alone", lambda action, *_, **__: action())
        )
        yield


def _hashlib(sha256: Callable[..., Any]) -> Any:
    return type("hashlib", (), {"sha256": staticmethod(sha256), "blake2b": hashlib.blake2b})


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
    meter, plain, bare, apart = Meter(), list[float](), list[float](), list[float]()
    cpu(spec)  # what is loaded once
    if isolated:
        cpu(spec, isolated=True)
    for _ in range(runs):
        with measured(meter):
            cpu_measured = cpu(spec)
        plain.append(cpu(spec))
        with without():
            bare.append(cpu(spec))
        if isolated:
            apart.append(cpu(spec, isolated=True))
        print(f"  {spec.stem}: {cpu_measured:.2f} {plain[-1]:.2f} {bare[-1]:.2f} {apart[-1:]}", file=sys.stderr)
    whole = statistics.median(plain)
    print(f"\n### {spec.stem}: {whole:.2f} s of CPU\n\n| safety | share |\n| --- | --- |")
    for name, spent in meter.spent.most_common():
        print(f"| {name} | {spent / 1e9 / runs / whole:.2%} |")
    together = statistics.median((one - other) / one for one, other in zip(plain, bare, strict=True))
    print(f"| all together, patched out | {together:.1%} |")
    if apart:
        more = statistics.median(other / one - 1 for one, other in zip(plain, apart, strict=True))
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
