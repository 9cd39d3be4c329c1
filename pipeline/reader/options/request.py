"""What an input is to give: its arguments, checked, with the shards that hold the records."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recordmill.pipeline.dataset.manifest import DatasetError, Json, Manifest, Shard, Split
from recordmill.pipeline.dataset.safe_paths import check_place
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.reader.options.split_expressions import ranges
from recordmill.pipeline.reader.order.steps import FOR_EVER, Steps
from recordmill.pipeline.reader.records.random_access import ShardFile
from recordmill.transforms.contract.augment import Augmentation, Mask, Shape, check, output_shape
from recordmill.transforms.contract.finish_options import FinishOptions
from recordmill.transforms.contract.stored import PICTURES
from recordmill.transforms.numpy.augment_batches import BatchAugmentation

SHUFFLES = ("global", "blocks", "none")
ON_ERROR = ("raise", "skip")
THE_LABEL = "(the dataset's label)"
"""Stands for the label that the manifest names."""
EVALUATION_OPTIONS = (
    "augment", "dtype", "label", "features", "with_key", "text", "text_length", "masks", "threads", "workers",
    "on_error", "max_skipped", "verify",
)  # fmt: skip
"""The arguments of `training_input` that `evaluation_input` has too."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of `training_input` and `evaluation_input`, as they were given."""

    split: str
    batch_size: int
    seed: int = 0
    epochs: int | None = None
    shuffle: str = "global"
    balance: bool = False
    drop_remainder: bool = True
    pad: bool = False
    augment: Any = ()
    dtype: str | None = None
    label: str | None = THE_LABEL
    features: Collection[str] | None = None
    with_key: bool = False
    text: str = "padded"
    text_length: int | str | None = None
    masks: bool = False
    host_index: int = 0
    host_count: int = 1
    start_step: int = 0
    threads: int | None = None
    workers: int = 0
    on_error: str = "raise"
    max_skipped: int = 100
    verify: bool = False


@dataclass(frozen=True)
class Request:
    """What is to be read, and how; checked."""

    given: Arguments
    dataset: str
    version: str
    shards: tuple[ShardFile, ...]
    """Of all splits that are read, in the order of their records."""
    ranges: tuple[tuple[int, int], ...]
    """The records to read, (first, end) in the numbers of all shards' records."""
    features: dict[str, Json]
    """The descriptions of the features to read, the label among them."""
    label: str | None
    finish: FinishOptions
    augment: Mapping[str, tuple[Augmentation, ...]]
    """By feature: what is done to its pictures."""
    masks: frozenset[str]
    """Those of them whose values are no colours."""
    mixtures: tuple[BatchAugmentation, ...]
    """What is done to whole batches."""
    steps: Steps

    @property
    def bytes(self) -> int:
        """Of the records to read, by the mean of all in the shards."""
        records = sum(shard.records for shard in self.shards)
        return sum(shard.bytes for shard in self.shards) * self.steps.records // max(1, records)

    @property
    def threads(self) -> int:
        """How many threads make batches; without pictures Python's lock is held nearly always, and two are slower."""
        return self.given.threads or (cores() if pictures_of(self.features) else 1)

    @property
    def rows(self) -> int | None:
        """The rows of a batch; None where that differs."""
        constant = (self.given.drop_remainder or self.given.pad) and self.given.on_error == "raise"
        return self.given.batch_size if constant else None

    def picture_shape(self, feature: str, shape: Shape) -> Shape:
        """The shape of a feature's pictures, [height, width, channels], when they are augmented."""
        return output_shape(self.augment.get(feature, ()), shape)

    def order_facts(self) -> dict[str, Any]:
        """What the order of the batches follows from, but for the number of hosts."""
        return {
            "dataset": self.dataset,
            "version": self.version,
            "split": self.given.split,
            "seed": self.given.seed,
            "shuffle": self.given.shuffle,
            "balance": self.given.balance,
            "bucketed": self.finish.text == "bucketed",
            "drop_remainder": self.given.drop_remainder,
            "global_batch_size": self.steps.global_batch,
        }


