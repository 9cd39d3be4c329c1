"""A published dataset, opened: what is in it, and its splits as input of a model. Imports TensorFlow for inputs only.

The version is fixed when the dataset is opened: a build that is published meanwhile changes nothing for this object.
"""

import importlib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pipeline.manifest import (
    MANIFEST_FILE,
    VERSIONS_FOLDER,
    DatasetError,
    Json,
    Manifest,
    read_latest,
    read_manifest,
    version_folder,
)
from pipeline.reader import words
from pipeline.reader.request import check_batch_size, find_feature, find_split, make_request

if TYPE_CHECKING:
    import tensorflow as tf


def open_dataset(path: str | Path, version: str | None = None) -> "Dataset":
    """Opens a dataset.

    Args:
        path: the folder that was built into, or a version's own folder, the one with `dataset.json`.
        version: a version's name; the live version where it is not given.

    Raises:
        DatasetError: nothing is there, or it cannot be read; the message says what to do.
    """
    path = Path(path).absolute()
    if (path / MANIFEST_FILE).is_file():
        if version is not None:
            raise DatasetError(f"{path} is one version's own folder: leave version='{version}' out")
        return Dataset(path, read_manifest(path))
    wanted = version or read_latest(path).version
    folder = version_folder(path, wanted)
    if not (folder / MANIFEST_FILE).is_file():
        cause = f"{path} has no version" if version else f"{path / 'LATEST'} names a version that is not there:"
        raise DatasetError(f"{cause} '{wanted}'; {_published(path)}")
    return Dataset(folder, read_manifest(folder))


def _published(path: Path) -> str:
    versions = sorted(found.parent.name for found in (path / VERSIONS_FOLDER).glob(f"*/{MANIFEST_FILE}"))
    return f"there are {', '.join(versions)}" if versions else "there is none"


class Dataset:
    """One version of a dataset. Everything here is read from its own folder.

    Attributes:
        folder: the version's folder, absolute.
        manifest: its `dataset.json`.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._vocabularies: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        """Shows the name, the version and the splits."""
        return f"<Dataset {self.name} {self.version} {self.splits}>"

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
        """Gives a category's names by id; where 0 is the unknown one, its name is `[UNK]`.

        Raises:
            DatasetError: there is no such feature, or it is no category.
        """
        description = find_feature(self.manifest, feature)
        if description["kind"] not in ("category", "categories"):
            raise DatasetError(f"'{feature}' has no classes: its kind is {description['kind']}, not category")
        return self.vocabulary(feature)

    def vocabulary(self, feature: str) -> list[str]:
        """Gives a feature's words by id: of a text, 0 is the padding `''` and 1 is `[UNK]`.

        Raises:
            DatasetError: there is no such feature, it has no vocabulary, or its file is not what it was.
        """
        description = find_feature(self.manifest, feature)
        if feature not in self._vocabularies:
            self._vocabularies[feature] = words.read_vocabulary(self.folder, description, feature)
        return list(self._vocabularies[feature])

    def vocabulary_size(self, feature: str) -> int:
        """The number of ids, the special ones among them: what an embedding needs.

        Raises:
            DatasetError: there is no such feature, or it has no ids.
        """
        description = find_feature(self.manifest, feature)
        if "vocabulary_size" not in description:
            raise DatasetError(f"'{feature}' has no ids: its kind is {description['kind']}")
        return int(description["vocabulary_size"])

    def to_words(self, feature: str, ids: Any) -> list[Any]:
        """Gives the words of ids, without the padding: a list for a row, a list of lists for a batch.

        Args:
            feature: a feature with a vocabulary.
            ids: a list, an array or an eager tensor of whole numbers; no ids give `[]`.

        Raises:
            DatasetError: as `vocabulary`, or an id that is none of the vocabulary's.
        """
        return words.to_words(self.vocabulary(feature), ids, find_feature(self.manifest, feature).get("padding_id"))

    def label_counts(self, split: str) -> dict[str, int]:
        """How many records of a split each class has, in the order of `classes`.

        Raises:
            DatasetError: there is no such split, or the label is no category.
        """
        classes, counts = self.classes, find_split(self.manifest, split).label_counts
        if counts is None or len(counts) != len(classes):
            raise DatasetError(f"{self.folder / MANIFEST_FILE} has no count for each class of '{split}': build again")
        return dict(zip(classes, counts, strict=True))

    def batches_per_epoch(self, split: str, batch_size: int, *, drop_remainder: bool = True) -> int:
        """The number of batches that `training_input` gives; without `drop_remainder`, that `evaluation_input` gives.

        Raises:
            DatasetError: there is no such split, or `batch_size` is below 1.
        """
        check_batch_size(batch_size)
        records = find_split(self.manifest, split).records
        return records // batch_size if drop_remainder else -(-records // batch_size)

    def training_input(
        self,
        split: str = "train",
        *,
        batch_size: int,
        seed: int = 0,
        drop_remainder: bool = True,
        features: Collection[str] | None = None,
        with_key: bool = False,
    ) -> "tf.data.Dataset":
        """Gives a split in an order that each epoch shuffles anew.

        An epoch is one iteration. The order is a function of the data, `seed`, the number of the iteration over the
        object returned, and TensorFlow's global seed where the program sets one (`tf.random.set_seed`); it does not
        depend on the machine. Shards are read in a shuffled order, and records shuffled in a buffer of at most 10,000
        records and 256 MiB.

        Args:
            split: its name.
            batch_size: records in a batch, at least 1.
            seed: any whole number.
            drop_remainder: leaves out the records that do not fill a batch, so that all shapes are static.
            features: the features to read beside the label; all where they are not given.
            with_key: adds `key`, the rows' keys (string, [batch_size]), to the features.

        Returns:
            A `tf.data.Dataset` of known cardinality: `(features, label)`, or `features` alone where the dataset has no
            label. `features` maps names to tensors of shape [batch_size, …]. A split of no records gives no batch.

        Raises:
            DatasetError: a wrong argument, a split smaller than a batch that must be full, or a shard that is missing
                or not of its size.
        """
        request = make_request(self.folder, self.manifest, split, batch_size, features, with_key)
        if drop_remainder and 0 < request.records < batch_size:
            raise DatasetError(
                f"'{split}' holds {request.records} records, which is no full batch of {batch_size}: "
                "take a smaller batch_size, or drop_remainder=False"
            )
        return _tf_input().training_input(request, seed, drop_remainder)

    def evaluation_input(
        self,
        split: str,
        *,
        batch_size: int,
        features: Collection[str] | None = None,
        with_key: bool = False,
    ) -> "tf.data.Dataset":
        """Gives every record of a split once, in the dataset's own order; the last batch may be short.

        The arguments, the result and the errors are those of `training_input`; the number of rows is not static.
        """
        request = make_request(self.folder, self.manifest, split, batch_size, features, with_key)
        return _tf_input().evaluation_input(request)


def _tf_input() -> ModuleType:
    # Imported here and nowhere else: all other questions are answered without the seconds that TensorFlow takes.
    return importlib.import_module("pipeline.reader.tf_input")
