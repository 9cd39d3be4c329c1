"""`LATEST`, replaced by compare-and-swap: read, decide, write if nobody wrote meanwhile, else retry."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from recordmill.pipeline.dataset.manifest import LATEST_FILE, Latest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import NewerFormatError, parse_json
from recordmill.pipeline.versions.stores.base import Conflict, Content, OutputError, Store, UnsettledOutputError

TRIES, PAUSE_SECONDS = 50, 0.2


def latest_of(store: Store) -> Latest | None:
    """Reads `LATEST`, if a version is published. Raises: OutputError: it is broken or not readable."""
    return _parse_latest(store, store.read_tagged(LATEST_FILE), mend=False)


def swap(store: Store, name: str, edit: Callable[[Content | None], bytes | None]) -> None:
    """Replaces an object atomically by `edit(content)`; None stands for a missing object, and as result for no change.

    Retries if another process wrote first. Raises: UnsettledOutputError after `TRIES`, OutputError.
    """
    with store.locked():
        for _ in range(TRIES):
            content = store.read_tagged(name)
            data = edit(content)
            if data is None:
                return
            with suppress(Conflict):
                store.write_if(name, data, content.tag if content else None)
                return
            time.sleep(PAUSE_SECONDS)
    raise UnsettledOutputError(f"other processes keep changing {store.location / name}: run the same command again")


def compare_and_swap(store: Store, edit: Callable[[Latest | None], Latest], *, mend: bool = False) -> Latest:
    """Replaces `LATEST` atomically by `edit(latest)`, of None without a version; retries as `swap`.

    With `mend`, a broken `LATEST` counts as missing. Raises: OutputError, as `latest_of` and `swap`.
    """
    edited = list[Latest]()

    def text(content: Content | None) -> bytes | None:
        latest = _parse_latest(store, content, mend)
        edited.append(edit(latest))
        return None if edited[-1] == latest else edited[-1].to_text().encode()

    swap(store, LATEST_FILE, text)
    return edited[-1]


def moved(latest: Latest | None, version: str, sequence: int) -> Latest:
    """Moves `LATEST` to a version, and retires the previous one. Raises: UnsettledOutputError: it is being deleted."""
    if latest is None:
        return Latest(version, sequence)
    if version in latest.removing:
        raise UnsettledOutputError(f"the version {version} is being deleted: choose another, or build again")
    retired = latest.retired if latest.version == version else {**latest.retired, latest.version: now()}
    retired = {name: time for name, time in retired.items() if name != version}
    same = latest.same if latest.version == version else ()
    return replace(latest, version=version, sequence=sequence, retired=retired, same=same)


def now() -> str:
    """Formats the present time, in UTC, as in `LATEST`."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _parse_latest(store: Store, content: Content | None, mend: bool) -> Latest | None:
    if content is None:
        return None
    try:
        return Latest.from_json(parse_json(content.data))
    except DatasetError as error:
        if mend and not isinstance(error, NewerFormatError):
            return None
        raise OutputError(f"{store.location / LATEST_FILE} is broken ({error}): {rolls_back(store.url)}") from None


def rolls_back(output: str) -> str:
    """Names the command that mends an output with a damaged `LATEST` or live version."""
    return f"`recordmill versions rollback {output} VERSION` makes a version live"
