"""The changes from one version to another, for people and as JSON.

>>> print(*compare(open_dataset("out", old), open_dataset("out", new)).lines(), sep=chr(10))  # doctest: +SKIP
20261120T120000Z-4f1c9a2e → 20261121T120000Z-77d0a4b1
rows: 1,204 added (cats/9001.jpg, …), 3 removed (cats/17.jpg, …), 0 changed, 0 moved, 90,113 unchanged
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from recordmill.pipeline.compare.ids import first_few
from recordmill.pipeline.compare.manifests import Change, Changes, NameChanges, changes, name_changes, split_changes
from recordmill.pipeline.compare.rows import RowChanges, compare_rows
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.reader.dataset import Dataset
from recordmill.pipeline.safe_text import cut

SHOWN = 20  # lines of a section


@dataclass(frozen=True)
class Diff:
    """All that differs between two versions."""

    before: str
    after: str
    rows: RowChanges | None
    """None where the rows were not compared."""
    splits: Changes
    names: dict[str, NameChanges]
    """The classes and vocabularies that differ, by feature."""
    counts: Changes
    """Rows read, written, rejected and left out."""
    rejects: Changes
    """Rejects by reason."""
    statistics: Changes
    features: Changes
    """Descriptions of features."""
    spec: Changes = field(default_factory=dict)
    packages: Changes = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Gives everything as JSON: a change is [before, after]."""
        return asdict(self)

    def short_lines(self) -> Iterator[str]:
        """Gives the rows, the names and the counts as lines; of anything else only how many values differ."""
        if self.rows is not None:
            yield from _row_lines(self.rows)
        yield from self._name_lines()
        for path, change in (self.counts | self.rejects).items():
            yield f"{path}: {_shown(change)}"
        sections = ("features", "statistics", "spec", "packages")
        differing = [f"{len(getattr(self, name)):,} of {name}" for name in sections if getattr(self, name)]
        if differing:
            yield f"values that differ: {', '.join(differing)}"

    def _name_lines(self) -> Iterator[str]:
        for name, names in self.names.items():
            yield f"{name}: {_named('gained', names)}, {_named('lost', names)}, {_named('moved', names)}"

    def lines(self) -> Iterator[str]:
        """Gives everything as lines for a person; of each section at most 20."""
        yield f"{self.before} → {self.after}"
        if self.rows is not None:
            yield from _row_lines(self.rows)
        yield from self._name_lines()
        for section in ("splits", "counts", "rejects", "features", "statistics", "spec", "packages"):
            yield from _section(section, getattr(self, section))


def compare(before: Dataset, after: Dataset, *, rows: bool = True) -> Diff:
    """Compares two versions; without `rows` by their manifests and vocabularies alone.

    Raises:
        DatasetError: a file of a version is missing, or not what its manifest says.
    """
    old, new = before.manifest, after.manifest
    return Diff(
        old.version,
        new.version,
        compare_rows(before, after) if rows else None,
        split_changes(before, after),
        name_changes(before, after),
        changes(old.rows, new.rows),
        changes(_reasons(old), _reasons(new)),
        changes(old.statistics, new.statistics),
        changes(dict(old.features), dict(new.features)),
        changes(old.spec, new.spec),
        changes(old.provenance.get("packages", {}), new.provenance.get("packages", {})),
    )


def _reasons(manifest: Manifest) -> Any:
    return manifest.rejects.get("by_reason", {})


def _row_lines(rows: RowChanges) -> Iterator[str]:
    counted = [f"{getattr(rows, what):,} {what}{first_few(rows.examples.get(what, ()))}" for what in rows.examples]
    yield f"rows: {', '.join([*counted, f'{rows.unchanged:,} unchanged'])}"
    if rows.features:
        yield f"changed rows differ in {', '.join(f'{name} ({count:,})' for name, count in rows.features.items())}"


def _named(what: str, names: NameChanges) -> str:
    return f"{getattr(names, what):,} {what}{first_few(names.names.get(what, ()))}"


def _section(name: str, section: Changes) -> Iterator[str]:
    if section:
        yield f"{name}:"
    for path, change in list(section.items())[:SHOWN]:
        yield f"  {path}: {_shown(change)}"
    if len(section) > SHOWN:
        yield f"  and {len(section) - SHOWN:,} more: --json gives all"


def _shown(change: Change) -> str:
    return " → ".join(map(_value, change))


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return cut(value)
