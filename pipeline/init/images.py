"""Guesses images by the headers of about 200, finds the folder of a table's images, and guesses the order of boxes."""

import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.guess import FITS, Choice, Guess, Header, feature, left_out, plain_name, share_of
from recordmill.pipeline.init.recognize import NAMING
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.files import Files, why_absent
from recordmill.pipeline.sources.formats.image_fields import IMAGE
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.images import DATA_URL, parse
from recordmill.pipeline.sources.paths import Inside, is_image, join
from recordmill.pipeline.spec.features.image import MAX_BYTES
from recordmill.transforms.contract.color_profile import foreign_profile, profile_name
from recordmill.transforms.contract.image_facts import losses
from recordmill.transforms.contract.image_header import ImageError, check_pixels, read_header
from recordmill.transforms.contract.image_parts import TIFFS

LOOKED_AT = 200
HEAD_BYTES = 1 << 20  # 1 MiB, enough for a header after metadata
READERS = 16  # images read at once: a remote store mostly waits
SMALL_SIDE, USUAL_SIDE = 256, 224
FOLDERS = ("train", "train_images", "images")
"""Usual folders of a table's images, besides one named as the table."""
MAX_PIXELS = 64_000_000  # the default of `max_pixels`


def read_headers(sample: SourceSample, name: str, *, many: bool) -> list[list[Header]]:
    """Reads the image headers of about 200 rows, as a build does before decoding; a row may have none."""
    blocks, _ = sample.take({name: Column(ColumnType.IMAGE, many=many, optional=True)}, rows=LOOKED_AT)
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


def _header(sample: SourceSample, number: int, reference: bytes) -> Header:
    """Returns an image's size, colour profile and losses, or the reason code of its reject."""
    parsed, data = parse(reference), parse(reference).data
    path = join(sample.readers[number].image_root(sample.files), parsed.path)
    try:
        if data is None:
            with sample.files.open(path) as file:
                file.seek(parsed.offset)
                data = file.read(min(parsed.length or HEAD_BYTES, HEAD_BYTES))
                if data[:4] in TIFFS:  # tags may be at the end
                    data += file.read((parsed.length or MAX_BYTES) - len(data))
        header = read_header(data)
        check_pixels(header.width, header.height, MAX_PIXELS)
        profile = foreign_profile(data, header.format)
    except ImageError as error:
        return error.reason
    except OSError as error:
        if why_absent(error, path, sample.files) is None:
            raise
        return "unreadable"
    return header.width, header.height, [profile_name(profile)] if profile else [], losses(data, header.format)


def guess_image(sample: SourceSample, name: str) -> Guess | None:
    """Guesses whether a column is an image, or several; None if neither."""
    for many in (False, True):
        texts = sample.read(name, ColumnType.TEXT, many=many)
        are_texts = texts.fit >= FITS / 2
        if are_texts and not _are_named(texts) and name != sample.data.image_column:
            if any(value[:1] == "[" for value in texts.distinct):
                continue  # lists in cells
            return None
        images = sample.read(name, ColumnType.IMAGE, many=many)
        if not are_texts and images.fit < FITS:
            continue
        headers = read_headers(sample, name, many=many)
        each = list(chain.from_iterable(headers))
        sizes = [header[:2] for header in each if isinstance(header, tuple)]
        if not are_texts and 2 * len(sizes) <= len(each):
            continue
        if not sizes and name != IMAGE:
            why = "missing images, or outside by links: `images: FOLDER` names their folder"
            return feature(name, "raw", why, texts, **({"many": (True, "")} if many else {}))
        what = f"{'lists of ' if many else ''}images, by their {'paths' if are_texts else 'bytes'}"
        fit = ("pad", "the whole image, padded; or `crop`, `stretch`")
        kind = "image_sequence" if many else "image"
        return replace(feature(name, kind, what, images, size=_common_size(sizes), fit=fit), headers=headers)
    return None


def _are_named(texts: Reading) -> bool:
    """Whether nearly all non-blank strings name images."""
    filled = sum(count for value, count in texts.distinct.items() if value.strip())
    return sum(count for value, count in texts.distinct.items() if _is_named(value)) >= FITS * filled > 0


