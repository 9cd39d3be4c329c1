"""Open Images' CSV of boxes (`train-annotations-bbox.csv`), joined with existing images by name."""

import posixpath
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.sources.encoded import open_plain
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.formats.annotated_rows import LEAVING, AnnotatedRow, Found, Names, class_name
from recordmill.pipeline.sources.paths import check_names, join, note
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.sources.typing.values import numbers
from recordmill.transforms.contract.bounds import OBJECTS

IMAGE, IMAGE_ID, LABEL, BOX = "image", "ImageID", "LabelName", ("XMin", "YMin", "XMax", "YMax")
FLAGS = {
    "occluded": "IsOccluded", "truncated": "IsTruncated", "group": "IsGroupOf", "depiction": "IsDepiction",
    "inside": "IsInside",
}  # fmt: skip
UNKNOWN = -1
SLACK = 0.01  # of an image's side, for rounded numbers
BLOCK_BYTES = 1 << 20  # 1 MiB, parsed at once; for 8 MiB, Arrow holds 300 MiB

Boxes = dict[str, npt.NDArray[Any]]
"""Boxes in the order of the file, 50 bytes each: image indices, int32; `boxes`, 0 to 1 of the image's sides, NaN where
not a number, float64 [boxes, 4]; code indices, int32; `FLAGS`, int8, -1 if unknown."""


class BoxTable:
    """Collects the boxes of images from all files."""

    def __init__(self, images: Sequence[str], names: Names) -> None:
        """Takes the images' paths, and the class names by code."""
        self._ids = pa.array([posixpath.splitext(posixpath.basename(path))[0] for path in images], pa.string())
        self._names, self._codes = names, dict[str, int]()
        self._parts = list[Boxes]()
        self.lost = self.damaged = 0
        """The number of boxes of other images, and of lines with a wrong number of cells."""
        self.leaving = list[str]()
        """The image of each box that leaves it or has no area."""

    def read(self, files: Files, path: str) -> None:
        """Adds a file. Raises: SourceError: not such a CSV."""
        names = [IMAGE_ID, LABEL, *BOX, *FLAGS.values()]
        with open_plain(files, path) as file:  # checked first: Arrow would make a column for each name in the header
            head = file.readline(BLOCK_BYTES).decode("utf-8-sig", "replace").replace('"', "")
            check_names(path, names, head.strip().split(","))
        with open_plain(files, path) as file:
            try:
                reader = csv.open_csv(
                    file,
                    csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                    csv.ParseOptions(invalid_row_handler=self._skip),
                    csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=names),
                )
                for batch in chain([pa.RecordBatch.from_pylist([], reader.schema)], reader):  # a table may be empty
                    self._add(batch)
            except (pa.ArrowInvalid, KeyError) as error:  # KeyError if Arrow reads the header differently
                raise SourceError(f"{path} cannot be read as CSV: {str(error).splitlines()[0]}") from None

    def _skip(self, _: object) -> str:
        self.damaged += 1
        return "skip"

    def _add(self, batch: pa.RecordBatch) -> None:
        images = pc.index_in(batch[IMAGE_ID], self._ids)
        self.lost += images.null_count
        batch, images = batch.filter(images.is_valid()), images.drop_null()
        labels = batch[LABEL].dictionary_encode()
        codes = [self._codes.setdefault(code, len(self._codes)) for code in labels.dictionary.to_pylist()]
        sides = [_numbers(ColumnType.NUMBER, batch[side], np.nan) for side in BOX]
        part = {key: _numbers(ColumnType.INTEGER, batch[flag], UNKNOWN).astype(np.int8) for key, flag in FLAGS.items()}
        categories = np.array(codes, np.int32)[labels.indices.to_numpy()]
        start, end = np.stack(sides[:2], 1), np.stack(sides[2:], 1)
        is_leaving = ((start < -SLACK) | (end > 1 + SLACK) | (end <= start)).any(axis=1)
        self.leaving += batch[IMAGE_ID].filter(pa.array(is_leaving)).to_pylist()
        self._parts.append({IMAGE: images.to_numpy(), "boxes": np.stack(sides, 1), "categories": categories, **part})

    def rows(self, images: Sequence[str]) -> Iterator[AnnotatedRow]:
        """Yields the images with their boxes, in the order of the files."""
        order = np.argsort(np.concatenate([part[IMAGE] for part in self._parts]), kind="stable")
        every = {name: np.concatenate([part[name] for part in self._parts])[order] for name in self._parts[0]}
        bounds = np.searchsorted(every.pop(IMAGE), np.arange(len(images) + 1))
        named = [class_name(code, self._names) for code in self._codes]
        for image, (start, end) in zip(images, pairwise(bounds), strict=True):
            if end - start > OBJECTS.most:
                yield AnnotatedRow(image, Fault(OBJECTS.reason, OBJECTS.beyond(int(end - start))))
                continue
            lists = {name: values[start:end].ravel().tolist() for name, values in every.items()}
            lists["categories"] = [named[each] for each in lists["categories"]]
            fault = Fault("malformed_row", "a `LabelName` is not in `names`") if None in lists["categories"] else None
            yield AnnotatedRow(image, fault or lists)


def _numbers(kind: ColumnType, cells: pa.Array, absent: float) -> npt.NDArray[np.generic]:
    return numbers(kind, cells)[0].fill_null(absent).to_numpy(zero_copy_only=False)


def read_open_images(files: Files, root: str, paths: Sequence[str], images: Sequence[str], names: Names) -> Found:
    """Reads the boxes of existing images. Raises: SourceError: a file is not such a CSV; OSError."""
    table = BoxTable(images, names)
    for path in paths:
        table.read(files, join(root, path))
    counts = {
        "boxes of images missing in the folder, left out": table.lost,
        "lines with another number of cells than the header, left out": table.damaged,
    }
    notes = [*(f"{what}: {count:,}" for what, count in counts.items() if count), *note(LEAVING, table.leaving)]
    return Found(table.rows(images), [0] * len(images), ("boxes", "categories", *FLAGS), notes)
