"""A folder of images without metadata: an image is a row, with captions in files beside it.

Captions of `cat/1.jpg` are `cat/1.txt`, the column `text` without one final line break, and `cat/1.json`, an object
with a column for each field, including nested ones (`meta.author`); a list of objects gives a list of their field's
values.
"""

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.sources.batches import BLOCK_BYTES, cut, even_parts, pack
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType, required
from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats.image_fields import OF_PATH, path_column, reads_split
from recordmill.pipeline.sources.formats.text import read_texts
from recordmill.pipeline.sources.paths import SUFFIXES, check_names, is_image, note, path_key
from recordmill.pipeline.sources.source_reader import Block, Chunk, Plan, SourceError, WholeFiles
from recordmill.pipeline.sources.typing.arrays import arrow_type, in_groups, python_field, python_names
from recordmill.pipeline.sources.typing.blocks import TypedRows, make_block
from recordmill.pipeline.sources.typing.python_values import json_object, typed_objects
from recordmill.pipeline.sources.typing.values import typed_values

TEXT, TEXT_ENDING, OBJECT_ENDING = "text", ".txt", ".json"
CAPTION_ENDINGS = (TEXT_ENDING, OBJECT_ENDING)
PEEKED_FILES = 100
ROW_BYTES = 2 << 10  # 2 KiB: the cost of an image's row; 8 MiB are 4,096 images
Sizes = Sequence[int | None]
"""The size in bytes of the file beside each image; None without one."""
Captions = Mapping[str, Sizes]
"""The sizes of used files beside images, by ending."""


@dataclass(frozen=True)
class Listing(WholeFiles):
    """A chunk: images' paths, and the used files beside them."""

    captions: Captions


def plan_listing(
    path: str, root: str, found: Sequence[FileInfo], files: Files, columns: Columns, chunk_bytes: int
) -> Plan:
    """Plans the images among files relative to `root`. Raises: SourceError: no image, or an asked column is missing."""
    images, others = FileList(), FileList()
    for file in found:
        (images if is_image(file.path) else others).append(file)
    if not images:
        raise SourceError(f"{path} holds no metadata file and no image ({', '.join(sorted(SUFFIXES))})")
    side = _Beside(images, others)
    endings = _endings([name for name in columns if name not in OF_PATH], side)
    names = side.columns(files, root)
    check_names(path, required(columns), names, _where(side.endings))
    read = {name for ending in endings for name in side.names(ending)}
    inputs = FileList(file for file in found if file.path in read or is_image(file.path)) if read else images
    chunks, beside = _chunks(images, side, endings, chunk_bytes)
    total = sum(chunk.bytes for chunk in chunks)
    notes = _notes(others, side, endings)
    return Plan(chunks, len(images), total, inputs, notes, True, names, OF_PATH, referred_bytes=total - beside)


def captions_of(images: Iterable[FileInfo], others: Iterable[FileInfo]) -> list[FileInfo]:
    """Lists possible captions of images: files with the same name except for the ending."""
    captions = [file for file in others if file.path.endswith(CAPTION_ENDINGS)]
    stems = {posixpath.splitext(file.path)[0] for file in images} if captions else frozenset[str]()
    return [file for file in captions if posixpath.splitext(file.path)[0] in stems]


class _Beside:
    """The files beside images."""

    def __init__(self, images: Sequence[FileInfo], others: Sequence[FileInfo]) -> None:
        captions = captions_of(images, others)
        self._stems = [posixpath.splitext(file.path)[0] for file in images] if captions else []
        self._sizes: dict[str, dict[str, int]] = {ending: {} for ending in CAPTION_ENDINGS}
        for file in captions:
            stem, ending = posixpath.splitext(file.path)
            self._sizes[ending][stem] = file.bytes

    @property
    def endings(self) -> list[str]:
        return [ending for ending, sizes in self._sizes.items() if sizes]

    def columns(self, files: Files, root: str) -> list[str]:
        """Lists the columns of images, and of the first files beside them."""
        texts, first = [TEXT] if TEXT_ENDING in self.endings else [], self.names(OBJECT_ENDING)[:PEEKED_FILES]
        rows = _objects(files, root, first, [0] * len(first), {})
        return list(dict.fromkeys([*OF_PATH, *texts, *(name for row in rows for name in python_names(row or {}))]))

    def sizes(self, ending: str) -> tuple[int | None, ...]:
        return tuple(map(self._sizes[ending].get, self._stems))

    def names(self, ending: str) -> list[str]:
        """Lists the files beside images."""
        return [stem + ending for stem in self._sizes[ending]]


def _endings(asked: Collection[str], side: _Beside) -> list[str]:
    """Finds the endings of files with asked columns; text files, if any, give `text`."""
    endings = [TEXT_ENDING] if TEXT in asked and TEXT_ENDING in side.endings else []
    others = [name for name in asked if not (name == TEXT and endings)]
    return [*endings, OBJECT_ENDING] if others and OBJECT_ENDING in side.endings else endings


def _where(endings: list[str]) -> str:
    if OBJECT_ENDING in endings:
        return f" in the first {OBJECT_ENDING} files beside its images"
    beside = OBJECT_ENDING if endings else f"{TEXT_ENDING} or {OBJECT_ENDING}"
    return f" and neither a metadata file nor {beside} beside its images"


def _chunks(images: Sequence[FileInfo], side: _Beside, endings: list[str], chunk_bytes: int) -> tuple[list[Chunk], int]:
    captions = {ending: side.sizes(ending) for ending in endings}
    beside = _bytes(captions, len(images))
    parts = even_parts(ROW_BYTES + beside, chunk_bytes)
    chunks = list[Chunk]()
    for part, files in zip(parts, cut(images, parts), strict=True):
        size = sum(file.bytes for file in files) + int(beside[part].sum())
        chunks.append(Chunk(0, 0, "", size, Listing(pack([file.path for file in files]), _of(captions, part))))
    return chunks, int(beside.sum())


