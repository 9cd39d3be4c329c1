"""The interface of a store: named objects in a folder or below a prefix of a bucket, and compare-and-swap.

An output is a store, and so is every folder in it (`at`): a version's, or the workspace where a build's driver and
workers leave files for each other. Names are relative to the store, with slashes.

`write_if` replaces an object only if it still has the tag that was read with it. Everything that builds share, `LATEST`
and leases, changes in this way.

>>> store.at("versions/20261120T120000Z-4f1c9a2e").read("dataset.json")    # doctest: +SKIP
>>> with store.create("d-train.tfrecord-00000-of-00001") as file:          # doctest: +SKIP
...     file.write(data)                    # appears when the block ends, and not after an error
>>> store.write_if("LATEST", b"{}", tag=None)    # doctest: +SKIP
'"99914b932bd37a50b983c5e7c90ae93b"'
>>> store.write_if("LATEST", b"{…}", tag=None)   # doctest: +SKIP
Traceback (most recent call last):
pipeline.versions.stores.base.Conflict: LATEST
"""

import importlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, Protocol, Self

from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.safe_text import cut, redacted

CLAIM_FILE = ".upload"  # names the uploader in the folder of a version that is still being uploaded
HISTORY_FILE = "history.jsonl"  # one line a build or another act, whatever its end (`pipeline.versions.history`)


OTHER_CONTENT = (
    "{} was written meanwhile with other content: a build whose functions depend on more than their rows, or another "
    "build's remains; run the same command again"
)
MOST_SHARED = 256 << 20  # 256 MiB: of `LATEST`, a lease, the history, or 3,000,000 forgotten keys


class OutputError(UserError):
    """The output cannot be reached, read or written."""


class UnsettledOutputError(OutputError):
    """Others changed the output meanwhile: the same command may succeed."""

    exit_code = ExitCode.TRY_AGAIN


class TooLargeError(Exception):
    """An object has more bytes than may be read."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")
        self.size = size


class Conflict(Exception):  # noqa: N818 - not an error: the caller reads again and decides anew
    """Another process was first: the object is not the one that was read, or the folder exists already."""


def check_shared(size: int, most: int, path: object) -> None:
    """Checks the bytes of an object before it is read. Raises: OutputError: they are more than `most`."""
    if size > most:
        raise OutputError(f"{path} has {size:,} bytes, and at most {most:,} are read: restore it from a copy")


@dataclass(frozen=True)
class Content:
    """An object's bytes, and the tag of this very content."""

    data: bytes
    tag: str


@dataclass(frozen=True)
class Copied:
    """The outcome of `Store.copy`."""

    bytes: int
    """The bytes that were copied; 0 where the file was linked."""
    refusal: str = ""
    """A disk's reason why the file was copied."""


