"""Rules on what a model was trained for: features that are gone or of another type, and ids that moved."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recordmill.pipeline.compare.classes import compare_ids
from recordmill.pipeline.compare.figures import Check
from recordmill.pipeline.compare.versions import GatedVersion, is_edited

if TYPE_CHECKING:
    from recordmill.pipeline.spec.gate import Gate


PARTS = ("kind", "stored", "dtype", "shape", "length", "texts_per_row", "read", "packed")
"""The parts of a description that decide the type and shape of what a model gets."""
KEPT = ("category", "categories")
"""The kinds whose names keep their ids from version to version."""


def schema_checks(before: GatedVersion, after: GatedVersion, gate: "Gate") -> Iterator[Check]:
    """Gives a figure of 1 for each feature of the live version that is gone or of another type, or 0 for all."""
    changed = {name: change for name in before.manifest.features if (change := _change(name, before, after))}
    for name, change in changed.items():
        is_asked = is_edited(before.options(name), after.options(name)) and gate.schema_changes != "any"
        limit = None if gate.schema_changes is None or is_asked or gate.features.get(name) is False else 0.0
        yield Check("schema_changes", name, 1.0, limit, change)
    if not changed:
        yield Check("schema_changes", "all", 0.0, None if gate.schema_changes is None else 0.0)


def _change(name: str, before: GatedVersion, after: GatedVersion) -> str:
    old, new = before.manifest.features[name], after.manifest.features.get(name)
    if new is None:
        return "the feature is gone"
    parts = [part for part in PARTS if old.get(part) != new.get(part)]
    return ", ".join(f"{part} {old.get(part)} → {new.get(part)}" for part in parts)


def id_checks(name: str, before: GatedVersion, after: GatedVersion, gate: "Gate") -> Iterator[Check]:
    """Gives the share of a feature's names or words that have another id; nothing where it has no vocabulary.

    Raises:
        DatasetError: a vocabulary is broken.
    """
    if "vocabulary" not in before.manifest.features[name] or "vocabulary" not in after.manifest.features[name]:
        return
    moved, known = _moved(name, before, after)
    keeps = after.manifest.features[name]["kind"] in KEPT and after.options(name).get("classes") != "fresh"
    limit = gate.limit("ids_moved", name) if keeps or gate.is_own("ids_moved", name) else None
    detail = f"{moved:,} of {known:,} have another id, so a model needs training anew" if moved else ""
    yield Check("ids_moved", name, moved / max(1, known), limit, detail)


def _moved(name: str, before: GatedVersion, after: GatedVersion) -> tuple[int, int]:
    """Counts the names that have another id, and all that had one; reads no vocabulary that stayed as it was."""
    digest = before.words_digest(name)
    if digest is not None and digest == after.words_digest(name):
        return 0, int(before.manifest.features[name]["vocabulary_size"])
    ids = [{word: id_ for id_, word in enumerate(side.words(name) or ()) if word} for side in (before, after)]
    return len(compare_ids(*ids).moved), len(ids[0])
