"""Rows of annotated images on their way from the plan to a worker, the names of images and classes, and parsers.

An annotation belongs to the image with the same path, except for the ending and folders such as `images` and `labels`.
Files of Pascal VOC, YOLO and LabelMe hold one image's annotations each; VGG Image Annotator's, a project or an export
of version 2, hold those of many. A region of the last two is an object: its polygon, rectangle, circle or ellipse.

>>> image_key("coco128/images/train2017/9.jpg") == image_key("coco128/labels/train2017/9.txt")
True
"""

import codecs
import csv
import math
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from recordmill.pipeline.sources.encoded import MAX_LINE_BYTES, open_utf8
from recordmill.pipeline.sources.faults import Fault, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.paths import is_image, listed, note
from recordmill.pipeline.sources.source_reader import unpacked
from recordmill.pipeline.yaml_document import SpecError, load_yaml
from recordmill.transforms.base import bounds
from recordmill.transforms.base.bounds import ImageError
from recordmill.transforms.images.shapes import ShapeError, box_around, finite

FOLDERS = {"", ".", "images", "jpegimages", "data", "labels", "annotations"}
"""Folders, in small letters, that distinguish images from annotations."""
LEAVING = "boxes that leave their image and are clipped, or have no area"
YAML_ENDINGS = (".yaml", ".yml")
SLACK = 0.01  # of an image's side, for rounded numbers
VOC_FLAGS = ("difficult", "truncated")
VOC_LISTS = ("boxes", "categories", *VOC_FLAGS)
SHAPE_LISTS = ("boxes", "categories", "shapes")
DECLARED = re.compile(rb"""<\?xml[^>]{1,100}?encoding\s*=\s*["']([\w.:-]{1,40})""")
MULTIBYTE = re.compile("utf-8|gb|hz|big5|cp9|euc_|johab|shift_jis|iso2022")
"""Encodings, by Python's names, that expat cannot read, at least by some names; others have one byte a character."""
CLASS = "object"  # where no region has an attribute
CORNERS = 64  # of an ellipse's polygon, at most 0.12 % of the radius inside it
SIDES = "@sides"  # the list entry for the annotated width and height: `200 x 100`
Lists = Mapping[str, Any]  # a row's values by column: lists of its annotations
Names = Mapping[str, str]  # class names by the annotations' codes; empty if codes are names
PointShape = tuple[int, int]  # the number of key points, and of each one's numbers, 2 or 3
Region = tuple[Any, str, Sequence[float] | None, Any]
"""A region's class, its kind of shape, its polygon, None without area, and its group: one object in the same class."""


class AnnotatedRow(NamedTuple):
    """An image and its annotations."""

    image: str | None  # the path, relative to the folder of images, or as a table gives it; None if it gives none
    annotations: Lists | Fault | None = None  # None if a file holds them, or they are missing
    file: str | None = None  # the image's own annotation file, or the table that lists it
    number: int | None = None  # the image's number in the table, from 1
    bytes: int = 0  # the size of the annotation file


@dataclass(frozen=True)
class AnnotatedRows:
    """The work of a chunk."""

    packed: bytes
    names: Names
    points: PointShape | None

    @property
    def rows(self) -> list[AnnotatedRow]:
        return unpacked(self.packed)


@dataclass(frozen=True)
class Found:
    """The rows of all annotations."""

    rows: Iterable[AnnotatedRow]
    bytes: Sequence[int]
    names: Sequence[str]
    notes: list[str] = field(default_factory=list)
    stated: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # as in `Plan`


def image_key(path: str) -> tuple[str, ...]:
    """Returns the key shared by an image and its annotation."""
    return tuple(part for part in posixpath.splitext(path)[0].split("/") if part.lower() not in FOLDERS)


def lists_of(names: Sequence[str], objects: Sequence[tuple[Any, ...]]) -> Lists | Fault:
    """Returns objects, a value for each name, as lists; or the fault of too many."""
    lists = {name: [each[column] for each in objects] for column, name in enumerate(names)}
    polygons = chain.from_iterable(shape["polygons"] for shape in lists.get("shapes", ()))
    numbers = sum(map(len, chain(polygons, lists.get("keypoints", ()))))
    for bound, count in ((bounds.OBJECTS, len(objects)), (bounds.POINTS, numbers)):
        if count > bound.most:
            return Fault(bound.reason, bound.beyond(count))
    return lists | {name: [*chain.from_iterable(lists[name])] for name in ("boxes", "keypoints") if name in lists}


