"""`recordmill show`: a dataset as a person reads it."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.manifest import MANIFEST_FILE, Manifest
from pipeline.reader.words import read_vocabulary

SHOWN_CLASSES = 10


def print_dataset(manifest: Manifest, folder: Path, live: str | None) -> None:
    """Prints a version; `live` is the live version's name where the dataset's own folder was given."""
    console = Console(highlight=False)
    console.print(f"[bold]{manifest.name}[/]  {manifest.version}{'  (live)' if live == manifest.version else ''}")
    console.print(f"{folder}\n", markup=False, soft_wrap=True)
    console.print(_splits(manifest))
    console.print(_features(manifest))
    _print_classes(console, manifest, folder)
    _print_rows(console, manifest)
    if live is not None:
        _print_versions(console, folder.parent, live)


def _table(*headers: str, numbers: bool = False) -> Table:
    """A plain table; with `numbers`, all columns but the first are set to the right."""
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right" if numbers else "left"
    return table


def _splits(manifest: Manifest) -> Table:
    table = _table("split", "records", "shards", "bytes", numbers=True)
    for name, split in manifest.splits.items():
        table.add_row(name, f"{split.records:,}", str(len(split.shards)), f"{split.bytes:,}")
    return table


def _features(manifest: Manifest) -> Table:
    table = _table("\nfeature", "\nkind", "\nstored", "\nstatistics")
    for name, description in manifest.features.items():
        label = " (label)" if name == manifest.label else ""
        statistics = _statistics(manifest.statistics.get(name, {}), description)
        table.add_row(name + label, description["kind"], _stored(description), statistics)
    return table


def _stored(description: dict[str, Any]) -> str:
    if description["kind"] == "image":
        encoding = {"auto": "JPEG or PNG", "jpeg": "JPEG", "png": "PNG", "raw": "pixels"}[description["encoding"]]
        return f"{encoding} {'×'.join(map(str, description['shape']))}"
    if description["kind"] == "text":
        limit = description["max_length"]
        return "word ids, any length" if limit is None else f"word ids, at most {limit}"
    return str(description["stored"])


def _statistics(found: dict[str, Any], description: dict[str, Any]) -> str:
    if "tokens" in found and found["known_tokens"] is not None:
        known = (
            f", {found['known_tokens'] / found['tokens']:.1%} of {found['tokens']:,} words known"
            if found["tokens"]
            else ""
        )
        return f"{found['words']:,} of {found['distinct']:,} distinct{known if description['kind'] == 'text' else ''}"
    if "words" in found:
        return f"{found['words']:,} given"
    if "mean" in found:
        mean, variance = found["mean"], found["variance"]
        return f"mean {_numbers(mean)}, variance {_numbers(variance)}"
    return ""


def _numbers(value: float | list[float]) -> str:
    return " ".join(f"{one:.6g}" for one in (value if isinstance(value, list) else [value]))


def _print_classes(console: Console, manifest: Manifest, folder: Path) -> None:
    """The label's most frequent classes, with their records in each split."""
    counted = {name: split.label_counts for name, split in manifest.splits.items() if split.label_counts}
    if not counted:
        return
    names = read_vocabulary(folder, manifest.features[str(manifest.label)])
    totals = [sum(numbers) for numbers in zip(*counted.values(), strict=True)]
    table = _table(f"\n{manifest.label}", *(f"\n{name}" for name in counted), numbers=True)
    for place in sorted(range(len(totals)), key=lambda one: -totals[one])[:SHOWN_CLASSES]:
        table.add_row(escape(names[place]), *(f"{numbers[place]:,}" for numbers in counted.values()))
    console.print(table)
    if len(totals) > SHOWN_CLASSES:
        console.print(f"… {len(totals) - SHOWN_CLASSES:,} more classes")


def _print_rows(console: Console, manifest: Manifest) -> None:
    rows = manifest.rows
    console.print(f"\n{rows['read']:,} rows read = {rows['written']:,} written + {rows['rejected']:,} rejected")
    for reason, count in manifest.rejects.get("by_reason", {}).items():
        console.print(f"  {reason}: {count:,}")
    for file in manifest.rejects.get("files", []):
        console.print(f"  in {file['file']}")


def _print_versions(console: Console, versions: Path, live: str) -> None:
    console.print("\n[bold]versions[/]")
    for folder in sorted(versions.iterdir()):
        if (folder / MANIFEST_FILE).is_file():
            console.print(f"  {folder.name}{'  (live)' if folder.name == live else ''}")
