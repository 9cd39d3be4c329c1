"""A Flink cluster of this machine for tests, started by `deploy/flink/local`, and a dataset whose reading waits."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
from PIL import Image

from tests.forked import wait_until, wait_until_ended

ROOT = Path(__file__).parents[1]
FLINK = ROOT / ".runners/flink"
JOB_SERVER = FLINK / "job-server.jar"
SCRIPT = ROOT / "deploy/flink/local/cluster.py"
RUNNING = {"INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "FAILING", "CANCELLING"}

PARTS = 6
ROWS = 2_400
SPEC = """
name: cluster
source: {format: python, rows: "rows:rows", parts: "rows:parts", options: {gates: GATES}, count: 2400}
key: id
splits: {train: 80, test: 20}
shards: {train: 16, test: 2}
label: label
features:
  number: {kind: number}
  level: {kind: number, column: number, quantiles: 5}
  text: {kind: text, vocabulary: 60, max_length: 8}
  pieces: {kind: text, column: text, tokenizer: sentencepiece, vocabulary: 90}
  ids: {kind: text, column: text, tokenizer: huggingface, model: MODEL, max_length: 8, keep_length: true}
  image: {kind: image, optional: true, size: [12, 12], normalize: dataset}
  label: {kind: category}
"""
MODULE = '''
"""The rows of a test: whoever reads part 3 for the n-th time writes `read-n`, and waits while `hold-n` is there."""

import io
import itertools
import os
import random
import time
from pathlib import Path

from PIL import Image

WORDS = ["".join(letters) for letters in itertools.product("bdk", "aeu", "lmnr")]


def parts(gates):
    return list(range(PARTS))


def rows(part, gates):
    if part == 3 and os.path.isdir(gates):
        wait(Path(gates))
    numbers = random.Random(part)
    for row in range(part * ROWS // PARTS, (part + 1) * ROWS // PARTS):
        text = " ".join(numbers.choices(WORDS, k=numbers.randrange(3, 12)))
        if row % 50 == 7:
            text = "the same in many parts"
        image = picture(numbers) if row % 24 == 0 else None
        yield {"id": f"row-{row}", "number": numbers.gauss(5, 9), "text": text, "image": image, "label": WORDS[row % 5]}


def wait(gates):
    for number in itertools.count(1):
        try:
            (gates / f"read-{number}").touch(exist_ok=False)
            break
        except FileExistsError:
            continue
    (gates / f"reader-{number}.part").write_text(str(os.getpid()))
    (gates / f"reader-{number}.part").rename(gates / f"reader-{number}")
    while (gates / f"hold-{number}").exists():
        time.sleep(0.05)


def picture(numbers):
    data = io.BytesIO()
    Image.frombytes("RGB", (16, 12), numbers.randbytes(16 * 12 * 3)).save(data, "PNG")
    return data.getvalue()
'''


CGROUPS = Path("/sys/fs/cgroup/memory")  # version 1
WORKER_BYTES = 1_024 << 20
"""The memory of a limited worker, which holds 0.5 GB at most; the least that `docs/clusters.md` asks for."""
LARGE_SPEC = """
name: large
source: {format: image_folder, path: images}
shards: 128
splits: {train: 100}
label: label
features:
  image: {kind: image, store: original}
  label: {kind: category}
"""


def write_large_dataset(folder: Path, size: int) -> None:
    """Writes `dataset.yaml` and so many bytes of images: links to one of 1 MB of noise, which is stored as it is."""
    image = io.BytesIO()
    Image.frombytes("RGB", (600, 600), random.Random(0).randbytes(600 * 600 * 3)).save(image, "PNG", compress_level=0)
    (folder / "noise.png").write_bytes(image.getvalue())
    for row in range(-(-size // len(image.getvalue()))):
        label = folder / f"images/class-{row % 10}"
        label.mkdir(parents=True, exist_ok=True)
        os.link(folder / "noise.png", label / f"{row}.png")
    (folder / "dataset.yaml").write_text(LARGE_SPEC)


@contextlib.contextmanager
def limited_worker(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Makes a program for workers, which together get `WORKER_BYTES`; gives it and their control group."""
    group, program = CGROUPS / f"recordmill-{os.getpid()}", folder / "limited-worker"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(WORKER_BYTES))
    worker = Path(sys.executable).with_name("recordmill-worker")
    program.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs\nRECORDMILL_WORKER_THREADS=1 exec {worker} "$@"\n')
    program.chmod(0o755)
    try:
        yield program, group
    finally:
        for pid in map(int, (group / "cgroup.procs").read_text().split()):  # a worker outlives its job for five seconds
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                process.kill()
                wait_until_ended([process])
        wait_until(lambda: _is_removed(group))


def _is_removed(group: Path) -> bool:
    """Removes a control group; the kernel refuses it for a moment after the end of its last process."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def write_dataset(folder: Path) -> None:
    """Writes `dataset.yaml` and its module; its gates are the folder `gates`."""
    (folder / "gates").mkdir(parents=True)
    model = Path(__file__).with_name("chat_templates") / "tokenizer.json"
    text = SPEC.replace("GATES", str(folder / "gates")).replace("MODEL", str(model))
    (folder / "dataset.yaml").write_text(text)
    (folder / "rows.py").write_text(MODULE.replace("PARTS", str(PARTS)).replace("ROWS", str(ROWS)))


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    run: Path
    address: str
    processes: dict[str, int]
    """The process ids by name: `jobmanager`, `taskmanager-1`, …"""

    @property
    def options(self) -> list[str]:
        """The options of `recordmill build` for this cluster."""
        return ["--runner", "flink", "--flink-master", self.address, "--flink-jar", str(JOB_SERVER)]

    def ask(self, path: str, method: str = "GET") -> dict[str, Any]:
        """Asks the cluster's REST interface."""
        with urlopen(Request(f"http://{self.address}/v1/{path}", method=method), timeout=30) as answer:
            return json.loads(answer.read() or b"{}")

    def jobs(self) -> dict[str, str]:
        """Gives the state of each job, the oldest first."""
        jobs = sorted(self.ask("jobs/overview")["jobs"], key=lambda job: job["start-time"])
        return {job["jid"]: job["state"] for job in jobs}

    def running(self) -> list[str]:
        """Lists the jobs that have not ended."""
        return [job for job, state in self.jobs().items() if state in RUNNING]

    def workers(self) -> list[psutil.Process]:
        """Lists the Python processes that the TaskManagers started."""
        children = []
        for name, pid in self.processes.items():
            if name.startswith("taskmanager"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    children += psutil.Process(pid).children(recursive=True)
        return children


@contextlib.contextmanager
def started(run: Path, *options: str) -> Iterator[Cluster]:
    """Starts a cluster, by default of 2 TaskManagers of 1 slot; stops it at the end of the block."""
    command = [sys.executable, str(SCRIPT)]
    start = [*command, "start", str(run), "--flink", str(FLINK), *options]
    try:
        subprocess.run(start, check=True, stdout=subprocess.PIPE)
        yield Cluster(run, **json.loads((run / "cluster.json").read_text()))
    finally:
        if (run / "cluster.json").exists():  # also where the start was interrupted
            subprocess.run([*command, "stop", str(run)], check=True)
