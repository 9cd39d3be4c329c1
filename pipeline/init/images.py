"""Guesses of images and of the boxes in them: by paths, and by the headers of about 200 images."""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from recordmill.pipeline.init.guess import FITS, Guess, feature, left_out, plain_name, share_of
from recordmill.pipeline.init.recognize import NAMING, counted
from recordmill.pipeline.init.sample import Reading, Sample
from recordmill.pipeline.sources.absent_files import why_absent
from recordmill.pipeline.sources.base import FileInfo, Files
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.image_folder.image_paths import IMAGE
from recordmill.pipeline.sources.image_refs import parse
from recordmill.pipeline.sources.paths import is_image, join
from recordmill.pipeline.sources.typing.image_cells import DATA_URL
from recordmill.transforms.contract.image_header import ImageError, check_pixels, read_header

LOOKED_AT = 200
HEAD_BYTES = 256 << 10  # 256 KiB: nearly always enough for a header
READERS = 16  # images that are read at once: far away it is the waiting that takes time
SMALL_SIDE, USUAL_SIDE = 256, 224
MAX_PIXELS = 64_000_000  # the default of `max_pixels`
BOXES = re.compile(r"(?i)(.*_)?(b?box(es)?|bounding_?box(es)?)")
INSIDE = 0.98
"""The share of boxes that must lie in their images: real data has some that do not."""

Size = tuple[int, int]
"""Width and height in pixels, as the header has them."""
Headers = Sequence[tuple[list[Size | str], list[Any]]]
"""For each row the sizes of its images, or the reason of the reject; and the values of other columns."""
CORNERS: Mapping[str, Callable[[float, float, float, float], tuple[float, ...]]] = {
    "corners": lambda left, top, right, bottom: (left, top, right, bottom),
    "coco": lambda left, top, width, height: (left, top, left + width, top + height),
    "center": lambda x, y, width, height: (x - width / 2, y - height / 2, x + width / 2, y + height / 2),
    "tensorflow": lambda top, left, bottom, right: (left, top, right, bottom),
}
"""A box's left, top, right and bottom, by each order."""


def read_headers(sample: Sample, name: str, *, many: bool, others: Columns | None = None) -> Headers:
    """Reads the headers of about 200 rows' images, as a build does before it decodes."""
    columns = {name: Column(ColumnType.IMAGE, many=many, optional=True), **(others or {})}
    rows = [
        (number, *values)
        for number, block in sample.take(columns, rows=LOOKED_AT)[0]
        for values in zip(*(block.table[column].to_pylist() for column in columns), strict=True)
        if values[0] is not None
    ]
    roots = [source.image_root(sample.files) for source in sample.sources]

    def size(number: int, reference: bytes) -> Size | str:
        if (number, reference) not in sample.headers:
            sample.headers[number, reference] = _size(sample.files, roots[number], reference)
        return sample.headers[number, reference]

    def sizes(row: tuple[Any, ...]) -> list[Size | str]:
        return [size(row[0], item) for item in (row[1] if many else [row[1]]) if item]

    with ThreadPoolExecutor(READERS) as pool:
        return [(result, list(row[2:])) for row, result in zip(rows, pool.map(sizes, rows), strict=True)]


def _size(files: Files, root: str, reference: bytes) -> Size | str:
    """An image's size, or the reason of its reject."""
    try:
        header = read_header(_head(files, root, reference))
        check_pixels(header.width, header.height, MAX_PIXELS)
    except ImageError as error:
        return error.reason
    return header.width, header.height


def _head(files: Files, root: str, reference: bytes) -> bytes:
    """An image's bytes, or enough of them for its header.

    Raises:
        ImageError: `unreadable`.
    """
    where = parse(reference)
    if where.data is not None:
        return where.data
    full = join(root, where.path)
    try:
        with files.open(full) as file:
            file.seek(where.offset)
            head = file.read(where.length or HEAD_BYTES)
            try:
                read_header(head)
            except ImageError:
                head += file.read() if where.length is None else b""
            return head
    except OSError as error:
        why = why_absent(error, full, files)
        if why is None:
            raise
        raise ImageError("unreadable", why) from None


def guess_image(sample: Sample, name: str) -> Guess | None:
    """Guesses whether a column is an image, or several; None where it is neither."""
    many = _are_many(sample, name)
    if many is None:
        return None
    texts = sample.read(name, ColumnType.TEXT, many=many)
    headers = read_headers(sample, name, many=many)
    sizes = [size for row, _ in headers for size in row if isinstance(size, tuple)]
    if not sizes and name != IMAGE:
        why = "paths of images that were not found: the source's `images` says where they lie"
        return feature(name, "raw", why, texts, **({"many": True} if many else {}))
    size, why = _common_size(sizes)
    what = f"{'lists of ' if many else ''}images, by their {'paths' if texts.fit >= FITS else 'bytes'}"
    rows = sample.read(name, ColumnType.IMAGE, many=many)
    result = feature(name, "image_sequence" if many else "image", what, rows, size=size, fit="pad")
    fit = "the whole image; `crop` cuts it, `stretch` distorts it"
    return replace(result, why={**result.why, "size": why, "fit": fit})


def _are_many(sample: Sample, name: str) -> bool | None:
    """Whether a column is lists of images, or one image; None where it is neither: by names, else by headers."""
    texts = sample.read(name, ColumnType.TEXT)
    if texts.fit >= FITS / 2:
        if not any(map(_is_named, texts.distinct)):
            return None
        has_lists = any("," in value for value in texts.distinct)
        if has_lists and _are_named(sample.read(name, ColumnType.TEXT, many=True)):
            return True
        return False if _are_named(texts) else None
    if any(sample.read(name, ColumnType.NUMBER, many=many).fit >= FITS for many in (False, True)):
        return None
    lists = sample.read(name, ColumnType.TEXT, many=True)
    if lists.fit >= FITS / 2:
        return True if _are_named(lists) else None
    for many in (False, True):
        if sample.read(name, ColumnType.IMAGE, many=many).fit >= FITS:
            results = [item for row, _ in read_headers(sample, name, many=many) for item in row]
            if 2 * sum(isinstance(item, tuple) for item in results) > len(results):
                return many
    return None


