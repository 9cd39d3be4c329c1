"""Guesses images by the headers of about 200, masks and key points of these, and a table's folder of images."""

import io
import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from typing import Any

import numpy as np
from PIL import Image

from recordmill.pipeline.build.images.image_files import ImageFiles
from recordmill.pipeline.build.images.masks import values
from recordmill.pipeline.init.guess import FITS, Choice, Guess, Header, Looked, feature, left_out, share_of
from recordmill.pipeline.init.recognize import NAMING
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.files import why_absent
from recordmill.pipeline.sources.formats.image_fields import IMAGE
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.images import DATA_URL, parse
from recordmill.pipeline.sources.naming import DEPTH, MASK_COLUMN, split_of
from recordmill.pipeline.sources.options import AnnotatedImages
from recordmill.pipeline.sources.paths import Inside, is_image, join, listed, may_be_image
from recordmill.transforms.base.arrays import ArrayError, npy_numbers
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.images.color_profile import foreign_profile, profile_name
from recordmill.transforms.images.image_facts import KEPT, deep_numbers, losses
from recordmill.transforms.images.image_header import ImageError, check_colours, check_header
from recordmill.transforms.images.image_parts import TIFFS
from recordmill.transforms.images.image_spec import MAX_BYTES
from recordmill.transforms.images.image_stored import PIXEL_BYTES

LOOKED_AT = 200
HEAD_BYTES = 1 << 20  # 1 MiB, enough for a header after metadata
READERS = 16  # images read at once: a remote store mostly waits
SMALL_SIDE, USUAL_SIDE = 256, 224
FOLDERS = ("train", "train_images", "images", "train/images")
"""Usual folders of a table's images, besides one named as the table."""
UNREAD, FRAMES = "unsupported_format", "further frames"
MAX_PIXELS = 64_000_000  # the default of `max_pixels`


def read_headers(sample: SourceSample, name: str, *, many: bool) -> list[list[Looked]]:
    """Reads the image headers of about 200 rows, as a build does before decoding; a row may have none."""
    asked = {name: Column(ColumnType.IMAGE, many=many, optional=True)}
    if isinstance(sample.sources[0], AnnotatedImages):  # with boxes an image has the sides that its annotation states
        asked["boxes"] = Column(ColumnType.NUMBER, many=True, optional=True)
    blocks, _ = sample.take(asked, rows=LOOKED_AT)
    rows = [
        [(number, reference) for reference in (value if many else [value]) if reference]
        for number, block in blocks
        for value in block.table[name].to_pylist()
        if value is not None
    ]
    images = list({image for row in rows for image in row})
    with ThreadPoolExecutor(READERS) as pool:
        headers = dict(zip(images, pool.map(lambda image: _header(sample, *image), images), strict=True))
    return [[headers[image] for image in row] for row in rows]


def _header(sample: SourceSample, number: int, reference: bytes) -> Looked:
    """Returns an image's size, colour profile and losses, or the reason of its reject and a message."""
    parsed, data = parse(reference), parse(reference).data
    path = join(sample.readers[number].image_root(sample.files), parsed.path)
    try:
        if data is None:
            with sample.files.open(path) as file:
                file.seek(parsed.offset)
                data = file.read(min(parsed.length or HEAD_BYTES, HEAD_BYTES))
                if data[:4] in TIFFS:  # tags may be at the end
                    data += file.read((parsed.length or MAX_BYTES) - len(data))
        stated = parsed.sides if len(data) < HEAD_BYTES else ""  # EXIF may be at the end
        header = check_header(data, MAX_PIXELS, stated)
        profile = foreign_profile(data, header.format)
    except ImageError as error:
        return f"{error.reason}: {error.message}"
    except OSError as error:
        if why_absent(error, path, sample.files) is None:
            raise
        return "unreadable"
    profiles, lost = [profile_name(profile)] if profile else [], losses(data, header.format, stated=stated)
    try:
        check_colours(data, header.format)
    except ImageError as error:
        lost = (f"{error.reason}: {error.message}", *(KEPT & {*lost}))  # if the images are read as colours
    deep = deep_numbers(data, header.format)
    if header.format == "NPY":
        for dtype in reversed(PIXEL_BYTES):  # the smallest type that holds all numbers
            with suppress(ArrayError):
                deep = dtype, npy_numbers(data, dtype).reshape(header.height, header.width, -1).shape[2]
        if parsed.data is not None and deep and deep[1] > header.height:
            return "of more channels than rows: rather an array with the channels first"
    return Header(header.width, header.height, profiles, lost, deep)


