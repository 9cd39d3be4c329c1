"""Images with annotations in a published format: COCO, Pascal VOC, YOLO, Open Images, LabelMe, VIA.

    source: {format: coco, path: coco/annotations/*_train2017.json, images: coco/train2017}

A row is an image: its path, and lists of its annotations, such as `boxes` and `categories`, empty without annotations.
`voc` and `yolo` have one file an image, which a worker parses. The others have tables, or files that name their image,
which only the plan reads: its chunks carry their rows.
"""

import codecs
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import ClassVar
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.batches import batches, cut, even_parts, pack
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats import annotated_rows as annotated
from recordmill.pipeline.sources.formats.annotated_rows import Found, Lists, Names, PointShape
from recordmill.pipeline.sources.formats.coco import read_coco
from recordmill.pipeline.sources.formats.csv import CsvReader
from recordmill.pipeline.sources.formats.grouped import Groups, Joined, add_chunks
from recordmill.pipeline.sources.formats.image_fields import FILE_NAME, IMAGE, path_column
from recordmill.pipeline.sources.formats.regions import DIALECTS, EMBEDDED, RegionReader, image_data
from recordmill.pipeline.sources.formats.text import read_texts
from recordmill.pipeline.sources.globs import escape, without_slash
from recordmill.pipeline.sources.images import with_sides
from recordmill.pipeline.sources.options import AnnotatedImages, Csv
from recordmill.pipeline.sources.paths import join, note, path_key
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, TypedRows
from recordmill.pipeline.sources.table import TableReader, images_below
from recordmill.pipeline.sources.typing.arrays import interleaved
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.transforms.contract.bounds import FILE_BYTES, POINTS, VOC_DEPTH, VOC_ELEMENTS, ImageError
from recordmill.transforms.contract.shapes import box_around

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
CHUNK_BYTES = 8 << 20  # 8 MiB
BLOCK_ROWS = 1024
VOC_BOX = ("xmin", "ymin", "xmax", "ymax")
DECLARED = re.compile(rb"""<\?xml[^>]{1,100}?encoding\s*=\s*["']([\w.:-]{1,40})""")
MULTIBYTE = re.compile("utf-8|gb|hz|big5|cp9|euc_|johab|shift_jis|iso2022")
"""Encodings, by Python's names, that expat cannot read, at least by some names; others have one byte a character."""
VOC_FLAGS = ("difficult", "truncated")
VOC_LISTS = ("boxes", "categories", *VOC_FLAGS)
YOLO_LISTS = ("boxes", "categories", "shapes")
MEASURED = {"boxes", "shapes", "keypoints"}  # the columns with numbers for an image of the annotated size


def read_open_images(files: Files, root: str, paths: Sequence[str], images: Sequence[str], names: Names) -> Found:
    """Reads the boxes of existing images by name, from Open Images' CSV (`train-annotations-bbox.csv`).

    Raises: SourceError: a file is not such a CSV; OSError.
    """
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
    notes += note(annotated.LEAVING, list(_leaving(joined)))
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


def _rows(joined: Joined, images: Sequence[str], names: Names) -> Iterator[annotated.AnnotatedRow]:
    for start, part in _blocks(joined):
        columns = [_boxes(part).to_pylist(), *(part[name].to_pylist() for name in (LABEL, *FLAGS.values()))]
        for number, (image, *lists) in enumerate(zip(images[start:], *columns, strict=False), start):
            row = dict(zip(("boxes", "categories", *FLAGS), lists, strict=True))
            row["categories"] = [annotated.class_name(code, names) for code in row["categories"]]
            unnamed = Fault("malformed_row", "a `LabelName` is not in `names`") if None in row["categories"] else None
            yield annotated.AnnotatedRow(image, joined.faults.get(number) or unnamed or row)


class _Bounded(ElementTree.TreeBuilder):
    """Refuses a document type, whose entities may expand without limit, and more than `bounds` allow."""

    depth = elements = 0

    def doctype(self, *_: object) -> None:
        raise expat.ExpatError("it holds a document type")

    def start(self, tag: str, attributes: dict[str, str]) -> ElementTree.Element:  # type: ignore[override]
        self.depth, self.elements = self.depth + 1, self.elements + 1 + len(attributes)
        VOC_DEPTH.check(self.depth)
        VOC_ELEMENTS.check(self.elements)
        return super().start(tag, attributes)

    def end(self, tag: str) -> ElementTree.Element:
        self.depth -= 1
        return super().end(tag)


