"""Prints a dataset for `recordmill show`.

It shows unknown values, such as a kind of a later Recordmill, as far as it can, and never fails on them: a description
that it cannot read is None, and the feature's kind and type are shown as they stand in the manifest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from rich.table import Table

from recordmill.pipeline.cli.screen import Screen, plain_table
from recordmill.pipeline.cli.versions_table import print_table
from recordmill.pipeline.dataset.duplicate_messages import summary
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.manifest import DatasetError, Json, Location, Manifest
from recordmill.pipeline.dataset.text_lengths import describe
from recordmill.pipeline.dataset.vocabulary import Ids, read_vocabulary
from recordmill.pipeline.versions.listing import Version
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description, ListDescription
from recordmill.transforms.contract.kinds.boxes import BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import ImageDescription, ImageSequenceDescription, Pixels
from recordmill.transforms.contract.kinds.number import NumberDescription, NumbersDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription, RawDescription
from recordmill.transforms.contract.kinds.text import TextDescription

Features: TypeAlias = Mapping[str, Description | None]

SHOWN_CLASSES = 10
SHOWN_BOUNDARIES = 3


def print_dataset(manifest: Manifest, folder: Location, versions: list[Version]) -> None:
    """Prints a version; `versions` are all of its dataset, if the dataset's folder was given."""
    live = next((version.manifest.version for version in versions if version.is_live), None)
    console = Screen()
    console.print(manifest.name, style="bold", end="")
    console.print(f"  {manifest.version}{'  (live)' if live == manifest.version else ''}")
    console.print(f"{folder}\n", soft_wrap=True)
    console.print(_splits(manifest))
    features = {name: _read(description) for name, description in manifest.features.items()}
    console.print(_features(manifest, features))
    _print_lengths(console, manifest, features)
    _print_classes(console, manifest, folder, features)
    _print_rows(console, manifest)
    if versions:
        console.print("\nversions", style="bold")
        print_table(versions)


def _splits(manifest: Manifest) -> Table:
    packed = any(split.documents is not None for split in manifest.splits.values())
    numbers = ("records", *(["documents"] if packed else []), "shards", "bytes")
    table = plain_table("split", *numbers, right=numbers)
    for name, split in manifest.splits.items():
        documents = [f"{split.documents or 0:,}"] if packed else []
        table.add_row(name, f"{split.records:,}", *documents, str(len(split.shards)), f"{split.bytes:,}")
    return table


def _read(description: Json) -> Description | None:
    try:
        return read_description(description)
    except DatasetError:
        return None


def _features(manifest: Manifest, features: Features) -> Table:
    table = plain_table("\nfeature", "\nkind", "\nstored", "\nstatistics")
    for name, description in features.items():
        label = " (label)" if name == manifest.label else ""
        json = manifest.features[name]
        stored = _unknown(json) if description is None else STORED[type(description)](description)
        statistics = ", ".join(_statistics(name, description, manifest.statistics.get(name, {})))
        table.add_row(name + label, json["kind"], stored, statistics)
    return table


def _unknown(description: Json) -> str:
    shape = description.get("shape")
    return f"{description.get('stored', '')}{' ' + _sides(shape) if isinstance(shape, list) else ''}".strip()


def _raw(description: RawDescription) -> str:
    return description.stored + ("" if description.length is None else _values_each(description))


def _own(description: OwnDescription) -> str:
    return description.stored + (", any number" if description.shape is None else f" {_sides(description.shape)}")


def _values_each(description: ListDescription | RawDescription | TextDescription) -> str:
    """Gives the length of a list."""
    if isinstance(description.length, int):
        return f", {description.length:,} each"
    return ", any number" if description.max_length is None else f", at most {description.max_length:,}"


def _sides(shape: Sequence[int | None]) -> str:
    return "×".join(map(str, shape))


ENCODINGS = {"auto": "JPEG or PNG", "jpeg": "JPEG", "png": "PNG", "raw": "pixels", "original": "original files"}


def _image(description: Pixels) -> str:
    encoding = ENCODINGS.get(description.encoding, description.encoding)
    *sides, channels = description.shape
    if None in sides:
        return f"{encoding}, each of its own size, {channels} channel{'s' * (channels > 1)}"
    read_as = " read as" if description.encoding == "original" else ""
    return f"{encoding}{read_as} {_sides(description.shape)}"


TOKENS = {"words": "word", "whitespace": "word", "characters": "character", "bytes": "byte"}


def _text(description: TextDescription) -> str:
    ids = f"{TOKENS.get(description.tokenizer, description.tokenizer)} ids"
    if description.packed:
        return f"{ids}, packed in rows of {description.packed:,}"
    return ids + _values_each(description)


def _category(description: CategoryDescription) -> str:
    cross = f" of {' × '.join(description.cross)}" if description.cross else ""
    return f"{description.stored} ids{cross}"


def _categories(description: CategoriesDescription) -> str:
    multi_hot = " (multi-hot)" if description.read == "multi_hot" else ""
    return f"{description.stored} ids{multi_hot}{_values_each(description)}"


def _number(description: NumberDescription | NumbersDescription) -> str:
    return description.stored + ("" if description.buckets is None else f" ids of {description.buckets:,} buckets")


STORED: Mapping[type[Description], Callable[[Any], str]] = {
    ImageDescription: _image,
    ImageSequenceDescription: lambda description: _image(description) + _values_each(description),
    BoxesDescription: lambda description: f"float32 boxes of {description.image}{_values_each(description)}",
    TextDescription: _text,
    CategoryDescription: _category,
    CategoriesDescription: _categories,
    NumberDescription: _number,
    NumbersDescription: lambda description: _number(description) + _values_each(description),
    RawDescription: _raw,
    OwnDescription: _own,
}


