"""The interface of a store: named objects in a folder or below a bucket's prefix, and compare-and-swap.

An output is a store, and so is every folder in it (`at`): a version's, or the workspace through which a build's driver
and workers exchange files. Names are relative to the store, with slashes.

`write_if` replaces an object only if its tag is unchanged since it was read. `LATEST`, leases and all else that builds
share change this way.
"""

import importlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, Protocol, Self

from recordmill.pipeline.dataset.paths import HISTORY_FILE as HISTORY_FILE
from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.safe_text import cut, redacted

CLAIM_FILE = ".upload"  # names the uploader in the folder of an unfinished version
OTHER_CONTENT = (
    "another process wrote {} with other content: user functions may depend on more than their rows, or another build "
    "left it; run the same command again"
)
MOST_SHARED = 256 << 20  # 256 MiB: of `LATEST`, a lease, the history, or 3,000,000 forgotten keys


class OutputError(UserError):
    """The output cannot be reached, read or written."""


class UnsettledOutputError(OutputError):
    """Another process changed the output: the same command may succeed."""

    exit_code = ExitCode.TRY_AGAIN


class TooLargeError(Exception):
    """An object has more bytes than may be read."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")
        self.size = size


class Conflict(Exception):  # noqa: N818 - not an error: the caller reads and decides again
    """Another process was first: the object changed since it was read, or the folder already exists."""


def check_shared(size: int, most: int, path: object) -> None:
    """Checks an object's size before reading it. Raises: OutputError: more than `most` bytes."""
    if size > most:
        raise OutputError(f"{path} has {size:,} bytes, more than {most:,}: restore it from a copy")


@dataclass(frozen=True)
class Content:
    """An object's bytes, and their tag."""

    data: bytes
    tag: str


@dataclass(frozen=True)
class Copied:
    """The outcome of `Store.copy`: the copied bytes, 0 for a link; and the disk's refusal of a link."""

    bytes: int
    refusal: str = ""


class Store(Protocol):
    """A folder, or a prefix of a bucket; thread-safe. Jobs pickle it, and workers make their own clients.

    A failing method raises OutputError, but a folder's `open`, `create` and `write` raise OSError. The last two do not
    recreate the folder after a later attempt renamed it (`pipeline.build.attempt.attempts`).
    """

    url: str  # the absolute path of the folder, or the URL, without a final slash
    pause: ClassVar[float]
    """The least seconds between two polls of other processes' files, and between two writes for them."""
    links: ClassVar[bool]  # True if hard links let each version's folder hold all its files

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.url == getattr(other, "url", None)

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def location(self) -> Location:
        """The store for readers (`pipeline.dataset.manifest`)."""

    def at(self, prefix: str) -> Self:
        """Returns an inner folder as a store."""

    def read(self, name: str) -> bytes | None:
        """Reads an object; None if it is missing."""

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Reads objects in order, from a bucket in parallel; None for a missing one."""
        return ((name, self.read(name)) for name in names)

    def read_tagged(self, name: str, most: int = MOST_SHARED) -> Content | None:
        """Reads an object and its tag; None if it is missing. Raises: OutputError: more than `most` bytes."""

    def open(self, name: str) -> BinaryIO:
        """Opens an object for reading in any order. Raises: FileNotFoundError."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Opens a stream for a new object, shown at the end; keeps an equal one. Raises: UnsettledOutputError."""

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Writes or replaces an object atomically. Without `durable` a power failure may lose it."""

    def copy(self, name: str, into: "Store", target: str, size: int | None = None) -> Copied:
        """Copies an object to a folder of its disk or bucket, by a link if possible. Raises: DatasetError, OSError."""

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Writes an object if its tag is still `tag`, None if it is missing; returns its new tag.

        A changed object with the same bytes may count as written, because libraries retry requests after lost answers:
        two processes write different bytes unless they mean the same. Raises: Conflict: it changed. OutputError.
        """

    def check_conditions(self) -> None:
        """Checks once per process that `write_if` and `delete` honour tags. Raises: OutputError: they do not."""
        return

    def exists(self, name: str) -> bool:
        """Whether the object exists; folders do not count."""

    def children(self, folder: str) -> list[str]:
        """Lists the sorted names of a folder's objects and folders; `""` is the store itself."""

    def names(self, folder: str = "") -> list[str]:
        """Lists every finished object below a folder, by name in the store."""
        return list(self.sizes(folder))

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Returns the bytes of every finished object below a folder, by name in the store."""

    def stamps(self, folder: str) -> Mapping[str, Hashable]:
        """Returns for every object below a folder, by name in the store, a value that changes with its content."""

    def identity(self, name: str) -> tuple[Hashable, int]:
        """Returns an identifier of an object's bytes, and their number of names (more than one only on a disk)."""
        return name, 1

    def delete(self, name: str, tag: str | None = None) -> None:
        """Deletes an object if it exists and still has the tag, if given."""

    def locked(self) -> AbstractContextManager[None]:
        """Excludes other writers if the store has locks, as no bucket has; otherwise callers rely on tags."""
        return nullcontext()

    def claim(self, folder: str, claim: bytes) -> None:
        """Takes an empty folder of a bucket; does nothing on a disk. Raises: Conflict: it is claimed, or not empty."""
        return

    def newest(self, folder: str) -> datetime | None:
        """Returns the time of the newest object below an unfinished folder; None if folders appear atomically."""
        return None

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """Brings a folder's files to the store's disks, invisible; `claim` names the uploader. Raises: Conflict."""

    def reveal(self, assembled: str, folder: str, name: str, data: bytes, tag: str | None = None) -> str:
        """Shows a staged folder by its last file, or replaces that of `tag`; returns the tag. Raises: Conflict."""

    def hide(self, folder: str, name: str, tag: str) -> None:
        """Reverts `reveal`."""

    def remove(self, folder: str, first: str) -> None:
        """Removes a folder, starting with the file that shows it: nobody sees a part of it."""

    def remove_all(self, folder: str, but: Collection[str] = ()) -> None:
        """Deletes every object below a folder, except those named in `but`."""

    def strays(self, *, remove: bool) -> dict[str, int]:
        """Lists, and removes on request, remains of killed writers: their bytes by name."""
        return {}


@contextmanager
def refusals(url: str, action: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turns a store library's errors, except for `but`, into one line. Raises: OutputError."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (Conflict, UserError, *but)):
            raise
        lines = str(error).strip().splitlines()
        reason = cut(redacted(lines[0], url), 200) if lines else type(error).__name__
        advice = "check the address, the credentials and the network"
        raise OutputError(f"{url} cannot be {action} ({reason}): {advice}") from error


def load(module: str, url: str, extra: str) -> Any:
    """Loads a store's library. Raises: OutputError: it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OutputError(f"{url} needs an extra ({error}): pip install 'recordmill[{extra}]'") from None
