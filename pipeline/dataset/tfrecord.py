"""TFRecord files and the Examples in them: frames, a writer of one file with its index, and records read by name.

A frame is a header (the data's length as uint64, the length's masked CRC-32C), the data, and a footer (the data's
masked CRC-32C), all little-endian, as in TensorFlow's `record_writer.cc`. A file's index holds each record's
byte offset and, last, the file's size, as little-endian uint64. The bytes are those of `tf.io.TFRecordWriter`.

A SequenceExample's `context` has the number of an Example's `features`, so one message reads both.

>>> framed = frame(b"abc")
>>> record_length(framed[:HEADER_BYTES]), framed[HEADER_BYTES:-FOOTER_BYTES]
(3, b'abc')
>>> parse_example(b"no example") is None
True
"""

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache, lru_cache
from itertools import chain
from types import TracebackType
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.paths import replacing

HEADER_BYTES, FOOTER_BYTES = 12, 4
_length = struct.Struct("<Q").pack
_crc = struct.Struct("<I").pack


def masked_crc(data: bytes) -> int:
    """Returns the CRC-32C of data, rotated and shifted as TFRecord wants it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1 << 13)
def frame_head(length: int) -> bytes:
    """Returns the header of data of `length` bytes."""
    data = _length(length)
    return data + _crc(masked_crc(data))


def record_length(header: bytes) -> int | None:
    """Returns the number of bytes of a record's data, by its header; None where that is cut off or damaged."""
    length = int.from_bytes(header[:8], "little")
    return length if header == frame_head(length) else None


def frame_tails(records: Sequence[bytes | npt.NDArray[np.uint8]]) -> bytes:
    """Returns the footers of records, joined: 4 bytes each."""
    sums = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
    return (((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)).astype("<u4").tobytes()


def frame(record: bytes) -> bytes:
    """Returns a record with its header and its footer."""
    return b"".join(_frame_parts(record))


def _frame_parts(record: bytes) -> tuple[bytes, bytes, bytes]:
    return frame_head(len(record)), record, _crc(masked_crc(record))


class ShardWriter:
    """Writes a shard and its index, which both appear when the block ends without an error.

    `create` opens a new file of a name, which appears whole when its block ends (`Store.create`).

    >>> with ShardWriter("a.tfrecord", "a.index") as writer:  # doctest: +SKIP
    ...     writer.write([b"record"])
    >>> writer.records, writer.bytes, writer.sha256           # doctest: +SKIP
    """

    def __init__(
        self, path: str, index: str, create: Callable[[str], AbstractContextManager[BinaryIO]] = replacing
    ) -> None:
        self._path, self._index, self._create = path, index, create
        self._sha256 = hashlib.sha256()
        self._offsets = [0]

    def __enter__(self) -> "ShardWriter":
        self._files = ExitStack()
        self._file = self._files.enter_context(self._create(self._path))
        self._files.push(self._write_index)  # before the shard gets its name
        return self

    def write(self, records: list[bytes]) -> None:
        """Appends records in their order."""
        data = b"".join(chain.from_iterable(map(_frame_parts, records)))
        for record in records:
            self._offsets.append(self._offsets[-1] + HEADER_BYTES + len(record) + FOOTER_BYTES)
        self._sha256.update(data)
        self._file.write(data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

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
        """Returns `bytes` and `sha256` of the index, as the manifest lists a file."""
        data = self._index_data()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def report(self) -> dict[str, Any]:
        """Returns a shard's facts for the manifest."""
        index = self.index_entry()["sha256"]
        return {"bytes": self.bytes, "records": self.records, "sha256": self.sha256, "index_sha256": index}


DESCRIPTION = """
name: "recordmill/example.proto"  package: "recordmill"  syntax: "proto3"
message_type { name: "Bytes"  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Floats" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Ints"   field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature"
  oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: "Bytes" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: "Floats" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: "Ints" oneof_index: 0 }
}
message_type {
  name: "Features"
  nested_type {
    name: "FeatureEntry"
    options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "Feature" }
  }
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "FeatureEntry" }
}
message_type {
  name: "FeatureList"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Feature" }
}
message_type {
  name: "FeatureLists"
  nested_type {
    name: "FeatureListEntry"
    options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "FeatureList" }
  }
  field { name: "feature_list" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "FeatureListEntry" }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: "Features" }
  field { name: "feature_lists" number: 2 type: TYPE_MESSAGE type_name: "FeatureLists" }
}
"""
"""TensorFlow's `example.proto` and `feature.proto`; names of our own, so that both can be loaded."""
SEVERAL = "several"
"""The kind of a list that holds values of more than one."""


@cache
def _message() -> tuple[Any, type[Exception]]:
    """Returns the message's class, and the error for bytes that are none; protobuf takes 0.1 s to load."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    description = text_format.Parse(DESCRIPTION, descriptor_pb2.FileDescriptorProto())
    pool.AddSerializedFile(description.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("recordmill.Example")), DecodeError


def _parsed(record: bytes) -> Any:
    message, decode_error = _message()
    try:
        return message.FromString(record)
    except decode_error:
        return None


Values = tuple[str, Sequence[Any]]
"""The kind of a feature, `bytes_list`, `float_list`, `int64_list` or `SEVERAL`, and its values."""


class Example:
    """One record, parsed."""

    __slots__ = ("_features", "_message")

    def __init__(self, message: Any) -> None:
        self._message = message
        self._features: Mapping[str, Any] = message.features.feature

    def names(self) -> list[str]:
        """The features that it has, sorted."""
        return sorted({*self._features, *self._message.feature_lists.feature_list})

    def values(self, name: str) -> Values | None:
        """A feature's values, of all steps where it is a feature list; None where it has none, not even an empty list.

        The steps of a feature list may hold values of several kinds.
        """
        if name not in self._features:  # asking for one that is not there would add it
            return self._steps(name)
        feature = self._features[name]
        kind = feature.WhichOneof("kind")
        return kind and (kind, getattr(feature, kind).value)

    def _steps(self, name: str) -> Values | None:
        lists = self._message.feature_lists.feature_list
        if name not in lists:
            return None
        steps = [(feature.WhichOneof("kind"), feature) for feature in lists[name].feature]
        kinds = {kind for kind, _ in steps if kind} or {"bytes_list"}
        kind = kinds.pop()
        if kinds:
            return SEVERAL, [None]
        return kind, [value for has, feature in steps if has for value in getattr(feature, kind).value]


def parse_example(record: bytes) -> Example | None:
    """Parses a record; None where it is no example, or one without any feature.

    As in all protocol buffers, fields that are not known are passed over, and of a feature that comes twice the last
    one counts.
    """
    message = _parsed(record)
    return (
        Example(message)
        if message is not None and (message.features.feature or message.feature_lists.feature_list)
        else None
    )


def canonical_example(record: bytes) -> bytes | None:
    """Returns an Example in the one form that all writers give it; None for bytes that are no Example.

    Entries of a name and a feature, each name once, one list a feature, numbers packed, no unknown fields.
    """
    message = _parsed(record)
    if message is None:
        return None
    message.ClearField("feature_lists")
    message.DiscardUnknownFields()
    return bytes(message.SerializeToString(deterministic=True))
