"""One pass over a file to adopt: its records' offsets and splits, both checksums of each, its SHA-256 and its facts.

A layout is the features of a record with the kinds of their values: `int64`, `float32`, `bytes`, or the format of an
image, such as `JPEG`. Records of few layouts are usual; a feature that some records lack makes another one.
"""

import json
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.adopt.files import AdoptError, Found
from recordmill.pipeline.dataset.file_names import sample
from recordmill.pipeline.dataset.paths import read_checked, replacing
from recordmill.pipeline.dataset.placement import Layout as Shares
from recordmill.pipeline.dataset.placement import hash_keys
from recordmill.pipeline.dataset.tfrecord import HEADER_BYTES, compression_of, record_length
from recordmill.pipeline.errors import UserError, listed
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.reader import wire
from recordmill.pipeline.reader.records import FrameWalk
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.versions.base import Base
from recordmill.transforms.base.bounds import FEATURES
from recordmill.transforms.images import image_header
from recordmill.transforms.images.image_facts import losses

NO_EXAMPLE, NESTED, BYTES, FLOATS, INTS = "no example", "nested", "bytes", "float32", "int64"
MOST_LAYOUTS, DAMAGED = 255, 255
"""The most layouts of a file, and the number in place of one for a record with damaged data."""
MOST_VALUES = 10_000  # whole numbers counted one by one; a feature with more different ones is no label
IMAGE = re.compile(rb"\xff\xd8\xff|\x89PNG|GIF8|BM|RIFF|II[*+]\0|MM\0[*+]|....ftyp", re.DOTALL)
TURNED = re.compile(rb"\x01\x12\0\x03\0\0\0\x01\0[\x02-\x08]|\x12\x01\x03\0\x01\0\0\0[\x02-\x08]\0")
"""EXIF's tag of an orientation other than upright, in either byte order."""
EXIF_WITHIN, EXIF_BYTES = 64, 4096  # where EXIF begins in a JPEG, and where its orientation lies
EXIF_CHUNKS = {"PNG": b"eXIf", "WebP": b"EXIF"}
NO_INTEGERS = re.compile(rb"[\x80-\xff]{%d}|[\x80-\xff]\Z" % wire.LONGEST)  # too long, or cut off
EMPTY = "empty"  # the kind of a list without values, whatever its type
Layout = Mapping[str, str]
TYPES: Mapping[Any, str] = {wire.BYTES: BYTES, wire.FLOATS: FLOATS, wire.INTS: INTS}
_List = tuple[int, int | str, wire.Chunks]  # a row's number, and the kind and the content of its list


