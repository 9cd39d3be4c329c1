"""The commands that look at a version and its records; `commands` registers them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from recordmill.pipeline.cli.arguments import OtherVersion, VersionFolder
from recordmill.pipeline.cli.screen import print_json, print_line
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, read_latest, read_manifest, version_folder

if TYPE_CHECKING:
    from recordmill.pipeline.dataset.manifest import Location
    from recordmill.pipeline.versions.listing import Version

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Chosen(NamedTuple):
    """The version that a command looks at."""

    folder: "Location"
    output: str | None
    """The dataset's folder; None where the version's own was given."""


def choose(folder: str, version: str | None) -> Chosen:
    """Finds a version by the dataset's folder and the version's name, or by its own folder.

    Raises:
        DatasetError: no version fits, or `folder` is a version already and another is named.
    """
    from recordmill.pipeline.versions.listing import find
    from recordmill.pipeline.versions.stores.open_store import open_location

    location = open_location(folder)
    if (location / MANIFEST_FILE).is_file():
        if version is not None:
            raise DatasetError(f"{folder} is a version already: leave out --version, or name the dataset's folder")
        return Chosen(location, None)
    name = read_latest(location).version if version is None else find(folder, version).version
    return Chosen(version_folder(location, name), folder)


def show(
    folder: VersionFolder,
    version: OtherVersion = None,
    record: Annotated[
        str | None, typer.Option("--record", metavar="KEY", help="Show where the record of a key lies.")
    ] = None,
    spec: Annotated[
        Path | None, typer.Option(help="dataset.yaml, with --record: read its sources until the row is found there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a dataset: its versions, splits, features, statistics and rejects; or where a record lies."""
    from recordmill.pipeline.cli import row_commands
    from recordmill.pipeline.cli.show import print_dataset
    from recordmill.pipeline.versions.listing import list_versions

    if spec is not None and record is None:
        raise DatasetError("--spec is for --record KEY: its sources are read until the row of the key is found")
    chosen = choose(folder, version)
    if record is not None:
        if as_json:
            raise DatasetError(
                f"--json is of a version, not of a record: `recordmill head {folder} --key {record} --json`"
            )
        row_commands.show_record(chosen.folder, record, chosen.output, spec)
        return
    versions = [] if chosen.output is None else list_versions(chosen.output)
    if as_json:
        print_json(_to_json(chosen.folder, versions))
    else:
        print_dataset(read_manifest(chosen.folder), chosen.folder, versions)


def head(
    folder: VersionFolder,
    records: Annotated[int, typer.Option("-n", "--records", min=1, help="How many records are shown at most.")] = 5,
    split: Annotated[str | None, typer.Option(help="The split; by default the first that has records.")] = None,
    key: Annotated[str | None, typer.Option(help="The key of the records.")] = None,
    label: Annotated[str | None, typer.Option("--class", metavar="NAME", help="The label's class.")] = None,
    span: Annotated[str | None, typer.Option(help="The span.")] = None,
    version: OtherVersion = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a line of JSON.")] = False,
) -> None:
    """Show some records: `recordmill head DIR -n 5 --split test --class cat`; a sample, since the key's hash orders."""
    from recordmill.pipeline.inspection.records import lines_of, read_records, record_to_json
    from recordmill.pipeline.reader.dataset import open_dataset

    dataset = open_dataset(str(choose(folder, version).folder))
    is_empty = True
    for record in read_records(dataset, split, key=key, label=label, span=span, limit=records):
        if as_json:
            print_json(record_to_json(record), indent=None)
        else:
            print_line("\n".join([*([] if is_empty else [""]), *lines_of(record)]))
        is_empty = False
    if is_empty:
        raise DatasetError(f"{dataset.version} has no such record: `recordmill show {folder}` counts them")


def _to_json(folder: "Location", versions: list["Version"]) -> dict[str, Any]:
    """Gives the manifest with its folder and the dataset's versions, without what is a line for each file."""
    manifest = json.loads(read_manifest(folder).to_text())
    del manifest["files"]
    for split in manifest["splits"].values():
        split["shards"] = len(split["shards"])
    return {**manifest, "folder": str(folder), "versions": [_version(version) for version in versions]}


def _version(version: "Version") -> dict[str, Any]:
    manifest = version.manifest
    return {
        "version": manifest.version,
        "sequence": manifest.sequence,
        "built_at": manifest.provenance.get("built_at"),
        "records": sum(split.records for split in manifest.splits.values()),
        "bytes": sum(split.bytes for split in manifest.splits.values()),
        "live": version.is_live,
        "candidate": version.is_candidate,
        "trial": bool(manifest.trial),
        "pinned": version.is_pinned,
        "held_by": list(map(str, version.held_by)),
        "retired": version.retired,
    }
