"""Raw values, and tensors of the user's own function: stored as they are, padded when they are read."""

from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.raw import OwnDescription, RawDescription, RawOptions
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared
from recordmill.transforms.tensorflow.lists import cut, padded


def prepare(options: RawOptions, column: Any, context: Context) -> Prepared:
    """Stores the column: a value a row, or with `many` a list."""
    kept = cut(options.max_length, column) if options.many else column
    return Prepared(lambda _: {"": tf.identity(kept)})


def features(description: RawDescription, stored: Parts) -> Parts:
    """Returns the values as they are, shape [rows]; pads lists with 0 or `""` (`lists.padded`)."""
    return padded(description, stored[""]) if description.length is not None else stored


def prepare_own(options: FeatureOptions, column: Any, context: Context) -> Prepared:
    """Raises: the user's function stores the feature."""
    raise NotImplementedError


def own_features(description: OwnDescription, stored: Parts) -> Parts:
    """Returns the values: shape [rows, *shape]; ragged rows padded with 0 or `""`, [rows, longest]."""
    values = stored[""]
    return {"": values.to_tensor() if isinstance(values, tf.RaggedTensor) else values}
