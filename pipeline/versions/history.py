"""The history of an output: `history.jsonl`, one JSON object per build or manual act, successful or not.

A build adds its line when it starts and replaces it at its end; an act adds its line at its end, if it changed
something. Compare-and-swap replaces the whole file, so lines stay complete; beyond 4 MiB (some thousand builds) the
oldest lines are dropped. A line with `running` but without a lease belongs to a killed build. Lines never hold secrets
of URLs, keys of rows, or messages of user functions.
"""

import getpass
import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from recordmill.pipeline import VERSION
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import printable, redacted
from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.base import now, swap
from recordmill.pipeline.versions.publishing import OURS, live_version
from recordmill.pipeline.versions.stores.base import HISTORY_FILE, Content, Store
from recordmill.pipeline.versions.stores.open_store import open_store

LOG = logging.getLogger("recordmill")
MOST_BYTES = 4 << 20
BUILD, RUNNING, KILLED, DONE, FAILED, STOPPED = "build", "running", "killed", "done", "failed", "stopped"
PATIENCE_SECONDS = 30.0  # to write a line: a signal may have interrupted the thread with the output's lock
MOST_MESSAGE = 1000  # characters
OWN_WORDS = re.compile(r"(`[^`]+` failed[^:]*: \w+): .*", re.DOTALL)
"""A user function's message after its exception's type, never logged (docs/security.md)."""
Entry = dict[str, Any]


def new_entry(act: str) -> Entry:
    """Begins the entry of a build or an act: user, host and time."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # in a container the user may have no name
        user = str(os.getuid())
    return {
        "id": secrets.token_hex(8),
        "act": act,
        "end": RUNNING,
        "message": None,
        "began_at": now(),
        "ended_at": None,
        "seconds": None,
        "user": user,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "recordmill": VERSION,
    }


@contextmanager
def recorded(output: str, act: str, reason: str) -> Iterator[Entry]:
    """Yields a dict for an act's changes; if one is truthy, writes its line at the end, even of a failure, or warns."""
    changes, began = Entry(), time.monotonic()
    entry = new_entry(act) | {"reason": public_message(reason), "live_before": live_version(output)}
    try:
        yield changes
        entry["end"] = DONE
    except BaseException as error:
        message = str(error) if isinstance(error, UserError | OSError) else type(error).__name__
        end = FAILED if isinstance(error, Exception) else STOPPED
        entry |= {"end": end, "message": public_message(message)}
        raise
    finally:
        if any(changes.values()):
            entry |= {"ended_at": now(), "seconds": round(time.monotonic() - began, 3)}
            if warning := note(output, lambda: entry | {"live_after": live_version(output)} | changes):
                LOG.warning(printable(warning))


def note(output: str, entry: Callable[[], Entry]) -> str | None:
    """Makes and writes an entry (`write_entry`); returns a warning if that fails or takes too long."""
    return within(PATIENCE_SECONDS, "the history", lambda: write_entry(output, entry()))


def within(seconds: float, what: str, write: Callable[[], object]) -> str | None:
    """Calls a function in a separate thread; returns a warning if it fails or takes too long."""
    warnings = [f"{what} was not written within {seconds:.0f} seconds"]

    def call() -> None:
        try:
            write()
            warnings.clear()
        except (UserError, OSError) as error:
            warnings[:] = [f"{what} was not written: {error}"]
        except Exception as error:  # must not end the build or act
            warnings[:] = [f"{what} was not written: {type(error).__name__}"]

    thread = threading.Thread(target=call, name=what, daemon=True)
    thread.start()
    thread.join(seconds)
    return warnings[0] if warnings else None


def public_message(message: str) -> str:
    """Returns the storable part of an error's message or a reason.

    >>> public_message("`code:words` failed in code.py, line 3: ValueError: Ada's address")
    '`code:words` failed in code.py, line 3: ValueError'
    """
    return OWN_WORDS.sub(r"\1", redacted(message))[:MOST_MESSAGE]


def write_entry(output: str, entry: Mapping[str, Any]) -> None:
    """Adds an entry, or replaces the one with its `id`; skips an output without a dataset. Raises: OutputError."""
    store = open_store(output)

    def lines(content: Content | None) -> bytes:
        entries = _settled(_parse(content), store)
        newest_first = [dict(entry), *(each for each in reversed(entries) if each.get("id") != entry["id"])]
        kept, size = list[bytes](), 0
        for each in newest_first:
            line = json.dumps(each, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
            size += len(line)
            if kept and size > MOST_BYTES:
                break
            kept.append(line)
        return b"".join(reversed(kept))

    if not OURS.isdisjoint(store.children("")):
        swap(store, HISTORY_FILE, lines)


def read_history(output: str) -> list[Entry]:
    """Reads the entries, oldest first, and marks killed builds; empty without a history. Raises: OutputError."""
    store = open_store(output)
    return _settled(_parse(store.read_tagged(HISTORY_FILE)), store)


def _parse(content: Content | None) -> list[Entry]:
    """Skips lines other than JSON objects, and everything before the last 64 MiB: only manual edits cause them."""
    entries = list[Entry]()
    for line in content.data[-16 * MOST_BYTES :].splitlines() if content else ():
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            entries += [entry] if isinstance(entry, dict) else []
    return entries


def _settled(entries: list[Entry], store: Store) -> list[Entry]:
    """Marks running builds without the output's lease as killed."""
    if not any(entry.get("end") == RUNNING for entry in entries):
        return entries
    holder = leases.holders(store).get(leases.BUILD)
    living = None if holder is None or holder.is_dead() else (holder.host, holder.process)
    killed = [each.get("end") == RUNNING and (each.get("host"), each.get("process")) != living for each in entries]
    return [{**each, "end": KILLED} if is_killed else each for each, is_killed in zip(entries, killed, strict=True)]
