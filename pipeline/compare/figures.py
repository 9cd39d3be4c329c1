"""Figures of two versions: the counts of their rows, their schemas, and ids that moved.

>>> figure = Figure("rows_lost", "train", 0.4, "1,000 → 600 rows", limit=0.1)
>>> figure.is_breach, str(figure)
(True, 'rows_lost of train is 0.4, more than 0.1: 1,000 → 600 rows')
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.compare.ids import compare_ids
from recordmill.pipeline.compare.versions import ComparedVersion, is_edited
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

SLACK = 1.25
"""The factor by which a new span may exceed the largest figure of earlier ones, and what is left up to 1 be less."""
UNBOUNDED = ("psi", "pixels")
"""The rules of spans whose figures may exceed 1."""
SPLITTING = ("splits", "split_by")
"""The options that decide which rows a split has."""
SCHEMA = ("kind", "stored", "dtype", "shape", "length", "texts_per_row", "read", "packed")
"""The parts of a description that decide the type and shape of what a model gets."""


@dataclass(frozen=True)
class Figure:
    """A figure of one rule, with the gate's limit on it."""

    rule: str
    """The option of `gate` that limits it."""
    subject: str
    """`all`, a split, a feature, a feature and a split, `age (train)`, or the rows of a span, `rows`."""
    value: float
    detail: str = ""
    """The change, for people."""
    counted: float = math.inf
    """The rows or values that it was computed from, on the side that has fewer; infinite where any number will do."""
    feature: str = ""
    """The feature whose values are compared; empty for rows."""
    span: str = ""
    """The new span whose rows are compared; empty for all rows."""
    limit: float | None = None
    """The largest value that is no breach; None for no limit."""
    usual: float | None = None
    """The largest value of earlier spans; None where too few are known."""

    @property
    def is_breach(self) -> bool:
        """Whether the value is above its limit, and above what is usual for a new span."""
        above = self.limit is not None and self.value > self.limit
        return above and (self.usual is None or self.value > self._largest_usual(self.usual))

    def _largest_usual(self, usual: float) -> float:
        """Returns the largest value that is still usual; of a share, below 1 as long as the usual one is."""
        return SLACK * usual if self.rule in UNBOUNDED else min(SLACK * usual, 1 - (1 - usual) / SLACK)

    @property
    def name(self) -> str:
        """The subject with the span: `age (train, 2026-11-20)`."""
        if not self.span:
            return self.subject
        return f"{self.subject[:-1]}, {self.span})" if self.subject.endswith(")") else f"{self.subject} ({self.span})"

    def __str__(self) -> str:
        limit = "" if self.limit is None else f", {'more' if self.is_breach else 'not more'} than {self.limit:.4g}"
        return f"{self.rule} of {self.name} is {self.value:.4g}{limit}{self.detail and f': {self.detail}'}"

    def to_json(self) -> dict[str, Any]:
        """Returns the figure as JSON, without those of earlier spans."""
        return {
            "rule": self.rule,
            "subject": self.name,
            "figure": self.value,
            "limit": self.limit,
            "detail": self.detail,
        }

    @classmethod
    def from_json(cls, json: Any) -> "Figure":
        """Reads a figure. Raises: DatasetError: it is something else."""
        try:
            limit = None if json["limit"] is None else float(json["limit"])
            value, detail = float(json["figure"]), str(json.get("detail", ""))
            return cls(str(json["rule"]), str(json["subject"]), value, detail, limit=limit)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DatasetError(f"a figure of the gate is {cut(repr(json))}") from None


def rise(
    rule: str,
    subject: str,
    parts: Sequence[int],
    wholes: Sequence[int],
    unit: str = "",
    feature: str = "",
    span: str = "",
) -> Iterator[Figure]:
    """Compares the share that some rows or values have, where there are any on both sides.

    Args:
        rule: the rule.
        subject: as `Figure.subject`.
        parts: their numbers before and after.
        wholes: the numbers of all, before and after.
        unit: shows both numbers, in this unit; empty shows the shares.
        feature: as `Figure.feature`.
        span: as `Figure.span`.
    """
    if min(wholes):
        before, after = (part / whole for part, whole in zip(parts, wholes, strict=True))
        numbers = (f"{part:,} of {whole:,}" for part, whole in zip(parts, wholes, strict=True))
        detail = f"{' → '.join(numbers)} {unit}" if unit else f"{before:.2%} → {after:.2%}"
        yield Figure(rule, subject, max(0.0, after - before), detail, min(wholes), feature, span)