def guess_image(sample: SourceSample, name: str) -> Guess | None:
    """Guesses whether a column is an image, or several; None if neither."""
    for many in (False, True):
        texts = sample.read(name, ColumnType.TEXT, many=many)
        are_texts = texts.fit >= FITS / 2
        if are_texts and not are_named(texts) and name != sample.data.image_column:
            if any(value[:1] == "[" for value in texts.distinct):
                continue  # lists in cells
            return None
        images = sample.read(name, ColumnType.IMAGE, many=many)
        if not are_texts and images.fit < FITS:
            continue
        headers = read_headers(sample, name, many=many)
        each = list(chain.from_iterable(headers))
        good = [header for header in each if not isinstance(header, str)]
        sizes = [header[:2] for header in good]
        if not are_texts and 2 * len(sizes) <= len(each):
            continue
        if not sizes and name != IMAGE:
            why = "missing images, or outside by links: `images: FOLDER` names their folder"
            return feature(name, "raw", why, texts, **({"many": (True, "")} if many else {}))
        what = f"{'lists of ' if many else ''}images, by their {'paths' if are_texts else 'bytes'}"
        fit = ("pad", "the whole image, padded; or `crop`, `stretch`")
        deeps = Counter(header.deep for header in good).most_common(1)
        deep = next((of for of, some in deeps if some >= FITS * len(good)), None)  # of nearly all
        stacks = sum(FRAMES in header.losses for header in good)
        are_stacks = bool(deep) and 2 * stacks > len(good)
        kind = "image_sequence" if many or are_stacks else IMAGE
        share = share_of(stacks, len(good), count(len(good), "file"))
        more: dict[str, Choice] = {"pages": ("all", f"several in {share}")} if are_stacks else {}
        if deep:
            more["channels"] = deep[1], "the files' bands"
            if deep[0] != "uint8":
                more["dtype"] = deep[0], "the type of the files' numbers"
                more["normalize"] = "none", "or `zero_one`, with the `range` that counts"
                more |= {"resize": ("nearest", "means of depths and holes are neither")} if DEPTH.search(name) else {}
        read = [[_read_as(header, deep, are_stacks) for header in row] for row in headers]
        return replace(feature(name, kind, what, images, size=_common_size(sizes), fit=fit, **more), headers=read)
    return None


def _read_as(header: Looked, deep: tuple[str, int] | None, are_stacks: bool) -> Looked:
    """Forgets the losses of a deep image; one of another type than the others, or a lone stack, becomes a reject."""
    if isinstance(header, str) or (deep is None and not "".join(header.losses[:1]).startswith(UNREAD)):
        return header
    if deep is None:
        return header.losses[0]
    is_lone = FRAMES in header.losses and not are_stacks
    kept = tuple(KEPT & {*header.losses} - {FRAMES})
    return UNREAD if header.deep != deep or is_lone else header._replace(losses=kept)


def are_named(texts: Reading) -> bool:
    """Whether nearly all non-blank strings name images."""
    filled = sum(count for value, count in texts.distinct.items() if value.strip())
    return sum(count for value, count in texts.distinct.items() if _is_named(value)) >= FITS * filled > 0


def _is_named(value: str) -> bool:
    """Whether a string is an image's path, or a `data:` URL."""
    path = value.strip()
    return path[:5].lower() == DATA_URL or (may_be_image(path) and "\n" not in path and "://" not in path)


def _common_size(sizes: Sequence[tuple[int, int]]) -> Choice:
    """Returns height and width with the reason: the images' own size if common and small."""
    if not sizes:
        return [USUAL_SIDE, USUAL_SIDE], "height, width: a usual size; no image's header was readable"
    (width, height), alike = max(Counter(sizes).items(), key=lambda item: (item[1], item[0]))
    images = count(len(sizes), "image")
    if 2 * alike >= len(sizes) and max(width, height) <= SMALL_SIDE:
        return [height, width], f"height, width of {share_of(alike, len(sizes), images)}"
    ordered = sorted(sizes, key=lambda size: (size[0] * size[1], size))
    ends = [f"{size[0]} x {size[1]}" for size in dict.fromkeys((ordered[0], ordered[-1]))]
    return [USUAL_SIDE, USUAL_SIDE], f"height, width: a usual size; {images}: {' to '.join(ends)}"


