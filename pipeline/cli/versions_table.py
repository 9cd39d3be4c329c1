"""Prints the outcome of `recordmill versions list`, `rollback` and `prune`."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from recordmill.pipeline.cli.screen import Screen, plain_table, print_line
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.listing import Version
from recordmill.pipeline.versions.prune import Pruned
from recordmill.pipeline.versions.space import shared_bytes
from recordmill.pipeline.versions.stores.open_store import open_store

WIDTH = 1000


def print_versions(output: str, versions: list[Version]) -> None:
    """Prints the versions of an output."""
    if not versions:
        print_line(f"nothing has been published in {output} yet")
    else:
        print_table(versions, shared_bytes(open_store(output), [version.manifest for version in versions]))


def print_table(versions: Iterable[Version], shared: Mapping[str, int] = MappingProxyType({})) -> None:
    """Prints a line for each version, however narrow the terminal is; `shared` are bytes that others hold, too."""
    is_shared = any(shared.values())
    headers = ("#", "version", "", "built at", "records", "bytes", *(["shared"] if is_shared else []), "retired")
    table = plain_table(*headers, right=("#", "records", "bytes", "shared"))
    for version in versions:
        manifest = version.manifest
        table.add_row(
            str(manifest.sequence or "-"),
            manifest.version,
            ", ".join(_marks(version)),
            str(manifest.provenance.get("built_at", "")),
            f"{sum(split.records for split in manifest.splits.values()):,}",
            f"{sum(split.bytes for split in manifest.splits.values()):,}",
            *([f"{shared.get(manifest.version, 0):,}"] if is_shared else []),
            version.retired or "",
        )
    Screen(width=WIDTH).print(table)


def _marks(version: Version) -> Iterable[str]:
    if version.is_live:
        yield "live"
    if version.is_candidate:
        yield "candidate"
    if version.manifest.trial:
        yield "trial"
    if version.is_pinned:
        yield "pinned"
    if version.held_by:
        yield f"held by {version.held_by[0]}"
    if len(version.held_by) > 1:
        yield f"and {len(version.held_by) - 1} more"


def print_rollback(output: str, now: Manifest, before: str | None) -> None:
    """Prints which version is live, and how to go back."""
    if before == now.version:
        print_line(f"{now.version} is live already")
        return
    back = (
        f"; {before} was, and stays: `recordmill versions rollback {output} {before}` takes this back" if before else ""
    )
    print_line(f"{now.version} is live now{back}")


def print_pruned(done: Pruned, *, dry_run: bool) -> None:
    """Prints what was removed, or would be, and why other old versions stay."""
    for version, reason in done.kept.items():
        print_line(f"kept {version}: {reason}")
    for name, size in done.removed.items():
        print_line(f"{'would remove' if dry_run else 'removed'} {name}, {size:,} bytes")
    total = f"{sum(done.removed.values()):,} bytes"
    print_line(f"would free {total}: nothing was removed (--dry-run)" if dry_run else f"freed {total}")


def print_wait(holder: Holder) -> None:
    """Prints whose next beat is waited for."""
    print_line(f"waiting for the next beat of {holder}, at most a minute")
