"""Ids of learned classes from one version of a dataset to the next.

A name that the output's live version knows keeps its id, new names follow at the end, and a name that is gone from the
data keeps its place. Names that are taken over belong to the build key, and the manifest says how many they are.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeGuard

from recordmill.pipeline.compare.classes import compare_ids, first_few
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.dataset.vocabulary import Ids, read_words, without_blank
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.spec.features.base import Feature
from recordmill.pipeline.spec.features.category import NamedClasses
from recordmill.pipeline.spec.model import Spec
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.text import TextDescription

Names = Mapping[str, tuple[str, ...]]
"""Names of classes by id, by feature."""
Statistics = Mapping[str, Mapping[str, Any]]
KEPT_NAMES = "kept_names"


def names_to_keep(spec: Spec, folder: Location, manifest: Manifest) -> Names:
    """Gives the names of a version whose ids a build of the spec keeps, by feature; none for features of other kinds.

    Raises:
        DatasetError: a vocabulary of the version cannot be read, or is not what it was.
    """
    kept = {}
    for name in (name for name, feature in spec.features.items() if keeps_ids(feature) and name in manifest.features):
        description = read_description(manifest.features[name])
        if isinstance(description, CategoryDescription | CategoriesDescription) and description.vocabulary:
            words = read_words(folder, description.vocabulary)
            written = manifest.files.get(description.vocabulary, {}).get("sha256")
            if written not in (None, hashlib.sha256("".join(f"{word}\n" for word in words).encode()).hexdigest()):
                raise DatasetError(f"{folder / description.vocabulary} is not what it was")
            kept[name] = without_blank(words)
    return {name: words for name, words in kept.items() if words}


def keeps_ids(feature: Feature) -> bool:
    """Whether a feature's names keep the ids that the live version gave them."""
    return isinstance(feature, NamedClasses) and feature.keeps_ids


def names_kept_by(spec: Spec, folder: Location, manifest: Manifest) -> Names:
    """Gives the names that a version's own build took over. Raises: DatasetError as `names_to_keep`."""
    kept = manifest.provenance.get(KEPT_NAMES, {})
    return {name: words[: kept[name]] for name, words in names_to_keep(spec, folder, manifest).items() if name in kept}


def continues(names: Names, before: Names) -> bool:
    """Whether every name has the id that it had before."""
    return all(names.get(feature, ())[: len(words)] == words for feature, words in before.items())


def id_changes(before: Manifest, old: Location, after: Mapping[str, Description], new: Location) -> Iterator[str]:
    """Gives a line for each feature some of whose words have another id than before, are new, or have none any more.

    Names of classes are shown, words of texts are not: a message holds no value of a row.

    Args:
        before: the earlier version.
        old: its folder.
        after: the new version's features.
        new: the folder with its vocabularies.
    """
    for name, description in after.items():
        earlier = before.features.get(name)
        if earlier is None or not _has_words(description):
            continue
        with suppress(DatasetError):  # a damaged version is no reason to build none
            ids, show = _ids(old, read_description(earlier)), not isinstance(description, TextDescription)
            if changes := "; ".join(_changes(ids, _ids(new, description), show)):
                yield f"{name}: {changes}"


def _has_words(description: Description) -> TypeGuard[Ids]:
    return isinstance(description, Ids) and description.vocabulary is not None


def _ids(folder: Location, description: Description) -> dict[str, int]:
    if not _has_words(description):
        return {}
    words = read_words(folder, description.vocabulary or "")
    return {word: id_ for id_, word in enumerate(words, description.first_id or 0)}


def _changes(before: dict[str, int], after: dict[str, int], show: bool) -> Iterator[str]:
    new, lost, moved = compare_ids(before, after)
    if before and new:
        yield f"{len(new):,} new{first_few(new) if show else ''}"
    if lost:
        yield f"{len(lost):,} without an id now{first_few(lost) if show else ''}"
    if moved:
        yield f"{len(moved):,} of {len(before):,} have another id than before, so a model needs training anew"


def gone(kept: Names, label: str | None, statistics: Statistics, labels: Mapping[int, int]) -> Iterator[str]:
    """Gives a line for each feature that keeps ids of names which the data no longer holds.

    Args:
        kept: the names that keep their ids.
        label: the feature that is the label, which learns from all splits; the others learn from the train split.
        statistics: the analysis' results, by feature.
        labels: the number of records of each of the label's ids; empty where a user's function made another label.
    """
    for name, names in kept.items():
        words = statistics.get(name, {}).get("gone", [])
        if name == label and labels:
            words = [word for id_, word in enumerate(names) if not labels.get(id_)]
        if words:
            where = "data" if name == label else "train split"
            yield f"{name}: {len(words):,} not in the {where} any more, their ids are kept{first_few(words)}"
