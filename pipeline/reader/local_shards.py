"""Local shards: files and their indexes, memory-mapped at the first read; adopted files are read instead.

Each map holds a file descriptor, so the least recently used of many are closed.

Limit: truncating a mapped file kills the process with SIGBUS when it reads the missing part. A version never changes a
file; replace a damaged one by a rename, not in place. The owner of an adopted file may do either.
"""

import errno
import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.file_names import check_content, shard_paths
from recordmill.pipeline.dataset.manifest import Shard, index_bytes
from recordmill.pipeline.dataset.manifest_parts import PackFile
from recordmill.pipeline.dataset.paths import ADOPT, ADVICE, file_bytes, open_file, real_place, seen_as
from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, PackIndex, frame_head, frame_tails
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.wire import windows

MOST_OPEN = 16_000  # shards, of two maps each: half of Linux' limit for a process (vm.max_map_count)
COPIED = 2 << 10  # 2 KiB: up to here a copy is faster than a view of the map
GAP = 4 << 10  # 4 KiB: reading them takes as long as another call
TOGETHER = 8  # records a shard: fewer are read faster one by one
Numbers: TypeAlias = npt.NDArray[np.int64]
Frame: TypeAlias = bytes | npt.NDArray[np.uint8]
"""A record, with its header and footer or without; an array is a view of a map or a block."""


