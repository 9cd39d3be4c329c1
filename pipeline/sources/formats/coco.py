"""COCO's JSON: joins `images`, `annotations` and `categories` by id, and several files by image.

An annotation with a `caption` adds to `captions`; one with a `bbox`, or a `segmentation` of polygons, adds to `boxes`,
`categories` and `crowd`, and where these columns are asked to `shapes` and `keypoints`.
"""

import json
import posixpath
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from math import isfinite
from typing import Any, NamedTuple

from recordmill.pipeline.sources.encoded import naming_damage, open_plain
from recordmill.pipeline.sources.faults import Fault, SourceError
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.formats.annotated_rows import LEAVING, SIDES, AnnotatedRow, Found, ImageList
from recordmill.pipeline.sources.formats.json_document import JsonDamageError, json_items
from recordmill.pipeline.sources.paths import join, note
from recordmill.transforms.base.bounds import OBJECTS, POINTS, ImageError
from recordmill.transforms.images.shapes import box_around, finite, polygons_of, read_runs

DECIMAL = re.compile(r"(?:0|[1-9][0-9]{0,17})")
IMAGE_FIELDS, BOXES, CAPTIONS = ("id",), ("boxes", "categories", "crowd"), ("captions",)
PARTS = {"shapes": "segmentation", "keypoints": "keypoints"}  # columns, read only if asked, and their fields
SLACK = 1  # pixel: COCO rounds its own boxes
POINT_BYTES = 3 * 8  # x, y and visibility, float64
LARGEST = 1 << 1000  # larger integers overflow float64
BOXLESS = "`caption`, and no `bbox` of four finite numbers, nor polygons, with an `iscrowd` of 0 or 1"
MASK = "; for a `segmentation` in run lengths, pycocotools' `mask.toBbox` makes a `bbox`"
PANOPTIC = "; `segments_info` are of panoptic PNGs: `panopticapi` converts them to COCO's detection format"
NO_VALUES: list[Any] = []
NO_NUMBERS: "array[Any]" = array("d")
"""The shared, never modified lists of images without annotations: an image may take three bytes of JSON."""


class Parts(NamedTuple):
    """An annotation's shape, JSON without brackets, the height and width of its run lengths, and its key points."""

    shape: str = '"polygons": []'
    size: tuple[int, int] | None = None
    points: bytes = b""  # float64


