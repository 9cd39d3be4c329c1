"""What adopted records hold: their layouts, and figures of each of their features, counted in one pass.

A layout is the features of a record with the kinds of their values: `int64`, `float32`, `bytes`, or the format of an
image, such as `JPEG`. Records of few layouts are usual; a feature that some records lack makes another one.
"""

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.examples import nested_lists
from recordmill.pipeline.errors import UserError, listed
from recordmill.pipeline.reader import wire
from recordmill.transforms.contract import image_header
from recordmill.transforms.contract.image_facts import losses

NO_EXAMPLE, NESTED, BYTES, FLOATS, INTS = "no example", "nested", "bytes", "float32", "int64"
MOST_LAYOUTS, DAMAGED = 255, 255
"""The most layouts of a file, and the number in place of one for a record with damaged data."""
MOST_VALUES = 10_000
"""Whole numbers counted one by one; a feature with more different ones is no label."""
IMAGE = re.compile(rb"\xff\xd8\xff|\x89PNG|GIF8|BM|RIFF|II[*+]\0|MM\0[*+]|....ftyp", re.DOTALL)
TURNED = re.compile(rb"\x01\x12\0\x03\0\0\0\x01\0[\x02-\x08]|\x12\x01\x03\0\x01\0\0\0[\x02-\x08]\0")
"""EXIF's tag of an orientation other than upright, in either byte order."""
EXIF_WITHIN, EXIF_BYTES = 64, 4096  # where EXIF begins in a JPEG, and where its orientation lies
Layout = Mapping[str, str]
_List = tuple[int, int, wire.Chunks]  # a row's number, and the kind and the content of its list


