"""Captions beside images: `cat/1.txt` and `cat/1.json` beside `cat/1.jpg`.

A text file is the column `text`, without one line break at its end. A JSON file is one object: its fields are columns,
also those inside others (`meta.author`); a list of objects gives a list of their field's values.
"""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.paths import join
from recordmill.pipeline.sources.text.whole_files import read_texts
from recordmill.pipeline.sources.typing.arrays import arrow_type, in_groups
from recordmill.pipeline.sources.typing.faults import Fault, Faults
from recordmill.pipeline.sources.typing.fields import python_field, python_names
from recordmill.pipeline.sources.typing.json_objects import json_object
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.pipeline.sources.typing.values import typed_values

TEXT, TEXT_ENDING, OBJECT_ENDING = "text", ".txt", ".json"
PEEKED_FILES = 100

Sizes = Sequence[int | None]
"""The size in bytes of the file beside each image; None where it has no such file."""


@dataclass(frozen=True)
class Captions:
    """The files that lie beside some images, and are read."""

    texts: Sizes | None = None
    """None where texts are not read."""
    objects: Sizes | None = None

    def bytes(self, images: int) -> npt.NDArray[np.int64]:
        """Gives the number of bytes that lie beside each image, shape [images]."""
        sizes = np.zeros(images, np.int64)
        for read in (self.texts, self.objects):
            if read is not None:
                sizes += np.array([size or 0 for size in read], np.int64)
        return sizes

    def __getitem__(self, rows: slice) -> "Captions":
        """Gives those of some of the images."""
        return Captions(self.texts and self.texts[rows], self.objects and self.objects[rows])


def beside(path: str, ending: str) -> str:
    """Gives the path of the file beside an image."""
    return posixpath.splitext(path)[0] + ending


def first_names(files: Files, root: str, paths: Sequence[str]) -> list[str]:
    """Lists the columns that the first of some JSON files have; those that are no object are passed over.

    Raises:
        OSError: the machine, the disk or the network failed.
    """
    first = paths[:PEEKED_FILES]
    rows = _objects(files, root, first, [0] * len(first), {})
    return list(dict.fromkeys(name for row in rows for name in python_names(row or {})))


def read_captions(
    files: Files, root: str, paths: Sequence[str], captions: Captions, columns: Columns, faults: Faults
) -> dict[str, pa.Array]:
    """Reads the columns that come of the files beside some images, each of shape [paths], unchecked.

    Raises:
        OSError: the machine, the disk or the network failed.
    """
    read = {}
    if captions.texts is not None and TEXT in columns:
        texts = _contents(files, root, paths, TEXT_ENDING, captions.texts, faults, TEXT)
        cells = pa.array([text and _text(text) for text in texts], pa.binary())
        read[TEXT] = typed_values(TEXT, columns[TEXT], cells.view(pa.string()), (root, ""), faults, as_cells=True)
    asked = {name: column for name, column in columns.items() if name not in read}
    if captions.objects is not None and asked:
        rows = _objects(files, root, paths, captions.objects, faults)
        for name, column in asked.items():
            values = [None if row is None else python_field(row, name) for row in rows]
            read[name] = _typed(name, column, values, root, paths, faults)
    return read


def _text(data: bytes) -> bytes:
    return data.removesuffix(b"\n").removesuffix(b"\r") if data.endswith(b"\n") else data


def _objects(
    files: Files, root: str, paths: Sequence[str], sizes: Sizes, faults: Faults
) -> list[dict[str, Any] | None]:
    """The objects beside some images, None for one that is absent or bad."""
    rows = list[dict[str, Any] | None]()
    for row, data in enumerate(_contents(files, root, paths, OBJECT_ENDING, sizes, faults)):
        value = data if data is None else json_object(data, f"the {OBJECT_ENDING} beside the image")
        if isinstance(value, Fault):
            faults.setdefault(row, value)
        rows.append(None if isinstance(value, Fault) else value)
    return rows


def _contents(
    files: Files,
    root: str,
    paths: Sequence[str],
    ending: str,
    sizes: Sizes,
    faults: Faults,
    column: str | None = None,
) -> list[bytes | None]:
    """The bytes of the files beside some images, None for one that is absent or cannot be read."""
    full = [None if size is None else join(root, beside(path, ending)) for path, size in zip(paths, sizes, strict=True)]
    contents = list[bytes | None]()
    for row, content in enumerate(read_texts(files, full, what=f"the {ending} beside the image")):
        if isinstance(content, Fault):
            faults.setdefault(row, replace(content, column=column))
        contents.append(None if isinstance(content, Fault) else content)
    return contents


def _typed(
    name: str, column: Column, values: Sequence[object], root: str, paths: Sequence[str], faults: Faults
) -> pa.Array:
    """Makes a column of JSON's values; the paths of images in it are relative to the JSON file's folder."""
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
