"""Guesses images by the headers of about 200, and finds the folder of a table's images."""

import os
import posixpath
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

from recordmill.pipeline.init.guess import FITS, Choice, Guess, Header, feature, share_of
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
from recordmill.transforms.contract.image_facts import deep_numbers, losses
from recordmill.transforms.contract.image_header import ImageError, check_colours, check_pixels, read_header
from recordmill.transforms.contract.image_parts import TIFFS

LOOKED_AT = 200
HEAD_BYTES = 1 << 20  # 1 MiB, enough for a header after metadata
READERS = 16  # images read at once: a remote store mostly waits
SMALL_SIDE, USUAL_SIDE = 256, 224
FOLDERS = ("train", "train_images", "images")
"""Usual folders of a table's images, besides one named as the table."""
UNREAD = "unsupported_format"
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
    profiles, lost = [profile_name(profile)] if profile else [], losses(data, header.format)
    try:
        check_colours(data, header.format)
    except ImageError as error:
        lost = (error.reason,)  # if the images are read as colours
    return header.width, header.height, profiles, lost, deep_numbers(data, header.format)


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
        sizes = [header[:2] for header in each if isinstance(header, tuple)]
        if not are_texts and 2 * len(sizes) <= len(each):
            continue
        if not sizes and name != IMAGE:
            why = "missing images, or outside by links: `images: FOLDER` names their folder"
            return feature(name, "raw", why, texts, **({"many": (True, "")} if many else {}))
        what = f"{'lists of ' if many else ''}images, by their {'paths' if are_texts else 'bytes'}"
        fit = ("pad", "the whole image, padded; or `crop`, `stretch`")
        kind, deep, more = "image_sequence" if many else "image", _deep_type(each), dict[str, Choice]()
        headers = [[_read_as(header, deep) for header in row] for row in headers]
        if deep:
            more = {"dtype": (deep[0], "the type of the files' numbers"), "channels": (deep[1], "the files' bands")}
            more["normalize"] = "none", "or `zero_one`, with the `range` that counts"
        return replace(feature(name, kind, what, images, size=_common_size(sizes), fit=fit, **more), headers=headers)
    return None


def _deep_type(headers: Sequence[Header]) -> tuple[str, int] | None:
    """Returns the type and the number of bands that nearly all images share, if deep."""
    found = Counter(header[4] for header in headers if isinstance(header, tuple))
    [(deep, images)] = found.most_common(1) or [(None, 0)]
    return deep if images >= FITS * found.total() else None


def _read_as(header: Header, deep: tuple[str, int] | None) -> Header:
    """Forgets the losses of a deep image; one of another type than the others becomes a reject."""
    if isinstance(header, str) or (deep is None and header[3] != (UNREAD,)):
        return header
    return UNREAD if deep is None or header[4] != deep else (*header[:3], (), deep)


def are_named(texts: Reading) -> bool:
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
    is_named = any(are_named(sample.read(name, ColumnType.TEXT)) for name in sample.names)
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
