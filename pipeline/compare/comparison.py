"""Compares two versions by their manifests, profiles and vocabularies, without reading a record."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipeline.compare.distributions import lost_names, pixel_figures, value_figures
from recordmill.pipeline.compare.figures import Figure, rise
from recordmill.pipeline.compare.versions import ComparedVersion, compare_ids, is_edited
from recordmill.pipeline.dataset.counts import FILTERED
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError

SCHEMA = ("kind", "stored", "dtype", "shape", "length", "texts_per_row", "read", "packed")
"""Parts of a description that decide type and shape of a model's input."""


@dataclass(frozen=True)
class Compared:
    """Figures of two versions."""

    figures: list[Figure]
    not_compared: list[str]  # a line with the reason for each part skipped on purpose
    damaged: list[tuple[str, str]]  # a feature, empty for all, and a line for each damaged file


def compare(before: ComparedVersion, after: ComparedVersion) -> Compared:
    """Compares two versions: rows, schema, and the values of features with unedited options."""
    old, new = before.manifest, after.manifest
    splitting = [{name: each.spec.get(name) for name in ("splits", "split_by")} for each in (old, new)]
    members = [[sorted(span.members) for span in each.spans.values() if span.members] for each in (old, new)]
    splits_are_edited, spans_are_regrouped = is_edited(*splitting), members[0] != members[1]
    figures = [*_count_figures(old, new, splits_are_edited, spans_are_regrouped), *_schema_figures(old, new)]
    damaged = [("", f"{each.manifest.version} is damaged: {each.fault}") for each in (before, after) if each.fault]
    not_compared = list[str]()
    if not damaged and splits_are_edited:
        not_compared.append("splits: the spec's `splits` or `split_by` were edited")
    if not damaged and _filter(old) != _filter(new):
        not_compared.append("filtered rows: the spec's `filter`, or your code, was edited")
    if not damaged and spans_are_regrouped:
        not_compared.append("duplicates and leakage: they are counted in spans, some of which `--compact` put together")
    edited = [name for name in old.features if is_edited(before.options(name), after.options(name))]
    if edited:
        not_compared.append(f"{', '.join(edited)}: the spec's options were edited")
    for name in (name for name in old.features if name in new.features and name not in edited):
        try:
            own = [*_id_figures(name, before, after), *lost_names(name, before, after)]
            own += pixel_figures(name, before, after)
            for split in () if splits_are_edited else old.splits:
                own += value_figures(name, split, before, after)
            figures += own
        except DatasetError as error:
            damaged.append((name, f"{name}: {error}"))
    return Compared(figures, not_compared, damaged)


def _filter(version: Manifest) -> object:
    return version.spec.get("filter") and (version.spec["filter"], version.provenance.get("user_code", {}).get("files"))


def _count_figures(
    before: Manifest, after: Manifest, splits_are_edited: bool, spans_are_regrouped: bool
) -> Iterator[Figure]:
    """Compares row counts: lost and gained, in all and by split, rejected, filtered, duplicate (in spans), leaking."""
    yield from _rows_moved("all", _all_rows(before), _all_rows(after))
    if not splits_are_edited:
        for name, split in before.splits.items():
            others = after.splits.get(name)
            yield from _rows_moved(name, split.rows, 0 if others is None else others.rows)
    rejected, read = ([version.rows.get(what, 0) for version in (before, after)] for what in ("rejected", "read"))
    counts = [version.rejects.get("by_reason", {}) for version in (before, after)]
    reasons = sorted(reason for reason in {*counts[0], *counts[1]} if reason.startswith(FILTERED))
    meant = [sum(each.get(reason, 0) for reason in reasons) for each in counts]
    yield from rise("rejects", "all", [rejected[0] - meant[0], rejected[1] - meant[1]], read, "rows")
    for reason in reasons if _filter(before) == _filter(after) else ():
        yield from rise(FILTERED, reason.partition(": ")[2], [each.get(reason, 0) for each in counts], read, "rows")
    found = [version.duplicates for version in (before, after)]
    if all("exact" in each for each in found) and not spans_are_regrouped:
        totals = _all_rows(before), _all_rows(after)
        within = [sum(each["exact"].get("within", {}).values()) for each in found]
        yield from rise("duplicates", "all", within, totals, "records")
        pairs = [sum(sum(later.values()) for later in each["exact"].get("across", {}).values()) for each in found]
        across = [count + each.get("keys_across", 0) for count, each in zip(pairs, found, strict=True)]
        yield from rise("leakage", "all", across, totals, "records")


def _rows_moved(subject: str, before: int, after: int) -> Iterator[Figure]:
    if before:
        detail, counted = f"{before:,} → {after:,} rows", before if after else math.inf  # none is never chance
        yield Figure("rows_lost", subject, max(0.0, 1 - after / before), detail, counted)
        yield Figure("rows_gained", subject, max(0.0, after / before - 1), detail, counted)


def _all_rows(manifest: Manifest) -> int:
    return sum(split.rows for split in manifest.splits.values())


def _schema_figures(before: Manifest, after: Manifest) -> list[Figure]:
    """Returns a figure of 1 for each missing feature and changed type; if none, one of 0 for `all`."""
    figures = list[Figure]()
    for name, old in before.features.items():
        new = after.features.get(name, {})
        parts = [f"{part} {old.get(part)} → {new.get(part)}" for part in SCHEMA if old.get(part) != new.get(part)]
        change = ", ".join(parts) if new else "the feature is gone"
        figures += [Figure("schema_changes", name, 1.0, change, feature=name)] if parts else []
    return figures or [Figure("schema_changes", "all", 0.0)]


def _id_figures(name: str, before: ComparedVersion, after: ComparedVersion) -> Iterator[Figure]:
    """Yields the share of a feature's words with changed ids, if any. Raises: DatasetError: a vocabulary is broken."""
    if "vocabulary" not in before.manifest.features[name] or "vocabulary" not in after.manifest.features[name]:
        return
    digest = before.words_digest(name)
    if digest is not None and digest == after.words_digest(name):  # skips reading unchanged vocabularies
        moved, known = 0, int(before.manifest.features[name]["vocabulary_size"])
    else:
        old = before.ids(name)
        moved, known = len(compare_ids(old, after.ids(name)).moved), len(old)
    detail = f"{moved:,} of {known:,} have another id, so the model needs training again" if moved else ""
    yield Figure("ids_moved", name, moved / max(1, known), detail, feature=name)
