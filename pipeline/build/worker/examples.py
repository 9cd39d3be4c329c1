"""Serializes stored tensors as `tf.train.Example`s, the same bytes in every process.

The protocol buffer's own deterministic encoder sorts the features by name; tfx_bsl's encoder does not.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.stored import KEY


def to_lists(stored: Any) -> list[list[Any]]:
    """Returns a stored tensor, of shape [rows, …] or ragged, as one list of values a row."""
    if isinstance(stored, tf.RaggedTensor):
        values, splits = stored.values.numpy().tolist(), stored.row_splits.numpy().tolist()
        return [values[start:end] for start, end in zip(splits, splits[1:], strict=False)]
    values = stored.numpy()
    return values.reshape(len(values), math.prod(values.shape[1:])).tolist()


def encode(keys: Sequence[bytes], stored: Mapping[str, Any]) -> list[bytes]:
    """Serializes rows: every stored feature, and the row's key as feature `key`; no rows give no examples."""
    columns = [(name, _FIELDS[tensor.dtype], to_lists(tensor)) for name, tensor in stored.items()]
    columns.append((KEY, "bytes_list", [[key] for key in keys]))
    return [_serialize([(name, field, rows[row]) for name, field, rows in columns]) for row in range(len(keys))]


_FIELDS = {tf.string: "bytes_list", tf.int64: "int64_list", tf.float32: "float_list"}


def _serialize(row: list[tuple[str, str, list[Any]]]) -> bytes:
    example = tf.train.Example()
    features = example.features.feature
    for name, field, values in row:
        getattr(features[name], field).value.extend(values)
    return example.SerializeToString(deterministic=True)