class Store(Protocol):
    """A folder, or a prefix of a bucket. Threads may share it. It is pickled with a job; workers make a client anew.

    Every method raises OutputError where the store refuses, but a folder's `open`, `create` and `write` raise OSError.
    These two do not make the folder again after a later attempt renamed it (`pipeline.build.attempt.places`).
    """

    url: str
    """The absolute path of the folder, or the URL; no slash at its end."""
    pause: ClassVar[float]
    """The least seconds between two looks at what others write here, and between two writes for their eyes."""
    links: ClassVar[bool]
    """True where a file may have several names, so that each version's folder holds all its files."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.url == getattr(other, "url", None)

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def location(self) -> Location:
        """The output as `pipeline.dataset.manifest` reads it."""

    def at(self, prefix: str) -> Self:
        """Returns a folder in it as a store."""

    def read(self, name: str) -> bytes | None:
        """Reads an object; None if it does not exist."""

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Reads objects in their order, from a bucket many at a time; None for one that does not exist."""
        return ((name, self.read(name)) for name in names)

    def read_tagged(self, name: str, most: int = MOST_SHARED) -> Content | None:
        """Reads an object and its tag; None if it does not exist.

        Raises:
            OutputError: it has more than `most` bytes.
        """

    def open(self, name: str) -> BinaryIO:
        """Opens an object for reading in any order. Raises: FileNotFoundError."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Opens a stream for an object that appears when the block ends; after an error nothing is left.

        An object of this name stays; equal content counts as written.

        Raises:
            UnsettledOutputError: it has other content.
        """

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Writes an object, whole or not at all; replaces one of this name.

        Without `durable` it may be lost with the machine's power.
        """

    def copy(self, name: str, into: "Store", target: str, size: int | None = None) -> Copied:
        """Copies an object into another folder of its disk or bucket, on a disk by a link where it can.

        It replaces an object of this name there. `size` are the bytes that it must have on a disk.

        Raises:
            DatasetError: on a disk, it is missing, or not of this size.
            OSError: a disk can neither link nor copy it.
        """

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Writes an object if its tag is still `tag`, or for None, if it does not exist; returns its new tag.

        If the object is not as expected but holds these very bytes, it may count as written: a library repeats a
        request whose answer was lost. So two processes must write different bytes unless they mean the same by them.

        Raises:
            Conflict: it was changed, made or deleted since.
            OutputError: as `check_conditions`, too.
        """

    def check_conditions(self) -> None:
        """Checks, once a process, that `write_if` and `delete` honour tags. Raises: OutputError: a store does not."""
        return

    def exists(self, name: str) -> bool:
        """Whether there is such an object; folders do not count."""

    def children(self, folder: str) -> list[str]:
        """The sorted names of the objects and folders directly in a folder; `""` is the output itself."""

    def names(self, folder: str = "") -> list[str]:
        """Lists every finished object below a folder, by its name in the store."""
        return list(self.sizes(folder))

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Returns the bytes of every finished object below a folder, by its name in the store."""

    def stamps(self, folder: str) -> Mapping[str, Hashable]:
        """Returns for every object below a folder, by its name in the store, a value that changes with the content."""

    def identity(self, name: str) -> tuple[Hashable, int]:
        """Returns what names the bytes of an object, and how many names they have: several on a disk alone."""
        return name, 1

    def delete(self, name: str, tag: str | None = None) -> None:
        """Deletes an object if it is there and, where a tag is given, still the one that was read."""

    def locked(self) -> AbstractContextManager[None]:
        """Keeps others from writing meanwhile, if the store has locks; otherwise tags alone must do."""

    def claim(self, folder: str, claim: bytes) -> None:
        """Takes an empty folder of a bucket; on a disk the rename that shows a folder decides.

        Raises:
            Conflict: it is claimed, or not empty.
        """

    def newest(self, folder: str) -> datetime | None:
        """Returns when the last object below an unfinished folder was written; None where folders appear whole."""
        return None

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """Brings the content of a local folder to its destination on the store's disks, still invisible.

        The claim are bytes that name the uploader, and that nobody else writes.

        Raises:
            Conflict: there is such a folder.
        """

    def reveal(self, assembled: str, folder: str, name: str, data: bytes, tag: str | None = None) -> str:
        """Adds one last file to what was staged and so shows the folder; returns the file's tag.

        Called again with that tag, it replaces the file.

        Raises:
            Conflict: another process made such a folder, or replaced the file.
        """

    def hide(self, folder: str, name: str, tag: str) -> None:
        """Takes back what `reveal` showed."""

    def remove(self, folder: str, first: str) -> None:
        """Removes a folder, beginning with the file that makes it one, so that nobody sees a part of it."""

    def remove_all(self, folder: str, but: Collection[str] = ()) -> None:
        """Deletes every object below a folder, except for those of some names."""

    def strays(self, *, remove: bool) -> dict[str, int]:
        """Lists what killed writers left beside the objects, by name, with the bytes; removes it if asked to."""


@contextmanager
def refusals(url: str, action: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turns whatever a store's library raises, each with errors of its own, into one clear line; `but` some pass.

    Raises:
        OutputError: instead of any other error.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (Conflict, UserError, *but)):
            raise
        lines = str(error).strip().splitlines()
        reason = cut(redacted(lines[0], url), 200) if lines else type(error).__name__
        raise OutputError(
            f"{url} cannot be {action} ({reason}): check the address, the credentials and the network"
        ) from error


def load(module: str, url: str, extra: str) -> Any:
    """Loads a store's library. Raises: OutputError: it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OutputError(f"{url} needs more ({error}): pip install 'recordmill[{extra}]'") from None
