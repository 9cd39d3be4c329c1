"""WebDataset's tar files as a source: a row is a sample (`formats.tar_samples`), its members are columns.

    source: {format: webdataset, path: "shards/train-*.tar"}

A column is a member's extension: `jpg`; the first present of several, `jpg;png;webp`; a field of a member with a JSON
object, `json.caption`, `meta.json.author.name`; or `__key__`, the sample's key. Extensions ignore case. Local files are
cut at samples; compressed files, and those at URLs, are one chunk each. Images in uncompressed files are delivered as
references, without a copy.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.faults import Fault, Faults, NoRowError, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.tar_samples import DamagedTarError, Member, Tar, TarSample, samples
from recordmill.pipeline.sources.images import inline, to_piece
from recordmill.pipeline.sources.options import WebDataset
from recordmill.pipeline.sources.paths import is_utf8, join, note, path_key
from recordmill.pipeline.sources.source_reader import ArchiveReader, Chunk, FileRange, Key, Plan, TypedRows, at_once
from recordmill.pipeline.sources.typing.arrays import arrow_type, in_groups, lists_of_one, python_field, python_names
from recordmill.pipeline.sources.typing.python_values import json_object, typed_objects
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Column, Columns, ColumnType, ImageBase

KEY = "__key__"
HEAD_SAMPLES = 100  # read by the plan


@dataclass
class FileLook:
    """The result of looking at a file, or at its first samples."""

    starts: list[int] = field(default_factory=lambda: [0])
    rows: int = 0
    extensions: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)  # the names of members outside of samples
    no_end: bool = False  # whether the tar file's end mark is missing
    damage: str = ""  # the damage, as a message; empty for a good file


class WebDatasetReader(ArchiveReader[WebDataset]):
    """Reads tar files of WebDataset."""

    endings: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz")

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts local files at samples and counts rows; estimates other files by their first samples."""
        looks = at_once(partial(_look, files, root, self.chunk_bytes(columns, chunk_bytes)), inputs)
        chunks = list[Chunk]()
        for file, look in zip(inputs, looks, strict=True):
            chunks += FileRange.chunks_of(file, [FileRange(start, _size(file), _size(file)) for start in look.starts])
        extensions = sorted({extension for look in looks for extension in look.extensions})
        if not extensions:
            damage = next((f": {look.damage}" for look in looks if look.damage), "")
            error = SourceError if damage or any(look.left_out for look in looks) else NoRowError
            raise error(f"{join(root, inputs[0].path)} holds no sample, such as 0001.jpg and 0001.txt{damage}")
        objects = {extension for extension in extensions if extension.split(".")[-1] == "json"}
        path, part = join(root, inputs[0].path), FileRange(size=_size(inputs[0]))
        head = islice(_read(files, path, part, objects), HEAD_SAMPLES) if objects else ()
        fields = dict[str, None]()  # of JSON objects in the first samples, such as `json.caption`
        for sample in (sample for sample in head if isinstance(sample, TarSample)):
            for extension in sorted(objects & sample.members.keys()):
                row = _object_in(sample, extension)
                fields |= dict.fromkeys(f"{extension}.{name}" for name in python_names(row))
        found = [*extensions, *fields]
        ways = {name: {f"{end}.{inner}" if inner else end for end, inner in parts(name)} for name in columns}
        names = [name for name, ends in ways.items() if name == KEY or not ends.isdisjoint(found)]
        names += [name for name in found if not any(name in ends for ends in ways.values())]
        rows, referred = sum(look.rows for look in looks), self.referred_bytes(columns, chunks)
        left_out = [name for look in looks for name in look.left_out]
        no_end = [file.path for file, look in zip(inputs, looks, strict=True) if look.no_end]
        notes = note("members outside of samples, left out", left_out)
        notes += note("perhaps cut off: the tar file's end mark is missing", no_end)
        return Plan(chunks, rows, names=names, notes=notes, referred_bytes=referred)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads the samples that start in the chunk; the default key is the sample's."""
        base, file = self.image_base(files, chunk), chunk.file if chunk.work.size is not None else None
        made = {name: SampleColumn(name, column, file, base) for name, column in columns.items()}
        path = join(self.root(files), chunk.file)
        wanted = frozenset(  # images stay in an uncompressed file
            extension
            for name, column in columns.items()
            for extension, inner in parts(name)
            if file is None or inner is not None or column.type is not ColumnType.IMAGE
        )
        read = _read(files, path, chunk.work, wanted)
        for batch in batches(read, _bytes, 4096):
            good, broken, broken_keys, faults = dict[int, TarSample](), Faults(), dict[int, str | None](), Faults()
            for position, sample in enumerate(batch):
                if isinstance(sample, str):
                    broken[position] = Fault("damaged_record", sample)
                elif not is_utf8(sample.key):
                    broken[position] = Fault("invalid_utf8", "the sample's name is not UTF-8")
                elif sample.twice:
                    broken[position] = Fault("malformed_row", f"the sample has two members .{sample.twice}")
                    broken_keys[position] = sample.key if key is None else None
                else:
                    good[position] = sample
            typed = {name: column.typed(list(good.values()), faults) for name, column in made.items()}
            keys = (path_key(sample.key) for sample in good.values())
            yield TypedRows(typed, len(batch), faults, np.array(list(good), np.int64), keys, broken, broken_keys)


