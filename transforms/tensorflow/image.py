"""Images, the kind's half in the graph: decoded, upright, brought to their size, stored; read again and normalized.

Everything is a step of whole numbers or exactly rounded: the same bytes in any batch. The steps have modules of their
own: `image_header` (before the graph), `image_decode`, `image_resize` with `geometry`, `image_encode`.

    check_header(data, max_pixels=64_000_000)
    pixels = resize(decode(tf.constant(data), options), options)

Where pictures keep their own sizes, a batch is as high and wide as its largest, zeros lie below and to the right, and
the part `shape` tells each one's sides. With `optional`, an empty string is no picture: zeros, and 1 in the part
`missing`. `store: original` keeps the part `orientation`, what EXIF says, for the reader.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import tensorflow as tf

from recordmill.pipeline.errors import DatasetError
from recordmill.transforms.contract.image_header import ImageError as ImageError
from recordmill.transforms.contract.image_header import check_header as check_header
from recordmill.transforms.contract.kinds.image import (
    ImageDescription,
    ImageOptions,
    ImageSequenceDescription,
    PixelOptions,
)
from recordmill.transforms.tensorflow.exif import orientation
from recordmill.transforms.tensorflow.geometry import placement, upright
from recordmill.transforms.tensorflow.image_decode import decode as decode
from recordmill.transforms.tensorflow.image_decode import is_jpeg, libjpeg
from recordmill.transforms.tensorflow.image_encode import encode
from recordmill.transforms.tensorflow.image_resize import resize as resize
from recordmill.transforms.tensorflow.image_sides import stored_sides
from recordmill.transforms.tensorflow.kind import DTYPES, Context, Parts, Prepared, Statistics

ReadImages = ImageDescription | ImageSequenceDescription


def prepare(options: ImageOptions, column: tf.Tensor, context: Context) -> Prepared:
    """Stores each picture, encoded strings of shape [rows], as `stored_picture` does.

    The pixels' statistics come from `pixel_sums` of a sample, so nothing is left to analyze here.
    """

    def store(_: Statistics) -> Parts:
        one = partial(stored_picture, options=options)
        stored = tf.map_fn(one, column, fn_output_signature=image_spec(options), parallel_iterations=1)
        return {**stored, "missing": tf.cast(column == "", tf.int64)} if options.optional else stored

    return Prepared(store, geometry=lambda: geometry(column))


def stored_picture(encoded: tf.Tensor, options: ImageOptions) -> dict[str, tf.Tensor]:
    """Makes of one picture, a string scalar, what is stored of it, by part: scalars as in `image_spec`.

    An empty string stays one where `optional` allows it.

    Raises:
        tf.errors.InvalidArgumentError: it cannot be decoded.
    """
    way = _original if options.store == "original" else _encoded
    if not options.optional:
        return way(encoded, options)
    nothing = {"": tf.constant(b""), "orientation": tf.constant(1, tf.int64)}
    empty = {part: nothing[part] for part in image_spec(options)}
    return tf.cond(encoded == "", lambda: empty, lambda: way(encoded, options))


def image_spec(options: ImageOptions) -> dict[str, tf.TensorSpec]:
    """Gives the specs of `stored_picture`'s parts: one image's bytes, and for `store: original` its orientation."""
    parts = replace(options, optional=False).parts()
    return {part: tf.TensorSpec(stored.shape, DTYPES[stored.dtype]) for part, stored in parts.items()}


def _encoded(encoded: tf.Tensor, options: ImageOptions) -> dict[str, tf.Tensor]:
    return {"": encode(resize(decode(encoded, options), options), is_jpeg(encoded), options)}


def _original(encoded: tf.Tensor, options: ImageOptions) -> dict[str, tf.Tensor]:
    """The bytes as they came, if they can be decoded."""
    turn = orientation(encoded)
    sides = tf.shape(decode(encoded, options, turn))
    whole = tf.strings.substr(encoded, tf.minimum(sides[0], 0), tf.strings.length(encoded))  # waits for the decoder
    return {"": whole, "orientation": tf.cast(turn, tf.int64)}


def geometry(column: tf.Tensor) -> tf.Tensor:
    """Reads where pictures, encoded strings of shape [rows], come from: int64 [rows, 3].

    Height and width in pixels of the upright source, which `placement` takes; and the EXIF orientation, 1..8, that made
    it upright. Zeros and 1 for an empty string. Nothing is decoded.
    """

    def one(encoded: tf.Tensor) -> tf.Tensor:
        turn = orientation(encoded)
        return tf.concat([upright(stored_sides(encoded), turn), [tf.cast(turn, tf.int64)]], 0)

    return tf.map_fn(one, column, fn_output_signature=tf.TensorSpec([3], tf.int64), parallel_iterations=1)


def pixel_sums(encoded: tf.Tensor, options: ImageOptions) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sums the pixels of pictures, strings of shape [rows], as they are before they are encoded.

    Returns:
        Pixels, int64 [rows]; their sum and their sum of squares by channel, int64 [rows, channels]. All exact. Zeros
        for an empty string where `optional` allows it.
    """
    channels = options.channels

    def sums(one: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        pixels = tf.cast(resize(decode(one, options), options), tf.int64)
        count = tf.reduce_prod(tf.shape(pixels, tf.int64)[:2])
        return count, tf.reduce_sum(pixels, [0, 1]), tf.reduce_sum(pixels * pixels, [0, 1])

    def measured(one: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        nothing = tf.zeros([channels], tf.int64)
        return tf.cond(one == "", lambda: (tf.constant(0, tf.int64), nothing, nothing), lambda: sums(one))

    by_channel = tf.TensorSpec([channels], tf.int64)
    signature = (tf.TensorSpec([], tf.int64), by_channel, by_channel)
    way = measured if options.optional else sums
    return tf.map_fn(way, encoded, fn_output_signature=signature, parallel_iterations=1)


def features(description: ImageDescription, stored: Parts) -> Parts:
    """Decodes stored pictures, strings of shape [rows]; see `pictures`. The part `missing` stays as it is."""
    ready = pictures(description, stored[""], stored.get("orientation"))
    return {**ready, "missing": stored["missing"]} if "missing" in stored else ready


def pictures(description: ReadImages, stored: tf.Tensor, turns: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
    """Decodes stored pictures, strings of shape [n], and normalizes them.

    Args:
        description: the feature's.
        stored: what `stored_picture` gave; empty for no picture.
        turns: their orientations, int64 [n], where the originals are stored.

    Returns:
        The part "": uint8 as they are, or float32 `(pixel - offset) * scale`, shape [n, height, width, channels];
        zeros for no picture. Where the pictures keep their own sizes, height and width are the largest of these (0 of
        none), with zeros below and to the right, and the part `shape`, int64 [n, 2], is each one's height and width.

    Raises:
        tf.errors.InvalidArgumentError: for bytes that are not what was stored.
    """
    turns = tf.ones(tf.shape(stored), tf.int64) if turns is None else turns
    if None in description.shape:
        return _of_any_size(description, stored, turns)
    pixels = _normalized(_of_one_size(description, stored, turns), description)
    if description.optional:
        pixels = tf.where(tf.reshape(stored != "", [-1, 1, 1, 1]), pixels, tf.zeros([], pixels.dtype))
    return {"": pixels}


def sides(description: ReadImages, stored: tf.Tensor, turns: tf.Tensor | None = None) -> tf.Tensor:
    """Height and width of stored pictures, strings of shape [n], as they are read: int64 [n, 2]; zeros of none.

    `turns` are the orientations of originals. Nothing is decoded.
    """
    if None not in description.shape:
        size = tf.constant(description.shape[:2], tf.int64)
        return tf.cast(stored != "", tf.int64)[:, tf.newaxis] * size
    turns = tf.ones(tf.shape(stored), tf.int64) if turns is None else turns

    def one(picture: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        of = stored_sides(picture[0])
        if description.encoding == "original":
            of = placement(upright(of, picture[1]), _pixel_options(description)).output
        return tf.where(picture[0] == "", tf.zeros([2], tf.int64), of)

    return tf.map_fn(one, (stored, turns), fn_output_signature=tf.TensorSpec([2], tf.int64))


def _of_one_size(description: ReadImages, stored: tf.Tensor, turns: tf.Tensor) -> tf.Tensor:
    """Decodes images of the size that the description gives: uint8 [n, height, width, channels]."""
    shape = list(description.shape)
    if description.encoding == "raw":
        # With a fixed length, what is missing reads as zeros.
        length = math.prod(side or 0 for side in shape) if description.optional else None
        return tf.reshape(tf.io.decode_raw(stored, tf.uint8, fixed_length=length), [-1, *shape])

    def pixels(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return tf.ensure_shape(_or_nothing(description, row[0], shape, lambda: _decoded(description, *row)), shape)

    return tf.map_fn(pixels, (stored, turns), fn_output_signature=tf.TensorSpec(shape, tf.uint8))


def _of_any_size(description: ReadImages, stored: tf.Tensor, turns: tf.Tensor) -> dict[str, tf.Tensor]:
    """Pads images to the largest of them; their sizes are known before they are decoded."""
    channels = description.shape[2]

    def padded(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        own = _or_nothing(description, row[0], [0, 0, channels], lambda: _decoded(description, *row))
        after = tf.concat([largest - tf.shape(own, tf.int64)[:2], [0]], 0)
        return tf.pad(_normalized(own, description), tf.stack([tf.zeros_like(after), after], 1))

    shape = sides(description, stored, turns)
    largest = tf.reduce_max(tf.concat([tf.zeros([1, 2], tf.int64), shape], 0), 0)
    signature = tf.TensorSpec([None, None, channels], description.dtype)
    batch = tf.cond(
        tf.size(stored) > 0,  # no pictures of no known size cannot be stacked
        lambda: tf.map_fn(padded, (stored, turns), fn_output_signature=signature),
        lambda: tf.zeros([0, 0, 0, channels], description.dtype),
    )
    return {"": batch, "shape": shape}


def _or_nothing(
    description: ReadImages, stored: tf.Tensor, shape: list[int | None], pixels: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """The pixels, or zeros of a shape where there is no picture."""
    if not description.optional:
        return pixels()
    return tf.cond(stored == "", lambda: tf.zeros(shape, tf.uint8), pixels)


def _decoded(description: ReadImages, stored: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """One picture as it was stored, uint8 [height, width, channels]."""
    shape, encoding = description.shape, description.encoding
    if encoding == "raw":
        return tf.reshape(tf.io.decode_raw(stored, tf.uint8), shape)
    if encoding != "original":
        return tf.ensure_shape(libjpeg(stored, shape[2]), shape)  # TensorFlow's operation takes PNG too
    options = _pixel_options(description)
    return resize(decode(stored, options, tf.cast(turn, tf.int32)), options)


def _pixel_options(description: ReadImages) -> PixelOptions:
    """Gives the way from an original to its pixels."""
    if description.options is None:
        raise DatasetError("an image is stored as `original`, but dataset.json has no `options` to read it by")
    return description.options


def _normalized(pixels: tf.Tensor, description: ReadImages) -> tf.Tensor:
    if description.dtype == "uint8":
        return pixels
    width = pixels.shape[-2] or tf.shape(pixels)[-2]
    offset, scale = (_row(numbers, width) for numbers in (description.offset, description.scale))
    return (tf.cast(pixels, tf.float32) - offset) * scale


def _row(by_channel: tuple[float, ...], width: Any) -> tf.Tensor:
    """Repeats the channels' numbers for a row of pixels: broadcasting three numbers alone takes three times as long."""
    return tf.tile(tf.constant([by_channel], tf.float32), [width, 1])
