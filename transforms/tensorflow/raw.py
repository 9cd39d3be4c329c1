"""Raw values: stored as they are; of lists, padded when they are read."""

from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.kinds.raw import RawDescription, RawOptions
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared
from recordmill.transforms.tensorflow.lists import cut, padded


def prepare(options: RawOptions, column: Any, context: Context) -> Prepared:
    """Stores the column: one value a row, or with `many` a list."""
    kept = cut(options.max_length, column) if options.many else column
    return Prepared(lambda _: {"": tf.identity(kept)})


def features(description: RawDescription, stored: Parts) -> Parts:
    """The values as they are, shape [rows]; lists are padded with 0 or `""` (`transforms.tensorflow.lists.padded`)."""
    return padded(description, stored[""]) if description.length is not None else stored
