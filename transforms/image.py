"""Images: the header's check before any decoder, then decoded, turned upright, brought to one size, stored encoded.

Everything after `check_header` is a graph of integer or exactly rounded steps: the same bytes in any batch. JPEG by
libjpeg's accurate integer DCT; CMYK by TensorFlow's rule (ink * black / 255). PNG of every type: 16 bits lose the
low 8, alpha lies on the background, `(colour * alpha + background * (255 - alpha) + 127) // 255`. Grey is
`(19595 R + 38470 G + 7471 B + 32768) // 65536`, but a JPEG that stores its own luma gives that.

    check_header(data, max_pixels=64_000_000)
    pixels = resize(decode(tf.constant(data), options), options)
"""

import re
import struct
from typing import Any

import tensorflow as tf

from transforms.exif import APART, contains, turn_jpeg, turn_png
from transforms.kind import Found, Options, Prepared

JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"
OTHER_FORMATS = {
    rb"GIF8": "GIF",
    rb"BM": "BMP",
    rb"RIFF....WEBP": "WebP",
    rb"II\*\0|MM\0\*|II\+\0|MM\0\+": "TIFF",
    rb"....ftypavi[fs]": "AVIF",
    rb"....ftyp(hei[cx]|mif1|msf1)": "HEIF",
    rb"\0\0\x01\0": "ICO",
    rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51": "JPEG 2000",
    rb"\0\0\0\x0cJXL |\xff\x0a": "JPEG XL",
    rb"8BPS": "Photoshop",
    rb"%PDF": "PDF",
    rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?<svg": "SVG",
}
PNG_PALETTE, PNG_ALPHA = 3, 4  # colour type of palettes; the bit of those with an alpha channel


class ImageError(Exception):
    """A picture that is rejected before it is decoded."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """`unsupported_format` or `too_many_pixels`, as in `pipeline.rejects`."""
        self.message = message


def check_header(data: bytes, max_pixels: int) -> None:
    """Refuses what no decoder may see: anything but JPEG and PNG, and pictures of too many pixels.

    Reads the bytes alone and allocates nothing. (Pillow's `open` would: it fills the canvas of an animated PNG before
    it looks at its size, and its warnings cannot be silenced for one thread.)

    Raises:
        ImageError: `unsupported_format` or `too_many_pixels`; nothing else, whatever the bytes.
    """
    width, height = _header_size(data)
    if width * height > max_pixels:
        raise ImageError(
            "too_many_pixels",
            f"the header states {width} x {height} = {width * height} pixels; max_pixels allows {max_pixels}",
        )


def _header_size(data: bytes) -> tuple[int, int]:
    if data.startswith(JPEG):
        size = _jpeg_size(data)
        name = "JPEG"
    elif data.startswith(PNG):
        size = struct.unpack_from(">II", data, 16) if data[12:16] == b"IHDR" and len(data) >= 24 else None
        name = "PNG"
    else:
        raise ImageError("unsupported_format", f"{_found(data)}; JPEG and PNG are read")
    if size is None or not all(size):
        raise ImageError("unsupported_format", f"the file begins as {name}, but its header states no size")
    return size


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Finds the frame header as libjpeg does: width and height in pixels, or None if there is none."""
    at = data.find(b"\xff", 2)
    while 0 <= at < len(data) - 8:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if marker in (0xD9, 0xDA):
            return None
        if marker == 0xFF:
            at += 1
            continue
        alone = marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8
        at = data.find(b"\xff", at + 2 if alone else at + 2 + int.from_bytes(data[at + 2 : at + 4], "big"))
    return None


def _found(data: bytes) -> str:
    if not data:
        return "the file is empty"
    for pattern, name in OTHER_FORMATS.items():
        if re.match(pattern, data[:512], re.DOTALL):
            return f"the file is {name}"
    return f"the file is no image: it begins with {data[:8]!r}"


