"""Columns of images by names: from an image's path, from files beside it, and from metadata fields with such paths.

Fields are named as in Hugging Face's ImageFolder: `file_name` is an image's path, and `depth_file_name` the path of the
column `depth`; `file_names` (the column `images`) and `frames_file_names` are lists of paths.

>>> fields = ImageFields.of(["file_name", "depth_file_name", "frames_file_names", "label"])
>>> fields.columns
{'image': 'file_name', 'depth': 'depth_file_name', 'frames': 'frames_file_names'}
>>> fields.of_path
['image', 'file_name', 'split']

Files beside images, such as masks, pair by name. A pattern says where files lie and what their names have around the
part in common: `masks/*` is the folder `masks` in an image's path, `*_mask` an ending of the name, `*_labels/*_L` both,
of `train/1.png` the file `train_labels/1_L.png`. `masks` alone means `masks/*`. The pattern of `image` says the same of
the images; by default all others are images, and any of their folders may stand for the file's.

>>> Pattern.of("masks").key("train/masks/1.png"), Pattern.of("*_labels/*_L").key("train_labels/1_L.png")
('train/1', 'train/1')
>>> Pattern.of("masks").find({"train/1": FileInfo("train/masks/1.png", 9, 0.0)}, "train/images/1").path
'train/masks/1.png'
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.dataset.placement import join_key
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.batches import pack
from recordmill.pipeline.sources.faults import Fault, Faults, add_faults
from recordmill.pipeline.sources.files import FileInfo, FileList
from recordmill.pipeline.sources.images import file_path, to_file
from recordmill.pipeline.sources.paths import image_test, may_be_image, note, path_key
from recordmill.pipeline.sources.source_reader import Block, Key, TypedRows, WholeFiles
from recordmill.pipeline.sources.typing.arrays import absent, arrow_type, as_lists, lists_of_one, strings
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Column, Columns, ColumnType

IMAGE, FILE_NAME, LABEL, SPLIT = "image", "file_name", "label", "split"
OF_PATH = (IMAGE, FILE_NAME, LABEL, SPLIT)


def path_column(
    name: str, column: Column, paths: Sequence[str | None], faults: Faults, *, reads_split: bool = False
) -> pa.Array:
    """Makes one of the columns `OF_PATH`, of `arrow_type(column)` and shape [paths]; a list has one value.

    Paths are relative to the folder of images, None if unknown. With `reads_split` the first folder is the split, not a
    class. Adds faults by row.

    >>> path_column("label", Column(ColumnType.CATEGORY), ["train/cat/1.jpg", "2.jpg"], {}).to_pylist()
    ['cat', None]
    """
    cells = [path and _cell(name, path, reads_split) for path in paths]
    if column.type is ColumnType.IMAGE:
        values = pa.array([cell and to_file(cell) for cell in cells], pa.binary())
    else:
        values = typed_values(name, replace(column, many=False), strings(cells), ("", ""), faults, as_cells=True)
    return lists_of_one(values) if column.many else values


def _cell(name: str, path: str, first_is_split: bool) -> str | None:
    if name not in (LABEL, SPLIT):
        return path
    folders = path.split("/")[:-1]
    if name == SPLIT:
        return folders[0] if folders else None
    return folders[-1] if len(folders) > first_is_split else None


@dataclass(frozen=True)
class ImageFields:
    """The fields of image paths in all metadata files of a folder."""

    columns: Mapping[str, str]  # the fields, by image column
    others: tuple[str, ...]  # `label` and `split`, if the metadata has them

    @classmethod
    def of(cls, names: Iterable[str]) -> "ImageFields":
        names, columns = list(names), {}
        for name in names:
            for ending, column in ((FILE_NAME, IMAGE), (f"{FILE_NAME}s", f"{IMAGE}s")):
                if name == ending:
                    columns[column] = name
                elif name.endswith(f"_{ending}") and "." not in name:
                    columns[name.removesuffix(f"_{ending}")] = name
        return cls(columns, tuple(name for name in (LABEL, SPLIT) if name in names))

    @property
    def fields(self) -> list[str]:
        return list(self.columns.values())

    @property
    def mains(self) -> list[str]:
        """The fields that identify a row: `file_name` if present, else all."""
        return [FILE_NAME] if FILE_NAME in self.fields else sorted(self.fields)

    @property
    def of_path(self) -> list[str]:
        """The columns from the path in `file_name`."""
        return [name for name in OF_PATH if name not in self.others] if FILE_NAME in self.fields else []

    def field(self, name: str) -> str:
        return self.columns.get(name, name)

    def references(self) -> dict[str, Column]:
        """Returns the columns that ask a metadata file for all image references."""
        return {field: _image(field, optional=True) for field in self.fields}

    def asked(self, columns: Columns) -> dict[str, Column]:
        """Returns the columns to ask of a metadata file: image references, and those not from a path."""
        optional = {field: field != FILE_NAME for field in self.mains}
        for name, column in columns.items():
            field = self.field(name)
            if field in self.fields:
                optional[field] = optional.get(field, True) and column.optional
        images = {field: _image(field, optional=may_lack) for field, may_lack in optional.items()}
        taken = {*self.columns, *self.fields, *self.of_path}
        return images | {name: column for name, column in columns.items() if name not in taken}

    def is_path(self, key: Key) -> bool:
        """Whether a key (None: the default) is the image's path."""
        return FILE_NAME in self.fields and (key is None or list(map(self.field, key)) == [FILE_NAME])

    def asked_key(self, key: Key, asked: Columns) -> Sequence[str]:
        """Returns the key that names a metadata file's rejects; empty if its columns lie elsewhere."""
        if self.is_path(key):
            return (FILE_NAME,)
        known = [name for name in key or () if name in asked and asked[name].type is not ColumnType.IMAGE]
        return known if known == list(key or ()) else ()


