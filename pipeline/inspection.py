"""Records of a version for people: chosen by key, class or position, and decoded to plain Python values.

>>> for record in read_records(open_dataset("out/emoji"), "train", label="cat", limit=2):  # doctest: +SKIP
...     print(record.key, record.values["label"], record.values["image"])
cats/17.jpg cat JPEG, 224x224, 11,420 bytes
cats/4.jpg cat JPEG, 224x224, 9,816 bytes
>>> record.values["photo"].pillow().save("photo.png")  # doctest: +SKIP
>>> shown([1.5, None, "cat"])
'1.5, -, cat'
>>> to_json([1.5, None, b"cat", float("nan")])
[1.5, None, 'cat', 'NaN']

Records are in the order of their keys' hashes: a split's first ones are a random sample of it, or of its first span.
"""

import base64
import io
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from recordmill.pipeline.dataset.file_names import shown_paths
from recordmill.pipeline.dataset.manifest import Manifest, Shard
from recordmill.pipeline.dataset.paths import ADVICE, locate, open_file
from recordmill.pipeline.dataset.version import DatasetVersion, parts_to_parse
from recordmill.pipeline.errors import DatasetError, did_you_mean, listed
from recordmill.pipeline.json_values import Count, check_types
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.records import Numbers
from recordmill.pipeline.rows import find_records, open_records, runs
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import Decoding
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import KEY, Column, Ragged, RowError, part_name
from recordmill.transforms.images.color import to_srgb
from recordmill.transforms.images.color_profile import foreign_profile
from recordmill.transforms.images.decode import DecodeError
from recordmill.transforms.images.image_header import ImageError, check_header, check_tile, read_header
from recordmill.transforms.images.image_parts import RAW
from recordmill.transforms.images.image_read import decoded
from recordmill.transforms.images.image_rules import is_transposed
from recordmill.transforms.images.image_stored import Pixels
from recordmill.transforms.images.pixels import for_people
from recordmill.transforms.images.places_stored import Box, Keypoint
from recordmill.transforms.texts.text_stored import DecodedText
from recordmill.transforms.values.values_stored import Bucket

Value: TypeAlias = Any
"""`str` of a category (`int` for hashed ids), `float`, `Bucket`, `DecodedText`, `StoredImage`, `Box`, a tuple of
`Keypoint`, `bytes`, `int`, a list of these, or None for a missing value."""
LONGEST = 160  # characters shown of a value
MOST = 8  # values shown of a list
MISSING = "-"
NUMBER = ".7g"  # the digits of a float32
TOGETHER = 64  # records read at once: from an object store in one request
COLORS = ("#ff453a", "#30d158", "#0a84ff", "#ffd60a", "#bf5af2", "#64d2ff", "#ff9f0a", "#a2845e")
MOST_PIXELS = 64_000_000
MOST_FILE_BYTES = 64 << 20  # 64 MiB
TRANSPARENT = "#d0d7de"


class Decoder:
    """Decodes the rows of parsed columns."""

    def __init__(self, dataset: DatasetVersion, features: Sequence[str] | None = None) -> None:
        """Decodes all features by default. Raises: DatasetError: unknown feature or kind, or damaged vocabulary."""
        wanted = {name: dataset.manifest.feature(name) for name in features or dataset.features}
        self.descriptions = read_descriptions(wanted)
        statistics = dataset.manifest.statistics
        self._decoding = {
            name: Decoding(
                dataset.vocabulary(name) if each.ids and each.ids.has_words else None,
                statistics.get(name, {}),
                StoredImage,
            )
            for name, each in self.descriptions.items()
        }

    def decode(self, columns: Mapping[str, Column], row: int) -> dict[str, Value]:
        """Returns a row's values by feature, from columns of `parse`. Raises: DatasetError: one is of another form."""
        values = {}
        for name, description in self.descriptions.items():
            cells = ((part, columns[part_name(name, part)]) for part in description.parts)
            parts = {part: cell.row(row) if isinstance(cell, Ragged) else cell[row] for part, cell in cells}
            try:
                values[name] = description.value(parts, self._decoding[name])
            except (ArithmeticError, LookupError, TypeError, ValueError):  # the manifest may state any
                what = f"a record holds a value of '{name}' that is not as dataset.json describes it"
                raise DatasetError(f"{what} ({description.words()}): {ADVICE}") from None
        return values


