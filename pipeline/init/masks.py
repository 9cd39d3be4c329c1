"""Guesses masks, with classes by the values or colours of their pixels, or drawn from shapes; and key points."""

import io
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from typing import Any

from PIL import Image

from recordmill.pipeline.build.images.masks import values
from recordmill.pipeline.init.guess import Choice, Guess, Header, feature, left_out
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.formats.image_fields import IMAGE
from recordmill.pipeline.sources.images import file_path
from recordmill.pipeline.sources.paths import join
from recordmill.transforms.contract.image_header import ImageError

MOST_PIXELS, LEVELS, IGNORED = 64_000_000, 256, 255
MASK_COLUMN = re.compile(r"(?i)(\w*_)?(mask|seg|segmentation)s?")
"""Names of columns of masks in a table."""


def guess_mask(sample: SourceSample, item: Guess, name: str, image: Guess) -> Guess:
    """Turns a guess into a mask of the image `name`, with the values, or the colours, of its pixels as classes."""
    blocks, is_all = sample.take({item.column: Column(ColumnType.IMAGE, optional=True)})
    found, colors, looked = set[int](), Counter[Any](), 0
    for number, block in blocks:
        for reference in filter(None, block.table[item.column].to_pylist()):
            data = _read(sample, number, reference)
            looked += bool(data)
            try:
                found |= {*values(data, MOST_PIXELS, None).ravel().tolist()} if data else set()
            except ImageError as error:
                if "`colors`" not in error.message:
                    wrong = left_out(item.column, f"masks by their names, but {error.message}", item.reading)
                    return wrong if MASK_COLUMN.fullmatch(item.column) else item
                with Image.open(io.BytesIO(data)) as picture:
                    colors.update({color: pixels for pixels, color in picture.convert("RGB").getcolors(1 << 24) or ()})
    kept = {option: choice for option, choice in item.options.items() if option == "optional"}
    options: dict[str, Choice] = {"kind": ("mask", "by its name"), "image": (name, ""), **kept}
    if max(len(found), len(colors)) > MOST_CLASSES and not MASK_COLUMN.fullmatch(item.column):
        return item  # depth, or another picture of the same
    item = replace(item, headers=_headers(item, image))
    of = f"in {count(looked, 'mask')}; names are yours to give"
    if len(colors) > LEVELS:
        why = f"{len(colors):,} colours in {looked:,} masks, as of blurred edges: save a colour a class"
        return left_out(item.column, why, item.reading)
    if colors:
        names = {f"class_{number}": list(color) for number, (color, _) in enumerate(colors.most_common(LEVELS))}
        options |= {"classes": (list(names), f"a colour each, {of}"), "colors": (names, "")}
        return replace(item, options=options)
    if IGNORED in found and len(found) > 2:
        options["ignore"] = (IGNORED, "by custom")
        found.remove(IGNORED)
    named = {value: f"class_{value}" for value in sorted(found)}
    options["classes" if is_all else "# classes"] = (named, f"the values {of}")
    return replace(item, options=options)


def _read(sample: SourceSample, number: int, reference: bytes) -> bytes:
    """Reads a mask's file; nothing if it is missing, or no file of its own."""
    path = file_path(reference)
    with suppress(OSError):
        if path is not None:
            with sample.files.open(join(sample.readers[number].image_root(sample.files), path)) as file:
                return file.read()
    return b""


def _headers(item: Guess, image: Guess) -> list[list[Header]]:
    """Forgets the losses of masks, which keep indices; one of another size than its image becomes a reject."""
    images = image.headers if len(image.headers) == len(item.headers) else item.headers  # else some lack a mask
    rows = zip(chain.from_iterable(item.headers), chain.from_iterable(images), strict=True)
    return [[_header(mask, of)] for mask, of in rows]


def _header(mask: Header, image: Header) -> Header:
    if isinstance(mask, str) or isinstance(image, str):
        return mask
    is_same = sorted(mask[:2]) == sorted(image[:2])  # EXIF may turn one
    return (*mask[:3], (), mask[4]) if is_same else "unequal_sides"


MOST_CLASSES = 40  # for a person to read
SHAPE = re.compile(r'"(polygons": ?\[\[|rle": ?\{)')


def guess_shapes(sample: SourceSample) -> Guess:
    """Guesses shapes of annotated objects as a mask; leaves them out with the reason where it would not build."""
    classes, is_known = sample.stated["classes"], True
    if not classes:
        names = sample.whole().read("categories", ColumnType.CATEGORY, many=True)
        classes, is_known = sorted(names.distinct), names.is_all
    are_many = len(classes) > MOST_CLASSES
    if are_many and sample.sources[0].format == "coco":  # its shapes make a large table larger
        reading = Reading()
    elif not any(map(SHAPE.search, (reading := sample.read("shapes", ColumnType.OBJECTS)).values)):
        return left_out("shapes", "boxes without polygons", reading)
    why = f"a mask would have {len(classes):,} classes: name them, or draw instances" if are_many else ""
    why = why or ("" if is_known else "a mask needs all classes, and not all rows were read")
    if find_spec("pycocotools") is None:
        why = 'pycocotools draws masks: pip install "recordmill[masks]"'
    background = "background" if "background" not in classes else "no_object"
    options: dict[str, Any] = {"draw": "classes", "classes": [background, *classes], "ignore": IGNORED}
    if why:
        options["classes"] = [background, "…"] if are_many else options["classes"]
        shown = {"kind": "mask", "image": IMAGE, "column": "shapes", **options}
        return left_out("shapes", f"{why}; as a feature: {json.dumps(shown, ensure_ascii=False)}", reading)
    reasons = {"draw": "or `instances`, without `classes`", "ignore": "for crowds, and around padded images"}
    chosen = {option: (value, reasons.get(option, "")) for option, value in options.items()}
    return feature("shapes", "mask", "drawn from the objects' shapes", reading, image=(IMAGE, ""), **chosen)


def guess_keypoints(sample: SourceSample) -> Guess:
    """Guesses key points of annotated objects, in pairs that the source states, or by left and right in their names."""
    reading, stated = sample.read("keypoints", ColumnType.NUMBER, many=True), sample.stated
    points, boxes = stated.get("points", []), sample.read("boxes", ColumnType.NUMBER, many=True)
    if len({*points}) < max(1, len(points)):
        objects = sum(map(len, boxes.values)) // 4
        points = [f"point_{number}" for number in range(sum(map(len, reading.values)) // (3 * max(objects, 1)))]
    mirrored = [(one, points.index(other)) for one, name in enumerate(points) if (other := _other(name)) in points]
    pairs = {"flip_pairs": stated.get("flip_pairs") or mirrored, "skeleton": stated.get("skeleton", [])}
    named = {
        option: [[points[one], points[other]] for one, other in some if {one, other} <= {*range(len(points))}]
        for option, some in pairs.items()
    }
    if not points:
        return left_out("keypoints", f"no key points in {reading.of}", reading)
    flips, skeleton = named["flip_pairs"], named["skeleton"]
    options = {"unit": sample.data.known["boxes"]["unit"], "points": (points, "")}
    options["flip_pairs"] = flips, "change places in a mirrored image" if flips else "none by name: add any"
    options |= {"skeleton": (skeleton, "")} if skeleton else {}
    return feature("keypoints", "keypoints", f"of objects in {reading.of}", reading, image=(IMAGE, ""), **options)


def _other(name: str) -> str | None:
    """Returns the right side's point of a left one's name."""
    return name.replace("left", "right") if "left" in name else None


GUESSES = {"shapes": guess_shapes, "keypoints": guess_keypoints}
"""The guesses about columns of annotated objects."""
