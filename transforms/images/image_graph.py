"""The graph of images: decoded, upright, resized, stored; then decoded again and normalized.

Every step computes in integers or rounds exactly, so an image gives the same bytes in any batch.

    check_header(data, max_pixels=64_000_000)
    pixels = resize(decode(tf.constant(data), options), options)

Images of varying size are padded with zeros, below and to the right, to the largest of a batch, and the part `shape`
gives each image's sides. With `optional`, an empty string is a missing image: zeros, and 1 in the part `missing`.
`store: original` keeps the EXIF orientation as the part `orientation`. Workers encode JPEGs with restart markers
(`pipeline.build.images.transcode`), so JPEG takes two steps: `unencoded` gives Netpbm, `as_jpeg` the JPEG.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import tensorflow as tf

from recordmill.transforms.base.graph import DTYPES, Context, Parts, Prepared, Statistics, padded
from recordmill.transforms.base.stored import LAST, UNENCODED
from recordmill.transforms.images.decode_graph import decode, decode_planes, last_luma, libjpeg, resize, to_planes
from recordmill.transforms.images.image_rules import placement, upright
from recordmill.transforms.images.image_stored import AnyImages, ImageDescription, ImageSequenceDescription
from recordmill.transforms.images.properties_graph import is_jpeg, orientation, stored_sides, was_jpeg

if TYPE_CHECKING:
    from recordmill.transforms.images.image_spec import Image


def prepare(options: "Image", column: tf.Tensor, context: Context) -> Prepared:
    """Stores images, encoded strings of shape [rows], by `stored_image`; statistics come from `pixel_sums`."""

    def store(_: Statistics) -> Parts:
        stored = _graph(options)(column)
        if options.is_encoded:
            stored = {**stored, "": as_jpeg(stored[""], options), UNENCODED: stored[""]}
        return {**stored, "missing": tf.cast(column == "", tf.int64)} if options.optional else stored

    return Prepared(store, geometry=lambda: geometry(column, options.planes))


@lru_cache(maxsize=64)
def _graph(options: "Image") -> Callable[[tf.Tensor], Parts]:
    """Makes the function that stores a batch: traced once, while tf.Transform traces the preprocessing five times."""

    def store(column: tf.Tensor) -> Parts:
        store_image = partial(stored_image, options=options)
        return tf.map_fn(store_image, column, fn_output_signature=image_spec(options), parallel_iterations=1)

    return tf.function(store, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)


def stored_image(encoded: tf.Tensor, options: "Image") -> dict[str, tf.Tensor]:
    """Makes the parts of one image, a string scalar, as in `image_spec`; an optional empty string stays empty."""

    def way() -> dict[str, tf.Tensor]:
        if options.planes:
            deep = _pixels(encoded, options)
            return {"": _to_raw(deep) if options.store == "raw" else _to_png(to_planes(deep))}
        turn = orientation(encoded)
        whole = decode(encoded, options.pixel_options, turn)
        last = {LAST: last_luma(whole, turn)}
        if options.store == "original":
            return {"": _after(whole, encoded), "orientation": tf.cast(turn, tf.int64), **last}
        pixels = resize(whole, options.pixel_options)
        encode: Callable[[], tf.Tensor] = lambda: unencoded(pixels, was_jpeg(encoded), options)  # noqa: E731
        if options.store not in ("auto", "jpeg"):
            return {"": encode(), **last}
        # A JPEG that fits keeps its bytes, to avoid compressing twice.
        fits = tf.cond(is_jpeg(encoded) & (turn == 1), lambda: _fits(encoded, options), lambda: tf.constant(False))
        return {"": tf.cond(fits, lambda: _after(pixels, encoded), encode), **last}

    if not options.optional:
        return way()
    nothing = {"": tf.constant(b""), "orientation": tf.constant(1, tf.int64), LAST: tf.constant(0, tf.int64)}
    empty = {part: nothing[part] for part in image_spec(options)}
    return tf.cond(encoded == "", lambda: empty, way)


def image_spec(options: "Image") -> dict[str, tf.TensorSpec]:
    """Returns the specs of `stored_image`'s parts: bytes, an original's orientation and, unless deep, `last_luma`."""
    parts = ImageDescription.parts_of({"encoding": options.store})
    last = {} if options.planes else {LAST: tf.TensorSpec([], tf.int64)}
    return {part: tf.TensorSpec(stored.shape, DTYPES[stored.dtype]) for part, stored in parts.items()} | last


def _pixels(encoded: tf.Tensor, options: "Image") -> tf.Tensor:
    return resize(decode(encoded, options.pixel_options), options.pixel_options)


def _fits(encoded: tf.Tensor, options: "Image") -> tf.Tensor:
    shape = tf.cast(tf.io.extract_jpeg_shape(encoded), tf.int64)
    goal = placement(shape[:2], options.pixel_options, tf)
    same_size = tf.reduce_all(tf.stack([goal.box, goal.scaled, goal.output]) == shape[:2])
    return same_size & (shape[2] == options.channels)


def _after(pixels: tf.Tensor, encoded: tf.Tensor) -> tf.Tensor:
    """Returns an image's bytes after decoding it, to fail on invalid ones."""
    return tf.strings.substr(encoded, tf.minimum(tf.shape(pixels)[0], 0), tf.strings.length(encoded))


