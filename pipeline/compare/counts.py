"""Rules on counts: rows lost and gained, rejects, duplicates, leakage."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.compare.figures import Check, rise
from recordmill.pipeline.compare.versions import is_edited
from recordmill.pipeline.dataset.manifest import Manifest

if TYPE_CHECKING:
    from recordmill.pipeline.spec.gate import Gate


SPLITTING = ("splits", "split_by")
"""The options that decide which rows a split has."""


def count_checks(before: Manifest, after: Manifest, gate: "Gate") -> Iterator[Check]:
    """Compares the counts of two versions."""
    yield from _records("all", _all(before), _all(after), gate)
    if not splits_are_edited(before, after):
        for name, split in before.splits.items():
            others = after.splits.get(name)
            yield from _records(name, _rows(split), 0 if others is None else _rows(others), gate)
    rejected, read = ([version.rows.get(what, 0) for version in (before, after)] for what in ("rejected", "read"))
    yield from rise("rejects", "all", rejected, read, gate.rejects, gate.min_rows, "rows")
    if "exact" in before.duplicates and "exact" in after.duplicates and not spans_are_regrouped(before, after):
        records = (_all(before), _all(after))
        for rule, count in (("duplicates", _within), ("leakage", _across)):
            both = [count(version.duplicates) for version in (before, after)]
            yield from rise(rule, "all", both, records, getattr(gate, rule), gate.min_rows, "records")


def spans_are_regrouped(before: Manifest, after: Manifest) -> bool:
    """Whether one of two versions puts spans together that the other does not: duplicates are counted within each."""
    old, new = ([sorted(span.members) for span in each.spans.values() if span.members] for each in (before, after))
    return old != new


def splits_are_edited(before: Manifest, after: Manifest) -> bool:
    """Whether a person changed which rows a split has."""
    old, new = ({name: version.spec.get(name) for name in SPLITTING} for version in (before, after))
    return is_edited(old, new)


def _rows(split: Any) -> int:
    """Gives the rows of a split: its records, or the documents that they hold."""
    return int(split.records if split.documents is None else split.documents)


def _all(manifest: Manifest) -> int:
    return sum(map(_rows, manifest.splits.values()))


def _records(subject: str, before: int, after: int, gate: "Gate") -> Iterator[Check]:
    is_judged = before >= gate.min_rows or not after
    if before and is_judged:
        detail = f"{before:,} → {after:,} rows"
        yield Check("rows_lost", subject, max(0.0, 1 - after / before), gate.rows_lost, detail)
        yield Check("rows_gained", subject, max(0.0, after / before - 1), gate.rows_gained, detail)


def _within(duplicates: Mapping[str, Any]) -> int:
    return sum(duplicates["exact"].get("within", {}).values())


def _across(duplicates: Mapping[str, Any]) -> int:
    pairs = sum(sum(later.values()) for later in duplicates["exact"].get("across", {}).values())
    return int(pairs + duplicates.get("keys_across", 0))
