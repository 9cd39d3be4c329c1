"""The options of an input, checked against a dataset, with its shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.manifest_parts import Pack
from recordmill.pipeline.dataset.paths import ADVICE
from recordmill.pipeline.dataset.version import parts_to_parse
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.local_shards import ShardFile
from recordmill.pipeline.reader.options import THE_LABEL, ReadOptions, ranges
from recordmill.pipeline.reader.order import Integers, Selected, Steps, lanes_for
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import IMAGES, KEY, Stored, part_name
from recordmill.transforms.images.augment import chain
from recordmill.transforms.images.augment.base import Augmentation
from recordmill.transforms.images.augment.regularization import BatchAugmentation
from recordmill.transforms.images.image_stored import Pixels

Ranges = tuple[tuple[int, int], ...]  # (first, end)


@dataclass(frozen=True)
class Request:
    """The records to read, and how."""

    given: ReadOptions
    dataset: str
    version: str
    shards: tuple[ShardFile, ...]  # the shards of all requested splits, in order
    ranges: Ranges  # the records to read, in the numbering over all shards
    features: dict[str, Description]  # the descriptions of the features to read, with the label
    parts: Mapping[str, Stored]  # the parts of a record to parse; for adopted files without keys, without the key
    statistics: Mapping[str, Mapping[str, Any]]  # what the build learned, by feature
    label: str | None
    augment: Mapping[str, tuple[Augmentation, ...]]  # random changes of images, by feature
    masks: frozenset[str]  # augmented features that hold masks, not colours
    mixtures: tuple[BatchAugmentation, ...]  # random changes of whole batches
    steps: Steps
    key: Mapping[str, Stored]  # the part of a record with its key; empty for adopted files without keys
    splits: Mapping[str, int]  # the number of each split's first record, over all shards
    pack: Pack | None = None  # the pack of the rows to read; None: rows are records
    without: str | None = None  # tells lists of keys to leave out apart
    gone: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    """The records to leave out, ascending, in the numbering over all shards."""
    gone_rows: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    """The rows that the order leaves out, ascending, in its numbering: for packed rows, those left empty."""

    @property
    def packing(self) -> Pack | None:
        """The pack of the rows in batches; None for a served row."""
        return self.pack if self.given.text == "packed" else None

    @property
    def stored(self) -> Mapping[str, Stored]:
        """The parts to parse of a batch's records: of packed rows the lists."""
        return self.parts if self.packing is None else lists_of(self.parts)

    @property
    def batch_bytes(self) -> int:
        """The bytes of a batch's records, about."""
        return self.steps.batch_size * self.bytes // max(1, self.size)

    @property
    def size(self) -> int:
        """The rows of the ranges, with those to leave out."""
        return self.steps.records + len(self.gone_rows)

    @property
    def bytes(self) -> int:
        """The bytes of the ranges' records, by the shards' mean size of a row."""
        rows = sum(shard.rows for shard in self.shards)
        return sum(shard.bytes for shard in self.shards) * self.size // max(1, rows)

    @property
    def is_remote(self) -> bool:
        """Whether the shards are URLs."""
        return any("://" in path for shard in self.shards for path, _ in shard.sizes())

    @property
    def refills(self) -> bool:
        """Whether another record replaces a damaged one: with `pad`, and on several hosts in training."""
        return self.steps.host_count > 1 if self.given.pad is None else self.given.pad


def make_request(folder: str, manifest: Manifest, given: ReadOptions) -> Request:
    """Checks options against a dataset. Raises: DatasetError: an option does not fit."""
    label = manifest.label if given.label == THE_LABEL else given.label
    is_remote = any("://" in path for path in (folder, *(shard.root or "" for shard in manifest.shards)))
    shuffle = given.shuffle or ("blocks" if is_remote else "global")
    is_packed = len(manifest.packs) == 1 and {*manifest.packs[0].features} == manifest.features.keys()
    given = replace(given, shuffle=shuffle, text=given.text or ("packed" if is_packed else "padded"))
    pack = _pack(manifest, given, label)
    features = _features(manifest, given, label, pack)
    shards, chosen, splits = _shards(folder, manifest, given.split, pack)
    if pack is None:
        _check_forms(given, features, manifest)
    else:
        for name, description in features.items():
            if {part.dtype for part in lists_of(description.parts).values()} != {"int64"}:
                raise DatasetError(f"'{name}' is no list of int64, and its rows cannot be packed: {ADVICE}")
    records = sum(end - first for first, end in chosen)
    lanes = lanes_for(given.host_count) if given.shuffle == "blocks" and not given.balance else 0
    request = Request(
        given=given,
        dataset=manifest.name,
        version=manifest.version,
        shards=shards,
        ranges=chosen,
        features=features,
        parts=parts_to_parse(manifest, features, with_key=given.with_key),
        statistics={name: manifest.statistics.get(name, {}) for name in features},
        label=label,
        **_augmentations(given.augment, features, label),
        steps=Steps(records, given.batch_size, given.host_index, given.host_count, given.drop_remainder, lanes),
        key=parts_to_parse(manifest, {}),
        splits=splits,
        pack=pack,
    )
    check_batches(request)
    return request


