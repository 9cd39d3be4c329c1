"""Shards on an object store, read by ranges through fsspec, which is loaded when a path is a URL.

The records that a call asks for are read in as few requests as their places allow, all at once. An index is read
whole when it is first needed, and kept.

>>> RemoteShards([ShardFile("s3://data/a.tfrecord", "s3://data/a.index", 2, 120, "…")])  # doctest: +SKIP
"""

import hashlib
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from pipeline.manifest import DatasetError
from pipeline.reader.shard_files import ADVICE, HEAD, TAIL, Frames, ShardFile, check_size, unreadable

CONNECTIONS = 32  # at once, where a store is asked for one thing of each file
GAP = 64 << 10  # 64 KiB: to read so much along takes less time than another request
_EXTRAS = {"s3": "aws", "s3a": "aws", "gs": "gcp", "gcs": "gcp"}


class Range(NamedTuple):
    """The bytes of a file from `start` to `end`."""

    path: str
    start: int
    end: int


class RemoteShards:
    """`Shards` of URLs.

    Raises:
        DatasetError: the package that reads such URLs is not installed.
    """

    def __init__(self, shards: Sequence[ShardFile]) -> None:
        self._shards = shards
        self._indexes: dict[int, memoryview] = {}
        self._store()

    def index(self, shard: int) -> memoryview:
        """See `Shards`."""
        if shard not in self._indexes:
            self._load([shard])
        return self._indexes[shard]

    def frames(self, shards: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Frames:
        """See `Shards`. Records that lie near each other are read together."""
        wanted = [Range(self._shards[shard].file, *span) for shard, *span in zip(shards, starts, ends, strict=True)]
        order = sorted(range(len(wanted)), key=wanted.__getitem__)
        merged, member = merge([wanted[place] for place in order])
        blocks = self._read(merged)
        frames = [b""] * len(wanted)
        for place, block in zip(order, member, strict=True):
            base = merged[block].start
            frames[place] = blocks[block][wanted[place].start - base : wanted[place].end - base]
        return ([f[:HEAD] for f in frames], [f[HEAD:-TAIL] for f in frames], [f[-TAIL:] for f in frames])

    def check(self) -> None:
        """See `Shards`. Reads all indexes: the shards' records will be asked for in any order."""
        files = [file for shard in self._shards for file in shard.sizes()]
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            for (path, expected), found in zip(files, threads.map(self._size, files), strict=True):
                check_size(path, found, expected)
        self._load([number for number in range(len(self._shards)) if number not in self._indexes])

    def sha256(self, shard: int) -> str:
        """See `Shards`."""
        path = self._shards[shard].file
        try:
            with self._store().open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except Exception as error:  # a store's library has its own errors beside OSError
            raise unreadable(path, error) from error

    def close(self) -> None:
        """See `Shards`."""
        self._indexes.clear()

    def _size(self, file: tuple[str, int]) -> int:
        try:
            return int(self._store().size(file[0]))
        except Exception as error:
            raise unreadable(file[0], error) from error

    def _load(self, shards: Sequence[int]) -> None:
        sizes = [self._shards[shard].sizes()[1] for shard in shards]
        # One byte more than it should have shows an index that is too long.
        ranges = [Range(path, 0, size + 1) for path, size in sizes]
        for shard, (path, size), data in zip(shards, sizes, self._read(ranges, whole=False), strict=True):
            check_size(path, len(data), size)
            self._indexes[shard] = memoryview(data).cast("Q")

    def _read(self, ranges: Sequence[Range], *, whole: bool = True) -> list[bytes]:
        paths, starts, ends = ([list(part) for part in zip(*ranges, strict=True)]) or ([], [], [])
        read: list[bytes] = self._store().cat_ranges(paths, starts, ends, on_error="return")
        for wanted, data in zip(ranges, read, strict=True):
            if isinstance(data, Exception):
                raise unreadable(wanted.path, data) from data
            if whole and len(data) != wanted.end - wanted.start:
                raise DatasetError(f"{wanted.path} ends before byte {wanted.end:,}: {ADVICE}")
        return read

    def _store(self) -> Any:
        """The file system; asked for anew each time, because it keeps one for each process and must not be forked."""
        return file_system(next(shard.file for shard in self._shards))


def file_system(url: str) -> Any:
    """Gives fsspec's file system for a URL. Raises: DatasetError if what it needs is not installed."""
    scheme = url.partition("://")[0]
    try:
        return importlib.import_module("fsspec.core").url_to_fs(url)[0]
    except (ImportError, ValueError) as error:
        extra = _EXTRAS.get(scheme)
        advice = (
            f'`pip install "recordmill[{extra}]"`' if extra else "copy the version to a local folder, s3:// or gs://"
        )
        raise DatasetError(f"{url} cannot be read ({error}): {advice}") from error


def merge(ranges: Sequence[Range]) -> tuple[list[Range], list[int]]:
    """Joins sorted ranges of a file that touch, overlap or lie less than `GAP` apart.

    Returns:
        the joined ranges, and for each of `ranges` the number of the one that holds it.

    >>> merge([Range("a", 0, 10), Range("a", 10, 30), Range("b", 30, 40)])
    ([Range(path='a', start=0, end=30), Range(path='b', start=30, end=40)], [0, 0, 1])
    """
    merged: list[Range] = []
    member: list[int] = []
    for wanted in ranges:
        if merged and merged[-1].path == wanted.path and wanted.start - merged[-1].end < GAP:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, wanted.end))
        else:
            merged.append(wanted)
        member.append(len(merged) - 1)
    return merged, member
