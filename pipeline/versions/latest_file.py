"""Reads `LATEST`, and replaces it by compare-and-swap: read, decide, write if nobody wrote meanwhile, else again.

>>> compare_and_swap(open_store("out"), lambda latest: moved(latest, "20261120T120000Z-4f1c9a2e", 7))  # doctest: +SKIP
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from recordmill.pipeline.dataset.manifest import LATEST_FILE, DatasetError, Latest, Manifest
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.versions.stores.base import Conflict, Content, OutputError, Store, UnsettledOutputError

TRIES = 50


def read(store: Store) -> Latest | None:
    """Reads `LATEST`; None if nothing is published.

    Raises:
        OutputError: it is broken, or the store cannot be read.
    """
    return _parse(store, store.read_tagged(LATEST_FILE), mend=False)


def compare_and_swap(
    store: Store, edit: Callable[[Latest | None], Latest], *, mend: bool = False, pause_seconds: float = 0.2
) -> Latest:
    """Replaces `LATEST` atomically by what `edit` makes of it.

    Args:
        store: the output.
        edit: takes the pointer, None if nothing is published, and returns the new one. It is called again if another
            process wrote first.
        mend: treats a broken `LATEST` as missing.
        pause_seconds: how long it waits after another process wrote first.

    Raises:
        OutputError: it is broken, cannot be written, or others replace it again and again.
    """
    with store.locked():
        for _ in range(TRIES):
            content = store.read_tagged(LATEST_FILE)
            latest = _parse(store, content, mend)
            changed = edit(latest)
            if changed == latest:
                return changed
            try:
                store.write_if(LATEST_FILE, changed.to_text().encode(), content.tag if content else None)
            except Conflict:
                time.sleep(pause_seconds)
            else:
                return changed
    path = store.location / LATEST_FILE
    raise UnsettledOutputError(f"other processes keep changing {path}: run the same command again")


def moved(latest: Latest | None, version: str, sequence: int) -> Latest:
    """Points `LATEST` to another version, and notes when the previous one stopped being live.

    Raises:
        OutputError: the version is being deleted.
    """
    if latest is None:
        return Latest(version, sequence)
    if version in latest.removing:
        raise UnsettledOutputError(f"the version {version} is being deleted: choose another, or build again")
    retired = latest.retired if latest.version == version else {**latest.retired, latest.version: now()}
    retired = {name: time for name, time in retired.items() if name != version}
    same = latest.same if latest.version == version else ()
    return replace(latest, version=version, sequence=sequence, retired=retired, same=same)


def is_held_back(latest: Latest | None, manifest: Manifest) -> bool:
    """Whether the gate held a version back, and nobody made it live since."""
    was_live = {latest.version, *latest.retired} if latest else set()
    return bool(manifest.gate.get("breaches")) and manifest.version not in was_live


def now() -> str:
    """Formats this machine's time, in UTC, as `LATEST` holds it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _parse(store: Store, content: Content | None, mend: bool) -> Latest | None:
    if content is None:
        return None
    try:
        return Latest.from_json(parse_json(content.data))
    except DatasetError as error:
        if mend:
            return None
        raise OutputError(
            f"{store.location / LATEST_FILE} is broken ({error}): "
            f"`recordmill versions rollback {store.url} VERSION` makes a version live again"
        ) from None
