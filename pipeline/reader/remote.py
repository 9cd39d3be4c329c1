"""Versions at a URL, such as `s3://bucket/out/emoji`: their paths, their files, and their shards, read by ranges.

`RemotePath` has the methods of `pathlib.Path` that a dataset needs: one code reads local and remote folders. It caches
nothing, so it sees a version published meanwhile. The store's client is that of builds, loaded at its first use.

Records are read by blocks, cached on a local disk; or alone, in as few requests as their offsets allow. An index is
read whole at its first use, and kept.
"""

import hashlib
import os
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from recordmill.pipeline.dataset.file_names import check_content, shard_paths
from recordmill.pipeline.dataset.manifest import Shard
from recordmill.pipeline.dataset.paths import ADVICE, Location, check_place, locate, open_file
from recordmill.pipeline.dataset.tfrecord import PackIndex
from recordmill.pipeline.errors import FORBIDDEN, NOT_FOUND, DatasetError, ExitCode, code_of, status_of
from recordmill.pipeline.reader.block_cache import Block, BlockCache
from recordmill.pipeline.reader.local_shards import COPIED, Frame, Numbers, ShardFile, check_size, kept_numbers
from recordmill.pipeline.reader.metrics import CACHED, FETCHED, REQUESTS, RETRIES, WAITED, Counters
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_object, open_stream
from recordmill.pipeline.versions.stores.parts import Part

PAUSES = (0.1, 0.5, 2.0)  # seconds before each retry, beside those of the store's client
CONNECTIONS = 32  # at once
GAP = 64 << 10  # 64 KiB: reading this much is faster than another request


@dataclass(frozen=True)
class RemotePath:
    """A URL without a trailing slash."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, inner: str) -> "RemotePath":
        """Returns the URL of a file or folder in this folder."""
        return RemotePath(f"{self.url}/{inner}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        """The folder that holds this."""
        return RemotePath(self.url.rpartition("/")[0])

    def is_file(self) -> bool:
        """Whether the object exists. Raises: DatasetError if the store does not answer."""
        # S3 answers Forbidden for an absent object if the user may not list the bucket.
        with readable(self.url, FORBIDDEN, NOT_FOUND), suppress(FileNotFoundError):
            store, name = open_object(self.url)
            try:
                return store.size(name) >= 0
            except OutputError as error:
                if status_of(error) == FORBIDDEN and self.name in store.children(name.rpartition("/")[0]):
                    raise DatasetError(f"{error}; it is there: ask for the right to read it") from None
                raise
        return False

    def is_dir(self) -> bool:
        """Whether the folder holds anything. Raises: DatasetError if the store does not answer."""
        with readable(self.url, NOT_FOUND):
            store, name = open_object(self.url)
            return bool(store.children(name))
        return False

    def read_bytes(self, most: int | None = None) -> bytes:
        """Returns the object's content, or its first bytes. Raises: DatasetError if missing or unreadable."""
        with readable(self.url):
            store, name = open_object(self.url)
            return store.range(name, 0, most).data


Folder: TypeAlias = Path | RemotePath  # the folder of a dataset or of a version


class UnansweredError(DatasetError):
    """A store did not answer, was too busy, or wants newer credentials: a retry may succeed."""

    exit_code = ExitCode.TRY_AGAIN


@contextmanager
def readable(url: str, *absent: int, advice: str = ADVICE) -> Iterator[None]:
    """Turns a store's errors, which may hold secrets, into DatasetError; suppresses the statuses `absent`."""
    try:
        yield
    except FileNotFoundError:
        raise DatasetError(f"{url} is missing: {advice}") from None
    except OutputError as error:
        if status_of(error) not in absent:
            kind = UnansweredError if code_of(error) is ExitCode.TRY_AGAIN else DatasetError
            raise kind(str(error)) from None


