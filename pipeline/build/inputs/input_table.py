"""A version's inputs, in its `inputs.arrow`: each file with its size, times and digest.

    source  span  path          bytes  modified  identity  sha256  tag
    0       null  cats/1.jpg    48213  1.7e9     1.7e9     9f86…   (1.7e9, 1311)

A file of the same size and `tag` is unchanged: a local file's tag is its ctime and inode, since `rsync` and `cp -p`
preserve `modified`; a store's object has an ETag or a generation, and no digest. Any other file is read. Keys contain
`identity` in place of a file's time: a file of the remembered content keeps it, and `touch` changes no key; other
content of that path and size gets a number from its digest.
"""

import hashlib
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from heapq import merge
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from recordmill.pipeline.build.context.arrow_files import FileDigests, HashedRows, taken
from recordmill.pipeline.build.inputs.span_sources import Group, list_groups
from recordmill.pipeline.dataset.arrow_tables import read_table
from recordmill.pipeline.dataset.manifest import Location
from recordmill.pipeline.dataset.paths import read_inner
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files, StoreFiles
from recordmill.pipeline.sources.paths import is_image
from recordmill.pipeline.spec.model import Spec

INPUTS_FILE = "inputs.arrow"
MOST_BYTES = 2 << 30  # 2 GiB: some 20 million inputs, since digests do not compress
BLOCK = 1 << 16  # rows
READ_BYTES = 1 << 20
IDENTITY_BYTES = 6  # of a digest: exact in a float64, and far from any time
HASHING_THREADS = 4
TICK_SECONDS = 0.02  # of the clock for ctime in Linux: 10 ms at most
SCHEMA = pa.schema(
    {
        "source": pa.int32(),
        "span": pa.string(),
        "path": pa.binary(),  # not always UTF-8
        "bytes": pa.int64(),
        "modified": pa.float64(),
        "identity": pa.float64(),
        "sha256": pa.binary(32),
        "tag": pa.string(),  # `FileInfo.seen`; missing for local files of earlier Recordmills
    }
)
"""The columns of `inputs.arrow`, a Feather file; `source` is the number of the source in the spec."""
ROWS_AT_A_TIME = 1 << 12  # as Python objects, rows take 300 bytes each
Digest = bytes | None  # the SHA-256 of a file; None while unknown, for unreadable files, and for objects of a store


class Times:
    """The identity times of files, where they differ from the time of change: about 200 bytes a file."""

    def __init__(self) -> None:
        self._identity: dict[int, float] = {}
        self._modified: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._identity)

    def add(self, file: FileInfo, identity: float) -> None:
        self._identity[hash(file)] = identity
        self._modified[hash(file._replace(modified=identity))] = file.modified

    def identified(self, files: Iterable[FileInfo]) -> FileList:
        """Returns listed files with identity times."""
        return FileList(file._replace(modified=self._identity.get(hash(file), file.modified)) for file in files)

    def modified(self, file: FileInfo) -> float:
        return self._modified.get(hash(file), file.modified)


