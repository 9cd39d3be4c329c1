"""Counts the bytes that a training's hosts fetch from a bucket, and measures how fast one host reads from it.

    python benchmarks/reader/remote.py OUTPUT --hosts 8 --workers 4 --epochs 2           # bytes, in splits
    python benchmarks/reader/remote.py OUTPUT --delay 0.03 --rate 125e6 --images         # one host over a slow wire
    python benchmarks/reader/remote.py OUTPUT --refuse 0.05

OUTPUT is a folder that `recordmill build` wrote; `benchmarks/object_server.py` serves it as a bucket on the loopback.
Each host is a process with a cache of its own. Without `--images` nothing is decoded.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def read_as_host(given: argparse.Namespace) -> None:
    """Reads the epochs as one host; prints seconds, rows and the reader's figures of each, as a line of JSON."""
    from recordmill import open_dataset

    began = time.perf_counter()
    train = open_dataset(given.url).training_input(
        "train",
        batch_size=given.batch_size,
        workers=given.workers,
        host_index=given.host,
        host_count=given.hosts,
        cache=given.cache,
        features=None if given.images else [],
    )
    opened = time.perf_counter()
    for epoch in range(given.first, given.first + given.epochs):
        train.set_epoch(epoch)
        start, rows, first = time.perf_counter(), 0, 0.0
        batches = train.as_numpy()
        for *_, label in batches:
            first = first or time.perf_counter() - start
            rows += len(label)
        figures = {"opened": opened - began, "first_batch": first, "seconds": time.perf_counter() - start, "rows": rows}
        print(json.dumps({**figures, **batches.meter.figures().counts}), flush=True)


def counts(port: int) -> dict[str, int]:
    """Returns the server's counts since the last call."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/__counts") as answer:
        found: dict[str, int] = json.load(answer)
        return found


def run(given: argparse.Namespace, port: int, folder: str) -> None:
    """Reads each epoch by all hosts at once, and prints what the server counted."""
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    environment = os.environ | keys | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "PYTHONPATH": str(ROOT)}
    size = sum(file.stat().st_size for file in given.output.rglob("*-train.tfrecord-*"))
    for epoch in range(given.epochs):
        counts(port)
        hosts = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--host", str(host), "--first", str(epoch), "--epochs", "1"]
                + ["--cache", f"{folder}/{host}", "--url", f"s3://{given.output.parent.name}/{given.output.name}"],
                env=environment,
                stdout=subprocess.PIPE,
            )
            for host in range(given.hosts)
        ]
        lines: list[dict[str, Any]] = [json.loads(host.communicate()[0]) for host in hosts]
        found = counts(port)
        slowest = max(line["seconds"] for line in lines)
        print(
            f"epoch {epoch}: {found.get('bytes', 0) / size:.3f} splits of {size / 1e6:.0f} MB in {found.get('get', 0)} "
            f"requests, {found.get('refused', 0)} refused; {size / 1e6 / slowest:.0f} MB/s, "
            f"{sum(line['rows'] for line in lines) / slowest:,.0f} rows/s, first batch "
            f"{max(line['first_batch'] for line in lines):.2f} s after {max(line['opened'] for line in lines):.2f} s"
        )
        print(f"  host 0: {lines[0]}", flush=True)


def main() -> None:
    """Serves the output, and reads it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--images", action="store_true", help="decode the images")
    parser.add_argument("--delay", default="0", help="seconds that each answer waits")
    parser.add_argument("--refuse", default="0", help="share of requests that are answered by 503")
    parser.add_argument("--rate", default="0", help="bytes a second of all answers together")
    for name, kind in (("--host", int), ("--first", int), ("--cache", str), ("--url", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.url:
        read_as_host(given)
        return
    given.output = given.output.resolve()
    options = [f"--{name}={getattr(given, name)}" for name in ("delay", "refuse", "rate")]
    command = [sys.executable, str(ROOT / "benchmarks/object_server.py"), str(given.output.parent), *options]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            assert server.stdout is not None
            run(given, int(server.stdout.readline()), folder)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
