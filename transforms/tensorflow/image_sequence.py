"""The graph of image sequences, such as a video's frames or views of an object: each image as in `tensorflow.image`.

A row may have no images. Read, a batch's rows are as long as its longest, or `max_length`, with zeros after their end.
"""

from dataclasses import replace

import tensorflow as tf

from recordmill.transforms.contract.kinds.image import ImageSequenceDescription, ImageSequenceOptions
from recordmill.transforms.tensorflow import image
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from recordmill.transforms.tensorflow.lists import cut, padded


def prepare(options: ImageSequenceOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores lists of images, encoded strings, ragged [rows, None], as `image.stored_image` does each.

    Images beyond `max_length` are not decoded. A missing list is an empty one.
    """
    kept = cut(options.max_length, column)
    images = image.prepare(replace(options, optional=False), kept.flat_values, context)

    def store(statistics: Statistics) -> Parts:
        return {"": kept.with_flat_values(images.store(statistics)[""])}

    return Prepared(store)


def features(description: ImageSequenceDescription, stored: Parts) -> Parts:
    """Decodes and normalizes each image, then pads with zeros.

    Args:
        description: the feature's.
        stored: the part "", strings, ragged [rows, None].

    Returns:
        uint8 as they are, or float32, shape [rows, images, height, width, channels], and the part `length`, as
        in `lists.padded`.

    Raises:
        tf.errors.InvalidArgumentError: the bytes are not what was stored.
    """
    encoded = stored[""]
    pixels = image.normalized_images(description, encoded.flat_values)[""]
    return padded(description, encoded.with_flat_values(pixels))
