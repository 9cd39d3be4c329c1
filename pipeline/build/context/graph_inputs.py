"""The inputs of the transform graph: the raw columns as TensorFlow sees them."""

from typing import Any

import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild

TENSOR_TYPES = {pa.binary(): tf.string, pa.float32(): tf.float32, pa.int64(): tf.int64}


def input_specs(context: PlannedBuild) -> dict[str, Any]:
    """Gives the types of the graph's inputs by feature: tensors of shape [rows], or ragged ones [rows, None]."""
    specs = {}
    for name in context.schema.features:
        kind = context.schema.final_type(name)
        many = pa.types.is_list(kind)
        value = TENSOR_TYPES[kind.value_type if many else kind]
        specs[name] = tf.RaggedTensorSpec([None, None], value, 1, tf.int64) if many else tf.TensorSpec([None], value)
    return specs
