"""Counts the cores that this process may use."""

import os
from contextlib import suppress
from pathlib import Path

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of CPU, and in how many of time


def cores() -> int:
    """The number of cores that this process may use, by its affinity and its container's quota; 1 or more."""
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no cgroup v2, or `max`
        quota, period = map(int, CPU_QUOTA.read_text().split())
        number = min(number, -(-quota // period))
    return max(1, number)
