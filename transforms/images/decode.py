"""Image decoding without TensorFlow, bit for bit as `transforms.images.decode_graph`, with its rules.

JPEG by libjpeg-turbo's accurate integer DCT with smooth chroma, through simplejpeg, with OpenCV for files that it
refuses; or by Pillow, with the same pixels. PNG, WebP and BMP by Pillow.
"""

import io
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TypeAlias

import numpy as np
import PIL
from PIL import Image

from recordmill.transforms.base.buffers import Array
from recordmill.transforms.images import opencv
from recordmill.transforms.images.image_header import JPEG, PNG, jpeg_frame, read_header
from recordmill.transforms.images.image_parts import jpeg_walk, without_metadata
from recordmill.transforms.images.image_rules import is_transposed, luma, mirrored
from recordmill.transforms.images.image_stored import MOST_PIXELS, SPARE, PixelOptions, planes_of
from recordmill.transforms.images.pixels import placed

try:
    import simplejpeg
except ImportError:  # Pillow decodes the same pixels, slower
    simplejpeg = None  # type: ignore[assignment]

Data: TypeAlias = bytes | memoryview

RATIOS = (8, 4, 2)
DEPTH = 24  # offset of a PNG's bits per sample
SPACES = {1: "GRAY", 3: "RGB", 4: "CMYK"}  # simplejpeg's names, by channels
UNREAD = (ValueError, KeyError)  # simplejpeg's errors; KeyError: it has no name for a subsampling
EARLY = "premature end", "marker 0xd9 instead of"  # in libjpeg's warnings: inside a run of data, and between two
MORE = b"".join(bytes([*range(254, 0, -1), 0xFF, 0xD0 + number]) for number in range(8))  # data of all restarts
ROWS = 64  # to convert at once, to limit intermediate memory
FORMATS = ("PNG", "WEBP", "BMP")  # the only openers of Pillow to try


@cache
def warn_of_old_pillow() -> None:
    """Warns once a process, before Pillow opens a foreign image."""
    if int(PIL.__version__.partition(".")[0]) < 13:
        text = 'Pillow %s opens images here, whose JPEG decoder has a known heap overflow: pip install "pillow>=13"'
        logging.getLogger("recordmill").warning(text, PIL.__version__)


class DecodeError(ValueError):
    """The bytes are not an image, or a damaged one."""


def decode(data: Data, channels: int, out: Array | None = None, most: int = MOST_PIXELS) -> Array:
    """Decodes a JPEG or PNG of the build: uint8 [height, width, channels], in `out` if its shape fits.

    Else `out` may be overwritten. Raises: DecodeError: another format, a damaged file, or a header of more than `most`
    pixels.
    """
    if data[:3] == JPEG:
        return jpeg(data, channels, out, most=most)
    if data[:8] != PNG:
        raise DecodeError(f"it is neither JPEG nor PNG: it begins with {bytes(data[:8])!r}")
    image = _opened(data, ("PNG",), load=False)
    _check_pixels(image.width * image.height, most)
    return _channels(_loaded(image).convert("L" if channels == 1 else "RGB"))


def decode_planes(data: Data, pixel: str, channels: int, most: int = MOST_PIXELS) -> Array:
    """Decodes a deep image's PNG: [height, width, channels] of the type `pixel`. Raises: DecodeError."""
    image, mode = _opened(data, ("PNG",), load=False), "L" if pixel == "uint8" else "I;16"
    _check_pixels(image.width * image.height, most)
    planes = planes_of(pixel, channels)
    if image.mode != mode or image.height % planes:
        what = f"a PNG of Pillow's mode {image.mode} with {image.height} rows"
        raise DecodeError(f"it is {what}, not of mode {mode} with {planes} planes")
    pixels = np.asarray(_loaded(image)).reshape(planes, -1, image.width)
    if pixel == "float32":  # high halves first
        pixels = np.stack([pixels[channels:], pixels[:channels]], -1).astype("<u2").view("<f4")[..., 0]
    return np.ascontiguousarray(np.moveaxis(pixels, 0, -1))


