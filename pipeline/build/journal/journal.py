"""Follows one build and writes down its end, whatever it is; nothing here makes a build fail.

The entry is one JSON object: a line of the output's `history.jsonl`, and the source of `--metrics`. It holds no secrets
of URLs, no options, and of an error in a user's function only its type.

>>> journal = Journal("out/emoji", options)                                                # doctest: +SKIP
>>> published = run(spec, "out/emoji", options, journal.follow(Listener(), "emoji"))  # doctest: +SKIP
>>> journal.end(published.exit_code, published=published)                             # doctest: +SKIP
[]
"""

import os
import re
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recordmill.pipeline import VERSION
from recordmill.pipeline.build.context.reports import ProgressReader
from recordmill.pipeline.build.journal.metrics import write_metrics
from recordmill.pipeline.build.outcome import Published
from recordmill.pipeline.build.run_options import Listener, RunOptions, Stage
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode
from recordmill.pipeline.safe_text import redacted
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.history import RUNNING, Entry, write_entry

if TYPE_CHECKING:
    from recordmill.pipeline.build.context.build_context import PlannedBuild
    from recordmill.pipeline.build.plan import BuildPlan

ENDS = {
    ExitCode.PUBLISHED: "published",
    ExitCode.UP_TO_DATE: "up_to_date",
    ExitCode.GATE: "held_back",
    ExitCode.INTERRUPTED: "stopped",
    ExitCode.TERMINATED: "stopped",
}
"""The end by the exit code; any other is `failed`."""
DRY_RUN, TRIAL = "dry_run", "trial"
PATIENCE_SECONDS = 30.0
"""The time for the history: a signal may have interrupted the thread that holds the output's lock."""
MOST_MESSAGE = 1000  # characters
OWN_WORDS = re.compile(r"(`[^`]+` failed[^:]*: \w+): .*", re.DOTALL)
"""The message of a user's function, after its exception's type: no log holds it (docs/security.md)."""


class Journal:
    """Follows one build by its listener, and writes down its end, once."""

    def __init__(self, output: str, options: RunOptions) -> None:
        self._output, self._options = output, options
        self._began = self._since = time.monotonic()
        self._stage: Stage = Stage.PLAN
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._planned: PlannedBuild | None = None
        self._once = threading.Lock()
        self.entry: Entry = {
            "id": secrets.token_hex(8),
            "end": RUNNING,
            "exit_code": None,
            "message": None,
            "began_at": _now(),
            "ended_at": None,
            "seconds": None,
            "stages": {},
            "name": None,
            "build_key": None,
            "version": None,
            "live_before": None,
            "rows": {},
            "rejects": {},
            "bytes": None,
            "spans": {},
            "gate": {},
            "runner": options.runner,
            "recordmill": VERSION,
            "host": socket.gethostname(),
            "process": os.getpid(),
        }

    def follow(self, listener: Listener, name: str) -> Listener:
        """Gives a listener that follows the build of a dataset of this name, and calls another listener."""
        self.entry["name"] = name
        with suppress(UserError):
            self.entry["live_before"] = publishing.live_version(self._output)

        def on_plan(plan: "BuildPlan", planned: "PlannedBuild") -> None:
            self._planned = planned
            self.entry["build_key"] = plan.build_key
            self._begin(Stage.LOOK)
            self._write_history()
            listener.on_plan(plan, planned)

        def on_stage(stage: str) -> None:
            if isinstance(stage, Stage):
                self._begin(stage)
            listener.on_stage(stage)

        return replace(listener, on_plan=on_plan, on_stage=on_stage)

    def end(self, exit_code: ExitCode, message: str | None = None, published: Published | None = None) -> list[str]:
        """Writes down the build's end: history and metrics. Only the first call counts.

        Args:
            exit_code: that of the command.
            message: the error, as the user sees it.
            published: the build's version, if it came to one.

        Returns:
            A warning for each that could not be written.
        """
        if not self._once.acquire(blocking=False):
            return []
        live = _live(self._output) if self._options.metrics is not None or self.entry["name"] is None else None
        self._begin(self._stage)
        self.entry |= {
            "end": DRY_RUN if published is None and exit_code is ExitCode.PUBLISHED else ENDS.get(exit_code, "failed"),
            "exit_code": int(exit_code),
            "name": self.entry["name"] or (live and live.name),  # of a spec that cannot be read
            "message": message and public_message(message),
            "ended_at": _now(),
            "seconds": round(time.monotonic() - self._began, 3),
            "stages": {name: round(seconds, 3) for name, seconds in self._seconds.items()},
        }
        if published is not None and published.manifest.trial:
            self.entry["end"] = TRIAL
        self.entry |= _of_version(published) if published else {"rows": self._rows_so_far()}
        warnings = [self._write_history()]
        if self._options.metrics is not None:
            warnings.append(write_metrics(self._options.metrics, self.entry, live))
        return [warning for warning in warnings if warning]

    def _begin(self, stage: Stage) -> None:
        now = time.monotonic()
        self._seconds[self._stage.name.lower()] += now - self._since
        self._stage, self._since = stage, now

    def _write_history(self) -> str | None:
        """Writes this build's line of the history; gives a warning if that fails."""
        return within(PATIENCE_SECONDS, "the history", lambda: write_entry(self._output, self.entry))

    def _rows_so_far(self) -> dict[str, int]:
        """The rows of a build that did not come to its end, as its counters have them."""
        if self._planned is None:
            return {}
        counts: dict[str, int] = {}
        with suppress(Exception):  # the folder may be gone
            counts = dict(ProgressReader(self._planned.progress).read())
        read = max(counts.get("read", 0), counts.get("look_read", 0))
        rejected = max(counts.get(f"{look}refused", 0) + counts.get(f"{look}dropped", 0) for look in ("", "look_"))
        return {"read": read, "written": counts.get("written", 0), "rejected": rejected}


def public_message(message: str) -> str:
    """Gives the part of an error's message that may be kept.

    >>> public_message("`code:words` failed in code.py, line 3: ValueError: Ada's address")
    '`code:words` failed in code.py, line 3: ValueError'
    """
    return OWN_WORDS.sub(r"\1", redacted(message))[:MOST_MESSAGE]


def within(seconds: float, what: str, write: Callable[[], object]) -> str | None:
    """Calls a function in a thread of its own; gives a warning if it fails or takes too long."""
    warnings = [f"{what} was not written within {seconds:.0f} seconds"]

    def call() -> None:
        try:
            write()
            warnings.clear()
        except (UserError, OSError) as error:
            warnings[:] = [f"{what} was not written: {error}"]
        except Exception as error:  # never the end of a build
            warnings[:] = [f"{what} was not written: {type(error).__name__}"]

    thread = threading.Thread(target=call, name=what, daemon=True)
    thread.start()
    thread.join(seconds)
    return warnings[0] if warnings else None


def _of_version(published: Published) -> dict[str, Any]:
    manifest = published.manifest
    return {
        "build_key": manifest.build_key,
        "version": manifest.version,
        "rows": dict(manifest.rows),
        "rejects": dict(manifest.rejects.get("by_reason", {})),
        "bytes": sum(split.bytes for split in manifest.splits.values()),
        "spans": {"built": list(published.built_spans), "kept": list(published.kept_spans)} if manifest.spans else {},
        "gate": dict(manifest.gate),
    }


def _live(output: str) -> Manifest | None:
    with suppress(UserError, OSError):
        return publishing.live_manifest(output)
    return None


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
