"""Prints a version's facts for `recordmill show`, which no later kind fails; and a build's or adoption's result."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from rich.filesize import decimal

from recordmill.pipeline.cli.screen import Screen, count, plain_table
from recordmill.pipeline.cli.version_commands import print_table
from recordmill.pipeline.compare.figures import read_breaches
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.facts.version import (
    VersionFacts,
    duplicate_lines,
    duplicate_warnings,
    learned_from_rejects,
    loss_warnings,
    packed_rows,
)
from recordmill.pipeline.versions.listing import Version
from recordmill.pipeline.versions.publishing import Published

SHOWN_CLASSES = 10


def print_dataset(manifest: Manifest, folder: Location, versions: list[Version]) -> None:
    """Prints a version, and the dataset's versions."""
    this = next((each for each in versions if each.manifest.version == manifest.version), None)
    state = "  (live)" if this and this.is_live else ""
    if this and this.is_held_back:
        state = "  (held back: `recordmill versions approve` makes it live)"
    console, facts = Screen(), VersionFacts(folder, manifest)
    console.print(manifest.name, style="bold", end="")
    some = f"  about {manifest.trial:,} rows of all, by --limit" if manifest.trial else ""
    console.print(f"  {manifest.version}{state}{some}", soft_wrap=True)
    console.print(f"{folder}\ndigest {manifest.digest}\n", soft_wrap=True)
    named, splits = {"documents": "documents", "source_rows": "rows"}, manifest.splits.values()
    counted = [named[of] for of in named if any(getattr(split, of) is not None for split in splits)]
    numbers = ("records", *counted, "shards", "bytes")
    table = plain_table("split", *numbers, right=numbers)
    for name, split in manifest.splits.items():
        rows = [f"{split.rows:,}"] * len(counted)
        table.add_row(name, f"{split.records:,}", *rows, str(len(split.shards)), f"{split.bytes:,}")
    console.print(table)
    table = plain_table("\nfeature", "\nkind", "\nstored", "\nstatistics")
    for feature in facts.features.values():
        label = " (label)" if feature.is_label else ""
        table.add_row(feature.name + label, feature.kind, feature.stored, ", ".join(feature.learned))
    console.print(table)
    lengths = [f"{each.name}: {each.lengths}" for each in facts.features.values() if each.lengths]
    packed = [f"packed: {line}" for _, line in packed_rows(manifest)]
    if lines := [*lengths, *packed, *(line for _, line in loss_warnings(manifest))]:
        console.print("", *lines, sep="\n", soft_wrap=True)
    _print_classes(console, facts)
    _print_rows(console, manifest)
    if duplicates := [f"  {line}" for line in duplicate_lines(manifest.duplicates)]:
        console.print("\nduplicates", style="bold")
        console.print(*duplicates, sep="\n", soft_wrap=True)
    if manifest.gate:
        _print_gate(console, manifest)
    if versions:
        console.print("\nversions", style="bold")
        print_table(versions)


def _print_classes(console: Screen, facts: VersionFacts) -> None:
    """Prints the label's most frequent classes, with records or occurrences per split."""
    if facts.classes is None:
        return
    names, by_split = facts.classes
    totals = [sum(counts) for counts in zip(*by_split.values(), strict=True)]
    splits = [f"\n{name}" for name in by_split]
    label = facts.features[facts.manifest.label or ""]
    counted = "" if label.counted == "records" else f" ({label.counted})"
    table = plain_table(f"\n{label.name}{counted}", *splits, right=splits)
    for id_ in sorted(range(len(names)), key=lambda id_: -totals[id_])[:SHOWN_CLASSES]:
        table.add_row(names[id_], *(f"{numbers[id_]:,}" for numbers in by_split.values()))
    console.print(table)
    if len(totals) > SHOWN_CLASSES:
        console.print(f"… {len(totals) - SHOWN_CLASSES:,} more classes")


