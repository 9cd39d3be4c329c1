"""Open Images' CSV of boxes (`train-annotations-bbox.csv`) by image, joined with existing images by name."""

import posixpath
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.formats.annotated_rows import LEAVING, AnnotatedRow, Found, Names, class_name
from recordmill.pipeline.sources.formats.csv import CsvReader
from recordmill.pipeline.sources.formats.grouped import Groups, Joined, add_chunks
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.options import Csv
from recordmill.pipeline.sources.paths import join, note
from recordmill.pipeline.sources.typing.arrays import interleaved

IMAGE_ID, LABEL, BOX = "ImageID", "LabelName", ("XMin", "YMin", "XMax", "YMax")
FLAGS = {
    "occluded": "IsOccluded", "truncated": "IsTruncated", "group": "IsGroupOf", "depiction": "IsDepiction",
    "inside": "IsInside",
}  # fmt: skip
COLUMNS = {
    LABEL: Column(ColumnType.CATEGORY, many=True),
    **dict.fromkeys(BOX, Column(ColumnType.NUMBER, many=True)),
    **dict.fromkeys(FLAGS.values(), Column(ColumnType.INTEGER, many=True)),
}
SLACK = 0.01  # of an image's side, for rounded numbers
CHUNK_BYTES, BLOCK_ROWS = 8 << 20, 1024


def read_open_images(files: Files, root: str, paths: Sequence[str], images: Sequence[str], names: Names) -> Found:
    """Reads the boxes of existing images. Raises: SourceError: a file is not such a CSV; OSError."""
    stems = [posixpath.splitext(posixpath.basename(path))[0] for path in images]
    first = dict(zip(reversed(stems), reversed(images), strict=True))
    ids = [stem if first[stem] is path else path for stem, path in zip(stems, images, strict=True)]
    groups = Groups([IMAGE_ID], COLUMNS, ids)
    for path in paths:
        reader = CsvReader(Csv(format="csv", path=escape(join(root, path))))
        add_chunks(groups, reader, reader.plan_chunks(files, COLUMNS, CHUNK_BYTES).chunks, files)
    joined = groups.join()
    counts = {
        "boxes of images missing in the folder, left out": groups.others,
        "lines with another number of cells than the header, left out": groups.lost,
    }
    notes = [f"{what}: {count:,}" for what, count in counts.items() if count]
    notes += note(LEAVING, list(_leaving(joined)))
    return Found(_rows(joined, images, names), [0] * len(images), ("boxes", "categories", *FLAGS), notes)


def _leaving(joined: Joined) -> Iterator[str]:
    """Yields the image of each box that leaves it or has no area."""
    for first, part in _blocks(joined):
        boxes = _boxes(part)
        start, end = np.split(boxes.flatten().to_numpy(zero_copy_only=False).reshape(-1, 4), 2, axis=1)
        is_leaving = ((start < -SLACK) | (end > 1 + SLACK) | (end <= start)).any(axis=1)
        images = pc.list_parent_indices(boxes).to_numpy()[::4]
        yield from (str(joined.keys[first + number]) for number in images[is_leaving].tolist())


def _blocks(joined: Joined) -> Iterator[tuple[int, pa.Table]]:
    """Yields some groups at a time, and the number of the first."""
    for start in range(0, len(joined.keys), BLOCK_ROWS):
        yield start, joined.rows(start, min(start + BLOCK_ROWS, len(joined.keys)))


def _boxes(part: pa.Table) -> pa.ListArray:
    return interleaved([part[side].combine_chunks() for side in BOX])


def _rows(joined: Joined, images: Sequence[str], names: Names) -> Iterator[AnnotatedRow]:
    """Yields the images with their boxes, in the order of the files."""
    for start, part in _blocks(joined):
        columns = [_boxes(part).to_pylist(), *(part[name].to_pylist() for name in (LABEL, *FLAGS.values()))]
        for number, (image, *lists) in enumerate(zip(images[start:], *columns, strict=False), start):
            row = dict(zip(("boxes", "categories", *FLAGS), lists, strict=True))
            row["categories"] = [class_name(code, names) for code in row["categories"]]
            unnamed = Fault("malformed_row", "a `LabelName` is not in `names`") if None in row["categories"] else None
            yield AnnotatedRow(image, joined.faults.get(number) or unnamed or row)
