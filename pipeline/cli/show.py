"""Prints a dataset for `recordmill show`.

It shows unknown values, such as a kind of a later Recordmill, as far as it can, and never fails on them.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from rich.table import Table

from recordmill.pipeline.cli.screen import Screen, plain_table
from recordmill.pipeline.cli.versions_table import print_table
from recordmill.pipeline.dataset.duplicate_messages import summary
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.manifest import Json, Location, Manifest
from recordmill.pipeline.dataset.text_lengths import describe
from recordmill.pipeline.dataset.vocabulary import read_vocabulary
from recordmill.pipeline.versions.listing import Version
from recordmill.transforms.contract.kinds import read_description

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
    console.print(_features(manifest))
    _print_lengths(console, manifest)
    _print_classes(console, manifest, folder)
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


def _features(manifest: Manifest) -> Table:
    table = plain_table("\nfeature", "\nkind", "\nstored", "\nstatistics")
    for name, description in manifest.features.items():
        label = " (label)" if name == manifest.label else ""
        stored = STORED.get(description["kind"], _plain)(description) + _values_each(description)
        statistics = ", ".join(_statistics(name, description, manifest.statistics.get(name, {})))
        table.add_row(name + label, description["kind"], stored, statistics)
    return table


def _plain(description: Json) -> str:
    shape = description.get("shape")
    return f"{description.get('stored', '')}{' ' + _sides(shape) if shape else ''}".strip()


def _values_each(description: Json) -> str:
    """The length of a list; empty for a single value."""
    if description["kind"] == "own" and description.get("shape") is None:
        return ", any number"
    if "length" not in description:
        return ""
    if description["length"] != "varying":
        return f", {description['length']:,} each"
    if "packed" in description:
        return f", packed in rows of {description['packed']:,}"
    limit = description.get("max_length")
    return ", any number" if limit is None else f", at most {limit:,}"


def _sides(shape: list[int]) -> str:
    return "×".join(map(str, shape))


ENCODINGS = {"auto": "JPEG or PNG", "jpeg": "JPEG", "png": "PNG", "raw": "pixels", "original": "original files"}


def _image(description: Json) -> str:
    encoding = ENCODINGS.get(description["encoding"], description["encoding"])
    *sides, channels = description["shape"]
    if None in sides:
        return f"{encoding}, each of its own size, {channels} channel{'s' * (channels > 1)}"
    read_as = " read as" if description["encoding"] == "original" else ""
    return f"{encoding}{read_as} {_sides(description['shape'])}"


TOKENS = {"words": "word", "whitespace": "word", "characters": "character", "bytes": "byte"}


def _text(description: Json) -> str:
    tokenizer = description.get("tokenizer", "words")
    return f"{TOKENS.get(tokenizer, tokenizer)} ids"


def _names(description: Json) -> str:
    cross = f" of {' × '.join(description['cross'])}" if "cross" in description else ""
    multi_hot = " (multi-hot)" if description.get("read") == "multi_hot" else ""
    return f"{description['stored']} ids{cross}{multi_hot}"


def _number(description: Json) -> str:
    buckets = f" ids of {description['buckets']:,} buckets" if "buckets" in description else ""
    return f"{description['stored']}{buckets}"


STORED: Mapping[str, Callable[[Json], str]] = {
    "image": _image,
    "image_sequence": _image,
    "boxes": lambda description: f"float32 boxes of {description['image']}",
    "text": _text,
    "category": _names,
    "categories": _names,
    "number": _number,
    "numbers": _number,
}


def _statistics(name: str, description: Json, statistics: Json) -> Iterator[str]:
    """Describes a feature's values, piece by piece."""
    yield from _vocabulary(name, description, statistics)
    if "mean" in statistics:
        yield f"mean {_numbers(statistics['mean'])}"
        yield f"variance {_numbers(statistics['variance'])}"
    if "minimum" in statistics:
        yield f"{_numbers(statistics['minimum'])} to {_numbers(statistics['maximum'])}"
    if "median" in statistics:
        yield f"median {_numbers(statistics['median'])}"
    if "boundaries" in description:
        yield f"buckets from {_shortened(description['boundaries'])}"
    if statistics.get("relative_error"):
        yield f"quantiles within {statistics['relative_error']:.2g}"
    for form, count in statistics.get("transcoded", {}).items():
        yield f"{count:,} {form} transcoded"


def _vocabulary(name: str, description: Json, statistics: Json) -> Iterator[str]:
    if "hash_buckets" in description:
        yield f"{description['hash_buckets']:,} hash buckets"
    elif "words" not in statistics:
        if "vocabulary" in description:  # a tokenizer's model, or another feature's vocabulary
            yield f"{description['vocabulary_size']:,} ids"
            yield from _shared(name, description)
    elif statistics.get("known_tokens") is None:
        yield f"{statistics['words']:,} given"
    elif not statistics["distinct"]:
        yield "no words"
    else:
        yield f"{statistics['words']:,} of {statistics['distinct']:,} distinct"
        if statistics["known_tokens"] < statistics["tokens"]:
            yield f"{statistics['known_tokens'] / statistics['tokens']:.1%} of {statistics['tokens']:,} known"


def _shared(name: str, description: Json) -> Iterator[str]:
    file = PurePosixPath(description["vocabulary"]).name
    if file != vocabulary_name(name):
        yield f"shared with {file.removesuffix(vocabulary_name(''))}"


def _numbers(value: float | list[float]) -> str:
    return " ".join(f"{number:.6g}" for number in (value if isinstance(value, list) else [value]))


def _shortened(values: list[float]) -> str:
    if len(values) <= SHOWN_BOUNDARIES + 1:
        return _numbers(values)
    return f"{_numbers(values[:SHOWN_BOUNDARIES])} … {_numbers(values[-1])}"


def _print_lengths(console: Screen, manifest: Manifest) -> None:
    """Prints a line for each text on its length and the cost of padding."""
    texts = {name: feature for name, feature in manifest.features.items() if feature["kind"] == "text"}
    lengths = {name: manifest.statistics.get(name, {}).get("lengths") for name in texts}
    lines = [
        f"{name}: {describe(lengths[name], max_length=feature.get('max_length'), packed=feature.get('packed'))}"
        for name, feature in texts.items()
        if lengths[name]
    ]
    if lines:
        console.print("", *lines, sep="\n", soft_wrap=True)


def _print_classes(console: Screen, manifest: Manifest, folder: Location) -> None:
    """Prints the label's most frequent classes, with their records in each split."""
    counted = {name: split.label_counts for name, split in manifest.splits.items() if split.label_counts}
    if not counted:
        return
    names = read_vocabulary(folder, read_description(manifest.features[str(manifest.label)]))
    totals = [sum(numbers) for numbers in zip(*counted.values(), strict=True)]
    splits = [f"\n{name}" for name in counted]
    table = plain_table(f"\n{manifest.label}", *splits, right=splits)
    for label in sorted(range(len(totals)), key=lambda label: -totals[label])[:SHOWN_CLASSES]:
        table.add_row(names[label], *(f"{numbers[label]:,}" for numbers in counted.values()))
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
