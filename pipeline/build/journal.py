"""Follows one build and records its end, whatever it is; errors here fail no build.

The entry, without options, is a line of the output's `history.jsonl` and the source of `--metrics` (OpenMetrics). Each
file of metrics has every figure, zeros too: a push replaces what an earlier night said.
"""

import posixpath
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.build.run_options import Listener, RunOptions, Stage
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.errors import ExitCode, UserError, code_of
from recordmill.pipeline.safe_text import say
from recordmill.pipeline.sources.faults import REASONS
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base, now
from recordmill.pipeline.versions.history import BUILD, FAILED, STOPPED, Entry, new_entry, note, public_message
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
HELP = {
    "build_exit_code": "The exit code of the last build: docs/rebuilds.md.",
    "build_ended_timestamp_seconds": "When the last build ended.",
    "build_duration_seconds": "How long the last build took, by stage.",
    "build_rows": "Rows of the last build's version, by outcome.",
    "build_rejected_rows": "Rejected rows of the last build's version, by reason.",
    "build_bytes": "Bytes of the shards of the last build's version.",
    "build_spans": "Spans of the last build's version, built or kept.",
    "gate_figure": "The last build's version compared with the live one, by the gate's rule.",
    "gate_breaches": "Figures of the gate beyond their limits.",
    "live_built_timestamp_seconds": "When the live version was built.",
    "live_info": "The live version's name.",
}
"""Each metric's meaning; all are gauges, with the dataset's name as a label."""
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


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
            from recordmill.pipeline.build.context.reports import ProgressReader  # loads Arrow

            counts = ProgressReader(self._planned.progress).read()
        read = max(counts.get("read", 0), counts.get("look_read", 0))
        rejected = max(counts.get(f"{look}refused", 0) + counts.get(f"{look}dropped", 0) for look in ("", "look_"))
        return {"read": read, "written": counts.get("written", 0), "rejected": rejected}


def write_metrics(path: str, entry: Mapping[str, Any], output: str) -> str | None:
    """Writes the file, with facts of the output's live version; returns a warning if that fails."""
    live = None
    try:
        with suppress(UserError, OSError):
            live = Base.read(output).live
        write_atomically(path, to_openmetrics(entry, live).encode())
    except OSError as error:
        return f"the metrics were not written: {error}"
    return None


def of_version(published: Published) -> dict[str, Any]:
    """Returns what an entry says of a version."""
    manifest = published.manifest
    return {
        "build_key": manifest.build_key,
        "version": manifest.version,
        "rows": dict(manifest.rows),
        "rejects": dict(manifest.rejects.get("by_reason", {})),
        "bytes": manifest.bytes,
        "spans": {"built": list(published.built_spans), "kept": list(published.kept_spans)} if manifest.spans else {},
        "gate": dict(manifest.gate),
    }


@contextmanager
def measured(path: str | None, output: str, name: str) -> Iterator[dict[str, Any]]:
    """Yields an adoption's entry, and writes its metrics at the end, also after an error; warns if that fails."""
    entry = dict[str, Any](name=name, exit_code=int(ExitCode.INTERRUPTED))
    try:
        yield entry
    except Exception as error:
        entry["exit_code"] = int(code_of(error))
        raise
    finally:
        if path is not None and (warning := write_metrics(path, entry | {"ended_at": now()}, output)):
            say(warning, sys.stderr)


def to_openmetrics(entry: Mapping[str, Any], live: Manifest | None) -> str:
    """Formats an entry of the history, and facts of the live version."""
    samples: dict[str, list[str]] = {}
    for name, labels, value in _samples(entry, live):
        texts = {"dataset": entry["name"] or "", **labels}.items()
        inside = ",".join(f'{label}="{str(text).translate(ESCAPES)}"' for label, text in texts)
        samples.setdefault(name, []).append(f"recordmill_{name}{{{inside}}} {value}")
    lines = list[str]()
    for name in (name for name in HELP if name in samples):
        lines += [f"# TYPE recordmill_{name} gauge", f"# HELP recordmill_{name} {HELP[name]}", *samples[name]]
    return "\n".join([*lines, "# EOF", ""])


def _samples(entry: Mapping[str, Any], live: Manifest | None) -> Iterator[tuple[str, dict[str, str], float]]:
    yield "build_exit_code", {}, entry["exit_code"]
    if entry.get("ended_at"):
        yield "build_ended_timestamp_seconds", {}, _seconds(entry["ended_at"])
    spans = {state: len(names) for state, names in entry.get("spans", {}).items()}
    for name, label, known, figures in (
        ("build_duration_seconds", "stage", [stage.name.lower() for stage in Stage], entry.get("stages", {})),
        ("build_rows", "outcome", ("read", "written", "rejected", "duplicates"), entry.get("rows", {})),
        ("build_rejected_rows", "reason", REASONS if entry.get("version") else (), entry.get("rejects", {})),
        ("build_spans", "state", ("built", "kept"), spans),
    ):
        for what, figure in {**dict.fromkeys(known, 0), **figures}.items():
            yield name, {label: what}, figure
    yield "build_bytes", {}, entry.get("bytes") or 0
    gate = entry.get("gate") or {}
    for rule, figures in gate.get("figures", {}).items():
        for subject, figure in figures.items():
            yield "gate_figure", {"rule": rule, "subject": subject}, figure
    yield "gate_breaches", {}, len(gate.get("breaches", ()))
    if live is not None:
        if built_at := live.provenance.get("built_at"):
            yield "live_built_timestamp_seconds", {}, _seconds(built_at)
        yield "live_info", {"version": live.version}, 1


def _seconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp())
