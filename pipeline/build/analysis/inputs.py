"""The analysis' input, as tf.Transform takes it, and its export, kept in the build's folder.

What enters the analysis: rows of the train split; of the other splits the label alone, where its classes are those of
the data. Columns that no analyzer reads are empty, images are three columns of sums.
"""

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import metadata_io
from tfx_bsl.tfxio import tensor_adapter

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.images.read import PixelMeter, image_reader
from recordmill.pipeline.dataset.atomic_files import attempt_name, sync_tree, write_report
from recordmill.transforms.tensorflow.preprocessing import PIXEL_COLUMNS

BATCH = 4096  # rows in one call of the analysis graph
MEASURED_BATCH = 128
EMPTY = {pa.binary(): b"", pa.float32(): 0.0, pa.int64(): 0}


def schema(context: PlannedBuild) -> pa.Schema:
    """The Arrow schema of the analysis' input: lists, as tf.Transform wants them."""
    columns = {name: context.schema.final_type(name) for name in context.schema.features} | {"train": pa.int64()}
    for name in context.measured_images():
        columns |= {f"{name}/{column}": pa.int64() for column in PIXEL_COLUMNS}
    lists = {name: kind if pa.types.is_list(kind) else pa.list_(kind) for name, kind in columns.items()}
    return pa.schema(list(lists.items()))


def tensor_config(context: PlannedBuild) -> tensor_adapter.TensorAdapterConfig:
    """Configures the tensors of the columns: scalars a row, ragged lists, and a vector of channels for pixel sums."""
    channels = {f"{name}/{c}": o.channels for name, o in context.measured_images().items() for c in ("sums", "squares")}
    representations = {}
    for name in schema(context).names:
        many = name in context.schema.features and pa.types.is_list(context.schema.final_type(name))
        representations[name] = _ragged(name) if many else _dense(name, channels.get(name))
    return tensor_adapter.TensorAdapterConfig(schema(context), representations)


def _ragged(name: str) -> schema_pb2.TensorRepresentation:
    representation = schema_pb2.TensorRepresentation()
    representation.ragged_tensor.feature_path.step.append(name)
    representation.ragged_tensor.row_partition_dtype = schema_pb2.TensorRepresentation.INT64
    return representation


def _dense(name: str, width: int | None) -> schema_pb2.TensorRepresentation:
    representation = schema_pb2.TensorRepresentation()
    representation.dense_tensor.column_name = name
    representation.dense_tensor.shape.SetInParent()
    if width is not None:
        representation.dense_tensor.shape.dim.add().size = width
    return representation


class AnalysisRows:
    """Makes the analysis' batches of keyed rows (`pipeline.build.worker.keyed_rows`)."""

    def __init__(self, context: PlannedBuild) -> None:
        self._context = context
        self._schema = schema(context)
        self._meters = {
            name: PixelMeter(image_reader(context), options, context.threads)
            for name, options in context.measured_images().items()
        }

    def pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Cuts rows into pieces of one batch; small ones where images are measured, which takes time."""
        size = MEASURED_BATCH if self._meters else BATCH
        return (rows.slice(start, size) for start in range(0, rows.num_rows, size))

    def batches(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Gives the batch of a piece; none where the analysis needs nothing of these rows."""
        if not self._context.sees_rows():
            return
        train = pc.equal(rows["@split"], self._context.layout.splits.index("train"))
        if not self._context.open_label():
            rows, train = rows.filter(train), train.filter(train)
        if rows.num_rows:
            columns = self._columns(rows, train)
            yield pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _columns(self, rows: pa.Table, train: pa.ChunkedArray) -> dict[str, pa.Array]:
        columns = {name: self._column(name, rows, train) for name in self._context.schema.features}
        columns["train"] = _lists(train.cast(pa.int64()).combine_chunks())
        for name, meter in self._meters.items():
            limit = int(self._context.sample_share * (1 << 64))
            sampled = np.array([hash_ < limit for hash_ in rows["@sample"].to_pylist()], bool) & train.to_numpy()
            pairs = zip(rows[name].to_pylist(), sampled, strict=True)
            measured = meter.measure(rows["@source"].to_pylist(), [row if chosen else None for row, chosen in pairs])
            for column, values in zip(PIXEL_COLUMNS, measured, strict=True):
                columns[f"{name}/{column}"] = _lists(pa.array(values.ravel()), values.size // len(values))
        return columns

    def _column(self, name: str, rows: pa.Table, train: pa.ChunkedArray) -> pa.Array:
        """A feature's values as lists: none in a row that the feature must not learn from."""
        kind = self._context.schema.final_type(name)
        empty = pa.scalar([] if pa.types.is_list(kind) else EMPTY[kind], kind)
        if name not in self._context.analyzed:
            column = pa.repeat(empty, rows.num_rows)
        else:
            chosen = rows[name] if name == self._context.schema.label else pc.if_else(train, rows[name], empty)
            column = chosen.combine_chunks()
        return column if pa.types.is_list(kind) else _lists(column)


def _lists(values: pa.Array, width: int = 1) -> pa.Array:
    """A flat column as lists of `width` values a row."""
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, width, dtype=np.int32)), values)


def keep_export(saved_model: str, metadata: object, context: PlannedBuild, analyses: Sequence[str]) -> str:
    """Copies the analysis' export into a folder of this attempt's own under the build's, and reports it.

    `tft_beam.WriteTransformFn` would fail when a runner repeats it. `analyses` names the reports of the analyzers that
    the graph asked for. Gives the folder, which `tft.TFTransformOutput` opens.
    """
    name = attempt_name("export")
    folder = os.path.join(context.path("analysis"), name)
    shutil.copytree(saved_model, os.path.join(folder, "transform_fn"))
    _forget_folder(Path(folder, "transform_fn"), context.folder)
    metadata_io.write_metadata(metadata, os.path.join(folder, "transformed_metadata"))
    sync_tree(folder)  # another attempt may go on with it
    write_report(context.path("reports"), "analysis", {"export": name, "analyses": list(analyses)})
    return folder


def _forget_folder(saved_model: Path, folder: str) -> None:
    """Takes the build's folder out of a SavedModel: TensorFlow names a table by its file's absolute path."""
    path = saved_model / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in (meta.graph_def for meta in model.meta_graphs):
        for node in itertools.chain(graph.node, *(function.node_def for function in graph.library.function)):
            if "shared_name" in node.attr:
                node.attr["shared_name"].s = node.attr["shared_name"].s.replace(folder.encode() + b"/", b"")
    path.write_bytes(model.SerializeToString(deterministic=True))
    (saved_model / "fingerprint.pb").unlink(missing_ok=True)  # optional, and that of the earlier bytes
