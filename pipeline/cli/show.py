"""Prints a dataset for `recordmill show`.

It shows unknown values, such as a kind of a later Recordmill, as far as it can, and never fails on them: a description
that it cannot read is None, and the feature's kind and type are shown as they stand in the manifest.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TypeAlias

from rich.table import Table

from recordmill.pipeline.cli.screen import Screen, count, plain_table
from recordmill.pipeline.cli.versions_table import print_table
from recordmill.pipeline.compare.gate import read_breaches
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.dataset.manifest_words import statistics_words, stored_words, summary
from recordmill.pipeline.dataset.profile import describe_lengths
from recordmill.pipeline.dataset.vocabulary import read_vocabulary
from recordmill.pipeline.versions.listing import Version
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.text import TextDescription

Features: TypeAlias = Mapping[str, Description | None]

SHOWN_CLASSES = 10


def print_dataset(manifest: Manifest, folder: Location, versions: list[Version]) -> None:
    """Prints a version; `versions` are all of its dataset, if the dataset's folder was given."""
    state = next((_state(version) for version in versions if version.manifest.version == manifest.version), "")
    console = Screen()
    console.print(manifest.name, style="bold", end="")
    console.print(f"  {manifest.version}{state}")
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
    _print_gate(console, manifest)
    if versions:
        console.print("\nversions", style="bold")
        print_table(versions)


def _state(version: Version) -> str:
    if version.is_candidate:
        return "  (candidate: `recordmill versions approve` publishes it)"
    if version.manifest.trial:
        return "  (trial: never live, `recordmill versions prune` removes it)"
    return "  (live)" if version.is_live else ""


def _print_gate(console: Screen, manifest: Manifest) -> None:
    """Prints what the gate found against the version that was live before."""
    if not manifest.gate:
        return
    with suppress(DatasetError):
        breaches, figures = [*read_breaches(manifest.gate)], manifest.gate.get("figures", {})
        counted = count(sum(map(len, figures.values())), "figure")
        held = f"{len(breaches):,} beyond their limits" if breaches else "none beyond its limit"
        console.print(f"\ngate: {counted} against {manifest.gate.get('live')}, {held}", soft_wrap=True)
        for line in breaches:
            console.print(f"  {line}", soft_wrap=True)
        for line in manifest.gate.get("not_compared", ()):
            console.print(f"  not compared: {line}", soft_wrap=True)


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
        statistics = ", ".join(statistics_words(name, description, manifest.statistics.get(name, {})))
        table.add_row(name + label, json["kind"], stored_words(description, json), statistics)
    return table


def _print_lengths(console: Screen, manifest: Manifest, features: Features) -> None:
    """Prints a line for each text on its length and the cost of padding."""
    lines = [
        f"{name}: {describe_lengths(lengths, max_length=text.max_length, packed=text.packed)}"
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
    totals = [sum(numbers) for numbers in zip(*counted.values(), strict=False)]
    splits = [f"\n{name}" for name in counted]
    table = plain_table(f"\n{manifest.label}", *splits, right=splits)
    for id_ in sorted(range(min(len(totals), len(names))), key=lambda id_: -totals[id_])[:SHOWN_CLASSES]:
        table.add_row(names[id_], *(f"{numbers[id_]:,}" for numbers in counted.values()))
    console.print(table)
    if len(totals) > SHOWN_CLASSES:
        console.print(f"… {len(totals) - SHOWN_CLASSES:,} more classes")


def _print_rows(console: Screen, manifest: Manifest) -> None:
    if len(manifest.sources) > 1:
        console.print(_sources(manifest))
    rows = manifest.rows
    left_out = f" + {rows['duplicates']:,} duplicates left out" if rows.get("duplicates") else ""
    sums = f"{rows.get('written', 0):,} written + {rows.get('rejected', 0):,} rejected{left_out}"
    console.print(f"\n{rows.get('read', 0):,} rows read = {sums}")
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
    total = sum(source.get("written", 0) for source in manifest.sources)
    dropped = any(source.get("duplicates") for source in manifest.sources)
    numbers = ["\nrows read", "\nwritten", "\nshare", "\nrejected", *(["\nduplicates"] if dropped else [])]
    table = plain_table("\nsource", *numbers, right=numbers)
    for source in manifest.sources:
        read, written, rejected = (source.get(name, 0) for name in ("read", "written", "rejected"))
        counts = (f"{read:,}", f"{written:,}", f"{written / total:.1%}" if total else "", f"{rejected:,}")
        left_out = [f"{source.get('duplicates', 0):,}"] if dropped else []
        table.add_row(f"{source.get('format', '')} {source.get('path', '')}", *counts, *left_out)
    return table
