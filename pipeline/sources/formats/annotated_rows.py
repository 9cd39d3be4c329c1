"""Rows of annotated images on their way from the plan to a worker, and the names of images and classes.

An annotation belongs to the image with the same path, except for the ending and folders such as `images` and `labels`.

>>> image_key("coco128/images/train2017/9.jpg") == image_key("coco128/labels/train2017/9.txt")
True
"""

import csv
import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from recordmill.pipeline.sources.encoded import MAX_LINE_BYTES, open_utf8
from recordmill.pipeline.sources.faults import Fault, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.paths import is_image, note
from recordmill.pipeline.sources.source_reader import unpacked
from recordmill.pipeline.yaml_document import SpecError, load_yaml
from recordmill.transforms.contract.bounds import NAMES, OBJECTS, POINTS

FOLDERS = {"", ".", "images", "jpegimages", "data", "labels", "annotations"}
"""Folders, in small letters, that distinguish images from annotations."""
LEAVING = "boxes that leave their image and are clipped, or have no area"
YAML_ENDINGS = (".yaml", ".yml")
YAML_WORD = 100  # letters that take as long to parse as a value, 50 µs
POINT_SHAPE = re.compile(r"\[[1-9]\d{0,3}, [23]\]")
SIDES = "@sides"  # the list entry for the annotated width and height: `200 x 100`
Lists = Mapping[str, Any]  # a row's values by column: lists of its annotations
Names = Mapping[str, str]  # class names by the annotations' codes; empty if codes are names
PointShape = tuple[int, int]  # the number of key points, and of each one's numbers, 2 or 3


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
    for bound, count in ((OBJECTS, len(objects)), (POINTS, numbers)):
        if count > bound.most:
            return Fault(bound.reason, bound.beyond(count))
    flat = {name: [*chain.from_iterable(lists[name])] for name in ("boxes", "keypoints") if name in lists}
    return lists | flat


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
    found = [(path, file) for path in filter(None, paths) for file in files.match(escape(path))]
    return [
        file._replace(path=path.removeprefix(f"{root}/") if "://" in path else os.path.relpath(path, root))
        for path, file in found
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
    found = _names(_text(files, path), path)
    if not found.names:
        raise SourceError(f"{path} holds no names: give YOLO's `names`, a name a line, or CSV of codes and names")
    return found


def _names(text: str, path: str) -> Classes:
    if (values := text.count("\n") + text.count(",") + len(text) // YAML_WORD) > NAMES.most:
        raise SourceError(f"{path}: {NAMES.beyond(values)}: are these the classes?")
    if path.lower().endswith(".csv"):
        return Classes({row[0]: row[1] for row in csv.reader(text.splitlines()) if len(row) > 1})
    if not path.lower().endswith(YAML_ENDINGS):
        return Classes({str(number): line.strip() for number, line in enumerate(text.strip().splitlines())})
    try:
        document = load_yaml(text, path, "`names:`")
    except SpecError as error:
        raise SourceError(str(error)) from None
    points, flips = (document.value.get(name) for name in ("kpt_shape", "flip_idx"))
    if points and not POINT_SHAPE.fullmatch(str(points)):
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


def class_name(code: str, names: Names) -> str | None:
    """Returns a class name; None if the given names lack the code."""
    return names.get(code) if names else code