class Remembered:
    """The inputs of a version, indexed by source, path and size, and by span if paths name spans: 50 bytes a file."""

    def __init__(self, table: pa.Table, *, by_span: bool) -> None:
        self.table, self._by_span = table, by_span
        self._identity, self._since = table["identity"].to_numpy(), dict[int, str]()
        self._seen = _hashed(tag for batch in table["tag"].chunks for tag in batch.to_pylist())
        self._found = HashedRows(self._names())

    @classmethod
    def read(cls, folder: Location, *, by_span: bool) -> "Remembered | None":
        """Reads those of a version; None if its file is unusable. `by_span`: files of two spans may have one path."""
        with suppress(UserError):
            table = read_table(folder, INPUTS_FILE, read_inner(folder, INPUTS_FILE, MOST_BYTES), SCHEMA)
            return cls(table, by_span=by_span) if table.num_rows else None
        return None

    def of_spans(self, names: Sequence[str]) -> pa.Table:
        """Returns the inputs of some spans, with updated tags."""
        rows, tags = pa.array([*self._since], pa.int64()), pa.array([*self._since.values()], pa.string())
        since = tags.take(pc.index_in(pa.array(np.arange(len(self.table))), rows))
        tag = pc.coalesce(pa.chunked_array([since]), self.table["tag"])
        table = self.table.set_column(SCHEMA.get_field_index("tag"), SCHEMA.field("tag"), tag)
        return table.filter(pc.is_in(table["span"], pa.array(names, pa.string())))

    def row(self, group: Group, path: str) -> dict[str, Any] | None:
        """Returns the row of a path, whatever the size; None if it is missing."""
        is_file = pc.and_(pc.equal(self.table["source"], group.of.index), pc.equal(self.table["path"], encoded(path)))
        rows = self.table.filter(is_file).to_pylist()
        return next((row for row in rows if not self._by_span or row["span"] == group.of.name), None)

    def sha256(self, group: Group) -> list[bytes | None]:
        """Returns the remembered digest of each file with the same identity time; None for others."""
        rows = self._rows(group)
        times = np.fromiter((file.modified for file in group.files), np.float64, len(group.files))
        return taken(self.table["sha256"], np.where((rows >= 0) & (self._identity[rows] == times), rows, -1))

    def times(self, groups: Iterable[Group], files: Files, *, reads_all: bool = False) -> Times:
        """Compares the content of files that may have changed, or of all; returns their identity times."""
        times = Times()
        for group in groups:
            rows, path = self._rows(group), group.of.reader.input_path(files)
            is_same = (rows >= 0) & (self._seen[rows] == _hashed(file.seen for file in group.files))
            is_local = np.fromiter(("://" not in path(file.path) for file in group.files), np.bool_, len(group.files))
            is_read = is_local & (rows >= 0) & (reads_all | ~is_same)
            digests = taken(self.table["sha256"], np.where(is_read, rows, -1))
            asked = [path(file.path) for file, reads in zip(group.files, is_read, strict=True) if reads]
            settle([group] if asked else [])
            with ThreadPoolExecutor(HASHING_THREADS) as pool:
                found = pool.map(lambda name: file_sha256(files, name), asked)
                for number, (file, digest) in enumerate(zip(group.files, digests, strict=True)):
                    row, identity = int(rows[number]), file.modified
                    if is_read[number] and (sha256 := next(found)):
                        is_same[number], identity = sha256 == digest, int.from_bytes(sha256[:IDENTITY_BYTES], "big")
                        if is_same[number]:
                            self._seen[row], self._since[row] = hash(file.seen), file.seen
                    identity = float(self._identity[row] if is_same[number] else identity)
                    if identity != file.modified:
                        times.add(file._replace(path=path(file.path)), identity)
        return times

    def _rows(self, group: Group) -> npt.NDArray[np.int64]:
        """Returns the row of each file; -1 if its path and size are missing."""
        source, span = group.of.index, group.of.name if self._by_span else None
        return self._found.find((source, span, encoded(file.path), file.bytes) for file in group.files)

    def _names(self) -> Iterator[tuple[int, str | None, bytes, int]]:
        for batch in self.table.select(["source", "span", "path", "bytes"]).to_batches(BLOCK):
            source, span, path, size = (column.to_pylist() for column in batch.columns)
            yield from zip(source, span if self._by_span else repeat(None), path, size, strict=False)


def settle(groups: Iterable[Group]) -> None:
    """Waits until any later change of the files would change a listed ctime."""
    newest = max((file.changed for group in groups for file in group.files), default=0.0)
    time.sleep(min(TICK_SECONDS, max(0.0, newest + TICK_SECONDS - time.time())))  # at most, if clocks were set back


def file_sha256(files: Files, path: str) -> bytes | None:
    """Digests a file; None if it cannot be read: the reader of its rows reports that."""
    digest = hashlib.sha256()
    with suppress(OSError), files.open(path) as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
        return digest.digest()
    return None


def _hashed(tags: Iterable[str | None]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(hash, tags), np.int64)


def encoded(path: str) -> bytes:
    """Encodes a path for the table."""
    return path.encode("utf-8", "surrogateescape")


