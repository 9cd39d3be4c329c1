"""Images with annotations in a published format: COCO, Pascal VOC, YOLO, Open Images, LabelMe, VIA.

    source: {format: coco, path: coco/annotations/*_train2017.json, images: coco/train2017}

A row is an image: its path, and lists of its annotations, such as `boxes` and `categories`, empty without annotations.
`voc` and `yolo` have one file an image, which a worker parses. The others have tables, or files that name their image,
which only the plan reads: its chunks carry their rows.
"""

import json
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.batches import batches, cut, even_parts, pack
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats import annotated_rows
from recordmill.pipeline.sources.formats.annotated_rows import AnnotatedRow, AnnotatedRows, Found, ImageList, Names
from recordmill.pipeline.sources.formats.coco import read_coco
from recordmill.pipeline.sources.formats.csv import CsvReader
from recordmill.pipeline.sources.formats.grouped import Groups, Joined, add_chunks
from recordmill.pipeline.sources.formats.image_fields import FILE_NAME, IMAGE, path_column
from recordmill.pipeline.sources.formats.text import read_texts
from recordmill.pipeline.sources.globs import escape, without_slash
from recordmill.pipeline.sources.images import with_sides
from recordmill.pipeline.sources.options import AnnotatedImages, Csv
from recordmill.pipeline.sources.paths import join, note, path_key
from recordmill.pipeline.sources.source_reader import ROW_BYTES, Chunk, Key, Plan, TableReader, TypedRows, images_below
from recordmill.pipeline.sources.typing.arrays import interleaved
from recordmill.pipeline.sources.typing.python_values import json_object, typed_objects
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from recordmill.transforms.images.shapes import ShapeError, box_around, polygons_of

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
CHUNK_BYTES = 8 << 20  # 8 MiB
BLOCK_ROWS = 1024
ENDINGS = {"voc": ".xml", "yolo": ".txt", "open_images": ".csv"}
"""The formats with a row for each image of a folder, and their files' ending; the others are JSON."""
EMBEDDED = "@embedded"  # the list entry for an image that only its annotation file holds
UNNAMED = "images without annotations, left out"
HELD = "images that only their `imageData` holds"
MOVED = "images found by name, elsewhere than stated"
NAMELESS = f"images of regions without attribute: their class is {annotated_rows.CLASS}"
AT_ONCE = 256  # files
FILE = "the annotation file"  # in messages
WRONG = (ValueError, TypeError, KeyError, AttributeError, OverflowError)  # raised for values of another form
MEASURED = {"boxes", "shapes", "keypoints"}  # the columns with numbers for an image of the annotated size


def read_open_images(files: Files, root: str, paths: Sequence[str], images: Sequence[str], names: Names) -> Found:
    """Reads existing images' boxes from Open Images' CSV. Raises: SourceError: a file is no such CSV; OSError."""
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
    leaving = list[str]()
    for before, boxes, _ in _blocks(joined):
        start, end = np.split(boxes.flatten().to_numpy(zero_copy_only=False).reshape(-1, 4), 2, axis=1)
        is_leaving = ((start < -annotated_rows.SLACK) | (end > 1 + annotated_rows.SLACK) | (end <= start)).any(axis=1)
        numbers = pc.list_parent_indices(boxes).to_numpy()[::4][is_leaving]
        leaving += [str(joined.keys[before + number]) for number in numbers.tolist()]
    notes = [f"{what}: {count:,}" for what, count in counts.items() if count] + note(annotated_rows.LEAVING, leaving)
    return Found(_rows(joined, images, names), [0] * len(images), ("boxes", "categories", *FLAGS), notes)


def _blocks(joined: Joined) -> Iterator[tuple[int, pa.ListArray, pa.Table]]:
    """Yields some groups at a time: the number of the first, their boxes and their table."""
    for start in range(0, len(joined.keys), BLOCK_ROWS):
        part = joined.rows(start, min(start + BLOCK_ROWS, len(joined.keys)))
        yield start, interleaved([part[side].combine_chunks() for side in BOX]), part


