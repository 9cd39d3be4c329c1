"""`recordmill versions …`: commands on a dataset's versions; `commands` registers them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from recordmill.pipeline.cli.arguments import DatasetFolder, Reason, WorkFolder, to_folder
from recordmill.pipeline.cli.screen import Screen, count, plain_table, print_json, print_line
from recordmill.pipeline.errors import UserError, listed
from recordmill.pipeline.safe_text import printable

if TYPE_CHECKING:
    from recordmill.pipeline.versions.listing import Version

WIDTH = 1000
SHOWN_KEYS = 5
MAY_HOLD = "may hold forgotten rows, since its dataset.json cannot be read: restore that file, or remove the folder"

NAME_HELP = "A version's name, its number, or the start or end of its name."
VersionName = Annotated[str, Argument(help=NAME_HELP, show_default=False)]
KEYS_HELP = "The rows' keys; without any, all keys forgotten so far."
HELD_BACK_HELP = "The version's name, its number, or a part; by default the newest, if it is held back."
HeldBack = Annotated[str | None, Argument(help=HELD_BACK_HELP, show_default=False)]


def list_(dataset: DatasetFolder) -> None:
    """List a dataset's versions: live, pinned, held, and since when others are retired."""
    from recordmill.pipeline.versions.files import shared_bytes
    from recordmill.pipeline.versions.listing import list_versions
    from recordmill.pipeline.versions.stores.open_store import open_store

    if versions := list_versions(dataset):
        print_table(versions, shared_bytes(open_store(dataset), [version.manifest for version in versions]))
    else:
        print_line(f"nothing has been published in {dataset} yet")


def history(
    dataset: DatasetFolder,
    as_json: Annotated[bool, Option("--json", help="Print each as a line of JSON.")] = False,
    limit: Annotated[int | None, Option(min=1, help="Only the newest N.", show_default="all")] = None,
) -> None:
    """Show who did what: builds, approvals, rollbacks, prunes and the like, with reasons, the newest last."""
    from recordmill.pipeline.versions import history as log
    from recordmill.pipeline.versions import listing

    entries = log.read_history(listing.open_existing(dataset).url)[-(limit or 0) :]
    if as_json:
        for entry in entries:
            print_json(entry, indent=None)
    elif entries:
        table = plain_table("at", "by", "act", "end", "")
        for entry in entries:
            by = "@".join(str(entry[of]) for of in ("user", "host") if entry.get(of))
            at, act, end = (str(entry.get(of, log.BUILD)) for of in ("began_at", "act", "end"))  # builds may lack `act`
            before, removed = entry.get("live_before"), entry.get("removed")
            is_move = entry.get("live_after", before) != before
            words = [f"{before or 'nothing'} → {entry['live_after']}" if is_move else str(entry.get("version") or "")]
            counted = (of for of in ("keys", "records", "files") if isinstance(entry.get(of), int))
            words += [count(entry[of], of[:-1]) for of in counted]
            words += [f"removed {listed(removed)}"] if isinstance(removed, dict) and removed else []
            words += [str(entry[of]).partition("\n")[0] for of in ("message", "reason") if entry.get(of)]
            table.add_row(at, by, act, end, "; ".join(filter(None, words)))
        Screen(width=WIDTH).print(table)
    else:
        print_line(f"{dataset} has no history yet: builds and `recordmill versions` write it")


def pin(dataset: DatasetFolder, version: VersionName, reason: Reason = "") -> None:
    """Keep a version from being pruned."""
    from recordmill.pipeline.versions import acts

    print_line(f"{acts.pin(dataset, version, reason).version} is pinned: `recordmill versions prune` keeps it")


def tag(
    dataset: DatasetFolder,
    name: Annotated[str, Argument(metavar="TAG", help="The new name, such as v1.", show_default=False)],
    version: Annotated[str, Argument(help=NAME_HELP)] = "live",
    reason: Reason = "",
) -> None:
    """Give a version a name, which `--version` and `open_dataset` take, and keep it from being pruned until `unpin`."""
    from recordmill.pipeline.versions import acts

    print_line(f"{acts.tag(dataset, name, version, reason).version} is {name}: `recordmill versions prune` keeps it")


def unpin(dataset: DatasetFolder, version: VersionName, reason: Reason = "") -> None:
    """Let a version be pruned again; takes its tags."""
    from recordmill.pipeline.versions import acts

    manifest, was_pinned = acts.unpin(dataset, version, reason)
    now = "is not pinned any more: `recordmill versions prune` may remove it"
    print_line(f"{manifest.version} {now if was_pinned else 'was not pinned: nothing has changed'}")


def rollback(
    dataset: DatasetFolder,
    version: Annotated[
        str | None, Argument(help="By default the one published before the live one.", show_default=False)
    ] = None,
    reason: Reason = "",
) -> None:
    """Make an earlier version live again."""
    from recordmill.pipeline.forget import versions_with
    from recordmill.pipeline.versions import acts
    from recordmill.pipeline.versions.base import read_forgotten
    from recordmill.pipeline.versions.listing import open_existing

    manifest, before = acts.rollback(dataset, version, reason)
    if before == manifest.version:
        print_line(f"{before} is live already")
        return
    lost = ", and newer versions are held back: no LATEST could be read, and pins and older rollbacks are lost"
    back = f"; {before} was, and stays: `recordmill versions rollback {dataset} {before}` takes this back"
    print_line(f"{manifest.version} is live now{back if before else lost}")
    rows = versions_with(dataset, read_forgotten(open_existing(dataset)), only=manifest.version)
    _print_held(rows, f"`recordmill versions forget {dataset}` publishes it without them")