def _is_named(value: str) -> bool:
    """Whether a string is an image's path, or a `data:` URL."""
    path = value.strip()
    return path[:5].lower() == DATA_URL or (is_image(path) and "\n" not in path and "://" not in path)


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


def images_folder(sample: SourceSample, files: Files) -> str | None:
    """Returns the folder below a table's with the sample's first image; None if missing, or in its own folder."""
    if sample.sources[0].format not in NAMING:
        return None
    texts = [sample.read(name, ColumnType.TEXT) for name in sample.names]
    lists = [
        sample.read(name, ColumnType.TEXT, many=True)
        for name, reading in zip(sample.names, texts, strict=True)
        if not reading.values
    ]
    every = (value.strip() for reading in (*texts, *lists) for value in reading.distinct if _is_named(value))
    named = (value.replace("\\", "/") for value in every)  # as a build reads it
    path = next((posixpath.normpath(value) for value in named if value[:5].lower() != DATA_URL), None)
    if path is None:
        return None
    own = posixpath.dirname(sample.files.match(sample.sources[0].path)[0].path)
    near = files.match(f"{escape(own)}/**/{escape(path)}")
    folders = [image.path.removesuffix(f"/{path}") for image in near]
    folder = own if own in folders else next(iter(folders), None)
    if folder and not Inside(folder).holds(path):  # a build follows no link out of the folder
        real = os.path.realpath(join(folder, path))
        folder = real.removesuffix(f"/{path}") if real.endswith(f"/{path}") else folder
    return None if folder == own else folder


def images_by_name(sample: SourceSample, files: Files) -> tuple[str, str] | None:
    """Finds a table's column of image names without ending, and the pattern of their paths: `train/*.jpg`.

    Takes the column with most names, since codes 0 to 2 may also name images; None if a column has whole paths.
    """
    is_named = any(_are_named(sample.read(name, ColumnType.TEXT)) for name in sample.names)
    if sample.sources[0].format not in NAMING or is_named:
        return None
    table = posixpath.splitext(sample.files.match(sample.sources[0].path)[0].path)[0]
    folders = [table, f"{table}_images", *(join(posixpath.dirname(table), name) for name in FOLDERS)]
    for folder in filter(files.is_folder, dict.fromkeys(folders)):
        stems = dict(posixpath.splitext(file.path[len(folder) + 1 :]) for file in files.match(f"{escape(folder)}/*"))
        found = dict[str, list[str]]()
        for name in sample.names:
            values = sample.read(name, ColumnType.CATEGORY).distinct
            found[name] = [value for value in values if is_image(f"x{stems.get(value, '')}")]
            if len(found[name]) < FITS * len(values):
                found[name] = []
        best = max(found, key=lambda name: len(found[name]), default="")
        if best and found[best]:
            return f"{escape(folder)}/*{stems[found[best][0]]}", best
    return None


BOXES = re.compile(r"(?i)(.*_)?(b?box(es)?|bounding_?box(es)?)")
ORDERS = {
    "corners": "x_min, y_min, x_max, y_max",
    "coco": "x_min, y_min, width, height",
    "center": "x_center, y_center, width, height",
    "tensorflow": "y_min, x_min, y_max, x_max",
}
ENOUGH = 0.95  # the share of boxes that must fit an order: other images may be larger
SLACK = 0.01  # the share of an image's side by which a box may leave it

Boxes = npt.NDArray[np.float64]
"""Boxes as in the data, shape [boxes, 4]."""


@dataclass(frozen=True)
class Answers:
    """The user's answers to undecidable questions."""

    order: str | None = None
    encoding: str | None = None
    ask: Callable[[str, Sequence[str]], str] | None = None
    """Asks at the terminal, and returns one of the given answers; None without a terminal."""

    def order_of(self, name: str, orders: Sequence[str]) -> str:
        """Decides between fitting orders for a column's boxes. Raises: UserError: no answer, or it does not fit."""
        if self.order is not None and self.order not in orders:
            fit = f"{' and '.join(orders)} would fit" if orders else "no other order fits either"
            raise UserError(f"--order {self.order}: with it, many boxes of '{name}' end outside images; {fit}")
        if self.order is not None or len(orders) == 1:
            return self.order or orders[0]
        meanings = "; ".join(f"{order}: {ORDERS[order]}" for order in orders)
        question = f"the four numbers of '{name}' fit several orders ({meanings})"
        if self.ask is None:
            raise UserError(f"{question}: give the right one by {' or '.join(f'--order {order}' for order in orders)}")
        return self.ask(question, orders)


