"""Follows one build and records its end, whatever it is; errors here fail no build.

The entry, without options, is a line of the output's `history.jsonl` and the source of `--metrics`.
"""

import posixpath
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from recordmill.pipeline.build.context.reports import ProgressReader
from recordmill.pipeline.build.metrics import of_version, write_metrics
from recordmill.pipeline.build.run_options import Listener, RunOptions, Stage
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.history import BUILD, FAILED, STOPPED, Entry, new_entry, note, public_message
from recordmill.pipeline.versions.latest import now
from recordmill.pipeline.versions.publishing import Published

if TYPE_CHECKING:
    from recordmill.pipeline.build.context.build_context import PlannedBuild
    from recordmill.pipeline.build.plan.plan import BuildPlan

ENDS = {
    ExitCode.PUBLISHED: "published",
    ExitCode.UP_TO_DATE: "up_to_date",
    ExitCode.GATE: "held_back",
    ExitCode.INTERRUPTED: STOPPED,
    ExitCode.TERMINATED: STOPPED,
}
"""The end by exit code; all others are `failed`."""
DRY_RUN = "dry_run"


class Journal:
    """Follows one build by its listener, and records its end, once."""

    def __init__(self, output: str, options: RunOptions) -> None:
        self._output, self._options = output, options
        self._began = self._since = time.monotonic()
        self._stage: Stage = Stage.PLAN
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._planned: PlannedBuild | None = None
        self._once = threading.Lock()
        self.entry: Entry = new_entry(BUILD) | {
            **dict.fromkeys(("exit_code", "name", "build_key", "version", "live_before", "bytes")),
            **{name: {} for name in ("stages", "rows", "rejects", "spans", "gate")},
            "runner": options.runner,
        }

    def follow(self, listener: Listener, name: str) -> Listener:
        """Returns a listener that records the build of a dataset of this name, and calls `listener`."""
        self.entry["name"] = name
        with suppress(UserError):
            self.entry["live_before"] = publishing.live_version(self._output)

        def on_plan(plan: "BuildPlan", planned: "PlannedBuild") -> None:
            self._planned = planned
            self.entry["build_key"] = plan.build_key
            self._begin(Stage.LOOK)
            note(self._output, lambda: self.entry)
            listener.on_plan(plan, planned)

        def on_stage(stage: str) -> None:
            if isinstance(stage, Stage):
                self._begin(stage)
            if stage is Stage.PLAN and self.entry["live_before"]:  # it holds the lease; another output may stay empty
                note(self._output, lambda: self.entry)
            listener.on_stage(stage)

        return replace(listener, on_plan=on_plan, on_stage=on_stage)

    def end(self, exit_code: ExitCode, message: str | None = None, published: Published | None = None) -> list[str]:
        """Records the build's end, its error or version, at the first call; returns warnings of failed writes."""
        if not self._once.acquire(blocking=False):
            return []
        self._begin(self._stage)
        if self.entry["name"] is None:
            self.entry["name"] = posixpath.basename(self._output.rstrip("/"))
            with suppress(UserError, OSError):
                self.entry["name"] = getattr(Base.read(self._output).live, "name", self.entry["name"])
        self.entry |= {
            "end": DRY_RUN if published is None and exit_code is ExitCode.PUBLISHED else ENDS.get(exit_code, FAILED),
            "exit_code": int(exit_code),
            "message": message and public_message(message),
            "ended_at": now(),
            "seconds": round(time.monotonic() - self._began, 3),
            "stages": {name: round(seconds, 3) for name, seconds in self._seconds.items()},
        }
        self.entry |= of_version(published) if published else {"rows": self._rows_so_far()}
        warnings = [note(self._output, lambda: self.entry)]
        if self._options.metrics is not None:
            warnings.append(write_metrics(self._options.metrics, self.entry, self._output))
        return [warning for warning in warnings if warning and not (message and warning.endswith(message))]

    def _begin(self, stage: Stage) -> None:
        now = time.monotonic()
        self._seconds[self._stage.name.lower()] += now - self._since
        self._stage, self._since = stage, now

    def _rows_so_far(self) -> dict[str, int]:
        if self._planned is None:
            return {}
        counts: Mapping[str, int] = {}
        with suppress(Exception):  # the folder may be gone
            counts = ProgressReader(self._planned.progress).read()
        read = max(counts.get("read", 0), counts.get("look_read", 0))
        rejected = max(counts.get(f"{look}refused", 0) + counts.get(f"{look}dropped", 0) for look in ("", "look_"))
        return {"read": read, "written": counts.get("written", 0), "rejected": rejected}
