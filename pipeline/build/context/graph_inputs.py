"""The inputs of the transform graph: the raw columns as TensorFlow sees them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild

TENSOR_TYPES = {pa.binary(): tf.string, pa.float32(): tf.float32, pa.int64(): tf.int64}


def input_specs(context: PlannedBuild) -> dict[str, Any]:
    """Returns the types of the graph's inputs by feature: tensors of shape [rows], or ragged ones [rows, None]."""
    specs = {}
    for name in context.schema.features:
        kind = context.schema.final_type(name)
        many = pa.types.is_list(kind)
        value = TENSOR_TYPES[kind.value_type if many else kind]
        specs[name] = tf.RaggedTensorSpec([None, None], value, 1, tf.int64) if many else tf.TensorSpec([None], value)
    return specs


def as_tensor(column: pa.ChunkedArray) -> Any:
    """Returns a feature's column of keyed rows: a tensor of shape [rows], or a ragged one [rows, None]."""
    if not pa.types.is_list(column.type):
        return tf.constant(_plain(column), TENSOR_TYPES[column.type], shape=[len(column)])
    values, lengths = pc.list_flatten(column), pc.list_value_length(column).to_numpy().astype(np.int64)
    flat = tf.constant(_plain(values), TENSOR_TYPES[values.type], shape=[len(values)])
    return tf.RaggedTensor.from_row_lengths(flat, lengths, validate=False)


def _plain(column: pa.ChunkedArray) -> Any:
    return column.to_pylist() if column.type == pa.binary() else column.to_numpy()
