"""Sends batches through the transform graph; rows whose image it cannot decode are rejected, and no others."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.graph_archive import unpack_graph
from recordmill.pipeline.build.context.graph_inputs import input_specs
from recordmill.pipeline.build.context.rejects import reject_row
from recordmill.pipeline.build.images.encode_jpeg import as_jpeg
from recordmill.pipeline.build.images.memory_gate import retry_alone
from recordmill.pipeline.build.images.read import UNDECODABLE
from recordmill.pipeline.build.worker.batch import Batch
from recordmill.pipeline.sources.faults import Fault, Reject
from recordmill.transforms.contract.image_metadata import without_metadata
from recordmill.transforms.contract.stored import UNENCODED, part_name
from recordmill.transforms.tensorflow.transform_graph import transform_graph

Stored = Mapping[str, Any]
"""Stored tensors by feature."""
MESSAGE = "the header is good, the pixels cannot be decoded: the file is cut off or damaged"


class StoredGraph:
    """The transform graph: raw columns to stored tensors; may be called from several threads."""

    def __init__(self, context: BuildContext) -> None:
        self._specs = input_specs(context)
        self._images = context.images()
        graph = transform_graph(unpack_graph(context.workspace, context.export))

        def unencoded(raw: Stored) -> Stored:
            stored = graph(raw)
            return {name: stored[name] for name in stored if part_name(name, UNENCODED) not in stored}

        self._graph = tf.function(unencoded, input_signature=[self._specs], autograph=False)
        self._graph.get_concrete_function()  # traced here, not in the threads

    def __call__(self, batch: Batch) -> Stored:
        """Returns the stored tensors by feature.

        Raises:
            tf.errors.InvalidArgumentError: an image cannot be decoded.
        """
        stored = dict(self._graph({name: batch.tensor(name) for name in self._specs}))
        for name, options in self._images.items():
            if (unencoded := stored.pop(part_name(name, UNENCODED), None)) is not None:
                stored[name] = _each(partial(as_jpeg, options=options), unencoded)
            elif options.strips and name in stored:
                stored[name] = _each(without_metadata, stored[name])
        return stored


def _each(change: Callable[[bytes], bytes], images: Any) -> Any:
    """Changes stored images, strings of shape [rows] or ragged [rows, None]."""
    if isinstance(images, tf.RaggedTensor):
        return images.with_flat_values(_each(change, images.flat_values))
    return tf.constant([change(data) for data in images.numpy().tolist()], tf.string, images.shape)


class BatchTransformer:
    """Transforms batches with a graph that may fail; may be called from several threads."""

    def __init__(
        self,
        graph: Callable[[Batch], Stored],
        image_columns: Mapping[str, str],
        is_decodable: Callable[[str, bytes], bool],
    ) -> None:
        """Takes what it needs of a build.

        Args:
            graph: gives the stored tensors; raises `tf.errors.InvalidArgumentError` where an image cannot be decoded.
            image_columns: the column of each image feature.
            is_decodable: whether the graph can decode an image, by its feature and its bytes.
        """
        self._graph, self._image_columns, self._is_decodable = graph, image_columns, is_decodable

    def __call__(self, batch: Batch) -> tuple[Batch, Stored]:
        """Returns the rows that could be transformed, with the rejects of the others, and their stored tensors.

        Raises:
            tf.errors.InvalidArgumentError: the graph fails for another reason than an image.
            OutOfMemoryError: memory is short, even alone.
        """
        try:
            return batch, self._stored(batch)
        except UNDECODABLE:
            if not self._image_columns:
                raise
        batch = self._drop_undecodable(batch)
        return batch, self._stored(batch, UNDECODABLE)

    def _stored(self, batch: Batch, doubtful: tuple[type[Exception], ...] = ()) -> Stored:
        purpose = f"send {batch.rows.num_rows} rows through the transform graph"
        return retry_alone(lambda: self._graph(batch), purpose, doubtful, batch.needs)

    def _drop_undecodable(self, batch: Batch) -> Batch:
        """Tries each row by itself, and one that fails once more with nothing beside it: only bad ones are dropped."""
        good, rejects = np.ones(batch.rows.num_rows, bool), list[Reject]()
        for row in range(batch.rows.num_rows):
            try:
                self._stored(batch.keep(np.arange(len(good)) == row), UNDECODABLE)
            except UNDECODABLE:
                column = self._undecodable_column(batch, row)
                if column is None:  # an error of a function of the user's
                    raise
                good[row] = False
                rejects.append(reject_row(batch.rows, row, Fault("undecodable_image", MESSAGE, column)))
        return replace(batch.keep(good), rejects=batch.rejects + rejects)

    def _undecodable_column(self, batch: Batch, row: int) -> str | None:
        """Returns the column whose image of this row cannot be decoded; None where all can."""
        for name, column in self._image_columns.items():
            images = batch.images[name][row]
            for data in images if isinstance(images, list) else [images]:
                if not self._is_decodable(name, data):
                    return column
        return None
