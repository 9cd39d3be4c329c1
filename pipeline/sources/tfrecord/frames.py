"""The framing of TFRecord files, read: records by their byte offsets, and what of a file cannot be read.

A record is its length (uint64), the length's masked CRC-32C, the data, the data's masked CRC-32C, all little-endian, as
TensorFlow's `record_reader.cc` reads it. A record whose data is damaged costs itself; behind a length that is damaged
nothing can be found any more.

>>> from recordmill.pipeline.dataset.tfrecord import frame
>>> list(frames(io.BytesIO(frame(b"a") + frame(b"b")), 0, 34))
[(0, b'a'), (17, b'b')]
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, masked_crc, record_length
from recordmill.pipeline.sources.inflate import DamagedDataError

MAX_RECORD_BYTES = 1 << 30  # 1 GiB; a protocol buffer has at most 2
SKIPPED_BYTES = 1 << 20  # read at a time of what is passed over

_crc = struct.Struct("<I").unpack


@dataclass(frozen=True, slots=True)
class Damage:
    """What stands in place of a record that cannot be read."""

    message: str
    reason: str = "damaged_record"
    is_end: bool = False
    """Whether it stands for all that lies behind it, too."""


def frames(file: BinaryIO, start: int, end: int | None) -> Iterator[tuple[int, bytes | Damage]]:
    """Reads the records that start in the bytes `[start, end)`.

    Args:
        file: stands at `start`.
        start: a byte offset where a record starts.
        end: where another record starts, or the file ends; None: read to the end.

    Yields:
        A record's byte offset, and its data or what is wrong with it.

    Raises:
        OSError: the file cannot be read.
    """
    at = start
    while end is None or at < end:
        try:
            length, data = _record(file, at, end)
        except DamagedDataError as error:
            length, data = 0, _rest(f"the compressed data is damaged ({error}) in the record at byte {at}")
        if data is None:
            return
        yield at, data
        if isinstance(data, Damage) and data.is_end:
            return
        at += HEADER_BYTES + length + FOOTER_BYTES


def walk(file: BinaryIO, size: int) -> Iterator[int]:
    """Gives the byte offsets of a file's records, reading their headers alone; the last may be damaged.

    Args:
        file: stands at its beginning, and can seek.
        size: its bytes.

    Raises:
        OSError: the file cannot be read.
    """
    at = 0
    while at < size:
        yield at
        length = record_length(file.read(HEADER_BYTES))
        if length is None:
            return
        file.seek(length + FOOTER_BYTES, io.SEEK_CUR)
        at += HEADER_BYTES + length + FOOTER_BYTES


def _record(file: BinaryIO, at: int, end: int | None) -> tuple[int, bytes | Damage | None]:
    """The length and the data of the next record; None where there is none."""
    header = file.read(HEADER_BYTES)
    if not header and end is None:
        return 0, None
    length = record_length(header)
    if length is None:
        what = "the file is cut off in" if len(header) < HEADER_BYTES else "the checksum is wrong of the length of"
        return 0, _rest(f"{what} the record at byte {at}")
    left = None if end is None else end - at - HEADER_BYTES - FOOTER_BYTES
    if left is not None and length > left:
        return length, _rest(f"the record at byte {at} claims {length} bytes, and the file has {max(left, 0)} more")
    if length > MAX_RECORD_BYTES:
        whole = _skip(file, length + FOOTER_BYTES)
        too_large = Damage(f"the record at byte {at} is longer than 1 GiB", "too_large")
        return length, too_large if whole else _rest(f"the file is cut off in the record at byte {at}")
    data, footer = file.read(length), file.read(FOOTER_BYTES)
    if len(footer) < FOOTER_BYTES:
        return length, _rest(f"the file is cut off in the record at byte {at}")
    if _crc(footer)[0] != masked_crc(data):
        return length, Damage(f"the checksum is wrong of the data of the record at byte {at}")
    return length, data


def _rest(message: str) -> Damage:
    return Damage(f"{message}; what lies behind it in the file cannot be read", is_end=True)


def _skip(file: BinaryIO, length: int) -> bool:
    """Passes over some bytes; whether they were there."""
    while length:
        read = len(file.read(min(length, SKIPPED_BYTES)))
        if not read:
            return False
        length -= read
    return True