class VersionFiles:
    """A version's folder, local or at a URL."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder

    @contextmanager
    def open(self, path: str) -> Iterator[tuple[BufferedReader, int]]:
        """Opens a file: (file, size). Raises: DatasetError: missing, unreadable, not plain, or outside the folder."""
        if isinstance(self.folder, Path):
            try:
                file = open_file(locate(str(self.folder), path))
            except FileNotFoundError:
                raise DatasetError("the file is missing") from None
            except OSError as error:
                raise DatasetError(f"the file cannot be read: {error.strerror}") from None
            opened = file, os.fstat(file.fileno()).st_size
        else:
            check_place(str(self.folder), path)
            with readable(str(self.folder / path)):
                stream = open_stream(str(self.folder / path))
                opened = stream, stream.seek(0, os.SEEK_END)
                stream.seek(0)
        with opened[0]:
            try:
                with readable(str(self.folder / path)):
                    yield opened
            except OSError as error:
                raise DatasetError(f"the file cannot be read: {error.strerror or error}") from None

    def located(self, shard: Shard) -> list[tuple["VersionFiles", str]]:
        """Returns the folder and the inner path of a shard's file, and of each index. Raises: DatasetError."""
        file, index, _, packs = shard_paths(str(self.folder), shard)
        found = []
        for place in (file, index, *packs):
            folder = RemotePath(place.root) if "://" in place.root else Path(place.root)
            found.append((VersionFiles(folder), place.file))
        return found

    def read(self, path: str, most: int = -1) -> bytes:
        """Reads a whole file, or its first `most` bytes. Raises: DatasetError as `open`."""
        with self.open(path) as (file, _):
            return file.read(most)

    def listing(self) -> list[str]:
        """Lists all files, and links to folders, by sorted relative paths. Raises: DatasetError."""
        if isinstance(self.folder, Path):
            paths = (path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir())
            return sorted(str(path.relative_to(self.folder)) for path in paths)
        with readable(str(self.folder)):
            store, folder = open_object(str(self.folder))
            names = (name.removeprefix(folder).lstrip("/") for name in store.names(folder))
            return sorted(name for name in names if name and not name.endswith("/"))  # no console's folder markers


