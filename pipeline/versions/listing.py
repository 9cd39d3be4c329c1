"""Lists an output's versions, finds one by name, holds it for a reader, and chooses old ones to remove."""

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from recordmill.pipeline.dataset import manifest as datasets
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, Latest, Manifest
from recordmill.pipeline.errors import DatasetError, UserError, did_you_mean
from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.base import awaits_approval, is_held_back, latest_of
from recordmill.pipeline.versions.publishing import published
from recordmill.pipeline.versions.stores.base import Store, UnsettledOutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store

LIVE, HELD_BACK = "live", "held-back"
BEFORE = re.compile(r"-[1-9]\d{0,5}")
GRACE_SECONDS = 24 * 3600.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0}


@dataclass(frozen=True)
class Version:
    """A published version, and its state in the output."""

    manifest: Manifest
    is_live: bool
    is_pinned: bool
    held_by: tuple[leases.Holder, ...]  # the holders of its leases, possibly including dead ones on other hosts
    retired: str | None  # the time in UTC when another version replaced it as live; None if it is live, or unknown
    is_held_back: bool = False  # whether the gate or a rollback holds it back, without an approval since
    tags: tuple[str, ...] = ()


def list_versions(output: str) -> list[Version]:
    """Lists versions in the order of publishing. Raises: DatasetError: no folder. OutputError: unreadable, broken."""
    store = open_existing(output)
    latest = latest_of(store) or Latest("", 0)
    held = {name: holder for name, holder in leases.holders(store).items() if not holder.is_dead()}
    return [
        Version(
            manifest,
            manifest.version == latest.version,
            manifest.version in latest.pinned,
            tuple(holder for name, holder in held.items() if holds(name, manifest.version)),
            latest.retired.get(manifest.version),
            awaits_approval(latest, manifest),
            tuple(sorted(tag for tag, version in latest.tags.items() if version == manifest.version)),
        )
        for manifest in published(store)
    ]


def open_existing(output: str) -> Store:
    """Opens the store of an existing output. Raises: DatasetError: it does not exist."""
    if not open_location(output).is_dir():
        raise datasets.no_folder(output)
    return open_store(output)


def holds(lease: str, version: str) -> bool:
    """Whether a lease of this name holds a version: named `<version>`, for readers `<version>+<token>`."""
    return lease.partition("+")[0] == version


@contextmanager
def held(output: str, version: str) -> Iterator[None]:
    """Protects a version from prunes while it is read. Raises: DatasetError: it was removed. OutputError: no lease."""
    store = open_store(output)
    with leases.hold(store, f"{version}+{secrets.token_hex(6)}"):
        latest = latest_of(store)  # read under the lease: a prune marks first, then reads the leases
        is_going = latest is not None and version in latest.removing
        if is_going or not store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
            raise DatasetError(f"the version {version} was removed from {output}: open the dataset again")
        yield


def find(output: str, wanted: str) -> Manifest:
    """Finds a version by a person's name for it.

    `wanted` is its name or tag; its number (`3`, `#3`); a unique prefix or suffix of its name, of digits at least four;
    `live`; `held-back`, the newest if held back; or `-1`, the version published before the live one, `-2` that before
    it. Raises: DatasetError: no version or several match; the message names them. OutputError: `LATEST` is broken.
    """
    store = open_existing(output)
    needs_latest = wanted[:1].isalpha() or BEFORE.fullmatch(wanted)  # a tag, or relative to the live one
    return find_among(published(store), output, wanted, latest_of(store) if needs_latest else None)


