"""TFRecord files: frames, and a writer of one file with its index.

A frame is a header (the data's length as uint64, the length's masked CRC-32C), the data, and a footer (the data's
masked CRC-32C), all little-endian, like `tf.io.TFRecordWriter`'s (`record_writer.cc`). An index holds the records' byte
offsets and the file's size as little-endian uint64.

>>> framed = frame(b"abc")
>>> record_length(framed[:HEADER_BYTES]), framed[HEADER_BYTES:-FOOTER_BYTES]
(3, b'abc')
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from itertools import chain
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.paths import replacing

HEADER_BYTES, FOOTER_BYTES = 12, 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_length = struct.Struct("<Q").pack
_crc = struct.Struct("<I").pack
Create = Callable[[str], AbstractContextManager[BinaryIO]]


def masked_crc(data: bytes) -> int:
    """Returns the masked CRC-32C of data, as TFRecord defines it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1 << 13)
def frame_head(length: int) -> bytes:
    """Returns the header of data of `length` bytes."""
    data = _length(length)
    return data + _crc(masked_crc(data))


def record_length(header: bytes | memoryview) -> int | None:
    """Returns the bytes of a record's data by its header; None if truncated or damaged."""
    length = int.from_bytes(header[:8], "little")
    return length if header == frame_head(length) else None


def compression_of(head: bytes) -> str | None:
    """Names the compression of a file by its first bytes: `gzip`, `zlib`, or None; a record may begin like zlib."""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    return "zlib" if head[:1] and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0 else None


def frame_tails(records: Sequence[bytes | npt.NDArray[np.uint8]]) -> bytes:
    """Returns the joined footers of records, 4 bytes each."""
    sums = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
    return (((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)).astype("<u4").tobytes()


def frame(record: bytes) -> bytes:
    """Returns a record with its header and its footer."""
    return b"".join(_frame_parts(record))


def _frame_parts(record: bytes) -> tuple[bytes, bytes, bytes]:
    return frame_head(len(record)), record, _crc(masked_crc(record))


class ShardWriter:
    """Writes a shard and its index, which appear at the end of a block without an error.

    `create` opens a new file that appears atomically at the end of its block (`Store.create`).

    >>> with ShardWriter("a.tfrecord", "a.index") as writer:  # doctest: +SKIP
    ...     writer.write([b"record"])
    >>> writer.records, writer.bytes, writer.sha256           # doctest: +SKIP
    """

    def __init__(self, path: str, index: str, create: Create = replacing) -> None:
        self._path, self._index, self._create = path, index, create
        self._sha256 = hashlib.sha256()
        self._offsets = [0]

    def __enter__(self) -> "ShardWriter":
        self._files = ExitStack()
        self._file = self._files.enter_context(self._create(self._path))
        self._files.push(self._write_index)  # before the shard gets its name
        return self

    def write(self, records: list[bytes]) -> None:
        """Appends records in order."""
        data = b"".join(chain.from_iterable(map(_frame_parts, records)))
        for record in records:
            self._offsets.append(self._offsets[-1] + HEADER_BYTES + len(record) + FOOTER_BYTES)
        self._sha256.update(data)
        self._file.write(data)

    def __exit__(self, *error: Any) -> None:
        self._files.__exit__(*error)

    def _write_index(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._create(self._index) as file:
                file.write(self._index_data())

    def _index_data(self) -> bytes:
        return np.array(self._offsets, "<u8").tobytes()

    @property
    def records(self) -> int:
        """The number of records written."""
        return len(self._offsets) - 1

    @property
    def bytes(self) -> int:
        """The file's size."""
        return self._offsets[-1]

    @property
    def sha256(self) -> str:
        """The file's digest, in hex."""
        return self._sha256.hexdigest()

    def index_entry(self) -> dict[str, Any]:
        """Returns `bytes` and `sha256` of the index, for the manifest."""
        data = self._index_data()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def report(self) -> dict[str, Any]:
        """Returns a shard's facts for the manifest."""
        index = self.index_entry()["sha256"]
        return {"bytes": self.bytes, "records": self.records, "sha256": self.sha256, "index_sha256": index}
