"""The commands on a dataset's versions; `commands` registers them."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from recordmill.pipeline.cli.arguments import AnyVersion, DatasetFolder, OtherVersion, VersionFolder, WorkFolder
from recordmill.pipeline.cli.extras import check_build_extra
from recordmill.pipeline.cli.screen import count, print_line, quiet
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.safe_text import printable

VersionName = Annotated[
    str, typer.Argument(help="A version's name, its number, or what the name begins or ends with.", show_default=False)
]


def versions(dataset: DatasetFolder) -> None:
    """List the versions of a dataset: which is live, pinned, held, and since when others are not live any more."""
    from recordmill.pipeline.cli.versions_table import print_versions
    from recordmill.pipeline.versions.listing import list_versions

    print_versions(dataset, list_versions(dataset))


def diff(
    dataset: DatasetFolder,
    before: Annotated[
        str | None, typer.Argument(metavar="A", help="By default the version before B.", show_default=False)
    ] = None,
    after: Annotated[
        str | None, typer.Argument(metavar="B", help="By default the live version.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Compare the manifests, not the rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what changed from version A to version B: rows, ids, statistics, rejects: `recordmill diff DIR [A] [B]`."""
    from recordmill.pipeline.compare.diff import diff as diff_of
    from recordmill.pipeline.reader.dataset import open_dataset
    from recordmill.pipeline.versions.listing import pair

    old, new = (open_dataset(dataset, manifest.version) for manifest in pair(dataset, before, after))
    report = diff_of(old, new, rows=not quick)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        for line in report.lines():
            print_line(line)


def rollback(
    dataset: DatasetFolder,
    version: Annotated[
        str | None, typer.Argument(help="By default the one published before the live one.", show_default=False)
    ] = None,
) -> None:
    """Make an earlier version live again: `recordmill versions rollback DIR [VERSION]`."""
    from recordmill.pipeline.cli.versions_table import print_rollback
    from recordmill.pipeline.versions import listing

    print_rollback(dataset, *listing.rollback(dataset, version))


def pin(dataset: DatasetFolder, version: VersionName) -> None:
    """Keep a version from being pruned."""
    from recordmill.pipeline.versions import listing

    print_line(f"{listing.pin(dataset, version).version} is pinned: `recordmill versions prune` keeps it")


def unpin(dataset: DatasetFolder, version: VersionName) -> None:
    """Let a version be pruned again."""
    from recordmill.pipeline.versions import listing

    manifest, was_pinned = listing.unpin(dataset, version)
    now = "is not pinned any more: `recordmill versions prune` may remove it"
    print_line(f"{manifest.version} {now if was_pinned else 'was not pinned: nothing has changed'}")


def prune(
    dataset: DatasetFolder,
    keep: Annotated[
        int | None, typer.Option(min=1, help="How many of the newest versions stay.", show_default="all")
    ] = None,
    grace: Annotated[
        str, typer.Option(help="How long a version stays that is not live any more: 30m, 12h, 1d, 0.")
    ] = "1d",
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove, whatever their age, all versions that hold forgotten rows.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    work: WorkFolder = None,
) -> None:
    """Remove old versions, and what killed builds left; never a version that is live, pinned or held."""
    from recordmill.pipeline.cli.versions_table import print_pruned, print_wait
    from recordmill.pipeline.versions import prune as pruning
    from recordmill.pipeline.versions.build_folders import building_folder
    from recordmill.pipeline.versions.listing import open_existing

    seconds, building = pruning.seconds_of(grace), building_folder(dataset, work)
    also: Collection[str] = ()
    if purge:
        from recordmill.pipeline.cli.row_commands import MAY_HOLD
        from recordmill.pipeline.forget import versions_with
        from recordmill.pipeline.versions import forgotten, publishing

        store = open_existing(dataset)
        gone = forgotten.load(store)
        also = versions_with(dataset, gone)
        for version in publishing.broken(store) if gone.keys else ():
            print_line(f"kept {version}: it {MAY_HOLD}")
    done = pruning.prune(dataset, keep, seconds, also=also, dry_run=dry_run, building=building, on_wait=print_wait)
    print_pruned(done, dry_run=dry_run)


def materialize(dataset: DatasetFolder, version: AnyVersion = "live") -> None:
    """Make a version whole, so that its folder can be copied: all its files in it."""
    from recordmill.pipeline.versions import materialize as materializing

    done = materializing.materialize(dataset, version)
    name = done.manifest.version
    if not done.files:
        print_line(f"{name} is whole already: all its files lie in its own folder")
        return
    print_line(f"{name} is whole now: {count(done.files, 'file')} brought into its folder, {done.copied_bytes:,} bytes")


def verify(
    folder: VersionFolder,
    version: OtherVersion = None,
    spec: Annotated[Path | None, typer.Option(help="dataset.yaml: raw rows are served and compared, too.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Make damaged shards (by --spec) and indexes anew.")] = False,
    sample: Annotated[int, typer.Option(min=0, help="How many raw rows are compared.")] = 64,
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes and digests alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Check a published version, file by file and record by record: `recordmill verify DIR`."""
    from recordmill.pipeline.safe_text import redacted
    from recordmill.pipeline.verify.verify import NO_PARITY
    from recordmill.pipeline.verify.verify import verify as check

    if "://" in folder and (repair or spec is not None):
        raise DatasetError(f"{folder} is a URL: --spec and --repair are for a version in a folder of this machine")
    parsed = None
    if repair or spec is not None:
        check_build_extra()
    if spec is not None:
        from recordmill.pipeline.spec.model import load_spec

        parsed = load_spec(str(spec))
    report = check(folder, version, quick=quick)
    if repair or parsed is not None:
        with quiet():  # Beam and TensorFlow print, while they load too
            from recordmill.pipeline.verify.with_sources import with_sources

            report = with_sources(report, parsed, rows=sample, mend=repair)
    if spec is None:
        report.findings.unchecked.append(NO_PARITY)
    print(json.dumps(report.to_json(), indent=2) if as_json else printable(redacted("\n".join(report.lines()))))
    return 0 if report.is_whole else 1