def make_request(folder: str, manifest: Manifest, given: Arguments) -> Request:
    """Checks arguments against a dataset.

    Raises:
        DatasetError: a wrong argument; the message says what to do.
    """
    _check_numbers(given)
    label = manifest.label if given.label == THE_LABEL else given.label
    features = _chosen_features(manifest, given.features, label)
    shards, chosen = _shards(folder, manifest, given.split)
    records = sum(end - first for first, end in chosen)
    request = Request(
        given=given,
        dataset=manifest.name,
        version=manifest.version,
        shards=shards,
        ranges=chosen,
        features=features,
        label=label,
        finish=_finish_options(given, features, manifest),
        **_augmentations(given.augment, features, label),
        steps=Steps(records, given.batch_size, given.host_index, given.host_count, given.drop_remainder),
    )
    _check_batches(request)
    return request


def find_split(manifest: Manifest, split: str) -> Split:
    """Gives a split by its name. Raises: DatasetError if there is none of that name."""
    if split not in manifest.splits:
        raise _unknown("split", split, manifest.splits, manifest)
    return manifest.splits[split]


def find_feature(manifest: Manifest, feature: str) -> Json:
    """Gives a feature's description by its name. Raises: DatasetError if there is none of that name."""
    if feature not in manifest.features:
        raise _unknown("feature", feature, manifest.features, manifest)
    return manifest.features[feature]


def check_batch_size(batch_size: int) -> None:
    """Refuses less than one record. Raises: DatasetError."""
    if not isinstance(batch_size, int) or batch_size < 1:
        raise DatasetError(f"batch_size is the number of records in a batch, at least 1, got {batch_size!r}")