class TableInMaking:
    """Digests local files in a thread, except remembered ones, and images, which the job reads."""

    def __init__(
        self,
        groups: Sequence[Group],
        files: Files,
        times: Times,
        remembered: Remembered | None,
        kept: pa.Table | None = None,
    ) -> None:
        """Begins with the used inputs, with identity times; `kept` are the rows of kept spans."""
        self._groups, self._files, self._times, self._remembered = groups, files, times, remembered
        self._blocks = [SCHEMA.empty_table() if kept is None else kept]
        settle(groups)
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="inputs")
        self._early = self._pool.submit(self._digest)

    def __enter__(self) -> "TableInMaking":
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._pool.shutdown()

    def finish(self, by_job: FileDigests) -> None:
        """Waits until every file is digested; reads the images without a digest from the job."""
        for source, (group, early) in enumerate(zip(self._groups, self._early.result(), strict=True)):
            path, files = group.of.reader.input_path(self._files), zip(group.files, early, strict=True)
            while block := list(islice(files, ROWS_AT_A_TIME)):
                digests, rows = by_job.find([f"{source}/{file.path}" for file, _ in block]), list[tuple[object, ...]]()
                for (file, sha256), late in zip(block, digests, strict=True):
                    modified = self._times.modified(file._replace(path=path(file.path)))
                    name = group.of.index, group.of.name, encoded(file.path), file.bytes
                    digest = sha256 or late or self._sha256(path(file.path))
                    rows.append((*name, modified, file.modified, digest, file.seen))
                columns = zip(zip(*rows, strict=True), SCHEMA, strict=True)
                self._blocks.append(pa.table([pa.array(values, field.type) for values, field in columns], SCHEMA))

    def feather(self) -> bytes:
        sink = pa.BufferOutputStream()
        pa.feather.write_feather(pa.concat_tables(self._blocks), sink, compression="zstd")
        return sink.getvalue().to_pybytes()

    def _digest(self) -> list[list[Digest]]:
        """Digests the files of each group, until the work ends; None for images, and what is left."""
        early = list[list[Digest]]()
        for group in self._groups:
            path = group.of.reader.input_path(self._files)
            known = self._remembered.sha256(group) if self._remembered else [None] * len(group.files)
            early.append([])
            for file, digest in zip(group.files, known, strict=True):
                is_left = digest is not None or is_image(file.path) or self._ended.is_set()
                early[-1].append(digest if is_left else self._sha256(path(file.path)))
        return early

    def _sha256(self, path: str) -> Digest:
        return None if "://" in path else file_sha256(self._files, path)


class Listings(Files):
    """Files with cached listings, which have identity times."""

    def __init__(self, files: Files, times: Times | None = None) -> None:
        self.files, self.times = files, times or Times()
        self._listed: dict[str, Sequence[FileInfo]] = {}

    def take(self, times: Times) -> None:
        """Sets the identity times of files, listed ones included."""
        self.times = times
        if times:
            self._listed = {pattern: times.identified(listed) for pattern, listed in self._listed.items()}

    def again(self) -> "Listings":
        return Listings(self.files.again() if isinstance(self.files, StoreFiles) else self.files, self.times)

    def match(self, pattern: str) -> Sequence[FileInfo]:
        """Lists the files that a glob matched at the first call."""
        if pattern not in self._listed:
            listed = self.files.match(pattern)
            self._listed[pattern] = self.times.identified(listed) if self.times else listed
        return self._listed[pattern]

    def is_folder(self, path: str) -> bool:
        return self.files.is_folder(path)

    def open(self, path: str) -> BinaryIO:
        return self.files.open(path)

    def read(self, path: str, start: int = 0, length: int | None = None, most: int | None = None) -> bytes:
        return self.files.read(path, start, length, most)

    def left_out(self) -> Collection[str]:
        return self.files.left_out()

    def has(self, path: str) -> bool:
        """Whether a file was listed; compares hashes."""
        return bool(self._paths.find([path])[0] >= 0)

    @cached_property
    def _paths(self) -> HashedRows:
        """The hashes of all paths; a set of paths takes 200 bytes a file."""
        return HashedRows(file.path for listed in self._listed.values() for file in listed)

    def changes(self) -> Iterator[tuple[str, str]]:
        """Lists everything again; yields each changed file, at least once, with the change."""
        again = self.again()
        for pattern, before in self._listed.items():
            try:
                now = again.match(pattern)
            except OSError:
                now = ()
            gone, new = ((file.path, file, "is gone") for file in before), ((file.path, file, "is new") for file in now)
            for path, same in groupby(merge(gone, new, key=itemgetter(0)), key=itemgetter(0)):
                (_, file, difference), *others = same
                if not others:
                    yield path, difference
                elif others[0][1] != file:
                    yield path, "is another"


def take_times(
    spec: Spec, folder: Location, files: Listings, only: Sequence[str] = (), *, reads_all: bool = False
) -> Remembered | None:
    """Sets identity times by a version's inputs, and returns these, if known; `reads_all` compares every content."""
    remembered = Remembered.read(folder, by_span=spec.has_templates)
    if remembered is not None:
        with suppress(UserError, OSError):  # the plan says what is wrong
            files.take(remembered.times(list_groups(spec, files, only), files, reads_all=reads_all))
    return remembered
