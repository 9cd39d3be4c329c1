r"""`tf.train.Example`s read by the protobuf parser, `tf.train.SequenceExample`s too, and written without one.

A SequenceExample's `context` has the same field number as an Example's `features`, so one message reads both. Written
bytes are those of the deterministic encoder: features are sorted by name, one after those that it begins; numbers are
packed.

>>> examples({"x": Ragged(np.array([1, 300]), np.array([0, 2]))})
[b'\n\x0e\n\x0c\n\x01x\x12\x07\x1a\x05\n\x03\x01\xac\x02']
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from recordmill.transforms.base.stored import Ragged

DESCRIPTION = """
name: "recordmill/example.proto"  package: "recordmill"  syntax: "proto3"
message_type { name: "Bytes"  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Floats" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Ints"   field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: "Bytes" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: "Floats" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: "Ints" oneof_index: 0 }
}
message_type { name: "Features"
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "Feature" }
  }
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "FeatureEntry" }
}
message_type { name: "FeatureList"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Feature" }
}
message_type { name: "FeatureLists"
  nested_type { name: "FeatureListEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "FeatureList" }
  }
  field { name: "feature_list" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "FeatureListEntry" }
}
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: "Features" }
  field { name: "feature_lists" number: 2 type: TYPE_MESSAGE type_name: "FeatureLists" }
}
"""
"""TensorFlow's `example.proto` and `feature.proto`, renamed to avoid conflicts with TensorFlow."""
SEVERAL = "several"  # the kind of a list with values of several kinds
Values = tuple[str, Sequence[Any]]
"""A feature's kind, `bytes_list`, `float_list`, `int64_list` or `SEVERAL`, and its values."""
FIRST, SECOND = b"\x0a", b"\x12"  # the tags of fields 1 and 2 that have a length
AFTER = 256  # sorts behind every byte
BYTES, FLOATS, INTS = b"\x0a", b"\x12", b"\x1a"  # of a feature's list
NUMBERS = {"float32": FLOATS, "int64": INTS}
_KEPT = np.tril(np.ones((5, 4), np.uint8), -1).view("<u4").ravel()  # the bytes of a word by the size of its varint


@cache
def _message() -> Any:
    pool = descriptor_pool.DescriptorPool()
    description = text_format.Parse(DESCRIPTION, descriptor_pb2.FileDescriptorProto())
    pool.AddSerializedFile(description.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("recordmill.Example"))


def _parsed(record: bytes) -> Any:
    try:
        return _message().FromString(record)
    except DecodeError:
        return None


class Example:
    """A parsed record."""

    __slots__ = ("_features", "_message")

    def __init__(self, message: Any) -> None:
        self._message = message
        self._features: Mapping[str, Any] = message.features.feature

    def names(self) -> list[str]:
        """Returns its features, sorted."""
        return sorted({*self._features, *self._message.feature_lists.feature_list})

    def values(self, name: str) -> Values | None:
        """Returns a feature's values, of a feature list all steps', maybe several kinds; None without any list."""
        if name not in self._features:  # an access to a missing one would add it
            return self.steps(name)
        feature = self._features[name]
        kind = feature.WhichOneof("kind")
        return kind and (kind, getattr(feature, kind).value)

    def steps(self, name: str) -> Values | None:
        """Returns the values of all steps of a feature list; None if it is missing."""
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
    """Parses a record, the last of duplicate features; None if it is invalid or lacks features."""
    message = _parsed(record)
    has_any = message is not None and (message.features.feature or message.feature_lists.feature_list)
    return Example(message) if has_any else None


def canonical_example(record: bytes) -> bytes | None:
    """Returns an Example in canonical form; None for invalid bytes.

    Each name occurs once, with one list; numbers are packed; unknown fields are removed. A feature list becomes a list
    with the values of all its steps, unless there are none, or of several kinds.
    """
    message = _parsed(record)
    if message is None:
        return None
    example = Example(message)
    for name in [*message.feature_lists.feature_list]:
        values = example.steps(name)
        if values is not None and values[0] != SEVERAL and values[1] and name not in message.features.feature:
            getattr(message.features.feature[name], values[0]).value.extend(values[1])
    message.ClearField("feature_lists")
    message.DiscardUnknownFields()
    return bytes(message.SerializeToString(deterministic=True))


def nested_lists(record: bytes) -> list[str]:
    """Names the feature lists that no flat list holds: by their steps' values or kinds, or the context's names."""
    message = _parsed(record)
    lists = {} if message is None else message.feature_lists.feature_list
    return [
        name
        for name in sorted(lists)
        if name in message.features.feature
        or Example(message).steps(name) == (SEVERAL, [None])
        or any(len(getattr(step, step.WhichOneof("kind") or "bytes_list").value) != 1 for step in lists[name].feature)
    ]


def examples(columns: Mapping[str, Ragged]) -> list[bytes]:
    """Serializes rows: each column's list of int64, float32 or bytes, maybe empty."""
    names = sorted(columns, key=lambda name: [*name.encode(), AFTER])
    features = [_features(name.encode(), columns[name]) for name in names]
    return [_field(FIRST, b"".join(row)) if row else b"" for row in zip(*features, strict=True)]


def _features(name: bytes, column: Ragged) -> Iterator[bytes]:
    named, (values, splits), kind, packed = _field(FIRST, name), column, BYTES, b""
    if isinstance(values, np.ndarray):
        kind = NUMBERS[values.dtype.name]
        if kind == FLOATS:
            packed, splits = values.astype("<f4", copy=False).tobytes(), splits * 4
        else:
            packed, ends = varints(values)
            splits = np.concatenate([[0], ends])[splits]
    for start, end in pairwise(splits.tolist()):
        if kind == BYTES:
            content = b"".join([_field(FIRST, value) for value in values[start:end]])
        else:
            content = _field(FIRST, packed[start:end]) if end > start else b""
        yield _field(FIRST, named + _field(SECOND, _field(kind, content)))


def _field(tag: bytes, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return tag + bytes((size,)) + content
    length = bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return tag + length + content


def varints(numbers: npt.NDArray[np.int64]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Returns int64 numbers as varints, and each one's end, int64 [numbers]."""
    left = numbers.view(np.uint64)
    most = int(left.max(initial=0))
    if most < 1 << 28:  # a word of four bytes holds each
        numbers = left.astype(np.uint32)
        words, lengths = numbers & 127, np.ones(len(numbers), np.uint8)
        for width in (1, 2, 3):
            longer = numbers >= 1 << 7 * width
            if not longer.any():
                break
            lengths += longer
            words |= (numbers >> 7 * width & 127) << 8 * width
            words |= longer.astype(np.uint32) << 8 * width - 1
        kept = _KEPT[lengths].view(np.bool_)
        return words.astype("<u4").view(np.uint8)[kept].tobytes(), np.cumsum(lengths, dtype=np.int64)
    widest = -(-most.bit_length() // 7)
    sizes = np.ones(len(left), np.int64)
    for width in range(1, widest):
        sizes += left >= np.uint64(1 << 7 * width)
    spread = np.stack([(left >> np.uint64(7 * width)).astype(np.uint8) | 128 for width in range(widest)], axis=1)
    spread[np.arange(len(left)), sizes - 1] &= 127
    return spread[np.arange(widest) < sizes[:, np.newaxis]].tobytes(), np.cumsum(sizes)