def count_figures(before: Manifest, after: Manifest) -> Iterator[Figure]:
    """Compares the numbers of rows: lost and gained, in all and by split, rejected, duplicate, leaking."""
    yield from _rows_moved("all", _all_rows(before), _all_rows(after))
    if not splits_are_edited(before, after):
        for name, split in before.splits.items():
            others = after.splits.get(name)
            yield from _rows_moved(name, _rows(split), 0 if others is None else _rows(others))
    rejected, read = ([version.rows.get(what, 0) for version in (before, after)] for what in ("rejected", "read"))
    yield from rise("rejects", "all", rejected, read, "rows")
    if "exact" in before.duplicates and "exact" in after.duplicates and not spans_are_regrouped(before, after):
        for rule, count in (("duplicates", _within), ("leakage", _across)):
            both = [count(version.duplicates) for version in (before, after)]
            yield from rise(rule, "all", both, (_all_rows(before), _all_rows(after)), "records")


def _rows_moved(subject: str, before: int, after: int) -> Iterator[Figure]:
    if before:
        detail, counted = f"{before:,} → {after:,} rows", before if after else math.inf  # none at all is never chance
        yield Figure("rows_lost", subject, max(0.0, 1 - after / before), detail, counted)
        yield Figure("rows_gained", subject, max(0.0, after / before - 1), detail, counted)


def _rows(split: Any) -> int:
    """Returns the rows of a split: its records, or the documents that they hold."""
    return int(split.records if split.documents is None else split.documents)


def _all_rows(manifest: Manifest) -> int:
    return sum(map(_rows, manifest.splits.values()))


def _within(duplicates: Mapping[str, Any]) -> int:
    return sum(duplicates["exact"].get("within", {}).values())


def _across(duplicates: Mapping[str, Any]) -> int:
    pairs = sum(sum(later.values()) for later in duplicates["exact"].get("across", {}).values())
    return int(pairs + duplicates.get("keys_across", 0))


def spans_are_regrouped(before: Manifest, after: Manifest) -> bool:
    """Whether one of two versions puts spans together that the other does not: duplicates are counted within each."""
    old, new = ([sorted(span.members) for span in each.spans.values() if span.members] for each in (before, after))
    return old != new


def splits_are_edited(before: Manifest, after: Manifest) -> bool:
    """Whether a person changed which rows a split has."""
    old, new = ({name: version.spec.get(name) for name in SPLITTING} for version in (before, after))
    return is_edited(old, new)


def schema_figures(before: Manifest, after: Manifest) -> Iterator[Figure]:
    """Returns a figure of 1 for each feature before that is missing or of another type after; of 0 for `all`."""
    changes = {name: change for name in before.features if (change := _schema_change(name, before, after))}
    yield from (Figure("schema_changes", name, 1.0, change, feature=name) for name, change in changes.items())
    if not changes:
        yield Figure("schema_changes", "all", 0.0)


def _schema_change(name: str, before: Manifest, after: Manifest) -> str:
    old, new = before.features[name], after.features.get(name)
    if new is None:
        return "the feature is gone"
    parts = [part for part in SCHEMA if old.get(part) != new.get(part)]
    return ", ".join(f"{part} {old.get(part)} → {new.get(part)}" for part in parts)


def id_figures(name: str, before: ComparedVersion, after: ComparedVersion) -> Iterator[Figure]:
    """Returns the share of a feature's names or words that have another id; nothing where it has no vocabulary.

    Raises:
        DatasetError: a vocabulary is broken.
    """
    if "vocabulary" not in before.manifest.features[name] or "vocabulary" not in after.manifest.features[name]:
        return
    moved, known = _moved(name, before, after)
    detail = f"{moved:,} of {known:,} have another id, so a model needs training anew" if moved else ""
    yield Figure("ids_moved", name, moved / max(1, known), detail, feature=name)


def _moved(name: str, before: ComparedVersion, after: ComparedVersion) -> tuple[int, int]:
    """Counts the names that have another id, and all that had one; reads no vocabulary that stayed as it was."""
    digest = before.words_digest(name)
    if digest is not None and digest == after.words_digest(name):
        return 0, int(before.manifest.features[name]["vocabulary_size"])
    old = before.ids(name)
    return len(compare_ids(old, after.ids(name)).moved), len(old)