def _statistics(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    """Describes a feature's values, piece by piece."""
    yield from _vocabulary(name, description, statistics)
    if "mean" in statistics:
        yield f"mean {_numbers(statistics['mean'])}"
        yield f"variance {_numbers(statistics['variance'])}"
    if "minimum" in statistics:
        yield f"{_numbers(statistics['minimum'])} to {_numbers(statistics['maximum'])}"
    if "median" in statistics:
        yield f"median {_numbers(statistics['median'])}"
    if isinstance(description, NumberDescription | NumbersDescription) and description.boundaries is not None:
        yield f"buckets from {_shortened(description.boundaries)}"
    if statistics.get("relative_error"):
        yield f"quantiles within {statistics['relative_error']:.2g}"
    for form, count in statistics.get("transcoded", {}).items():
        yield f"{count:,} {form} transcoded"


def _vocabulary(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    ids = description if isinstance(description, Ids) else None
    if ids is not None and ids.hash_buckets is not None:
        yield f"{ids.hash_buckets:,} hash buckets"
    elif "words" not in statistics:
        if ids is not None and ids.vocabulary is not None:  # a tokenizer's model, or another feature's vocabulary
            yield f"{ids.vocabulary_size:,} ids"
            yield from _shared(name, ids.vocabulary)
    elif statistics.get("known_tokens") is None:
        yield f"{statistics['words']:,} given"
    elif not statistics["distinct"]:
        yield "no words"
    else:
        yield f"{statistics['words']:,} of {statistics['distinct']:,} distinct"
        if statistics["known_tokens"] < statistics["tokens"]:
            yield f"{statistics['known_tokens'] / statistics['tokens']:.1%} of {statistics['tokens']:,} known"


def _shared(name: str, vocabulary: str) -> Iterator[str]:
    file = PurePosixPath(vocabulary).name
    if file != vocabulary_name(name):
        yield f"shared with {file.removesuffix(vocabulary_name(''))}"


def _numbers(value: float | Sequence[float]) -> str:
    return " ".join(f"{number:.6g}" for number in (value if isinstance(value, Sequence) else [value]))


def _shortened(values: Sequence[float]) -> str:
    if len(values) <= SHOWN_BOUNDARIES + 1:
        return _numbers(values)
    return f"{_numbers(values[:SHOWN_BOUNDARIES])} … {_numbers(values[-1])}"


def _print_lengths(console: Screen, manifest: Manifest, features: Features) -> None:
    """Prints a line for each text on its length and the cost of padding."""
    texts = {name: text for name, text in features.items() if isinstance(text, TextDescription)}
    lengths = {name: manifest.statistics.get(name, {}).get("lengths") for name in texts}
    lines = [
        f"{name}: {describe(lengths[name], max_length=text.max_length, packed=text.packed)}"
        for name, text in texts.items()
        if lengths[name]
    ]
    if lines:
        console.print("", *lines, sep="\n", soft_wrap=True)


def _print_classes(console: Screen, manifest: Manifest, folder: Location, features: Features) -> None:
    """Prints the label's most frequent classes, with their records in each split."""
    counted = {name: split.label_counts for name, split in manifest.splits.items() if split.label_counts}
    label = features.get(manifest.label or "")
    if not counted or label is None:
        return
    names = read_vocabulary(folder, label)
    totals = [sum(numbers) for numbers in zip(*counted.values(), strict=True)]
    splits = [f"\n{name}" for name in counted]
    table = plain_table(f"\n{manifest.label}", *splits, right=splits)
    for id_ in sorted(range(len(totals)), key=lambda id_: -totals[id_])[:SHOWN_CLASSES]:
        table.add_row(names[id_], *(f"{numbers[id_]:,}" for numbers in counted.values()))
    console.print(table)
    if len(totals) > SHOWN_CLASSES:
        console.print(f"… {len(totals) - SHOWN_CLASSES:,} more classes")


def _print_rows(console: Screen, manifest: Manifest) -> None:
    if len(manifest.sources) > 1:
        console.print(_sources(manifest))
    rows = manifest.rows
    left_out = f" + {rows['duplicates']:,} duplicates left out" if rows.get("duplicates") else ""
    sums = f"{rows['written']:,} written + {rows['rejected']:,} rejected{left_out}"
    console.print(f"\n{rows['read']:,} rows read = {sums}")
    for reason, count in manifest.rejects.get("by_reason", {}).items():
        console.print(f"  {reason}: {count:,}")
    if inside := manifest.rejects.get("in_statistics"):
        console.print(f"  {inside:,} of these were part of the statistics: they were rejected after the analysis")
    for file in manifest.rejects.get("files", []):
        console.print(f"  in {file['file']}")
    lines = list(summary(manifest.duplicates))
    if lines:
        console.print("\nduplicates", style="bold")
        console.print(*(f"  {line}" for line in lines), sep="\n", soft_wrap=True)


def _sources(manifest: Manifest) -> Table:
    """The rows of each source, with its share of the records."""
    total = sum(source["written"] for source in manifest.sources)
    dropped = any(source.get("duplicates") for source in manifest.sources)
    numbers = ["\nrows read", "\nwritten", "\nshare", "\nrejected", *(["\nduplicates"] if dropped else [])]
    table = plain_table("\nsource", *numbers, right=numbers)
    for source in manifest.sources:
        share = f"{source['written'] / total:.1%}" if total else ""
        counts = (f"{source['read']:,}", f"{source['written']:,}", share, f"{source['rejected']:,}")
        left_out = [f"{source.get('duplicates', 0):,}"] if dropped else []
        table.add_row(f"{source['format']} {source['path']}", *counts, *left_out)
    return table