@dataclass(slots=True)
class CocoImage:
    """An image with its annotations so far; arrays, since a number takes 8 bytes there and 32 in a list."""

    id: Any
    number: int | None = None  # the number in `images`, from 1; None before its entry is read
    path: str | None = None
    file: str = ""
    sides: tuple[Any, Any] | None = None
    ids: list[Any] = field(default_factory=lambda: NO_VALUES)
    boxes: "array[float]" = field(default_factory=lambda: NO_NUMBERS)
    categories: list[Any] = field(default_factory=lambda: NO_VALUES)  # ids, later replaced by names
    crowd: "array[int]" = field(default_factory=lambda: NO_NUMBERS)
    parts: list[Parts] = field(default_factory=lambda: NO_VALUES)  # as many as boxes, if asked
    captions: list[tuple[Any, str]] = field(default_factory=lambda: NO_VALUES)  # annotation ids and captions
    known: dict[Any, dict[bytes, int]] | None = None  # once another file is joined: places by annotation and key points
    fault: Fault | None = None

    def add(self, annotation: Mapping[str, Any], asked: Collection[str] = ()) -> None:
        """Adds an annotation, with the `PARTS` asked, or stores its fault."""
        caption, known, crowd = annotation.get("caption"), _id(annotation.get("id")), annotation.get("iscrowd", 0)
        if self._is_full(1):
            return
        box: Any = annotation.get("bbox")
        if not box:
            with suppress(ValueError):  # no polygons
                left, top, right, bottom = box_around(polygons_of(annotation.get("segmentation")))
                box = [left, top, right - left, bottom - top]
        is_box = isinstance(box, list) and list(map(_is_number, box)) == [True] * 4 and crowd in (0, 1)
        if isinstance(caption, str):
            self._add_caption(known, caption)
        if is_box and ("category_id" in annotation or not isinstance(caption, str)):
            parts = self._parts(known, annotation, asked) if asked else None
            self._add_box(known, box, annotation.get("category_id"), int(crowd), parts)
        elif not isinstance(caption, str):
            hint = MASK if isinstance(annotation.get("segmentation"), dict) else ""
            hint = PANOPTIC if "segments_info" in annotation else hint
            self._refuse(f"the annotation {_shown(known)} has no {BOXLESS}{hint}")

    def _add_caption(self, known: Any, caption: str) -> None:
        self.captions = [] if self.captions is NO_VALUES else self.captions
        self.captions.append((known, caption))

    def _parts(self, known: Any, annotation: Mapping[str, Any], asked: Collection[str]) -> Parts:
        shape, points = (annotation.get(name) if column in asked else None for column, name in PARTS.items())
        try:
            if shape and isinstance(shape, dict):
                size: tuple[int, int] | None = read_runs(shape)[0]
                outline = f'"rle": {json.dumps({"size": size, "counts": shape["counts"]})}'
            else:
                size, outline = None, f'"polygons": {json.dumps(polygons_of(shape or []))}'
            if len(numbers := finite(points or [])) % 3:
                raise ValueError(f"wanted x, y and visibility of each key point, found {len(numbers)} numbers")
            return Parts(outline, size, array("d", numbers).tobytes())
        except ValueError as error:
            self._refuse(f"the annotation {_shown(known)}: {error}")
        except ImageError as error:
            self._refuse(error.message, error.reason)
        return Parts()

    def _add_box(self, known: Any, box: Iterable[float], category: Any, crowd: int, parts: Parts | None) -> None:
        if self.boxes is NO_NUMBERS:
            self.ids, self.boxes, self.categories, self.crowd = [], array("d"), [], array("b")
        self.ids.append(known)
        self.boxes.extend(box)
        self.categories.append(category)
        self.crowd.append(crowd)
        if parts:
            self.parts = [] if self.parts is NO_VALUES else self.parts
            self.parts.append(parts)

    def _refuse(self, wrong: str, reason: str = "malformed_row") -> None:
        self.fault = self.fault or Fault(reason, wrong)

    def _is_full(self, more: int) -> bool:
        count = len(self.ids) + len(self.captions) + more
        if count > OBJECTS.most:
            self._refuse(OBJECTS.beyond(count), OBJECTS.reason)
        return count > OBJECTS.most

    def name_categories(self, names: Mapping[Any, str]) -> None:
        named = [names.get(_hashed(_id(code))) for code in self.categories]
        if None in named:
            unknown = _shown(self.ids[named.index(None)])
            self._refuse(f"the annotation {unknown} has a `category_id` missing in `categories`")
        self.categories = named or NO_VALUES

    def join(self, other: "CocoImage") -> None:
        """Adds another file's annotations; of those with the same id and content only missing key points."""
        self.fault = self.fault or other.fault
        if self._is_full(0):
            return
        self.sides = (other.ids and other.sides) or self.sides
        own, self.known = self._annotations() if self.known is None else (), self.known or {}
        for place, (annotation, points) in enumerate(own):
            self.known.setdefault(annotation, {})[points] = place
        for annotation, points in other._annotations():
            known, *content = annotation
            places = {} if known is None else self.known.setdefault(annotation, {})
            if b"" in places and points:  # as of COCO's own two files
                place = places[points] = places.pop(b"")
                self.parts[place] = self.parts[place]._replace(points=points)
            elif not places or (points and points not in places):
                places[points] = len(self.ids)
                add = self._add_caption if len(content) == 1 else self._add_box
                add(known, *content)
                if points:
                    self.parts[-1] = self.parts[-1]._replace(points=points)
        self._is_full(0)

    def _annotations(self) -> Iterator[tuple[tuple[Any, ...], bytes]]:
        """Yields each annotation, its id with box, category, crowd and shape, or with its caption, and key points."""
        boxes = zip(*(self.boxes[side::4] for side in range(4)), strict=True)
        every = zip(map(_hashed, self.ids), boxes, self.categories, self.crowd, strict=True)
        for each, part in zip(every, self.parts or repeat(None, len(self.ids)), strict=True):
            yield (*each, part and part._replace(points=b"")), part.points if part else b""
        yield from (((_hashed(known), caption), b"") for known, caption in self.captions)

    def outside(self) -> Iterator[str]:
        """Yields the ids of boxes that leave the image or have no area."""
        if self.sides:
            width, height = self.sides
            for known, x, y, w, h in zip(self.ids, *(self.boxes[side::4] for side in range(4)), strict=True):
                if min(x, y) < -SLACK or x + w > width + SLACK or y + h > height + SLACK or min(w, h) <= 0:
                    yield _shown(known)

    def row(self, points: int | None = None) -> AnnotatedRow:
        """Returns the row, with the columns of `PARTS` unless `points`, the number of an object, is None."""
        parts = {} if points is None else self._columns(points)
        if not self.fault and not self.path:
            self._refuse(f"the image {_shown(self.id)} has no `file_name`")
        boxes = {"boxes": self.boxes.tolist(), "categories": self.categories, "crowd": self.crowd.tolist()}
        sides = " x ".join(str(int(side)) for side in self.sides or ())
        lists = {"id": self.id, SIDES: sides, **boxes, "captions": [caption for _, caption in self.captions]}
        return AnnotatedRow(self.path, self.fault or lists | parts, self.file, self.number)

    def _columns(self, points: int) -> dict[str, Any]:
        """Returns the columns of `PARTS`; an annotation without key points has zeros."""
        for known, part in zip(self.ids, self.parts, strict=False):
            if part.size and self.sides and part.size != self.sides[::-1]:
                stated = "`size` is {} x {}, and the image's height and width are {} x {}"
                self._refuse(f"the annotation {_shown(known)}: {stated.format(*part.size, *self.sides[::-1])}")
            if part.points and len(part.points) != POINT_BYTES * points:
                count = len(part.points) // POINT_BYTES
                what = f"the annotation {_shown(known)} has {count} key points, others have {points}"
                self._refuse(f"{what}: write three numbers each, and a file for each skeleton")
        numbers = sum(part.shape.count(",") + 1 + 3 * points for part in self.parts)
        if numbers > POINTS.most:
            self._refuse(POINTS.beyond(numbers), POINTS.reason)
        if self.fault:
            return {}
        named = zip(self.categories, self.crowd, self.parts, strict=False)
        shapes = (f'{{"name": {json.dumps(name)}, "crowd": {crowd}, {part.shape}}}' for name, crowd, part in named)
        none = bytes(POINT_BYTES * points)
        joined = b"".join(part.points or none for part in self.parts)
        return {"shapes": f"[{', '.join(shapes)}]", "keypoints": array("d", joined).tolist()}