def lists_of(parts: Mapping[str, Stored]) -> dict[str, Stored]:
    """Returns the parts that are lists, and the key: a text's `length` is one number a record."""
    return {name: part for name, part in parts.items() if part.shape is None or name == KEY}


def _pack(manifest: Manifest, given: ReadOptions, label: str | None) -> Pack | None:
    """Returns the pack to read; None if the rows are records. Raises: DatasetError: no pack has such rows."""
    if given.text != "packed" or not manifest.packs:
        return None
    fits = [pack for pack in manifest.packs if given.text_length in (None, pack.length)]
    if len(fits) != 1:
        lengths = f"text_length {' or '.join(str(pack.length) for pack in manifest.packs)}, got {given.text_length}"
        raise DatasetError(f"text='packed' reads rows of {lengths}; text='padded' reads records")
    [pack] = fits
    others = [name for name in (*(given.features or ()), label) if name is not None and name not in pack.features]
    if others:
        absent = f"'{others[0]}' is not in the packed rows, of several records' {', '.join(pack.features)}"
        raise DatasetError(f"{absent}: leave it out of features, with label=None")
    if given.balance:
        raise DatasetError("balance is for records, and a packed row joins several: leave it out")
    return pack


def of_host(request: Request) -> Request:
    """Returns this host's records as a single host's request, without padding."""
    steps = request.steps
    positions = [steps.positions(step) for step in range(steps.of_epoch)]
    numbers = Selected(request.ranges)(np.concatenate([np.zeros(0, np.int64), *positions]))
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return replace(
        request,
        given=replace(request.given, pad=False, host_index=0, host_count=1),
        ranges=tuple((int(run[0]), int(run[-1]) + 1) for run in runs if len(run)),
        steps=replace(steps, records=len(numbers), host_index=0, host_count=1),
    )


def _features(manifest: Manifest, given: ReadOptions, label: str | None, pack: Pack | None) -> dict[str, Description]:
    chosen = given.features
    all_names = manifest.features if pack is None else pack.features
    names = list(all_names if chosen is None else chosen)
    if not names and label is None and not given.with_key:
        raise DatasetError("features is empty, without a label or keys: name a feature, or with_key=True")
    if chosen is not None and label in names:
        raise DatasetError(f"'{label}' is the label, always read: leave it out of features")
    if label is not None and label not in names:
        names = [*names, label]
    return read_descriptions({name: manifest.feature(name) for name in names})


def _check_forms(given: ReadOptions, features: Mapping[str, Description], manifest: Manifest) -> None:
    """Checks that options for texts and images find such features."""
    texts = {name: text for name, description in features.items() if (text := description.as_text)}
    if given.text != "padded" and not texts:
        raise DatasetError(f"text='{given.text}' needs a text, and none is read: leave it out")
    if taken := [part_name(name, "mask") for name in texts if given.masks and part_name(name, "mask") in features]:
        raise DatasetError(f"masks=True adds '{taken[0]}', the name of a feature, too: leave one of both out")
    several = [name for name, text in texts.items() if text.several]
    if given.captions != "all" and not several:
        raise DatasetError(f"captions='{given.captions}' needs several texts per row, and none are read: leave it out")
    if given.captions == "all" and given.text == "packed" and several:
        raise DatasetError(f"text='packed' takes one text a row, '{several[0]}' has more: captions='first' or 'random'")
    if given.dtype is not None and not images_of(features):
        raise DatasetError(f"dtype='{given.dtype}' needs an image, and none is read: leave it out")
    for name, image in images_of(features).items():
        if not image.is_mask and given.dtype in ("uint8", "uint16") and given.dtype != image.pixel:
            what = f"takes stored pixels, and '{name}' has {image.pixel}"
            raise DatasetError(f"dtype='{given.dtype}' {what}: leave dtype out")
    stored = [name for name, description in manifest.features.items() if description.get("kind") in IMAGES]
    if given.text == "bucketed" and stored:
        raise DatasetError(f"text='bucketed' goes by record size, here the images '{stored[0]}': take text='padded'")
    if given.text != "packed":
        return
    if len(features) > 1:
        joins = f"text='packed' joins several rows, and reads one text alone, not {', '.join(features)}"
        raise DatasetError(f"{joins}: name the text in features, with label=None")
    [(name, text)] = texts.items()
    if text.packed:
        raise DatasetError(f"'{name}' was packed by its build: leave text='packed' out")
    if given.length_of(text.max_length) is None:
        raise DatasetError(f"text='packed' needs text_length, the ids in a row of '{name}'")
    if given.pad:
        raise DatasetError("text='packed' gives rows of several records, without weights: pad=False")


