"""Encodes an image as it is stored, in the graph: JPEG, PNG or its pixels' bytes."""

import tensorflow as tf

from recordmill.transforms.contract.kinds.image import ImageOptions


def encode(pixels: tf.Tensor, is_jpeg: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Encodes an image, uint8 [height, width, channels], as `store` says: a string scalar.

    Args:
        pixels: of static shape for `raw`.
        is_jpeg: whether the source is JPEG, for `auto`; bool scalar.
        options: an image's.
    """
    ways = {
        "auto": lambda: tf.cond(is_jpeg, lambda: _to_jpeg(pixels, options), lambda: _to_png(pixels)),
        "jpeg": lambda: _to_jpeg(pixels, options),
        "png": lambda: _to_png(pixels),
        "raw": lambda: _to_raw(pixels),
    }
    return ways[options.store]()


def _to_jpeg(pixels: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    return tf.io.encode_jpeg(
        pixels,
        format="rgb" if options.channels == 3 else "grayscale",
        quality=options.quality,
        progressive=False,
        optimize_size=False,
        chroma_downsampling=options.chroma == "4:2:0",
        density_unit="in",
        x_density=300,
        y_density=300,
        xmp_metadata="",
    )


def _to_png(pixels: tf.Tensor) -> tf.Tensor:
    return tf.io.encode_png(pixels, compression=6)


def _to_raw(pixels: tf.Tensor) -> tf.Tensor:
    """Gives the pixels' bytes: the last field of a serialized uint8 tensor (`TensorProto.tensor_content`)."""
    length = pixels.shape.num_elements()
    return tf.strings.substr(tf.io.serialize_tensor(pixels), -length, length)