def _hashed(value: Any) -> Any:
    """Makes an id hashable: JSON ids may be lists and objects, or integers that share a hash."""
    is_short = isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64
    return value if is_short or isinstance(value, str | float | None) else (repr(value),)


def read_coco(
    files: Files, root: str, paths: Sequence[str], images: str | None, listed: ImageList, asked: Collection[str] = ()
) -> Found:
    """Reads whole files, with paths relative to a root; the first file with an image sets its place among the rows.

    Image paths are relative to `images`, or, if None, to their file's folder; only `listed` images become rows, with
    the `PARTS` among the columns `asked`. Raises: SourceError: damaged, or not COCO's; OSError.
    """
    rows, by_path, outside, tiny, seen = list[CocoImage](), dict[str, CocoImage](), list[str](), list[str](), Seen()
    asked = PARTS.keys() & {*asked}
    for path in paths:
        folder = posixpath.dirname(path) if images is None else ""
        new = _read_one(files, join(root, path), folder, images, asked, seen)
        new = [image for image in new if not image.path or image.path in listed]
        for image in new:
            known, image.file = by_path.get(image.path or ""), path
            known.join(image) if known else rows.append(image)
            outside += image.outside()
        for image in new:
            if image.path:
                by_path.setdefault(image.path, image)
        tiny += [path] * (0 < max((side for image in new for side in image.boxes), default=0) <= 1)
    boxes, captions = any(image.ids or image.fault for image in rows), any(image.captions for image in rows)
    parts = [column for column, name in PARTS.items() if name in seen.fields]
    names = [*IMAGE_FIELDS, *(BOXES if boxes else ()), *(CAPTIONS if captions else ()), *parts]
    counts = (len(part.points) // POINT_BYTES for image in rows for part in image.parts)
    points = (len(seen.points) or max(counts, default=0)) if asked else None
    classes = [*dict.fromkeys(seen.classes)]
    stated = dict[str, Sequence[Any]](classes=classes, points=seen.points, skeleton=seen.skeleton)
    notes = note("annotations of images missing in `images`, left out", seen.lost) + note(LEAVING, outside)
    notes += note("files with all boxes within 1 pixel: for shares of the sides, set `unit: relative`", tiny)
    notes += note("merged categories with several ids and one name", seen.merged) + listed.notes()
    return Found((image.row(points) for image in rows), [0] * len(rows), names, notes, stated)


@dataclass
class Seen:
    """Findings in files: ids of annotations without image, names with several ids, fields, categories."""

    lost: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    fields: set[str] = field(default_factory=set)
    classes: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    skeleton: list[tuple[int, int]] = field(default_factory=list)

    def add_category(self, category: Mapping[str, Any]) -> None:
        """Adds a name, and the first key points and joined pairs of them, which COCO numbers from 1."""
        points, joined = (category.get(name) for name in ("keypoints", "skeleton"))
        self.classes.append(category["name"])
        if isinstance(points, list) and not self.points:
            self.points = list(map(str, points))
            pairs = [each for each in joined if isinstance(each, list)] if isinstance(joined, list) else []
            self.skeleton = [(each[0] - 1, each[1] - 1) for each in pairs if [*map(type, each)] == [int, int]]


def _read_one(
    files: Files, path: str, folder: str, images: str | None, asked: Collection[str], seen: Seen
) -> list[CocoImage]:
    by_id, entries, names = dict[Any, CocoImage](), list[CocoImage](), dict[Any, str]()
    keys, nameless = set[str](), 0
    try:
        with naming_damage(path), open_plain(files, path) as file:
            for key, item in json_items(file):
                keys.add(key)
                entry = item if isinstance(item, dict) else {}
                if key == "images":
                    nameless += not _path_of(entry)
                    if nameless > OBJECTS.most:
                        raise JsonDamageError(f"{nameless:,} entries of `images` have no `file_name`: not COCO's JSON")
                    entries.append(_listed(entry, by_id, len(entries) + 1, folder, images))
                elif key == "annotations" and (known := _id(entry.get("image_id"))) is not None:
                    by_id.setdefault(_hashed(known), CocoImage(known)).add(entry, asked)
                    seen.fields.update(name for name in PARTS.values() if entry.get(name))
                elif key == "annotations":
                    seen.lost.append(_shown(entry.get("id")))
                elif key == "categories" and isinstance(entry.get("name"), str) and entry.get("id") is not None:
                    known = _id(entry["id"])
                    if names.setdefault(_hashed(known), entry["name"]) != entry["name"]:
                        raise SourceError(f"{path}: `categories` gives the id {_shown(known)} to two names")
                    seen.add_category(entry)
    except JsonDamageError as error:
        raise SourceError(f"{path} cannot be read as JSON: {error}") from None
    if "images" not in keys:
        raise SourceError(f"{path} has no `images`: COCO's JSON is one object of `images`, `annotations`, `categories`")
    for image in by_id.values():
        image.name_categories(names)
    seen.lost += [_shown(known) for image in by_id.values() if image.number is None for known in image.ids or [None]]
    seen.merged += [name for name, times in Counter(names.values()).items() if times > 1]
    return entries


def _path_of(entry: Mapping[str, Any]) -> Any:
    """Returns an image's `file_name`; of LVIS, which has none, the folder and name in its `coco_url`."""
    return entry.get("file_name") or "/".join(str(entry.get("coco_url") or "").split("/")[-2:])


def _listed(
    entry: Mapping[str, Any], by_id: dict[Any, CocoImage], number: int, folder: str, images: str | None
) -> CocoImage:
    """Returns the image of an entry of `images`; a second entry with the same id becomes another image."""
    known, name = _id(entry.get("id")), _path_of(entry)
    first = image = by_id.setdefault(_hashed(known), CocoImage(known)) if known is not None else CocoImage(None)
    if image.number is not None:
        image = CocoImage(known)
    image.number, sides = number, (entry.get("width"), entry.get("height"))
    image.sides = sides if all(map(_is_number, sides)) else None
    if isinstance(name, str) and name.strip():
        image.path = posixpath.normpath(posixpath.join(folder, name.removeprefix(f"{images}/")))
    if first.path != image.path:
        wrong = f"the `id` {_shown(known)} also names the image {first.number}: its annotations are ambiguous"
        image.fault = Fault("malformed_row", wrong)
    return image


def _is_number(value: object) -> bool:
    return isfinite(value) if isinstance(value, float) else type(value) is int and -LARGEST < value < LARGEST


def _id(value: Any) -> Any:
    """Normalizes an id: 1.0 and "1" become 1."""
    is_whole = value.is_integer() if isinstance(value, float) else isinstance(value, str) and DECIMAL.fullmatch(value)
    return int(value) if is_whole else value


def _shown(known: object) -> str:
    """Shows an id in a message only if it is a number: a string may be the user's data."""
    return str(known) if isinstance(known, int) else "without an id"