def _bytes(captions: Captions, images: int) -> npt.NDArray[np.int64]:
    """Returns the bytes of files beside each image, shape [images]."""
    total = np.zeros(images, np.int64)
    for sizes in captions.values():
        total += np.array([size or 0 for size in sizes], np.int64)
    return total


def _of(captions: Captions, images: slice) -> Captions:
    return {ending: sizes[images] for ending, sizes in captions.items()}


def _notes(others: Sequence[FileInfo], side: _Beside, endings: list[str]) -> list[str]:
    notes, read = list[str](), {name for ending in endings for name in side.names(ending)}
    alone = [file.path for file in others if file.path.endswith(tuple(endings)) and file.path not in read]
    for ending in endings:
        without = side.sizes(ending).count(None)
        notes += [f"images without a {ending} beside them: {without:,}"] if without else []
        notes += note(f"skipped {ending} without an image", [path for path in alone if path.endswith(ending)])
    unread = sorted(name for ending in side.endings if ending not in endings for name in side.names(ending))
    notes += note("unused files beside images", unread)
    left = read.union(alone, unread)
    return notes + note("skipped other files", [file.path for file in others if file.path not in left])


def read_listing(chunk: Chunk, root: str, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
    """Reads a chunk's rows."""
    listing: Listing = chunk.work
    names = listing.names
    for part in even_parts(ROW_BYTES + _bytes(listing.captions, len(names)), BLOCK_BYTES):
        paths, faults = names[part], Faults()
        of_path = [name for name in columns if name in OF_PATH]
        is_split, others = reads_split(columns), {name: columns[name] for name in columns if name not in of_path}
        read = {name: path_column(name, columns[name], paths, faults, reads_split=is_split) for name in of_path}
        read |= read_captions(files, root, paths, _of(listing.captions, part), others, faults)
        lacking = {name: pa.nulls(len(paths), arrow_type(columns[name])) for name in others.keys() - read.keys()}
        values = {name: (read | lacking)[name] for name in columns}
        keys = pa.array([path_key(path) for path in paths], pa.binary()) if key is None else None
        raw = TypedRows(values, np.arange(part.start, part.stop), keys, len(paths), faults)
        yield make_block(chunk, raw, columns, key)


def read_captions(
    files: Files, root: str, paths: Sequence[str], captions: Captions, columns: Columns, faults: Faults
) -> dict[str, pa.Array]:
    """Reads the columns from files beside images, each of shape [paths], unchecked."""
    read = {}
    if TEXT_ENDING in captions and TEXT in columns:
        texts = _contents(files, root, paths, TEXT_ENDING, captions[TEXT_ENDING], faults, TEXT)
        cells = pa.array([text and _without_line_end(text) for text in texts], pa.binary())
        read[TEXT] = typed_values(TEXT, columns[TEXT], cells.view(pa.string()), (root, ""), faults, as_cells=True)
    asked = {name: column for name, column in columns.items() if name not in read}
    if OBJECT_ENDING in captions and asked:
        rows = _objects(files, root, paths, captions[OBJECT_ENDING], faults)
        for name, column in asked.items():
            values = [None if row is None else python_field(row, name) for row in rows]
            read[name] = _typed(name, column, values, root, paths, faults)
    return read


def _without_line_end(data: bytes) -> bytes:
    return data.removesuffix(b"\n").removesuffix(b"\r") if data.endswith(b"\n") else data


def _objects(
    files: Files, root: str, paths: Sequence[str], sizes: Sizes, faults: Faults
) -> list[dict[str, Any] | None]:
    """Parses the objects beside images; None for missing and bad ones."""
    rows = list[dict[str, Any] | None]()
    for row, data in enumerate(_contents(files, root, paths, OBJECT_ENDING, sizes, faults)):
        value = data if data is None else json_object(data, f"the {OBJECT_ENDING} beside the image")
        if isinstance(value, Fault):
            faults.setdefault(row, value)
        rows.append(None if isinstance(value, Fault) else value)
    return rows


def _contents(
    files: Files, root: str, paths: Sequence[str], ending: str, sizes: Sizes, faults: Faults, column: str | None = None
) -> list[bytes | None]:
    """Reads the files beside images; None for missing and unreadable ones."""
    beside = [
        None if size is None else posixpath.splitext(path)[0] + ending for path, size in zip(paths, sizes, strict=True)
    ]
    contents = list[bytes | None]()
    for row, content in enumerate(read_texts(files, root, beside, what=f"the {ending} beside the image")):
        if isinstance(content, Fault):
            faults.setdefault(row, replace(content, column=column))
        contents.append(None if isinstance(content, Fault) else content)
    return contents


def _typed(
    name: str, column: Column, values: Sequence[object], root: str, paths: Sequence[str], faults: Faults
) -> pa.Array:
    """Makes a column from JSON values; image paths are relative to the JSON file's folder."""
    if column.type is not ColumnType.IMAGE:
        return typed_objects(name, column, values, (root, ""), faults)
    folders = dict[str, list[int]]()
    for row, path in enumerate(paths):
        folders.setdefault(posixpath.dirname(path), []).append(row)
    groups = [
        (rows, partial(typed_objects, name, column, [values[row] for row in rows], (root, folder)))
        for folder, rows in folders.items()
    ]
    return in_groups(len(values), arrow_type(column), groups, faults)
