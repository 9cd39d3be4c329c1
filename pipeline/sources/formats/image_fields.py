"""Columns from an image's path, and metadata fields with such paths, named as in Hugging Face's ImageFolder.

`file_name` is an image's path, and `depth_file_name` the path of the column `depth`; `file_names` (the column `images`)
and `frames_file_names` are lists of paths.

>>> fields = ImageFields.of(["file_name", "depth_file_name", "frames_file_names", "label"])
>>> fields.columns
{'image': 'file_name', 'depth': 'depth_file_name', 'frames': 'frames_file_names'}
>>> fields.of_path
['image', 'file_name', 'split']
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.dataset.placement import join_key
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.faults import Fault, Faults, add_faults
from recordmill.pipeline.sources.images import file_path, to_file
from recordmill.pipeline.sources.paths import path_key
from recordmill.pipeline.sources.source_reader import Block, Chunk, Key
from recordmill.pipeline.sources.typing.arrays import absent, arrow_type, as_lists, lists_of_one, strings
from recordmill.pipeline.sources.typing.blocks import TypedRows, make_block
from recordmill.pipeline.sources.typing.values import typed_values

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


def reads_split(columns: Columns, others: Sequence[str] = ()) -> bool:
    """Whether the first folder is the split; `others` are columns from elsewhere."""
    return SPLIT in columns and SPLIT not in others


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


def with_paths(chunk: Chunk, block: Block, columns: Columns, fields: ImageFields, key: Key) -> Block:
    """Converts a metadata block, with the columns of `fields.asked`, to one with the asked columns and keys."""
    paths = {field: paths_of(block.table[field]) for field in fields.fields if field in block.table.column_names}
    named = list(zip(*(paths[field] for field in fields.mains), strict=True))
    faults = {row: fault for row, lists in enumerate(named) if (fault := _unnamed(fields.mains, lists))}
    first_is_split = reads_split(columns, fields.others)
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
    rejects = block.rejects
    if key is None and fields.is_path(key):  # like the default key
        rejects = [replace(reject, key=reject.key and path_key(reject.key).decode()) for reject in rejects]
    keys = pa.array([_key(fields, lists) for lists in named], pa.binary()) if key is None else None
    raw = TypedRows(values, block.table["@position"].to_numpy(), keys, block.positions, faults, rejects)
    return make_block(chunk, raw, columns, key)


def paths_of(references: pa.ChunkedArray) -> list[list[str | None]]:
    """Returns the paths of each row's images; None for inline bytes."""
    rows = references.to_pylist()
    lists = rows if pt.is_list(references.type) else [reference and [reference] for reference in rows]
    return [[reference and file_path(reference) for reference in some or ()] for some in lists]


def _unnamed(mains: Sequence[str], lists: Sequence[list[str | None]]) -> Fault | None:
    """Returns the fault of a row without paths in `lists`, the values of its identifying fields."""
    bad = next((field for field, paths in zip(mains, lists, strict=True) if None in paths), None)
    if bad:
        return Fault("wrong_type", "wanted a path, found a data: URL", bad)
    return None if any(lists) else Fault("missing_value", "the row names no image", mains[0])


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
