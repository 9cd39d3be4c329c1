"""Tensors that the user's own function stores: read as they are, ragged rows padded with zeros or empty strings."""

from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.raw import OwnDescription
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared


def prepare(options: FeatureOptions, column: Any, context: Context) -> Prepared:
    """Raises: the user's function stores the feature."""
    raise NotImplementedError


def features(description: OwnDescription, stored: Parts) -> Parts:
    """Gives the values: shape [rows, *shape], or [rows, longest]."""
    values = stored[""]
    return {"": values.to_tensor() if isinstance(values, tf.RaggedTensor) else values}
