"""Writes the metrics of a build's end (OpenMetrics) from its entry in the history, for `--metrics`.

Each file has every figure, zeros too: a push replaces what an earlier night said.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from recordmill.pipeline.build.run_options import Stage
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.errors import ExitCode, UserError, code_of
from recordmill.pipeline.safe_text import say
from recordmill.pipeline.sources.faults import REASONS
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.latest import now
from recordmill.pipeline.versions.publishing import Published

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
Sample = tuple[str, dict[str, str], float]


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
        if path is not None:
            if warning := write_metrics(path, entry | {"ended_at": now()}, output):
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


def _samples(entry: Mapping[str, Any], live: Manifest | None) -> Iterator[Sample]:
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