def _image(field: str, *, optional: bool) -> Column:
    return Column(ColumnType.IMAGE, many=field.endswith(f"{FILE_NAME}s"), optional=optional)


def with_paths(block: Block, first: int, columns: Columns, fields: ImageFields, key: Key) -> TypedRows:
    """Converts a metadata block with the columns of `fields.asked`, from position `first` on, to the asked columns."""
    paths = {field: paths_of(block.table[field]) for field in fields.fields if field in block.table.column_names}
    named = list(zip(*(paths[field] for field in fields.mains), strict=True))
    faults = Faults()
    for row, lists in enumerate(named):
        bad = next((field for field, some in zip(fields.mains, lists, strict=True) if None in some), None)
        if bad:
            faults[row] = Fault("wrong_type", "wanted a path, found a data: URL", bad)
        elif not any(lists):
            faults[row] = Fault("missing_value", "the row names no image", fields.mains[0])
    first_is_split = SPLIT in columns and SPLIT not in fields.others
    values = dict[str, pa.Array]()
    for name, column in columns.items():
        field = fields.field(name)
        if field in paths:
            values[name] = _of_images(name, column, block.table[field].combine_chunks(), paths[field], faults)
        elif name in fields.of_path:
            files = [some[0] if some else None for some in paths[FILE_NAME]]
            values[name] = path_column(name, column, files, faults, reads_split=first_is_split)
        else:
            values[name] = block.table[name].combine_chunks()
    broken, broken_keys, are_paths = Faults(), dict[int, str | None](), key is None and fields.is_path(key)
    for each in block.rejects:
        place = each.position - first
        broken[place] = Fault(each.reason, each.message, each.column, each.path)
        broken_keys[place] = path_key(each.key).decode() if each.key and are_paths else each.key
    positions, keys = block.table["@position"].to_numpy() - first, (_key(fields, lists) for lists in named)
    return TypedRows(values, block.positions, faults, positions, keys, broken, broken_keys)


def paths_of(references: pa.ChunkedArray) -> list[list[str | None]]:
    """Returns the paths of each row's images; None for inline bytes."""
    rows = references.to_pylist()
    lists = rows if pt.is_list(references.type) else [reference and [reference] for reference in rows]
    return [[reference and file_path(reference) for reference in some or ()] for some in lists]


def _key(fields: ImageFields, lists: Sequence[list[str | None]]) -> bytes | None:
    """Returns a row's default key; None if an image has no path."""
    if any(None in paths for paths in lists):
        return None
    keys = [[path_key(path or "") for path in paths] for paths in lists]
    if fields.mains == [FILE_NAME]:
        return keys[0][0]
    return join_key(join_key(key.decode() for key in some).decode() for some in keys)


def _of_images(name: str, column: Column, values: pa.Array, paths: list[list[str | None]], faults: Faults) -> pa.Array:
    """Returns the column of an image field, shape [rows]: references, or values from their paths."""
    if column.type is not ColumnType.IMAGE:
        flat = pa.array(chain.from_iterable(paths), pa.string())
        lists = as_lists(np.array(list(map(len, paths)), np.int64), flat, absent(values))
        cells = lists if pt.is_list(values.type) or column.many else pc.list_element(lists, 0)
        return typed_values(name, column, cells, ("", ""), faults)
    if pt.is_list(values.type) == column.many:
        return values
    if column.many:
        return lists_of_one(values)
    add_faults(faults, ~absent(values), Fault("wrong_type", "wanted one image, found a list", name))
    return pa.nulls(len(values), arrow_type(column))


