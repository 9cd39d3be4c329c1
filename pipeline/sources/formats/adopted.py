"""The records of an adopted version as a source: a row is a record that the version reads.

    source: {format: adopted, path: out/flowers}
    split_by: {column: split}

Columns are those of the format `tfrecord`, and `split`, the version's. The default key is the version's: `file:record`,
or the feature with the key. The version's indexes give the places of the records.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset import manifest as manifests
from recordmill.pipeline.dataset.examples import Example
from recordmill.pipeline.dataset.file_names import allow, check_content, shard_paths
from recordmill.pipeline.dataset.manifest import Location, Manifest, Shard
from recordmill.pipeline.dataset.paths import ADOPT, read_inner
from recordmill.pipeline.errors import listed
from recordmill.pipeline.sources.batches import even_parts, pack, unpack
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats.tfrecord import Said, TFRecordReader
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.options import Adopted
from recordmill.pipeline.sources.source_reader import Chunk, FileRange, Plan, at_once
from recordmill.pipeline.versions.stores.open_store import open_location
from recordmill.transforms.base.columns import Columns

SPLIT = "split"


@dataclass(frozen=True)
class AdoptedRange(FileRange):
    """A piece of an adopted file."""

    path: str = ""  # the file's path or URL
    said: bytes = b""  # packed: a `SaidOfRecords`


@dataclass(frozen=True)
class SaidOfRecords(Said):
    """Facts that a version states about the records of a chunk."""

    file: str  # the name of the file in keys
    first: int  # the number of the chunk's first record in the file
    key: str | None  # the feature with the key; None: a key is `file:record`
    splits: Sequence[str]
    numbers: npt.NDArray[np.int16]  # the number of each record's split; -1: the version does not read the record

    def reads(self, position: int) -> bool:
        return bool(self.numbers[position] >= 0)

    def key_of(self, position: int, record: bytes, example: Example | None) -> bytes:
        held = self.key and example and example.values(self.key)
        key = held[1][0] if held and held[1] else f"{self.file}:{self.first + position}"
        return key if isinstance(key, bytes) else str(key).encode()

    def columns(self, position: int) -> Mapping[str, bytes]:
        return {SPLIT: self.splits[self.numbers[position]].encode()}


class Version(NamedTuple):
    """An adopted version."""

    folder: Location
    manifest: Manifest
    of_files: dict[str, dict[str, Shard]]  # the shard of each split, by the file's path or URL: splits may share a file

    def said(self, path: str) -> tuple[npt.NDArray[np.int64], SaidOfRecords]:
        """Returns a file's offsets of records and of its end, and what is said of its records."""
        of_file = self.of_files[path]
        shard = next(iter(of_file.values()))
        offsets = np.frombuffer(read_inner(self.folder, shard.index), "<u8").astype(np.int64)
        numbers = np.full(len(offsets) - 1, -1, np.int16)
        for number, each in enumerate(of_file.values()):
            bits = None if each.kept is None else np.frombuffer(read_inner(self.folder, each.kept), np.uint8)
            kept = slice(None) if bits is None else np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            numbers[kept] = number
        key = self.manifest.adopted.get("key", {}).get("names", [None])[0]
        return offsets, SaidOfRecords(shard.file, 0, key, list(of_file), numbers)


class AdoptedReader(TFRecordReader):
    """Reads the files of an adopted version."""

    source: Adopted  # type: ignore[assignment]

    def root(self, files: Files) -> str:
        """Returns the root of the machine or of the store: the folders of the files may share nothing else."""
        schemes = {"".join(path.partition("://")[:2]) if "://" in path else "/" for path in self._version().of_files}
        if len(schemes) > 1:
            raise SourceError(f"{self.source.path} names files in several stores: adopt those of each by themselves")
        return "".join(schemes)[:-1]

    def _version(self) -> Version:
        path = self.source.path if "://" in self.source.path else os.path.abspath(self.source.path)
        folder = open_location(path)
        if not (folder / manifests.MANIFEST_FILE).is_file():
            folder = manifests.version_folder(folder, manifests.read_latest(folder).version)
        manifest = allow(manifests.read_manifest(folder), folder)
        if not manifest.adopted:
            raise SourceError(f"{self.source.path} holds a built dataset, not adopted files: give that build's sources")
        of_files = dict[str, dict[str, Shard]]()
        for name, split in manifest.splits.items():
            for shard in split.shards:
                of_files.setdefault(shard_paths(str(folder), shard).file.full, {})[name] = shard
        return Version(folder, manifest, of_files)

    def _listed(self, files: Files, root: str) -> FileList:
        """Lists the files; the text for each in keys includes the records that the version reads."""
        manifest, of_files = self._version()[1:]
        found = at_once(files.match, map(escape, paths := sorted(of_files)))
        for path in (path for path, infos in zip(paths, found, strict=True) if not infos):
            try:
                files.open(path).close()  # a file of another span is there
            except OSError as error:
                raise SourceError(f"{path}: {error.strerror or error}: {ADOPT}") from None
        listed = FileList()
        for info in chain.from_iterable(found):
            of_file = of_files[info.path]
            if any(shard.bytes != info.bytes for shard in of_file.values()):
                raise SourceError(f"{info.path} has another size than when it was adopted: {ADOPT}")
            if (known := next(iter(of_file.values()))).seen != info.seen:
                check_content(info.path, info.bytes, known.sample, partial(files.read, info.path))
            said = [[split, manifest.content_of(shard)] for split, shard in of_file.items()]
            tag = hashlib.sha256(json.dumps([said, info.keyed]).encode()).hexdigest()
            listed.append(info._replace(path=info.path[len(root) + 1 :], tag=tag))
        return listed

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts files at records, by the version's indexes."""
        version, chunks, rows = self._version(), list[Chunk](), 0
        for file in inputs:
            path = f"{root}/{file.path}"
            offsets, said = version.said(path)
            rows += int((said.numbers >= 0).sum())
            cuts = even_parts(np.diff(offsets), self.chunk_bytes(columns, chunk_bytes)) if len(said.numbers) else []
            for part in cuts:
                start, end = offsets[[part.start, part.stop]].tolist()
                packed = pack(replace(said, first=part.start, numbers=said.numbers[part]))
                chunks.append(Chunk(0, 0, file.path, end - start, AdoptedRange(start, end, file.bytes, path, packed)))
        parts = [part for feature in version.manifest.features.values() for part in feature["stored_as"].values()]
        names = [SPLIT, *(name for part in parts for name in part["names"])]
        with suppress(SourceError):  # the first records are damaged
            names += self._names(files, f"{root}/{inputs[0].path}")
        splits = version.manifest.splits
        again = f"rows of {listed(splits)} are mixed and divided again: `split_by: {{column: split}}` keeps the splits"
        notes = [] if SPLIT in columns or self.source.split or len(splits) < 2 else [again]
        referred, names = self.referred_bytes(columns, chunks), list(dict.fromkeys(names))
        return Plan(chunks, rows, names=names, notes=notes, referred_bytes=referred)

    def _is_compressed(self, files: Files, path: str) -> bool:
        return False

    def place(self, files: Files, chunk: Chunk) -> str:
        return str(chunk.work.path)

    def said(self, chunk: Chunk) -> Said:
        return cast(Said, unpack(chunk.work.said))