def _print_rows(console: Screen, manifest: Manifest) -> None:
    if len(manifest.sources) > 1:
        total = sum(source.get("written", 0) for source in manifest.sources)
        fates = [fate for fate in ("duplicates", "forgotten") if any(source.get(fate) for source in manifest.sources)]
        numbers = ["\nrows read", "\nwritten", "\nshare", "\nrejected", *(f"\n{fate}" for fate in fates)]
        table = plain_table("\nsource", *numbers, right=numbers)
        for source in manifest.sources:
            read, written, rejected, *others = (source.get(of, 0) for of in ("read", "written", "rejected", *fates))
            counts = (f"{read:,}", f"{written:,}", f"{written / total:.1%}" if total else "", f"{rejected:,}")
            name = f"{source.get('format', '')} {source.get('path', '')}"
            table.add_row(name, *counts, *(f"{number:,}" for number in others))
        console.print(table)
    rows = manifest.rows
    left_out = f" + {rows['duplicates']:,} duplicates left out" if rows.get("duplicates") else ""
    left_out += f" + {rows['forgotten']:,} forgotten" if rows.get("forgotten") else ""
    sums = f"{rows.get('written', 0):,} written + {rows.get('rejected', 0):,} rejected{left_out}"
    console.print(f"\n{rows.get('read', 0):,} rows read = {sums}")
    for reason, rejected in manifest.rejects.get("by_reason", {}).items():
        console.print(f"  {reason}: {rejected:,}")
    for file in manifest.rejects.get("files", []):
        console.print(f"  in {file['file']}")
    console.print(*(f"  {line}\n" for line in learned_from_rejects(manifest)), sep="", end="", soft_wrap=True)


def _print_gate(console: Screen, manifest: Manifest) -> None:
    with suppress(DatasetError):
        breaches, figures = [*read_breaches(manifest.gate)], manifest.gate.get("figures", {})
        counted = count(sum(map(len, figures.values())), "figure")
        held = f"{len(breaches):,} beyond their limits" if breaches else "none beyond its limit"
        console.print(f"\ngate: {counted} against {manifest.gate.get('live')}, {held}", soft_wrap=True)
        for line in breaches:
            console.print(f"  {line}", soft_wrap=True)
        for line in manifest.gate.get("not_compared", ()):
            console.print(f"  not compared: {line}", soft_wrap=True)


def print_published(console: Screen, published: Published, seconds: float, features: Sequence[str] = ()) -> None:
    """Prints the result of a build or an adoption: records by split, rejects by reason, bytes, time and place."""
    show = partial(console.print, soft_wrap=True)

    def line(name: str, number: int, rest: str) -> None:
        show(f"  {name:<12} {number:>10,} {rest}")

    folder, manifest = published.folder, published.manifest
    if not published.is_new:
        same = f"Nothing has changed since version {manifest.version}, which is live in {folder}"
        if published.went_live:
            same = f"Version {manifest.version} was built of these inputs: it is live again in {folder}"
        return show(same)
    size = decimal(manifest.bytes)
    done, part = ("Adopted", "file") if manifest.adopted else ("Published", "shard")
    show(f"{done} {manifest.name} {manifest.version} in {seconds:.1f} s, {size}")
    for name, split in manifest.splits.items():
        documents = "" if split.documents is None else f" of {count(split.documents, 'document')}"
        documents += "" if split.source_rows is None else f", windows of {count(split.source_rows, 'row')},"
        line(name, split.records, f"records{documents} in {count(len(split.shards), part)}")
    for _, packed in packed_rows(manifest):
        show(f"  {'packed':<12} {packed}")
    reasons = manifest.rejects.get("by_reason", {})
    line("rejected", sum(reasons.values()), f"of {manifest.rows['read']:,} rows")
    for reason, rejected in reasons.items():
        show(f"    {reason:<18} {rejected:>2,}")
    for learned in learned_from_rejects(manifest):
        show(f"  {'learned':<12} {learned}")
    if left_out := manifest.rows.get("duplicates"):
        line("duplicates", left_out, "rows left out")
    for warning in duplicate_warnings(manifest.duplicates):
        show(f"  {'duplicates':<12} {warning}: see `recordmill show`")
    losses = [loss for _, loss in loss_warnings(manifest)]
    for loss in losses:
        show(f"  {'lost':<12} {loss}")
    for words in (*(f"  {note}" for note in published.notes if note not in losses), *features, f"  in {folder}"):
        show(words)
    return None
