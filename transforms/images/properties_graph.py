"""An image's format, size and EXIF orientation, read in the graph from its bytes without decoding, as serving does.

JPEG: the first `Exif` segment among the application segments (APPn, COM) at the start. PNG: the first `eXIf` chunk
anywhere. WebP: the first `EXIF` chunk, if the header announces one. Tag 0x0112 of IFD0, SHORT or LONG, with a single
value of 1..8, in either byte order; the first one counts. Anything else, including malformed EXIF, is orientation 1 and
never an error.

    upright = orient(tf.io.decode_jpeg(encoded), orientation(encoded))
"""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from recordmill.transforms.images.image_header import FROM_JPEG
from recordmill.transforms.images.image_rules import TAG

SHORT, LONG = 3, 4
HEAD = 65_536  # EXIF begins in these bytes of a JPEG
MAX_EXIF = 65_536  # bytes: a JPEG segment's limit; IFD0 is at its start
# Steps, of about 10 µs. A photo has about ten segments; a PNG of 500 MB in libpng's 8 KiB chunks has 60,000.
MAX_SEGMENTS = 256
MAX_CHUNKS = 65_536
TEXT = 54  # offset of the text in a PNG's third chunk, behind `IHDR` and `sRGB`
# TensorFlow visits every node of a branch not taken; a function kept out of line is a single node.
APART = {"_noinline": True}
BYTES = tf.TensorSpec([], tf.string)
Branch = Callable[[], tf.Tensor]
Step = Callable[[tf.Tensor], tf.Tensor]


def is_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    """Checks whether a string scalar begins as a JPEG: bool scalar."""
    return tf.strings.substr(encoded, 0, 3) == b"\xff\xd8\xff"


def was_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    """Checks for a JPEG, or the PNG that the build makes of one in another colour space: bool scalar."""
    return is_jpeg(encoded) | (_piece(encoded, tf.constant(TEXT), tf.constant(len(FROM_JPEG))) == FROM_JPEG)


def by_format(encoded: tf.Tensor, png: Branch, webp: Branch, bmp: Branch) -> tf.Tensor:
    """Takes the branch of a file's format, by its first bytes; PNG's for other formats."""
    is_webp, is_bmp = (tf.strings.substr(encoded, 0, len(mark)) == mark for mark in (b"RIFF", b"BM"))
    return tf.switch_case(tf.where(is_webp, 1, tf.where(is_bmp, 2, 0)), [png, webp, bmp])


def stored_sides(encoded: tf.Tensor) -> tf.Tensor:
    """Reads an image's height and width in pixels, before EXIF turns them: int64 [2]; zeros for an empty string.

    Takes a string scalar, JPEG, PNG, WebP or BMP; other bytes give arbitrary sides. Raises:
    tf.errors.InvalidArgumentError: a JPEG is cut off inside its header.
    """
    other = partial(_other_sides, encoded)
    return tf.cond(is_jpeg(encoded), lambda: tf.cast(tf.io.extract_jpeg_shape(encoded)[:2], tf.int64), other)