def shown(value: Value) -> str:
    """Describes a value in one line of about 160 characters at most; a missing one is `-`."""
    match value:
        case None:
            return MISSING
        case float():
            return f"{value:{NUMBER}}"
        case Box() | Keypoint():
            return f"[{' '.join(f'{number:.3g}' for number in value)}]"
        case tuple():
            return f"({' '.join(map(shown, value))})"
        case list():
            flat = value[:MOST]
            separator = " | " if any(isinstance(each, DecodedText) for each in flat) else ", "
            rest = f", … ({len(value):,} values)" if len(value) > MOST else ""
            return _cut(separator.join(map(shown, flat)), len(rest)) + rest if value else "none"
        case bytes():
            with suppress(UnicodeDecodeError):
                return _cut(json.dumps(value.decode(), ensure_ascii=False)[1:-1])
            return f"{len(value):,} bytes: {value[:16].hex(' ')}{' …' if len(value) > 16 else ''}"
        case _:
            return _cut(json.dumps(str(value), ensure_ascii=False)[1:-1])


def _cut(text: str, spare: int = 0) -> str:
    most = LONGEST - spare
    return text if len(text) <= most else f"{text[: most - 1]}…"


def to_json(value: Value) -> Any:
    """Converts a value to JSON.

    A text is its text, or its ids if hashed; an image its format, size and number of bytes; a box its four sides; a
    bucket its id and bounds, None if open; bytes are text, or `{"base64": …}` if not UTF-8; a non-finite number is
    "NaN", "Infinity" or "-Infinity".
    """
    match value:
        case float():
            return value if math.isfinite(value) else json.dumps(value)
        case bytes():
            with suppress(UnicodeDecodeError):
                return value.decode()
            return {"base64": base64.b64encode(value).decode()}
        case DecodedText():
            return list(value.ids) if value.text is None else value.text
        case StoredImage():
            return {"format": value.format, "width": value.width, "height": value.height, "bytes": len(value.data)}
        case Bucket():
            low, high = (None if math.isinf(bound) else bound for bound in (value.low, value.high))
            return {"bucket": value.id, "from": low, "below": high}
        case list() | tuple():
            return [to_json(each) for each in value]
        case _:
            return value