def geometry(column: tf.Tensor, planes: int = 0) -> tf.Tensor:
    """Reads source sizes of images, encoded strings of shape [rows], without decoding: int64 [rows, 3].

    Each row has the height and width of the upright source, and its EXIF orientation, 1..8; zeros and 1 for an empty
    string.
    """

    def source(encoded: tf.Tensor) -> tf.Tensor:
        turn = orientation(encoded)
        return tf.concat([upright(_sides(encoded, planes), turn, tf), [tf.cast(turn, tf.int64)]], 0)

    return tf.map_fn(source, column, fn_output_signature=tf.TensorSpec([3], tf.int64), parallel_iterations=1)


def _sides(encoded: tf.Tensor, planes: int) -> tf.Tensor:
    return stored_sides(encoded) // [planes, 1] if planes else stored_sides(encoded)


def pixel_sums(encoded: tf.Tensor, options: "Image") -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sums the pixels of images, strings of shape [rows], at their final size, before encoding; all are exact.

    Returns the number of pixels, int64 [rows]; the sum and the sum of squares by channel, int64 [rows, channels]; zeros
    for an optional empty string.
    """
    channels = options.channels

    def sums(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        pixels = tf.cast(_pixels(data, options), tf.int64)
        count = tf.reduce_prod(tf.shape(pixels, tf.int64)[:2])
        return count, tf.reduce_sum(pixels, [0, 1]), tf.reduce_sum(pixels * pixels, [0, 1])

    def sums_or_zeros(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        nothing = tf.zeros([channels], tf.int64)
        return tf.cond(data == "", lambda: (tf.constant(0, tf.int64), nothing, nothing), lambda: sums(data))

    by_channel = tf.TensorSpec([channels], tf.int64)
    signature = (tf.TensorSpec([], tf.int64), by_channel, by_channel)
    sum_each = sums_or_zeros if options.optional else sums
    return tf.map_fn(sum_each, encoded, fn_output_signature=signature, parallel_iterations=1)


def features(description: ImageDescription, stored: Parts) -> Parts:
    """Decodes stored images, strings of shape [rows], by `normalized_images`; the part `missing` is unchanged."""
    ready = normalized_images(description, stored[""], stored.get("orientation"))
    return {**ready, "missing": stored["missing"]} if "missing" in stored else ready


def sequence_features(description: ImageSequenceDescription, stored: Parts) -> Parts:
    """Decodes lists of images: uint8 or float32 [rows, images, height, width, channels], and the part `length`."""
    encoded = stored[""]
    pixels = normalized_images(description, encoded.flat_values)[""]
    return padded(description, encoded.with_flat_values(pixels[..., 0] if description.is_mask else pixels))


def normalized_images(
    description: AnyImages, stored: tf.Tensor, turns: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Decodes stored images, strings of shape [n], and normalizes them; zeros for a missing one, an empty string.

    `turns` are orientations of originals, int64 [n]. Returns the part "": uint8, or float32 `(pixel - offset) * scale`,
    shape [n, height, width, channels], in the description's channel order; and with varying sizes, padded to the
    largest, the part `shape`, int64 [n, 2]. Raises: tf.errors.InvalidArgumentError: the bytes are not what
    `stored_image` gave.
    """
    turns = tf.ones(tf.shape(stored), tf.int64) if turns is None else turns
    if None in description.shape:
        return _of_any_size(description, stored, turns)
    shape = list(description.shape)
    if description.encoding == "raw":
        dtype = tf.as_dtype(description.pixel)
        # A fixed length reads a missing image as zeros.
        length = math.prod(side or 0 for side in shape) * dtype.size if description.optional else None
        decoded = tf.reshape(tf.io.decode_raw(stored, dtype, fixed_length=length), [-1, *shape])
    else:

        def decode_one(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            return tf.ensure_shape(_or_zeros(description, row, shape), shape)

        signature = tf.TensorSpec(shape, description.pixel)
        decoded = tf.map_fn(decode_one, (stored, turns), fn_output_signature=signature)
    pixels = _normalized(decoded, description)
    if description.optional:
        pixels = tf.where(tf.reshape(stored != "", [-1, 1, 1, 1]), pixels, tf.cast(description.padding, pixels.dtype))
    return {"": pixels}


def _of_any_size(description: AnyImages, stored: tf.Tensor, turns: tf.Tensor) -> dict[str, tf.Tensor]:
    """Pads images to the largest; sizes are known before decoding."""
    channels = description.shape[2]

    def read_size(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        size = _sides(row[0], description.planes)
        if description.encoding == "original":
            size = placement(upright(size, row[1], tf), description.pixel_options, tf).output
        return tf.where(row[0] == "", tf.zeros([2], tf.int64), size)  # zeros for a missing image

    def padded(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        pixels = _or_zeros(description, row, [0, 0, channels])
        after = tf.concat([largest - tf.shape(pixels, tf.int64)[:2], [0]], 0)
        sides = tf.stack([tf.zeros_like(after), after], 1)
        return tf.pad(_normalized(pixels, description), sides, constant_values=description.padding)

    shape = tf.map_fn(read_size, (stored, turns), fn_output_signature=tf.TensorSpec([2], tf.int64))
    largest = tf.reduce_max(tf.concat([tf.zeros([1, 2], tf.int64), shape], 0), 0)
    signature = tf.TensorSpec([None, None, channels], description.dtype)
    batch = tf.cond(
        tf.size(stored) > 0,  # zero images cannot be stacked
        lambda: tf.map_fn(padded, (stored, turns), fn_output_signature=signature),
        lambda: tf.zeros([0, 0, 0, channels], description.dtype),
    )
    return {"": batch, "shape": shape}


def _or_zeros(description: AnyImages, row: tuple[tf.Tensor, tf.Tensor], shape: list[int | None]) -> tf.Tensor:
    if not description.optional:
        return _decoded(description, *row)
    zeros = lambda: tf.zeros(shape, description.pixel)  # noqa: E731 - a branch of the graph
    return tf.cond(row[0] == "", zeros, lambda: _decoded(description, *row))


def _decoded(description: AnyImages, stored: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    if description.planes:
        return tf.ensure_shape(decode_planes(stored, description.pixel, description.shape[2]), description.shape)
    if description.encoding != "original":
        # TensorFlow's operation takes PNG too.
        return tf.ensure_shape(libjpeg(stored, description.shape[2]), description.shape)
    options = description.pixel_options
    return resize(decode(stored, options, tf.cast(turn, tf.int32)), options)


def _normalized(pixels: tf.Tensor, description: AnyImages) -> tf.Tensor:
    if description.channel_order == "bgr":
        pixels = pixels[..., ::-1]
    if description.are_as_stored:
        return pixels
    width = pixels.shape[-2] or tf.shape(pixels)[-2]
    # The channels' numbers, for a row of pixels: broadcasting three numbers takes three times as long.
    by_channel = (tf.constant([numbers], tf.float32) for numbers in (description.offset, description.scale))
    offset, scale = (tf.tile(numbers, [width, 1]) for numbers in by_channel)
    return (tf.cast(pixels, tf.float32) - offset) * scale


SIDE = 5  # digits of a side in a Netpbm's header
HEADER = len("P6 00000 00000 255 ")
NETPBM = {1: b"P5 ", 3: b"P6 "}  # PGM and PPM, by channels


def unencoded(pixels: tf.Tensor, from_jpeg: tf.Tensor, options: "Image") -> tf.Tensor:
    """Encodes uint8 [height, width, channels] by `store`; JPEGs, of `auto` if `from_jpeg`, as Netpbm."""
    netpbm = partial(_to_netpbm, options=options)
    ways: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {"raw": _to_raw, "png": _to_png, "jpeg": netpbm}
    if options.store == "auto":
        return tf.cond(from_jpeg, lambda: ways["jpeg"](pixels), lambda: ways["png"](pixels))
    return ways[options.store](pixels)


def as_jpeg(images: tf.Tensor, options: "Image") -> tf.Tensor:
    """Encodes `unencoded` images, strings of shape [rows], from Netpbm; returns others unchanged."""

    def encode(image: tf.Tensor) -> tf.Tensor:
        is_netpbm = tf.strings.substr(image, 0, 3) == NETPBM[options.channels]
        return tf.cond(is_netpbm, lambda: _to_jpeg(image, options), lambda: image)

    return tf.map_fn(encode, images, fn_output_signature=tf.TensorSpec([], tf.string), parallel_iterations=1)


def _to_netpbm(pixels: tf.Tensor, options: "Image") -> tf.Tensor:
    """Returns a header of constant length and the pixels' bytes (netpbm's PPM and PGM, 8 bits)."""
    height, width = (tf.strings.as_string(tf.shape(pixels)[axis], width=SIDE, fill="0") for axis in (0, 1))
    return tf.strings.join([NETPBM[options.channels], width, " ", height, " 255 ", _to_raw(pixels)])


def _to_jpeg(image: tf.Tensor, options: "Image") -> tf.Tensor:
    width, height = (tf.strings.to_number(tf.strings.substr(image, at, SIDE), tf.int32) for at in (3, 4 + SIDE))
    pixels = tf.io.decode_raw(tf.strings.substr(image, HEADER, tf.strings.length(image)), tf.uint8)
    pixels = tf.reshape(pixels, tf.stack([height, width, options.channels]))
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
    """Returns the pixels' bytes: the last field of a serialized tensor (`TensorProto.tensor_content`)."""
    length = pixels.shape.num_elements() or tf.size(pixels)
    length = length if pixels.dtype == tf.uint8 else length * pixels.dtype.size
    return tf.strings.substr(tf.io.serialize_tensor(pixels), -length, length)