class ImageList:
    """The images listed by a file, by name or end of path; without a file, all images."""

    def __init__(self, lines: Iterable[str] | None) -> None:
        listed = map(_listed, lines or ())
        self._listed = {image_key(name if is_image(name) else f"{name}."): name for name in listed if name}
        self._takes_all, self._missing = lines is None, {*self._listed.values()}
        self._lengths = {len(key) for key in self._listed} - {0}

    @classmethod
    def read(cls, files: Files, path: str | None) -> "ImageList":
        """Reads a list, or lists a folder. Raises: SourceError, OSError: unreadable."""
        if path and files.is_folder(path):
            return cls(file.path for file in files.match(f"{escape(path.rstrip('/'))}/**") if is_image(file.path))
        return cls(None if path is None else _text(files, path).splitlines())

    def __contains__(self, path: str) -> bool:
        key = image_key(path)
        lengths = (length for length in self._lengths if length <= len(key))
        ends = [key[-length:] for length in lengths if key[-length:] in self._listed]
        self._missing.difference_update(self._listed[end] for end in ends)
        return self._takes_all or bool(ends)

    def notes(self) -> list[str]:
        """Returns a note of the listed images that are missing."""
        return note("missing listed images", sorted(self._missing))


def files_at(files: Files, root: str, *paths: str | None) -> list[FileInfo]:
    """Lists files that options name, which may lie anywhere: relative to `root`, stable if both move; URLs whole."""
    return [
        file._replace(path=path.removeprefix(f"{root}/") if "://" in path else os.path.relpath(path, root))
        for path in filter(None, paths)
        for file in files.match(escape(path))
    ]


def _listed(line: str) -> str:
    """Returns a line's image; lists of one class add a number: `2008_000002 -1`."""
    line = line.strip().replace("\\", "/")
    listed, _, number = line.rpartition(" ")
    return listed.rstrip() if listed and number.removeprefix("-").isdecimal() else line


class Classes(NamedTuple):
    """Names of classes in a file, and its key points."""

    names: Names
    points: PointShape | None = None
    flips: Sequence[Any] = ()  # the number of each point's partner in a mirror

    @property
    def stated(self) -> dict[str, Sequence[Any]]:
        """The names of classes and points, and pairs of points, as in `Plan`."""
        flips = dict(enumerate(self.flips))
        pairs = [(one, other) for one, other in flips.items() if one < other and flips.get(other) == one]
        points = [f"point_{number}" for number in range(self.points[0])] if self.points else []
        return {"classes": [*self.names.values()], "points": points, "flip_pairs": pairs}


def read_names(files: Files, path: str | None) -> Classes:
    """Reads class names, from 0 or by code: YAML, CSV or lines; and YAML's key points. Raises: SourceError."""
    if path is None:
        return Classes({})
    found = names_in(_text(files, path), path)
    if not found.names:
        raise SourceError(f"{path} holds no names: give YOLO's `names`, a name a line, or CSV of codes and names")
    return found