@dataclass(frozen=True, repr=False)
class StoredImage:
    """An image of a record."""

    data: bytes  # the file's bytes, or for a feature stored as `raw` the pixels
    pixels: Pixels  # the feature's description
    orientation: int = 1  # the EXIF orientation, 1..8, of a feature stored as `original`

    def __repr__(self) -> str:
        return f"StoredImage({self})"

    def __str__(self) -> str:
        """Shows the format, the size and the bytes: `JPEG, 224x224, 11,420 bytes`."""
        size = f"{self.width}x{self.height}, " if self.width else ""
        return f"{self.format}, {size}{len(self.data):,} bytes"

    @property
    def format(self) -> str:
        """The file's format, such as `JPEG`; `raw` for pixels, `unknown` for invalid bytes."""
        return self._header[0]

    @property
    def width(self) -> int:
        """The stored width of the upright image in pixels; 0 if unknown."""
        return self._header[1]

    @property
    def height(self) -> int:
        """The stored height of the upright image in pixels; 0 if unknown."""
        return self._header[2]

    @property
    def suffix(self) -> str:
        """The suffix for a file, such as `.jpeg`; `.bin` for raw pixels and invalid bytes."""
        return ".bin" if self.format in ("raw", "unknown") else f".{self.format.lower()}"

    def array(self) -> npt.NDArray[Any]:
        """Decodes the stored pixels, uint8 or as deep images have them: [height, width, channels], RGB.

        An `original` is turned upright and resized to the feature's size.
        Raises: DatasetError: the bytes cannot be decoded, or differ from the feature's shape.
        """
        try:
            return decoded(self.data, self.pixels, self.orientation)
        except DecodeError as error:
            raise DatasetError(f"a stored image cannot be decoded ({error}): run `recordmill verify`") from error

    def pillow(self) -> Image.Image:
        """Returns `array()`, stretched if deep, as Pillow's L or RGB. Raises: DatasetError, as `array`."""
        return as_image(self.array())

    @cached_property
    def _header(self) -> tuple[str, int, int]:
        if self.pixels.encoding == "raw":
            height, width = (side or 0 for side in self.pixels.shape[:2])
            return "raw", width, height
        try:
            header = read_header(self.data)
        except ImageError:
            return "unknown", 0, 0
        sides = (header.width, header.height // max(1, self.pixels.planes))
        return header.format, *(sides[::-1] if is_transposed(self.orientation) else sides)


def as_image(pixels: npt.NDArray[Any]) -> Image.Image:
    """Shows pixels as Pillow's L or RGB, stretched if deep."""
    shown = for_people(pixels)
    return Image.fromarray(shown[..., 0] if shown.shape[-1] == 1 else np.ascontiguousarray(shown))


def raw_image(sources: Path, path: str) -> Image.Image | None:
    """Opens a source image upright; None if it is missing or cannot be decoded.

    `path`, a key or a reject's `file`, is relative to `sources` and cannot leave that folder.
    """
    with suppress(DatasetError, OSError, ImageError, ValueError, SyntaxError, Image.DecompressionBombError):
        with open_file(locate(str(sources), path)) as file:
            data = file.read(MOST_FILE_BYTES + 1)
        header = check_header(data, MOST_PIXELS)
        ignored = warnings.catch_warnings(action="ignore")  # Pillow's, about invisible metadata
        with ignored, Image.open(io.BytesIO(data), formats=[header.format]) as image:
            check_tile(getattr(image, "tag_v2", {}), MOST_PIXELS)
            image.load()
            image.info.pop(RAW, None)
            upright = ImageOps.exif_transpose(image)
            profile = foreign_profile(data, header.format)
            convert = to_srgb(profile, image.mode) if profile else None
            own = upright if image.mode in ("L", "CMYK") else upright.convert("RGBA")
            upright = (convert(own) if convert else upright).convert("RGBA")
            ground = Image.new("RGBA", upright.size, TRANSPARENT)
            return Image.alpha_composite(ground, upright).convert("RGB")
    return None


@dataclass(frozen=True)
class Record:
    """A record, and its place in the version."""

    key: str  # the row's key as text; invalid UTF-8 as surrogates (`surrogateescape`)
    split: str
    position: int  # the record's number in the split, from 0, in the order of `evaluation_input`
    span: str | None
    shard: str  # the path of the shard's file in the version's folder
    bytes: int  # the record's size
    values: Mapping[str, Value]  # by feature, in the spec's order


@dataclass(frozen=True)
class _Part:
    """Records of one shard by number; `first` is the position of the shard's first record in the split."""

    split: str
    shard: Shard
    first: int
    numbers: Numbers


def read_records(
    dataset: DatasetVersion,
    split: str | None = None,
    *,
    key: str | bytes | None = None,
    label: str | None = None,
    span: str | None = None,
    positions: Sequence[int] | None = None,
    features: Sequence[str] | None = None,
    limit: Count | None = None,
) -> Iterator[Record]:
    """Reads records lazily, with a few in memory, in the order of their positions or of `positions`.

    Args:
        dataset: a version.
        split: a split's name; None: all splits in order.
        key: the rows' key; found by binary search.
        label: a class name, the record's or one of the record's; reads in order until `limit` is reached.
        span: a span's name.
        positions: numbers in the split, from 0, in any order; needs `split`.
        features: the features to decode; None: all.
        limit: the most records; None: all.

    Raises:
        DatasetError: the split, span, class, position or feature does not exist; records of packed texts lack keys
            and classes; or a record or a file is damaged.
    """
    check_types(locals(), read_records.__annotations__)
    if split is not None:
        dataset.manifest.split(split)
    if span is not None and span not in dataset.manifest.spans:
        near = did_you_mean(span, dataset.manifest.spans)
        raise DatasetError(f"unknown span '{span}'{near}; {dataset.name} has: {listed(dataset.manifest.spans)}")
    decoder, class_id = Decoder(dataset, features), None
    if label is not None:
        if dataset.label is None:
            raise DatasetError(f"{dataset.name} has no label, so its records have no class")
        names = dataset.classes
        if label not in names:
            raise DatasetError(f"unknown class '{label}'{did_you_mean(label, names)}; known: {listed(names)}")
        class_id = names.index(label)
    if key is not None:
        parts = _of_key(dataset, split, span, key)
    elif positions is None:
        every = _shards(dataset.manifest, split, span)
        parts = (_Part(name, shard, first, np.arange(shard.records)) for name, shard, first in every)
    elif split is None:
        raise DatasetError("positions need a split: name it")
    else:
        parts = _at(dataset.manifest, split, positions)
    return islice((record for part in parts for record in _read(dataset, part, decoder, class_id)), limit)


class RecordSequence(Sequence[Record]):
    """The records of `read_records` as a sequence. Each use reads them again, by position only those asked for."""

    def __init__(self, dataset: DatasetVersion, split: str | None = None, **choice: Any) -> None:
        """Takes the arguments of `read_records`. Raises: DatasetError: as that."""
        choice = {name: value for name, value in choice.items() if value is not None}
        if isinstance(choice.get("positions"), Iterable):
            choice["positions"] = [*choice["positions"]]
        self._dataset, self._split, self._read = dataset, split, partial(read_records, dataset, split, **choice)
        self._read()  # checks the arguments
        every = range(sum(dataset.splits.values()) if split is None else dataset.splits[split])
        is_known = not choice.keys() - {"positions", "features", "limit"}
        self._positions = choice.get("positions", every)[: choice.get("limit")] if is_known else None  # None: read them

    def __iter__(self) -> Iterator[Record]:
        return self._read()

    def __len__(self) -> int:
        if self._positions is None:
            return sum(1 for _ in self._read(features=[*self._dataset.features][:1]))
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        chosen = range(len(self))[index]
        numbers = [chosen] if isinstance(chosen, int) else chosen
        if self._positions is not None and self._split is not None:
            records = [*self._read(positions=[self._positions[number] for number in numbers], limit=None)]
        else:
            found = [*islice(self, max(numbers, default=-1) + 1)]
            records = [found[number] for number in numbers]
        return records[0] if isinstance(chosen, int) else records


def _shards(manifest: Manifest, split: str | None, span: str | None) -> Iterator[tuple[str, Shard, int]]:
    """Yields the shards of a split and a span, or of all, with their first records' positions."""
    for run in runs(manifest):
        for shard, first in run.placed() if split in (None, run.split) else ():
            if span is None or shard.span == span:
                yield run.split, shard, first


def _at(manifest: Manifest, split: str, positions: Sequence[int]) -> Iterator[_Part]:
    shards = list(_shards(manifest, split, None))
    ends = np.cumsum([shard.records for _, shard, _ in shards])
    records = manifest.splits[split].records
    for position in positions:
        if not 0 <= position < records:
            raise DatasetError(f"the split '{split}' has no record {position:,}: its {records:,} are numbered from 0")
    for number, of_shard in groupby(positions, key=lambda position: int(np.searchsorted(ends, position, side="right"))):
        _, shard, first = shards[number]
        yield _Part(split, shard, first, np.array([*of_shard]) - first)


def _of_key(dataset: DatasetVersion, split: str | None, span: str | None, key: str | bytes) -> Iterator[_Part]:
    for row in find_records(dataset.folder, dataset.manifest, key):
        if (split or row.split) == row.split and (span or row.shard.span) == row.shard.span:
            yield _Part(row.split, row.shard, row.position - row.record, np.array([row.record]))


def _read(dataset: DatasetVersion, part: _Part, decoder: Decoder, class_id: int | None) -> Iterator[Record]:
    """Reads, filters and decodes a few records at a time."""
    stored = parts_to_parse(dataset.manifest, decoder.descriptions)
    if class_id is not None:  # a list of ids, since a record may have one or several
        target = str(dataset.label)
        label = replace(read_descriptions({target: dataset.features[target]})[target].parts[""], shape=None)
    with open_records(str(dataset.folder), part.shard, np.arange(0, part.shard.records, TOGETHER)) as records:
        for start in range(0, len(part.numbers), TOGETHER):
            numbers = part.numbers[start : start + TOGETHER]
            try:
                data = records.read(numbers)
                if class_id is not None:
                    ids: Any = parse(data, {target: label})[target]
                    of_row = np.repeat(np.arange(len(data)), ids.lengths())
                    of_class = np.unique(of_row[ids.values == class_id]).tolist()
                    numbers, data = numbers[of_class], [data[row] for row in of_class]
                columns = parse(data, stored)
                keys: Any = columns.get(KEY) or records.keys(numbers)
                for row, (number, record) in enumerate(zip(numbers.tolist(), data, strict=True)):
                    key = bytes(keys[row]).decode("utf-8", "surrogateescape")
                    place = part.split, part.first + number, part.shard.span, shown_paths(part.shard)[0]
                    yield Record(key, *place, len(record), decoder.decode(columns, row))
            except RowError as error:
                where = f"{shown_paths(part.shard)[0]}, record {numbers[error.row]:,}"
                raise DatasetError(f"{where}: {error.message}: run `recordmill verify`") from None


def lines_of(record: Record) -> Iterator[str]:
    """Describes a record for people: its place, then a line for each feature."""
    span = f", span {record.span}" if record.span else ""
    key = record.key.replace("\n", "\\n")  # a key is one line
    yield f"{key}  ({record.split}, position {record.position:,}{span})"
    names = [cut(name) for name in record.values]
    width = max(map(len, names), default=0)
    for name, value in zip(names, record.values.values(), strict=True):
        yield f"  {name:<{width}}  {shown(value)}"


def record_to_json(record: Record) -> dict[str, Any]:
    """Returns a record as JSON: its place, and its values by feature."""
    place = {name: getattr(record, name) for name in ("key", "split", "position", "span", "shard")}
    return {**place, "values": {name: to_json(value) for name, value in record.values.items()}}
