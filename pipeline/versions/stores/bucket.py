"""The common part of object stores: keys below a prefix, parallel uploads, the manifest last.

`create` streams a new object, which appears whole at the end of the block or not at all. The stores refuse to replace
it: a late writer cannot change another process's object.
"""

import errno
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self, cast

from recordmill.pipeline.dataset.paths import Location, attempt_name
from recordmill.pipeline.errors import DatasetError, listed
from recordmill.pipeline.parallel import Item, free_bytes
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.versions.stores import base
from recordmill.pipeline.versions.stores.parts import PART_BYTES, DirectReads, Part, Stream, Upload, is_plain

UPLOADS = 8  # files uploaded, or objects deleted, at a time
CONNECTIONS = 32  # requests of one client at a time
WAITS = (1.0, 4.0, 10.0)  # seconds before each further check for another process's object
MOST_LISTED = 16 << 30  # 16 GiB: of memory for a listing, about 30 million objects
PAGE_BYTES = 512 << 10  # 512 KiB: of memory for a full page; an emptier one counts as much
_HONEST = set[str]()  # URLs of stores found to honour conditions


class Listed(NamedTuple):
    """An object in a listing: its bytes, a tag of its content, and its time by the store's clock (None: a folder)."""

    bytes: int
    tag: str
    written: datetime | None = None