@dataclass
class FeatureFacts:
    """Figures of a feature of the records."""

    records: int = 0  # records that hold it
    values: int = 0
    fewest: int | None = None  # the smallest number of values of a record
    most: int = 0
    low: float | None = None  # the smallest number; of bytes, the fewest bytes of a value
    high: float | None = None
    lengths: int = 0  # a checksum of the records' numbers of values: equal lists have equal ones
    counts: dict[str, dict[str, int]] | None = field(default_factory=dict)
    """Records by value, for one whole number a record, by `group`: split and layout; None if there are too many."""
    formats: dict[str, int] = field(default_factory=dict)  # images by format
    sides: list[int] = field(default_factory=list)  # the least and the largest height, then width, of images
    is_grey: bool = True  # whether all images have one channel
    losses: dict[str, int] = field(default_factory=dict)  # images with something that 8-bit pixels do not keep
    turned: int = 0  # images that EXIF says to turn, which readers of records do not
    unreadable: int = 0  # images without a readable header

    def add(self, other: "FeatureFacts") -> None:
        """Adds the figures of other records."""
        for name, chosen in (("fewest", min), ("low", min), ("high", max)):
            both = [each for each in (getattr(self, name), getattr(other, name)) if each is not None]
            setattr(self, name, chosen(both, default=None))
        self.most = max(self.most, other.most)
        for name in ("records", "values", "turned", "unreadable"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.is_grey &= other.is_grey
        self.lengths = zlib.crc32(b"%d %d" % (self.lengths, other.lengths))
        for name in ("formats", "losses"):
            setattr(self, name, dict(Counter(getattr(self, name)) + Counter(getattr(other, name))))
        if other.sides:
            self._add_sides(*other.sides)
        if self.counts is None or other.counts is None:
            self.counts = None
            return
        for group, values in other.counts.items():
            self.counts[group] = dict(Counter(self.counts.get(group, {})) + Counter(values))
        if sum(map(len, self.counts.values())) > MOST_VALUES:
            self.counts = None

    def add_image(self, data: bytes) -> None:
        """Adds an image."""
        read = _image(data)
        if read is None:
            self.unreadable += 1
            return
        form, height, width, is_grey = read
        self.formats[form] = self.formats.get(form, 0) + 1
        if self.sides != [height, height, width, width]:
            self._add_sides(height, height, width, width)
        self.is_grey &= is_grey
        for name in losses(data, form) if form != "JPEG" else ():
            self.losses[name] = self.losses.get(name, 0) + 1
        exif = data.find(EXIF_CHUNKS[form]) if form in EXIF_CHUNKS else data.find(b"Exif", 0, EXIF_WITHIN)
        self.turned += exif >= 0 and TURNED.search(data, exif, exif + EXIF_BYTES) is not None

    def _add_sides(self, *sides: int) -> None:
        pairs = zip(self.sides or sides, sides, (min, max, min, max), strict=True)
        self.sides = [choose(before, now) for before, now, choose in pairs]


class _AnyName:
    def __contains__(self, name: object) -> bool:
        return True


ANY_NAME: Any = _AnyName()


class Facts:
    """Collects the layouts and the figures of records, batch by batch."""

    def __init__(self) -> None:
        self.layouts: list[Layout] = []
        self.features: dict[str, FeatureFacts] = {}
        """By type and name, `int64 image/height`: records may differ in a feature's type."""
        self._numbers: dict[Any, int] = {}
        self._names = set[str]()

    def add(
        self, records: Sequence[bytes | memoryview], rows: Sequence[wire.Lists | None], splits: Sequence[int]
    ) -> list[int]:
        """Adds records with their lists (None: no Example) and splits; returns the number of each one's layout."""
        layouts, of_list = list[int](), dict[tuple[int, bytes], list[_List]]()
        for row, lists in enumerate(rows):
            kinds = []
            for name, (list_, chunks) in (lists or {}).items():
                kind: int | str = EMPTY  # of all values: an image's format, or a type
                if chunks:
                    formats = {list_} if list_ != wire.BYTES else set(map(_format_of, chunks))
                    kind = formats.pop() if len(formats) == 1 else BYTES
                    of_list.setdefault((list_, name), []).append((row, kind, chunks))
                kinds.append((name, kind))
            layouts.append(self._layout(records[row], lists, tuple(kinds)))
        groups = [f"{split} {layout}" for split, layout in zip(splits, layouts, strict=True)]
        for (list_, name), some in of_list.items():
            facts = self.features.setdefault(f"{TYPES[list_]} {_text(name)}", FeatureFacts())
            facts.add(_figures(TYPES[list_], some, groups))
        return layouts

    def _layout(self, record: bytes | memoryview, lists: wire.Lists | None, kinds: Any) -> int:
        nested = list[str]()
        if lists is not None and not wire.is_one_field(record):
            from recordmill.pipeline.dataset.examples import nested_lists  # protobuf takes 0.1 s to load

            nested = nested_lists(bytes(record))
        known = self._numbers.get((kinds, lists is None)) if not nested else None
        if known is not None:
            return known
        layout = {_text(name): TYPES.get(kind, kind) for name, kind in kinds}
        layout = {"": NO_EXAMPLE} if lists is None else layout | dict.fromkeys(nested, NESTED)
        layout = dict(sorted(layout.items()))
        if layout not in self.layouts:
            if len(self.layouts) == MOST_LAYOUTS:
                odd = sorted({*layout} ^ {*self.layouts[0]} or layout)
                raise UserError(f"the records have more than {MOST_LAYOUTS} layouts, which differ in {listed(odd)}")
            self._names |= layout.keys()
            if len(self._names) > FEATURES.most:
                raise UserError(f"{FEATURES.beyond(len(self._names))}: build from it by `source: {{format: tfrecord}}`")
            self.layouts.append(layout)
        number = self.layouts.index(layout)
        if not nested:
            self._numbers[kinds, lists is None] = number
        return number


def scan(record: bytes | memoryview) -> wire.Lists | None:
    """Returns all lists of a record; None if it is no Example."""
    lists = wire.Lists()
    with suppress(wire.Malformed):
        lists = wire.scan(record, ANY_NAME)
    whole = (chunk for kind, chunks in lists.values() if kind == wire.INTS for chunk in chunks)
    return lists if lists and not any(map(NO_INTEGERS.search, whole)) else None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _format_of(chunk: memoryview) -> str:
    if not chunk or chunk[0] not in STARTS or not IMAGE.match(chunk):
        return BYTES
    if chunk[0] == STARTS[0]:
        return "JPEG"
    form = image_header.format_of(bytes(chunk[:64]))
    is_sure = form is not None and (form.name != "BMP" or _image(bytes(chunk)) is not None)  # a text may begin with BM
    return form.name if form is not None and is_sure else BYTES


STARTS = b"\xff\x89GBRIM\0"  # first bytes of images, JPEG's first


def _figures(type_: str, some: Sequence[_List], groups: Sequence[str]) -> FeatureFacts:
    """Counts the lists of one feature and type in some records."""
    chunks = [each for _, _, each in some]
    values: npt.NDArray[Any]
    if type_ == BYTES:
        counts = np.fromiter(map(len, chunks), np.int64, len(chunks))
        values = np.array([len(value) for each in chunks for value in each], np.int64)
    else:
        sizes = np.array([sum(map(len, each)) for each in chunks], np.int64)
        joined = b"".join([part for each in chunks for part in each])
        values, counts = np.frombuffer(joined[: len(joined) // 4 * 4], "<f4"), sizes // 4
        if type_ == INTS:
            values, counts = wire.decode(joined + bytes(wire.PADDING), sizes)
    lengths = zlib.crc32(np.array([counts, [row for row, _, _ in some]]).tobytes())
    figures = int(counts.sum()), int(counts.min()), int(counts.max())
    finite = values if values.dtype.kind == "i" else values[np.isfinite(values)]
    low, high = (finite.min().item(), finite.max().item()) if len(finite) else (None, None)
    facts = FeatureFacts(len(some), *figures, low, high, lengths, None)
    if type_ == INTS and (counts == 1).all():
        facts.counts = {}
        pairs = zip((groups[row] for row, _, _ in some), values.tolist(), strict=True)
        for (group, value), number in Counter(pairs).items():
            facts.counts.setdefault(group, {})[str(value)] = number
    for _, form, each in some if type_ == BYTES else ():
        for value in each if form != BYTES else ():
            facts.add_image(bytes(value))
    return facts


def _image(data: bytes) -> tuple[str, int, int, bool] | None:
    """Returns an image's format, height, width, and whether it has one channel; None without a readable header."""
    with suppress(image_header.ImageError):
        if data.startswith(image_header.JPEG):  # a third of the time of the whole header
            frame = image_header.jpeg_frame(data)
            return None if frame is None or not frame[0] * frame[1] else ("JPEG", frame[0], frame[1], frame[2] == 1)
        header = image_header.read_header(data)
        is_grey = header.format == "PNG" and data[25:26] in (b"\0", b"\4")
        return header.format, header.height, header.width, is_grey
    return None


INPUTS_FILE = "inputs.json"
"""Names of the files read for a version, and what the version holds of each: `{scan: [index, facts]}`."""
TOGETHER = 1024  # records counted at once
NAMED = 1000  # damaged records named
OnBytes = Callable[[int], None]
OnPlan = Callable[[int], OnBytes]  # takes the bytes to read, and returns a function of each read's number of bytes


class Damage(NamedTuple):
    """A record that cannot be read."""

    record: int
    byte: int
    message: str


@dataclass(frozen=True)
class Scanned:
    """The result of a pass over a file, kept on disk as `<name>.index` and `<name>.scan`."""

    found: Found
    path: Path  # the place of both files, without their endings
    records: int
    sha256: str
    damaged: tuple[Damage, ...]
    lost: bool  # whether the rest of the file, after the last record, cannot be read
    of_all: Sequence[int] | None  # the group of all records, if they share one
    layouts: tuple[Layout, ...]
    facts: Mapping[str, FeatureFacts]
    sample: str | None = None  # `file_names.sample`; None: an earlier Recordmill passed over the file

    @classmethod
    def of(cls, path: Path, found: Found) -> "Scanned":
        """Reads what a pass over a file found."""
        head = json.loads(_unpacked(path)[0])
        facts = {name: FeatureFacts(**each) for name, each in head.pop("facts").items()}
        damaged = tuple(Damage(*each) for each in head.pop("damaged"))
        return cls(found, path, damaged=damaged, facts=facts, layouts=tuple(head.pop("layouts")), **head)

    @property
    def groups(self) -> npt.NDArray[np.uint8]:
        """Each record's split and layout, uint8 [records, 2]; `DAMAGED` in place of the layout for damaged data."""
        if self.of_all is not None:
            return np.broadcast_to(np.array(self.of_all, np.uint8), (self.records, 2))
        return np.frombuffer(zlib.decompress(_unpacked(self.path)[1]), np.uint8).reshape(-1, 2)

    @property
    def offsets(self) -> npt.NDArray[np.uint64]:
        """The records' offsets and the end of the last one: uint64 [records + 1], mapped."""
        return np.memmap(self.path.with_suffix(".index"), "<u8", "r")

    def read(self, files: Files, record: int) -> bytes:
        """Reads a record's data again. Raises: OSError."""
        start, end = self.offsets[record : record + 2].tolist()
        return files.read(self.found.info.path, start + 12, end - start - 16)


def take_over(base: Base, path: Path) -> bool:
    """Takes what the live version holds of a file of one place, size and times; tells if a pass over it is complete."""
    live, done = base.live, path.with_suffix(".scan")
    if not done.is_file() and live is not None and INPUTS_FILE in live.files:
        known = parse_json(read_checked(base.folder, INPUTS_FILE, live.files[INPUTS_FILE]["sha256"]))
        index, facts = known.get(path.name, (None, None))
        for kept, suffix in ((index, ".index"), (facts, ".scan")) if {index, facts} <= live.files.keys() else ():
            path.with_suffix(suffix).write_bytes(read_checked(base.folder, kept, live.files[kept]["sha256"]))
    return done.is_file()


def _unpacked(path: Path) -> tuple[bytes, bytes]:
    """Returns the JSON of what a pass found, and the packed groups."""
    packed = zlib.decompressobj()
    return packed.decompress(path.with_suffix(".scan").read_bytes()), packed.unused_data


def scan_file(
    files: Files, found: Found, path: Path, key: str | None, shares: Mapping[str, float], on_bytes: OnBytes
) -> None:
    """Reads a file once; writes `<path>.index` and, last, `<path>.scan`. Raises: AdoptError, UserError, OSError."""
    facts, groups, damaged = Facts(), zlib.compressobj(1), list[Damage]()
    packed, count, kinds = list[bytes](), 0, set[tuple[int, int]]()

    def report(record: int, byte: int, message: str) -> None:
        if (record, byte) not in [each[:2] for each in damaged[-1:]]:
            damaged.append(Damage(record, byte, message))

    with files.open(found.info.path) as opened, open(path.with_suffix(".index"), "wb") as index:
        head = opened.read(HEADER_BYTES)
        if record_length(head) is None and head:  # an empty file has no records
            what, remedy = "is no TFRecord file, or its first bytes are damaged", "restore it, or leave it out"
            if compressed := compression_of(head):
                what = f"is compressed by {compressed}"
                remedy = "`recordmill build` with `source: {format: tfrecord}` reads it"
            raise AdoptError(f"{found.info.path} {what}, and cannot be read in place: {remedy}")
        opened.seek(0)
        walk = FrameWalk(cast(BufferedReader, opened), found.info.bytes, None, report)
        for batch in walk.batches():
            offsets, walk.offsets = walk.offsets, array("Q")  # written, and forgotten
            np.frombuffer(offsets, np.uint64).astype("<u8").tofile(index)
            of_frames = np.full((len(offsets), 2), DAMAGED, np.uint8)
            for start in range(0, len(batch.records), TOGETHER):
                some = slice(start, start + TOGETHER)
                records, numbers = batch.records[some], batch.numbers[some]
                rows = list(map(scan, records))
                splits = _splits(found.name, numbers, rows, key, shares)
                layouts = facts.add(records, rows, splits)
                of_frames[np.array(numbers) - count] = np.array([splits, layouts]).T
            kinds |= {(0, 0)} if not of_frames.any() else set(map(tuple, np.unique(of_frames, axis=0).tolist()))
            packed.append(groups.compress(of_frames.tobytes()))
            count += len(offsets)
            on_bytes(walk.taken())
        np.array([walk.lost], "<u8").tofile(index)
    said = {"records": count, "sha256": walk.sha256, "damaged": sorted(damaged)[:NAMED], "lost": not walk.is_whole}
    said |= {"of_all": min(kinds) if len(kinds) == 1 else None, "layouts": facts.layouts}
    said["sample"] = sample(partial(files.read, found.info.path), found.info.bytes)
    said["facts"] = {name: asdict(each) for name, each in sorted(facts.features.items())}
    with replacing(path.with_suffix(".scan")) as file:
        file.write(zlib.compress(json.dumps(said).encode()) + b"".join([*packed, groups.flush()]))


def _splits(
    name: str, numbers: Sequence[int], rows: Sequence[wire.Lists | None], key: str | None, shares: Mapping[str, float]
) -> list[int]:
    """Returns the number of each record's split, by the hash of its key; 0 if files are whole."""
    if not shares:
        return [0] * len(rows)
    keys = [f"{name}:{number}".encode() for number in numbers]
    if key is not None:
        keys = [key_of(row, key) or b"" for row in rows]
    splits: list[int] = Shares(shares, dict.fromkeys(shares, 1)).split_of(hash_keys(keys)[0]).tolist()
    return splits


def key_of(row: wire.Lists | None, key: str) -> bytes | None:
    """Returns a record's key by its feature: bytes or a whole number; None without one."""
    kind, chunks = (row or {}).get(key.encode(), (0, []))
    if len(chunks) != 1 or kind == wire.FLOATS:
        return None
    if kind == wire.BYTES:
        return bytes(chunks[0])
    values, _ = wire.decode(bytes(chunks[0]) + bytes(wire.PADDING), np.array([len(chunks[0])]))
    return b"%d" % values[0] if len(values) == 1 else None
