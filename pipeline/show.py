"""`recordmill show`: a dataset as a person reads it."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.manifest import MANIFEST_FILE, Manifest


def print_dataset(manifest: Manifest, folder: Path, live: str | None) -> None:
    """Prints a version; `live` is the live version's name where the dataset's own folder was given."""
    console = Console(highlight=False)
    console.print(f"[bold]{manifest.name}[/]  {manifest.version}{'  (live)' if live == manifest.version else ''}")
    console.print(f"{folder}\n", markup=False, soft_wrap=True)
    console.print(_splits(manifest))
    console.print(_features(manifest))
    _print_classes(console, manifest)
    _print_rows(console, manifest)
    if live is not None:
        _print_versions(console, folder.parent, live)


def _splits(manifest: Manifest) -> Table:
    table = Table("split", "records", "shards", "bytes", box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, split in manifest.splits.items():
        table.add_row(name, f"{split.records:,}", str(len(split.shards)), f"{split.bytes:,}")
    return table


def _features(manifest: Manifest) -> Table:
    table = Table("\nfeature", "\nkind", "\nstored", "\nstatistics", box=None, pad_edge=False, header_style="bold")
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


def _print_classes(console: Console, manifest: Manifest) -> None:
    counts = {name: split.label_counts for name, split in manifest.splits.items() if split.label_counts}
    if not counts:
        return
    description = manifest.features[str(manifest.label)]
    console.print(
        f"\n[bold]{manifest.label}[/]: {description['vocabulary_size']} classes; the most frequent in each split:"
    )
    for name, numbers in counts.items():
        console.print(f"  {name}: {max(numbers):,} of {sum(numbers):,}")


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
