"""The framing of TFRecord files, read: records by their byte offsets, and what of a file cannot be read.

The frame of a record is in `pipeline.dataset.tfrecord`. A record whose data is damaged costs itself; behind a length
that is damaged nothing can be found any more.

>>> from recordmill.pipeline.dataset.tfrecord import frame
>>> list(frames(io.BytesIO(frame(b"a") + frame(b"b")), 0, 34))
[(0, b'a'), (17, b'b')]
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, masked_crc, record_length
from recordmill.pipeline.sources.encoded import DamagedDataError

MAX_RECORD_BYTES = 1 << 30  # 1 GiB; a protocol buffer has at most 2
SKIPPED_BYTES = 1 << 20  # read at a time of what is passed over


@dataclass(frozen=True, slots=True)
class Damage:
    """Takes the place of a record that cannot be read."""

    message: str
    reason: str = "damaged_record"


class _LostError(Exception):
    """Nothing can be found in the file from here on."""


def frames(file: BinaryIO, start: int, end: int | None) -> Iterator[tuple[int, bytes | Damage]]:
    """Reads the records that start in the bytes `[start, end)`, or up to the end of the file.

    The file is at `start`, where a record starts, as one does at `end` unless the file ends there.

    Yields:
        A record's byte offset, and its data or what is wrong with it.
    """
    offset = start
    while end is None or offset < end:
        name = f"the record at byte {offset}"
        try:
            header = file.read(HEADER_BYTES)
            if not header and end is None:
                return
            left = None if end is None else end - offset - HEADER_BYTES - FOOTER_BYTES
            length, data = _record(file, name, header, left)
        except (DamagedDataError, _LostError) as error:
            reason = f"the compressed data is damaged ({error}) in {name}"
            reason = str(error) if isinstance(error, _LostError) else reason
            yield offset, Damage(f"{reason}; what lies behind it in the file cannot be read")
            return
        yield offset, data
        offset += HEADER_BYTES + length + FOOTER_BYTES


def walk(file: BinaryIO, size: int) -> Iterator[int]:
    """Yields the byte offsets of a file's records, reading their headers alone; the last may be damaged.

    The file is at its beginning and can seek; `size` is its bytes.
    """
    offset = 0
    while offset < size:
        yield offset
        length = record_length(file.read(HEADER_BYTES))
        if length is None:
            return
        file.seek(length + FOOTER_BYTES, io.SEEK_CUR)
        offset += HEADER_BYTES + length + FOOTER_BYTES


def _record(file: BinaryIO, name: str, header: bytes, left: int | None) -> tuple[int, bytes | Damage]:
    """The length and the data of a record whose header was read; `left` is the most that its data can be."""
    length = record_length(header)
    if length is None:
        what = "the file is cut off in" if len(header) < HEADER_BYTES else "the checksum is wrong of the length of"
        raise _LostError(f"{what} {name}")
    if left is not None and length > left:
        raise _LostError(f"{name} claims {length} bytes, and the file has {max(left, 0)} more")
    if length > MAX_RECORD_BYTES:
        _skip(file, name, length + FOOTER_BYTES)
        return length, Damage(f"{name} is longer than 1 GiB", "too_large")
    data, footer = file.read(length), file.read(FOOTER_BYTES)
    if len(footer) < FOOTER_BYTES:
        raise _LostError(f"the file is cut off in {name}")
    if int.from_bytes(footer, "little") != masked_crc(data):
        return length, Damage(f"the checksum is wrong of the data of {name}")
    return length, data


def _skip(file: BinaryIO, name: str, length: int) -> None:
    while length:
        read = len(file.read(min(length, SKIPPED_BYTES)))
        if not read:
            raise _LostError(f"the file is cut off in {name}")
        length -= read
