"""One pass over a file to adopt: its records' offsets and splits, both checksums of each, its SHA-256 and its facts."""

import json
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.adopt.facts import DAMAGED, Facts, FeatureFacts, Layout, scan
from recordmill.pipeline.adopt.files import AdoptError, Found
from recordmill.pipeline.dataset.adopted_files import sample
from recordmill.pipeline.dataset.paths import read_checked, replacing
from recordmill.pipeline.dataset.placement import Layout as Shares
from recordmill.pipeline.dataset.placement import hash_keys
from recordmill.pipeline.dataset.tfrecord import HEADER_BYTES, compression_of, record_length
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.reader import wire
from recordmill.pipeline.reader.records import FrameWalk
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.versions.base import Base

INPUTS_FILE = "inputs.json"
"""Names of the files read for a version, and what the version holds of each: `{scan: [index, facts]}`."""
TOGETHER = 1024  # records counted at once
NAMED = 1000  # damaged records named
OnBytes = Callable[[int], None]


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
    sample: str | None = None  # `adopted_files.sample`; None: an earlier Recordmill passed over the file

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


def is_done(path: Path) -> bool:
    """Whether a file's pass is complete."""
    return path.with_suffix(".scan").is_file()


def take_over(base: Base, path: Path) -> None:
    """Copies what the live version holds of a file of the same place, size and times, if it does."""
    live = base.live
    if live is None or INPUTS_FILE not in live.files:
        return
    known = parse_json(read_checked(base.folder, INPUTS_FILE, live.files[INPUTS_FILE]["sha256"]))
    index, facts = known.get(path.name, (None, None))
    for kept, suffix in ((index, ".index"), (facts, ".scan")) if {index, facts} <= live.files.keys() else ():
        path.with_suffix(suffix).write_bytes(read_checked(base.folder, kept, live.files[kept]["sha256"]))


def _unpacked(path: Path) -> tuple[bytes, bytes]:
    """Returns the JSON of what a pass found, and the packed groups."""
    packed = zlib.decompressobj()
    return packed.decompress(path.with_suffix(".scan").read_bytes()), packed.unused_data


def read_scan(path: Path, found: Found) -> Scanned:
    """Reads what a pass found."""
    head = json.loads(_unpacked(path)[0])
    facts = {name: FeatureFacts(**each) for name, each in head.pop("facts").items()}
    damaged = tuple(Damage(*each) for each in head.pop("damaged"))
    return Scanned(found, path, damaged=damaged, facts=facts, layouts=tuple(head.pop("layouts")), **head)


def scan_file(
    files: Files, found: Found, path: Path, key: str | None, shares: Mapping[str, float], on_bytes: OnBytes
) -> None:
    """Reads a file once, and writes `<path>.index` and `<path>.scan`, the second when all is done.

    Raises: AdoptError: it is no TFRecord file, or compressed. UserError: too many layouts. OSError: it cannot be read.
    """
    facts, groups, damaged = Facts(), zlib.compressobj(1), list[Damage]()
    packed, count, kinds = list[bytes](), 0, set[tuple[int, int]]()

    def report(record: int, byte: int, message: str) -> None:
        if (record, byte) not in [each[:2] for each in damaged[-1:]]:
            damaged.append(Damage(record, byte, message))

    with files.open(found.info.path) as opened, open(path.with_suffix(".index"), "wb") as index:
        _check_head(found, opened.read(HEADER_BYTES))
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
    head = {"records": count, "sha256": walk.sha256, "damaged": sorted(damaged)[:NAMED], "lost": not walk.is_whole}
    head |= {"of_all": min(kinds) if len(kinds) == 1 else None, "layouts": facts.layouts}
    head["sample"] = sample(partial(files.read, found.info.path), found.info.bytes)
    head["facts"] = {name: asdict(each) for name, each in sorted(facts.features.items())}
    with replacing(path.with_suffix(".scan")) as file:
        file.write(zlib.compress(json.dumps(head).encode()) + b"".join([*packed, groups.flush()]))


def _check_head(found: Found, head: bytes) -> None:
    """Refuses a file that does not begin like TFRecords; an empty one has no records."""
    if record_length(head) is None and head:
        what, remedy = "is no TFRecord file, or its first bytes are damaged", "restore it, or leave it out"
        if compressed := compression_of(head):
            what = f"is compressed by {compressed}"
            remedy = "`recordmill build` with `source: {format: tfrecord}` reads it"
        raise AdoptError(f"{found.info.path} {what}, and cannot be read in place: {remedy}")


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