def decode(encoded: tf.Tensor, options: Options) -> tf.Tensor:
    """Decodes a JPEG or PNG, a string scalar, and turns it upright: uint8 [height, width, channels].

    Raises:
        tf.errors.InvalidArgumentError: for bytes that are neither, are cut or are damaged.
    """
    channels, background = options["channels"], tuple(options["background"])
    image = tf.cond(
        _is_jpeg(encoded),
        lambda: turn_jpeg(_decode_jpeg(encoded, channels), encoded),
        lambda: _upright_png(encoded, channels, background),
    )
    return tf.ensure_shape(image, [None, None, channels])


def _is_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    return tf.strings.substr(encoded, 0, len(JPEG)) == JPEG


def _decode_jpeg(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    if channels == 3:
        return _libjpeg(encoded, 3)
    is_cmyk = tf.io.extract_jpeg_shape(encoded)[2] == 4  # which libjpeg does not turn grey
    return tf.cond(is_cmyk, lambda: _grey(_libjpeg(encoded, 3)), lambda: _libjpeg(encoded, 1))


def _libjpeg(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    return tf.io.decode_jpeg(
        encoded,
        channels=channels,
        ratio=1,
        fancy_upscaling=True,
        try_recover_truncated=False,
        acceptable_fraction=1,
        dct_method="INTEGER_ACCURATE",  # the default differs from Pillow and libjpeg-turbo by up to 23 levels
    )


@tf.function(autograph=False, experimental_attributes=APART)
def _upright_png(encoded: tf.Tensor, channels: int, background: tuple[int, int, int]) -> tf.Tensor:
    rgb = _decode_png(encoded, background)
    return turn_png(rgb if channels == 3 else _grey(rgb), encoded)


def _decode_png(encoded: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    # The operation would take GIF and WebP too, which no build accepts: they are made no image at all. An assertion
    # would be a stateful operation, which the analysis' graph runs even where nobody asks for the picture.
    encoded = tf.where(tf.strings.substr(encoded, 0, len(PNG)) == PNG, encoded, "")
    head = tf.io.decode_raw(tf.strings.substr(encoded, 0, 26), tf.uint8, fixed_length=26)
    depth, colour = head[24], head[25]
    # `tRNS` may stand inside other data by chance: then the slow way gives the same.
    opaque = (colour < PNG_ALPHA) & ~contains(encoded, "tRNS")
    return tf.cond(
        opaque,
        lambda: tf.io.decode_png(encoded, channels=3),
        lambda: _on_background(_rgba(encoded, depth, colour), background),
    )


def _rgba(encoded: tf.Tensor, depth: tf.Tensor, colour: tf.Tensor) -> list[tf.Tensor]:
    """Decodes a PNG to its four channels, each uint8 [h, w]."""

    def palette() -> list[tf.Tensor]:
        image = tf.io.decode_png(encoded, channels=0)  # three channels, or four where there is transparency
        opaque = tf.fill(tf.concat([tf.shape(image)[:2], [1]], 0), tf.constant(255, tf.uint8))
        return tf.unstack(tf.concat([image, opaque], -1)[..., :4], 4, -1)

    def other() -> list[tf.Tensor]:
        red, green, blue, alpha = tf.unstack(tf.io.decode_png(encoded, channels=4), 4, -1)
        # TensorFlow gives opaque pixels of 1, 2 and 4 bits an alpha of 1, 3 and 15.
        return [red, green, blue, tf.where((depth < 8) & (alpha > 0), tf.constant(255, tf.uint8), alpha)]

    return tf.cond(colour == PNG_PALETTE, palette, other)


def _on_background(rgba: list[tf.Tensor], background: tuple[int, int, int]) -> tf.Tensor:
    *colours, alpha = [tf.cast(channel, tf.int32) for channel in rgba]
    mixed = [(colour - behind) * alpha + 255 * behind for colour, behind in zip(colours, background, strict=True)]
    return tf.stack([tf.cast((value + 127) // 255, tf.uint8) for value in mixed], -1)


def _grey(rgb: tf.Tensor) -> tf.Tensor:
    return tf.cast(_luma(*tf.split(tf.cast(rgb, tf.int32), 3, -1)), tf.uint8)


def _luma(red: Any, green: Any, blue: Any) -> Any:
    """Grey of ITU-R BT.601 in 16 bits, as Pillow rounds it; of integers or integer tensors of 0..255."""
    return (19_595 * red + 38_470 * green + 7_471 * blue + 32_768) // 65_536


def resize(image: tf.Tensor, options: Options) -> tf.Tensor:
    """Brings a picture, uint8 [h, w, channels], to `size` as `fit` says: uint8 [height, width, channels].

    Sides are rounded half up, to 1 pixel at least; an odd margin has its larger half below and to the right.
    """
    height, width = options["size"]
    if options["fit"] == "pad":
        image = _padded(image, options)
    else:
        box = _cropped(image, height, width) if options["fit"] == "crop" else image
        image = _scaled(box, tf.constant([height, width], tf.int64))
    return tf.ensure_shape(image, [height, width, options["channels"]])


def _cropped(image: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Cuts before scaling: a strip of 1 x 16,000 pixels, scaled to fill, would be of millions."""
    sides = tf.shape(image, tf.int64)[:2]
    taller = sides[0] * width >= sides[1] * height
    box = tf.where(
        taller,
        [_divided(sides[1] * height, width), sides[1]],
        [sides[0], _divided(sides[0] * width, height)],
    )
    start = (sides - box) // 2
    return tf.slice(image, tf.concat([start, [0]], 0), tf.concat([box, [-1]], 0))


def _padded(image: tf.Tensor, options: Options) -> tf.Tensor:
    height, width = options["size"]
    sides = tf.shape(image, tf.int64)[:2]
    taller = sides[0] * width >= sides[1] * height
    size = tf.where(
        taller,
        [height, _divided(sides[1] * height, sides[0])],
        [_divided(sides[0] * width, sides[1]), width],
    )
    before = ([height, width] - size) // 2
    after = [height, width] - size - before
    return _framed(_scaled(image, size), before, after, options)


def _framed(image: tf.Tensor, before: tf.Tensor, after: tf.Tensor, options: Options) -> tf.Tensor:
    """Lays the background above, below and beside: of the two axes, one has no margin."""
    red, green, blue = options["background"]
    colour = [red, green, blue] if options["channels"] == 3 else [_luma(red, green, blue)]

    def margin(size: tf.Tensor, axis: int) -> tf.Tensor:
        shape = tf.tensor_scatter_nd_update(tf.shape(image, tf.int64), [[axis]], [size])
        return tf.broadcast_to(tf.constant(colour, tf.uint8), shape)

    for axis in (0, 1):
        image = tf.concat([margin(before[axis], axis), image, margin(after[axis], axis)], axis)
    return image


def _divided(dividend: tf.Tensor, divisor: Any) -> tf.Tensor:
    """Divides whole numbers, rounded half up, 1 at least."""
    return tf.maximum((2 * dividend + divisor) // (2 * divisor), 1)


def _scaled(image: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Scales to a size, int64 [height, width]: area averaging if that has fewer pixels or as many, else bilinear."""
    sides = tf.shape(image, tf.int64)[:2]

    def by(method: str) -> tf.Tensor:
        # Both methods give weighted means of bytes, so that no rounded value leaves 0..255.
        return tf.cast(tf.round(tf.image.resize(image, tf.cast(size, tf.int32), method=method)), tf.uint8)

    shrinks = tf.reduce_prod(size) <= tf.reduce_prod(sides)
    way = tf.where(tf.reduce_all(size == sides), 0, tf.where(shrinks, 1, 2))
    return tf.switch_case(way, [lambda: image, lambda: by("area"), lambda: by("bilinear")])


def encode(pixels: tf.Tensor, is_jpeg: tf.Tensor, options: Options) -> tf.Tensor:
    """Encodes a picture, uint8 [height, width, channels] of static shape, as `store` says: a string scalar.

    `is_jpeg`, bool, says of what format the source was, for `auto`.
    """
    ways = {
        "auto": lambda: tf.cond(is_jpeg, lambda: _to_jpeg(pixels, options), lambda: _to_png(pixels)),
        "jpeg": lambda: _to_jpeg(pixels, options),
        "png": lambda: _to_png(pixels),
        "raw": lambda: _to_raw(pixels),
    }
    return ways[options["store"]]()


def _to_jpeg(pixels: tf.Tensor, options: Options) -> tf.Tensor:
    return tf.io.encode_jpeg(
        pixels,
        format="rgb" if options["channels"] == 3 else "grayscale",
        quality=options["quality"],
        progressive=False,
        optimize_size=False,
        chroma_downsampling=True,
        density_unit="in",
        x_density=300,
        y_density=300,
        xmp_metadata="",
    )


def _to_png(pixels: tf.Tensor) -> tf.Tensor:
    return tf.io.encode_png(pixels, compression=6)


def _to_raw(pixels: tf.Tensor) -> tf.Tensor:
    """The pixels' bytes alone: they are the last field of a serialized uint8 tensor (`TensorProto.tensor_content`)."""
    length = pixels.shape.num_elements()
    return tf.strings.substr(tf.io.serialize_tensor(pixels), -length, length)


def prepare(options: Options, column: tf.Tensor, train: tf.Tensor) -> Prepared:
    """Stores each picture decoded, upright, of one size and encoded again: strings, shape [rows].

    The pixels' statistics come from `pixel_sums` of a sample, so nothing is left to analyze here.
    """

    def stored(encoded: tf.Tensor) -> tf.Tensor:
        return encode(resize(decode(encoded, options), options), _is_jpeg(encoded), options)

    def store(_: Found) -> tf.Tensor:
        return tf.map_fn(stored, column, fn_output_signature=tf.TensorSpec([], tf.string), parallel_iterations=1)

    return Prepared(store)


def pixel_sums(encoded: tf.Tensor, options: Options) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sums the pixels of pictures, strings of shape [rows], as they are before they are encoded.

    Returns:
        Pixels, int64 [rows]; their sum and their sum of squares by channel, int64 [rows, channels]. All exact.
    """

    def sums(one: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        pixels = tf.cast(resize(decode(one, options), options), tf.int64)
        count = tf.reduce_prod(tf.shape(pixels, tf.int64)[:2])
        return count, tf.reduce_sum(pixels, [0, 1]), tf.reduce_sum(pixels * pixels, [0, 1])

    by_channel = tf.TensorSpec([options["channels"]], tf.int64)
    signature = (tf.TensorSpec([], tf.int64), by_channel, by_channel)
    return tf.map_fn(sums, encoded, fn_output_signature=signature, parallel_iterations=1)


def stored_spec(description: Options) -> tf.io.FixedLenFeature:
    """One string a row."""
    return tf.io.FixedLenFeature([], tf.string)


def finish(description: Options, stored: tf.Tensor) -> tf.Tensor:
    """Decodes stored pictures, strings of shape [rows]: [rows, height, width, channels].

    uint8 as they are, or float32 `(pixel - offset) * scale`. No rows give shape [0, height, width, channels].

    Raises:
        tf.errors.InvalidArgumentError: for bytes that are not what was stored.
    """
    pixels = _stored_pixels(description, stored)
    if description["dtype"] == "uint8":
        return pixels
    offset, scale = (_row(description[key], description["shape"][1]) for key in ("offset", "scale"))
    return (tf.cast(pixels, tf.float32) - offset) * scale


def _stored_pixels(description: Options, stored: tf.Tensor) -> tf.Tensor:
    shape = list(description["shape"])
    if description["encoding"] == "raw":
        return tf.reshape(tf.io.decode_raw(stored, tf.uint8), [-1, *shape])

    def pixels(encoded: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(_libjpeg(encoded, shape[2]), shape)  # TensorFlow's operation takes PNG too

    return tf.map_fn(pixels, stored, fn_output_signature=tf.TensorSpec(shape, tf.uint8))


def _row(by_channel: list[float], width: int) -> tf.Tensor:
    """Repeats the channels' numbers for a row of pixels: broadcasting three numbers alone takes three times as long."""
    return tf.tile(tf.constant([by_channel], tf.float32), [width, 1])
