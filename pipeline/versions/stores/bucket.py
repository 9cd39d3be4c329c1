"""The common part of the object stores: keys below a prefix, many uploads at once, the manifest last."""

import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset.safe_paths import Location
from recordmill.pipeline.versions.stores.base import CLAIM_FILE, Conflict, OutputError, Store, Stored, refusals

UPLOADS = 8
"""Files uploaded, or objects deleted, at a time."""


class BucketStore(Store):
    """A prefix of a bucket; a subclass for each store calls its library."""

    scheme: str

    def __init__(self, bucket: str, folder: str) -> None:
        self.url = f"{self.scheme}://{bucket}/{folder}".rstrip("/")
        self._bucket_name = bucket
        self._prefix = f"{folder}/" if folder else ""

    @property
    def location(self) -> Location:
        return Stored(self)

    def _upload(self, path: str, key: str) -> None:
        raise NotImplementedError

    def _write(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    def _list(self, prefix: str, delimiter: str = "") -> dict[str, int]:
        """Gives the bytes of all objects by key; up to a delimiter, also the folders, with a slash at the end and 0."""
        raise NotImplementedError

    def exists(self, name: str) -> bool:
        return self._prefix + name in self._listed(self._prefix + name)

    def children(self, folder: str) -> list[str]:
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        return sorted({key[len(prefix) :].rstrip("/") for key in self._listed(prefix, "/")} - {""})

    def sizes(self, folder: str) -> dict[str, int]:
        objects = self._listed(f"{self._prefix}{folder}/")
        return {key[len(self._prefix) :]: size for key, size in objects.items()}

    def _listed(self, *arguments: str) -> dict[str, int]:
        with refusals(self.url, "read"):
            return self._list(*arguments)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Object stores have no locks."""
        yield

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """Writes a claim, which must not be there yet, then uploads every file."""
        mine = self.write_if(f"{folder}/{CLAIM_FILE}", claim, None)
        if self.children(folder) != [CLAIM_FILE]:  # published, with its own claim removed
            self.delete(f"{folder}/{CLAIM_FILE}", mine)
            raise Conflict(folder)
        files = sorted(path for path in Path(assembled).rglob("*") if path.is_file())
        keys = [f"{self._prefix}{folder}/{path.relative_to(assembled).as_posix()}" for path in files]
        with refusals(self.url, "written"), ThreadPoolExecutor(UPLOADS) as threads:
            list(threads.map(self._upload, map(str, files), keys))

    def reveal(self, assembled: str, folder: str, name: str, data: bytes) -> None:
        """Writes the one object that makes it a version."""
        with refusals(self.url, "written"):
            self._write(f"{self._prefix}{folder}/{name}", data)

    def remove(self, folder: str, first: str) -> None:
        """Removes the claim last, so that a removal that was cut off is found again."""
        self.delete(f"{folder}/{first}")
        claim = f"{folder}/{CLAIM_FILE}"
        with ThreadPoolExecutor(UPLOADS) as threads:
            list(threads.map(self.delete, sorted(self.sizes(folder).keys() - {claim})))
        self.delete(claim)

    def strays(self, *, remove: bool) -> dict[str, int]:
        """Finds nothing: a write that is cut off leaves nothing."""
        return {}

    def _settle(self, name: str, data: bytes) -> str:
        """Decides after a refused write, which the library may have repeated because the first answer was lost."""
        content = self.read(name)
        if content is None or content.data != data:
            raise Conflict(name)
        return content.tag


def load(module: str, url: str, extra: str) -> Any:
    """Loads a store's library.

    Raises:
        OutputError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OutputError(f"the output {url} needs more ({error}): pip install 'recordmill[{extra}]'") from None
