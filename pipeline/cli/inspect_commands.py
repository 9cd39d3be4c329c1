"""`recordmill show` and `head`: commands on a version and its records; `commands` registers them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import recordmill
from recordmill.pipeline.cli.arguments import AsJson, OtherVersion, VersionFolder
from recordmill.pipeline.cli.extras import SOURCES, check_extra
from recordmill.pipeline.cli.screen import print_json, print_line
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import printable

if TYPE_CHECKING:
    from recordmill.pipeline.dataset.manifest import Location, Manifest
    from recordmill.pipeline.rows import StoredRow
    from recordmill.pipeline.versions.listing import Version


def show(
    folder: VersionFolder,
    version: OtherVersion = None,
    record: Annotated[str | None, Option(metavar="KEY", help="Say where the record of a key is.")] = None,
    spec: Annotated[Path | None, Option(help="dataset.yaml, with --record: search its sources for the row.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a dataset: its versions, splits, features, statistics and rejects; or where a record is."""
    from recordmill.pipeline.cli.show import print_dataset
    from recordmill.pipeline.versions.listing import list_versions
    from recordmill.pipeline.versions.stores.open_store import open_location

    if spec is not None and record is None:
        raise DatasetError("--spec is for --record KEY: its sources are searched for the row of the key")
    dataset = recordmill.open_dataset(folder, version)
    output = None if (open_location(folder) / MANIFEST_FILE).is_file() else folder  # None: a version's folder
    if record is not None:
        if as_json:
            raise DatasetError(f"--json is for versions: `recordmill head {folder} --key {record} --json` for records")
        show_record(dataset.folder, dataset.manifest, record, output, spec)
        return
    versions = [] if output is None else list_versions(output)
    if as_json:
        print_json(_to_json(dataset, versions))
    else:
        print_dataset(dataset.manifest, dataset.folder, versions)


def head(
    folder: VersionFolder,
    records: Annotated[int, Option("-n", "--records", min=1, help="The maximum number of records.")] = 5,
    split: Annotated[str | None, Option(help="The split; by default the first with records.")] = None,
    key: Annotated[str | None, Option(help="The key of the records.")] = None,
    label: Annotated[str | None, Option("--class", metavar="NAME", help="The label's class.")] = None,
    span: Annotated[str | None, Option(help="The span.")] = None,
    version: OtherVersion = None,
    as_json: Annotated[bool, Option("--json", help="Print each record as a line of JSON.")] = False,
) -> None:
    """Show a sample of records, by the keys' hashes: `recordmill head DIR -n 5 --split test --class cat`."""
    from recordmill.pipeline.inspection.records import lines_of, read_records, record_to_json

    dataset = recordmill.open_dataset(folder, version)
    is_empty = True
    for record in read_records(dataset, split, key=key, label=label, span=span, limit=records):
        if as_json:
            print_json(record_to_json(record), indent=None)
        else:
            print_line("\n".join([*([] if is_empty else [""]), *lines_of(record)]))
        is_empty = False
    if is_empty:
        where = "counts them" if key is None else "says whether it is elsewhere, rejected or forgotten"
        command = f"recordmill show {folder}" + ("" if key is None else f" --record {quote(key)}")
        raise DatasetError(f"{dataset.version} has no such record: `{command}` {where}")


def _to_json(dataset: "recordmill.Dataset", versions: list["Version"]) -> dict[str, Any]:
    """Returns the manifest with folder and versions; shards are counted."""
    manifest = json.loads(dataset.manifest.to_text())
    del manifest["files"]
    for split in manifest["splits"].values():
        split["shards"] = len(split["shards"])
    return {**manifest, "folder": str(dataset.folder), "versions": [_version(version) for version in versions]}


def _version(version: "Version") -> dict[str, Any]:
    manifest = version.manifest
    return {
        "version": manifest.version,
        "sequence": manifest.sequence,
        "built_at": manifest.provenance.get("built_at"),
        "records": manifest.records,
        "bytes": manifest.bytes,
        "live": version.is_live,
        "held_back": version.is_held_back,
        "trial": bool(manifest.trial),
        "pinned": version.is_pinned,
        "held_by": list(map(str, version.held_by)),
        "retired": version.retired,
    }


def show_record(folder: "Location", manifest: "Manifest", key: str, output: str | None, spec: Path | None) -> None:
    """Prints where a key's record is, with `spec` also in the source, or why it is missing. Raises: DatasetError."""
    from recordmill.pipeline.rows import find_records

    rows = find_records(folder, manifest, key)
    for row in rows:
        span = f", span {row.shard.span}" if row.shard.span else ""
        folder_of = f", in the folder of the version {row.shard.version}" if row.shard.version else ""
        place = f"record {row.record:,} of {row.shard.file}, at byte {row.offset:,}, {len(row.data):,} bytes{folder_of}"
        print_line(f"{printable(key)}: split {row.split}, position {row.position:,}{span}\n  {place}")
    if rows and spec is not None:
        _print_origins(folder, manifest, rows, key, spec)
    elif rows:
        names = ", ".join(f"{each.get('format', '')} {each.get('path', '')}".strip() for each in manifest.sources)
        print_line(f"  from {printable(names)}; --spec dataset.yaml finds the file and line")
    if rows:
        return
    rejects = list(_rejects_of(folder, manifest, key))
    for reject in rejects:
        line = "" if reject.get("line") is None else f", line {reject['line']}"
        place = f"{reject.get('code')}: {reject.get('file')}{line}"
        print_line(f"{printable(key)}: rejected, {printable(place)}")
    since = None if output is None else _forgotten_since(output, key)
    if since:
        print_line(f"{printable(key)}: forgotten since {since}")
    elif not rejects:
        missing = f"{manifest.version} has no record of the key '{printable(key)}', and rejected none"
        raise DatasetError(f"{missing}: `recordmill head {output or folder}` shows some keys")


def _print_origins(folder: "Location", manifest: "Manifest", rows: Sequence["StoredRow"], key: str, spec: Path) -> None:
    check_extra("build", SOURCES)
    from recordmill.pipeline.build.build import source_files
    from recordmill.pipeline.build.results.row_origins import find_origins

    loaded, given = recordmill.load_spec(str(spec)), _bytes(key)
    origins = list(find_origins(loaded, folder, manifest, rows, given, source_files()))
    for origin in origins:
        print_line(f"  from {printable(str(origin))}")
    if not origins:
        print_line(f"  the sources of {spec} hold no row of this key any more")


def _rejects_of(folder: "Location", manifest: "Manifest", key: str) -> Iterator[dict[str, object]]:
    from recordmill.pipeline.rows import read_reject_lines

    for file in manifest.rejects.get("files", []):
        for _, reject in read_reject_lines(folder, file["file"]):
            if reject.get("id") == key:
                yield reject


def _forgotten_since(output: str, key: str) -> str | None:
    from recordmill.pipeline.dataset.placement import digest
    from recordmill.pipeline.versions.forgotten import read_forgotten
    from recordmill.pipeline.versions.stores.open_store import open_store

    return read_forgotten(open_store(output)).keys.get(digest(_bytes(key)).hex())


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