class BucketStore(base.Store):
    """A prefix of a bucket; each store's subclass calls its library."""

    scheme: str
    _tag: str  # the field of obstore's answers with the same tag as `_range`
    pause = 10.0
    links = False

    def __init__(self, bucket: str, folder: str) -> None:
        self.url = f"{self.scheme}://{bucket}/{folder}".rstrip("/")
        self._bucket_name = bucket
        self._prefix = f"{folder}/" if folder else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, (type(self), self._bucket_name, self._prefix.rstrip("/"))

    @property
    def location(self) -> Location:
        return StoredPath(self)

    def at(self, prefix: str) -> Self:
        inner = type(self)(self._bucket_name, f"{self._prefix}{prefix}")
        inner.__dict__ = {**self.__dict__, **inner.__dict__}  # keeps an existing client
        return inner

    def _key(self, name: str) -> str:
        """Returns an object's key; a console's folder ends with a slash. Raises: DatasetError: it is not plain."""
        if not is_plain(name.removesuffix("/")):
            raise DatasetError(f"the path {cut(repr(name))} leaves {self.url}")
        return self._prefix + name

    def _absent(self, key: str) -> FileNotFoundError:
        url = f"{self.scheme}://{self._bucket_name}/{key}"
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)

    @cached_property
    def _direct(self) -> DirectReads | None:
        """Reads of this bucket by obstore; None without obstore or credentials."""
        with suppress(ImportError, ValueError):
            return DirectReads(self._obstore(), self._tag)
        return None

    def _obstore(self) -> Any:
        """Opens obstore's store of this bucket. Raises: ImportError; ValueError: without credentials."""
        raise NotImplementedError

    def _begin(self, key: str) -> Upload:
        raise NotImplementedError

    def _range(self, key: str, start: int, end: int | None, most: int | None) -> Part:
        """Reads like `range`, by the store's client. Raises: as `range`, or the library's errors."""
        raise NotImplementedError

    def _copy(self, key: str, target: str) -> None:
        raise NotImplementedError

    def _write(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    def _write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Writes like `write_if`, without its check of the store."""
        raise NotImplementedError

    def _list(self, prefix: str, delimiter: str = "") -> Iterator[dict[str, Listed]]:
        """Yields pages of objects by key; with a delimiter, also folders, as keys with a final slash and 0 bytes."""
        raise NotImplementedError

    def read(self, name: str) -> bytes | None:
        content = self.read_tagged(name, sys.maxsize)
        return None if content is None else content.data

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        names = list(names)
        with ThreadPoolExecutor(max(1, min(CONNECTIONS, len(names)))) as pool:
            yield from zip(names, pool.map(self.read, names), strict=True)

    def range(self, name: str, start: int = 0, end: int | None = None, most: int | None = None) -> Part:
        """Reads an object's bytes from `start` to `end` by one request; none of more than `most`.

        Raises: FileNotFoundError: missing. TooLargeError. OutputError: the store refuses, or does not answer.
        """
        with base.refusals(f"{self.url}/{name}", "read", but=(FileNotFoundError, base.TooLargeError)):
            arguments = self._prefix + name, start, end, most
            return (self._direct and self._direct.range(*arguments)) or self._range(*arguments)

    def size(self, name: str) -> int:
        """Returns an object's bytes, by one request. Raises: FileNotFoundError, OutputError."""
        return self.range(name, 0, 1).size

    def open(self, name: str) -> BinaryIO:
        """Reads the whole object."""
        data = self.read(name)
        if data is None:
            raise self._absent(self._key(name))
        return BytesIO(data)

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        with base.refusals(self.url, "written"):
            self._write(self._key(name), bytes(data))  # clients may not accept Arrow's buffers

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        self.check_conditions()
        return self._write_if(name, data, tag)

    def check_conditions(self) -> None:
        """Tests conditional writes and deletions with a small object."""
        if self.url in _HONEST:
            return
        name = attempt_name(".leases/probe")
        first = self._write_if(name, b"1", None)
        try:
            honours = {"If-Match": self._writes(name, b"2", first) and not self._writes(name, b"3", first)}
            honours["If-None-Match"] = not self._writes(name, b"4", None)
            self.delete(name, first)
            honours["the condition of a deletion"] = self.exists(name)
        finally:
            self.delete(name)
        if ignored := [condition for condition, is_honoured in honours.items() if not is_honoured]:
            overwrite = f"{self.url} ignores {listed(ignored)}, so writers would overwrite each other"
            raise base.OutputError(f"{overwrite}: use a store that supports conditions, or a folder")
        _HONEST.add(self.url)

    def _writes(self, name: str, data: bytes, tag: str | None) -> bool:
        with suppress(base.Conflict):
            self._write_if(name, data, tag)
            return True
        return False

    def copy(self, name: str, into: base.Store, target: str, size: int | None = None) -> base.Copied:
        with base.refusals(self.url, "written"):
            self._copy(self._key(name), cast(BucketStore, into)._key(target))
        return base.Copied(size or 0)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Also raises OutputError if another process's upload of the object did not finish."""
        with base.refusals(self.url, "written"):
            upload = self._begin(self._key(name))
        stream = Stream(upload, self.url)
        try:
            yield cast(BinaryIO, stream)
            stream.complete()
            if stream.is_late:
                self._check_equal(name, stream.sha256.digest())
        except BaseException:
            with suppress(Exception):  # the first error counts; remains are invisible
                upload.abort()
            raise

    def _check_equal(self, name: str, digest: bytes) -> None:
        """Compares another process's object with this one's digest; waits for the end of its upload."""
        found = self._digest(name)
        for seconds in WAITS:
            if found is None:
                time.sleep(seconds)
                found = self._digest(name)
        if found is None:
            writing = f"another process did not finish writing {self.url}/{name}"
            raise base.UnsettledOutputError(f"{writing}: run the same command again")
        if found != digest:
            raise base.UnsettledOutputError(base.OTHER_CONTENT.format(f"{self.url}/{name}"))

    def _digest(self, name: str) -> bytes | None:
        """Returns an object's SHA-256; None if it is missing."""
        sha256, start, size = hashlib.sha256(), 0, 1
        with suppress(FileNotFoundError):
            while start < size:
                data, size, _ = self.range(name, start, start + PART_BYTES)
                sha256.update(data)
                start += PART_BYTES
            return sha256.digest()
        return None

    def stamps(self, folder: str) -> Mapping[str, Hashable]:
        return {key[len(self._prefix) :]: entry.tag for key, entry in self._listed(self._below(folder)).items()}

    def newest(self, folder: str) -> datetime | None:
        """Also returns None for an empty folder."""
        times = [entry.written for entry in self._listed(self._below(folder)).values() if entry.written is not None]
        return max(times, default=None)

    def exists(self, name: str) -> bool:
        return self._prefix + name in self._listed(self._prefix + name)

    def children(self, folder: str) -> list[str]:
        prefix = self._below(folder)
        return sorted({key[len(prefix) :].rstrip("/") for key in self._listed(prefix, "/")} - {""})

    def sizes(self, folder: str = "") -> dict[str, int]:
        return {key[len(self._prefix) :]: entry.bytes for key, entry in self._listed(self._below(folder)).items()}

    def _below(self, folder: str) -> str:
        return f"{self._prefix}{folder}/" if folder else self._prefix

    def listed(self, prefix: str) -> dict[str, Listed]:
        """Lists all objects by name with this prefix of the name. Raises: OutputError."""
        return {key[len(self._prefix) :]: entry for key, entry in self._listed(self._prefix + prefix).items()}

    def _listed(self, prefix: str, delimiter: str = "") -> dict[str, Listed]:
        with base.refusals(f"{self.scheme}://{self._bucket_name}/{prefix}".rstrip("/"), "read"):
            return gathered(self._list(prefix, delimiter))

    def stage(self, assembled: str, folder: str, claim: bytes) -> None:
        """Writes a claim, unless this build already did, then uploads every file."""
        before = self.read(f"{folder}/{base.CLAIM_FILE}")
        if before is None or claimant(before) != claimant(claim):
            self.claim(folder, claim)
        files = sorted(path for path in Path(assembled).rglob("*") if path.is_file())
        names = [f"{folder}/{path.relative_to(assembled).as_posix()}" for path in files]
        with ThreadPoolExecutor(UPLOADS) as threads:
            list(threads.map(self._upload, files, names))

    def claim(self, folder: str, claim: bytes) -> None:
        mine = self.write_if(f"{folder}/{base.CLAIM_FILE}", claim, None)
        if self.children(folder) != [base.CLAIM_FILE]:  # published, with its own claim removed
            self.delete(f"{folder}/{base.CLAIM_FILE}", mine)
            raise base.Conflict(folder)

    def _upload(self, path: Path, name: str) -> None:
        with open(path, "rb") as source, self.create(name) as target:
            shutil.copyfileobj(source, target, PART_BYTES)

    def reveal(self, assembled: str, folder: str, name: str, data: bytes, tag: str | None = None) -> str:
        return self.write_if(f"{folder}/{name}", data, tag)

    def hide(self, folder: str, name: str, tag: str) -> None:
        """Deletes the last file; the others stay for the next attempt at the build."""
        self.delete(f"{folder}/{name}", tag)

    def remove(self, folder: str, first: str) -> None:
        """Removes the claim last: it leads to the remains of an interrupted removal."""
        self.delete(f"{folder}/{first}")
        claim = f"{folder}/{base.CLAIM_FILE}"
        self.abort_uploads(folder)
        self.remove_all(folder, but={claim})
        self.delete(claim)

    def remove_all(self, folder: str, but: Collection[str] = ()) -> None:
        self._delete_all(sorted(self.sizes(folder).keys() - set(but)))

    def _delete_all(self, names: Sequence[str]) -> None:
        """Deletes objects; some stores need one request for many."""
        with ThreadPoolExecutor(UPLOADS) as threads:
            list(threads.map(self.delete, names))

    def abort_uploads(self, folder: str) -> None:
        """Removes parts of unfinished uploads below a folder, if the store keeps them."""

    def _settle(self, name: str, data: bytes) -> str:
        """Decides after a refused write, which may be the library's retry after a lost answer."""
        content = self.read_tagged(name)
        if content is None or content.data != data:
            raise base.Conflict(name)
        return content.tag


def gathered(pages: Iterable[Mapping[str, Item]]) -> dict[str, Item]:
    """Joins the pages of a listing. Raises: ValueError: they repeat, or do not fit into memory."""
    listed, room = dict[str, Item](), min(MOST_LISTED, free_bytes())
    for page in pages:
        room -= max(PAGE_BYTES, 2 * len(repr(page)))
        if room < 0 or (page and page.keys() <= listed.keys()):
            raise ValueError(f"its listing has no end: {len(listed):,} names so far")
        listed |= page
    return listed


@lru_cache(maxsize=8)
def _shared(store: type[BucketStore], bucket: str, folder: str) -> BucketStore:
    """Unpickles a store once per process, to share its client."""
    return store(bucket, folder)


def claimant(claim: bytes) -> str:
    """Returns the first 16 digits of the build key in a claim."""
    return claim.decode(errors="replace").partition(".")[0]


@dataclass(frozen=True)
class StoredPath:
    """A file or folder in an object store; a `Remote` of `dataset.paths`."""

    store: BucketStore
    name: str = ""

    def __str__(self) -> str:
        return f"{self.store.url}/{self.name}".rstrip("/")

    def __truediv__(self, inner: str) -> "StoredPath":
        return StoredPath(self.store, f"{self.name}/{inner}".lstrip("/"))

    def is_file(self) -> bool:
        """Whether the object exists."""
        return self.store.exists(self.name)

    def is_dir(self) -> bool:
        """Whether the folder has objects."""
        return bool(self.store.children(self.name))

    def read_bytes(self, most: int | None = None) -> bytes:
        """Reads the first `most` bytes, by default all. Raises: FileNotFoundError, OutputError."""
        return self.store.range(self.name, 0, most).data