def images_folder(sample: SourceSample) -> tuple[str] | None:
    """Returns the folder below a table's with the sample's first image; None if missing, or in its own folder."""
    if sample.sources[0].format not in NAMING:
        return None
    texts = {name: sample.read(name, ColumnType.TEXT) for name in sample.names}
    lists = [sample.read(name, ColumnType.TEXT, many=True) for name in texts if not texts[name].values]
    every = (value.strip() for each in (*texts.values(), *lists) for value in each.distinct if _is_named(value))
    named = (value.replace("\\", "/") for value in every)  # as a build reads it
    path = next((posixpath.normpath(value) for value in named if value[:5].lower() != DATA_URL), None)
    if path is None:
        return None
    own = posixpath.dirname(sample.files.match(sample.sources[0].path)[0].path)
    above = posixpath.dirname(own) if "://" not in own or own.count("/") > 2 else own  # no other bucket
    ways = (f"{escape(own)}/**", escape(above), f"{escape(above)}/images", f"{escape(above)}/images/*")
    near = next(filter(None, (sample.origin.match(f"{way}/{escape(path)}") for way in ways)), [])
    folders = [image.path.removesuffix(f"/{path}") for image in near]
    of_split = [each for each in folders if split_of(*each.split("/")[-2:]) == sample.sources[0].split]
    folder = own if own in folders else next(iter(of_split or folders), None)
    if folder and not Inside(folder).holds(path):  # a build follows no link out of the folder
        real = os.path.realpath(join(folder, path))
        folder = real.removesuffix(f"/{path}") if real.endswith(f"/{path}") else folder
    return (folder,) if folder and folder != own else None


def images_by_name(sample: SourceSample) -> tuple[str, str] | None:
    """Finds a table's column of most image names without ending, and the pattern of their paths: `train/*.jpg`."""
    is_named = any(are_named(sample.read(name, ColumnType.TEXT)) for name in sample.names)
    if sample.sources[0].format not in NAMING or is_named:
        return None
    table = posixpath.splitext(sample.files.match(sample.sources[0].path)[0].path)[0]
    folders = [table, f"{table}_images", *(join(posixpath.dirname(table), name) for name in FOLDERS)]
    for folder in filter(sample.origin.is_folder, dict.fromkeys(folders)):
        paths = (file.path[len(folder) + 1 :] for file in sample.origin.match(f"{escape(folder)}/*"))
        stems, found = dict(map(posixpath.splitext, filter(is_image, paths))), dict[str, list[str]]()
        for name in sample.names:
            values = sample.read(name, ColumnType.CATEGORY).distinct
            named = list(filter(stems.__contains__, values))
            found |= {name: named} if len(named) >= max(1, FITS * len(values)) else {}
        if found:
            best = max(found, key=lambda name: len(found[name]))
            return f"{escape(folder)}/*{stems[found[best][0]]}", best
    return None


MASK, LEVELS, IGNORED = "mask", 256, 255
SURE: dict[tuple[int, ...], tuple[str, ...]]
SURE = {(0, 1): ("background", "foreground"), (0, 255): ("background", "foreground")}
SURE |= {(0, grey, 255): ("background", "unknown", "foreground") for grey in (127, 128)}
"""The names of the only values of masks; the last are of trimaps."""
BLURRED_VALUES, BLURRED_SHARE = 16, 0.8
"""More values than this, and at least this share of pixels black or white: edges are blurred."""
SHOWN = 4  # values with their shares
SPARSE = 16  # values further apart are grey levels, of which 255 is one
YOURS = "names are yours to give"