def decode_original(data: Data, options: PixelOptions, orientation: int) -> Array:
    """Decodes a user's JPEG, PNG, WebP or BMP, turned by an EXIF orientation, 1..8: uint8 [height, width, channels].

    Sides may be a half, a quarter or an eighth of the file's. Raises: DecodeError: another format, or a damaged file.
    """
    if data[:3] == JPEG:
        height, width, is_ink = _jpeg_header(data)
        sides = (width, height) if is_transposed(orientation) else (height, width)
        ratio = 1 if is_ink else _reduction(sides, options)
        pixels = without_ink(inks(data)) if is_ink else jpeg(data, options.channels, ratio=ratio)
    else:
        pixels = _on_background(_opened(data, FORMATS), options.background, data)
    if pixels.shape[2] != options.channels:
        pixels = grey(pixels)
    return np.ascontiguousarray(upright(pixels, orientation))


def upright(pixels: Array, orientation: int) -> Array:
    """Turns an image, [h, w, channels], by EXIF's orientation: a view, [w, h, channels] for 5..8."""
    if is_transposed(orientation):
        pixels = np.swapaxes(pixels, 0, 1)
    vertical, horizontal = mirrored(orientation)
    return pixels[:: -1 if vertical else 1, :: -1 if horizontal else 1]


def grey(rgb: Array) -> Array:
    """Returns the luma of colours, uint8 [h, w, 3]: uint8 [h, w, 1]."""
    return luma(*np.split(rgb.astype(np.int32), 3, -1)).astype(np.uint8)


