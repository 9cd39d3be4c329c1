"""Captions beside pictures: `cat/1.txt` and `cat/1.json` beside `cat/1.jpg`.

A text file is the column `text`, without one line break at its end. A JSON file is one object: its fields are columns,
also those inside others (`meta.author`); a list of objects gives a list of their field's values.
"""

import json
import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.sources.absent_files import why_absent
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.lines import BYTE_ORDER_MARK, MAX_LINE_BYTES
from recordmill.pipeline.sources.paths import join
from recordmill.pipeline.sources.typing.arrow_values import merge
from recordmill.pipeline.sources.typing.checks import Fault, Faults
from recordmill.pipeline.sources.typing.python_values import python_field, python_names, typed_objects
from recordmill.pipeline.sources.typing.string_cells import typed_cells

TEXT, TEXT_ENDING, OBJECT_ENDING = "text", ".txt", ".json"
READERS = 16  # files that are read at once: on a filesystem far away it is the waiting that takes time
PEEKED_FILES = 100

Sizes = Sequence[int | None]
"""The size in bytes of the file beside each picture; None where there is none."""


@dataclass(frozen=True)
class Captions:
    """The files that lie beside some pictures, and are read."""

    texts: Sizes | None = None
    """None where texts are not read."""
    objects: Sizes | None = None

    def bytes(self, pictures: int) -> npt.NDArray[np.int64]:
        """How many bytes lie beside each picture, shape [pictures]."""
        sizes = np.zeros(pictures, np.int64)
        for read in (self.texts, self.objects):
            if read is not None:
                sizes += np.array([size or 0 for size in read], np.int64)
        return sizes

    def __getitem__(self, rows: slice) -> "Captions":
        """Those of some of the pictures."""
        return Captions(self.texts and self.texts[rows], self.objects and self.objects[rows])


def beside(path: str, ending: str) -> str:
    """The path of the file beside a picture."""
    return posixpath.splitext(path)[0] + ending


def first_names(files: Files, root: str, paths: Sequence[str]) -> list[str]:
    """The columns that the first of some JSON files have; those that are no object are passed over.

    Raises:
        OSError: the machine, the disk or the network failed.
    """
    sizes: Sizes = [0] * min(len(paths), PEEKED_FILES)
    rows, _ = _objects(files, root, paths[:PEEKED_FILES], sizes)
    return list(dict.fromkeys(name for row in rows for name in python_names(row or {})))


def read_captions(
    files: Files, root: str, paths: Sequence[str], captions: Captions, columns: Columns, faults: Faults
) -> dict[str, pa.Array]:
    """Reads the columns that come of the files beside some pictures, each of shape [paths], unchecked.

    Raises:
        OSError: the machine, the disk or the network failed.
    """
    read = {}
    if captions.texts is not None and TEXT in columns:
        texts, bad = _contents(files, root, paths, TEXT_ENDING, captions.texts)
        for row, fault in bad.items():
            faults.setdefault(row, replace(fault, column=TEXT))
        cells = pa.array([text and _text(text) for text in texts], pa.binary()).view(pa.string())
        read[TEXT] = typed_cells(TEXT, columns[TEXT], cells, faults)
    asked = {name: column for name, column in columns.items() if name not in read}
    if captions.objects is not None and asked:
        rows, bad = _objects(files, root, paths, captions.objects)
        for row, fault in bad.items():
            faults.setdefault(row, fault)
        for name, column in asked.items():
            values = [None if row is None else python_field(row, name) for row in rows]
            read[name] = _typed(name, column, values, root, paths, faults)
    return read


def _text(data: bytes) -> bytes:
    text = data.removeprefix(BYTE_ORDER_MARK)
    return text.removesuffix(b"\n").removesuffix(b"\r") if text.endswith(b"\n") else text


def _objects(files: Files, root: str, paths: Sequence[str], sizes: Sizes) -> tuple[list[dict[str, Any] | None], Faults]:
    """The objects beside some pictures, None where there is none or it is bad; and what is wrong with those."""
    contents, faults = _contents(files, root, paths, OBJECT_ENDING, sizes)
    rows = [data if data is None else _object(data) for data in contents]
    faults |= {row: found for row, found in enumerate(rows) if isinstance(found, Fault)}
    return [row if isinstance(row, dict) else None for row in rows], faults


def _object(data: bytes) -> dict[str, Any] | Fault:
    try:
        row = json.loads(data.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        where = f": {error.msg}, character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return Fault("malformed_row", f"the {OBJECT_ENDING} beside the image is not JSON{where}")
    if isinstance(row, dict):
        return row
    return Fault("malformed_row", f"the {OBJECT_ENDING} beside the image is not one JSON object")


def _contents(
    files: Files, root: str, paths: Sequence[str], ending: str, sizes: Sizes
) -> tuple[list[bytes | None], Faults]:
    """The bytes of the files beside some pictures, None where there is none or it cannot be read; and why not."""

    def read(path: str, size: int | None) -> bytes | Fault | None:
        if size is None:
            return None
        if size > MAX_LINE_BYTES:
            return Fault("too_large", f"the {ending} beside the image is longer than 64 MiB")
        return _content(files, join(root, beside(path, ending)), ending)

    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(read, paths, sizes))
    faults = {row: one for row, one in enumerate(found) if isinstance(one, Fault)}
    return [one if isinstance(one, bytes) else None for one in found], faults


def _content(files: Files, full: str, ending: str) -> bytes | Fault:
    try:
        with files.open(full) as file:
            return file.read()
    except OSError as error:
        why = why_absent(error, full, files)
        if why is None:
            raise
        return Fault("unreadable", f"the {ending} beside the image: {why}", path=full)


def _typed(
    name: str, column: Column, values: Sequence[object], root: str, paths: Sequence[str], faults: Faults
) -> pa.Array:
    """Makes a column of JSON's values; the paths of pictures in it are relative to the JSON file's folder."""
    if column.type is not ColumnType.IMAGE:
        return typed_objects(name, column, values, (root, ""), faults)
    folders = dict[str, list[int]]()
    for row, path in enumerate(paths):
        folders.setdefault(posixpath.dirname(path), []).append(row)
    parts = []
    for folder, rows in folders.items():
        inner: Faults = {}
        parts.append((rows, typed_objects(name, column, [values[row] for row in rows], (root, folder), inner)))
        for place, fault in inner.items():
            faults.setdefault(rows[place], fault)
    return merge(len(values), parts, column.arrow)
