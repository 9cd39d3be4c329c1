"""An object store in the memory of this process, at `memory://bucket`; it fails as a test asks."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from recordmill.pipeline.versions.stores import open_store
from recordmill.pipeline.versions.stores.base import MOST_SHARED, Content
from recordmill.pipeline.versions.stores.bucket import BucketStore, Listed
from recordmill.pipeline.versions.stores.parts import Part


class Answer(Exception):
    """An error of a store's library, with the status of the store's answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Memory:
    """The objects by their URLs, the bytes of each range that was asked for, and what goes wrong."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fetched: list[int] = []
        self.failures: list[Exception] = []  # of the next ranges, the last first
        self.refusals: dict[str, Exception] = {}  # of all ranges, or of all lists
        self.lie: Callable[[str, Part], Part] = lambda _, part: part


class MemoryStore(BucketStore):
    """A folder of a bucket that `memory_store` yields."""

    scheme = "memory"
    _tag = "e_tag"
    memory: ClassVar[Memory]

    def _obstore(self) -> Any:
        raise ImportError

    def _url(self, key: str) -> str:
        return f"memory://{self._bucket_name}/{key}"

    def _range(self, key: str, start: int, end: int | None, most: int | None) -> Part:
        if "range" in self.memory.refusals:
            raise self.memory.refusals["range"]
        if self.memory.failures:
            raise self.memory.failures.pop()
        url = self._url(key)
        if url not in self.memory.objects:
            raise self._absent(key)
        data = self.memory.objects[url]
        part = self.memory.lie(url, Part(data[start:end], len(data), hashlib.md5(data).hexdigest()))
        self.memory.fetched.append(len(part.data))
        return part

    def read_tagged(self, name: str, most: int = MOST_SHARED) -> Content | None:
        data = self.memory.objects.get(self._url(self._key(name)))
        return None if data is None else Content(data, str(hash(data)))

    def _list(self, prefix: str, delimiter: str = "") -> Iterator[dict[str, Listed]]:
        if "list" in self.memory.refusals:
            raise self.memory.refusals["list"]
        found, bucket = {}, self._url("")
        for url, data in self.memory.objects.items():
            key = url.removeprefix(bucket)
            if url.startswith(bucket) and key.startswith(prefix):
                inner, mark, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                found[f"{prefix}{inner}{mark}" if delimiter else key] = Listed(0 if mark else len(data), "t")
        yield found


@contextmanager
def memory_store() -> Iterator[Memory]:
    """Yields an empty store, which `open_store` knows meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(open_store._STORES, "memory", MemoryStore)
        MemoryStore.memory = Memory()
        yield MemoryStore.memory