def _rows(joined: Joined, images: Sequence[str], names: Names) -> Iterator[AnnotatedRow]:
    for start, boxes, part in _blocks(joined):
        columns = [boxes.to_pylist(), *(part[name].to_pylist() for name in (LABEL, *FLAGS.values()))]
        for number, (image, *lists) in enumerate(zip(images[start:], *columns, strict=False), start):
            row = dict(zip(("boxes", "categories", *FLAGS), lists, strict=True))
            row["categories"] = [names.get(code) if names else code for code in row["categories"]]
            unnamed = Fault("malformed_row", "a `LabelName` is not in `names`") if None in row["categories"] else None
            yield AnnotatedRow(image, joined.faults.get(number) or unnamed or row)


@dataclass
class RegionReader:
    """Reads the files of LabelMe and VIA, and counts what has no row."""

    source: AnnotatedImages
    root: str
    image_root: str
    there: Collection[str]  # the images in their folder
    found: dict[str, list[str]] = field(default_factory=dict)  # images by a note about them
    skipped: Counter[str] = field(default_factory=Counter)  # regions without area, by kind

    def read(self, files: Files, inputs: Sequence[FileInfo], listed: ImageList, asked: Collection[str]) -> Found:
        """Reads the rows of listed images. Raises: SourceError: a file is not VIA's; OSError."""
        rows = list[AnnotatedRow]()
        for some in batches(inputs, lambda file: file.bytes, AT_ONCE):
            texts = read_texts(files, self.root, [file.path for file in some], what=FILE)
            every = (self._rows(file, text, "shapes" in asked) for file, text in zip(some, texts, strict=True))
            rows += [row for row in chain.from_iterable(every) if row.image is None or row.image in listed]
        self.found[UNNAMED] = sorted({*self.there} - {row.image for row in rows if row.image})
        notes = [*chain.from_iterable(note(what, images) for what, images in self.found.items()), *listed.notes()]
        if skipped := ", ".join(f"{kind} {count:,}" for kind, count in self.skipped.most_common()):
            notes.append(f"regions without area, or of an unread shape, left out: {skipped}")
        return Found(rows, [row.bytes for row in rows], annotated_rows.SHAPE_LISTS, notes)

    def _rows(self, file: FileInfo, text: Any, with_shapes: bool) -> list[AnnotatedRow]:
        """Returns a file's images; a bad file of LabelMe is a row."""
        document, rows = text if isinstance(text, Fault) else json_object(text, FILE), list[AnnotatedRow]()
        try:
            entries_of = annotated_rows.DIALECTS[self.source.format][0]
            entries = document if isinstance(document, Fault) else entries_of(document, self.source.attribute)
        except WRONG as error:
            why = error if isinstance(error, ShapeError) else f"it is not one that {self.source.format} writes"
            entries = Fault("malformed_row", f"{FILE}: {why}")
        if isinstance(entries, Fault):
            if self.source.format == "via":
                raise SourceError(f"{join(self.root, file.path)}: {entries.message}")
            return [AnnotatedRow(None, entries, file.path)]
        for number, entry in enumerate(entries, 1):
            image, lists = self._image(file, entry.image), self._lists(entry)
            is_embedded = entry.is_embedded and image not in self.there
            if is_embedded:
                self.found.setdefault(HELD, []).append(image)
            if self.source.format == "via" and entry.regions and entry.attribute is None:
                self.found.setdefault(NAMELESS, []).append(image)
            if not isinstance(lists, Fault):
                shapes = json.dumps(lists["shapes"]) if with_shapes else None
                lists = {**lists, "shapes": shapes, annotated_rows.SIDES: entry.sides, EMBEDDED: is_embedded}
            rows.append(AnnotatedRow(image, lists, file.path, number, file.bytes * is_embedded))
        return rows

    def _image(self, file: FileInfo, name: str) -> str:
        """Returns an image's path in the folder of images, preferably an existing one."""
        folder, last = posixpath.dirname(file.path), posixpath.basename(name)
        said = posixpath.normpath(posixpath.join(self.root, folder, name)).removeprefix(f"{self.image_root}/")
        below = posixpath.join(folder, name)
        for path in (said, below, name, posixpath.join(folder, last), last):
            if path in self.there:
                if path not in (said, below, name):
                    self.found.setdefault(MOVED, []).append(path)
                return path
        return below

    def _lists(self, entry: annotated_rows.Entry) -> annotated_rows.Lists | Fault:
        region_of = annotated_rows.DIALECTS[self.source.format][1]
        objects = dict[Any, tuple[str, list[Any]]]()
        for number, each in enumerate(entry.regions, 1):
            try:
                name, kind, polygon, group = region_of(each, entry.attribute)
                if not isinstance(name, str) or not name.strip():
                    raise ShapeError("wanted one class")
                if polygon is None:
                    self.skipped[kind] += 1
                else:
                    known = number if group is None else (name, group)
                    objects.setdefault(known, (name, []))[1].extend(polygons_of([polygon]))
            except WRONG as error:
                why = error if isinstance(error, ShapeError) else f"{self.source.format} writes no such region"
                return Fault("malformed_row", f"the region {number}: {why}")
        shapes = ((name, {"name": name, "crowd": 0, "polygons": polygons}) for name, polygons in objects.values())
        boxes = (box_around(polygons) for _, polygons in objects.values())
        found = [(box, *shape) for box, shape in zip(boxes, shapes, strict=True)]
        return annotated_rows.lists_of(annotated_rows.SHAPE_LISTS, found)


