"""A published dataset, opened: what is in it, and its splits as input of a model.

The version is fixed when the dataset is opened: a build that is published meanwhile changes nothing for this object.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recordmill.pipeline.dataset import vocabulary
from recordmill.pipeline.dataset.manifest import (
    MANIFEST_FILE,
    VERSIONS_FOLDER,
    DatasetError,
    Json,
    Manifest,
    read_latest,
    read_manifest,
    version_folder,
)
from recordmill.pipeline.reader.batches.split import SplitSource
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.options.request import (
    EVALUATION_OPTIONS,
    THE_LABEL,
    Arguments,
    check_batch_size,
    check_names,
    find_feature,
    find_split,
    make_request,
)
from recordmill.pipeline.reader.options.split_expressions import ranges
from recordmill.pipeline.reader.order.steps import Steps
from recordmill.pipeline.reader.records.random_access import Records
from recordmill.pipeline.reader.records.remote_path import RemotePath
from recordmill.pipeline.versions.listing import held

if TYPE_CHECKING:
    import tensorflow as tf


def open_dataset(path: str | Path, version: str | None = None) -> "Dataset":
    """Opens a dataset.

    Args:
        path: the folder that was built into, or a version's own folder, the one with `dataset.json`: on this machine,
            or a URL of an object store, `s3://bucket/out/emoji` or `gs://…`.
        version: a version's name; the live version where it is not given.

    Raises:
        DatasetError: nothing is there, or it cannot be read; the message says what to do.
    """
    folder = _folder(str(path))
    if (folder / MANIFEST_FILE).is_file():
        if version is not None:
            raise DatasetError(f"{folder} is one version's own folder: leave version='{version}' out")
        return Dataset(folder, read_manifest(folder))
    wanted = version or read_latest(folder).version
    chosen = version_folder(folder, wanted)
    if not (chosen / MANIFEST_FILE).is_file():
        cause = f"{folder} has no version" if version else f"{folder / 'LATEST'} names a version that is not there:"
        raise DatasetError(f"{cause} '{wanted}'; {_published(folder)}")
    return Dataset(chosen, read_manifest(chosen))


def _folder(path: str) -> Path | RemotePath:
    scheme, mark, rest = path.partition("://")
    if mark and scheme not in ("file", "local"):
        return RemotePath(path.rstrip("/"))
    return Path(rest if mark else path).absolute()  # links in a local folder are looked at, however it is named


def _published(folder: Path | RemotePath) -> str:
    versions = sorted(found.parent.name for found in (folder / VERSIONS_FOLDER).glob(f"*/{MANIFEST_FILE}"))
    return f"there are {', '.join(versions)}" if versions else "there is none"


class Dataset:
    """One version of a dataset. Everything here is read from its own folder.

    Attributes:
        folder: the version's folder: an absolute `Path`; of a URL a `RemotePath`, whose `str` is the URL.
        manifest: its `dataset.json`.
    """

    def __init__(self, folder: Path | RemotePath, manifest: Manifest) -> None:
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
            self._vocabularies[feature] = vocabulary.read_vocabulary(self.folder, description, feature)
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
        return vocabulary.to_words(
            self.vocabulary(feature), ids, find_feature(self.manifest, feature).get("padding_id")
        )

    def label_counts(self, split: str) -> dict[str, int]:
        """How many records of a split each class has, in the order of `classes`.

        Raises:
            DatasetError: there is no such split, or the label is no category.
        """
        classes, counts = self.classes, find_split(self.manifest, split).label_counts
        if counts is None or len(counts) != len(classes):
            raise DatasetError(f"{self.folder / MANIFEST_FILE} has no count for each class of '{split}': build again")
        return dict(zip(classes, counts, strict=True))

    def batches_per_epoch(
        self, split: str, batch_size: int, *, drop_remainder: bool = True, host_count: int = 1
    ) -> int:
        """The batches that `training_input` gives each host; without `drop_remainder`, that `evaluation_input` gives.

        Raises:
            DatasetError: there is no such split, or `batch_size` is below 1.
        """
        check_batch_size(batch_size)
        records = sum(end - first for _, first, end in ranges(split, self.splits))
        return Steps(records, batch_size, host_count=host_count, drop_remainder=drop_remainder).of_epoch

    def training_input(
        self,
        split: str = "train",
        *,
        batch_size: int,
        seed: int = 0,
        epochs: int | None = None,
        shuffle: str = "global",
        balance: bool = False,
        drop_remainder: bool = True,
        augment: Sequence[Any] | Mapping[str, Sequence[Any]] = (),
        dtype: str | None = None,
        label: str | None = THE_LABEL,
        features: Collection[str] | None = None,
        with_key: bool = False,
        text: str = "padded",
        text_length: int | str | None = None,
        masks: bool = False,
        host_index: int = 0,
        host_count: int = 1,
        input_context: "tf.distribute.InputContext | None" = None,
        start_step: int = 0,
        threads: int | None = None,
        workers: int = 0,
        on_error: str = "raise",
        max_skipped: int = 100,
        verify: bool = False,
    ) -> Input:
        """Gives a split in an order that each epoch shuffles anew.

        The order and every random change are functions of the dataset, `seed`, the epoch and the position alone: any
        step can be asked for at once, and no buffer is kept. Each iteration over the input is the next epoch.

        Args:
            split: a split's name, a slice (`train[:80%]`, `train[100:]`), or several (`train+validation`).
            batch_size: records in a batch of this host, at least 1.
            seed: any whole number.
            epochs: None: an iteration is one epoch; n: it is the epochs 0 to n - 1; -1: it has no end.
            shuffle: `global` permutes all records; `blocks` permutes blocks of neighbours, and the records of each
                64 MiB of them, for files that are read by ranges; `none` is the dataset's own order.
            balance: every class of the label as often as any other; rare ones come again.
            drop_remainder: leaves out the records at an epoch's end that fill no batch on all hosts.
            augment: what is done to pictures at random (`contract.augment`): a list, for all pictures alike, or a
                dictionary of lists by feature; also MixUp and CutMix of whole batches.
            dtype: of pictures: `uint8` as stored, `float32` or `bfloat16` normalized; None as the spec says.
            label: the target, None for none; the dataset's where it is not given.
            features: the features to read beside the label; all where they are not given.
            with_key: adds `key`, the rows' keys (bytes, [batch]), to the features.
            text: `padded` to one length; `bucketed` too, in batches of like sizes; `ragged`; `packed`: the batch's
                documents in the fewest rows of `text_length` ids.
            text_length: of padded texts: a number, or `longest` for the batch's longest; by default the feature's
                `max_length`, else the batch's longest.
            masks: adds `<feature>_mask` to padded texts: bool, True where there is a token.
            host_index: which of the hosts this is, from 0. Each reads a part of its own.
            host_count: how many hosts there are; all have the same number of batches.
            input_context: gives `host_index` and `host_count` where `tf.distribute` makes the input.
            start_step: the step to begin with, counted from the first of epoch 0 on.
            threads: how many make batches; by default all cores, or one where no pictures are read.
            workers: processes that make them instead, where Python's lock is the limit; 0 for none.
            on_error: `raise` for a record that cannot be read; `skip` leaves out exactly that record.
            max_skipped: how many records may be left out.
            verify: compares every shard's sha256 first.

        Returns:
            An `Input` of `(features, label)`, or of `features` alone where there is no label: `as_numpy()` iterates
            over NumPy arrays, `as_tf_data()` is a `tf.data.Dataset`. `features` maps names to arrays of shape
            [batch, …]. A split of no records gives no batch.

        Raises:
            DatasetError: a wrong argument, a split smaller than a batch that must be full, or a shard that is missing
                or not of its size.
        """
        if input_context is not None:
            host_index, host_count = input_context.input_pipeline_id, input_context.num_input_pipelines
        return self._input(
            Arguments(
                split=split,
                batch_size=batch_size,
                seed=seed,
                epochs=epochs,
                shuffle=shuffle,
                balance=balance,
                drop_remainder=drop_remainder,
                augment=augment,
                dtype=dtype,
                label=label,
                features=features,
                with_key=with_key,
                text=text,
                text_length=text_length,
                masks=masks,
                host_index=host_index,
                host_count=host_count,
                start_step=start_step,
                threads=threads,
                workers=workers,
                on_error=on_error,
                max_skipped=max_skipped,
                verify=verify,
            )
        )

    def evaluation_input(
        self,
        split: str,
        *,
        batch_size: int,
        pad: bool | None = None,
        host_index: int = 0,
        host_count: int = 1,
        **options: Any,
    ) -> Input:
        """Gives every record of a split once, in the dataset's own order.

        Args:
            split: as in `training_input`.
            batch_size: records in a batch of this host, at least 1.
            pad: fills short batches up to `batch_size` with rows of weight 0, and adds the rows' weights, float32
                [batch]: `(features, label, weight)`, which Keras takes. Without it the last batch may be short. By
                default where there are several hosts, which all get the same number of batches.
            host_index: which of the hosts this is, from 0.
            host_count: how many hosts there are.
            **options: `augment` (such as a crop of the centre), `dtype`, `label`, `features`, `with_key`, `text`,
                `text_length`, `masks`, `threads`, `workers`, `on_error`, `max_skipped`, `verify` of `training_input`.

        Returns:
            An `Input`, each iteration over which gives the whole split.

        Raises:
            DatasetError: as `training_input`.
        """
        check_names(options, EVALUATION_OPTIONS)
        pad = host_count > 1 if pad is None else pad
        fixed: dict[str, Any] = {"shuffle": "none", "epochs": 1, "drop_remainder": False}
        return self._input(
            Arguments(
                split=split,
                batch_size=batch_size,
                pad=pad,
                host_index=host_index,
                host_count=host_count,
                **fixed,
                **options,
            )
        )

    def held(self) -> AbstractContextManager[None]:
        """Keeps `recordmill prune` from this version as long as the context lasts: `with dataset.held(): train()`.

        Raises:
            DatasetError: the version is a copy outside of a dataset's folder, or when it is entered: it was removed.
            OutputError: when it is entered: the dataset's folder cannot be written.
        """
        if self.folder.parent.name != VERSIONS_FOLDER:
            raise DatasetError(f"{self.folder} is no version in a dataset's folder: nobody prunes it")
        return held(str(self.folder.parent.parent), self.folder.name)

    def _input(self, given: Arguments) -> Input:
        request = make_request(str(self.folder), self.manifest, given)
        with Records(request.shards) as records:
            records.check()
            if given.verify:
                records.verify()
        return Input(SplitSource(request))
