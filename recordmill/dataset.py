"""A published dataset: open it, look at it, and read it for a training.

Opening fixes the version: a later build does not change this object. Opening loads only NumPy; decoders, workers,
pictures, stores and lists of versions load at their first use, by imports inside functions.

>>> dataset = open_dataset("out/emoji")  # doctest: +SKIP
>>> train = dataset.training_input("train", batch_size=256, seed=1)  # doctest: +SKIP
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from recordmill.pipeline.dataset import manifest as manifests
from recordmill.pipeline.dataset.file_names import allow
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Manifest, read_manifest
from recordmill.pipeline.dataset.paths import read_inner
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, check_types, read_as
from recordmill.pipeline.reader.options import ReadOptions, evaluation_options, ranges, training_options
from recordmill.pipeline.reader.order import Steps

if TYPE_CHECKING:
    from PIL.Image import Image

    from recordmill.pipeline.inspection import Record
    from recordmill.pipeline.reader.batches import RowSource
    from recordmill.pipeline.reader.input import Input
    from recordmill.pipeline.reader.remote import Folder
    from recordmill.transforms.images.augment.base import Augmentation
    from recordmill.transforms.texts.tokenizers import TextTokenizer

Options = ParamSpec("Options")
Made = TypeVar("Made")


def _takes(
    options: Callable[Options, ReadOptions],
) -> Callable[[Callable[..., Made]], Callable[Concatenate["Dataset", Options], Made]]:
    """Types a method's options by `ReadOptions`, which alone lists names, types and defaults."""
    return lambda method: method


def open_dataset(
    path: str | Path, version: str | int | None = None, *, files: str | Path | Sequence[str | Path] = ()
) -> "Dataset":
    """Opens a dataset.

    Args:
        path: a build's output folder, or a version's own folder, with `dataset.json`: local, or a URL of an object
            store, `s3://bucket/out/emoji` or `gs://…`.
        version: a version's name, a part of it, its number (`3`, `#3`), `-1` for the version published before the live
            one, or `live`, the default.
        files: folders, globs or URLs in which an adopted version's files may lie, besides the dataset's folder and the
            places that this user adopted into it on this machine: other files are not opened.

    Raises:
        DatasetError: the dataset is missing or unreadable.
    """
    check_types(locals(), open_dataset.__annotations__)
    folder, allowed = _folder(str(path)), [files] if isinstance(files, str | Path) else files
    if (folder / MANIFEST_FILE).is_file():
        if version is not None:
            raise DatasetError(f"{folder} is one version's own folder: leave version='{version}' out")
        return Dataset(folder, allow(read_manifest(folder), folder, map(str, allowed)))
    wanted = manifests.read_latest(folder).version if version in (None, "live") else str(version)
    chosen = manifests.version_folder(folder, wanted)
    if not (chosen / MANIFEST_FILE).is_file():
        chosen = manifests.version_folder(folder, _find(folder, wanted, is_named=wanted == str(version)))
    return Dataset(chosen, allow(read_manifest(chosen), chosen, map(str, allowed)))


def _folder(path: str) -> "Folder":
    scheme, mark, rest = path.partition("://")
    if mark and scheme not in ("file", "local"):
        from recordmill.pipeline.reader.remote import RemotePath

        return RemotePath(path.removesuffix("/"))
    return Path(rest if mark else path).absolute()  # reading checks a local folder's links, whatever its name


def _find_keys(folder: "Folder", manifest: Manifest, keys: "Sequence[bytes]") -> "Iterator[tuple[str, int, bytes]]":
    """Yields the records of keys (`reader.batches.Find`). Raises: DatasetError: rows share records."""
    from recordmill.pipeline.reader.records import ShardFile
    from recordmill.pipeline.rows import find_records

    for row in find_records(folder, manifest, *keys):
        yield ShardFile.of(str(folder), row.shard).index_of_split, row.record, row.key