def _parsed(data: bytes) -> ElementTree.Element:
    """Parses XML without namespaces, which would repeat a namespace's whole name in each attribute's."""
    declared = DECLARED.match(data)
    encoding = codecs.lookup(declared[1].decode()).name if declared else ""
    text = data.decode(encoding) if MULTIBYTE.match(encoding) else data  # expat takes a string's bytes as UTF-8
    builder, parser = _Bounded(), expat.ParserCreate()
    parser.buffer_text, parser.CharacterDataHandler = True, builder.data
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.Parse(text, True)
    return builder.close()


def voc_lists(data: bytes | None, names: Names, points: PointShape | None = None) -> Lists | Fault:
    """Parses one image's XML, empty lists without any; ignores objects inside objects."""
    if data is None:
        return annotated.lists_of(VOC_LISTS, ())
    try:
        FILE_BYTES.check(len(data))
        root = _parsed(data)
    except ImageError as error:
        return Fault(error.reason, error.message)
    except (expat.ExpatError, ValueError, LookupError) as error:  # the last two from its encoding
        return Fault("malformed_row", f"the annotation is not valid XML: {error}")
    objects = [_voc_object(number, each) for number, each in enumerate(root.findall("object"), 1)]
    fault = next((each for each in objects if isinstance(each, Fault)), None)
    if root.tag != "annotation" or fault:
        return fault or Fault("malformed_row", "the XML's outer element is not `annotation`")
    sides = " x ".join(root.findtext(f"size/{side}", "").strip() for side in ("width", "height"))
    lists = annotated.lists_of(VOC_LISTS, [each for each in objects if not isinstance(each, Fault)])
    return lists if isinstance(lists, Fault) else {**lists, annotated.SIDES: sides}


def _voc_object(number: int, element: ElementTree.Element) -> tuple[object, ...] | Fault:
    try:
        box = [float(element.findtext(f"bndbox/{side}", "")) for side in VOC_BOX]
        flags = [int(element.findtext(flag) or 0) for flag in VOC_FLAGS]
    except ValueError:
        return Fault("malformed_row", f"object {number}: wanted four numbers in `bndbox`, and flags 0 or 1")
    if len(element.findall("bndbox")) > 1 or box[0] > box[2] or box[1] > box[3]:
        return Fault("malformed_row", f"object {number}: wanted one `bndbox`, with no max below its min")
    name = element.findtext("name", "").strip()
    return (box, name, *flags) if name else Fault("malformed_row", f"object {number} has no `name`")


def yolo_lists(data: bytes | None, names: Names, points: PointShape | None = None) -> Lists | Fault:
    """Parses one image's text, if any: each line a class and a box or a polygon, whose bounding box is taken.

    With `points` each line may end with as many key points.
    """
    objects, data = list[tuple[object, ...]](), data or b""
    if len(data) > FILE_BYTES.most:
        return Fault(FILE_BYTES.reason, FILE_BYTES.beyond(len(data)))
    for number, line in enumerate(data.splitlines(), 1):
        if points and (numbers := 3 * points[0] * len(objects)) > POINTS.most:
            return Fault(POINTS.reason, POINTS.beyond(numbers))
        each = _yolo_object(line.split(), names, points) if line.strip() else None
        if isinstance(each, str):
            return Fault("malformed_row", f"the annotation's line {number}: {each}")
        objects += [each] if each else []
    return annotated.lists_of((*YOLO_LISTS, *(["keypoints"] if points else [])), objects)


