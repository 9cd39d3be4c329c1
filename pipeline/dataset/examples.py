"""`tf.train.Example` and `tf.train.SequenceExample` without TensorFlow, by the protobuf parser.

A SequenceExample's `context` has the same field number as an Example's `features`, so one message reads both.

>>> parse_example(b"no example") is None
True
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

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


Values = tuple[str, Sequence[Any]]
"""A feature's kind, `bytes_list`, `float_list`, `int64_list` or `SEVERAL`, and its values."""


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
        """Returns a feature's values, for a feature list those of all steps; None if missing or without a list.

        The steps of a feature list may hold values of several kinds.
        """
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
    """Parses a record; None if it is invalid or lacks features.

    As usual in protobuf, ignores unknown fields, and uses the last one of duplicate features.
    """
    message = _parsed(record)
    has_any = message is not None and (message.features.feature or message.feature_lists.feature_list)
    return Example(message) if has_any else None


def canonical_example(record: bytes) -> bytes | None:
    """Returns an Example in canonical form; None for invalid bytes.

    Each name occurs once, with one list; numbers are packed; unknown fields are removed. A feature list of a
    SequenceExample becomes a list with the values of all its steps, unless there are none, or of several kinds.
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
    """Names the feature lists that no flat list holds.

    A step has several values or none, steps differ in their kind, or a feature of the context has the same name.
    """
    message = _parsed(record)
    lists = {} if message is None else message.feature_lists.feature_list
    return [
        name
        for name in sorted(lists)
        if name in message.features.feature
        or Example(message).steps(name) == (SEVERAL, [None])
        or any(len(getattr(step, step.WhichOneof("kind") or "bytes_list").value) != 1 for step in lists[name].feature)
    ]
