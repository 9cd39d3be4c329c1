"""Raw values: stored as they are; of lists, padded when they are read."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from transforms.kind import Context, Options, Parts, Prepared
from transforms.lists import cut, padded, ragged_spec

TYPES = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}


def prepare(options: Options, column: Any, context: Context) -> Prepared:
    """Stores the column: one value a row, or with `many` a list."""
    kept = cut(options, column) if options["many"] else column
    return Prepared(lambda _: {"": tf.identity(kept)})


def stored_spec(description: Options) -> Mapping[str, Any]:
    """One value a row, or a list, of the stored type."""
    kind = TYPES[description["stored"]]
    return {"": ragged_spec(kind) if "length" in description else tf.io.FixedLenFeature([], kind)}


def finish(description: Options, stored: Parts) -> Parts:
    """The values as they are, shape [rows]; lists are padded with 0 or `""` (`transforms.lists.padded`)."""
    return padded(description, stored[""]) if "length" in description else stored
