"""Rows of annotated images on their way from the plan to a worker, and the names that images and classes have.

An annotation belongs to the image of the same path, but for the ending and for folders that tell the two apart.

>>> image_key("coco128/images/train2017/9.jpg") == image_key("coco128/labels/train2017/9.txt")
True
"""

import csv
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recordmill.pipeline.sources.encoded import open_utf8
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.lines import MAX_LINE_BYTES
from recordmill.pipeline.sources.paths import is_image, note
from recordmill.pipeline.sources.source_reader import SourceError, unpacked
from recordmill.pipeline.yaml_document import SpecError, load_yaml
from recordmill.transforms.contract.bounds import NAMES

FOLDERS = {"", ".", "images", "jpegimages", "data", "labels", "annotations"}
"""The folders, in small letters, by which images and annotations differ."""
LEAVING = "boxes that leave their image, where they are cut, or have no area"
YAML_ENDINGS = (".yaml", ".yml")
YAML_WORD = 100  # letters that cost as much to parse as a value, 50 µs
SIDES = "@sides"  # among the lists, the width and height that an annotation states: `200 x 100`
Lists = Mapping[str, Any]
"""The values of a row by column: lists of what is annotated."""
Names = Mapping[str, str]
"""The names of classes by the codes that annotations use; empty where codes are names."""


class AnnotatedRow(NamedTuple):
    """An image and its annotations."""

    image: str | None
    """Its path, relative to the folder of images; of a table of annotations as it says; None where it names none."""
    annotations: Lists | Fault | None = None
    """None where a file holds them, or nothing does."""
    file: str | None = None
    """The file that holds the annotations of this image alone, or the table that lists it."""
    number: int | None = None
    """The image's number in the table, from 1."""
    bytes: int = 0
    """The size of the annotation file."""


@dataclass(frozen=True)
class AnnotatedRows:
    """The work of a chunk."""

    packed: bytes
    """`pack` of a list of rows."""
    names: Names

    @property
    def rows(self) -> list[AnnotatedRow]:
        """Unpacks the rows."""
        return unpacked(self.packed)


@dataclass(frozen=True)
class Found:
    """The rows of all annotations."""

    rows: Iterable[AnnotatedRow]
    bytes: Sequence[int]
    """The size of each row's own annotation file."""
    names: Sequence[str]
    """The columns, but for the image."""
    notes: list[str] = field(default_factory=list)


def image_key(path: str) -> tuple[str, ...]:
    """Returns the name by which an image and its annotation find each other."""
    return tuple(part for part in posixpath.splitext(path)[0].split("/") if part.lower() not in FOLDERS)


class ImageList:
    """The images that a file lists, by name or by the end of their paths; all, where there is no file."""

    def __init__(self, lines: Iterable[str] | None) -> None:
        listed = map(_listed, lines or ())
        self._listed = {image_key(name if is_image(name) else f"{name}."): name for name in listed if name}
        self._takes_all, self._missing = lines is None, {*self._listed.values()}
        self._lengths = {len(key) for key in self._listed} - {0}

    @classmethod
    def read(cls, files: Files, path: str | None) -> "ImageList":
        """Reads a list, or lists a folder. Raises: SourceError, OSError: it cannot be read."""
        if path and files.is_folder(path):
            return cls(file.path for file in files.match(f"{escape(path.rstrip('/'))}/**") if is_image(file.path))
        return cls(None if path is None else _text(files, path).splitlines())

    def __contains__(self, path: str) -> bool:
        """Whether an image is listed."""
        key = image_key(path)
        lengths = (length for length in self._lengths if length <= len(key))
        ends = [key[-length:] for length in lengths if key[-length:] in self._listed]
        self._missing.difference_update(self._listed[end] for end in ends)
        return self._takes_all or bool(ends)

    def notes(self) -> list[str]:
        """Returns a note of the listed images that were not asked for, since they are not there."""
        return note("listed images that are not there", sorted(self._missing))


def _listed(line: str) -> str:
    """Returns the image that a line lists; in a list of one class a number follows: `2008_000002 -1`."""
    line = line.strip().replace("\\", "/")
    listed, _, number = line.rpartition(" ")
    return listed.rstrip() if listed and number.removeprefix("-").isdecimal() else line


def read_names(files: Files, path: str | None) -> Names:
    """Reads the names of classes: `names` of YOLO's YAML, a CSV file of codes and names, or a name a line, from 0.

    Raises: SourceError: the file holds no names; OSError.
    """
    if path is None:
        return {}
    names = _names(_text(files, path), path)
    if not names:
        raise SourceError(f"{path} holds no names: give YOLO's `names`, a name a line, or CSV of codes and names")
    return names


def _names(text: str, path: str) -> Names:
    if (values := text.count("\n") + text.count(",") + len(text) // YAML_WORD) > NAMES.most:
        raise SourceError(f"{path}: {NAMES.beyond(values)}: are these the classes?")
    if path.lower().endswith(".csv"):
        return {row[0]: row[1] for row in csv.reader(text.splitlines()) if len(row) > 1}
    if not path.lower().endswith(YAML_ENDINGS):
        return {str(number): line.strip() for number, line in enumerate(text.strip().splitlines())}
    try:
        document = load_yaml(text, path, "`names:`")
    except SpecError as error:
        raise SourceError(str(error)) from None
    if ("kpt_shape",) in document.nodes:
        cut = "cut each line behind its fifth number, and take `kpt_shape` out"
        raise SourceError(f"{path} has `kpt_shape`, and key points are not read: {cut}")
    codes = [where[1] for where in document.nodes if len(where) == 2 and where[0] == "names"]
    return {str(code): document.text(("names", code)) or "" for code in codes}  # as written: YAML reads `no` as False


def _text(files: Files, path: str) -> str:
    with open_utf8(files, path) as file:
        data = file.read(MAX_LINE_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SourceError(f"{path} is not UTF-8") from None


def class_name(code: str, names: Names) -> str | None:
    """Returns the name of a class; None where names are given, but not its."""
    return names.get(code) if names else code