def find_among(manifests: list[Manifest], output: str, wanted: str, latest: Latest | None) -> Manifest:
    """Finds a version among all of an output; arguments and errors as for `find`."""
    if wanted == HELD_BACK:
        if not manifests or not awaits_approval(latest, manifests[-1]):
            raise DatasetError(f"no version is held back in {output}; {_known(manifests)}")
        return manifests[-1]
    if wanted == LIVE or BEFORE.fullmatch(wanted):
        were_live = [manifest for manifest in manifests if not is_held_back(latest, manifest)]
        names = [manifest.version for manifest in were_live]
        if latest is None or latest.version not in names:
            raise DatasetError(f"{output} has no live version: name a version; {_known(manifests)}")
        steps = int(wanted.removeprefix("-")) if wanted != LIVE else 0
        position = names.index(latest.version) - steps
        if position < 0:
            before = f"{steps:,} versions" if steps > 1 else "version"
            raise DatasetError(f"{output} has no {before} before the live {latest.version}")
        return were_live[position]
    # Where versions have numbers, a short one is no part of another version's name.
    is_part = bool(wanted) and not (wanted.isdecimal() and len(wanted) < 4 and all(each.sequence for each in manifests))
    tests: tuple[Callable[[Manifest], bool], ...] = (
        lambda manifest: manifest.version in (wanted, latest and latest.tags.get(wanted)),
        lambda manifest: manifest.sequence > 0 and str(manifest.sequence) == wanted.removeprefix("#"),
        lambda manifest: is_part and (manifest.version.startswith(wanted) or manifest.version.endswith(wanted)),
    )
    for fits in tests:
        fitting = [manifest for manifest in manifests if fits(manifest)]
        if len(fitting) > 1:
            several = ", ".join(manifest.version for manifest in fitting)
            raise DatasetError(f"'{wanted}' matches {several}: give more of the name")
        if fitting:
            return fitting[0]
    near = did_you_mean(wanted, [manifest.version for manifest in manifests], "{}")
    raise DatasetError(f"{output} has no version '{wanted}'{near or f'; {_known(manifests)}'}")


def _known(manifests: list[Manifest]) -> str:
    return datasets.which_versions([manifest.version for manifest in manifests])


def pair(output: str, before: str | None = None, after: str | None = None) -> tuple[Manifest, Manifest]:
    """Finds two versions (`find`): by default the live one and the one before it. Raises: DatasetError, OutputError."""
    store = open_existing(output)
    latest, manifests = latest_of(store), published(store)
    return find_among(manifests, output, before or "-1", latest), find_among(manifests, output, after or LIVE, latest)


def seconds_of(grace: str) -> float:
    """Reads a duration such as `30m`, `12h`, `1d`, or in seconds `90`. Raises: UserError: it is invalid."""
    number, unit = (grace[:-1], grace[-1:]) if grace[-1:] in UNITS else (grace, "s")
    if not number.isascii() or not number.isdecimal():
        raise UserError(f"the grace '{grace}' is not a duration: give a whole number and s, m, h or d, such as 12h")
    return float(number) * UNITS[unit]  # a huge number becomes infinite


def choose(
    latest: Latest, graces: Mapping[str, float], living: Collection[str], now: datetime
) -> tuple[Latest, dict[str, str]]:
    """Marks removable ones of versions with graces in seconds; returns the new `LATEST`, and why the others stay."""
    kept, retired = dict[str, str](), dict(latest.retired)
    for version, grace in graces.items():
        until = latest.retired.get(version)  # None if unknown, as for versions retired by Recordmill 0.1.0
        age = 0.0 if until is None else (now - datetime.fromisoformat(until)).total_seconds()
        if version == latest.version:
            kept[version] = "it is live"
            continue
        if until is None and grace > 0:
            retired[version] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        if version in latest.pinned:
            kept[version] = "it is pinned"
        elif any(holds(lease, version) for lease in living):
            kept[version] = "it is held"
        elif until is None and grace > 0:
            kept[version] = "the time it was last live is unknown: its grace starts now"
        elif age < 0 < grace:
            kept[version] = f"it was live until {until}, in the future: a clock was ahead; `--grace 0` removes it"
        elif grace > 0 and age < grace:
            kept[version] = f"it was live until {until}: its grace is not over"
    return marked(replace(latest, retired=retired), [version for version in graces if version not in kept]), kept


def marked(latest: Latest, versions: Collection[str]) -> Latest:
    """Marks versions for removal, except live and pinned ones."""
    new = [version for version in versions if version not in {latest.version, *latest.pinned, *latest.removing}]
    return replace(latest, removing=(*latest.removing, *new))


def there(latest: Latest | None) -> Latest:
    """Returns `LATEST`, which existed before. Raises: UnsettledOutputError: it was removed."""
    if latest is None:
        raise UnsettledOutputError("another process removed the output's LATEST: run the same command again")
    return latest
