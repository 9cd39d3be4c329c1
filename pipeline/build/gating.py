"""Brings the gate to a build: judges its version against whichever one is live when it is published."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from recordmill.pipeline.dataset.arrow_tables import read_table
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import Location, Manifest, read_manifest, version_folder
from recordmill.pipeline.dataset.profile import by_split
from recordmill.pipeline.dataset.safe_paths import read_inner
from recordmill.pipeline.dataset.span_report import MOST_BYTES, read_report
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.gate.checks import read_breaches
from recordmill.pipeline.gate.compared import GatedVersion, SpanProfile
from recordmill.pipeline.gate.gate import judge
from recordmill.pipeline.gate.usual import DAYS, Usual
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.candidates import Judge, Judgement, publishes_all
from recordmill.pipeline.versions.stores.open_store import open_location

PIXELS = "summaries/pixels/"
SUMS = ("images", "pixels", "total", "squares")
"""The columns of a span's sums of pixels, by feature, channel and level."""


def judge_of(spec: Spec, output: str, folder: Location, manifest: Manifest) -> Judge:
    """Gives the judge of a version, which lies in a folder of its own or is still assembled there.

    A live version without a readable manifest cannot be compared with, and is no reason to publish none: the figures
    say so. Where a file of either version is damaged, they are compared as far as it goes, and this one is held back.
    """
    gate = spec.gate
    if gate is False:
        return publishes_all

    def judged(live: str) -> Judgement:
        try:
            live_folder = version_folder(open_location(output), live)
            before = GatedVersion.read(live_folder, read_manifest(live_folder))
        except DatasetError as error:
            return Judgement({"live": live, "figures": {}, "breaches": [], "not_compared": [str(error)]}, ())
        with suppress(DatasetError):  # then the limits alone decide, and the next version looks for them again
            last = _last_spans(before.manifest)
            before = replace(before, spans={name: _profile(live_folder, before.manifest, name) for name in last})
        after = _with_new_spans(GatedVersion.read(folder, manifest), before.manifest)
        verdict = judge(before, after, gate)
        return Judgement(verdict.to_json(), tuple(map(str, verdict.breaches)))

    return judged


def _with_new_spans(version: GatedVersion, live: Manifest) -> GatedVersion:
    """Adds the spans whose rows the live version lacks; those that are damaged have no values, and make a fault."""
    spans, faults = dict[str, SpanProfile](), [version.fault] if version.fault else []
    for name in _new_spans(live, version.manifest):
        try:
            spans[name] = _profile(version.folder, version.manifest, name)
        except DatasetError as error:
            spans[name] = SpanProfile({})
            faults.append(str(error))
    return replace(version, spans=spans, fault="; ".join(faults))


def _new_spans(live: Manifest, manifest: Manifest) -> list[str]:
    """Names the spans whose rows the live version lacks; none where it has no span of this version."""
    known = {key for span in live.spans.values() for key in (span.key, *span.members.values())}
    new = [name for name, span in manifest.spans.items() if not known.issuperset(span.members.values() or [span.key])]
    return new if len(new) < len(manifest.spans) else []


def _last_spans(live: Manifest) -> list[str]:
    """Names the live version's last spans, where it does not keep what is usual for a new one."""
    names = [name for name, span in live.spans.items() if not span.members]
    return [] if Usual.of(live).is_whole else names[-DAYS:]


def _profile(folder: Location, manifest: Manifest, span: str) -> SpanProfile:
    """Reads the profile of a span. Raises: DatasetError: its report or its sums are broken."""
    path = span_file(span, REPORT)
    try:
        profiles = by_split(filter(None, read_report(read_inner(folder, path, MOST_BYTES))["shards"]))
        return SpanProfile(profiles, _pixels(folder, manifest, span_file(span, PIXELS)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{folder / path} is broken ({error}): build again") from None


def _pixels(folder: Location, manifest: Manifest, sums: str) -> dict[str, dict[str, Any]]:
    """Gives `mean` and `variance` by channel, and the number of `images`, of the images whose pixels were added up."""
    totals = dict[str, dict[int, list[int]]]()
    for path in (path for path in manifest.files if path.startswith(sums)):
        for row in read_table(folder, path, read_inner(folder, path, MOST_BYTES)).to_pylist():
            total = totals.setdefault(row["feature"], {}).setdefault(row["channel"], [0, 0, 0, 0])
            total[:] = [old + row[name] for old, name in zip(total, SUMS, strict=True)]
    return {name: _moments([total for _, total in sorted(channels.items())]) for name, channels in totals.items()}


def _moments(channels: list[list[int]]) -> dict[str, Any]:
    counted = [(pixels or 1, total, squares) for _, pixels, total, squares in channels]
    variance = [(squares * count - total**2) / count**2 for count, total, squares in counted]
    return {"mean": [total / count for count, total, _ in counted], "variance": variance, "images": channels[0][0]}


def breach_lines(gate: Mapping[str, Any]) -> tuple[str, ...]:
    """Gives the breaches of a manifest's `gate`, a line each."""
    return tuple(map(str, read_breaches(gate)))
