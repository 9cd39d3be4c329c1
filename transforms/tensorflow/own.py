"""What the user's own function stores: read as it is, rows of different lengths padded with zeros or empty strings."""

from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.raw import OwnDescription
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared


def prepare(options: FeatureOptions, column: Any, context: Context) -> Prepared:
    """Is never called: the user's function stores it."""
    raise NotImplementedError


def features(description: OwnDescription, stored: Parts) -> Parts:
    """The values: shape [rows, *shape], or [rows, longest]."""
    values = stored[""]
    return {"": values.to_tensor() if isinstance(values, tf.RaggedTensor) else values}
