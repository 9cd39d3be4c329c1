"""Ids of learned classes from one version of a dataset to the next.

A name that the output's live version knows keeps its id, new names follow at the end, and a name that is gone from the
data keeps its place. Names that are taken over belong to the build key, and the manifest says how many they are.
"""

import hashlib
from collections.abc import Mapping

from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.dataset.vocabulary import read_words, without_blank
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.spec.features.category import NamedClasses
from recordmill.pipeline.spec.features.feature import Feature
from recordmill.pipeline.spec.model import Spec
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription

Names = Mapping[str, tuple[str, ...]]
"""Names of classes by id, by feature."""
KEPT_NAMES = "kept_names"


def names_to_keep(spec: Spec, folder: Location, manifest: Manifest) -> Names:
    """Returns the names of a version whose ids a build of the spec keeps, by feature; none for features of other kinds.

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
    """Returns the names that a version's own build took over. Raises: DatasetError as `names_to_keep`."""
    kept = manifest.provenance.get(KEPT_NAMES, {})
    return {name: words[: kept[name]] for name, words in names_to_keep(spec, folder, manifest).items() if name in kept}


def continues(names: Names, before: Names) -> bool:
    """Whether every name has the id that it had before."""
    return all(names.get(feature, ())[: len(words)] == words for feature, words in before.items())
