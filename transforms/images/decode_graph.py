"""Decodes an image's bytes to upright pixels, and resizes them, in the graph.

JPEG by libjpeg's accurate integer DCT; CMYK by TensorFlow's rule (ink * black / 255). PNG of every type: 16 bits lose
the low 8. Still WebP, and 24-bit BMP. Alpha is laid on the background, `(colour * alpha + background * (255 - alpha) +
127) // 255`. Grey is `(19595 R + 38470 G + 7471 B + 32768) // 65536`, except that a JPEG's own luma is kept. Files that
`read_header` reports as not `in_graph` are errors, never wrong pixels.

A deep image is a grey PNG of its planes, one below the other (`image_stored.planes_of`). No step rounds or cuts a
number but `resize`. A photo to be averaged down to half its sides or less is decoded at 1/2, 1/4 or 1/8 of its size
(libjpeg's scaled DCT), if that divides all of its pixels evenly. Every method of `resize` rounds weighted sums to the
nearest integer, half to even, clipped to the type's; float32 is not rounded.

>>> image = tf.constant([[[1.5, -2.0]]])
>>> bool(tf.reduce_all(of_planes(to_planes(image), "float32", 2) == image))
True
"""

from functools import partial

import tensorflow as tf

from recordmill.transforms.images import properties_graph as properties
from recordmill.transforms.images.image_header import PNG
from recordmill.transforms.images.image_rules import is_transposed, luma, mirrored, padding_levels, placement, upright
from recordmill.transforms.images.image_stored import SPARE, PixelOptions

PNG_PALETTE, PNG_ALPHA = 3, 4  # palettes' colour type; the bit for an alpha channel
RATIOS = (1, 2, 4, 8)
LAST_PIXELS = [[0 if is_swapped else -1 for is_swapped in mirrored(turn)] for turn in range(1, 9)]  # by orientation
LARGE_ALPHA, BAND = 1 << 22, 1 << 18  # pixels: larger images are laid on the background in bands


def decode(encoded: tf.Tensor, options: PixelOptions, orientation: tf.Tensor | None = None) -> tf.Tensor:
    """Decodes a JPEG, PNG, WebP or BMP, a string scalar, and turns it upright: uint8 [height, width, channels].

    A PNG of planes becomes an image of the type `pixel`. `orientation` is an int32 scalar 1..8, by default the file's,
    from EXIF. Raises: tf.errors.InvalidArgumentError: another format, or a truncated or damaged file.
    """
    channels, background = options.channels, tuple(options.background)
    if options.planes:
        deep = decode_planes(encoded, options.pixel, channels)
        turn = properties.other_orientation(encoded) if orientation is None else orientation
        return tf.cond(turn > 1, lambda: orient.python_function(deep, turn), lambda: deep)
    image = tf.cond(
        properties.is_jpeg(encoded),
        lambda: _jpeg(encoded, properties.jpeg_orientation(encoded) if orientation is None else orientation, options),
        lambda: _other(encoded, orientation, channels, background),
    )
    return tf.ensure_shape(image, [None, None, channels])


def _upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    return tf.cond(orientation > 1, lambda: orient(image, orientation), lambda: image)