def check_names(options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuses an option that there is not. Raises: TypeError, as Python does."""
    for name in options:
        if name not in known:
            raise TypeError(f"evaluation_input has no option '{name}'{did_you_mean(name, known)}")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _unknown(what: str, name: str, known: Iterable[str], manifest: Manifest) -> DatasetError:
    near = did_you_mean(name, known)
    return DatasetError(f"{manifest.name} has no {what} '{name}'{near}; there are: {', '.join(known)}")


def _check_numbers(given: Arguments) -> None:
    check_batch_size(given.batch_size)
    if given.shuffle not in SHUFFLES:
        raise DatasetError(f"shuffle is one of {', '.join(SHUFFLES)}, got {given.shuffle!r}")
    if given.on_error not in ON_ERROR:
        raise DatasetError(f"on_error is one of {', '.join(ON_ERROR)}, got {given.on_error!r}")
    if given.host_count < 1 or not 0 <= given.host_index < given.host_count:
        raise DatasetError(f"host_index is 0 to host_count - 1, got {given.host_index} of {given.host_count}")
    if given.epochs is not None and given.epochs < 1 and given.epochs != FOR_EVER:
        raise DatasetError(
            f"epochs is how many one iteration gives, at least 1; None: one, the next each time; -1: without end; "
            f"got {given.epochs}"
        )
    for name, least in (("start_step", 0), ("workers", 0), ("max_skipped", 0)):
        if getattr(given, name) < least:
            raise DatasetError(f"{name} is at least {least}, got {getattr(given, name)}")
    if given.threads is not None and given.threads < 1:
        raise DatasetError(f"threads is at least 1, got {given.threads}")


def _chosen_features(manifest: Manifest, chosen: Collection[str] | None, label: str | None) -> dict[str, Json]:
    names = list(manifest.features) if chosen is None else chosen
    if isinstance(names, str) or not names:
        raise DatasetError(f"features is a list of at least one name, got {names!r}")
    if chosen is not None and label in names:
        raise DatasetError(f"'{label}' is the label, which is always read: leave it out of features")
    if label is not None and label not in names:
        names = [*names, label]
    return {name: find_feature(manifest, name) for name in names}


def _finish_options(given: Arguments, features: Mapping[str, Json], manifest: Manifest) -> FinishOptions:
    try:
        options = FinishOptions(given.dtype, given.text, given.text_length, given.masks)
    except ValueError as error:
        raise DatasetError(str(error)) from None
    texts = [name for name, description in features.items() if description["kind"] == "text"]
    pictures = pictures_of(features)
    if given.text != "padded" and not texts:
        raise DatasetError(f"text='{given.text}' is for texts, and none is read: leave it out")
    if given.dtype is not None and not pictures:
        raise DatasetError(f"dtype='{given.dtype}' is for pictures, and none is read: leave it out")
    stored = pictures_of(manifest.features)
    if given.text == "bucketed" and stored:
        raise DatasetError(
            f"text='bucketed' goes by the sizes of records, which here are those of the pictures '{stored[0]}': "
            "take text='padded'"
        )
    if given.text == "packed":
        _check_packed(options, features)
        if given.pad:
            raise DatasetError("text='packed' gives rows of several records, which have no weight each: pad=False")
    return options


def pictures_of(features: Mapping[str, Json]) -> list[str]:
    """The features that are pictures."""
    return [name for name, description in features.items() if description["kind"] in PICTURES]


def _check_packed(options: FinishOptions, features: Mapping[str, Json]) -> None:
    if len(features) > 1:
        raise DatasetError(
            f"text='packed' puts several rows into one, so that only a text can be read, not {', '.join(features)}: "
            "name it in features, with label=None"
        )
    name, description = next(iter(features.items()))
    if description.get("packed"):
        raise DatasetError(f"'{name}' was packed when it was built: leave text='packed' out")
    if options.length_of(description) is None:
        raise DatasetError(f"text='packed' needs text_length, how many ids a row of '{name}' holds")


def _augmentations(given: Any, features: Mapping[str, Json], label: str | None) -> dict[str, Any]:
    """What is done to pictures, by feature, and to batches: the fields of a request."""
    pictures = pictures_of(features)
    if given and not pictures:
        raise DatasetError("augment is for pictures, and none is read: leave it out")
    mixtures: list[BatchAugmentation] = []
    masks: frozenset[str] = frozenset()
    if isinstance(given, Mapping):
        masks = frozenset(name for name, changes in given.items() if isinstance(changes, Mask))
        by_feature = {
            name: _list(changes.changes if isinstance(changes, Mask) else changes) for name, changes in given.items()
        }
    else:
        mixtures = [change for change in _list(given) if isinstance(change, BatchAugmentation)]
        by_feature = dict.fromkeys(pictures, [change for change in given if change not in mixtures])
    for name in by_feature:
        if name not in pictures:
            raise DatasetError(f"augment is for pictures, and '{name}' is none that is read: {', '.join(pictures)}")
    try:
        augment = {name: check(changes) for name, changes in by_feature.items() if changes}
    except ValueError as error:
        raise DatasetError(str(error)) from None
    classes = _num_classes(features, label)
    known = tuple(replace(mixture, num_classes=mixture.num_classes or classes) for mixture in mixtures)
    return {"augment": augment, "masks": masks, "mixtures": known}


def _num_classes(features: Mapping[str, Json], label: str | None) -> int | None:
    """How many classes the label's ids are of; None where it is no category."""
    if label is None or features[label]["kind"] != "category":
        return None
    return int(features[label]["vocabulary_size"])


def _list(given: Any) -> Sequence[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DatasetError(f"augment is a list, or a dictionary of lists by feature, got {given!r:.80}")
    return given


def _shards(
    folder: str, manifest: Manifest, expression: str
) -> tuple[tuple[ShardFile, ...], tuple[tuple[int, int], ...]]:
    """The shards of the splits that an expression names, each once, and the ranges of their records."""
    wanted = ranges(expression, {name: split.records for name, split in manifest.splits.items()})
    starts: dict[str, int] = {}
    shards: list[ShardFile] = []
    for name, _, _ in wanted:
        if name not in starts:
            starts[name] = sum(shard.records for shard in shards)
            shards += [_shard_file(folder, shard) for shard in manifest.splits[name].shards]
    return tuple(shards), tuple((starts[name] + first, starts[name] + end) for name, first, end in wanted)


def _shard_file(folder: str, shard: Shard) -> ShardFile:
    for path in (shard.file, shard.index):
        check_place(folder, path)
    return ShardFile(f"{folder}/{shard.file}", f"{folder}/{shard.index}", shard.records, shard.bytes, shard.sha256)


def _check_batches(request: Request) -> None:
    steps, given = request.steps, request.given
    if 0 < steps.records < steps.global_batch and given.drop_remainder:
        hosts = f" on {steps.host_count} hosts" if steps.host_count > 1 else ""
        raise DatasetError(
            f"'{given.split}' holds {steps.records} records, which is no full batch of {given.batch_size}{hosts}: "
            "take a smaller batch_size, or drop_remainder=False"
        )
    if given.balance:
        description = request.features[request.label] if request.label else {"kind": "nothing"}
        if description["kind"] != "category":
            raise DatasetError(
                f"balance=True needs a label that is a category, got {description['kind']}: leave it out, "
                "or name the category as label"
            )
