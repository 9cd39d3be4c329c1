"""The transform graph in a process that runs it: its inputs as tensors, its archive, and the code that it needs.

The graph is one file of the workspace, unpacked once by each process.
"""

import io
import os
import tarfile
import tempfile
import threading
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.versions.stores.base import Store
from recordmill.transforms.texts.tokenizers_graph import text_ops

TENSOR_TYPES = {pa.binary(): tf.string, pa.float32(): tf.float32, pa.int64(): tf.int64}
GRAPH_FOLDERS = ("transform_fn", "transformed_metadata")
_unpacking = threading.Lock()  # of two threads' folders the cache would keep one, and the other would be removed


def input_specs(context: PlannedBuild) -> dict[str, Any]:
    """Returns the types of the graph's inputs by feature: tensors of shape [rows], or ragged ones [rows, None]."""
    specs = {}
    for name in context.inputs():
        kind = context.graph_type(name)
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


def pack_graph(workspace: Store, folder: str) -> str:
    """Writes the graph of a local folder as one archive; returns its name."""
    sink, name = io.BytesIO(), f"{attempt_name('analysis/export')}.tar"
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for entry in GRAPH_FOLDERS:
            archive.add(os.path.join(folder, entry), entry)
    workspace.write(name, sink.getvalue())
    return name


def unpack_graph(workspace: Store, name: str) -> str:
    """Unpacks the archive into a local folder that stays until the process ends."""
    with _unpacking:
        return _unpack(workspace, name).name


@lru_cache(maxsize=4)
def _unpack(workspace: Store, name: str) -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="recordmill-graph-", ignore_cleanup_errors=True)
    with workspace.open(name) as file, tarfile.open(fileobj=file) as archive:
        # Set as an attribute: the argument `filter` is unknown to Python 3.11.2, which Debian 12 has.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder.name)  # noqa: S202 - written by this build's own driver
    return folder


def install_user_code(planned: PlannedBuild) -> None:
    """Loads what this process needs to run the graph: the user's modules, and tensorflow-text's operations."""
    if planned.user_code is not None:
        planned.user_code.install()
    if any(text.needs_tensorflow_text for text in planned.texts().values()):
        text_ops()
