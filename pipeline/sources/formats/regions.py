"""Regions of images: LabelMe's JSON, one file an image, and VGG Image Annotator's, a project or an export of version 2.

A row is an image that a file names. A region is an object: its polygon, rectangle, circle or ellipse.
"""

import json
import math
import posixpath
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.faults import Fault, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.annotated_rows import SIDES, AnnotatedRow, Found, ImageList, Lists, lists_of
from recordmill.pipeline.sources.formats.text import read_texts
from recordmill.pipeline.sources.options import AnnotatedImages
from recordmill.pipeline.sources.paths import join, listed, note
from recordmill.pipeline.sources.typing.python_values import json_object
from recordmill.transforms.contract.shapes import ShapeError, box_around, finite, polygons_of

LISTS = ("boxes", "categories", "shapes")
EMBEDDED = "@embedded"  # the list entry for an image that only its annotation file holds
CLASS = "object"  # where no region has an attribute
UNNAMED = "images without annotations, left out"
HELD = "images that only their `imageData` holds"
MOVED = "images found by name, elsewhere than stated"
NAMELESS = f"images of regions without attribute: their class is {CLASS}"
CORNERS = 64  # of an ellipse's polygon, at most 0.12 % of the radius inside it
AT_ONCE = 256  # files
Region = tuple[Any, str, Sequence[float] | None, Any]
"""A region's class, its kind of shape, its polygon, None without area, and its group: one object in the same class."""


class Entry(NamedTuple):
    """An image in a file."""

    image: str
    regions: Sequence[Any]
    attribute: str | None = None  # the attribute of regions that names their class
    sides: str = ""
    is_embedded: bool = False


def _labelme(document: Mapping[str, Any], attribute: str | None) -> list[Entry]:
    sides = " x ".join(str(document.get(side)) for side in ("imageWidth", "imageHeight"))
    image, is_embedded = document["imagePath"].replace("\\", "/"), bool(document.get("imageData"))
    return [Entry(image, document["shapes"], None, sides, is_embedded)]


def _labelme_region(region: Mapping[str, Any], attribute: str | None) -> Region:
    kind, points = region.get("shape_type") or "polygon", list(map(finite, region["points"]))
    polygon = list(chain.from_iterable(points)) if kind in ("polygon", "rectangle") else None
    if kind == "rectangle":
        polygon = _rectangle(*box_around(points))
    elif kind == "circle":
        (x, y), edge = points
        polygon = _ellipse(x, y, *[math.dist((x, y), edge)] * 2)
    return region["label"], kind, polygon, region.get("group_id")


def _via(document: Mapping[str, Any], attribute: str | None) -> list[Entry]:
    entries = list[tuple[str, list[Any]]]()
    for each in document.get("_via_img_metadata", document).values():
        some = each["regions"]
        entries.append((each["filename"].replace("\\", "/"), [*some.values()] if isinstance(some, dict) else some))
    every = (region.get("region_attributes") or () for _, regions in entries for region in regions)
    names = [*dict.fromkeys(chain.from_iterable(every))]
    if attribute is None and len(names) > 1:
        raise ShapeError(f"regions have the attributes {listed(names)}: `attribute: NAME` says which one is the class")
    return [Entry(image, regions, attribute or next(iter(names), None)) for image, regions in entries]


def _via_region(region: Mapping[str, Any], attribute: str | None) -> Region:
    shape, name = region["shape_attributes"], region["region_attributes"][attribute] if attribute else CLASS
    kind, polygon = shape["name"], None
    if kind == "polygon":
        polygon = [*chain.from_iterable(zip(shape["all_points_x"], shape["all_points_y"], strict=True))]
    elif kind == "rect":
        x, y, width, height = finite([shape[side] for side in ("x", "y", "width", "height")])
        polygon = _rectangle(x, y, x + width, y + height)
    elif kind in ("circle", "ellipse"):
        radii = ("r", "r") if kind == "circle" else ("rx", "ry")
        x, y, across, down = finite([shape[side] for side in ("cx", "cy", *radii)])
        polygon = _ellipse(x, y, across, down, shape.get("theta", 0))
    if isinstance(name, dict):  # of checkboxes
        (name,) = (option for option, is_set in name.items() if is_set)
    return name, kind, polygon, None


def _rectangle(left: float, top: float, right: float, bottom: float) -> list[float]:
    return [left, top, right, top, right, bottom, left, bottom]


