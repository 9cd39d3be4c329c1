"""Concurrency: this process's cores and memory, an ordered map in threads, and sockets between processes.

>>> list(in_order(abs, [-1, -2], threads=2, ahead=4))
[1, 2]
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

MEMORY, MEMORY_LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of CPU per microseconds of time


def cores() -> int:
    """The number of cores for this process, by its affinity and its container's quota; at least 1."""
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no cgroup v2, or `max`
        quota, period = map(int, CPU_QUOTA.read_text().split())
        number = min(number, -(-quota // period))
    return max(1, number)


def free_bytes() -> int:
    """The bytes of memory available to this process, by system and container; on macOS all memory, on Windows 1 TiB."""
    free = 1 << 40
    with suppress(AttributeError):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError, KeyError):
        free = min(free, 1024 * _numbers(MEMORY)["MemAvailable:"])
    with suppress(OSError, ValueError, KeyError):  # no cgroup v2, or `max`
        free = min(free, int(MEMORY_LIMIT.read_text()) - _numbers(MEMORY_LIMIT.with_name("memory.stat"))["anon"])
    return max(0, free)


def _numbers(file: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, file.read_text().splitlines())}


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int | None = None
) -> Generator[Result, None, None]:
    """Yields each item's result in order. Unlike `tf.data`, it does not keep the generator's closure alive.

    Items are taken one by one as results are consumed, at most `ahead` in flight, by default two a thread.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= (ahead or 2 * threads):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def waiting_pair() -> tuple[socket.socket, socket.socket]:
    """Makes two connected blocking sockets, also under a default timeout, which Beam sets when it logs in to GCP."""
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(True)
    return pair


def take_lock(descriptor: int, path: str | Path, folder: int | None = None) -> int | None:
    """Locks an open file; closes it and returns None if `path`, in `folder`, is locked, removed or replaced."""
    import fcntl  # not on Windows, where datasets are only read

    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path, dir_fd=folder, follow_symlinks=False)):
            return descriptor
    os.close(descriptor)
    return None
