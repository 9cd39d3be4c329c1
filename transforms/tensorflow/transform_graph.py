"""tf.Transform's exported graph: raw columns to stored tensors.

`tft.TFTransformOutput(export).transform_features_layer()` gives the same graph inside a Keras layer. Saving that layer
in a SavedModel takes twice as long as saving the graph.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from threading import Lock

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from recordmill.transforms.tensorflow.kind import Stored


class TransformGraph(tf.Module):
    """The graph, loaded; it may be part of a SavedModel."""

    def __init__(self, export: str) -> None:
        """Loads tf.Transform's export from the folder that holds `transform_fn`."""
        super().__init__()
        self._loader = SavedModelLoader(os.path.join(export, tft.TFTransformOutput.TRANSFORM_FN_DIR))
        self._tables = vars(self._loader)  # a SavedModel holds only resources that it finds in attributes

    def __call__(self, raw: Mapping[str, Stored]) -> dict[str, Stored]:
        """Returns the stored tensors that follow from these columns; those that need another column are left out."""
        stored: dict[str, Stored] = self._loader.apply_transform_model(raw)
        return stored


_LOADING = Lock()
"""Held while a graph is loaded: `lru_cache` lets threads that ask at once each load one."""


def transform_graph(export: str) -> TransformGraph:
    """Loads the graph once in a process that builds shards and then saves the serving model."""
    with _LOADING:
        return _loaded(export)


@lru_cache(maxsize=1)
def _loaded(export: str) -> TransformGraph:
    return TransformGraph(export)