def _find(folder: "Folder", wanted: str, *, is_named: bool) -> str:
    """Returns the full name of a wanted version. Raises: DatasetError: it is missing."""
    from recordmill.pipeline.reader.remote import readable
    from recordmill.pipeline.versions.listing import find, list_versions

    with readable(str(folder)):
        if is_named:
            return find(str(folder), wanted).version
        there = manifests.which_versions([version.manifest.version for version in list_versions(str(folder))])
        raise DatasetError(f"{folder / 'LATEST'} names a version that the dataset lacks: '{wanted}'; {there}")


class Dataset(DatasetVersion):
    """One version of a dataset, read from its own folder alone.

    Attributes:
        folder: the version's folder: an absolute `Path`; for a URL a `RemotePath` (`str` gives the URL).
        manifest: its `dataset.json`.
    """

    folder: "Folder"

    def _repr_html_(self) -> str:
        """Shows the dataset in a notebook: splits, features, and some records."""
        from recordmill.pipeline.facts.sample import dataset_html

        return dataset_html(self)

    def batches_per_epoch(
        self, split: str, batch_size: int, *, drop_remainder: bool = True, host_count: int = 1
    ) -> int:
        """Counts each host's batches of `training_input`; without `drop_remainder`, of `evaluation_input`.

        Raises:
            DatasetError: the split is unknown, or a value is out of range.
        """
        given = ReadOptions(split, batch_size=batch_size, host_count=host_count, drop_remainder=drop_remainder)
        records = sum(end - first for _, first, end in ranges(split, self.splits))
        return Steps(records, given.batch_size, 0, given.host_count, drop_remainder).of_epoch

    def records(self, split: str | None = None, **choice: Any) -> "Sequence[Record]":
        """Returns records for people: `dataset.records("test", label="cat", limit=5)`.

        Args:
            split: a split's name; None: all splits in turn.
            **choice: the arguments of `pipeline.inspection.read_records`: `key`, `label`, `span`, `positions`,
                `features` and `limit`.

        Returns:
            A sequence that reads as it is used, with `len` and slices; counting those of a class, key or span reads
            them all. Records have `key`, `split`, `position` and `values`: names of classes, texts, numbers in their
            own units, images with their format, size and `pillow()`.

        Raises:
            DatasetError: a split, class or feature is unknown, or a record is damaged.
        """
        from recordmill.pipeline.inspection import RecordSequence

        return RecordSequence(self, split, **choice)

    def preview(
        self, split: str | None = "train", *, augment: "Sequence[Augmentation]" = (), limit: int = 12, **choice: Any
    ) -> "Image":
        """Draws records as a model gets them: `dataset.preview("test", augment=[RandomResizedCrop(224)])`.

        Args:
            split: a split's name; None: all splits in turn.
            augment: augmentations; each image appears as in the first epochs of a training with `seed=0`.
            limit: the most records.
            **choice: the other arguments of `records`: `key`, `label`, `span`, `positions`.

        Returns:
            A Pillow image, RGB: a notebook shows it, `save` writes it.

        Raises:
            DatasetError: as `records`; or no record matches, or an augmentation does not fit the images.
        """
        from recordmill.pipeline.facts.preview import preview

        return preview(self, self.records(split, limit=limit, **choice), augment)

    @_takes(ReadOptions)
    def training_input(self, split: str = "train", **options: Any) -> "Input":
        """Returns a split, reshuffled each epoch.

        The order and every random change are functions of the dataset, `seed`, the epoch and the position alone: any
        step is available at once, without a buffer. Each iteration over the input is the next epoch.

        Args:
            split: a split's name, a slice (`train[:80%]`, `train[100:]`), or several (`train+validation`).
            **options: the fields of `ReadOptions` but `pad`, such as `batch_size`, `seed`, `augment`, `features`.

        Returns:
            An `Input` of `(features, label)`, or of `features` without a label: `as_numpy()` iterates over NumPy
            arrays, `as_tf_data()` is a `tf.data.Dataset`. `features` maps names to arrays of shape [batch, …]. An empty
            split gives 0 batches.

        Raises:
            DatasetError: a value is wrong, the split is smaller than a full batch, or a shard is missing or has another
                size.
            TypeError: an option is unknown.
        """
        return self.input(training_options(split, options))

    @_takes(ReadOptions)
    def evaluation_input(self, split: str, **options: Any) -> "Input":
        """Returns every record of a split once, in the dataset's own order.

        Args:
            split: as in `training_input`.
            **options: the fields of `ReadOptions` without those for the order: `batch_size`, `pad`, `features`, ….

        Returns:
            An `Input`; each iteration gives the whole split. Without `pad` the last batch may be short.

        Raises:
            DatasetError, TypeError: as `training_input`.
        """
        return self.input(evaluation_options(split, options))

    def input(self, options: ReadOptions) -> "Input":
        """Returns the input of options. Raises: DatasetError as `training_input`."""
        from recordmill.pipeline.reader.input import open_input

        check_types({"options": options}, {"options": ReadOptions})
        return open_input(self.folder, self.manifest, options, partial(_find_keys, self.folder, self.manifest))

    def source(self, split: str, **options: Any) -> "RowSource":
        """Returns a split's rows by number: for Grain, PyTorch's samplers, and evaluation by number or key.

        Args:
            split: as in `training_input`.
            **options: options of `evaluation_input` for single rows, such as `features` and `dtype`.

        Returns:
            A `RowSource`: `len(rows)`, `rows[17]`, `rows.number_of("cats/17.jpg")`.

        Raises:
            DatasetError, TypeError: as `evaluation_input`.
        """
        from recordmill.pipeline.reader.batches import RowSource, SplitSource
        from recordmill.pipeline.reader.request import make_request

        given = evaluation_options(split, {"batch_size": 1, **options})
        request = make_request(str(self.folder), self.manifest, given)
        return RowSource(SplitSource(request, partial(_find_keys, self.folder, self.manifest)))

    def tokenizer(self, feature: str) -> "TextTokenizer":
        """Returns the tokenizer of a text with a given model, `huggingface` or `tiktoken`.

        Returns:
            A `TextTokenizer`: `encode(text)` gives the ids that the build stores, int64, and a served model takes
            (of a `pretokenized` text, `encode(words)`, of a pair `encode([first, second])`);
            `decode(ids)` the text.

        Raises:
            DatasetError: the feature is unknown, is no such text, or its model is missing.
            UserError: the package `tokenizers` or `tiktoken` is missing.
        """
        from recordmill.transforms.texts.text_stored import LIBRARY_TOKENIZERS, TokenizerOptions
        from recordmill.transforms.texts.tokenizers import MOST_BYTES, open_tokenizer

        described = self._description(feature).as_text
        if described is None or described.tokenizer not in LIBRARY_TOKENIZERS:
            remedy = "give its serving model the texts themselves"
            raise DatasetError(f"the version's graph makes the ids of '{feature}': {remedy}")
        place, model = f"spec.features.{feature}", described.model or ""
        spec = read_as(self.manifest.spec.get("features", {}).get(feature), dict[str, Any], place)
        given = {**spec, "kind": described.kind, "tokenizer": described.tokenizer}
        options = read_as(given, TokenizerOptions, place)
        stated = read_as(self.manifest.files.get(model, {}).get("bytes", MOST_BYTES), Count, model)
        return open_tokenizer(read_inner(self.folder, model, min(stated, MOST_BYTES)), options, model)

    def held(self) -> AbstractContextManager[None]:
        """Protects this version from `recordmill versions prune`: `with dataset.held(): train()`.

        Raises:
            DatasetError: the version is a copy outside a dataset's folder; on entering: it was removed.
            OutputError: on entering: the dataset's folder cannot be written.
        """
        if self.folder.parent.name != manifests.VERSIONS_FOLDER:
            raise DatasetError(f"{self.folder} is not in a dataset's folder, and is never pruned: leave held() out")
        from recordmill.pipeline.versions.listing import held

        return held(str(self.folder.parent.parent), self.folder.name)
