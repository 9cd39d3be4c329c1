"""Columns of pictures: found by their values, measured by the headers of some."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from recordmill.pipeline.init.column_sample import Reading, Sample
from recordmill.pipeline.init.guess_kind import FITS, Guess, counted, feature, read, share_of
from recordmill.pipeline.sources.absent_files import why_absent
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.image_folder.image_paths import IMAGE
from recordmill.pipeline.sources.image_refs import parse
from recordmill.pipeline.sources.paths import is_image, join
from recordmill.pipeline.sources.typing.image_cells import DATA_URL
from recordmill.transforms.contract.image_header import ImageError, check_pixels, read_header

PICTURES = 200
HEAD_BYTES = 256 << 10  # 256 KiB: nearly always enough for a header
READERS = 16  # pictures that are read at once: far away it is the waiting that takes time
SMALL_SIDE = 256
USUAL_SIDE = 224
MAX_PIXELS = 64_000_000  # the default of `max_pixels`

Size = tuple[int, int]
"""Width and height in pixels, as the header has them."""


@dataclass(frozen=True)
class Looked:
    """What some pictures' headers say, row by row."""

    sizes: Sequence[Sequence[Size | None]] = ()
    """Of each row's pictures; None where one is none that is read."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """How many rows would be rejected, by reason."""

    @property
    def found(self) -> list[Size]:
        """The sizes of all that could be read."""
        return [size for row in self.sizes for size in row if size]


def guess_pictures(sample: Sample, name: str) -> Guess | None:
    """Guesses whether a column is a picture, or several; None where it is neither."""
    many = _are_many(sample, name)
    if many is None:
        return None
    texts = read(sample, name, ColumnType.TEXT, many=many)
    reading = sample.read(name, Column(ColumnType.IMAGE, many=many, optional=True), PICTURES)
    found = look(sample, name, many=many).found
    if not found and name != IMAGE:
        return feature(name, "raw", "paths of pictures that were not found: the source's `images` says where", texts)
    size, why = _size(found)
    what = f"{'lists of ' if many else ''}pictures, by their {'paths' if texts.fit >= FITS else 'bytes'}"
    guessed = feature(name, "image_sequence" if many else "image", what, reading, size=size, fit="pad")
    fit = "the whole picture; `crop` cuts it, `stretch` distorts it"
    return replace(guessed, why={**guessed.why, "size": why, "fit": fit})


def _are_many(sample: Sample, name: str) -> bool | None:
    """Whether a column is lists of pictures, or a picture; None where it is neither, by names or by headers."""
    texts = read(sample, name, ColumnType.TEXT)
    if texts.fit >= FITS / 2:
        named = [value for value in texts.distinct if names_picture(value)]
        if not named:
            return None
        is_many = any("," in value for value in named) and _are_named(read(sample, name, ColumnType.TEXT, many=True))
        return is_many or (False if _are_named(texts) else None)
    if any(read(sample, name, ColumnType.NUMBER, many=many).fit >= FITS for many in (False, True)):
        return None
    lists = read(sample, name, ColumnType.TEXT, many=True)
    if lists.fit >= FITS / 2:
        return True if _are_named(lists) else None
    return next((many for many in (False, True) if _hold_pictures(sample, name, many)), None)


def _are_named(texts: Reading) -> bool:
    """Whether nearly all strings that are not blank name pictures."""
    filled = sum(count for value, count in texts.distinct.items() if value.strip())
    named = sum(count for value, count in texts.distinct.items() if names_picture(value))
    return named >= FITS * filled > 0


def _hold_pictures(sample: Sample, name: str, many: bool) -> bool:
    """Whether bytes are pictures, by their headers."""
    if sample.read(name, Column(ColumnType.IMAGE, many=many, optional=True), PICTURES).fit < FITS:
        return False
    looked = look(sample, name, many=many)
    return 2 * len(looked.found) > sum(map(len, looked.sizes))


def names_picture(value: str) -> bool:
    """Whether a string is the path of a picture, or a `data:` URL."""
    path = value.strip()
    return path[:5].lower() == DATA_URL or (is_image(path) and "\n" not in path and "://" not in path)


def _size(found: Sequence[Size]) -> tuple[list[int], str]:
    """Height and width, and why: the pictures' own size where most have it and it is small."""
    usual = [USUAL_SIDE, USUAL_SIDE]
    if not found:
        return usual, "height, width: a usual size; no picture's header could be read"
    (width, height), count = max(Counter(found).items(), key=lambda item: (item[1], item[0]))
    pictures = counted(len(found), "picture")
    if 2 * count >= len(found) and max(width, height) <= SMALL_SIDE:
        return [height, width], f"height, width of {share_of(count, len(found), pictures)}"
    least, most = min(found, key=_area), max(found, key=_area)
    sizes = f"{least[0]} x {least[1]}" + (f" to {most[0]} x {most[1]}" if least != most else "")
    return usual, f"height, width: a usual size; {pictures}: {sizes}"


def _area(size: Size) -> tuple[int, Size]:
    return size[0] * size[1], size


def look(sample: Sample, name: str, *, many: bool) -> Looked:
    """Looks at the headers of some pictures of a column, as a build would before it decodes them."""
    taken = sample.take({name: Column(ColumnType.IMAGE, many=many, optional=True), **sample.beside}, (), PICTURES)
    rows = [
        (chunk.source, value if many else [value])
        for chunk, block in taken.blocks
        for value in block.table[name].to_pylist()
        if value is not None
    ]
    with ThreadPoolExecutor(READERS) as pool:
        looked = list(pool.map(lambda row: [header_size(sample, row[0], one) for one in row[1] if one], rows))
    bad = [next((one for one in row if isinstance(one, str)), None) for row in looked]
    sizes = [[one if isinstance(one, tuple) else None for one in row] for row in looked]
    return Looked(sizes, Counter(reason for reason in bad if reason))


def header_size(sample: Sample, source: int, reference: bytes) -> Size | str:
    """A picture's size, or the reason of its reject; `source` is the place of its source."""
    asked = source, reference
    if asked not in sample.headers:
        sample.headers[asked] = _header_size(sample, source, reference)
    return sample.headers[asked]


def _header_size(sample: Sample, source: int, reference: bytes) -> Size | str:
    try:
        data = _read(sample.files, sample.sources[source].image_root(sample.files), reference)
        header = read_header(data)
        check_pixels(header.width, header.height, MAX_PIXELS)
    except ImageError as error:
        return error.reason
    return header.width, header.height


def _read(files: Files, root: str, reference: bytes) -> bytes:
    """A picture's bytes, or enough of them for its header.

    Raises:
        ImageError: `unreadable`.
    """
    found = parse(reference)
    if found.data is not None:
        return found.data
    full = join(root, found.path)
    try:
        with files.open(full) as file:
            file.seek(found.offset)
            head = file.read(HEAD_BYTES if found.length is None else found.length)
            return head if found.length is not None or _has_header(head) else head + file.read()
    except OSError as error:
        why = why_absent(error, full, files)
        if why is None:
            raise
        raise ImageError("unreadable", why) from None


def _has_header(head: bytes) -> bool:
    try:
        read_header(head)
    except ImageError:
        return len(head) < HEAD_BYTES
    return True
