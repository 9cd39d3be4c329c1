"""`LATEST` as those see it who change it: read, decided anew and replaced, until nobody came between.

>>> change(open_store("out"), lambda latest: moved(latest, "20261120T120000Z-4f1c9a2e", 7))  # doctest: +SKIP
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from recordmill.pipeline.dataset.manifest import LATEST_FILE, DatasetError, Latest
from recordmill.pipeline.versions.stores.open_store import Conflict, Content, OutputError, Store, Stored

TRIES = 50
PAUSE_SECONDS = 0.2


def read(store: Store) -> Latest | None:
    """Reads `LATEST`; None where nothing is published.

    Raises:
        OutputError: it is broken, or the store cannot be read.
    """
    return _parse(store, store.read(LATEST_FILE), mend=False)


def change(store: Store, edit: Callable[[Latest | None], Latest], *, mend: bool = False) -> Latest:
    """Replaces `LATEST` by what `edit` makes of it, atomically.

    Args:
        store: the output.
        edit: gets the pointer, None where there is none, and gives the new one. It is called again where another
            process was quicker.
        mend: takes a broken `LATEST` for none.

    Raises:
        OutputError: it is broken, cannot be written, or is replaced by others again and again.
    """
    with store.locked():
        for _ in range(TRIES):
            found = store.read(LATEST_FILE)
            latest = _parse(store, found, mend)
            changed = edit(latest)
            if changed == latest:
                return changed
            try:
                store.write_if(LATEST_FILE, changed.to_text().encode(), found.tag if found else None)
            except Conflict:
                time.sleep(PAUSE_SECONDS)
            else:
                return changed
    raise OutputError(f"{Stored(store, LATEST_FILE)} is changed by others all the time: run the same command again")


def moved(latest: Latest | None, version: str, sequence: int) -> Latest:
    """Points `LATEST` to another version, and notes when the one before it stopped being live.

    Raises:
        OutputError: the version is being deleted.
    """
    if latest is None:
        return Latest(version, sequence)
    if version in latest.removing:
        raise OutputError(f"the version {version} is being deleted: choose another, or build again")
    retired = latest.retired if latest.version == version else {**latest.retired, latest.version: now()}
    retired = {name: time for name, time in retired.items() if name != version}
    return replace(latest, version=version, sequence=sequence, retired=retired)


def now() -> str:
    """The time in UTC, by this machine's clock, as `LATEST` holds it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _parse(store: Store, found: Content | None, mend: bool) -> Latest | None:
    if found is None:
        return None
    try:
        return Latest.from_json(json.loads(found.data))
    except (ValueError, RecursionError, DatasetError) as error:
        if mend:
            return None
        raise OutputError(
            f"{Stored(store, LATEST_FILE)} is broken ({error}): "
            f"`recordmill rollback {store.url} VERSION` makes a version live again"
        ) from None
