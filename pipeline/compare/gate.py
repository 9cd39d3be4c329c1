"""Compares a version with the live one, rule by rule, as `gate` in the spec limits it.

>>> verdict = judge(GatedVersion.read(live_folder, live), GatedVersion.read(folder, manifest), spec.gate)
... # doctest: +SKIP
>>> [str(check) for check in verdict.breaches]  # doctest: +SKIP
['rows_lost of train is 0.4, more than 0.1: 1,000 → 600 rows']
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.compare.counts import count_checks, spans_are_regrouped, splits_are_edited
from recordmill.pipeline.compare.distributions import distribution_checks, pixel_checks
from recordmill.pipeline.compare.figures import Check, Verdict, read_breaches
from recordmill.pipeline.compare.schema import id_checks, schema_checks
from recordmill.pipeline.compare.usual import DAYS, Usual
from recordmill.pipeline.compare.versions import GatedVersion, is_edited, with_last_spans, with_new_spans
from recordmill.pipeline.dataset.manifest import Location, Manifest, read_manifest, version_folder
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.versions.candidates import Judge, Judgement, publishes_all
from recordmill.pipeline.versions.stores.open_store import open_location

if TYPE_CHECKING:
    from recordmill.pipeline.spec.gate import Gate
    from recordmill.pipeline.spec.model import Spec


def judge(before: GatedVersion, after: GatedVersion, gate: "Gate") -> Verdict:
    """Compares a version with the live one.

    Args:
        before: the live version.
        after: the one that is to follow it.
        gate: the limits.
    """
    usual, rows = (
        _usual(before, gate),
        {name: after.manifest.spans[name].rows.get("written", 0) for name in after.spans},
    )
    checks = [*count_checks(before.manifest, after.manifest, gate), *schema_checks(before, after, gate)]
    checks += [check for span, count in rows.items() for check in usual.row_checks(span, count, gate)]
    not_compared, damaged = list(_unprofiled(before, after)), list(_faults(before, after))
    edited = [name for name in before.manifest.features if is_edited(before.options(name), after.options(name))]
    if edited:
        not_compared.append(f"{', '.join(edited)}: the spec's options were edited")
    for name in (name for name in before.manifest.features if name in after.manifest.features and name not in edited):
        try:
            checks += _feature(name, before, after, gate)
        except DatasetError as error:
            damaged.append(f"{name}: {error}")
    if damaged:  # what is not judged must not go live by itself
        detail = f"{'; '.join(damaged)}; see `recordmill verify`"
        checks.append(Check("not_compared", "features", len(damaged), 0.0, detail))
    checks = list(map(usual.applied, checks))
    kept = usual.after([check for check in checks if check.span], rows).to_json() if after.manifest.spans else {}
    return Verdict(before.manifest.version, tuple(checks), tuple(not_compared), kept)


def _usual(before: GatedVersion, gate: "Gate") -> Usual:
    """Gives the figures that new spans usually have; where none are known, those of the live version's last spans."""
    known = Usual.of(before.manifest)
    checks, is_whole = list[Check](), known.is_whole or bool(before.spans and before.profiles)
    for name in before.manifest.features if before.spans else ():
        try:
            checks += [check for check in _feature(name, before, before, gate) if check.span]
        except DatasetError:  # the comparison itself says so
            is_whole = False
    return replace(known, is_whole=is_whole).after(checks, {})


def _faults(before: GatedVersion, after: GatedVersion) -> Iterator[str]:
    """Says which version's files of counts are damaged."""
    for version in (before, after):
        if version.fault:
            yield f"{version.manifest.version} is damaged: {version.fault}"


def _unprofiled(before: GatedVersion, after: GatedVersion) -> Iterator[str]:
    """Says why values, splits or duplicates are not compared."""
    if before.fault or after.fault:
        return
    if before.profiles is None or after.profiles is None:
        yield "values of features: the live version has no profile, as an earlier Recordmill built it"
    elif splits_are_edited(before.manifest, after.manifest):
        yield "splits: the spec's `splits` or `split_by` were edited"
    if spans_are_regrouped(before.manifest, after.manifest):
        yield "duplicates and leakage: they are counted within spans, some of which `--compact` put together"


def _feature(name: str, before: GatedVersion, after: GatedVersion, gate: "Gate") -> Iterator[Check]:
    if gate.features.get(name) is False:
        return
    yield from id_checks(name, before, after, gate)
    yield from pixel_checks(name, before, after, gate)
    if not splits_are_edited(before.manifest, after.manifest):
        for split in before.manifest.splits:
            yield from distribution_checks(name, split, before, after, gate)


def judge_of(spec: "Spec", output: str, folder: Location, manifest: Manifest) -> Judge:
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
        if not Usual.of(before.manifest).is_whole:
            before = with_last_spans(before, DAYS)
        after = with_new_spans(GatedVersion.read(folder, manifest), before.manifest)
        verdict = judge(before, after, gate)
        return Judgement(verdict.to_json(), tuple(map(str, verdict.breaches)))

    return judged


def breach_lines(gate: Mapping[str, Any]) -> tuple[str, ...]:
    """Gives the breaches of a manifest's `gate`, a line each."""
    return tuple(map(str, read_breaches(gate)))
