"""Measures what an image costs a build that reads it from S3 or GCS, beside one that reads it from a folder.

    python benchmarks/buckets.py [--images 400 2000] [--runs 3] [--delay 0.03] [--against ../recordmill-before]

A cost is marginal: many images minus few, over the difference. The bucket is a server on the loopback
(`object_server.py`) which counts requests, and waits `--delay` before each answer.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inputs import Inputs
from measure import ROOT, Usage, measure, table

SPEC = """name: photos
source: {{format: image_folder, path: {path}}}
splits: {{train: 90, test: 10}}
label: label
features:
  image: {{kind: image, size: [224, 224]}}
  label: {{kind: category, classes: [class0, class1, class2, class3, class4, class5, class6]}}
"""
PLACES = ("folder", "s3", "gs")


@contextmanager
def served(folder: Path, delay: float, refuse: float = 0.0) -> Iterator[str]:
    """Serves a folder as a bucket of its name; yields the server's address."""
    program = [sys.executable, ROOT / "benchmarks/object_server.py", folder, f"--delay={delay}", f"--refuse={refuse}"]
    server = subprocess.Popen(list(map(str, program)), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()


def counts(address: str) -> dict[str, int]:
    """Returns what the server counted since it was last asked."""
    with urllib.request.urlopen(f"{address}/__counts") as answer:
        return dict(json.load(answer))


def environment(address: str) -> dict[str, str]:
    """Returns the variables that lead both clients to the server."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    return {**keys, "AWS_ENDPOINT_URL": address, "STORAGE_EMULATOR_HOST": address}


def build(python: Path, place: str, photos: Path, address: str) -> tuple[Usage, dict[str, int]]:
    """Builds from a place; returns what it used, and what it asked."""
    os.environ |= environment(address)
    path = photos if place == "folder" else f"{place}://{photos.name}"
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "dataset.yaml")
        spec.write_text(SPEC.format(path=path))
        counts(address)
        used = measure([python, "-m", "recordmill", "build", spec, "--quiet", "--output", Path(folder, "out")])
        return used, counts(address)


def marginal(few: Any, many: Any, images: list[int]) -> float:
    """Returns the cost of an image."""
    return float(many - few) / (images[1] - images[0])


def run(python: Path, images: list[int], delay: float) -> Mapping[str, tuple[float, float, float]]:
    """Measures each place once: CPU seconds, wall seconds and requests an image."""
    found = {}
    folders = [Inputs(ROOT / "bench-data").photos(count) for count in images]
    for place in PLACES:
        pairs = []
        for folder in folders:
            with served(folder, delay) as address:
                pairs.append(build(python, place, folder, address))
        (few, _), (many, asked) = pairs
        requests = sum(asked.get(kind, 0) for kind in ("get", "head")) / images[1]
        found[place] = marginal(few.cpu, many.cpu, images), marginal(few.wall, many.wall, images), requests
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, nargs=2, default=[200, 1000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--against", type=Path, help="another checkout with its .venv")
    given = parser.parse_args()
    python = given.against / ".venv/bin/python" if given.against else Path(sys.executable)
    runs = [run(python, given.images, given.delay) for _ in range(given.runs)]
    rows = []
    for place in PLACES:
        cpu, wall, requests = (statistics.median(each[place][number] for each in runs) for number in range(3))
        more = statistics.median(each[place][0] - each["folder"][0] for each in runs)
        rate = statistics.median(each["folder"][1] / each[place][1] for each in runs)
        rows.append([place, f"{cpu * 1e3:.2f}", f"{more * 1e3:+.2f}", f"{rate:.2f}", f"{requests:.3f}"])
    header = ["images in", "CPU ms an image", "more than a folder", "rate, of a folder's", "requests an image"]
    table(f"Images in buckets, {given.delay * 1e3:.0f} ms a request", header, rows)


if __name__ == "__main__":
    main()
