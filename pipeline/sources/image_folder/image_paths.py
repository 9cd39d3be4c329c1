"""The columns that come of an image's path, in a folder of images: the image, its name, its class and its split.

>>> path_column("label", Column(ColumnType.CATEGORY), ["train/cat/1.jpg", "2.jpg"], {}).to_pylist()
['cat', None]
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.image_refs import to_file
from recordmill.pipeline.sources.typing.arrays import lists_of_one, strings
from recordmill.pipeline.sources.typing.faults import Faults
from recordmill.pipeline.sources.typing.values import typed_values

IMAGE, FILE_NAME, LABEL, SPLIT = "image", "file_name", "label", "split"
OF_PATH = (IMAGE, FILE_NAME, LABEL, SPLIT)


def path_column(
    name: str, column: Column, paths: Sequence[str | None], faults: Faults, *, reads_split: bool = False
) -> pa.Array:
    """Makes one of the columns `OF_PATH`, of `arrow_type(column)` and shape [paths]; a list has one value.

    Args:
        name: the column.
        column: what is asked for.
        paths: the images' paths, relative to the folder; None where it is not known.
        faults: where the faults are added, by row.
        reads_split: whether the first folder is read as the split, and is no class then.
    """
    cells = [path and _cell(name, path, reads_split) for path in paths]
    if column.type is ColumnType.IMAGE:
        values = pa.array([cell and to_file(cell) for cell in cells], pa.binary())
    else:
        values = typed_values(name, replace(column, many=False), strings(cells), ("", ""), faults, as_cells=True)
    return lists_of_one(values) if column.many else values


def reads_split(columns: Columns, others: Sequence[str] = ()) -> bool:
    """Whether the first folder is read as the split; `others` are the columns that do not come of the path."""
    return SPLIT in columns and SPLIT not in others


def _cell(name: str, path: str, first_is_split: bool) -> str | None:
    if name not in (LABEL, SPLIT):
        return path
    folders = path.split("/")[:-1]
    if name == SPLIT:
        return folders[0] if folders else None
    return folders[-1] if len(folders) > first_is_split else None
