"""The user's tf.Transform function, which extends or replaces the features' outputs.

    def preprocessing_fn(inputs, outputs):
        outputs["log_price"] = tf.math.log1p(inputs["price"])
        return outputs

`inputs` are the raw columns by feature, `outputs` the built-in function's results; the returned tensors are stored.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio import tensor_adapter

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.texts.encode import RowEncoder, graph_column
from recordmill.pipeline.dataset.paths import is_name
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.user_code import UserCode, blame, load
from recordmill.pipeline.versions.stores.base import Store
from recordmill.transforms.contract.stored import KEY

STORED = ("string", "int64", "float32")
BATCH = 4096  # rows in one call of the analysis graph
EMPTY = {pa.binary(): b"", pa.float32(): 0.0, pa.int64(): 0}


class PreprocessingError(UserError):
    """The user's function returned something unstorable; the message is one clear line."""


class OwnPreprocessing:
    """The function by name, with its modules: pickled that way, imported on the first call."""

    def __init__(self, reference: str, label: str | None, code: UserCode | None, errors: Store) -> None:
        """Takes the workspace for a worker's errors (`context.reports`)."""
        self._reference, self._label, self._code, self._errors = reference, label, code, errors

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the tensors to store. Raises: UserCodeError; PreprocessingError: some are invalid or missing."""
        with leaving_error(self._errors):  # tf.Transform calls it in workers that ran none of our steps
            if self._code is not None:
                self._code.install()
            function = load(self._reference)
            try:
                outcome = function(dict(inputs), dict(outputs))
            except UserError:
                raise
            except Exception as error:
                raise blame(error, self._reference) from None
            if not isinstance(outcome, dict) or not all(isinstance(name, str) for name in outcome):
                got = type(outcome).__name__
                raise PreprocessingError(f"{self._reference} should return a dict of tensors by name, got {got}")
            if self._label is not None and self._label not in outcome:
                raise PreprocessingError(f"{self._reference} returned no '{self._label}', the label")
            if not outcome:
                raise PreprocessingError(f"{self._reference} returned nothing to store")
            for name, value in outcome.items():
                if wrong := _why_not_stored(name, value):
                    raise PreprocessingError(f"{self._reference}: '{name}' {wrong}")
            return outcome


def _why_not_stored(name: str, value: Any) -> str | None:
    """Describes why a value cannot be stored; only reads attributes, to load without TensorFlow."""
    if name == KEY:
        return "is the name of every record's own key: rename it"
    if not is_name(name):
        return "is not a valid name: a letter, then letters, digits and underscores"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None or hasattr(value, "dense_shape"):
        return f"is a {type(value).__name__}: return a tensor, or a ragged one"
    if dtype.name not in STORED:
        return f"is {dtype.name}: cast it to float32, int64 or string"
    if hasattr(value, "row_splits"):
        return None if value.ragged_rank == 1 and shape.rank == 2 else "has lists in lists: one list a row is stored"
    if not shape.rank or not shape[1:].is_fully_defined():
        return f"has the shape {shape}: the first axis is the rows, all others need known sides, or make it ragged"
    return None


def schema(planned: PlannedBuild) -> pa.Schema:
    """Returns the Arrow schema of the analysis' input; tf.Transform wants lists."""
    columns = {name: planned.graph_type(name) for name in planned.inputs()}
    return pa.schema([(name, kind if pa.types.is_list(kind) else pa.list_(kind)) for name, kind in columns.items()])


def tensor_config(planned: PlannedBuild) -> tensor_adapter.TensorAdapterConfig:
    """Configures the columns' tensors: one scalar per row, or ragged lists."""
    form = schema_pb2.TensorRepresentation
    representations = {
        name: form(ragged_tensor={"feature_path": {"step": [name]}, "row_partition_dtype": form.INT64})
        if pa.types.is_list(planned.graph_type(name))
        else form(dense_tensor={"column_name": name, "shape": {}})
        for name in planned.inputs()
    }
    return tensor_adapter.TensorAdapterConfig(schema(planned), representations)


def analysis_batches(planned: PlannedBuild, analyzed: Collection[str], rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields batches of keyed rows of the train split; fills only the `analyzed` columns."""
    looked = {name: planned.features[name] for name in analyzed}
    form, encoder = schema(planned), RowEncoder(looked, planned.learned, planned.schema.named)
    for start in range(0, rows.num_rows, BATCH):
        batch = encoder.good(rows.slice(start, BATCH))
        columns = list[pa.Array]()
        for name in form.names:
            if name in analyzed:
                values = graph_column(batch, name).combine_chunks()
            else:
                kind = planned.graph_type(name)
                values = pa.repeat(pa.scalar([] if pa.types.is_list(kind) else EMPTY[kind], kind), batch.num_rows)
            if not pa.types.is_list(values.type):
                values = pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)
            columns.append(values)
        yield pa.RecordBatch.from_arrays(columns, schema=form)