class Pattern(NamedTuple):
    """The folders of files, and their names, each as an expression of the part in common."""

    folders: Sequence[re.Pattern[str]]
    name: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads `masks`, `masks/*`, `*_mask` or `*_labels/*_L`."""
        parts = (text if "*" in text else f"{text}/*").split("/")
        *folders, name = (re.compile(re.escape(part).replace(r"\*", "(.+)"), re.DOTALL) for part in parts)
        return cls(folders, name)

    def key(self, path: str) -> str | None:
        """Returns the path of a file's image, without what the pattern adds, and ending; None for other files."""
        *folders, name = posixpath.splitext(path)[0].split("/")
        named, count = self.name.fullmatch(name), len(self.folders)
        for place in range(len(folders) - count + 1 if named else 0):
            found = [each.fullmatch(part) for each, part in zip(self.folders, folders[place:], strict=False)]
            if named and all(found):
                kept = [part for each in found if each for part in each.groups()]
                return "/".join([*folders[:place], *kept, *folders[place + count :], named[1]])
        return None

    def find(self, files: Mapping[str, FileInfo], image: str) -> FileInfo | None:
        """Finds the file of an image's key among those by key."""
        *folders, name = image.split("/")
        ways = [folders]
        if self.folders:
            ways += [[*folders[:place], *folders[place + 1 :]] for place in range(len(folders))]
        return next((files[key] for way in ways if (key := "/".join([*way, name])) in files), None)


def image_place(beside: Mapping[str, str]) -> Callable[[str], str | None]:
    """Returns a function that takes an image's path to its key: by the pattern of `image`, else without the ending."""
    return Pattern.of(beside.get(IMAGE, "*")).key


@dataclass(frozen=True)
class Beside:
    """Files beside images by column: each image's file, or None; and notes about all columns."""

    columns: Mapping[str, Sequence[FileInfo | None]]
    notes: Sequence[str] = ()

    @classmethod
    def pair(
        cls, found: Sequence[FileInfo], given: Mapping[str, str], takes: Callable[[str], bool] = bool
    ) -> tuple[FileList, FileList, Self]:
        """Splits files into images, with those beside them, and others; without the images that `takes` refuses."""
        patterns = {column: Pattern.of(text) for column, text in given.items() if column != IMAGE}
        place = image_place(given)
        keyed = {column: dict[str, FileInfo]() for column in patterns}
        rest, again = list[FileInfo](), list[FileInfo]()
        for file in found:
            can_be = may_be_image(file.path)
            keys = [(name, key) for name, each in patterns.items() if can_be and (key := each.key(file.path))]
            for name, key in keys[:1]:
                again += [file] if keyed[name].setdefault(key, file) is not file else []
            rest += [] if keys else [file]
        is_one = image_test(file.path for file in rest)
        is_row = [is_one(file.path) and bool(place(file.path)) for file in rest]
        images = FileList(compress(rest, is_row))
        others = FileList([*compress(rest, (not each for each in is_row)), *again])
        are_taken = [takes(image.path) for image in images]
        left = [image.path for image, is_taken in zip(images, are_taken, strict=True) if not is_taken]
        columns, notes = {}, note("images that the list lacks, left out", left)
        for name, pattern in patterns.items():
            files = [pattern.find(keyed[name], place(image.path) or "") for image in images]
            alone = sorted({file.path for file in keyed[name].values()} - {file.path for file in files if file})
            columns[name] = [*compress(files, are_taken)]
            pairs = zip(compress(images, are_taken), columns[name], strict=True)
            without = [image.path for image, file in pairs if not file]
            notes += note(f"images without a file of '{name}'", without)
            where = f"`{given[name]}`, from `path` down, fits {count(len(keyed[name]), 'file')}"
            notes += [f"no image has a file of '{name}': {where}"] if len(without) == len(columns[name]) > 0 else []
            notes += note(f"files of '{name}' without an image, left out", alone)
        return FileList(compress(images, are_taken)), others, cls(columns, notes)

    def asked(self, names: Collection[str]) -> "Beside":
        """Keeps some columns."""
        return Beside({name: files for name, files in self.columns.items() if name in names})

    def part(self, images: slice) -> "Beside":
        """Returns the files of some images."""
        return Beside({name: files[images] for name, files in self.columns.items()})

    def files(self) -> Iterator[FileInfo]:
        """Yields all files."""
        return filter(None, chain.from_iterable(self.columns.values()))

    def packed(self) -> dict[str, WholeFiles]:
        """Packs each column's paths, empty without a file."""
        paths = {name: [file.path if file else "" for file in files] for name, files in self.columns.items()}
        return {name: WholeFiles(pack(some)) for name, some in paths.items()}
