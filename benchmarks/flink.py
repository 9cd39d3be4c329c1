"""Measures a build on a Flink cluster of this machine, with one TaskManager and with two, beside the local runner.

    make flink
    .venv/bin/python benchmarks/flink.py --documents 40000

All of it shares this machine's cores: JobManager, TaskManagers, the job server, the workers and the driver. Two
TaskManagers can be twice as fast only where there are cores for both. Workers start with the first job of a build, so
that the last job, which writes, shows the speed of rows.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from documents import write_documents
from measure import ROOT, measure

CLUSTER = [sys.executable, str(ROOT / "deploy/flink/local/cluster.py")]
JOB_SERVER = ROOT / ".runners/flink/job-server.jar"
FILES = 8  # each is at least one chunk
SPEC = """
name: documents
source: {format: jsonl, path: "rows-*.jsonl"}
key: id
splits: {train: 90, test: 10}
shards: 16
features:
  text: {kind: text, vocabulary: 8000, max_length: 64}
  language: {kind: category}
"""


def write_inputs(folder: Path, documents: int) -> None:
    """Writes the spec and the rows, in several files."""
    (folder / "dataset.yaml").write_text(SPEC)
    write_documents(folder / "all.jsonl", None, documents)
    with (folder / "all.jsonl").open("rb") as lines:
        for number in range(FILES):
            with (folder / f"rows-{number}.jsonl").open("wb") as part:
                part.writelines(itertools.islice(lines, -(-documents // FILES)))
    (folder / "all.jsonl").unlink()


def build(folder: Path, output: str, *options: str) -> float:
    """Builds; gives the seconds of the command."""
    command = [Path(sys.executable).parent / "recordmill", "build", folder / "dataset.yaml"]
    seconds: float = measure([*command, "--output", folder / output, *options]).wall
    return seconds


@contextmanager
def cluster(run: Path, task_managers: int) -> Iterator[tuple[str, list[str]]]:
    """Starts a cluster; yields its address and the options of a build on it. Stops it at the end."""
    start = [*CLUSTER, "start", str(run), "--taskmanagers", str(task_managers), "--flink", str(JOB_SERVER.parent)]
    address = subprocess.run(start, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield address, ["--runner", "flink", "--flink-master", address, "--flink-jar", str(JOB_SERVER)]
    finally:
        subprocess.run([*CLUSTER, "stop", str(run)], check=True)


def build_on_flink(folder: Path, task_managers: int) -> tuple[float, list[float]]:
    """Builds on a new cluster; gives the seconds of the command and those of each job."""
    with cluster(folder / f"cluster-{task_managers}", task_managers) as (address, options):
        wall = build(folder, f"flink-{task_managers}", *options)
        with urlopen(f"http://{address}/v1/jobs/overview") as answer:
            jobs = sorted(json.load(answer)["jobs"], key=lambda job: job["start-time"])
        return wall, [job["duration"] / 1000 for job in jobs]


def shards(output: Path) -> list[str]:
    """Lists the digests of the live version's shards."""
    version = json.loads((output / "LATEST").read_text())["version"]
    manifest = json.loads((output / "versions" / version / "dataset.json").read_text())
    return [shard["sha256"] for split in manifest["splits"].values() for shard in split["shards"]]


def main() -> None:
    """Prints a line for each runner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=40_000)
    documents = parser.parse_args().documents
    folder = Path(tempfile.mkdtemp(prefix="recordmill-flink-"))
    write_inputs(folder, documents)
    print(f"{documents:,} documents, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    print(f"local, one process: {build(folder, 'local'):.0f} s")
    for task_managers in (1, 2):
        wall, jobs = build_on_flink(folder, task_managers)
        each = " + ".join(f"{seconds:.0f}" for seconds in jobs)
        rate = documents / jobs[-1]
        print(f"{task_managers} TaskManagers: {wall:.0f} s, jobs {each} s, {rate:,.0f} documents/s in the last")
        if shards(folder / f"flink-{task_managers}") != shards(folder / "local"):
            sys.exit("the bytes are not those of the local runner")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