def _yolo_object(cells: Sequence[bytes], names: Names, points: PointShape | None) -> tuple[object, ...] | str:
    try:
        code, *box = map(float, cells)
    except ValueError:
        return "wanted only numbers"
    count, each = points or (0, 3)
    hint = "" if points else ": key points need `kpt_shape` in the YAML of `names`"
    box, marks = (box[:4], box[4:]) if points else (box, [])
    if len(box) < 4 or len(box) % 2 or len(marks) not in (0, count * each):
        wanted = f"{count} key points of {each} numbers" if points else "a polygon's x and y"
        return f"wanted a class and four numbers, or {wanted}, found {len(cells)}{hint}"
    seen = marks[2::3] if each == 3 else [2.0] * (len(marks) // 2)
    places = list(zip(marks[0::each], marks[1::each], seen, strict=True)) if marks else [(0.0, 0.0, 0.0)] * count
    if not all(-SLACK <= side <= 1 + SLACK for side in box + [side for x, y, _ in places for side in (x, y)]):
        return f"a number lies beyond 0 to 1 of the image's side{hint if len(box) > 4 else ''}"
    polygons = [box] if len(box) > 4 else []
    if polygons:
        left, top, right, bottom = box_around(polygons)
        box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
    name = annotated.class_name(str(int(code)), names) if code.is_integer() else None
    shape = {"name": name, "crowd": 0, "unit": "relative", "polygons": polygons}
    if not name:
        return f"class {code:g} is {'not in `names`' if code.is_integer() else 'no whole number'}"
    return box, name, shape, [*chain.from_iterable(places)]


FILE_LISTS = {"voc": VOC_LISTS, "yolo": YOLO_LISTS}
PARSERS = {"voc": voc_lists, "yolo": yolo_lists}
ROW_BYTES = 2 << 10  # 2 KiB: the cost of an image's row, as in a folder of images
ENDINGS = {"voc": ".xml", "yolo": ".txt", "open_images": ".csv"}
"""The formats with a row for each image of a folder, and their files' ending; the others are JSON."""


class AnnotatedImagesReader(TableReader[AnnotatedImages]):
    """Reads images with their annotations."""

    of_path: ClassVar[tuple[str, ...]] = (IMAGE, FILE_NAME)

    @property
    def endings(self) -> tuple[str, ...]:
        return (ENDINGS.get(self.source.format, ".json"),)

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Finds the rows and packs them into chunks; `rows` is exact."""
        classes = annotated.read_names(files, self.source.names)
        names, points = classes.names, classes.points
        found = self._found(files, root, inputs, names, columns)
        if not len(found.bytes):
            raise SourceError(f"{self.source.path}: found no image for these annotations")
        parts = even_parts(ROW_BYTES + np.array(found.bytes, np.int64), chunk_bytes)
        chunks = [
            Chunk(0, 0, "", sum(row.bytes for row in rows), annotated.AnnotatedRows(pack(rows), names, points))
            for rows in cut(found.rows, parts)
        ]
        columns_found = [*self.of_path, *found.names, *(["keypoints"] if points else [])]
        stated = found.stated or classes.stated
        return Plan(chunks, len(found.bytes), notes=found.notes, names=columns_found, is_exact=True, stated=stated)

    def _found(self, files: Files, root: str, inputs: Sequence[FileInfo], names: Names, columns: Columns) -> Found:
        listed, paths = annotated.ImageList.read(files, self.source.image_list), [file.path for file in inputs]
        if self.source.format == "coco":
            images = None if self.source.images is None else self.image_root(files)
            return read_coco(files, root, paths, images, listed, columns)
        root_of_images, every = self.image_root(files), [file.path for file in self._image_files(files)]
        if self.source.format in DIALECTS:
            regions = RegionReader(self.source, root, root_of_images, dict.fromkeys(every))
            return regions.read(files, inputs, listed, columns)
        there = [path for path in every if join(root_of_images, path) in listed]
        if self.source.format == "open_images":
            found = read_open_images(files, root, paths, there, names)
        else:
            found = self._pairs(root, inputs, root_of_images, there)
        return replace(found, notes=[*found.notes, *listed.notes()])

    def _pairs(self, root: str, inputs: Sequence[FileInfo], image_root: str, images: Sequence[str]) -> Found:
        by_key = {annotated.image_key(join(root, file.path)): file for file in inputs}
        pairs = [by_key.get(annotated.image_key(join(image_root, path))) for path in images]
        rows = [
            annotated.AnnotatedRow(path, None, file and file.path, bytes=file.bytes if file else 0)
            for path, file in zip(images, pairs, strict=True)
        ]
        used = {file.path for file in pairs if file}
        if rows and not used:
            raise SourceError(
                f"{self.source.path}: no annotation is named like an image: the first are {inputs[0].path} and "
                f"{images[0]}; `images` names the folder of the images"
            )
        without = [path for path, file in zip(images, pairs, strict=True) if file is None]
        left = [file.path for file in inputs if file.path not in used]
        notes = [
            *note("images without an annotation file, read with empty lists", without),
            *note("annotation files without an image, left out", left),
        ]
        return Found(rows, [row.bytes for row in rows], FILE_LISTS[self.source.format], notes)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads rows, parsing their files; the default key is the image's path."""
        work, base = chunk.work, (self.image_root(files), "")
        for rows in batches(work.rows, lambda row: row.bytes, BLOCK_ROWS):
            faults = Faults()
            lists, paths = self._lists(files, rows, work, faults), [row.image for row in rows]
            typed = dict[str, pa.Array]()
            for name, column in columns.items():
                if name in self.of_path and self.source.format in ENDINGS:  # a table is not trusted
                    typed[name] = path_column(name, column, paths, faults)
                else:
                    values = paths if name in self.of_path else [each.get(name) for each in lists]
                    if name == IMAGE and column.type is ColumnType.IMAGE:
                        embedded = {row: rows[row].file for row, each in enumerate(lists) if each.get(EMBEDDED)}
                        values = image_data(files, self.root(files), embedded, values)
                    typed[name] = typed_objects(name, column, values, base, faults)
                if column.type is ColumnType.IMAGE and MEASURED & columns.keys() and not column.many:
                    stated = (each.get(annotated.SIDES) for each in lists)
                    typed[name] = pa.array(map(with_sides, typed[name].to_pylist(), stated), pa.binary())
            yield TypedRows(typed, len(rows), faults, None, (row.image and path_key(row.image) for row in rows))

    def _lists(
        self, files: Files, rows: Sequence[annotated.AnnotatedRow], work: annotated.AnnotatedRows, faults: Faults
    ) -> list[Lists]:
        """Returns each row's lists, empty for faulty rows."""
        parse, found = PARSERS.get(self.source.format), [row.annotations for row in rows]
        if parse:
            texts = read_texts(files, self.root(files), [row.file for row in rows], what="the annotation file")
            found = [text if isinstance(text, Fault) else parse(text, work.names, work.points) for text in texts]
        faults |= {row: each for row, each in enumerate(found) if isinstance(each, Fault)}
        return [each if isinstance(each, Mapping) else {} for each in found]

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """Returns the table and the image's number in it, or the image's annotation file, else the image."""
        row = chunk.work.rows[position]
        return row.file or row.image, row.number

    def input_path(self, files: Files) -> Callable[[str], str]:
        """Returns a function that makes full paths; class names and image lists may lie anywhere."""
        inner = super().input_path(files)
        return lambda path: path if path.startswith("/") or "://" in path else inner(path)

    def _patterns(self, files: Files) -> list[str]:
        if self.source.format in (*PARSERS, "labelme") and files.is_folder(self.source.path):
            return [f"{escape(without_slash(self.source.path))}/**/*{self.endings[0]}"]
        return super()._patterns(files)

    def _listed(self, files: Files, root: str) -> FileList:
        """Lists the annotations, without the files of names and images."""
        others = {self.source.names, self.source.image_list}
        return FileList(file for file in super()._listed(files, root) if join(root, file.path) not in others)

    def _used(self, listed: Sequence[FileInfo]) -> Sequence[FileInfo]:
        """Also keeps empty files, of images without objects."""
        return listed if self.source.format in PARSERS else super()._used(listed)

    def _images(self, files: Files, columns: Columns) -> Iterable[FileInfo]:
        """Lists the images, which may be rows, and the files of names and images."""
        named = annotated.files_at(files, self.root(files), self.source.names, self.source.image_list)
        is_lax = self.source.format == "coco"
        return chain(super()._images(files, columns) if is_lax else self._image_files(files), named)

    def _image_files(self, files: Files) -> Iterable[FileInfo]:
        return images_below(files, self.image_root(files))
