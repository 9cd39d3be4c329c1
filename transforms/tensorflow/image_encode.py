"""Encodes an image as it is stored, in the graph: JPEG, PNG or its pixels' bytes.

An image that is stored as JPEG is encoded in two steps, so that workers can take it between them and encode it with
restart markers (`pipeline.build.images.transcode`): `unencoded` gives it as Netpbm, `as_jpeg` makes the JPEG. Both
encoders give files of the same pixels.
"""

import tensorflow as tf

from recordmill.transforms.contract.kinds.image import ImageOptions

SIDE = 5  # digits of a side in a Netpbm's header
HEADER = len("P6 00000 00000 255 ")


def unencoded(pixels: tf.Tensor, was_jpeg: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Encodes an image, uint8 [height, width, channels], as `store` says, JPEGs as Netpbm: a string scalar.

    Args:
        pixels: of static shape for `raw`.
        was_jpeg: whether the source is JPEG, for `auto`; bool scalar.
        options: an image's.
    """
    ways = {
        "auto": lambda: tf.cond(was_jpeg, lambda: _to_netpbm(pixels, options), lambda: _to_png(pixels)),
        "jpeg": lambda: _to_netpbm(pixels, options),
        "png": lambda: _to_png(pixels),
        "raw": lambda: _to_raw(pixels),
    }
    return ways[options.store]()


def as_jpeg(images: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Encodes those of `unencoded` images, strings of shape [rows], that are Netpbm; others stay as they are."""

    def encode(image: tf.Tensor) -> tf.Tensor:
        is_netpbm = tf.strings.substr(image, 0, 3) == _format(options)
        return tf.cond(is_netpbm, lambda: _to_jpeg(_of_netpbm(image, options), options), lambda: image)

    return tf.map_fn(encode, images, fn_output_signature=tf.TensorSpec([], tf.string), parallel_iterations=1)


def _format(options: ImageOptions) -> bytes:
    return b"P6 " if options.channels == 3 else b"P5 "


def _to_netpbm(pixels: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Returns a header of constant length and the pixels' bytes (netpbm's PPM and PGM, of 8 bits)."""
    height, width = (tf.strings.as_string(tf.shape(pixels)[axis], width=SIDE, fill="0") for axis in (0, 1))
    return tf.strings.join([_format(options), width, " ", height, " 255 ", _to_raw(pixels)])


def _of_netpbm(image: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    width, height = (tf.strings.to_number(tf.strings.substr(image, at, SIDE), tf.int32) for at in (3, 4 + SIDE))
    pixels = tf.io.decode_raw(tf.strings.substr(image, HEADER, tf.strings.length(image)), tf.uint8)
    return tf.reshape(pixels, tf.stack([height, width, options.channels]))


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
    """Returns the pixels' bytes: the last field of a serialized uint8 tensor (`TensorProto.tensor_content`)."""
    length = pixels.shape.num_elements() or tf.size(pixels)
    return tf.strings.substr(tf.io.serialize_tensor(pixels), -length, length)
