"""Writes a build's end as OpenMetrics, for the textfile collector of Prometheus' node_exporter.

Gauges alone, which the older text format of Prometheus has too. The file is replaced as a whole.

>>> print(to_openmetrics({"name": "emoji", "exit_code": 0}, None))
# TYPE recordmill_build_exit_code gauge
# HELP recordmill_build_exit_code The exit code of the last build: docs/rebuilds.md.
recordmill_build_exit_code{dataset="emoji"} 0
# EOF
<BLANKLINE>
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from recordmill.pipeline.dataset.atomic_files import write_atomically
from recordmill.pipeline.dataset.manifest import Manifest

HELP = {
    "build_exit_code": "The exit code of the last build: docs/rebuilds.md.",
    "build_ended_timestamp_seconds": "When the last build ended.",
    "build_duration_seconds": "How long the last build took, by stage.",
    "build_rows": "Rows of the last build's version, by what became of them.",
    "build_rejected_rows": "Rejected rows of the last build's version, by reason.",
    "build_bytes": "Bytes of the shards of the last build's version.",
    "build_spans": "Spans of the last build's version, built or kept.",
    "gate_figure": "What the last build's version was compared with the live one by, by the gate's rule.",
    "gate_breaches": "Figures of the gate beyond their limits.",
    "live_built_timestamp_seconds": "When the live version was built.",
    "live_info": "The live version's name.",
}
"""Each metric's meaning; all are gauges, with the dataset's name as a label."""
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Sample = tuple[str, dict[str, str], float]


def write_metrics(path: str, entry: Mapping[str, Any], live: Manifest | None) -> str | None:
    """Writes the file; gives a warning if that fails."""
    try:
        write_atomically(path, to_openmetrics(entry, live).encode())
    except OSError as error:
        return f"the metrics were not written: {error.strerror}: {path}"
    return None


def to_openmetrics(entry: Mapping[str, Any], live: Manifest | None) -> str:
    """Formats an entry of the history, and the live version's age."""
    samples: dict[str, list[Sample]] = {}
    for name, labels, value in (*_build_samples(entry), *_gate_samples(entry), *_live_samples(live)):
        samples.setdefault(name, []).append((name, {"dataset": entry["name"] or "", **labels}, value))
    lines = [line for name in HELP if name in samples for line in _family(name, samples[name])]
    return "\n".join([*lines, "# EOF", ""])


def _build_samples(entry: Mapping[str, Any]) -> Iterator[Sample]:
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
    for state, spans in entry.get("spans", {}).items():
        yield "build_spans", {"state": state}, len(spans)


def _gate_samples(entry: Mapping[str, Any]) -> Iterator[Sample]:
    gate = entry.get("gate")
    if not gate:
        return
    for rule, figures in gate["figures"].items():
        for subject, figure in figures.items():
            yield "gate_figure", {"rule": rule, "subject": subject}, figure
    yield "gate_breaches", {}, len(gate["breaches"])


def _live_samples(live: Manifest | None) -> Iterator[Sample]:
    if live is None:
        return
    if built_at := live.provenance.get("built_at"):
        yield "live_built_timestamp_seconds", {}, _seconds(built_at)
    yield "live_info", {"version": live.version}, 1


def _family(name: str, samples: list[Sample]) -> Iterator[str]:
    yield f"# TYPE recordmill_{name} gauge"
    yield f"# HELP recordmill_{name} {HELP[name]}"
    for _, labels, value in samples:
        inside = ",".join(f'{label}="{str(text).translate(ESCAPES)}"' for label, text in labels.items())
        yield f"recordmill_{name}{{{inside}}} {value}"


def _seconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp())
