"""Guesses masks: their classes by the values, or the colours, of their pixels; suggests those of annotated objects."""

import io
import json
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

from PIL import Image

from recordmill.pipeline.build.images.masks import values
from recordmill.pipeline.init.guess import Choice, Guess, Header, left_out
from recordmill.pipeline.init.sample import SourceSample
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.paths import join
from recordmill.transforms.contract.image_header import ImageError

MOST_PIXELS, LEVELS, IGNORED = 64_000_000, 256, 255


def guess_mask(sample: SourceSample, item: Guess, name: str, image: Guess) -> Guess:
    """Turns a guess into a mask of the image `name`, with the values, or the colours, of its pixels as classes."""
    blocks, is_all = sample.take({item.column: Column(ColumnType.IMAGE, optional=True)})
    found, colors, looked = set[int](), Counter[Any](), 0
    for number, block in blocks:
        for reference in filter(None, block.table[item.column].to_pylist()):
            path = join(sample.readers[number].image_root(sample.files), parse(reference).path)
            with sample.files.open(path) as file:
                data = file.read()
            looked += 1
            try:
                found |= {*values(data, MOST_PIXELS, None).ravel().tolist()}
            except ImageError as error:
                if "`colors`" not in error.message:
                    return left_out(item.column, f"masks by their names, but {error.message}", item.reading)
                with Image.open(io.BytesIO(data)) as picture:
                    colors.update({color: pixels for pixels, color in picture.convert("RGB").getcolors(1 << 24) or ()})
    kept = {option: choice for option, choice in item.options.items() if option == "optional"}
    options: dict[str, Choice] = {"kind": ("mask", "pairs with an image by its name"), "image": (name, ""), **kept}
    item = replace(item, headers=_headers(item, image))
    of = f"in {looked:,} masks; names are yours to give"
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


PARTS_OF_OBJECTS = ("shapes", "keypoints")
SHOWN_NAMES = 20


def guess_part(sample: SourceSample, name: str) -> Guess:
    """Suggests, in a comment, a feature for annotated objects: a mask of their shapes, or their key points."""
    kind, many = (ColumnType.OBJECTS, False) if name == "shapes" else (ColumnType.NUMBER, True)
    reading = sample.read(name, kind, many=many)
    feature: dict[str, Any] = {"kind": name, "image": "image"}
    if many:
        mirrored = [[each, each.replace("left", "right")] for each in sample.points if "left" in each]
        pairs = [pair for pair in mirrored if pair[1] in sample.points]
        stated = sample.data.known.get(name) or {"points": (sample.points or "…", ""), "flip_pairs": (pairs, "")}
        stated = {"unit": sample.data.known["boxes"]["unit"], **stated}
        feature |= {option: value for option, (value, _) in stated.items()}
    elif reading.values and not any('"polygons":[[' in value.replace(" ", "") for value in reading.values):
        return left_out(name, "boxes without polygons", reading)
    else:
        names = sorted(sample.whole().read("categories", ColumnType.CATEGORY, many=True).distinct)
        classes = ["background", *(names if len(names) <= SHOWN_NAMES else ["…"])]
        feature |= {"kind": "mask", "column": name, "draw": "classes", "classes": classes, "ignore": 255}
    return left_out(name, f"as a feature: {feature['kind']}: {json.dumps(feature, ensure_ascii=False)}", reading)