def images_of(features: Mapping[str, Description]) -> dict[str, Pixels]:
    """Returns the images, masks included, by feature."""
    return {name: image for name, description in features.items() if (image := description.as_image)}


def _augmentations(given: Any, features: Mapping[str, Description], label: str | None) -> dict[str, Any]:
    """Checks `augment`, and returns a request's fields for it."""
    images = images_of(features)
    if given and not images:
        raise DatasetError("augment needs an image, and none is read: leave it out")
    mixtures: list[BatchAugmentation] = []
    of_image = {name: str(each.lies_on) for name, each in features.items() if name in images and each.lies_on}
    masks = frozenset(of_image)
    if isinstance(given, Mapping):
        given = {**{name: given[image] for name, image in of_image.items() if image in given}, **given}
        stated = {name: changes.changes for name, changes in given.items() if isinstance(changes, chain.Mask)}
        masks |= stated.keys()
        by_feature = {name: _list(stated.get(name, each)) for name, each in given.items()}
    else:
        mixtures = [change for change in _list(given) if isinstance(change, BatchAugmentation)]
        by_feature = dict.fromkeys(images, [change for change in given if change not in mixtures])
    for name in by_feature:
        if name not in images:
            raise DatasetError(f"augment is for images, and '{name}' is not among {', '.join(images)}")
    try:
        augment = {name: chain.check(changes) for name, changes in by_feature.items() if changes}
        for name, changes in augment.items():
            if name not in masks and images[name].planes:
                chain.check_deep(changes)
    except ValueError as error:
        raise DatasetError(str(error)) from None
    for name, changes in augment.items():
        if not any(isinstance(change, chain.Views) for change in changes):
            continue
        if any(each.as_places and each.lies_on == name for each in features.values()):
            raise DatasetError(chain.NO_POINTS)
        if chain.output_shape(changes, images[name].shape)[0] is None:
            differ = f"the images '{name}' differ in height, and so would the views in a batch"
            raise DatasetError(f"{differ}: give Views a change to one size, such as RandomResizedCrop(224)")
    for mixture in mixtures:
        if of_image and mixture.images is None:
            raise DatasetError(f"{mixture} would mix the masks {', '.join(of_image)}: name the features, images=(…)")
    target = features.get(label or "")
    if mixtures and target and target.lies_on:
        remedy = "name another label, or label=None: as a feature it stays the row's own"
        raise DatasetError(f"{mixtures[0]} cannot mix '{label}', which lies on '{target.lies_on}': {remedy}")
    classes = target.class_count if target else None
    # By default a mixture mixes four dimensions or more, as key points also have.
    mixed = tuple(images) if any(each.as_places and each.as_places.partners for each in features.values()) else None
    known = tuple(replace(mix, num_classes=mix.num_classes or classes, images=mix.images or mixed) for mix in mixtures)
    return {"augment": augment, "masks": masks, "mixtures": known}


def _list(given: Any) -> Sequence[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DatasetError(f"augment is a list, or a dictionary of lists by feature, got {cut(repr(given))}")
    return given


def _shards(
    folder: str, manifest: Manifest, splits: str, pack: Pack | None
) -> tuple[tuple[ShardFile, ...], Ranges, dict[str, int]]:
    """Returns the shards of the splits in an expression, each once, the ranges of rows, and the first records."""
    named = {part.partition("[")[0].strip() for part in splits.split("+")}
    length = pack.length if pack else None
    files = {
        name: [ShardFile.of(folder, shard, length) for shard in split.shards] if name in named else []
        for name, split in manifest.splits.items()
    }
    wanted = ranges(splits, {name: sum(file.rows for file in of_split) for name, of_split in files.items()})
    starts, first_records = dict[str, int](), dict[str, int]()
    shards: list[ShardFile] = []
    for name, _, _ in wanted:
        if name not in starts:
            starts[name] = sum(shard.rows for shard in shards)
            first_records[name] = sum(shard.records for shard in shards)
            shards += files[name]
    chosen = tuple((starts[name] + first, starts[name] + end) for name, first, end in wanted)
    return tuple(shards), chosen, first_records


def check_batches(request: Request) -> None:
    """Checks that the records fill a batch, and have classes to balance. Raises: DatasetError."""
    steps, given = request.steps, request.given
    if 0 < steps.records < steps.global_batch and given.drop_remainder:
        hosts = f" on {steps.host_count} hosts" if steps.host_count > 1 else ""
        less = f"'{given.split}' holds {steps.records} records, less than a batch of {given.batch_size}{hosts}"
        raise DatasetError(f"{less}: take a smaller batch_size, or drop_remainder=False")
    if given.balance:
        label = request.features[request.label] if request.label else None
        if label is None or label.class_count is None:
            kind = "nothing" if label is None else label.kind
            raise DatasetError(f"balance=True needs a category as label, got {kind}: leave it out, or name a category")
