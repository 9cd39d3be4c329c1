"""Open Images' CSV of boxes (`train-annotations-bbox.csv`), joined with the images that are there by their names."""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.sources.encoded import open_plain
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.formats.annotated_rows import AnnotatedRow, Found, Names, class_name
from recordmill.pipeline.sources.paths import check_names, join
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.sources.typing.values import numbers

IMAGE_ID, LABEL, BOX = "ImageID", "LabelName", ("XMin", "YMin", "XMax", "YMax")
FLAGS = {
    "occluded": "IsOccluded", "truncated": "IsTruncated", "group": "IsGroupOf", "depiction": "IsDepiction",
    "inside": "IsInside",
}  # fmt: skip
UNKNOWN = -1
BLOCK_BYTES = 1 << 20  # 1 MiB: parsed at once; of 8 MiB, Arrow holds 300 MiB


@dataclass(frozen=True)
class Annotations:
    """Some boxes, in the order of the file; 50 bytes each."""

    images: npt.NDArray[np.int32]
    """The number of each box's image, shape [boxes]."""
    boxes: npt.NDArray[np.float64]
    """As `BOX` says, 0 to 1 of the image's sides, NaN where a cell is no number; shape [boxes, 4]."""
    classes: npt.NDArray[np.int32]
    """Numbers of codes, shape [boxes]."""
    flags: npt.NDArray[np.int8]
    """As `FLAGS` says, -1 where unknown; shape [boxes, flags]."""

    def take(self, rows: npt.NDArray[np.int64] | slice) -> "Annotations":
        return Annotations(self.images[rows], self.boxes[rows], self.classes[rows], self.flags[rows])


class BoxTable:
    """The boxes of some images, added up from the files."""

    def __init__(self, images: Sequence[str], names: Names) -> None:
        """Takes the paths of the images, and the names of the classes by their codes."""
        self._ids = pa.array([posixpath.splitext(posixpath.basename(path))[0] for path in images], pa.string())
        self._names, self._codes = names, dict[str, int]()
        self._parts = list[Annotations]()
        self.lost = self.damaged = 0
        """The number of boxes of other images, and of lines that have another number of cells."""

    def read(self, files: Files, path: str) -> None:
        """Adds a file. Raises: SourceError: it is no such CSV."""
        names = [IMAGE_ID, LABEL, *BOX, *FLAGS.values()]
        with open_plain(files, path) as file:
            try:
                reader = csv.open_csv(
                    file,
                    csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                    csv.ParseOptions(invalid_row_handler=self._skip),
                    csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
                )
                check_names(path, names, reader.schema.names)
                for batch in reader:
                    self._add(batch)
            except pa.ArrowInvalid as error:
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
        boxes = [_numbers(ColumnType.NUMBER, batch[side], np.nan) for side in BOX]
        flags = [_numbers(ColumnType.INTEGER, batch[flag], UNKNOWN).astype(np.int8) for flag in FLAGS.values()]
        classes = np.array(codes, np.int32)[labels.indices.to_numpy()]
        self._parts.append(Annotations(images.to_numpy(), np.stack(boxes, 1), classes, np.stack(flags, 1)))

    def rows(self, images: Sequence[str]) -> Iterator[AnnotatedRow]:
        """Yields the images, each with its boxes in the order of the files."""
        every = Annotations(*(np.concatenate(arrays) for arrays in zip(*map(_fields, self._parts), strict=True)))
        every = every.take(np.argsort(every.images, kind="stable"))
        bounds = np.searchsorted(every.images, np.arange(len(images) + 1))
        named = [class_name(code, self._names) for code in self._codes]
        for image, start, end in zip(images, bounds, bounds[1:], strict=False):
            part = every.take(slice(start, end))
            categories = [named[each] for each in part.classes]
            lists = {"boxes": part.boxes.ravel().tolist(), "categories": categories}
            lists |= dict(zip(FLAGS, part.flags.T.tolist(), strict=True))
            fault = Fault("malformed_row", "a `LabelName` is not in `names`") if None in categories else None
            yield AnnotatedRow(image, fault or lists)


def _fields(part: Annotations) -> tuple[npt.NDArray[np.generic], ...]:
    return part.images, part.boxes, part.classes, part.flags


def _numbers(kind: ColumnType, cells: pa.Array, absent: float) -> npt.NDArray[np.generic]:
    return numbers(kind, cells)[0].fill_null(absent).to_numpy(zero_copy_only=False)


def read_open_images(files: Files, root: str, paths: Sequence[str], images: Sequence[str], names: Names) -> Found:
    """Reads the boxes of the images that are there.

    Raises:
        SourceError: a file is no such CSV.
        OSError: it cannot be read.
    """
    table = BoxTable(images, names)
    for path in paths:
        table.read(files, join(root, path))
    counts = {
        "boxes of images that are not in the folder, left out": table.lost,
        "lines with another number of cells than the header, left out": table.damaged,
    }
    notes = [f"{what}: {count:,}" for what, count in counts.items() if count]
    return Found(table.rows(images), [0] * len(images), ("boxes", "categories", *FLAGS), notes)