def guess_mask(sample: SourceSample, item: Guess, name: str, image: Guess) -> Guess:
    """Turns a guess into a mask of the image `name`, with the values, or the colours, of its pixels as classes."""
    try:
        found, colors, looked, is_all = _counted(sample, item.column)
    except ImageError as error:
        wrong = left_out(item.column, f"masks by their names, but {error.message}", item.reading)
        return wrong if MASK_COLUMN.fullmatch(item.column) else item
    options: dict[str, Choice] = {"kind": ("mask", "by its name"), "image": (name, ""), **item.optional}
    are_many = max(len(found), len(colors)) > MOST_CLASSES or max(found, default=0) >= LEVELS
    if are_many and not MASK_COLUMN.fullmatch(item.column):
        return item  # depth, or another picture of the same
    images = image.headers if len(image.headers) == len(item.headers) else item.headers  # else some lack a mask
    headers = list[Looked]()
    for mask, of_image in zip(chain.from_iterable(item.headers), chain.from_iterable(images), strict=True):
        if not isinstance(mask, str) and not isinstance(of_image, str):  # masks keep indices; EXIF may turn an image
            is_same = sorted(mask[:2]) == sorted(of_image[:2])
            mask = mask._replace(losses=()) if is_same else "unequal_sides"
        headers.append(mask)
    item = replace(item, headers=[[header] for header in headers])
    of, edges = f"in {count(looked, 'mask')}", "as of blurred edges: save one value, or one colour, a class"
    if len(colors) > LEVELS:
        return left_out(item.column, f"{len(colors):,} colours {of}, {edges}", item.reading)
    if len(found) > BLURRED_VALUES and found[0] + found[255] >= BLURRED_SHARE * found.total():
        why = f"{len(found):,} values {of}, by pixels {_shares(found)}, {edges}"
        return left_out(item.column, why, item.reading)
    if colors:
        names = {f"class_{number}": list(color) for number, (color, _) in enumerate(colors.most_common(LEVELS))}
        why = f"a colour each, {of}, by pixels {_shares(colors)}; {YOURS}"
        return replace(item, options={**options, "classes": (list(names), why), "colors": (names, "")})
    known, usual = sorted(found), SURE.get(tuple(sorted(found)))
    if known and known[-1] >= LEVELS:
        return replace(item, options={**options, "dtype": ("uint16", f"{len(known):,} values to {known[-1]:,} {of}")})
    why = f"the values {of}, by pixels {_shares(found)}; {YOURS}"
    if usual is None and len(known) > 2 and known[-1] == IGNORED != known[-2] + 1 and known[-2] < SPARSE * len(known):
        options["ignore"] = (IGNORED, f"by custom; {found[IGNORED] / found.total():.1%} of the pixels")
        known.pop()
    named = {value: f"class_{value}" for value in known} if usual is None else dict(zip(known, usual, strict=True))
    return replace(item, options={**options, "classes" if is_all else "# classes": (named, why)})


def _counted(sample: SourceSample, column: str) -> tuple[Counter[int], Counter[Any], int, bool]:
    """Counts pixels by value, or by colour, and masks; says whether these are all. Raises: ImageError: no mask."""
    blocks, is_all = sample.take({column: Column(ColumnType.IMAGE, optional=True)})
    files = ImageFiles(sample.files, [reader.image_root(sample.files) for reader in sample.readers], "")
    found, colors, looked = Counter[int](), Counter[Any](), 0
    for number, block in blocks:
        for reference in filter(None, block.table[column].to_pylist()):
            data = b""
            with suppress(ImageError):  # unreadable, as its header tells
                data = files.read(number, reference)
            looked += bool(data)
            try:
                counts = np.bincount(values(data, MAX_PIXELS, None, "uint16").ravel()) if data else np.zeros(0, int)
                found.update({value: int(counts[value]) for value in np.flatnonzero(counts).tolist()})
            except ImageError as error:
                if "`colors`" not in error.message:
                    raise
                with Image.open(io.BytesIO(data)) as picture:
                    colors.update({color: pixels for pixels, color in picture.convert("RGB").getcolors(1 << 24) or ()})
    return found, colors, looked, is_all


def _shares(found: Counter[Any]) -> str:
    """Shows the most frequent values with their shares of pixels: `0: 91.0%, 255: 9.0%`."""
    shown = ", ".join(f"{value}: {pixels / found.total():.1%}" for value, pixels in found.most_common(SHOWN))
    return f"{shown}, …" if len(found) > SHOWN else shown


MOST_CLASSES = 40  # for a person to read
UNPAIRED = "no pairs of left and right by name"
SIDES = {way(one): way(two) for one, two in (("left", "right"), ("l", "r")) for way in (str, str.title, str.upper)}
SIDES |= {two: one for one, two in SIDES.items()}
LEFT_RIGHT, SIDED = re.compile("(?i)left|right"), re.compile("(?i)left|right|(?<![a-z])[lr](?![a-z])")
SHAPE = re.compile(r'"(polygons": ?\[\[|rle": ?\{)')


