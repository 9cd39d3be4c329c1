"""Leases: locks on parts of an output with a heartbeat, so other processes wait, and notice a dead holder.

A lease is a small object, `.leases/<name>.json`, with its holder: host, boot, process, the process's start time, a
random token. The holder increments a beat every 5 seconds. A holder of this host and boot is dead as soon as its
process is gone; any other after 60 seconds without a beat by the waiting process's clock: clocks of other hosts do not
matter. Every change is a compare-and-swap, so only one process can take a lease over, and `check` fails for a holder
that lost its lease before it publishes.
"""

import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.versions.stores.base import Conflict, Content, OutputError, Store

LEASES_FOLDER = ".leases"
BUILD = "build"  # the lease for making versions, one at a time
NAME = re.compile(r"([\w.+-]+)\.json")
BEAT_SECONDS = 5.0
PATIENCE_SECONDS = 60.0  # without a beat, until a holder counts as dead
POLL_SECONDS = 0.5


class LeaseLostError(UserError):
    """Another process took the lease over: this one must not publish."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class Holder:
    """The process holding a lease."""

    host: str
    boot: str  # the kernel's boot ID and the process's PID namespace (each container has one); empty if unknown
    process: int
    started: str  # the process's start in kernel ticks since boot, since process numbers are reused; empty if unknown
    token: str
    beat: int = 0
    since: str = ""  # the time of taking the lease by the holder's clock; only shown

    def __str__(self) -> str:
        since = f", since {self.since}" if self.since else ""
        return f"process {self.process} on {self.host}{since}" if self.host else "an unknown process"

    def is_here(self) -> bool:
        """Whether it is a process of this host and boot, so its death is visible."""
        return bool(self.boot) and (self.host, self.boot) == (socket.gethostname(), _boot())

    def is_dead(self) -> bool:
        """Whether the process is known to be gone; False if unknown."""
        return self.is_here() and _started(self.process) not in ("", self.started)


OnWait = Callable[[Holder], None]  # called with a living holder that a process waits for


def this_process() -> Holder:
    """Describes this process as a new holder."""
    me, since = os.getpid(), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Holder(socket.gethostname(), _boot(), me, _started(me) or "", secrets.token_hex(8), since=since)


def _boot() -> str:
    with suppress(OSError):  # not Linux: rely on the beat
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _started(process: int) -> str | None:
    """Returns a process's start time; None if it is gone or a zombie, "" if unreadable."""
    try:
        state, *numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else numbers[18]  # field 22 of `proc_pid_stat`; the state is field 3
    except OSError:  # /proc may hide other users' processes
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return None
        except OSError:
            return ""
        return ""


class Lease:
    """A lease of this process; a thread writes its beat until `release`."""

    def __init__(self, store: Store, name: str, holder: Holder, tag: str) -> None:
        self.name = name
        self._store, self._holder, self._tag = store, holder, tag
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Checks that this process holds the lease. Raises: LeaseLostError: it does not. OutputError: unreadable."""
        holder = _holder(self._store.read_tagged(_path(self.name)))
        if holder is None:
            raise LeaseLostError(f"this process's lease in {self._store.url} is gone: it published no version")
        if holder.token != self._holder.token:
            silent = f"this process was silent for so long that {holder} took over in {self._store.url}"
            raise LeaseLostError(f"{silent}: it published no version")

    def release(self) -> None:
        """Deletes the lease if this process still holds it."""
        self._ended.set()
        self._thread.join(BEAT_SECONDS)  # an unresponsive store must not block the process
        with suppress(OutputError):
            self._store.delete(_path(self.name), self._tag)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            beat = replace(self._holder, beat=self._holder.beat + 1)
            with suppress(UserError):  # such as a full disk or a network failure: the next beat may succeed
                try:
                    self._tag, self._holder = self._store.write_if(_path(self.name), _text(beat), self._tag), beat
                except Conflict:
                    content = self._store.read_tagged(_path(self.name))
                    holder = _holder(content)
                    if content is None or holder is None or holder.token != self._holder.token:
                        return  # it is lost: `check` reports it
                    self._tag, self._holder = content.tag, holder  # written by this process, but the answer was lost


@contextmanager
def hold(store: Store, name: str, on_wait: OnWait = lambda _: None) -> Iterator[Lease]:
    """Takes a lease until the block ends; `on_wait` gets each living holder that blocks it. Raises: OutputError."""
    lease = take(store, name, on_wait)
    try:
        yield lease
    finally:
        lease.release()


def take(store: Store, name: str, on_wait: OnWait = lambda _: None) -> Lease:
    """Takes a lease until `release` or the process's end; arguments and errors as for `hold`."""
    watch, waited_for = _Watch(), ""
    while True:
        holder = _holder(store.read_tagged(_path(name)))
        if holder is not None and not watch.is_dead(holder):
            if holder.token != waited_for:
                on_wait(holder)
            waited_for = holder.token
            time.sleep(POLL_SECONDS)
        elif lease := take_over(store, name, holder):
            return lease


def take_over(store: Store, name: str, dead: Holder | None = None) -> Lease | None:
    """Takes a lease if it is free or its holder dead (`dead`: known to be); None if another process holds it."""
    content = store.read_tagged(_path(name))
    holder = _holder(content)
    if holder is not None and not holder.is_dead() and holder != dead:
        return None
    me = this_process()
    with suppress(Conflict):
        return Lease(store, name, me, store.write_if(_path(name), _text(me), content.tag if content else None))
    return None


def holders(store: Store) -> dict[str, Holder]:
    """Reads all leases of an output by name, including those of dead processes."""
    names = [match[1] for entry in store.children(LEASES_FOLDER) if (match := NAME.fullmatch(entry))]
    leases = {name: _holder(store.read_tagged(_path(name))) for name in names}
    return {name: holder for name, holder in leases.items() if holder is not None}


def census(store: Store, on_wait: OnWait = lambda _: None) -> tuple[dict[str, Holder], dict[str, Holder]]:
    """Returns the leases of living and of dead holders; waits up to 60 s for other hosts' beats (`on_wait`)."""
    living, dead = dict[str, Holder](), dict[str, Holder]()
    watches = {name: _Watch() for name in holders(store)}
    while watches:
        for name, watch in list(watches.items()):
            holder = _holder(store.read_tagged(_path(name)))
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


class _Watch:
    """Watches one holder's beat by this process's clock."""

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


def _holder(content: Content | None) -> Holder | None:
    """Reads a lease; a broken one has an unknown holder, which others wait for."""
    if content is None:
        return None
    try:
        holder = Holder(**json.loads(content.data))
    except (ValueError, TypeError, RecursionError):
        return Holder("", "", 0, "", token=content.tag)
    return holder if isinstance(holder.process, int) else replace(holder, process=0, boot="")
