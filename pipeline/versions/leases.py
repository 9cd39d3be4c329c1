"""Leases: who works on what in an output, so that others wait, and know when they need not.

A lease is a small object `.leases/<name>.json` that names its holder: host, boot, process, when that process started,
a random token. Its holder counts a beat up every 5 seconds. Of a process of this host and boot it is known at once
whether it is dead. Any other holder counts as dead when its beat has not changed for 60 seconds by the clock of who
waits, from the first look on: clocks of other hosts are never read. Every change is a compare-and-swap, so that of two
who take a lease over one wins; and who lost a lease is told by `check`, before anything is published.

>>> with hold(open_store("out"), "4f1c9a2e00000000", on_wait=print) as lease:  # doctest: +SKIP
...     lease.check()
process 4711 on build-3, since 2026-11-21 12:00:07 UTC
"""

import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions.stores.open_store import Conflict, Content, OutputError, Store

LEASES_FOLDER = ".leases"
NAME = re.compile(r"[\w.+-]+\.json")
BEAT_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
"""How long a holder's beat may stay the same before it counts as dead."""
POLL_SECONDS = 0.5


class LeaseLostError(UserError):
    """Another process took the lease over: nothing may be published any more."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lease."""

    host: str
    boot: str
    """This boot of the host's kernel, and the processes' name space, which containers do not share. Empty: unknown."""
    process: int
    started: str
    """When the process started, in the kernel's ticks since the boot: another process may get the same number later."""
    token: str
    beat: int = 0
    since: str = ""
    """By the holder's clock; for people."""

    def __str__(self) -> str:
        since = f", since {self.since}" if self.since else ""
        return f"process {self.process} on {self.host}{since}" if self.host else "somebody unknown"

    def is_here(self) -> bool:
        """Whether it is a process of this host and boot, so that it is known whether it lives."""
        return bool(self.boot) and (self.host, self.boot) == (socket.gethostname(), _boot())

    def is_dead(self) -> bool:
        """Whether the process is known to be gone: False also where nothing is known of it."""
        return self.is_here() and _started(self.process) not in ("", self.started)


def this_process() -> Holder:
    """Gives this process as a new holder."""
    me, since = os.getpid(), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Holder(socket.gethostname(), _boot(), me, _started(me) or "", secrets.token_hex(8), since=since)


def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux: only the beat tells
        return ""


def _started(process: int) -> str | None:
    """When a process started; None if there is none, or it has ended and only waits for its parent; "" if unknown."""
    try:
        state, *numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if _exists(process) else None  # /proc may hide what other users run
    return None if state in "ZX" else numbers[18]  # the 22nd field; the third is the state


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Lease:
    """A lease that this process holds; a thread beats until `release`."""

    def __init__(self, store: Store, name: str, holder: Holder, tag: str) -> None:
        self.name = name
        self._store, self._holder, self._tag = store, holder, tag
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Makes sure that the lease is still this process'.

        Raises:
            LeaseLostError: it was taken over, or the output is gone.
            OutputError: the store cannot be asked.
        """
        found = _holder(self._store.read(_path(self.name)))
        if found is None:
            raise LeaseLostError(f"the lease of this process in {self._store.url} is gone: nothing was published")
        if found.token != self._holder.token:
            raise LeaseLostError(
                f"this process was silent for so long that {found} took its work over in {self._store.url}: "
                "nothing was published here"
            )

    def release(self) -> None:
        """Gives the lease back, if it is still held."""
        self._ended.set()
        self._thread.join(BEAT_SECONDS)  # a store that does not answer must not keep the process
        with suppress(OutputError):
            self._store.delete(_path(self.name), self._tag)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            next_beat = replace(self._holder, beat=self._holder.beat + 1)
            try:
                self._tag = self._store.write_if(_path(self.name), _text(next_beat), self._tag)
                self._holder = next_beat
            except Conflict:
                if not self._is_still_held():
                    return  # lost, as `check` will say
            except UserError:
                continue  # a full disk, a network that is away: the next beat may come through

    def _is_still_held(self) -> bool:
        """Whether a conflict was none, but a write of one's own whose answer was lost."""
        try:
            content = self._store.read(_path(self.name))
        except UserError:
            return True  # the next beat will tell
        holder = _holder(content)
        if content is None or holder is None or holder.token != self._holder.token:
            return False
        self._tag, self._holder = content.tag, holder
        return True