def _are_named(texts: Reading) -> bool:
    """Whether nearly all strings that are not blank name images."""
    filled = sum(count for value, count in texts.distinct.items() if value.strip())
    return sum(count for value, count in texts.distinct.items() if _is_named(value)) >= FITS * filled > 0


def _is_named(value: str) -> bool:
    """Whether a string is the path of an image, or a `data:` URL."""
    path = value.strip()
    return path[:5].lower() == DATA_URL or (is_image(path) and "\n" not in path and "://" not in path)


def _common_size(sizes: Sequence[Size]) -> tuple[list[int], str]:
    """Height and width, and why: the images' own size where most have it and it is small."""
    if not sizes:
        return [USUAL_SIDE, USUAL_SIDE], "height, width: a usual size; no image's header could be read"
    (width, height), count = max(Counter(sizes).items(), key=lambda item: (item[1], item[0]))
    images = counted(len(sizes), "image")
    if 2 * count >= len(sizes) and max(width, height) <= SMALL_SIDE:
        return [height, width], f"height, width of {share_of(count, len(sizes), images)}"
    ordered = sorted(sizes, key=lambda size: (size[0] * size[1], size))
    ends = [f"{size[0]} x {size[1]}" for size in dict.fromkeys((ordered[0], ordered[-1]))]
    return [USUAL_SIDE, USUAL_SIDE], f"height, width: a usual size; {images}: {' to '.join(ends)}"


def guess_boxes(sample: Sample, name: str, image: str) -> Guess | None:
    """Guesses whether a column is boxes in the images of another; None where it is not.

    Where several orders of the four numbers fit, none is chosen: each is a doubt.
    """
    numbers = sample.read(name, ColumnType.NUMBER, many=True)
    is_named = BOXES.fullmatch(plain_name(name)) and numbers.fit >= FITS and numbers.distinct
    if not is_named or any(len(value) % 4 for value in numbers.values):
        return None
    headers = read_headers(
        sample, image, many=False, others={name: Column(ColumnType.NUMBER, many=True, optional=True)}
    )
    boxes = [
        (values[start : start + 4], sizes[0])
        for sizes, (values,) in headers
        if sizes and isinstance(sizes[0], tuple)
        for start in range(0, len(values or ()), 4)
    ]
    is_relative = all(0 <= number <= 1 for number in numbers.distinct)
    lying = {order: sum(_lies(to(*box), size, is_relative) for box, size in boxes) for order, to in CORNERS.items()}
    orders = [order for order in CORNERS if boxes and lying[order] >= INSIDE * len(boxes)]
    options = {"image": image, "unit": "relative" if is_relative else "absolute"}
    what = f"four numbers each, in {numbers.of}"
    guesses = [feature(name, "boxes", what, numbers, order=order, **options) for order in orders]
    counts = [
        f"{share_of(lying[order], len(boxes), f'{len(boxes):,} boxes')} lie in their images so" for order in orders
    ]
    if len(guesses) == 1:
        unit = "all numbers are from 0 to 1" if is_relative else "pixels"
        return replace(guesses[0], why={**guesses[0].why, "order": counts[0], "unit": unit})
    reason = f"boxes of which {len(orders)} orders fit: see which one is meant, and take its line"
    doubts = [(result.options, count) for result, count in zip(guesses, counts, strict=True)]
    return replace(left_out(name, reason, numbers), doubts=doubts) if guesses else None


def _lies(corners: tuple[float, ...], size: Size, is_relative: bool) -> bool:
    """Whether a box lies in its image; some count pixels from 1."""
    width, height, slack = (1.0, 1.0, 0.01) if is_relative else (*size, 1.0)
    left, top, right, bottom = corners
    return -slack <= left < right <= width + slack and -slack <= top < bottom <= height + slack


def images_folder(sample: Sample, files: Files, listed: Sequence[FileInfo]) -> str | None:
    """The folder that the paths of images in a table are relative to, looked for below the source's root.

    None where it is the folder of the table's own file, or no image has such a path.
    """
    if sample.sources[0].format not in NAMING:
        return None
    texts = {name: sample.read(name, ColumnType.TEXT) for name in sample.names}
    lists = [sample.read(name, ColumnType.TEXT, many=True) for name in texts if texts[name].fit < FITS / 2]
    values = [value.strip() for reading in [*texts.values(), *lists] for value in reading.distinct if _is_named(value)]
    paths = [posixpath.normpath(value) for value in values if value[:5].lower() != DATA_URL][:LOOKED_AT]
    below = f"{escape(sample.sources[0].root(sample.files))}/**"
    images = [file.path for file in listed if is_image(file.path)] if paths else []
    images = images or [file.path for file in (files.match(below) if paths else ()) if is_image(file.path)]
    by_name: dict[str, list[str]] = {}
    for image in images:
        by_name.setdefault(posixpath.basename(image), []).append(image)
    pairs = [(image, path) for path in paths for image in by_name.get(posixpath.basename(path), ())]
    folders = Counter(image[: -len(path) - 1] for image, path in pairs if image.endswith(f"/{path}"))
    own = {posixpath.dirname(file.path) for source in sample.sources for file in sample.files.match(source.path)}
    best = max(folders, key=lambda folder: (folders[folder], folder in own, folder), default=None)
    return None if best in own else best