def names_in(text: str, path: str) -> Classes:
    """Reads the text of such a file; its path tells the format."""
    # YAML takes as long to parse 100 letters as a value, 50 µs.
    if (values := text.count("\n") + text.count(",") + len(text) // 100) > bounds.NAMES.most:
        raise SourceError(f"{path}: {bounds.NAMES.beyond(values)}: are these the classes?")
    if path.lower().endswith(".csv"):
        return Classes({row[0]: row[1] for row in csv.reader(text.splitlines()) if len(row) > 1})
    if not path.lower().endswith(YAML_ENDINGS):
        return Classes({str(number): line.strip() for number, line in enumerate(text.strip().splitlines())})
    try:
        document = load_yaml(text, path, "`names:`")
    except SpecError as error:
        raise SourceError(str(error)) from None
    points, flips = (document.value.get(name) for name in ("kpt_shape", "flip_idx"))
    if points and not re.fullmatch(r"\[[1-9]\d{0,3}, [23]\]", str(points)):
        raise SourceError(f"{path}: `kpt_shape` is {points}: wanted the number of key points and 2 or 3, as in [17, 3]")
    codes = [where[1] for where in document.nodes if len(where) == 2 and where[0] == "names"]
    names = {str(code): document.text(("names", code)) or "" for code in codes}  # the text: YAML reads `no` as False
    are_flips = isinstance(flips, list) and {*map(type, flips)} == {int}
    return Classes(names, tuple(points) if points else None, flips if are_flips else ())


def _text(files: Files, path: str) -> str:
    with open_utf8(files, path) as file:
        data = file.read(MAX_LINE_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SourceError(f"{path} is not UTF-8") from None


class _Bounded(ElementTree.TreeBuilder):
    """Refuses a document type, whose entities may expand without limit, and more than `bounds` allow."""

    depth = elements = 0

    def doctype(self, *_: object) -> None:
        raise expat.ExpatError("it holds a document type")

    def start(self, tag: str, attributes: dict[str, str]) -> ElementTree.Element:  # type: ignore[override]
        self.depth, self.elements = self.depth + 1, self.elements + 1 + len(attributes)
        bounds.VOC_DEPTH.check(self.depth)
        bounds.VOC_ELEMENTS.check(self.elements)
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
        return lists_of(VOC_LISTS, ())
    try:
        bounds.FILE_BYTES.check(len(data))
        root = _parsed(data)
    except ImageError as error:
        return Fault(error.reason, error.message)
    except (expat.ExpatError, ValueError, LookupError) as error:  # the last two from its encoding
        return Fault("malformed_row", f"the annotation is not valid XML: {error}")
    try:
        objects = [_voc_object(number, each) for number, each in enumerate(root.findall("object"), 1)]
    except ShapeError as error:
        return Fault("malformed_row", str(error))
    if root.tag != "annotation":
        return Fault("malformed_row", "the XML's outer element is not `annotation`")
    sides = " x ".join(root.findtext(f"size/{side}", "").strip() for side in ("width", "height"))
    lists = lists_of(VOC_LISTS, objects)
    return lists if isinstance(lists, Fault) else {**lists, SIDES: sides}


def _voc_object(number: int, element: ElementTree.Element) -> tuple[object, ...]:
    """Returns an object's values of `VOC_LISTS`. Raises: ShapeError: its fault."""
    try:
        box = [float(element.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax")]
        flags = [int(element.findtext(flag) or 0) for flag in VOC_FLAGS]
    except ValueError:
        raise ShapeError(f"object {number}: wanted four numbers in `bndbox`, and flags 0 or 1") from None
    if len(element.findall("bndbox")) > 1 or box[0] > box[2] or box[1] > box[3]:
        raise ShapeError(f"object {number}: wanted one `bndbox`, with no max below its min")
    if not (name := element.findtext("name", "").strip()):
        raise ShapeError(f"object {number} has no `name`")
    return box, name, *flags


def yolo_lists(data: bytes | None, names: Names, points: PointShape | None = None) -> Lists | Fault:
    """Parses one image's text, if any: a line is a class, a box or a polygon, and, with `points`, key points."""
    objects, data = list[tuple[object, ...]](), data or b""
    if len(data) > bounds.FILE_BYTES.most:
        return Fault(bounds.FILE_BYTES.reason, bounds.FILE_BYTES.beyond(len(data)))
    for number, line in enumerate(data.splitlines(), 1):
        if points and (numbers := 3 * points[0] * len(objects)) > bounds.POINTS.most:
            return Fault(bounds.POINTS.reason, bounds.POINTS.beyond(numbers))
        each = _yolo_object(line.split(), names, points) if line.strip() else None
        if isinstance(each, str):
            return Fault("malformed_row", f"the annotation's line {number}: {each}")
        objects += [each] if each else []
    return lists_of((*SHAPE_LISTS, *(["keypoints"] if points else [])), objects)


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
    number = str(int(code)) if code.is_integer() else ""
    name = names.get(number) if names else number
    shape = {"name": name, "crowd": 0, "unit": "relative", "polygons": polygons}
    if not name:
        return f"class {code:g} is {'not in `names`' if code.is_integer() else 'no whole number'}"
    return box, name, shape, [*chain.from_iterable(places)]


PARSERS = {"voc": (VOC_LISTS, voc_lists), "yolo": (SHAPE_LISTS, yolo_lists)}
"""The columns and the parser of the formats with a file for each image."""


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


DIALECTS: Mapping[str, tuple[Callable[..., list[Entry]], Callable[..., Region]]] = {
    "labelme": (_labelme, _labelme_region),
    "via": (_via, _via_region),
}  # the functions that find a file's images, and a region, by format, for files that name their images
