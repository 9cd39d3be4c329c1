"""Makers of batches for the tests of worker processes, which import this module and little else."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.metrics import Counters
from recordmill.transforms.base.buffers import BatchMemory
from recordmill.transforms.base.stored import Ragged

LARGE = 1 << 18  # int64 values of an array that lies in shared memory: 2 MiB


class Pids:
    """The process that makes a batch; others are ready, or end, as soon as a file says so."""

    def __init__(self, file: Path, ends: bool = False) -> None:
        self._file, self._ends = file, ends

    def __reduce__(self) -> Any:
        return _when_said, (self._file, self._ends)

    def __call__(self, step: int) -> int:
        return os.getpid()


def _when_said(file: Path, ends: bool) -> Pids:
    while not file.exists():
        time.sleep(0.01)
    if ends:
        os._exit(3)
    return Pids(file)


class ManyThings:
    """Batches of everything that a batch may hold, small and large, of `BatchMemory` and not."""

    def __init__(self) -> None:
        self._memory: BatchMemory | None = None

    def __call__(self, step: int) -> Any:
        self._memory = self._memory or BatchMemory()
        pooled = self._memory.empty((LARGE,), np.int64)
        pooled[:] = step + np.arange(LARGE)
        strings = np.array([b"a" * step, b"\xff"], object)
        features = {
            "pooled": pooled,
            "view": pooled[100 : 100 + LARGE // 2].reshape(2, -1),
            "strided": pooled[::2],
            "other": np.full((LARGE,), step, np.float32),
            "small": np.array([step], np.int64),
            "empty": np.zeros((0, 4), np.float32),
            "ragged": Ragged(np.arange(step), np.array([0, step])),
            "strings": strings,
            "nothing": None,
        }
        return features, np.float64(step)


class Each:
    """What `name` says, with the step."""

    def __init__(self, name: str, at: int = 3) -> None:
        self.name, self.at = name, at
        self.counters = Counters()

    def __call__(self, step: int) -> Any:
        return getattr(self, self.name)(step)

    def modules(self, step: int) -> list[str]:
        self.counters.add({"skipped": step})
        return sorted({name.partition(".")[0] for name in sys.modules})

    def process(self, step: int) -> int:
        return os.getpid()

    def large(self, step: int) -> Any:
        return np.full(LARGE, step)

    def uneven(self, step: int) -> tuple[int, int]:
        time.sleep(0.02 * (step % 3))
        return step, os.getpid()

    def fails(self, step: int) -> int:
        if step == self.at:
            raise Damaged(f"record {step} is damaged")
        return step

    def breaks(self, step: int) -> int:
        return [0, 1, 2][step]

    def is_odd(self, step: int) -> None:
        raise Odd(1, 2)

    def is_killed(self, step: int) -> int:
        if step == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return step

    def waits(self, step: int) -> int:
        time.sleep(step)
        return os.getpid()

    def exits(self, step: int) -> int:
        if step == self.at:
            os._exit(3)
        return step


class Damaged(DatasetError):
    """An error of the user's kind."""


class Odd(Exception):
    """An exception that pickles and cannot be made again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one}, {two}")
