"""Changes between two versions, for people and as JSON: rows, ids, counts, figures of values, manifests.

>>> print(*diff(open_dataset("out", old), open_dataset("out", new)).lines(), sep=chr(10))  # doctest: +SKIP
20261120T120000Z-4f1c9a2e → 20261121T120000Z-77d0a4b1
rows: 1,204 added (cats/9001.jpg, …), 3 removed (cats/17.jpg, …), 0 changed, 0 moved, 90,113 unchanged
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from recordmill.pipeline.compare.comparison import compare
from recordmill.pipeline.compare.figures import Figure
from recordmill.pipeline.compare.rows import RowChanges, compare_rows
from recordmill.pipeline.compare.versions import ComparedVersion, IdChanges, compare_ids, first_few, ids_of
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds import read_description

SHOWN = 20  # lines per section
OTHERS = ("features", "statistics", "spec", "packages")
IN_OTHER_SECTIONS = ("schema_changes", "ids_moved")  # rules on features shown in other sections: `features`, and names
Change = tuple[Any, Any]  # a value before and after; None if missing
Changes = dict[str, Change]  # changed values by path in the manifest, such as `image.mean.0`


@dataclass(frozen=True)
class NameChanges:
    """Changes of a feature's classes or vocabulary."""

    gained: int
    lost: int
    moved: int  # names with changed ids
    names: dict[str, list[str]] = field(default_factory=dict)  # of classes, by `gained`, `lost`, `moved`


@dataclass(frozen=True)
class Diff:
    """All differences between two versions."""

    before: str
    after: str
    rows: RowChanges | None  # None if not compared
    splits: Changes  # by split: rows of windows, records, bytes, shards, and records by class
    names: dict[str, NameChanges]  # changed classes and vocabularies, by feature
    counts: Changes  # rows read, written, rejected, left out
    rejects: Changes  # rejects by reason
    statistics: Changes
    features: Changes  # descriptions of features
    spec: Changes
    packages: Changes
    values: list[Figure] = field(default_factory=list)  # of changed values, each rule's largest first

    def to_json(self) -> dict[str, Any]:
        """Returns everything as JSON: a change is [before, after]."""
        return asdict(self) | {"values": [figure.to_json() for figure in self.values]}

    def short_lines(self) -> Iterator[str]:
        """Yields lines on rows, names and counts; for the rest, only the number of changes."""
        yield from self._content_lines()
        for path, change in (self.counts | self.rejects).items():
            yield f"{path}: {_shown(change)}"
        differing = [f"{len(getattr(self, name)):,} of {name}" for name in OTHERS if getattr(self, name)]
        if differing:
            yield f"values that differ: {', '.join(differing)}"

    def lines(self) -> Iterator[str]:
        """Yields everything in lines for people, up to 20 per section."""
        yield f"{self.before} → {self.after}"
        yield from self._content_lines()
        for name in ("splits", "counts", "rejects", "values", *OTHERS):
            section = getattr(self, name)
            lines = [str(each) if name == "values" else f"{each}: {_shown(section[each])}" for each in section]
            if lines:
                yield f"{name}:"
            yield from (f"  {line}" for line in lines[:SHOWN])
            if len(lines) > SHOWN:
                yield f"  and {len(lines) - SHOWN:,} more: --json gives all"

    def _content_lines(self) -> Iterator[str]:
        """Yields lines on rows and names."""
        if (rows := self.rows) is not None:
            counted = [f"{getattr(rows, of):,} {of}{first_few(rows.examples.get(of, ()))}" for of in rows.examples]
            yield f"rows: {', '.join([*counted, f'{rows.unchanged:,} unchanged'])}"
            if rows.features:
                differing = (f"{name} ({count:,})" for name, count in rows.features.items())
                yield f"changed rows differ in {', '.join(differing)}"
        for name, names in self.names.items():
            words = [f"{getattr(names, of):,} {of}{first_few(names.names.get(of, ()))}" for of in IdChanges._fields]
            yield f"{name}: {', '.join(words)}"


def diff(before: DatasetVersion, after: DatasetVersion, *, rows: bool = True, values: bool = True) -> Diff:
    """Compares manifests and vocabularies; with `rows` records, with `values` profiles. Raises: DatasetError."""
    old, new, figures = before.manifest, after.manifest, list[Figure]()
    if values:
        compared = compare(*(ComparedVersion.read(each.folder, each.manifest) for each in (before, after)))
        changed = [each for each in compared.figures if each.value and each.feature]
        shown = [each for each in changed if each.rule not in IN_OTHER_SECTIONS]
        figures = sorted(shown, key=lambda figure: (figure.rule, -figure.value))
    return Diff(
        old.version,
        new.version,
        compare_rows(before, after) if rows else None,
        changes(_splits(before), _splits(after)),
        _name_changes(before, after),
        changes(old.rows, new.rows),
        changes(*(each.rejects.get("by_reason", {}) for each in (old, new))),
        changes(old.statistics, new.statistics),
        changes(dict(old.features), dict(new.features)),
        changes(old.spec, new.spec),
        changes(old.provenance.get("packages", {}), new.provenance.get("packages", {})),
        figures,
    )


def changes(before: Any, after: Any) -> Changes:
    """Returns the changed leaves of two JSON values, by path.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}, "d": [True]})
    {'a.b': (1, 3), 'd.0': (None, True)}
    """
    old, new = dict(_leaves(before)), dict(_leaves(after))
    paths = dict.fromkeys([*old, *new])
    return {path: (old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping | list | tuple):
        yield path, value
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for name, inner in items:
        yield from _leaves(inner, f"{path}.{name}" if path else str(name))


def _name_changes(before: DatasetVersion, after: DatasetVersion) -> dict[str, NameChanges]:
    """Compares classes and vocabularies of common features; leaves out equal ones."""
    compared = {}
    for name in (name for name in after.features if name in before.features):
        description = read_description(after.features[name])
        old = ids_of(before.folder, read_description(before.features[name]), name)
        new = ids_of(after.folder, description, name)
        if old != new:
            changed = compare_ids(old, new)
            names = changed._asdict() if description.ids and description.ids.are_classes else {}
            compared[name] = NameChanges(len(changed.gained), len(changed.lost), len(changed.moved), names)
    return compared


def _splits(dataset: DatasetVersion) -> dict[str, Any]:
    figures, names = dict[str, Any](), list[str]()
    with suppress(DatasetError):
        names = dataset.classes
    for name, split in dataset.manifest.splits.items():
        counts = split.label_counts or ()
        labels = names if len(names) == len(counts) else map(str, range(len(counts)))
        figures[name] = {"rows": split.source_rows, "records": split.records, "bytes": split.bytes}
        figures[name] |= {"shards": len(split.shards), "labels": dict(zip(labels, counts, strict=True))}
    return figures


def _shown(change: Change) -> str:
    values = ("none" if each is None else f"{each:,}" if type(each) is int else cut(each) for each in change)
    return " → ".join(values)
