"""Chooses the old versions that may be removed, says why others stay, and marks them in `LATEST`."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from recordmill.pipeline.dataset.manifest import Latest, Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions.listing import holds
from recordmill.pipeline.versions.stores.base import UnsettledOutputError

GRACE_SECONDS = 24 * 3600.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0}


def seconds_of(grace: str) -> float:
    """Reads a time such as `30m`, `12h`, `1d`, or `0`; a number alone is seconds.

    Raises:
        UserError: it is not such a time.
    """
    number, unit = (grace[:-1], grace[-1:]) if grace[-1:] in UNITS else (grace, "s")
    if not number.isascii() or not number.isdecimal():
        raise UserError(f"the grace '{grace}' is not a duration: give a whole number and s, m, h or d, such as 12h")
    return float(number) * UNITS[unit]  # infinite where it is larger than any


def choose(
    latest: Latest, manifests: list[Manifest], living: Collection[str], keep: int, grace: float, now: datetime
) -> tuple[Latest, dict[str, str]]:
    """Chooses the versions to remove: returns `LATEST` with these marked, and why other old versions stay.

    Args:
        latest: the pointer.
        manifests: the versions that were live, in the order of publishing.
        living: the names of the leases that are held.
        keep: how many of the newest stay.
        grace: seconds since a version stopped being live.
        now: the time.
    """
    kept, retired, removing = {}, dict(latest.retired), list(latest.removing)
    for version in [manifest.version for manifest in manifests][: max(0, len(manifests) - keep)]:
        age = age_of(latest.retired.get(version), now)
        reason = why_kept(latest, version, living, grace, age)
        if reason is None:
            removing.append(version)
            continue
        kept[version] = reason
        if age is None and version != latest.version:  # its grace begins now
            retired[version] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return replace(latest, retired=retired, removing=tuple(removing)), kept


def why_kept(latest: Latest, version: str, living: Collection[str], grace: float, age: float | None) -> str | None:
    """Says why an old version stays; None if it may be removed. `age` is in seconds since it stopped being live."""
    if version == latest.version:
        return "it is live"
    if version in latest.pinned:
        return "it is pinned"
    if any(holds(lease, version) for lease in living):
        return "it is held"
    if grace <= 0:
        return None
    if age is None:
        return "it is not known when it stopped being live: its grace begins now"
    retired = f"it stopped being live at {latest.retired[version]}"
    if age < 0:
        return f"{retired}, which is in the future: a clock was ahead; `--grace 0` removes it"
    return f"{retired}: the grace is not over" if age < grace else None


def age_of(time: str | None, now: datetime) -> float | None:
    """Seconds since a time; None if it is unknown, as that of retired versions in outputs of Recordmill 0.1.0."""
    try:
        return None if time is None else (now - datetime.fromisoformat(time)).total_seconds()
    except (ValueError, TypeError):
        return None


def marked(latest: Latest, versions: Collection[str]) -> Latest:
    """Marks versions to be removed, but those that are live or pinned."""
    new = [version for version in versions if version not in {latest.version, *latest.pinned, *latest.removing}]
    return replace(latest, removing=(*latest.removing, *new))


def there(latest: Latest | None) -> Latest:
    """Returns `LATEST`, which was there before. Raises: UnsettledOutputError: it was removed."""
    if latest is None:
        raise UnsettledOutputError("the output's LATEST was removed meanwhile: run the same command again")
    return latest


def unmarked(latest: Latest, versions: Collection[str], *, forget: bool) -> Latest:
    """Takes the marks of versions away; with `forget`, also the times at which they stopped being live."""
    removing = tuple(version for version in latest.removing if version not in versions)
    retired = {version: time for version, time in latest.retired.items() if not (forget and version in versions)}
    return replace(latest, retired=retired, removing=removing)