def approve(dataset: DatasetFolder, version: HeldBack = None, reason: Reason = "") -> None:
    """Make a held-back version live; with its name even if another has become live since."""
    from recordmill.pipeline.versions import acts

    now, before = acts.approve(dataset, version, reason)
    print_line(f"{now.version} is live now; {before} was, and stays: `recordmill versions rollback {dataset} {before}`")


def reject(dataset: DatasetFolder, version: HeldBack = None, reason: Reason = "") -> None:
    """Remove a held-back version; the live version stays."""
    from recordmill.pipeline.versions import acts

    print_line(f"{acts.reject(dataset, version, reason).version} is removed; what is live stays live")


def prune(
    dataset: DatasetFolder,
    keep: Annotated[int | None, Option(min=1, help="Keep the newest N versions.", show_default="all")] = None,
    grace: Annotated[str, Option(help="Keep retired versions for this time: 30m, 12h, 1d, 0.")] = "1d",
    purge: Annotated[bool, Option("--purge", help="Also remove all versions with forgotten rows, at any age.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only list what would be removed.")] = False,
    work: WorkFolder = None,
    reason: Reason = "",
) -> None:
    """Remove old versions, and leftovers of killed builds; live, pinned and held versions stay."""
    from recordmill.pipeline.versions import build_folders, listing
    from recordmill.pipeline.versions import prune as pruning
    from recordmill.pipeline.versions.base import Base

    seconds, purged = listing.seconds_of(grace), list[str]()
    if purge:
        from recordmill.pipeline.forget import versions_with
        from recordmill.pipeline.versions import publishing
        from recordmill.pipeline.versions.base import read_forgotten
        from recordmill.pipeline.versions.listing import open_existing

        store = open_existing(dataset)
        rows = read_forgotten(store)
        purged += versions_with(dataset, rows)
        for version in publishing.broken(store) if rows.keys else ():
            print_line(f"kept {version}: it {MAY_HOLD}")
    done = pruning.prune(
        dataset,
        keep,
        seconds,
        also=purged,
        dry_run=dry_run,
        building=build_folders.building_folder(dataset, work),
        on_wait=lambda holder: print_line(f"waiting for the next beat of {holder}, at most a minute"),
        reason=reason,
    )
    for version, why in done.kept.items():
        print_line(f"kept {version}: {why}")
    for name, size in done.removed.items():
        print_line(f"{'would remove' if dry_run else 'removed'} {name}, {size:,} bytes")
    total = f"{sum(done.removed.values()):,} bytes"
    print_line(f"would free {total}: nothing was removed (--dry-run)" if dry_run else f"freed {total}")
    with suppress(UserError):
        if (live := Base.read(dataset).live) and live.adopted:
            print_line("adopted files stay: a prune removes only what the dataset's own folder holds of them")


def forget(
    dataset: DatasetFolder,
    keys: Annotated[list[str] | None, to_folder(KEYS_HELP, "[KEY]...")] = None,
    file: Annotated[Path | None, Option("--keys", metavar="FILE", help="A file of keys, one per line.")] = None,
    reason: Reason = "",
) -> None:
    """Publish the live version without some rows; later builds also leave them out."""
    from recordmill.pipeline import forget as forgetting
    from recordmill.pipeline.dataset.placement import read_keys

    given: list[str | bytes] = [*(keys or ())]
    given += read_keys(file) if file else []
    waits = lambda holder: print_line(f"waiting for {holder}, which builds in {dataset}")  # noqa: E731
    done = forgetting.forget(dataset, given, waits, reason)
    version = done.manifest.version
    if done.is_new:
        rejects = f", and {count(done.rejects, 'rejected row')}" if done.rejects else ""
        print_line(f"{version} is live now, without {count(done.rows, 'record')} of forgotten rows{rejects}")
    else:
        print_line(f"{version} is live, and holds no forgotten row")
    if done.unknown:
        unknown = [printable(key.decode("utf-8", "replace")) for key in done.unknown]
        shown = ", ".join(unknown[:SHOWN_KEYS]) + (", …" if len(unknown) > SHOWN_KEYS else "")
        several = f"{count(len(unknown), 'key')} of no row in the version before: {shown}"
        print_line(f"{several}; later builds leave such rows out all the same")
    _print_held(done.held_by, f"`recordmill versions prune {dataset} --purge` removes these versions")
    for broken in done.broken:
        print_line(f"{broken} {MAY_HOLD}")


def _print_held(versions: Mapping[str, int], remedy: str) -> None:
    for version, rows in versions.items():
        print_line(f"{version} still holds {'perhaps some' if rows < 0 else count(rows, 'record')} of forgotten rows")
    if versions:
        print_line(remedy)


def print_table(versions: Iterable["Version"], shared: Mapping[str, int] = MappingProxyType({})) -> None:
    """Prints a line per version, on terminals of any width; `shared` are bytes also used by others."""
    is_shared = any(shared.values())
    headers = ("#", "version", "", "built at", "records", "bytes", *(["shared"] if is_shared else []), "retired")
    table = plain_table(*headers, right=("#", "records", "bytes", "shared"))
    for version in versions:
        manifest, held_by = version.manifest, version.held_by
        marks = ["live"] * version.is_live + ["held back"] * version.is_held_back + ["pinned"] * version.is_pinned
        marks += [*version.tags, *([f"held by {held_by[0]}"] if held_by else [])]
        marks += [f"and {len(held_by) - 1} more"] if len(held_by) > 1 else []
        name, at = (manifest.version, ", ".join(marks)), str(manifest.provenance.get("built_at", ""))
        bytes_ = manifest.bytes, *([shared.get(manifest.version, 0)] if is_shared else [])
        numbers = (f"{number:,}" for number in (manifest.records, *bytes_))
        table.add_row(str(manifest.sequence or "-"), *name, at, *numbers, version.retired or "")
    Screen(width=WIDTH).print(table)
