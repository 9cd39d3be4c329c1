"""What the object stores have in common: keys below a prefix, many uploads at once, the manifest last."""

import importlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from recordmill.pipeline.versions.stores.base import CLAIM_FILE, Conflict, Content, OutputError

UPLOADS = 8
"""Files that are uploaded, or objects that are deleted, at a time."""


class BucketStore:
    """A prefix of a bucket; a class for each store says how its library does the rest."""

    scheme: str

    def __init__(self, bucket: str, folder: str) -> None:
        self.url = f"{self.scheme}://{bucket}/{folder}".rstrip("/")
        self._prefix = f"{folder}/" if folder else ""

    def read(self, name: str) -> Content | None:
        """As `Store.read`."""
        raise NotImplementedError

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """As `Store.write_if`."""
        raise NotImplementedError

    def exists(self, name: str) -> bool:
        """As `Store.exists`."""
        raise NotImplementedError

    def children(self, folder: str) -> list[str]:
        """As `Store.children`."""
        raise NotImplementedError

    def sizes(self, folder: str) -> dict[str, int]:
        """As `Store.sizes`."""
        raise NotImplementedError

    def delete(self, name: str, tag: str | None = None) -> None:
        """As `Store.delete`."""
        raise NotImplementedError

    def _upload(self, path: str, name: str) -> None:
        raise NotImplementedError

    def _write(self, name: str, data: bytes) -> None:
        raise NotImplementedError

    @contextmanager
    def locked(self) -> Iterator[None]:
        """As `Store.locked`: there are no locks."""
        yield

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """As `Store.stage`: a claim is written first, which must not be there yet, then every file is uploaded."""
        mine = self.write_if(f"{folder}/{CLAIM_FILE}", claim, None)
        if self.children(folder) != [CLAIM_FILE]:  # published, so that its own claim is gone
            self.delete(f"{folder}/{CLAIM_FILE}", mine)
            raise Conflict(folder)
        files = [os.path.join(place, name) for place, _, names in os.walk(assembled) for name in names]
        with ThreadPoolExecutor(UPLOADS) as threads:
            for _ in threads.map(lambda path: self._upload(path, _inside(folder, assembled, path)), sorted(files)):
                pass

    def reveal(self, assembled: str, folder: str, name: str, data: bytes) -> None:
        """As `Store.reveal`: by the one object that makes it a version."""
        self._write(f"{folder}/{name}", data)

    def remove(self, folder: str, first: str) -> None:
        """As `Store.remove`; a claim goes last, so that a removal that was cut off can be told."""
        self.delete(f"{folder}/{first}")
        claim = f"{folder}/{CLAIM_FILE}"
        with ThreadPoolExecutor(UPLOADS) as threads:
            list(threads.map(self.delete, sorted(self.sizes(folder).keys() - {claim})))
        self.delete(claim)

    def strays(self, *, remove: bool) -> dict[str, int]:
        """As `Store.strays`: an upload that is cut off leaves nothing."""
        return {}

    def _settle(self, name: str, data: bytes) -> str:
        """After a refused write: it may have been our own, repeated by the library when its answer was lost."""
        found = self.read(name)
        if found is None or found.data != data:
            raise Conflict(name)
        return found.tag


def _inside(folder: str, assembled: str, path: str) -> str:
    return f"{folder}/{os.path.relpath(path, assembled).replace(os.sep, '/')}"


def load(module: str, url: str, extra: str) -> Any:
    """Loads a store's library.

    Raises:
        OutputError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OutputError(f"the output {url} needs more ({error}): pip install 'recordmill[{extra}]'") from None
