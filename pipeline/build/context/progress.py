"""The progress of a build: each step keeps a small cumulative counter file, the driver adds them up.

Works in every local mode, where the runner reports nothing before it is done.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from recordmill.pipeline.dataset.atomic_files import attempt_name

SECONDS = 0.3  # between two writes of a counter's file


class Progress:
    """The counters of one step at work, such as one chunk or one shard; a repeated step overwrites its own file."""

    def __init__(self, folder: str, step: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = os.path.join(folder, f"{step}.json"), clock
        self._counts: Counter[str] = Counter()
        self._written = 0.0

    def add(self, **counts: int) -> None:
        """Adds to the counters, and writes them if the last time was long enough ago."""
        self._counts.update(counts)
        if self._clock() - self._written > SECONDS:
            self.write()

    def write(self) -> None:
        """Replaces the file; without fsync, since it is no more than a display."""
        self._written = self._clock()
        temporary = attempt_name(self._path)
        Path(temporary).write_text(json.dumps(self._counts))
        os.replace(temporary, self._path)


class ProgressReader:
    """Adds up the counters of all steps; a file that has not changed is not read again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[tuple[int, int], dict[str, int]]] = {}

    def read(self) -> Mapping[str, int]:
        """Gives the sums of all counters by name."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".json"):
                    self._update(entry)
        total: Counter[str] = Counter()
        for _, counts in self._seen.values():
            total.update(counts)
        return total

    def _update(self, entry: "os.DirEntry[str]") -> None:
        try:
            status = entry.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if self._seen.get(entry.name, (None, {}))[0] != stamp:
                self._seen[entry.name] = (stamp, json.loads(Path(entry.path).read_bytes()))
        except FileNotFoundError:
            return  # replaced between listing and reading: the next look finds it
