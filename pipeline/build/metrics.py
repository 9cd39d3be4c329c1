"""Writes the metrics of a build's end (OpenMetrics) from its entry in the history, for `--metrics`."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.versions.stores.traffic import ASKED

HELP = {
    "build_exit_code": "The exit code of the last build: docs/rebuilds.md.",
    "build_ended_timestamp_seconds": "When the last build ended.",
    "build_duration_seconds": "How long the last build took, by stage.",
    "build_rows": "Rows of the last build's version, by outcome.",
    "build_rejected_rows": "Rejected rows of the last build's version, by reason.",
    "build_bytes": "Bytes of the shards of the last build's version.",
    "build_store_requests": "Requests of the last build to object stores, by kind.",
    "build_store_bytes": "Bytes sent to object stores and received, by kind.",
    "build_store_retries": "Retried requests, by kind.",
    "build_store_milliseconds": "Milliseconds of all requests together, by kind.",
    "build_spans": "Spans of the last build's version, built or kept.",
    "gate_figure": "The last build's version compared with the live one, by the gate's rule.",
    "gate_breaches": "Figures of the gate beyond their limits.",
    "live_built_timestamp_seconds": "When the live version was built.",
    "live_info": "The live version's name.",
}
"""Each metric's meaning; all are gauges, with the dataset's name as a label."""
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Sample = tuple[str, dict[str, str], float]


def write_metrics(path: str, entry: Mapping[str, Any], live: Manifest | None) -> str | None:
    """Writes the file; returns a warning if that fails."""
    try:
        write_atomically(path, to_openmetrics(entry, live).encode())
    except OSError as error:
        return f"the metrics were not written: {error}"
    return None


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


def _samples(entry: Mapping[str, Any], live: Manifest | None) -> Iterator[Sample]:
    yield "build_exit_code", {}, entry["exit_code"]
    if entry.get("ended_at"):
        yield "build_ended_timestamp_seconds", {}, _seconds(entry["ended_at"])
    for stage, seconds in entry.get("stages", {}).items():
        yield "build_duration_seconds", {"stage": stage}, seconds
    for outcome, rows in entry.get("rows", {}).items():
        yield "build_rows", {"outcome": outcome}, rows
    for reason, rows in entry.get("rejects", {}).items():
        yield "build_rejected_rows", {"reason": reason}, rows
    if entry.get("bytes") is not None:
        yield "build_bytes", {}, entry["bytes"]
    for kind, counts in entry.get(ASKED, {}).items():
        for what, count in counts.items():
            yield f"build_store_{what}", {"kind": kind}, count
    for state, spans in entry.get("spans", {}).items():
        yield "build_spans", {"state": state}, len(spans)
    if gate := entry.get("gate"):
        for rule, figures in gate["figures"].items():
            for subject, figure in figures.items():
                yield "gate_figure", {"rule": rule, "subject": subject}, figure
        yield "gate_breaches", {}, len(gate["breaches"])
    if live is not None:
        if built_at := live.provenance.get("built_at"):
            yield "live_built_timestamp_seconds", {}, _seconds(built_at)
        yield "live_info", {"version": live.version}, 1


def _seconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp())
