"""Raw values: stored as they are; lists are padded when they are read."""

from typing import Any

import tensorflow as tf

from recordmill.transforms.contract.kinds.raw import RawDescription, RawOptions
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared
from recordmill.transforms.tensorflow.lists import cut, padded


def prepare(options: RawOptions, column: Any, context: Context) -> Prepared:
    """Stores the column: a value a row, or with `many` a list."""
    kept = cut(options.max_length, column) if options.many else column
    return Prepared(lambda _: {"": tf.identity(kept)})


def features(description: RawDescription, stored: Parts) -> Parts:
    """Gives the values as they are, shape [rows]; pads lists with 0 or `""` (`lists.padded`)."""
    return padded(description, stored[""]) if description.length is not None else stored