def jpeg(data: Data, channels: int, out: Array | None = None, ratio: int = 1, most: int = MOST_PIXELS) -> Array:
    """Decodes a JPEG without turning it: uint8 [height / ratio, width / ratio, channels]; CMYK's for 4 channels.

    `out` and `most` are as in `decode`. Raises: DecodeError: it is cut off or damaged.
    """
    if simplejpeg is not None:
        try:
            high, wide = simplejpeg.decode_jpeg_header(data)[:2] if out is None else (0, 0)
            _check_pixels(high * wide // ratio**2, most)
            # No fast DCT, no fast chroma; the minimum sides make libjpeg choose the ratio.
            least = (high // ratio, wide // ratio) if ratio > 1 else (0, 0)
            pixels = simplejpeg.decode_jpeg(data, SPACES[channels], False, False, *least, buffer=out)
            return pixels if out is None or pixels.shape != out.shape else out
        except DecodeError:
            raise
        except UNREAD:  # `out` is too small, a recoverable warning of libjpeg, or rare subsampling
            if (pixels := _mended(bytes(data), channels, ratio, most)) is not None:
                return pixels
    image, mode = _opened(data, ("JPEG",), load=False), {1: "L"}.get(channels, SPACES[channels])
    _check_pixels(image.width * image.height // ratio**2, most)
    # Grey is the file's luma, not computed from colours.
    image.draft(mode, (image.width // ratio, image.height // ratio))
    pixels = _channels(_loaded(image).convert(mode))
    return 255 - pixels if mode == "CMYK" else pixels


def ends_early(data: bytes) -> bool:
    """Whether a JPEG's pixels end before its end mark, by a decode at an eighth; after odd bytes, by two whole ones."""
    channels = (jpeg_frame(data) or (3,))[-1]
    try:
        simplejpeg.decode_jpeg(data, "CMYK" if channels == 4 else "GRAY", False, False, 1, 1)
        return False
    except (AttributeError, *UNREAD) as error:
        if any(each in str(error) for each in EARLY):
            return True
    # libjpeg names the first of its warnings alone; behind another, more data would change pixels that end early.
    *_, (_, mark, _) = jpeg_walk(data)
    with suppress(DecodeError):
        whole, more = (jpeg(each, channels) for each in (data, data[:mark] + MORE + data[mark:]))
        return not np.array_equal(whole, more)
    return False


def _mended(data: bytes, channels: int, ratio: int, most: int) -> Array | None:
    """Decodes a JPEG with stray bytes or rare subsampling as the graph does; None without OpenCV."""
    high, wide, _ = _jpeg_header(data)
    _check_pixels(high * wide // ratio**2, most)
    data, least = without_metadata(data), (high // ratio, wide // ratio)  # also without stray bytes before the pixels
    if data.endswith(b"\xff\xd9"):
        with suppress(*UNREAD):
            return simplejpeg.decode_jpeg(data, SPACES[channels], False, False, *least, strict=False)
        if opencv.cv2 is None or channels == 4:
            return None
        way = 128 | (8 * ratio if ratio > 1 else 0) | (channels == 3)  # OpenCV's numbers; 128: not turned
        pixels = opencv.cv2.imdecode(np.frombuffer(data, np.uint8), way)
        if pixels is not None:
            return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1)[..., ::-1])  # OpenCV has blue first
    raise DecodeError("the JPEG is cut off or damaged")


def inks(data: Data) -> Array:
    """Decodes a JPEG of CMYK: uint8 [height, width, 4], 255 where the ink covers the paper. Raises: as `jpeg`."""
    counts_paper = "adobe_transform" in _opened(data, ("JPEG",), load=False).info  # by Adobe's marker, as in the graph
    return 255 - jpeg(data, 4) if counts_paper else jpeg(data, 4)


def without_ink(ink: Array) -> Array:
    """Shows inks, uint8 [height, width, 4], as the graph's libjpeg does: uint8 [height, width, 3]."""
    rgb = np.empty((*ink.shape[:2], 3), np.uint8)
    for top in range(0, len(ink), ROWS):
        paper = 255 - ink[top : top + ROWS].astype(np.uint16)
        rgb[top : top + ROWS] = paper[..., :3] * paper[..., 3:] // 255
    return rgb


def _jpeg_header(data: Data) -> tuple[int, int, bool]:
    """Returns a JPEG's height and width, and whether it is of CMYK."""
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        return height, width, space in ("CMYK", "YCCK")
    except (AttributeError, *UNREAD):  # simplejpeg is missing, or refuses the header
        image = _opened(data, ("JPEG",), load=False)
        return image.height, image.width, image.mode == "CMYK"


def _reduction(sides: tuple[int, int], options: PixelOptions) -> int:
    """Returns the divisor of an upright JPEG's size for decoding (as `decode_graph`)."""
    if options.reduced_from is None or max(sides) < options.reduced_from:
        return 1
    goal = placed(sides, options)
    for ratio in RATIOS:
        is_whole = all(side % ratio == 0 for side in (*sides, *goal.start, *goal.box))
        if is_whole and all(box >= SPARE * ratio * scaled for box, scaled in zip(goal.box, goal.scaled, strict=True)):
            return ratio
    return 1


def _check_pixels(pixels: int, most: int) -> None:
    """Refuses a too large image before allocation: 700 bytes may state 65,500 x 65,500."""
    if pixels > most:
        raise DecodeError(f"its header states {pixels:,} pixels, above the limit of {most:,}")


def _opened(data: Data, formats: tuple[str, ...], load: bool = True) -> Image.Image:
    warn_of_old_pillow()
    try:
        read_header(bytes(data))  # counts parts that slow Pillow down
        image = Image.open(io.BytesIO(data), formats=formats)
    except Exception as error:  # hostile bytes raise any: struct.error, SyntaxError, MemoryError, …
        raise DecodeError(f"it is not {' or '.join(formats)}, or is cut off or damaged") from error
    return _loaded(image) if load else image


def _loaded(image: Image.Image) -> Image.Image:
    try:
        image.load()
    except Exception as error:  # as above
        raise DecodeError(f"the {image.format} is cut off or damaged: {error}") from error
    return image


def _on_background(image: Image.Image, background: Sequence[int], data: Data) -> Array:
    """Lays an image's alpha on the background: uint8 [h, w, 3]."""
    if not image.has_transparency_data:
        return _eight_bits(image)
    clear, depth = image.info.get("transparency"), data[DEPTH] if image.format == "PNG" else 8
    if clear is None or image.mode == "P" or depth in (1, 8):
        rgba = np.asarray(image.convert("RGBA")).astype(np.int32)
        colours, alpha = rgba[..., :3], rgba[..., 3:]
    # Pillow compares this PNG's transparent colour with 8-bit pixels, which these were not.
    elif image.mode == "RGB":
        raise DecodeError("it is a PNG of 16 bits with a clear colour, which TensorFlow alone decodes: `store: png`")
    else:
        samples = np.asarray(image)[..., np.newaxis].astype(np.int32)
        key = clear if depth == 16 else clear * (255 // (2**depth - 1))
        colours, alpha = _eight_bits(image).astype(np.int32), np.where(samples == key, 0, 255)
    behind = np.array(background, np.int32)
    return (((colours - behind) * alpha + 255 * behind + 127) // 255).astype(np.uint8)


def _eight_bits(image: Image.Image) -> Array:
    if not image.mode.startswith("I;16"):
        return np.asarray(image.convert("RGB"))
    return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., np.newaxis], 3, -1)


def _channels(image: Image.Image) -> Array:
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)