@dataclass(frozen=True)
class ShardFile:
    """A TFRecord file and its index: absolute paths or URLs, and the manifest's figures."""

    file: str
    index: str
    records: int
    bytes: int
    sha256: str
    tags: tuple[str, str] = ("", "")
    """The store's tags of file and index, which change with the content; empty if unknown."""
    name: str = ""  # the name of an adopted file in its records' keys; empty if records hold their keys
    frames: int | None = None  # the records in the index, of an adopted file; None: `records`
    kept: str = ""  # the file with a bit for each record in the index, 1 for those of the split; empty: all are
    pack: PackFile | None = None  # the index of packed rows, if they are read
    seen: str | None = None  # of an adopted file, as `Shard.seen`
    sample: str | None = None

    @classmethod
    def of(cls, folder: str, shard: Shard, pack: int | None = None) -> "ShardFile":
        """Returns a shard of a version's folder, with rows of `pack` ids. Raises: DatasetError as `shard_paths`."""
        file, index, kept, packs = shard_paths(folder, shard)
        adopted: dict[str, Any] = {"frames": shard.frames, "seen": shard.seen, "sample": shard.sample}
        adopted |= {"name": "" if shard.root is None else shard.file, "kept": "" if kept is None else kept.full}
        figures = shard.records, shard.bytes, shard.sha256
        both = zip(shard.packs, packs, strict=True)
        found = next((replace(each, file=place.full) for each, place in both if each.length == pack), None)
        if pack is not None and found is None:
            raise DatasetError(f"{shard.file} has no rows of {pack:,} ids: build again")
        return cls(file.full, index.full, *figures, pack=found, **adopted)

    @property
    def advice(self) -> str:
        """The remedy for damage."""
        return ADOPT if self.name else ADVICE

    @property
    def rows(self) -> int:
        """The rows to read: packed ones, or the records."""
        return self.records if self.pack is None else self.pack.rows

    @property
    def index_of_split(self) -> str:
        """A name that no other shard has; splits may share an adopted file."""
        return f"{self.file}:{self.kept}"

    @property
    def indexed(self) -> int:
        """The records in the index."""
        return self.records if self.frames is None else self.frames

    @property
    def kept_size(self) -> int:
        """The bytes of `kept`."""
        return -(-self.indexed // 8)

    def sizes(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Returns path and size of the file, and of the index."""
        return (self.file, self.bytes), (self.index, index_bytes(self.indexed))

    def ends_at(self, first: int, end: int) -> bool:
        """Whether an index with these bounds covers the file; an adopted file may be cut off after its last record."""
        return first == 0 and (end == self.bytes or (self.name != "" and end < self.bytes))


def place_key(shard: ShardFile, record: int) -> bytes:
    """Returns the key of an adopted record by its number in the index: `train-00001-of-00008.tfrecord:17`."""
    return f"{shard.name}:{record}".encode()


def kept_numbers(shard: ShardFile, bits: bytes) -> Numbers:
    """Returns the numbers in the index of a split's records, by `kept`. Raises: DatasetError: another count."""
    check_size(shard.kept, len(bits), shard.kept_size)
    chosen = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
    if len(chosen) != shard.records or (len(chosen) and chosen[-1] >= shard.indexed):
        raise DatasetError(f"{shard.kept} chooses {len(chosen):,} records, expected {shard.records:,}: {shard.advice}")
    return chosen


class AdoptedFile:
    """An adopted file, with the slices of a map: its owner may rewrite or cut it at any time."""

    def __init__(self, shard: ShardFile) -> None:
        """Opens the file. Raises: DatasetError as `check`, or it is behind a link now."""
        with reading(shard.file, shard.advice):
            self._file = open_file(real_place(shard.file.removesuffix(f"/{shard.name}"), shard.name))
        self.shard, self._number = shard, self._file.fileno()
        self.check()

    def __len__(self) -> int:
        return self.shard.bytes

    def __getitem__(self, part: slice) -> Frame:
        start, stop, _ = part.indices(len(self))
        data = self.read(start, max(0, stop - start))
        return data if len(data) <= COPIED else np.frombuffer(data, np.uint8)

    def read(self, start: int, size: int) -> bytes:
        """Returns bytes of the file; fewer if it was cut."""
        return os.pread(self._number, size, start)

    def gather(self, starts: Numbers, ends: Numbers) -> tuple[bytes, Numbers, Numbers]:
        """Reads pieces, neighbours by one call: their bytes, and where each begins and ends. Raises: as `check`."""
        first, size = int(starts.min()), int(ends.max() - starts.min())
        if size <= GAP * len(starts):
            data, moved = self.read(first, size), starts - first
        else:
            sizes = ends - starts
            data = b"".join(map(self.read, starts.tolist(), sizes.tolist()))
            moved = np.cumsum(sizes) - sizes
        self.check()
        return data, moved, moved + ends - starts

    def check(self) -> None:
        """Checks after a read that it was of the adopted content. Raises: DatasetError: it changed."""
        state, shard = os.fstat(self._number), self.shard
        check_size(shard.file, state.st_size, shard.bytes, shard.advice)
        if (seen := seen_as(state)) != shard.seen:
            check_content(shard.file, shard.bytes, shard.sample, self.read)
            self.shard = replace(shard, seen=seen)


class LocalShards:
    """The bytes of a split's shards, numbered; `RemoteShards` has the same methods."""

    def __init__(self, shards: Sequence[ShardFile]) -> None:
        self._shards, opened = shards, lru_cache(_most_open())

        @opened  # no methods: a cache of a method would keep `self` alive
        def index(number: int) -> memoryview:
            """Returns the index of a shard with records: uint64 [records + 1]. Raises: DatasetError, as `frames`."""
            return memoryview(_map(*shards[number].sizes()[1], shards[number].advice)).cast("Q")

        @lru_cache(None)
        def kept(number: int) -> Numbers:
            """Returns the numbers in the index of a split's records, of a shard with `kept`. Raises: DatasetError."""
            shard = shards[number]
            with reading(shard.kept, shard.advice), open_file(shard.kept) as file:
                return kept_numbers(shard, file.read(shard.kept_size + 1))

        @opened
        def pack(number: int) -> PackIndex:
            """Returns the index of packed rows of a shard with `pack`. Raises: DatasetError."""
            described: Any = shards[number].pack
            return PackIndex.of_bytes(_map(described.file, described.bytes), described)

        @opened
        def mapped(number: int) -> tuple[Any, Any, Any]:
            """Returns a shard's index, and its file twice: slices of a map are copies, of the array views."""
            if shards[number].name and hasattr(os, "pread"):  # Windows lets nobody cut a mapped file
                adopted = AdoptedFile(shards[number])
                return index(number), adopted, adopted
            file = _map(*shards[number].sizes()[0])
            return index(number), file, np.frombuffer(file, np.uint8)

        self.index, self.kept, self.pack, self._mapped = index, kept, pack, mapped

    def intact(self, shards: Numbers, records: Numbers) -> list[bytes | memoryview] | None:
        """Reads the data of many records; None if one is damaged, or `frames` is as fast. Raises: as `frames`."""
        parts = by_shard(shards)
        if len(records) < TOGETHER * max(1, len(parts)):
            return None
        data: list[bytes | memoryview] = [b""] * len(records)
        for shard, rows in parts:
            of_shard = _intact(*self._mapped(shard), records[rows])
            if of_shard is None:
                return None
            for row, record in zip(rows.tolist(), of_shard, strict=True):
                data[row] = record if isinstance(record, bytes) else record.data
        return data

    def frames(self, shards: Sequence[int], records: Sequence[int]) -> list[Frame]:
        """Reads records; a damaged index gives wrong bytes. Raises: DatasetError: a missing or mis-sized file.

        Arrays keep their map alive.
        """
        frames: list[Frame] = []
        mapped = self._mapped
        for shard, record in zip(shards, records, strict=True):
            index, file, array = mapped(shard)
            start, end = index[record], index[record + 1]
            frames.append(file[start:end] if end - start <= COPIED else array[start:end])  # a slice of a map is a copy
        for number in {number for number in shards if self._shards[number].name}:
            mapped(number)[1].check()
        return frames

    def fetch_ahead(self, shards: Sequence[int], records: Sequence[int]) -> None:
        """Begins to fetch the records to be read next, if remote."""

    def forget(self, shards: Sequence[int], records: Sequence[int]) -> bool:
        """Drops cached copies of damaged records; returns whether a retry may help."""
        return False

    def check(self) -> Sequence[ShardFile]:
        """Checks every file's size, and returns the shards with their tags. Raises: DatasetError."""
        checked = list[ShardFile]()
        for number, shard in enumerate(self._shards):
            for path, expected in shard.sizes():
                with reading(path, shard.advice):
                    check_size(path, file_bytes(path), expected, shard.advice)
            is_other = shard.name and seen_as(os.stat(shard.file)) != shard.seen
            checked.append(AdoptedFile(shard).shard if is_other else shard)
            if shard.pack is not None:
                self.pack(number)
        return checked

    def sha256(self, shard: int) -> str:
        """Returns a shard's SHA-256 in hex. Raises: DatasetError."""
        path = self._shards[shard].file
        with reading(path, self._shards[shard].advice), open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def close(self) -> None:
        """Closes all files; a later read reopens them."""
        for cached in (self.index, self.kept, self.pack, self._mapped):
            cached.cache_clear()


def check_size(path: str, found: int, expected: int, advice: str = ADVICE) -> None:
    """Checks a file's size. Raises: DatasetError."""
    if found != expected:
        since = ", and changed since it was adopted" if advice == ADOPT else ""
        raise DatasetError(f"{path} holds {found:,} bytes, expected {expected:,}{since}: {advice}")


def _most_open() -> int:
    """Returns the most shards to keep open: two maps each, in half of the process' file descriptors."""
    with suppress(ImportError):  # Windows
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if allowed != resource.RLIM_INFINITY:
            return max(1, min(allowed // 4, MOST_OPEN))
    return MOST_OPEN


def by_shard(shards: Numbers) -> list[tuple[int, Numbers]]:
    """Returns each shard in ascending order, with the rows of its records: int64 [rows]."""
    order = np.argsort(shards, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(shards[order])) + 1) if len(order) else []
    return [(int(shards[rows[0]]), rows) for rows in parts]


def _intact(index: memoryview, file: Any, array: Any, records: Numbers) -> list[Frame] | None:
    """Reads the data of a shard's records; takes all heads and tails at once. Returns None if one is damaged."""
    offsets = np.frombuffer(index, np.int64)
    starts, ends = offsets[records] + HEADER_BYTES, offsets[records + 1] - FOOTER_BYTES
    if ((starts < HEADER_BYTES) | (ends < starts) | (ends > len(array) - FOOTER_BYTES)).any():
        return None
    if isinstance(file, AdoptedFile):
        file, starts, ends = file.gather(starts - HEADER_BYTES, ends + FOOTER_BYTES)
        array, starts, ends = np.frombuffer(file, np.uint8), starts + HEADER_BYTES, ends - FOOTER_BYTES
        if len(array) < ends.max() + FOOTER_BYTES:  # more than the system reads at once
            return None
    heads = windows(array, f"V{HEADER_BYTES}")[starts - HEADER_BYTES].tobytes()
    tails = windows(array, f"V{FOOTER_BYTES}")[ends].tobytes()
    data: list[Frame] = [
        file[start:end] if end - start <= COPIED else array[start:end]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return data if heads == b"".join(map(frame_head, map(len, data))) and tails == frame_tails(data) else None


def _map(path: str, expected: int, advice: str = ADVICE) -> mmap.mmap:
    with reading(path, advice), open_file(path) as file:
        # Before mapping: reading beyond the file's end would kill the process.
        check_size(path, os.fstat(file.fileno()).st_size, expected, advice)
        return mmap.mmap(file.fileno(), expected, access=mmap.ACCESS_READ)


@contextmanager
def reading(path: str, advice: str = ADVICE) -> Iterator[None]:
    """Turns the system's errors into DatasetError."""
    try:
        yield
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing: {advice}") from None
    except OSError as error:
        advice = "raise the limit, `ulimit -n`" if error.errno == errno.EMFILE else advice
        raise DatasetError(f"{path} cannot be read ({error.strerror or error}): {advice}") from None