def _size(file: FileInfo) -> int | None:
    return None if file.path.lower().endswith((".gz", ".tgz")) else file.bytes


def _look(files: Files, root: str, chunk_bytes: int, file: FileInfo) -> FileLook:
    """Walks through a file, or through the first samples of a compressed or remote one."""
    look, path, size = FileLook(), join(root, file.path), _size(file)
    limit = HEAD_SAMPLES if size is None or "://" in path else None
    with files.open(path) as opened:
        tar = Tar(opened, size)
        try:
            for sample in samples(tar, (), look.left_out.append):
                if look.rows == limit:
                    look.rows = round(limit * file.bytes / tar.consumed)
                    break
                look.rows += 1
                look.extensions |= sample.members.keys()
                if limit is None and sample.start - look.starts[-1] >= chunk_bytes:
                    look.starts.append(sample.start)
            else:
                look.no_end = not tar.has_end
        except DamagedTarError as damage:
            look.rows += 1
            look.damage = str(damage)
    if tar.has_global_headers:  # they apply to all later members
        look.starts = [0]
    return look


def _read(files: Files, path: str, part: FileRange, extensions: Collection[str]) -> Iterator[TarSample | str]:
    """Reads a piece's samples; yields the file's damage, if any, last."""
    with files.open(path) as opened:
        if part.start:
            opened.seek(part.start)
        try:
            for sample in samples(Tar(opened, part.size), extensions, lambda _: None):
                if part.end is not None and sample.start >= part.end:
                    return
                yield sample
        except DamagedTarError as damage:
            yield f"{damage}; this sample and the rest of the file cannot be read"


def _bytes(sample: TarSample | str) -> int:
    return sum(len(member.data or b"") for member in sample.members.values()) if isinstance(sample, TarSample) else 0


def parts(name: str) -> list[tuple[str, str | None]]:
    """Lists the members' extensions for a column, each with a field of a JSON object or None; the first present counts.

    >>> parts("jpg;json.url")
    [('jpg', None), ('json.url', None), ('json', 'url')]
    """
    result = list[tuple[str, str | None]]()
    for alternative in name.split(";"):
        words = alternative.strip().split(".")
        result.append((".".join(words).lower(), None))
        for end in range(1, len(words)):
            if words[end - 1].lower() == "json":
                result.append((".".join(words[:end]).lower(), ".".join(words[end:])))
    return result


def _object_in(sample: TarSample, extension: str) -> dict[str, Any] | Fault:
    if extension not in sample.objects:
        sample.objects[extension] = json_object(sample.members[extension].data or b"", f"the member .{extension}")
    return sample.objects[extension]


class SampleColumn:
    """A column of samples."""

    def __init__(self, name: str, column: Column, file: str | None, base: ImageBase) -> None:
        """Takes the tar file if images can stay in it; image paths in JSON are relative to `base`."""
        self._name, self._column, self._parts = name, column, parts(name)
        self._file, self._base = file, base

    def typed(self, samples: Sequence[TarSample], faults: Faults) -> pa.Array:
        """Returns the column in its Arrow type, shape [samples], null where missing; adds faults."""
        members, values = dict[int, Member](), dict[int, Any]()
        for row, sample in enumerate(samples):
            value = sample.key if self._name == KEY else self._value(sample)
            if isinstance(value, Fault):
                faults.setdefault(row, value)
            elif isinstance(value, Member):
                members[row] = value
            else:
                values[row] = value
        of_values = partial(typed_objects, self._name, self._column, list(values.values()), self._base)
        groups = [(list(members), partial(self._of_members, list(members.values()))), (list(values), of_values)]
        return in_groups(len(samples), arrow_type(self._column), groups, faults)

    def _value(self, sample: TarSample) -> Any:
        """Finds the column's member or field value; None if the sample has neither."""
        for extension, inner in self._parts:
            member = sample.members.get(extension)
            if member is None:
                continue
            if inner is None and self._column.type is ColumnType.IMAGE and self._file is not None:
                return member
            if member.data is None:
                return Fault("too_large", f"the member .{extension} is longer than 64 MiB", self._name)
            if inner is None:
                return member
            row = _object_in(sample, extension)
            value = replace(row, column=self._name) if isinstance(row, Fault) else python_field(row, inner)
            if value is not None:
                return value
        return None

    def _of_members(self, members: list[Member], faults: Faults) -> pa.Array:
        if self._column.type is ColumnType.IMAGE:
            if self._file is None:
                made = [inline(each.data or b"") for each in members]
            else:
                made = [to_piece(self._file, each.offset, each.size) for each in members]
            references = pa.array(made, pa.binary(), mask=np.array([not each.size for each in members], bool))
            return lists_of_one(references) if self._column.many else references
        data = [member.data or b"" for member in members]
        if self._column.is_blob:
            return typed_values(self._name, self._column, pa.array(data, pa.binary()), self._base, faults)
        if self._column.type is not ColumnType.TEXT or self._column.many:
            data = [cell.rstrip(b"\r\n") for cell in data]
        cells = pa.array(data, pa.binary()).view(pa.string())
        return typed_values(self._name, self._column, cells, self._base, faults, as_cells=True)
