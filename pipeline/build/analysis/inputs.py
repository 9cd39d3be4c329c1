"""The input of the user's own analyzers, as tf.Transform takes it: rows of the train split.

Columns that no analyzer reads are empty.
"""

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio import tensor_adapter

from recordmill.pipeline.build.context.build_context import PlannedBuild

BATCH = 4096  # rows in one call of the analysis graph
EMPTY = {pa.binary(): b"", pa.float32(): 0.0, pa.int64(): 0}


def schema(planned: PlannedBuild) -> pa.Schema:
    """Returns the Arrow schema of the analysis' input: lists, as tf.Transform wants them."""
    columns = {name: planned.schema.final_type(name) for name in planned.schema.features}
    return pa.schema([(name, kind if pa.types.is_list(kind) else pa.list_(kind)) for name, kind in columns.items()])


def tensor_config(planned: PlannedBuild) -> tensor_adapter.TensorAdapterConfig:
    """Configures the tensors of the columns: scalars a row, and ragged lists."""
    representations = {
        name: (_ragged if pa.types.is_list(planned.schema.final_type(name)) else _dense)(name)
        for name in planned.schema.features
    }
    return tensor_adapter.TensorAdapterConfig(schema(planned), representations)


def _ragged(name: str) -> schema_pb2.TensorRepresentation:
    representation = schema_pb2.TensorRepresentation()
    representation.ragged_tensor.feature_path.step.append(name)
    representation.ragged_tensor.row_partition_dtype = schema_pb2.TensorRepresentation.INT64
    return representation


def _dense(name: str) -> schema_pb2.TensorRepresentation:
    representation = schema_pb2.TensorRepresentation()
    representation.dense_tensor.column_name = name
    representation.dense_tensor.shape.SetInParent()
    return representation


def analysis_batches(planned: PlannedBuild, analyzed: Collection[str], rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields batches of keyed rows of the train split, with the columns `analyzed` alone filled."""
    form = schema(planned)
    for start in range(0, rows.num_rows, BATCH):
        batch = rows.slice(start, BATCH)
        columns = [
            _lists(batch[name].combine_chunks() if name in analyzed else _empty(planned, name, batch.num_rows))
            for name in form.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=form)


def _empty(planned: PlannedBuild, name: str, rows: int) -> pa.Array:
    kind = planned.schema.final_type(name)
    return pa.repeat(pa.scalar([] if pa.types.is_list(kind) else EMPTY[kind], kind), rows)


def _lists(values: pa.Array) -> pa.Array:
    if pa.types.is_list(values.type):
        return values
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)