def _ellipse(x: float, y: float, across: float, down: float, turn: float = 0) -> list[float]:
    """Returns an ellipse, by center, radii and radians, as a polygon; its four ends are corners."""
    angles = (2 * math.pi * corner / CORNERS for corner in range(CORNERS))
    ends = ((across * math.cos(angle), down * math.sin(angle)) for angle in angles)
    cos, sin = math.cos(turn), math.sin(turn)
    return [each for u, v in ends for each in (x + u * cos - v * sin, y + u * sin + v * cos)]


DIALECTS = {"labelme": (_labelme, _labelme_region), "via": (_via, _via_region)}
WRONG = (ValueError, TypeError, KeyError, AttributeError, OverflowError)  # raised for values of another form


@dataclass
class RegionReader:
    """Reads the files of a source, and counts what has no row."""

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
            texts = read_texts(files, self.root, [file.path for file in some], what="the annotation file")
            every = (self._rows(file, text, "shapes" in asked) for file, text in zip(some, texts, strict=True))
            rows += [row for row in chain.from_iterable(every) if row.image is None or row.image in listed]
        self.found[UNNAMED] = sorted({*self.there} - {row.image for row in rows if row.image})
        notes = [*chain.from_iterable(note(what, images) for what, images in self.found.items()), *listed.notes()]
        if skipped := ", ".join(f"{kind} {count:,}" for kind, count in self.skipped.most_common()):
            notes.append(f"regions without area, or of an unread shape, left out: {skipped}")
        return Found(rows, [row.bytes for row in rows], LISTS, notes)

    def _rows(self, file: FileInfo, text: Any, with_shapes: bool) -> list[AnnotatedRow]:
        """Returns a file's images; a bad file of LabelMe is a row."""
        document = text if isinstance(text, Fault) else json_object(text, "the annotation file")
        try:
            read = DIALECTS[self.source.format][0]
            entries = document if isinstance(document, Fault) else read(document, self.source.attribute)
        except WRONG as error:
            why = error if isinstance(error, ShapeError) else f"it is not one that {self.source.format} writes"
            entries = Fault("malformed_row", f"the annotation file: {why}")
        if not isinstance(entries, Fault):
            return [self._row(file, number, entry, with_shapes) for number, entry in enumerate(entries, 1)]
        if self.source.format == "via":
            raise SourceError(f"{join(self.root, file.path)}: {entries.message}")
        return [AnnotatedRow(None, entries, file.path)]

    def _row(self, file: FileInfo, number: int, entry: Entry, with_shapes: bool) -> AnnotatedRow:
        image, lists = self._image(file, entry), self._lists(entry)
        is_embedded = entry.is_embedded and image not in self.there
        if is_embedded:
            self.found.setdefault(HELD, []).append(image)
        if self.source.format == "via" and entry.regions and entry.attribute is None:
            self.found.setdefault(NAMELESS, []).append(image)
        if not isinstance(lists, Fault):
            shapes = json.dumps(lists["shapes"]) if with_shapes else None
            lists = {**lists, "shapes": shapes, SIDES: entry.sides, EMBEDDED: is_embedded}
        return AnnotatedRow(image, lists, file.path, number, file.bytes * is_embedded)

    def _image(self, file: FileInfo, entry: Entry) -> str:
        """Returns an image's path in the folder of images, preferably an existing one."""
        folder, name = posixpath.dirname(file.path), entry.image
        said = posixpath.normpath(posixpath.join(self.root, folder, name)).removeprefix(f"{self.image_root}/")
        below, last = posixpath.join(folder, name), posixpath.basename(name)
        for path in (said, below, name, posixpath.join(folder, last), last):
            if path in self.there:
                if path not in (said, below, name):
                    self.found.setdefault(MOVED, []).append(path)
                return path
        return below

    def _lists(self, entry: Entry) -> Lists | Fault:
        region_of = DIALECTS[self.source.format][1]
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
        shapes = ({"name": name, "crowd": 0, "polygons": polygons} for name, polygons in objects.values())
        found = zip(objects.values(), shapes, strict=True)
        return lists_of(LISTS, [(box_around(polygons), name, shape) for (name, polygons), shape in found])


def image_data(files: Files, root: str, paths: Mapping[int, str], images: Sequence[Any]) -> list[Any]:
    """Replaces images, by row, with `data:` URLs of the `imageData` in LabelMe's files."""
    texts, found = read_texts(files, root, [*paths.values()], what="the annotation file"), [*images]
    for row, text in zip(paths, texts, strict=True):
        document = text if isinstance(text, Fault) else json_object(text or b"", "the annotation file")
        found[row] = None if isinstance(document, Fault) else f"data:;base64,{document.get('imageData')}"
    return found