def guess_shapes(sample: SourceSample) -> Guess:
    """Guesses shapes of annotated objects as a mask; leaves them out with the reason where it would not build."""
    classes, is_known = sample.stated["classes"], True
    if not classes:
        found = sample.whole().read("categories", ColumnType.CATEGORY, many=True)
        classes, is_known = sorted(found.distinct), found.is_all
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
    names = [background, "…"] if are_many else [background, *classes]
    instead = "or `instances`, without `classes`; or `kind: masks`, `draw: objects`"
    options: dict[str, Choice] = {"draw": ("classes", instead), "classes": (names, "")}
    options["ignore"] = IGNORED, "for crowds, and around padded images"
    if why:
        shown = {"column": "shapes", **{name: value for name, (value, _) in options.items()}}
        whole = json.dumps({"kind": "mask", "image": IMAGE, **shown}, ensure_ascii=False)
        return left_out("shapes", f"{why}; as a feature: {whole}", reading)
    return feature("shapes", "mask", "drawn from the objects' shapes", reading, image=(IMAGE, ""), **options)


def guess_keypoints(sample: SourceSample) -> Guess:
    """Guesses key points of annotated objects, in pairs that the source states, or by left and right in their names."""
    reading, stated = sample.read("keypoints", ColumnType.NUMBER, many=True), sample.stated
    points, boxes = stated.get("points", []), sample.read("boxes", ColumnType.NUMBER, many=True)
    if len({*points}) < max(1, len(points)):
        objects = sum(map(len, boxes.values)) // 4
        points = [f"point_{number}" for number in range(sum(map(len, reading.values)) // (3 * max(objects, 1)))]
    if not points:
        return left_out("keypoints", f"no key points in {reading.of}", reading)
    mirrored, lone = _mirrored(points)
    flips, skeleton = (
        [[points[one], points[other]] for one, other in pairs if {one, other} <= {*range(len(points))}]
        for pairs in (stated.get("flip_pairs") or mirrored, stated.get("skeleton", []))
    )
    options = {"unit": sample.data.known["boxes"]["unit"], "points": (points, "")}
    options["flip_pairs"] = flips, "change places in a mirrored image"
    if lone and not stated.get("flip_pairs"):
        options["flip_pairs"] = flips, f"{UNPAIRED} for {listed(lone, 3)}"
    options |= {"skeleton": (skeleton, "")} if skeleton else {}
    if not flips and len(points) > 1:
        shown = {name: value for name, (value, _) in options.items() if name != "flip_pairs"}
        whole = json.dumps({"kind": "keypoints", "image": IMAGE, **shown}, ensure_ascii=False)
        return left_out("keypoints", f"{UNPAIRED}: give `flip_pairs`, or [] for none, to the feature: {whole}", reading)
    return feature("keypoints", "keypoints", f"of objects in {reading.of}", reading, image=(IMAGE, ""), **options)


def _mirrored(points: Sequence[str]) -> tuple[list[tuple[int, int]], list[str]]:
    """Finds pairs of names that differ in left and right, or one letter l and r; and names of a side without partner.

    >>> _mirrored(["nose", "LeftEye", "RightEye", "ear.L", "ear.R", "l_lip"])
    ([(1, 2), (3, 4)], ['l_lip'])
    """
    ways = dict[str, list[str]]()
    for name in points:
        letters = [f"{name[: at.start()]}{SIDES[at[0]]}{name[at.end() :]}" for at in re.finditer("[LlRr]", name)]
        whole = LEFT_RIGHT.sub(lambda side: SIDES.get(side[0], side[0]), name)
        ways[name] = [each for each in ([whole] if whole != name else letters) if each in points]
    partner = {name: found[0] for name, found in ways.items() if len(found) == 1 and ways[found[0]] == [name]}
    pairs = [(name, other) for name, other in partner.items() if name.lower() < other.lower()]
    lone = [name for name in points if name not in partner and SIDED.search(name)]
    return [(points.index(one), points.index(other)) for one, other in pairs], lone


def guess_annotated(sample: SourceSample, name: str) -> Guess | None:
    """Guesses shapes and key points of annotated objects."""
    guesses = {"shapes": guess_shapes, "keypoints": guess_keypoints}
    return guesses[name](sample) if name in guesses and sample.data.known else None
