"""One version of a dataset: its splits, features, classes and vocabularies, read from its own folder alone.

The public class is `recordmill.Dataset`, which adds the inputs of a training, records and pictures.
"""

from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.dataset import vocabulary
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Json, Manifest
from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.errors import DatasetError
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription


class DatasetVersion:
    """One version of a dataset.

    Attributes:
        folder: the version's folder: an absolute `Path`; of a URL a `RemotePath`, whose `str` is the URL.
        manifest: its `dataset.json`.
    """

    def __init__(self, folder: Location, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._descriptions: dict[str, Description] = {}
        self._vocabularies: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        """Shows the name, the version and the splits."""
        return f"<{type(self).__name__} {self.name} {self.version} {self.splits}>"

    @property
    def name(self) -> str:
        """The dataset's name, as in the spec."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """The version that was opened."""
        return self.manifest.version

    @property
    def splits(self) -> dict[str, int]:
        """The number of records of each split."""
        return {name: split.records for name, split in self.manifest.splits.items()}

    @property
    def features(self) -> Mapping[str, Json]:
        """The features' descriptions as in `dataset.json`, in the order of the spec, the label among them."""
        return self.manifest.features

    @property
    def label(self) -> str | None:
        """The feature that is the target, if there is one."""
        return self.manifest.label

    @property
    def classes(self) -> list[str]:
        """The names of the label's classes by id.

        Raises:
            DatasetError: there is no label, or it is no category.
        """
        if self.label is None:
            raise DatasetError(f"{self.name} has no label; `class_names(feature)` gives the names of any category")
        return self.class_names(self.label)

    @property
    def num_classes(self) -> int:
        """The number of the label's classes. Raises: DatasetError as `classes`."""
        return len(self.classes)

    def class_names(self, feature: str) -> list[str]:
        """Returns a category's names by id; where 0 is the unknown one, its name is `[UNK]`.

        Raises:
            DatasetError: there is no such feature, or it is no category.
        """
        description = self._description(feature)
        if not isinstance(description, CategoryDescription | CategoriesDescription):
            raise DatasetError(f"'{feature}' has no classes: its kind is {description.kind}, not category")
        return self.vocabulary(feature)

    def vocabulary(self, feature: str) -> list[str]:
        """Returns a feature's words by id: of a text, 0 is the padding `''` and 1 is `[UNK]`.

        Raises:
            DatasetError: there is no such feature, it has no vocabulary, or its file is not what it was.
        """
        description = self._description(feature)
        if feature not in self._vocabularies:
            self._vocabularies[feature] = vocabulary.read_vocabulary(self.folder, description, feature)
        return list(self._vocabularies[feature])

    def vocabulary_size(self, feature: str) -> int:
        """Returns the number of ids, special ones included: the size of an embedding.

        Raises:
            DatasetError: there is no such feature, or it has no ids.
        """
        description = self._description(feature)
        if not isinstance(description, vocabulary.Ids):
            raise DatasetError(f"'{feature}' has no ids: its kind is {description.kind}")
        return description.vocabulary_size

    def to_words(self, feature: str, ids: Any) -> list[Any]:
        """Returns the words of ids, without the padding: a list for a row, a list of lists for a batch.

        Args:
            feature: a feature with a vocabulary.
            ids: a list, an array or an eager tensor of whole numbers; no ids give `[]`.

        Raises:
            DatasetError: as `vocabulary`, or an id that the vocabulary does not have.
        """
        return vocabulary.to_words(self.vocabulary(feature), ids, vocabulary.padding_id(self._description(feature)))

    def _description(self, feature: str) -> Description:
        """Returns a feature's description, read at its first use: a feature of an unknown kind hinders no other."""
        if feature not in self._descriptions:
            self._descriptions |= read_descriptions({feature: self.manifest.feature(feature)})
        return self._descriptions[feature]

    def label_counts(self, split: str) -> dict[str, int]:
        """Returns the records of each class in a split, in the order of `classes`.

        Raises:
            DatasetError: there is no such split, or the label is no category.
        """
        classes, counts = self.classes, self.manifest.split(split).label_counts
        if counts is None or len(counts) != len(classes):
            raise DatasetError(f"{self.folder / MANIFEST_FILE} has no count for each class of '{split}': build again")
        return dict(zip(classes, counts, strict=True))
