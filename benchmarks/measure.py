"""Measures a command: CPU seconds of its whole process tree, wall seconds, and the tree's peak memory.

measure(["sleep", "1"]).wall  # 1.0 or a little more
"""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
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


class PeakMemory(threading.Thread):
    """Samples the memory of a process tree, shared pages counted once (PSS), every 50 ms."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._pid = pid
        self._done = threading.Event()

    def run(self) -> None:
        """Samples until it is stopped."""
        while not self._done.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, tree_bytes(self._pid))

    def stop(self) -> int:
        """Ends the sampling and gives the peak in bytes."""
        self._done.set()
        self.join()
        return self.peak


def tree_bytes(pid: int) -> int:
    """Sums the PSS of a process and its descendants, in bytes; those that just ended count 0."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


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
        peak = sampler.stop() if sampler else 0
        if process.returncode:
            log.seek(max(0, log.tell() - LOG_BYTES))
            tail = log.read().decode(errors="replace")
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{tail}")
    return Usage(used.ru_utime + used.ru_stime, wall, peak)