class AnnotatedImagesReader(TableReader[AnnotatedImages]):
    """Reads images with their annotations."""

    of_path: ClassVar[tuple[str, ...]] = (IMAGE, FILE_NAME)

    @property
    def endings(self) -> tuple[str, ...]:
        return (ENDINGS.get(self.source.format, ".json"),)

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Finds the rows and packs them into chunks; `rows` is exact."""
        classes = annotated_rows.read_names(files, self.source.names)
        found = self._found(files, root, inputs, classes.names, columns)
        if not len(found.bytes):
            raise SourceError(f"{self.source.path}: found no image for these annotations")
        parts = even_parts(ROW_BYTES + np.array(found.bytes, np.int64), chunk_bytes)
        chunks = [
            Chunk(0, 0, "", sum(row.bytes for row in rows), AnnotatedRows(pack(rows), classes.names, classes.points))
            for rows in cut(found.rows, parts)
        ]
        names = [*self.of_path, *found.names, *(["keypoints"] if classes.points else [])]
        stated = found.stated or classes.stated
        return Plan(chunks, len(found.bytes), notes=found.notes, names=names, is_exact=True, stated=stated)

    def _found(self, files: Files, root: str, inputs: Sequence[FileInfo], names: Names, columns: Columns) -> Found:
        listed, paths = ImageList.read(files, self.source.image_list), [file.path for file in inputs]
        image_root = self.image_root(files)
        if self.source.format == "coco":
            return read_coco(files, root, paths, self.source.images and image_root, listed, columns)
        every = [file.path for file in images_below(files, image_root)]
        if self.source.format in annotated_rows.DIALECTS:
            regions = RegionReader(self.source, root, image_root, dict.fromkeys(every))
            return regions.read(files, inputs, listed, columns)
        there = [path for path in every if join(image_root, path) in listed]
        if self.source.format == "open_images":
            found = read_open_images(files, root, paths, there, names)
            return replace(found, notes=[*found.notes, *listed.notes()])
        by_key = {annotated_rows.image_key(join(root, file.path)): file for file in inputs}
        pairs = {path: by_key.get(annotated_rows.image_key(join(image_root, path))) for path in there}
        each = ((path, file.path, file.bytes) if file else (path, None, 0) for path, file in pairs.items())
        rows = [AnnotatedRow(path, file=file, bytes=size) for path, file, size in each]
        used = {file.path for file in pairs.values() if file}
        if rows and not used:
            first = f"the first are {inputs[0].path} and {there[0]}; `images` names the folder of the images"
            raise SourceError(f"{self.source.path}: no annotation is named like an image: {first}")
        without = [path for path, file in pairs.items() if file is None]
        left = [file.path for file in inputs if file.path not in used]
        notes = note("images without an annotation file, read with empty lists", without)
        notes += note("annotation files without an image, left out", left) + listed.notes()
        return Found(rows, [row.bytes for row in rows], annotated_rows.PARSERS[self.source.format][0], notes)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads rows, parsing their files; the default key is the image's path."""
        base = (self.image_root(files), "")
        for rows in batches(chunk.work.rows, lambda row: row.bytes, BLOCK_ROWS):
            faults, found, paths = Faults(), [row.annotations for row in rows], [row.image for row in rows]
            if parser := annotated_rows.PARSERS.get(self.source.format):
                texts = read_texts(files, self.root(files), [row.file for row in rows], what=FILE)
                names, points = chunk.work.names, chunk.work.points
                found = [text if isinstance(text, Fault) else parser[1](text, names, points) for text in texts]
            faults |= {row: each for row, each in enumerate(found) if isinstance(each, Fault)}
            lists = [each if isinstance(each, Mapping) else {} for each in found]
            typed = dict[str, pa.Array]()
            for name, column in columns.items():
                if name in self.of_path and self.source.format in ENDINGS:  # a table is not trusted
                    typed[name] = path_column(name, column, paths, faults)
                else:
                    values = paths if name in self.of_path else [each.get(name) for each in lists]
                    if name == IMAGE and column.type is ColumnType.IMAGE:
                        embedded = {row: rows[row].file for row, each in enumerate(lists) if each.get(EMBEDDED)}
                        values = self._with_embedded(files, embedded, values)
                    typed[name] = typed_objects(name, column, values, base, faults)
                if column.type is ColumnType.IMAGE and MEASURED & columns.keys() and not column.many:
                    stated = (each.get(annotated_rows.SIDES) for each in lists)
                    typed[name] = pa.array(map(with_sides, typed[name].to_pylist(), stated), pa.binary())
            yield TypedRows(typed, len(rows), faults, None, (path and path_key(path) for path in paths))

    def _with_embedded(self, files: Files, paths: Mapping[int, str | None], images: Sequence[Any]) -> list[Any]:
        """Replaces images, by row, with `data:` URLs of the `imageData` in LabelMe's files."""
        texts, found = read_texts(files, self.root(files), [*paths.values()], what=FILE), [*images]
        for row, text in zip(paths, texts, strict=True):
            document = text if isinstance(text, Fault) else json_object(text or b"", FILE)
            found[row] = None if isinstance(document, Fault) else f"data:;base64,{document.get('imageData')}"
        return found

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """Returns the table and the image's number in it, or the image's annotation file, else the image."""
        row = chunk.work.rows[position]
        return row.file or row.image, row.number

    def _patterns(self, files: Files) -> list[str]:
        if self.source.format in (*annotated_rows.PARSERS, "labelme") and files.is_folder(self.source.path):
            return [f"{escape(without_slash(self.source.path))}/**/*{self.endings[0]}"]
        return super()._patterns(files)

    def _listed(self, files: Files, root: str) -> FileList:
        """Lists the annotations, without the files of names and images."""
        others = {self.source.names, self.source.image_list}
        return FileList(file for file in super()._listed(files, root) if join(root, file.path) not in others)

    def _used(self, listed: Sequence[FileInfo]) -> Sequence[FileInfo]:
        """Also keeps empty files, of images without objects."""
        return listed if self.source.format in annotated_rows.PARSERS else super()._used(listed)

    def _images(self, files: Files, columns: Columns) -> Iterable[FileInfo]:
        """Lists the images, which may be rows, and the files of names and images."""
        named = annotated_rows.files_at(files, self.root(files), self.source.names, self.source.image_list)
        is_lax = self.source.format == "coco"
        return chain(super()._images(files, columns) if is_lax else images_below(files, self.image_root(files)), named)
