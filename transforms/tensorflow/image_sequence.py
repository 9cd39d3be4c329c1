"""Several pictures a row, such as a video's frames or views of one thing: each as `tensorflow.image` makes it.

A row may have none. Read, a batch's rows are as long as its longest, or `max_length`, with zeros after their end.
"""

from dataclasses import replace

import tensorflow as tf

from recordmill.transforms.contract.kinds.image import ImageSequenceDescription, ImageSequenceOptions
from recordmill.transforms.tensorflow import image
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from recordmill.transforms.tensorflow.lists import cut, padded


def prepare(options: ImageSequenceOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores lists of pictures, encoded strings, ragged [rows, None], as `image.stored_picture` does each.

    What is beyond `max_length` is not decoded. A missing list is an empty one.
    """
    kept = cut(options.max_length, column)
    one_by_one = image.prepare(replace(options, optional=False), kept.flat_values, context)

    def store(found: Statistics) -> Parts:
        return {"": kept.with_flat_values(one_by_one.store(found)[""])}

    return Prepared(store)


def features(description: ImageSequenceDescription, stored: Parts) -> Parts:
    """Decodes and normalizes each picture, then pads with zeros.

    Args:
        description: the feature's.
        stored: the part "", strings, ragged [rows, None].

    Returns:
        uint8 as they are, or float32, shape [rows, pictures, height, width, channels], and the part `length`, as
        `transforms.tensorflow.lists.padded` says.

    Raises:
        tf.errors.InvalidArgumentError: for bytes that are not what was stored.
    """
    encoded = stored[""]
    pixels = image.pictures(description, encoded.flat_values)[""]
    return padded(description, encoded.with_flat_values(pixels))
