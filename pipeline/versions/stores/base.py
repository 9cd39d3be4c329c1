"""The interface of a store that holds an output: named objects, and one atomic step, compare-and-swap.

`write_if` replaces an object only if it still has the tag that was read with it. Everything that builds share, `LATEST`
and leases, changes in this way. Names are relative to the output, with slashes.

>>> store.write_if("LATEST", b"{}", tag=None)    # doctest: +SKIP
'"99914b932bd37a50b983c5e7c90ae93b"'
>>> store.write_if("LATEST", b"{…}", tag=None)   # doctest: +SKIP
Traceback (most recent call last):
pipeline.versions.stores.base.Conflict: LATEST
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode
from recordmill.pipeline.safe_text import cut

CLAIM_FILE = ".upload"
"""Names the uploader in the folder of a version that is still being uploaded."""
HISTORY_FILE = "history.jsonl"
"""One line a build, whatever its end (`pipeline.versions.history`)."""


class OutputError(UserError):
    """The output cannot be reached, read or written."""


class UnsettledOutputError(OutputError):
    """Others changed the output meanwhile: the same command may succeed."""

    exit_code = ExitCode.TRY_AGAIN


class Conflict(Exception):  # noqa: N818 - not an error: the caller reads again and decides anew
    """Another process was first: the object is not the one that was read, or the folder exists already."""


@dataclass(frozen=True)
class Content:
    """An object's bytes, and the tag of this very content."""

    data: bytes
    tag: str


class Store(Protocol):
    """An output: a folder, or a prefix of a bucket. Every method raises OutputError where the store refuses."""

    url: str
    """The absolute path of the folder, or the URL; no slash at its end."""

    @property
    def location(self) -> Location:
        """The output as `pipeline.dataset.manifest` reads it."""

    def read(self, name: str) -> Content | None:
        """Reads an object and its tag; None if it does not exist."""

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Writes an object if its tag is still `tag`, or for None, if it does not exist; returns its new tag.

        If the object is not as expected but holds these very bytes, it may count as written: a library repeats a
        request whose answer was lost. So two processes must write different bytes unless they mean the same by them.

        Raises:
            Conflict: it was changed, made or deleted since.
        """

    def exists(self, name: str) -> bool:
        """Whether there is such an object; folders do not count."""

    def children(self, folder: str) -> list[str]:
        """The sorted names of the objects and folders directly in a folder; `""` is the output itself."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of every object below a folder, by its name in the output."""

    def delete(self, name: str, tag: str | None = None) -> None:
        """Deletes an object if it is there and, where a tag is given, still the one that was read."""

    def locked(self) -> AbstractContextManager[None]:
        """Keeps others from writing meanwhile, if the store has locks; otherwise tags alone must do."""

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """Brings the content of a local folder to the store's disks, still invisible.

        Args:
            assembled: the local folder.
            folder: its destination.
            claim: bytes that name the uploader, and that nobody else writes.

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

    def strays(self, *, remove: bool) -> dict[str, int]:
        """Lists what killed writers left beside the objects, by name, with the bytes; removes it if asked to."""


@dataclass(frozen=True)
class Stored:
    """A file or a folder of an object store, as a `safe_paths.Remote`."""

    store: Store
    name: str = ""

    def __str__(self) -> str:
        return f"{self.store.url}/{self.name}".rstrip("/")

    def __truediv__(self, inner: str) -> "Stored":
        """A file or a folder in this one."""
        return Stored(self.store, f"{self.name}/{inner}".lstrip("/"))

    def is_file(self) -> bool:
        """Whether there is such an object."""
        return self.store.exists(self.name)

    def is_dir(self) -> bool:
        """Whether there is anything below."""
        return bool(self.store.children(self.name))

    def read_bytes(self, most: int | None = None) -> bytes:
        """Reads at most `most` bytes. Raises: FileNotFoundError, OutputError."""
        content = self.store.read(self.name)
        if content is None:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return content.data[:most]


@contextmanager
def refusals(url: str, action: str) -> Iterator[None]:
    """Turns whatever a store's library raises, each with errors of its own, into one clear line.

    Raises:
        OutputError: instead of any other error.
    """
    try:
        yield
    except (Conflict, UserError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = cut(lines[0], 200) if lines else type(error).__name__
        raise OutputError(
            f"the output {url} cannot be {action} ({reason}): check the address, the credentials and the network"
        ) from error