@tf.function(
    autograph=False,
    input_signature=[tf.TensorSpec([None, None, None], tf.uint8), tf.TensorSpec([], tf.int32)],
    experimental_attributes=properties.APART,
)
def orient(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turns an image, shape [h, w, channels], upright: the same shape, or [w, h, channels] for 5..8."""
    transposed = tf.transpose(image, tf.where(is_transposed(orientation), [1, 0, 2], [0, 1, 2]))
    return tf.raw_ops.Reverse(tensor=transposed, dims=tf.stack([*mirrored(orientation), False]))


def last_luma(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns the luma, in thousandths, of an upright image's pixel that is its file's last: int64 scalar."""
    at = tf.gather(LAST_PIXELS, orientation - 1)
    pixel = tf.strided_slice(image, at, at, shrink_axis_mask=0b11)
    weights = tf.constant([299, 587, 114] if image.shape[-1] == 3 else [1000], tf.int64)  # of ITU-R BT.601
    return tf.reduce_sum(tf.cast(pixel, tf.int64) * weights)


def _jpeg(encoded: tf.Tensor, orientation: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    channels = options.channels
    if options.reduced_from is None:
        return _upright(_decode_jpeg(encoded, channels), orientation)
    shape = tf.io.extract_jpeg_shape(encoded)

    @tf.function(autograph=False, experimental_attributes=properties.APART)
    def reduced(encoded: tf.Tensor, shape: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
        ways = [partial(_decode_jpeg, encoded, channels, ratio) for ratio in RATIOS]
        return tf.switch_case(_reduction(shape, orientation, options), ways)

    is_large, whole = tf.reduce_max(shape[:2]) >= options.reduced_from, partial(_decode_jpeg, encoded, channels)
    pixels = tf.cond(is_large, lambda: reduced(encoded, shape, orientation), whole)
    return _upright(pixels, orientation)


def _reduction(shape: tf.Tensor, orientation: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    """Returns the index in RATIOS of the largest divisor allowed for a JPEG's size: int32 scalar."""
    sides = upright(tf.cast(shape[:2], tf.int64), orientation, tf)
    goal = placement(sides, options, tf)
    ratios = tf.constant(RATIOS[1:], tf.int64)[:, tf.newaxis]
    # Then the reduced image is cut and scaled exactly as the whole one.
    is_whole = tf.reduce_all(tf.concat([sides, goal.start, goal.box], 0) % ratios == 0, 1)
    is_enough = tf.reduce_all(goal.box >= SPARE * ratios * goal.scaled, 1)
    return tf.reduce_sum(tf.cast(is_whole & is_enough, tf.int32))  # 8 implies 4 and 2


def _decode_jpeg(encoded: tf.Tensor, channels: int, ratio: int = 1) -> tf.Tensor:
    if channels == 3:
        return libjpeg(encoded, 3, ratio)
    is_cmyk = tf.io.extract_jpeg_shape(encoded)[2] == 4  # libjpeg cannot convert CMYK to grey
    return tf.cond(is_cmyk, lambda: _grey(libjpeg(encoded, 3, ratio)), lambda: libjpeg(encoded, 1, ratio))


def libjpeg(encoded: tf.Tensor, channels: int, ratio: int = 1) -> tf.Tensor:
    """Decodes a JPEG without turning it: uint8 [height / ratio, width / ratio, channels], rounded up."""
    return tf.io.decode_jpeg(
        encoded,
        channels=channels,
        ratio=ratio,
        fancy_upscaling=True,
        try_recover_truncated=False,
        acceptable_fraction=1,
        dct_method="INTEGER_ACCURATE",  # the default differs from Pillow and libjpeg-turbo by up to 23 levels
    )


@tf.function(autograph=False, experimental_attributes=properties.APART)
def _other(
    encoded: tf.Tensor, orientation: tf.Tensor | None, channels: int, background: tuple[int, int, int]
) -> tf.Tensor:
    png, webp = (partial(way, encoded, background) for way in (_decode_png, _decode_webp))
    rgb = properties.by_format(encoded, png, webp, partial(_decode_bmp, encoded))
    turn = properties.other_orientation(encoded) if orientation is None else orientation
    return _upright(rgb if channels == 3 else _grey(rgb), turn)


def _only(encoded: tf.Tensor, good: tf.Tensor) -> tf.Tensor:
    """Returns valid bytes, else an empty string, which every decoder refuses; assertions would be stateful."""
    return tf.where(good, encoded, "")


def _head(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the first bytes as int32 [size]; zeros beyond the data's end."""
    return tf.cast(tf.io.decode_raw(tf.strings.substr(encoded, 0, size), tf.uint8, fixed_length=size), tf.int32)


def _decode_png(encoded: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    encoded = _only(encoded, tf.strings.substr(encoded, 0, len(PNG)) == PNG)  # the operation also takes GIF
    head = _head(encoded, 26)
    depth, colour = head[24], head[25]
    # If `tRNS` occurs by chance, the slower branch gives the same pixels.
    opaque = (colour < PNG_ALPHA) & ~properties.contains(encoded, "tRNS")
    with_alpha = partial(_with_alpha, encoded, depth, colour, background)
    return tf.cond(opaque, lambda: tf.io.decode_png(encoded, channels=3), with_alpha)


def _with_alpha(encoded: tf.Tensor, depth: tf.Tensor, colour: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    """Decodes a PNG with transparency, and lays it on the background: uint8 [h, w, 3]."""

    def other() -> tf.Tensor:
        image = tf.io.decode_png(encoded, channels=4)
        alpha = image[..., 3]
        # TensorFlow gives opaque pixels of 1, 2 and 4 bits an alpha of 1, 3 and 15.
        full = tf.where((depth < 8) & (alpha > 0), tf.constant(255, tf.uint8), alpha)
        return _on_background(image, full, background)

    # With its own channels, a palette gives three, or four with transparency.
    return tf.cond(
        colour == PNG_PALETTE, lambda: _maybe_clear(tf.io.decode_png(encoded, channels=0), background), other
    )


def _maybe_clear(image: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    """Keeps three channels, lays four on the background: uint8 [h, w, 3]."""
    opaque = partial(tf.ensure_shape, image, [None, None, 3])
    return tf.cond(tf.shape(image)[-1] == 4, lambda: _on_background(image, image[..., 3], background), opaque)


def _decode_webp(encoded: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    head = _head(encoded, 21)
    is_webp = tf.reduce_all(head[8:12] == list(b"WEBP"))
    is_animated = tf.reduce_all(head[12:16] == list(b"VP8X")) & (head[20] & 2 > 0)  # would decode every frame
    return _maybe_clear(tf.io.decode_webp(_only(encoded, is_webp & ~is_animated), channels=0)[0], background)


def _decode_bmp(encoded: tf.Tensor) -> tf.Tensor:
    head = _head(encoded, 34)
    # A header of 40 to 255 bytes, 24 bits a pixel, uncompressed: other pixels would be wrong.
    is_plain = (head[14] >= 40) & (head[28] == 24) & (tf.reduce_sum(head[15:18]) + tf.reduce_sum(head[29:34]) == 0)
    return tf.io.decode_bmp(_only(encoded, is_plain), channels=3)


@tf.function(autograph=False)  # traced once for all places
def _on_background(image: tf.Tensor, alpha: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    """Lays an image, uint8 [h, w, 4], by its alpha, uint8 [h, w], on a colour: uint8 [h, w, 3]; large ones in bands."""
    height, width = tf.unstack(tf.shape(alpha))
    rows = tf.maximum(1, BAND // tf.maximum(1, width))

    def band(number: tf.Tensor, done: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        part = slice(number * rows, (number + 1) * rows)
        return number + 1, done.write(number, _mixed(image[part], alpha[part], background))

    def bands() -> tf.Tensor:
        count = -(-height // rows)
        done = tf.TensorArray(tf.uint8, count, infer_shape=False, element_shape=[None, None, 3])
        return tf.while_loop(lambda number, _: number < count, band, [0, done], parallel_iterations=1)[1].concat()

    return tf.cond(tf.size(alpha) > LARGE_ALPHA, bands, lambda: _mixed(image, alpha, background))


@tf.function(autograph=False)
def _mixed(image: tf.Tensor, alpha: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    """Mixes as `_on_background`, in 16 bits, which hold every value."""
    weight = tf.cast(alpha, tf.uint16)
    rest = 255 - weight
    colours = [tf.cast(image[..., channel], tf.uint16) for channel in range(3)]
    mixed = [colour * weight + rest * behind + 127 for colour, behind in zip(colours, background, strict=True)]
    eight = tf.constant(8, tf.uint16)

    def by_255(value: tf.Tensor) -> tf.Tensor:  # exact below 65,535; TensorFlow's own division is slow
        return tf.bitwise.right_shift(value + 1 + tf.bitwise.right_shift(value, eight), eight)

    return tf.stack([tf.cast(by_255(value), tf.uint8) for value in mixed], -1)


def _grey(rgb: tf.Tensor) -> tf.Tensor:
    return tf.cast(luma(*tf.split(tf.cast(rgb, tf.int32), 3, -1)), tf.uint8)


def decode_planes(encoded: tf.Tensor, pixel: str, channels: int) -> tf.Tensor:
    """Decodes a PNG of planes as it lies: [height, width, channels] of the type `pixel`. Raises: as `decode`."""
    depth, dtype = (8, tf.uint8) if pixel == "uint8" else (16, tf.uint16)
    head = tf.strings.substr(encoded, 0, len(PNG)) + tf.strings.substr(encoded, 24, 2)
    grey = tf.where(head == PNG + bytes([depth, 0]), encoded, "")  # other files would be converted
    return of_planes(tf.io.decode_png(grey, channels=1, dtype=dtype), pixel, channels)


def of_planes(image: tf.Tensor, pixel: str, channels: int) -> tf.Tensor:
    """Stacks an image's planes, [planes * height, width, 1], to [height, width, channels]."""
    halves = 2 if pixel == "float32" else 1
    width = tf.shape(image)[1]
    height = tf.shape(image)[0] // (halves * channels)
    planes = tf.reshape(image, tf.stack([halves, channels, height, width]))
    if halves == 2:  # low ones first, as bytes lie in memory
        planes = tf.bitcast(tf.stack([planes[1], planes[0]], -1), tf.float32)[tf.newaxis]
    return tf.ensure_shape(tf.transpose(planes[0], [1, 2, 0]), [None, None, channels])


def to_planes(image: tf.Tensor) -> tf.Tensor:
    """Lays an image's planes, [height, width, channels], one below the other: [planes * height, width, 1]."""
    planes = tf.transpose(image, [2, 0, 1])
    if image.dtype == tf.float32:
        low, high = tf.unstack(tf.bitcast(planes, tf.uint16), axis=-1)
        planes = tf.concat([high, low], 0)
    return tf.reshape(planes, tf.stack([-1, tf.shape(image)[1], 1]))


MEANS = ("area", "bilinear", "nearest")  # never beyond 0..255, unlike other methods near an edge


def resize(image: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    """Resizes an image, [h, w, channels]: [height, width, channels] of its type, static if `size` is given."""
    goal = placement(tf.shape(image, tf.int64)[:2], options, tf)
    cuts = options.size is not None and options.fit == "crop"
    if cuts:
        image = _cut(image, goal.start, goal.box)
    image = _scaled(image, goal.scaled, options)
    if cuts and options.shorter_side is not None:
        image = _cut(image, -goal.offset, goal.output)
    if options.size is not None and options.fit == "pad":
        image = _framed(image, goal.offset, goal.output - goal.scaled - goal.offset, options)
    return tf.ensure_shape(image, [*(options.size or (None, None)), options.channels])


def _cut(image: tf.Tensor, start: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.slice(image, tf.concat([start, [0]], 0), tf.concat([size, [-1]], 0))


def _framed(image: tf.Tensor, before: tf.Tensor, after: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    """Adds margins of padding, only along one of the two axes."""
    colour = padding_levels(options)

    def margin(size: tf.Tensor, axis: int) -> tf.Tensor:
        shape = tf.tensor_scatter_nd_update(tf.shape(image, tf.int64), [[axis]], [size])
        return tf.broadcast_to(tf.constant(colour, image.dtype), shape)

    for axis in (0, 1):
        image = tf.concat([margin(before[axis], axis), image, margin(after[axis], axis)], axis)
    return image


def _scaled(image: tf.Tensor, size: tf.Tensor, options: PixelOptions) -> tf.Tensor:
    """Scales to int64 [height, width]; `auto` averages areas, or is bilinear if the result has more pixels."""
    sides, method = tf.shape(image, tf.int64)[:2], options.resize

    def by(method: str, antialias: bool) -> tf.Tensor:
        deep = image if image.dtype == tf.uint8 else tf.cast(image, tf.float32)
        scaled = tf.image.resize(deep, tf.cast(size, tf.int32), method=method, antialias=antialias)
        if image.dtype == tf.float32:
            return scaled
        rounded, most = tf.round(scaled), image.dtype.max
        return tf.cast(rounded if method in MEANS else tf.clip_by_value(rounded, 0, most), image.dtype)

    shrinks = tf.reduce_prod(size) <= tf.reduce_prod(sides)
    way = tf.where(tf.reduce_all(size == sides), 0, tf.where(shrinks, 1, 2))
    if method == "auto":
        return tf.switch_case(way, [lambda: image, lambda: by("area", False), lambda: by("bilinear", False)])
    return tf.cond(way == 0, lambda: image, lambda: by(method, options.antialias))
