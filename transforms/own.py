"""What the user's own function stores: read as it is, rows of different lengths padded with zeros or empty strings."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from transforms.kind import Context, Options, Parts, Prepared
from transforms.raw import TYPES


def prepare(options: Options, column: Any, context: Context) -> Prepared:
    """Is never called: the user's function stores it."""
    raise NotImplementedError


def stored_spec(description: Options) -> Mapping[str, Any]:
    """Values of a fixed shape, or any number of them."""
    kind, shape = TYPES[description["stored"]], description["shape"]
    if shape is None:
        return {"": tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)}
    return {"": tf.io.FixedLenFeature(shape, kind)}


def finish(description: Options, stored: Parts) -> Parts:
    """The values: shape [rows, *shape], or [rows, longest]."""
    values = stored[""]
    return {"": values.to_tensor() if isinstance(values, tf.RaggedTensor) else values}
