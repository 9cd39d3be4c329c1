"""The history of an output: `history.jsonl`, one JSON object a build, whatever its end.

A build adds its line when its work begins and replaces it at its end. The file is replaced as a whole by
compare-and-swap, so that no reader sees half a line and no two builds tear each other's; the oldest lines leave it at
4 MiB, some thousand builds. A line that still says `running` while its lease is gone is that of a killed build, which
the next one notices.

>>> read_history("out/emoji")[-1]["end"]  # doctest: +SKIP
'published'
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.base import TRIES
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.publishing import holds_dataset
from recordmill.pipeline.versions.stores.base import HISTORY_FILE, Conflict, OutputError, Store
from recordmill.pipeline.versions.stores.open_store import open_store

MOST_BYTES = 4 << 20
RUNNING, KILLED = "running", "killed"
Entry = dict[str, Any]


def write_entry(output: str, entry: Mapping[str, Any], pause_seconds: float = 0.2) -> None:
    """Adds a build's entry, or replaces the one with its `id`; writes nothing where no dataset lies.

    Raises:
        OutputError: the output cannot be read or written, or others replace the file again and again.
    """
    store = open_store(output)
    if not holds_dataset(store):
        return
    with store.locked():
        for _ in range(TRIES):
            content = store.read_tagged(HISTORY_FILE)
            entries = _settled(_parse(content.data if content else b""), store)
            entries = [earlier for earlier in entries if earlier.get("id") != entry["id"]] + [dict(entry)]
            try:
                store.write_if(HISTORY_FILE, _lines(entries), content.tag if content else None)
            except Conflict:
                time.sleep(pause_seconds)
            else:
                return
    raise OutputError(f"other processes keep changing {store.url}/{HISTORY_FILE}")


def read_history(output: str) -> list[Entry]:
    """Reads the entries, the oldest first; an output without a history has none.

    Raises:
        OutputError: the output cannot be read.
    """
    return _parse(open_store(output).read(HISTORY_FILE) or b"")


def _parse(data: bytes) -> list[Entry]:
    """Leaves out lines that are no JSON objects, and what lies before the last 64 MiB: somebody edited the file."""
    entries = []
    for line in data[-16 * MOST_BYTES :].splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def _settled(entries: list[Entry], store: Store) -> list[Entry]:
    """Marks the builds as killed that were running and no longer hold the output's lease."""
    if not any(entry.get("end") == RUNNING for entry in entries):
        return entries
    holder = leases.holders(store).get(leases.BUILD)
    return [
        {**entry, "end": KILLED} if entry.get("end") == RUNNING and not _is_of(entry, holder) else entry
        for entry in entries
    ]


def _is_of(entry: Entry, holder: Holder | None) -> bool:
    """Whether the living holder of a lease is the process of a build."""
    is_its = holder is not None and (holder.host, holder.process) == (entry.get("host"), entry.get("process"))
    return holder is not None and is_its and not holder.is_dead()


def _lines(entries: list[Entry]) -> bytes:
    """Formats the newest entries, as many as fit."""
    lines: list[bytes] = []
    size = 0
    for entry in reversed(entries):
        line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        size += len(line)
        if lines and size > MOST_BYTES:
            break
        lines.append(line)
    return b"".join(reversed(lines))