class RemoteShards:
    """The bytes of shards at URLs: see `LocalShards`."""

    def __init__(
        self, shards: Sequence[ShardFile], cuts: Sequence[Numbers] | None, cache: BlockCache, counters: Counters
    ) -> None:
        """Takes each shard's first records of blocks, ascending from 0; None to read records alone."""
        self._shards, self._cuts, self._cache, self._counters = list(shards), cuts, cache, counters
        self._advice = shards[0].advice
        self._indexes, self._packs = dict[int, memoryview](), dict[int, PackIndex]()
        self._kept, self._cuts_in_index = dict[int, Numbers](), dict[int, Numbers]()
        self._process, self._pools = os.getpid(), dict[str, ThreadPoolExecutor]()

    def index(self, shard: int) -> memoryview:
        self._load([shard])
        return self._indexes[shard]

    def kept(self, shard: int) -> Numbers:
        if shard not in self._kept:
            file = self._shards[shard]
            bits = self._fetch(Block(file.kept, 0, file.kept_size, "", file.sha256))
            self._kept[shard] = kept_numbers(file, bits)
        return self._kept[shard]

    def pack(self, shard: int) -> PackIndex:
        if shard not in self._packs:
            described: Any = self._shards[shard].pack
            block = Block(described.file, 0, described.bytes, "", described.sha256)
            data = self._cache.read(block, [(0, described.bytes)], self._fetch)[0]
            self._packs[shard] = PackIndex.of_bytes(data, described)
        return self._packs[shard]

    def intact(self, shards: Numbers, records: Numbers) -> None:
        """Leaves the records to `frames`."""

    def frames(self, shards: Sequence[int], records: Sequence[int]) -> list[Frame]:
        spans, parts = self._spans(shards, records), dict[int, bytes]()
        rows = [row for row, shard in enumerate(shards) if self._possible(shard, spans[row])]
        if self._cuts is None:
            parts.update(zip(rows, together([spans[row] for row in rows], self._fetch), strict=True))
            rows = []
        rows_of: defaultdict[Block, list[int]] = defaultdict(list)
        for row in rows:
            rows_of[self._block(shards[row], records[row], spans[row])].append(row)

        def read(block: Block) -> list[bytes]:
            return self._cache.read(block, [spans[row][1:3] for row in rows_of[block]], self._fetch)

        missing, fetched = [block for block in rows_of if not self._cache.has(block)], dict[Block, list[bytes]]()
        if missing:
            with self._counters.timed(WAITED):
                fetched.update(zip(missing, self._pool("now").map(read, missing), strict=True))
        for block, of_block in rows_of.items():
            data = fetched.get(block) or read(block)
            parts.update(zip(of_block, data, strict=True))
            self._counters.add({CACHED: 0 if block in fetched else sum(map(len, data))})
        found = (parts.get(row, b"") for row in range(len(spans)))
        return [data if len(data) <= COPIED else np.frombuffer(data, np.uint8) for data in found]

    def fetch_ahead(self, shards: Sequence[int], records: Sequence[int]) -> None:
        """Begins to fetch the records' missing blocks, if records are read by blocks."""
        if self._cuts is None:
            return
        for block in dict.fromkeys(map(self._block, shards, records, self._spans(shards, records))):
            if not self._cache.has(block):
                self._pool("ahead").submit(self._cache.fetch, block, self._fetch, wait=False)

    def forget(self, shards: Sequence[int], records: Sequence[int]) -> bool:
        """Drops the cached blocks and indexes of damaged records; returns whether records are cached."""
        if self._cuts is None:
            return False
        for shard, record, span in zip(shards, records, self._spans(shards, records), strict=True):
            if self._possible(shard, span):
                self._cache.drop(self._block(shard, record, span))
        for shard in set(shards):
            self._cache.drop(self._index(shard))
            self._indexes.pop(shard, None)
        return True

    def check(self) -> Sequence[ShardFile]:
        """See `LocalShards`. Reads all indexes, as records are read in any order."""
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            self._shards = list(threads.map(self._tagged, self._shards))
            self._load(range(len(self._shards)))
            list(threads.map(self.pack, (number for number, shard in enumerate(self._shards) if shard.pack)))
        return self._shards

    def _tagged(self, shard: ShardFile) -> ShardFile:
        """Returns a shard with the tags of its files. Raises: DatasetError: another size or content."""
        tags = list[str]()
        for path, expected in shard.sizes():
            with readable(path, advice=self._advice):
                first = read_part(path, 0, 1)
            check_size(path, first.size, expected, self._advice)
            tags.append(first.tag)
        if tags[0] != shard.seen:
            known, part = (shard.file, shard.bytes, shard.sample), Block(shard.file, 0, 0, tags[0], shard.sha256)
            check_content(*known, lambda start, size: self._fetch(part._replace(start=start, end=start + size)))
        return replace(shard, tags=(tags[0], tags[1]))

    def sha256(self, shard: int) -> str:
        path = self._shards[shard].file
        with readable(path, advice=self._advice), open_stream(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def close(self) -> None:
        for read in (self._indexes, self._kept, self._cuts_in_index, self._packs):
            read.clear()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()

    def _pool(self, name: str) -> ThreadPoolExecutor:
        if self._process != os.getpid():  # a fork does not inherit threads
            self._process, self._pools = os.getpid(), {}
        if name not in self._pools:
            self._pools = {name: ThreadPoolExecutor(CONNECTIONS // 2), **self._pools}  # keeps another thread's pool
        return self._pools[name]

    def _spans(self, shards: Sequence[int], records: Sequence[int]) -> list[Block]:
        """Returns the ranges of records; loads missing indexes in parallel."""
        self._load(list(dict.fromkeys(shards)))
        return [self._range(shard, record, record + 1) for shard, record in zip(shards, records, strict=True)]

    def _range(self, shard: int, first: int, end: int) -> Block:
        index, file = self._indexes[shard], self._shards[shard]
        return Block(file.file, index[first], index[end], file.tags[0], file.sha256)

    def _index(self, shard: int) -> Block:
        (path, size), file = self._shards[shard].sizes()[1], self._shards[shard]
        return Block(path, 0, size, file.tags[1], file.sha256)

    def _possible(self, shard: int, span: Block) -> bool:
        return span.start < span.end <= self._shards[shard].bytes

    def _block(self, shard: int, record: int, span: Block) -> Block:
        """Returns the block of a record; the record alone if the index is damaged."""
        file, cuts = self._shards[shard], self._cuts_in_index.get(shard)
        if cuts is None:
            cuts = (self._cuts or [])[shard]
            cuts = self._cuts_in_index[shard] = self.kept(shard)[cuts] if file.kept else cuts
        number = int(np.searchsorted(cuts, record, side="right"))
        end = cuts[number] if number < len(cuts) else file.indexed
        block = self._range(shard, int(cuts[number - 1]), int(end))
        return block if self._possible(shard, block) and block.start <= span.start and span.end <= block.end else span

    def _load(self, shards: Sequence[int]) -> None:
        missing = [shard for shard in shards if shard not in self._indexes]
        if missing:
            read = self._pool("now").map(self._read_index, missing)
            self._indexes |= {shard: memoryview(data).cast("Q") for shard, data in zip(missing, read, strict=True)}

    def _read_index(self, shard: int) -> bytes:
        if self._shards[shard].sample and not self._shards[shard].tags[0]:
            self._shards[shard] = self._tagged(self._shards[shard])
        block = self._index(shard)
        # One more byte reveals a longer index.
        longer, whole = block._replace(end=block.end + 1), block.end
        if self._cuts is None:
            return self._fetch(longer, whole)
        return self._cache.read(block, [(0, whole)], lambda _: self._fetch(longer, whole))[0]

    def _fetch(self, block: Block, whole: int | None = None) -> bytes:
        """Reads a range, with retries. Raises: DatasetError: a missing, unreadable, replaced or mis-sized file."""
        with readable(block.path, advice=self._advice):
            for seconds in (*PAUSES, None):
                try:
                    data, _, tag = read_part(block.path, block.start, block.end)
                    break
                except OutputError as error:  # without a cause: a missing package or an unknown URL
                    if seconds is None or error.__cause__ is None or status_of(error) == FORBIDDEN:
                        raise
                    self._counters.add({REQUESTS: 1, RETRIES: 1})
                    time.sleep(seconds)
        self._counters.add({REQUESTS: 1, FETCHED: len(data)})
        if block.tag and tag and tag != block.tag:
            again = "open the dataset again" if self._advice == ADVICE else self._advice
            raise DatasetError(f"{block.path} was replaced since the input was opened: {again}")
        if whole is not None:
            check_size(block.path, len(data), whole, self._advice)
        elif len(data) != block.end - block.start:
            raise DatasetError(f"{block.path} ends before byte {block.end:,}: {self._advice}")
        return data


def read_part(path: str, start: int, end: int) -> Part:
    """Reads a part of an object, or of a file: adopted files and their version may lie apart."""
    if "://" in path:
        store, name = open_object(path)
        return store.range(name, start, end)
    with open_file(path) as file:
        file.seek(start)
        return Part(file.read(end - start), os.fstat(file.fileno()).st_size)


def together(spans: Sequence[Block], fetch: Callable[[Block], bytes]) -> list[bytes]:
    """Reads spans; those of a file less than `GAP` apart share one request."""
    holders: list[Block] = []
    for span in sorted(spans):
        if holders and holders[-1].path == span.path and span.start - holders[-1].end < GAP:
            holders[-1] = holders[-1]._replace(end=max(holders[-1].end, span.end))
        else:
            holders.append(span)
    with ThreadPoolExecutor(max(1, min(CONNECTIONS, len(holders)))) as threads:
        read = list(threads.map(fetch, holders))
    begins, parts = [(holder.path, holder.start) for holder in holders], []
    for span in spans:
        number = bisect_right(begins, (span.path, span.start)) - 1
        offset = span.start - holders[number].start
        parts.append(read[number][offset : offset + span.end - span.start])
    return parts
