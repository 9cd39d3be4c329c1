"""Compares the manifests of two versions: counts, ids, statistics, rejects, spec and packages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recordmill.pipeline.compare.ids import compare_ids
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.dataset.vocabulary import read_vocabulary
from recordmill.pipeline.reader.dataset import Dataset
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.text import TextDescription

Change = tuple[Any, Any]
"""A value before and after; None where there was none."""
Changes = dict[str, Change]
"""The values that differ, by their path in the manifest: `image.mean.0`."""


@dataclass(frozen=True)
class NameChanges:
    """The changes of a feature's classes, or of its vocabulary."""

    gained: int
    lost: int
    moved: int
    """Names that have another id than before."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """The names of classes, by `gained`, `lost` and `moved`; a text's words are not shown."""


def changes(before: Any, after: Any) -> Changes:
    """Gives the leaves of two JSON values that differ, by their paths.

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


def name_changes(before: Dataset, after: Dataset) -> dict[str, NameChanges]:
    """Compares the classes and vocabularies of features that both versions have; equal ones are left out.

    Raises:
        DatasetError: a vocabulary's file is missing, or not what the manifest says.
    """
    compared = {}
    for name in (name for name in after.features if name in before.features):
        description = read_description(after.features[name])
        old, new = _ids(before, name, read_description(before.features[name])), _ids(after, name, description)
        if old != new:
            compared[name] = _compare_names(old, new, show=not isinstance(description, TextDescription))
    return compared


def _ids(dataset: Dataset, feature: str, description: Description) -> dict[str, int]:
    if getattr(description, "vocabulary", None) is None:
        return {}
    return {word: id_ for id_, word in enumerate(read_vocabulary(dataset.folder, description, feature))}


def _compare_names(old: Mapping[str, int], new: Mapping[str, int], *, show: bool) -> NameChanges:
    changed = compare_ids(old, new)
    gained, lost, moved = map(len, changed)
    return NameChanges(gained, lost, moved, changed._asdict() if show else {})


def split_changes(before: Dataset, after: Dataset) -> Changes:
    """Compares the splits' records, bytes, shards, and records by class."""
    return changes(_splits(before), _splits(after))


def _splits(dataset: Dataset) -> dict[str, Any]:
    return {
        name: {
            "records": split.records,
            "bytes": split.bytes,
            "shards": len(split.shards),
            "labels": _labels(dataset, split.label_counts or ()),
        }
        for name, split in dataset.manifest.splits.items()
    }


def _labels(dataset: Dataset, counts: Sequence[int]) -> dict[str, int]:
    try:
        names = dataset.classes
    except DatasetError:
        names = []
    named = len(names) == len(counts)
    return {names[id_] if named else str(id_): count for id_, count in enumerate(counts)}