def _other_sides(encoded: tf.Tensor) -> tf.Tensor:
    head = tf.cast(tf.io.decode_raw(tf.strings.substr(encoded, 0, 30), tf.uint8, fixed_length=30), tf.int64)

    def png() -> tf.Tensor:
        return tf.stack([_number(head[20:24][::-1]), _number(head[16:20][::-1])])

    def bmp() -> tf.Tensor:
        height = _number(head[22:26])
        return tf.stack([tf.minimum(height, (1 << 32) - height), _number(head[18:22])])  # negative: from the top down

    def webp() -> tf.Tensor:
        """Reads the canvas of an extended file, else the frame's size, 14 bits a side (RFC 9649)."""
        extended = tf.stack([1 + _number(head[27:30]), 1 + _number(head[24:27])])
        bits = _number(head[21:25])
        lossless = tf.stack([1 + bits // (1 << 14) % (1 << 14), 1 + bits % (1 << 14)])
        lossy = tf.stack([_number(head[28:30]), _number(head[26:28])]) % (1 << 14)
        return tf.where(head[15] == ord("X"), extended, tf.where(head[15] == ord("L"), lossless, lossy))

    return by_format(encoded, png, webp, bmp)


def _number(digits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(digits * [256**power for power in range(digits.shape[0])])


def orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Reads the orientation of an image of any format, a string scalar: int32 scalar 1..8."""
    is_jpeg = tf.strings.substr(encoded, 0, 2) == b"\xff\xd8"
    return tf.cond(is_jpeg, lambda: jpeg_orientation(encoded), lambda: other_orientation(encoded))


def jpeg_orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Reads the orientation of a JPEG, a string scalar: int32 scalar 1..8."""
    may_be = contains(tf.strings.substr(encoded, 0, HEAD), r"Exif\x00\x00")
    return tf.cond(may_be, lambda: _in_segments(encoded), lambda: tf.constant(1))


def other_orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Reads the orientation of a PNG or a WebP, a string scalar: int32 scalar 1..8; 1 for anything else."""
    is_webp = _piece(encoded, tf.constant(8), tf.constant(8)) == b"WEBPVP8X"
    is_png = tf.strings.substr(encoded, 0, 4) == b"\x89PNG"
    way = tf.where(is_webp, 2, tf.where(is_png & contains(encoded, "eXIf"), 1, 0))
    return tf.switch_case(way, [lambda: tf.constant(1), lambda: _in_chunks(encoded), lambda: _in_webp(encoded)])


@tf.function(autograph=False, input_signature=[BYTES], experimental_attributes=APART)
def _in_segments(encoded: tf.Tensor) -> tf.Tensor:

    def segment(offset: tf.Tensor) -> tf.Tensor:
        """Returns five big-endian uint16 as int32: marker, length in bytes, and the name's first six bytes."""
        return tf.cast(_read(encoded, offset, tf.uint16, 5), tf.int32)

    def is_exif(head: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(tf.gather(head, [0, 2, 3, 4]) == [0xFFE1, 0x4578, 0x6966, 0])

    def is_passed(head: tf.Tensor) -> tf.Tensor:
        application = ((head[0] >= 0xFFE0) & (head[0] <= 0xFFEF)) | (head[0] == 0xFFFE)
        return application & ~is_exif(head)

    offset, head = _walk(tf.constant(2), segment, is_passed, lambda head: 2 + head[1], MAX_SEGMENTS)
    return tiff_orientation(_piece(encoded, offset + 10, tf.where(is_exif(head), head[1] - 8, 0)))


@tf.function(autograph=False, input_signature=[BYTES], experimental_attributes=APART)
def _in_chunks(encoded: tf.Tensor) -> tf.Tensor:
    exif = int.from_bytes(b"eXIf", "big")

    def chunk(offset: tf.Tensor) -> tf.Tensor:
        """Returns two big-endian int32 as int64: length in bytes, negative if out of range, and type."""
        return tf.cast(_read(encoded, offset, tf.int32, 2), tf.int64)

    def is_passed(head: tf.Tensor) -> tf.Tensor:
        return (head[1] != exif) & (head[1] != 0) & (head[0] >= 0)

    offset, head = _walk(tf.constant(8, tf.int64), chunk, is_passed, lambda head: 12 + head[0], MAX_CHUNKS)
    return tiff_orientation(_piece(encoded, offset + 8, tf.where(head[1] == exif, tf.minimum(head[0], MAX_EXIF), 0)))


@tf.function(autograph=False, input_signature=[BYTES], experimental_attributes=APART)
def _in_webp(encoded: tf.Tensor) -> tf.Tensor:
    exif = int.from_bytes(b"EXIF", "little")
    flags = _read(encoded, tf.constant(20), tf.uint8, 1)[0]

    def chunk(offset: tf.Tensor) -> tf.Tensor:
        """Returns two little-endian int32 as int64: type, and length in bytes, negative if out of range."""
        return tf.cast(_read(encoded, offset, tf.int32, 2, little_endian=True), tf.int64)

    def is_passed(head: tf.Tensor) -> tf.Tensor:
        return (head[0] != exif) & (head[0] != 0) & (head[1] >= 0)

    start = tf.constant(12, tf.int64)
    offset, head = _walk(start, chunk, is_passed, lambda head: 8 + head[1] + head[1] % 2, MAX_SEGMENTS)
    announced = (head[0] == exif) & (flags & 8 > 0)
    payload = _piece(encoded, offset + 8, tf.where(announced, tf.minimum(head[1], MAX_EXIF), 0))
    named = tf.strings.substr(payload, 0, 6) == b"Exif\0\0"  # some programs write this name
    return tiff_orientation(_piece(payload, tf.where(named, 6, 0), tf.constant(MAX_EXIF)))


def _walk(start: tf.Tensor, head_at: Step, is_passed: Step, size: Step, limit: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Steps through a file's blocks; returns the offset and head of the first one not to pass."""

    def following(offset: tf.Tensor, head: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        after = offset + size(head)
        return after, head_at(after)

    return tf.while_loop(lambda _, head: is_passed(head), following, (start, head_at(start)), maximum_iterations=limit)


@tf.function(autograph=False, input_signature=[BYTES])
def tiff_orientation(tiff: tf.Tensor) -> tf.Tensor:
    """Reads the orientation from EXIF's TIFF, a string scalar, possibly empty or truncated: int32 scalar 1..8."""
    values = tf.cast(tf.io.decode_raw(tiff, tf.uint8), tf.int64)
    values = tf.concat([values, tf.zeros([10], tf.int64)], 0)  # a truncated header reads as zeros
    mark = tf.strings.substr(tiff, 0, 4)
    little = mark == b"II*\0"

    def number(digits: tf.Tensor, size: int) -> tf.Tensor:
        """Reads the last axis, of `size` bytes, as an unsigned number in the file's byte order."""
        ascending = tf.where(little, digits, tf.reverse(digits, [-1]))
        return tf.reduce_sum(ascending * tf.constant([256**power for power in range(size)], tf.int64), -1)

    end = tf.shape(values, tf.int64)[0] - 10
    first = tf.minimum(number(values[4:8], 4), end) + 2
    count = tf.minimum(number(values[first - 2 : first], 2), tf.maximum(end - first, 0) // 12)
    entries = tf.reshape(values[first : first + 12 * count], [-1, 12])
    kind = number(entries[:, 2:4], 2)
    value = tf.where(kind == SHORT, number(entries[:, 8:10], 2), number(entries[:, 8:12], 4))
    values_of = number(entries[:, 4:8], 4)
    is_orientation = (number(entries[:, :2], 2) == TAG) & ((kind == SHORT) | (kind == LONG)) & (values_of > 0)
    value = tf.where(values_of == 1, value, 1)
    stated = tf.concat([tf.boolean_mask(value, is_orientation), [1]], 0)[0]  # the first of several, as Pillow 13 does
    valid = (little | (mark == b"MM\0*")) & (stated >= 1) & (stated <= 8)
    return tf.cast(tf.where(valid, stated, 1), tf.int32)


def contains(data: tf.Tensor, pattern: str) -> tf.Tensor:
    """Searches a string scalar for a pattern (RE2 syntax), at memory speed: bool scalar."""
    without = tf.strings.regex_replace(data, pattern, "", replace_global=False)
    return tf.strings.length(without) < tf.strings.length(data)


def _read(data: tf.Tensor, offset: tf.Tensor, dtype: tf.DType, count: int, little_endian: bool = False) -> tf.Tensor:
    """Reads `count` numbers at an offset; zeros beyond the data's end."""
    size = count * dtype.size
    piece = _piece(data, offset, tf.constant(size, offset.dtype))
    return tf.io.decode_raw(piece, dtype, little_endian=little_endian, fixed_length=size)


def _piece(data: tf.Tensor, offset: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Cuts out at most `size` bytes; none beyond the data's end or for a negative size."""
    start = tf.minimum(offset, tf.cast(tf.strings.length(data), offset.dtype))
    return tf.strings.substr(data, start, tf.maximum(size, 0))
