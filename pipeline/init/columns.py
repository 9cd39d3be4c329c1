"""The columns that a source has, by their names."""

import posixpath
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from recordmill.pipeline.sources.base import FileInfo, Files, Source
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.image_folder.captions import OBJECT_ENDING, TEXT, TEXT_ENDING, beside, first_names
from recordmill.pipeline.sources.image_folder.image_paths import OF_PATH
from recordmill.pipeline.sources.image_folder.metadata import metadata_files, metadata_names
from recordmill.pipeline.sources.image_folder.metadata_fields import PictureFields
from recordmill.pipeline.sources.paths import SUFFIXES, is_image
from recordmill.pipeline.sources.table import Table
from recordmill.pipeline.sources.text.rows import FILE_NAME, LABEL, LINE
from recordmill.pipeline.sources.webdataset.sample_columns import KEY

JSON = "json"
LOOK_BYTES = 64 << 10  # 64 KiB: what a chunk has at least while nothing is read
ANY = Column(ColumnType.TEXT, optional=True)


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a source."""

    names: Sequence[str]
    of_path: Collection[str] = ()
    """Those that tell where a row lies, and hold nothing of it."""
    differ: bool = False
    """Whether the source's files do not all have the same columns."""


def source_columns(source: Source, files: Files) -> SourceColumns:
    """Looks at what a source has.

    Raises:
        SourceError: it cannot be read.
    """
    inputs = source.plan(files, {}, LOOK_BYTES).inputs
    root = source.root(files)
    if not isinstance(source, Table):
        return _folder_columns(files, root, inputs)
    names = source.cut(files, root, inputs, {}, LOOK_BYTES).names
    if source.format == "webdataset":
        asked = {f"{name}.*": ANY for name in names if name.rpartition(".")[2] == JSON}
        names = _members([*source.cut(files, root, inputs, asked, LOOK_BYTES).names])
    if source.format == "text":
        return SourceColumns(list(dict.fromkeys([*names, LABEL])), (FILE_NAME, LABEL, LINE))
    return SourceColumns(names, differ=_differ(source, files, root, inputs))


def _differ(source: Table, files: Files, root: str, inputs: Sequence[FileInfo]) -> bool:
    if source.format not in ("csv", "tsv", "parquet"):
        return False
    return len({frozenset(source.cut(files, root, [file], {}, LOOK_BYTES).names) for file in inputs}) > 1


def _members(names: list[str]) -> list[str]:
    """A WebDataset's columns; pictures of several formats are one column."""
    pictures = [name for name in names if f".{name}" in SUFFIXES]
    held = {name.rpartition(".")[0] for name in names}  # such as `json`, whose fields are columns
    others = [name for name in names if name not in (*pictures, *held, KEY) and not name.endswith(".*")]
    return [";".join(pictures), *others] if pictures else others


def _folder_columns(files: Files, root: str, inputs: list[FileInfo]) -> SourceColumns:
    """The columns of a folder of pictures: of its metadata, of the pictures' paths, and of what lies beside them."""
    metadata = metadata_files(inputs, root)
    if not metadata:
        return SourceColumns(list(dict.fromkeys([*OF_PATH, *_captions(files, root)])), OF_PATH)
    every = list(dict.fromkeys(chain.from_iterable(metadata_names(metadata, root, files).values())))
    fields = PictureFields.of(every)
    names = [name for name in fields.names(every) if name not in fields.fields]
    return SourceColumns(sorted(names, key=lambda name: name not in fields.columns), fields.of_path)


def _captions(files: Files, root: str) -> list[str]:
    """The columns of the files beside the pictures of a folder."""
    found = [file.path[len(root) + 1 :] for file in files.match(f"{escape(root)}/**")]
    pictures = [path for path in found if is_image(path)]
    there = frozenset(found)
    texts = [TEXT] if any(beside(path, TEXT_ENDING) in there for path in pictures) else []
    objects = [posixpath.normpath(path) for path in pictures if beside(path, OBJECT_ENDING) in there]
    return texts + (first_names(files, root, objects) if objects else [])
