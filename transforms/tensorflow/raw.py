"""Raw values: stored as they are; of lists, padded when they are read."""

from typing import Any

import tensorflow as tf

from recordmill.transforms.tensorflow.kind import Context, Options, Parts, Prepared
from recordmill.transforms.tensorflow.lists import cut, padded


def prepare(options: Options, column: Any, context: Context) -> Prepared:
    """Stores the column: one value a row, or with `many` a list."""
    kept = cut(options, column) if options["many"] else column
    return Prepared(lambda _: {"": tf.identity(kept)})


def finish(description: Options, stored: Parts) -> Parts:
    """The values as they are, shape [rows]; lists are padded with 0 or `""` (`transforms.tensorflow.lists.padded`)."""
    return padded(description, stored[""]) if "length" in description else stored
