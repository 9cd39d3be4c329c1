"""Measures a command: CPU seconds of its whole process tree, wall seconds, and the tree's peak memory.

measure(["sleep", "1"]).wall  # 1.0 or a little more
"""

import importlib.metadata
import os
import platform
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
SAMPLE_SECONDS = 0.05
LOG_BYTES = 2000  # of a failed command's output are shown


@dataclass(frozen=True)
class Usage:
    """What a command used: itself and every descendant that was waited for."""

    cpu: float
    """User and system seconds."""
    wall: float
    """Seconds."""
    peak: int = 0
    """Bytes of memory; 0 where it was not sampled."""
    anonymous: int = 0
    """Bytes of memory without mapped files: TensorFlow's libraries count in `peak`, by how many processes map them."""


class PeakMemory(threading.Thread):
    """Samples the memory of a process tree, shared pages counted once, every 50 ms: all of it, and the anonymous."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = self.anonymous = 0
        self._pid = pid
        self._done = threading.Event()

    def run(self) -> None:
        """Samples until it is stopped."""
        while not self._done.wait(SAMPLE_SECONDS):
            all_, anonymous = tree_bytes(self._pid)
            self.peak, self.anonymous = max(self.peak, all_), max(self.anonymous, anonymous)

    def stop(self) -> None:
        """Ends the sampling."""
        self._done.set()
        self.join()


def tree_bytes(pid: int) -> tuple[int, int]:
    """Sums the bytes (PSS) of a process and its descendants, and the anonymous ones; those that just ended count 0."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    sums: Counter[str] = Counter()
    for process in processes:
        with suppress(OSError):  # it ended
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
                name, kibibytes, _ = line.split()
                sums[name] += int(kibibytes) << 10
    return sums["Pss:"], sums["Pss_Anon:"]


def table(title: str, header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Prints a Markdown table."""
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    print(f"\n### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines), flush=True)


def machine(packages: Iterable[str]) -> str:
    """Names the cores, the processor, Python and the versions of packages."""
    facts = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next((line.partition(":")[2].strip() for line in facts if line.startswith("model name")), "?")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{os.cpu_count()} cores of {processor}; Python {platform.python_version()}, {versions}."


def measure(command: Sequence[str | Path], memory: bool = False) -> Usage:
    """Runs a command in the project's folder and waits for it.

    Sampling the memory costs CPU: it is left out unless asked for.

    Raises:
        RuntimeError: the command failed; the message ends with its last output.
    """
    with tempfile.TemporaryFile() as log:
        started = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), cwd=ROOT, stdout=log, stderr=log)
        sampler = PeakMemory(process.pid) if memory else None
        if sampler:
            sampler.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if sampler:
            sampler.stop()
        if process.returncode:
            log.seek(max(0, log.tell() - LOG_BYTES))
            tail = log.read().decode(errors="replace")
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{tail}")
    memory_used = (sampler.peak, sampler.anonymous) if sampler else (0, 0)
    return Usage(used.ru_utime + used.ru_stime, wall, *memory_used)