@contextmanager
def hold(store: Store, name: str, on_wait: Callable[[Holder], None] = lambda holder: None) -> Iterator[Lease]:
    """Takes a lease, and gives it back at the end.

    Args:
        store: the output.
        name: what is worked on: the first 16 digits of a build's key, or a version's name.
        on_wait: called with each living holder that has to be waited for, once.

    Raises:
        OutputError: the output cannot be written.
    """
    lease = take(store, name, on_wait)
    try:
        yield lease
    finally:
        lease.release()


def take(store: Store, name: str, on_wait: Callable[[Holder], None] = lambda holder: None) -> Lease:
    """Takes a lease, for as long as the process lives or until its `release`; else as `hold`."""
    watch, told = _Watch(), ""
    while True:
        holder = _holder(store.read(_path(name)))
        if holder is None or watch.is_dead(holder):
            lease = take_over(store, name, holder)
            if lease is not None:
                return lease
            continue
        if holder.token != told:
            told = holder.token
            on_wait(holder)
        time.sleep(POLL_SECONDS)


def take_over(store: Store, name: str, dead: Holder | None = None) -> Lease | None:
    """Takes a lease that is free or its holder's death known (`dead`); None where another holds it."""
    found = store.read(_path(name))
    holder = _holder(found)
    if holder is not None and not holder.is_dead() and holder != dead:
        return None
    me = this_process()
    try:
        return Lease(store, name, me, store.write_if(_path(name), _text(me), found.tag if found else None))
    except Conflict:
        return None


def holders(store: Store) -> dict[str, Holder]:
    """Gives all leases of an output by name, those of dead processes too."""
    names = [name.removesuffix(".json") for name in store.children(LEASES_FOLDER) if NAME.fullmatch(name)]
    found = {name: _holder(store.read(_path(name))) for name in names}
    return {name: holder for name, holder in found.items() if holder is not None}


def census(
    store: Store, names: Collection[str] | None = None, on_wait: Callable[[Holder], None] = lambda holder: None
) -> tuple[dict[str, Holder], dict[str, Holder]]:
    """Finds out which leases are held by the living, and which by the dead; nothing is changed.

    Of a process on another host that takes until its next beat, or 60 seconds where none comes.

    Args:
        store: the output.
        names: the leases to look at; all where they are not given.
        on_wait: called with each holder that has to be waited for.
    """
    living: dict[str, Holder] = {}
    dead: dict[str, Holder] = {}
    watches = {name: _Watch() for name in holders(store) if names is None or name in names}
    while watches:
        for name, watch in list(watches.items()):
            holder = _holder(store.read(_path(name)))
            if holder is not None and watch.is_dead(holder):
                dead[name] = holder
            elif holder is not None and (holder.is_here() or watch.has_changed):
                living[name] = holder
            elif holder is not None:
                if watch.looks == 1:
                    on_wait(holder)
                continue
            del watches[name]
        if watches:
            time.sleep(POLL_SECONDS)
    return living, dead


def is_alive(store: Store, name: str) -> bool:
    """Whether a living process holds a lease; see `census`."""
    return name in census(store, [name])[0]


class _Watch:
    """Looks at a holder again and again, by this process' own clock."""

    def __init__(self) -> None:
        self.looks = 0
        self.has_changed = False
        self._seen: tuple[str, int] | None = None
        self._since = 0.0

    def is_dead(self, holder: Holder) -> bool:
        self.looks += 1
        if (holder.token, holder.beat) != self._seen:
            self.has_changed = self._seen is not None
            self._seen, self._since = (holder.token, holder.beat), time.monotonic()
        return holder.is_dead() or time.monotonic() - self._since >= PATIENCE_SECONDS


def _path(name: str) -> str:
    return f"{LEASES_FOLDER}/{name}.json"


def _text(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _holder(found: Content | None) -> Holder | None:
    """Reads a lease; who left one that is broken counts as somebody unknown, who is waited for."""
    if found is None:
        return None
    try:
        holder = Holder(**json.loads(found.data))
    except (ValueError, TypeError):
        return Holder("", "", 0, "", token=found.tag)
    return holder if isinstance(holder.process, int) else replace(holder, process=0, boot="")
