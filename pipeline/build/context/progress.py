"""The progress of a build: each step keeps a small cumulative counter file, the driver adds them up.

Works on every runner, none of which reports rows before it is done.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping

from recordmill.pipeline.build.context.workspace import Workspace, read_all

SECONDS = 0.3  # between two writes of a counter's file


class Progress:
    """The counters of one step at work, such as one chunk or one shard; a repeated step overwrites its own file."""

    def __init__(self, workspace: Workspace, step: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._workspace, self._name, self._clock = workspace, f"{step}.json", clock
        self._counts: Counter[str] = Counter()
        self._written = 0.0

    def add(self, **counts: int) -> None:
        """Adds to the counters, and writes them if the last time was long enough ago."""
        self._counts.update(counts)
        if self._clock() - self._written > max(SECONDS, self._workspace.pause):
            self.write()

    def write(self) -> None:
        """Replaces the file, which is no more than a display."""
        self._written = self._clock()
        self._workspace.write(self._name, json.dumps(self._counts).encode(), durable=False)


class ProgressReader:
    """Adds up the counters of all steps; a file that has not changed is not read again."""

    def __init__(self, workspace: Workspace, clock: Callable[[], float] = time.monotonic) -> None:
        self._workspace, self._clock, self._looked = workspace, clock, -workspace.pause
        self._stamps: dict[str, Hashable] = {}
        self._counts: dict[str, Mapping[str, int]] = {}

    def read(self) -> Mapping[str, int]:
        """Returns the sums of all counters by name."""
        if self._clock() - self._looked >= self._workspace.pause:
            self._looked = self._clock()
            self._look()
        total: Counter[str] = Counter()
        for counts in self._counts.values():
            total.update(counts)
        return total

    def _look(self) -> None:
        stamps = {name: stamp for name, stamp in self._workspace.stamps("").items() if name.endswith(".json")}
        changed = [name for name, stamp in stamps.items() if self._stamps.get(name) != stamp]
        for name, data in read_all(self._workspace, changed):
            if data is not None:  # else the next look finds it
                self._counts[name], self._stamps[name] = json.loads(data), stamps[name]