@dataclass
class FeatureFacts:
    """Figures of a feature of the records."""

    records: int = 0
    """Records that hold it."""
    values: int = 0
    fewest: int | None = None
    """The smallest number of values of a record."""
    most: int = 0
    low: float | None = None
    """The smallest number; of bytes, the fewest bytes of a value."""
    high: float | None = None
    lengths: int = 0
    """A checksum of the records' numbers of values: equal lists have equal ones."""
    counts: dict[str, dict[str, int]] | None = field(default_factory=dict)
    """Records by value, for one whole number a record, by `group`: split and layout; None if there are too many."""
    formats: dict[str, int] = field(default_factory=dict)
    """Images by format."""
    sides: list[int] = field(default_factory=list)
    """The least and the largest height, then width, of images."""
    is_grey: bool = True
    """Whether all images have one channel."""
    losses: dict[str, int] = field(default_factory=dict)
    """Images with something that 8-bit pixels do not keep."""
    turned: int = 0
    """Images that EXIF says to turn, which readers of records do not."""
    unreadable: int = 0
    """Images without a readable header."""

    def add(self, other: "FeatureFacts") -> None:
        """Adds the figures of other records."""
        fewest = [each for each in (self.fewest, other.fewest) if each is not None]
        self.fewest, self.most = min(fewest, default=None), max(self.most, other.most)
        lows, highs = (
            [each for each in both if each is not None] for both in zip(self._range(), other._range(), strict=True)
        )
        self.low, self.high = min(lows, default=None), max(highs, default=None)
        for name in ("records", "values", "turned", "unreadable"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.is_grey &= other.is_grey
        self.lengths = zlib.crc32(b"%d %d" % (self.lengths, other.lengths))
        for name in ("formats", "losses"):
            setattr(self, name, dict(Counter(getattr(self, name)) + Counter(getattr(other, name))))
        if other.sides:
            self._add_sides(*other.sides)
        self._add_counts(other.counts)

    def _range(self) -> tuple[float | None, float | None]:
        return self.low, self.high

    def _add_sides(self, least_height: int, height: int, least_width: int, width: int) -> None:
        old = self.sides or [least_height, height, least_width, width]
        pairs = zip(old, (least_height, height, least_width, width), (min, max, min, max), strict=True)
        self.sides = [choose(before, now) for before, now, choose in pairs]

    def _add_counts(self, counts: Mapping[str, Mapping[str, int]] | None) -> None:
        if self.counts is None or counts is None:
            self.counts = None
            return
        for group, values in counts.items():
            self.counts[group] = dict(Counter(self.counts.get(group, {})) + Counter(values))
        if sum(map(len, self.counts.values())) > MOST_VALUES:
            self.counts = None

    def to_json(self) -> dict[str, Any]:
        """Returns the figures as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Self:
        """Reads figures written by `to_json`."""
        return cls(**{each.name: written[each.name] for each in fields(cls)})


class _AnyName:
    def __contains__(self, name: object) -> bool:
        return True


ANY_NAME: Any = _AnyName()


class Facts:
    """Collects the layouts and the figures of records, batch by batch."""

    def __init__(self) -> None:
        self.layouts: list[Layout] = []
        self.features: dict[str, FeatureFacts] = {}
        self._numbers: dict[Any, int] = {}

    def add(
        self, records: Sequence[bytes | memoryview], rows: Sequence[wire.Lists | None], splits: Sequence[int]
    ) -> list[int]:
        """Adds records with their lists (None: no Example) and splits; returns the number of each one's layout."""
        layouts, of_name = list[int](), dict[bytes, list[_List]]()
        for row, lists in enumerate(rows):
            kinds = []
            for name, (kind, chunks) in (lists or {}).items():
                if chunks:
                    of_name.setdefault(name, []).append((row, kind, chunks))
                    kinds.append((name, kind if kind != wire.BYTES else _format(chunks)))
            layouts.append(self._layout(records[row], lists, tuple(kinds)))
        groups = [f"{split} {layout}" for split, layout in zip(splits, layouts, strict=True)]
        for name, some in of_name.items():
            self.features.setdefault(_text(name), FeatureFacts()).add(_figures(some, groups))
        return layouts

    def _layout(self, record: bytes | memoryview, lists: wire.Lists | None, kinds: Any) -> int:
        nested = [] if lists is None or wire.is_one_field(record) else nested_lists(bytes(record))
        known = self._numbers.get((kinds, lists is None)) if not nested else None
        if known is not None:
            return known
        layout = {_text(name): {wire.FLOATS: FLOATS, wire.INTS: INTS}.get(kind, kind) for name, kind in kinds}
        layout = {"": NO_EXAMPLE} if lists is None else layout | dict.fromkeys(nested, NESTED)
        layout = dict(sorted(layout.items()))
        if layout not in self.layouts:
            if len(self.layouts) == MOST_LAYOUTS:
                odd = sorted({*layout} ^ {*self.layouts[0]} or layout)
                raise UserError(f"the records have more than {MOST_LAYOUTS} layouts, which differ in {listed(odd)}")
            self.layouts.append(layout)
        number = self.layouts.index(layout)
        if not nested:
            self._numbers[kinds, lists is None] = number
        return number


def scan(record: bytes | memoryview) -> wire.Lists | None:
    """Returns all lists of a record; None if it is no Example."""
    try:
        return wire.scan(record, ANY_NAME) or None
    except wire.Malformed:
        return None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _format(chunks: wire.Chunks) -> str:
    """Returns the image format of all values, or `bytes`."""
    formats = set()
    for chunk in chunks:
        if chunk[:1].tobytes() not in STARTS or not IMAGE.match(chunk):
            return BYTES
        form = image_header.format_of(bytes(chunk[:64]))
        if form is None or (form.name == "BMP" and not _header(bytes(chunk))):  # two letters may begin a text
            return BYTES
        formats.add(form.name)
    return formats.pop() if len(formats) == 1 else BYTES


STARTS = frozenset({b"\xff", b"\x89", b"G", b"B", b"R", b"I", b"M", b"\0"})


def _header(data: bytes) -> image_header.Header | None:
    with suppress(image_header.ImageError):
        return image_header.read_header(data)
    return None


def _figures(some: Sequence[_List], groups: Sequence[str]) -> FeatureFacts:
    """Counts the lists of one feature in some records."""
    facts = FeatureFacts(records=len(some))
    by_kind: dict[int, list[int]] = {}
    for at, (_, kind, _) in enumerate(some):
        by_kind.setdefault(kind, []).append(at)
    for kind, places in by_kind.items():
        chunks = [some[at][2] for at in places]
        if kind == wire.BYTES:
            counts = np.fromiter(map(len, chunks), np.int64, len(chunks))
            values: npt.NDArray[Any] = np.array([len(value) for each in chunks for value in each], np.int64)
            _add_images(facts, [value for each in chunks for value in each])
        else:
            sizes = np.array([sum(map(len, each)) for each in chunks], np.int64)
            joined = b"".join([part for each in chunks for part in each])
            values, counts = np.frombuffer(joined[: len(joined) // 4 * 4], "<f4"), sizes // 4
            if kind == wire.INTS:
                values, counts = wire.decode(joined + bytes(wire.PADDING), sizes)
        lengths = zlib.crc32(np.stack([counts, [some[at][0] for at in places]]).tobytes())
        facts.add(FeatureFacts(0, int(counts.sum()), int(counts.min()), int(counts.max()), *_bounds(values), lengths))
        is_label = kind == wire.INTS and len(by_kind) == 1 and (counts == 1).all()
        facts._add_counts(_counted([groups[some[at][0]] for at in places], values) if is_label else None)
    return facts


def _bounds(values: npt.NDArray[Any]) -> tuple[float | None, float | None]:
    finite = values if values.dtype.kind == "i" else values[np.isfinite(values)]
    return (finite.min().item(), finite.max().item()) if len(finite) else (None, None)


def _counted(groups: Sequence[str], values: npt.NDArray[np.int64]) -> dict[str, dict[str, int]]:
    counts = dict[str, dict[str, int]]()
    for (group, value), number in Counter(zip(groups, values.tolist(), strict=True)).items():
        counts.setdefault(group, {})[str(value)] = number
    return counts


def _add_images(facts: FeatureFacts, values: Sequence[memoryview]) -> None:
    for value in values:
        if value[:1].tobytes() not in STARTS or not IMAGE.match(value):
            continue
        data = bytes(value)
        header = _header(data)
        if header is None:
            facts.unreadable += 1
            continue
        facts.formats[header.format] = facts.formats.get(header.format, 0) + 1
        facts._add_sides(header.height, header.height, header.width, header.width)
        facts.is_grey = facts.is_grey and _is_grey(data, header.format)
        for name in losses(data, header.format):
            facts.losses[name] = facts.losses.get(name, 0) + 1
        facts.turned += data.find(b"Exif", 0, EXIF_WITHIN) >= 0 and TURNED.search(data, 0, EXIF_BYTES) is not None


def _is_grey(data: bytes, form: str) -> bool:
    """Whether a PNG or JPEG has one channel."""
    if form == "PNG":
        return data[25:26] in (b"\0", b"\4")
    segments = image_header.jpeg_segments(data) if form == "JPEG" else ()
    return any(data[offset + 9] == 1 for marker, offset in segments if marker in image_header.FRAMES)
