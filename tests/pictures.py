"""Pictures of every format as bytes, made from nothing: what the tests of images decode."""

import io
import struct
import zlib
from functools import lru_cache
from typing import Any

import numpy as np
import pillow_heif.HeifImagePlugin  # noqa: F401 - Pillow then writes HEIF
from PIL import Image as Picture

from recordmill.transforms.images.image_header import PNG
from recordmill.transforms.images.image_spec import Image

RANDOM = np.random.default_rng(0)
PIXELS = np.kron(RANDOM.integers(0, 256, (6, 9, 3)), np.ones((3, 3, 1))).astype(np.uint8)  # 18 x 27
BACKGROUND = (250, 120, 7)
ORIENTATION = 0x0112
LOSSLESS = {
    "WEBP": {"lossless": True, "exact": True},
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},  # within 3 levels
    "HEIF": {"quality": -1, "chroma": 444},  # within 1
}


def options(**keys: Any) -> Image:
    """An image's options as the graph takes them, 8 x 8 by default."""
    sizes = {} if {"shorter_side", "fit", "store"} & keys.keys() and keys.get("size", 0) is None else {"size": (8, 8)}
    return Image(kind="image", **{**sizes, "background": BACKGROUND, **keys})


def saved(pixels: Any = PIXELS, form: str = "JPEG", **keys: Any) -> bytes:
    """A picture as Pillow writes it."""
    file = io.BytesIO()
    picture = pixels if isinstance(pixels, Picture.Image) else Picture.fromarray(pixels)
    picture.save(file, form, **{**LOSSLESS.get(form, {}), **keys})
    return file.getvalue()


@lru_cache(maxsize=100)
def photo(seed: int, size: tuple[int, int] = (160, 120)) -> Picture.Image:
    """A picture with coarse and fine structure, as photos have; of another seed another."""
    random, pixels = np.random.default_rng(seed), np.zeros((size[1], size[0], 3))
    for side, weight in ((3, 0.5), (6, 0.3), (12, 0.15), (40, 0.05)):
        coarse = Picture.fromarray(random.integers(0, 256, (side, side, 3), np.uint8))
        pixels += weight * np.asarray(coarse.resize(size, Picture.Resampling.BICUBIC))
    return Picture.fromarray(pixels.astype(np.uint8))


def turned(form: str, orientation: int, pixels: Any = PIXELS) -> bytes:
    """A picture whose EXIF, or TIFF's tag, states an orientation."""
    exif = Picture.Exif()
    exif[ORIENTATION] = orientation
    tag = {"tiffinfo": {ORIENTATION: orientation}} if form == "TIFF" else {"exif": exif.tobytes()}
    return saved(pixels, form, **tag)


def animated(form: str, frames: int = 3) -> bytes:
    """Several pictures of one size, the first of them PIXELS."""
    pictures = [Picture.fromarray(np.roll(PIXELS, shift, 0)) for shift in range(frames)]
    return saved(pictures[0], form, save_all=True, append_images=pictures[1:])


def opened(data: bytes, mode: str = "RGB") -> np.ndarray:
    """The pixels that Pillow decodes, [height, width, channels]."""
    pixels = np.asarray(Picture.open(io.BytesIO(data)).convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)


def chunk(name: bytes, payload: bytes) -> bytes:
    """One of a PNG."""
    return struct.pack(">I", len(payload)) + name + payload + struct.pack(">I", zlib.crc32(name + payload))


def png(samples: np.ndarray, depth: int, colour: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of any type; samples are numbers below 2 ** depth, shape [height, width, samples a pixel]."""
    height, width, _ = samples.shape
    bits = (samples[..., None] >> np.arange(depth)[::-1]) & 1
    rows = np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows)))
    return PNG + head + b"".join(chunk(*each) for each in chunks) + data + chunk(b"IEND", b"")


def bmp(rows: bytes, height: int, width: int, bits: int, compression: int = 0, head: int = 40) -> bytes:
    """A BMP of rows that are padded already, from below up where the height is positive."""
    info = struct.pack("<IiiHHIIiiII", head, width, height, 1, bits, compression, 0, 0, 0, 0, 0) + bytes(head - 40)
    return struct.pack("<2sIHHI", b"BM", 14 + head + len(rows), 0, 0, 14 + head) + info + rows


def luma(rgb: Any) -> np.ndarray:
    """Grey by BT.601 in 16 bits, [..., 1]."""
    red, green, blue = np.moveaxis(np.asarray(rgb, np.int64), -1, 0)
    return ((19_595 * red + 38_470 * green + 7_471 * blue + 32_768) // 65_536)[..., None]


def composited(colours: np.ndarray, alpha: np.ndarray, background: Any = BACKGROUND) -> np.ndarray:
    """Colours [h, w, 3] by their alpha [h, w] on the background, exactly."""
    alpha = alpha[..., None].astype(int)
    return (colours.astype(int) * alpha + np.array(background) * (255 - alpha) + 127) // 255


def psnr(one: Any, other: Any) -> float:
    """How alike two pictures of bytes are, in dB: the peak signal to noise ratio."""
    error = np.mean((np.asarray(one, float) - np.asarray(other, float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))