def guess_boxes(item: Guess, name: str, image: Guess, answers: Answers, known: Mapping[str, Choice]) -> Guess:
    """Turns a guess into boxes if its name and lists of four numbers say so; returns other guesses unchanged.

    The headers of `image`, the feature `name`, bound the boxes; EXIF may have turned its sides. The source's format may
    state order and unit, `known`. Raises: UserError: several orders fit, without a decision.
    """
    is_called = item.kind == "numbers" and BOXES.fullmatch(plain_name(item.column))
    if not is_called or any(len(value) % 4 for value in item.reading.values):
        return item
    boxes = np.array(list(chain.from_iterable(item.reading.values)), np.float64).reshape(-1, 4)
    what = ("boxes", f"{'1 box' if len(boxes) == 1 else f'{len(boxes):,} boxes'}, by the column's name")
    if known:
        return replace(item, options={**item.options, "kind": what, "image": (name, ""), **known})
    is_relative = bool((boxes >= 0).all() and (boxes <= 1).all())
    sizes = [header[:2] for header in chain.from_iterable(image.headers) if isinstance(header, tuple)]
    sides = np.array(sizes).max(axis=0) if sizes and not is_relative else np.full(2, 1 if is_relative else np.inf)
    orders = _without_unlikely(fitting_orders(boxes, sides.max()), boxes, sides)
    if not orders:
        return left_out(item.column, "boxes by its name, but outside images in every known order", item.reading)
    order = answers.order_of(item.column, orders)
    why = f"{ORDERS[order]}; {'as answered' if len(orders) > 1 else 'no other order fits'}"
    unit = ("relative", "no number is above 1") if is_relative else ("absolute", f"numbers up to {boxes.max():g}")
    stated = {"kind": what, "image": (name, ""), "order": (order, why), "unit": unit}
    return replace(item, options={**item.options, **stated})


def _without_unlikely(orders: list[str], boxes: Boxes, sides: npt.NDArray[Any]) -> list[str]:
    """Drops `tensorflow` if only `corners` respects width and height; not the reverse: EXIF may turn them."""
    corners, others = ((boxes[:, ends] <= sides * (1 + SLACK)).all(axis=1).mean() for ends in ([2, 3], [3, 2]))
    return [order for order in orders if order != "tensorflow"] if others < ENOUGH <= corners else orders


def fitting_orders(boxes: Boxes, side: float) -> list[str]:
    """Lists the orders in which nearly all boxes end after their start, inside images of at most that side."""
    first, second = boxes[:, :2], boxes[:, 2:]
    ends: dict[str, tuple[Any, Any]] = {
        "corners": (first, second),
        "coco": (first, first + second),
        "center": (first - second / 2, first + second / 2),
        "tensorflow": (first, second),
    }
    slack = 0 if np.isinf(side) else SLACK * side
    possible = {
        order: ((start >= -slack) & (start <= end) & (end <= side + slack)).all(axis=1)
        for order, (start, end) in ends.items()
    }
    return [order for order, fits in possible.items() if fits.mean() >= ENOUGH]


PARTS_OF_OBJECTS = ("shapes", "keypoints")
SHOWN_NAMES = 20


def guess_part(sample: SourceSample, name: str) -> Guess:
    """Suggests, in a comment, a feature for annotated objects: a mask of their shapes, or their key points."""
    kind, many = (ColumnType.OBJECTS, False) if name == "shapes" else (ColumnType.NUMBER, True)
    reading = sample.read(name, kind, many=many)
    feature: dict[str, Any] = {"kind": name, "image": IMAGE}
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
