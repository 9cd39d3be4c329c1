"""Prints a dataset for `recordmill show`.

It shows unknown values, such as a kind of a later Recordmill, as far as it can, and never fails on them: a description
that it cannot read is None, and the feature's kind and type are shown as they stand in the manifest.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TypeAlias

from rich.table import Table

from recordmill.pipeline.cli.screen import Screen, count, plain_table
from recordmill.pipeline.cli.versions_table import print_table
from recordmill.pipeline.dataset.duplicate_messages import summary
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.manifest import DatasetError, Json, Location, Manifest
from recordmill.pipeline.dataset.text_lengths import describe
from recordmill.pipeline.dataset.vocabulary import Ids, read_vocabulary
from recordmill.pipeline.versions.listing import Version
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.boxes import BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.kinds.number import NumberDescription, NumbersDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription
from recordmill.transforms.contract.kinds.text import TextDescription, TextsDescription

Features: TypeAlias = Mapping[str, Description | None]

SHOWN_CLASSES = 10
SHOWN_BOUNDARIES = 3
ENCODINGS = {"auto": "JPEG or PNG", "jpeg": "JPEG", "png": "PNG", "raw": "pixels", "original": "original files"}
TOKENS = {"words": "word", "whitespace": "word", "characters": "character", "bytes": "byte"}


def print_dataset(manifest: Manifest, folder: Location, versions: list[Version]) -> None:
    """Prints a version; `versions` are all of its dataset, if the dataset's folder was given."""
    live = next((version.manifest.version for version in versions if version.is_live), None)
    console = Screen()
    console.print(manifest.name, style="bold", end="")
    console.print(f"  {manifest.version}{'  (live)' if live == manifest.version else ''}")
    console.print(f"{folder}\n", soft_wrap=True)
    console.print(_splits(manifest))
    features: dict[str, Description | None] = dict.fromkeys(manifest.features)
    for name, description in manifest.features.items():
        with suppress(DatasetError):
            features[name] = read_description(description)
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


def _features(manifest: Manifest, features: Features) -> Table:
    table = plain_table("\nfeature", "\nkind", "\nstored", "\nstatistics")
    for name, description in features.items():
        label = " (label)" if name == manifest.label else ""
        json = manifest.features[name]
        statistics = ", ".join(_statistics(name, description, manifest.statistics.get(name, {})))
        table.add_row(name + label, json["kind"], _stored(description, json), statistics)
    return table


def _stored(description: Description | None, json: Json) -> str:
    """Describes what is stored of a row: the type and, of a list, the number of values."""
    stored, length, most = str(json.get("stored", "")), getattr(description, "length", None), json.get("max_length")
    match description:
        case Pixels():
            stored = _image(description)
        case BoxesDescription():
            stored = f"float32 boxes of {description.image}"
        case TextDescription():
            stored = f"{TOKENS.get(description.tokenizer, description.tokenizer)} ids"
            if description.packed:
                return f"{stored}, packed in rows of {description.packed:,}"
            if isinstance(description, TextsDescription):
                stored = f"{_texts(description)}: {stored}"
        case CategoryDescription() | CategoriesDescription():
            cross = f" of {' × '.join(json['cross'])}" if json.get("cross") else ""
            stored += f" ids{cross}{' (multi-hot)' if json.get('read') == 'multi_hot' else ''}"
        case NumberDescription() | NumbersDescription() if description.buckets is not None:
            stored += f" ids of {description.buckets:,} buckets"
        case OwnDescription(shape=None):
            length = "varying"
        case _ if isinstance(json.get("shape"), list):
            stored = f"{stored} {_sides(json['shape'])}".strip()
    if length is None:
        return stored
    if isinstance(length, int):
        return f"{stored}, {length:,} each"
    return f"{stored}, any number" if most is None else f"{stored}, at most {most:,}"


def _texts(description: TextsDescription) -> str:
    if isinstance(description.texts_per_row, int):
        return f"{description.texts_per_row:,} texts"
    return "any number of texts" if description.max_texts is None else f"at most {description.max_texts:,} texts"


def _sides(shape: Sequence[int | None]) -> str:
    return "×".join(map(str, shape))


def _image(description: Pixels) -> str:
    encoding = ENCODINGS.get(description.encoding, description.encoding)
    *sides, channels = description.shape
    if None in sides:
        return f"{encoding}, each of its own size, {count(channels or 0, 'channel')}"
    read_as = " read as" if description.encoding == "original" else ""
    return f"{encoding}{read_as} {_sides(description.shape)}"


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
        buckets = [_numbers(boundary) for boundary in description.boundaries]
        if len(buckets) > SHOWN_BOUNDARIES + 1:
            buckets[SHOWN_BOUNDARIES:-1] = ["…"]
        yield f"buckets from {' '.join(buckets)}"
    if statistics.get("relative_error"):
        yield f"quantiles within {statistics['relative_error']:.2g}"
    for form, images in statistics.get("transcoded", {}).items():
        yield f"{images:,} {form} transcoded"


def _vocabulary(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    ids = description if isinstance(description, Ids) else None
    if ids is not None and ids.hash_buckets is not None:
        yield f"{ids.hash_buckets:,} hash buckets"
    elif "words" not in statistics:
        if ids is not None and ids.vocabulary is not None:  # a tokenizer's model, or another feature's vocabulary
            yield f"{ids.vocabulary_size:,} ids"
            file = PurePosixPath(ids.vocabulary).name
            if file != vocabulary_name(name):
                yield f"shared with {file.removesuffix(vocabulary_name(''))}"
    elif statistics.get("known_tokens") is None:
        yield f"{statistics['words']:,} given"
    elif not statistics["distinct"]:
        yield "no words"
    else:
        yield f"{statistics['words']:,} of {statistics['distinct']:,} distinct"
        if statistics["known_tokens"] < statistics["tokens"]:
            yield f"{statistics['known_tokens'] / statistics['tokens']:.1%} of {statistics['tokens']:,} known"


def _numbers(value: float | Sequence[float]) -> str:
    return " ".join(f"{number:.6g}" for number in (value if isinstance(value, Sequence) else [value]))


def _print_lengths(console: Screen, manifest: Manifest, features: Features) -> None:
    """Prints a line for each text on its length and the cost of padding."""
    lines = [
        f"{name}: {describe(lengths, max_length=text.max_length, packed=text.packed)}"
        for name, text in features.items()
        if isinstance(text, TextDescription) and (lengths := manifest.statistics.get(name, {}).get("lengths"))
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
    for reason, rejected in manifest.rejects.get("by_reason", {}).items():
        console.print(f"  {reason}: {rejected:,}")
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
