"""Perceptual hashes, 16 bytes that differ little between scaled, re-encoded or brightened copies; and appearance.

The shape is the hash of C. Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions" (2010), as in
pHash: 8 x 8 low frequencies of the grey image's cosine transform, each a bit: above their median or not. The colours
are the mean chroma of the image's quarters, since red and blue hearts have one shape. By the appearance of images the
gate detects inverted, grey, blurred or recoloured ones (`pipeline.compare`).

>>> perceptual_hash(open("cat.jpg", "rb").read(), max_pixels=64_000_000).hex()  # doctest: +SKIP
'4ad90effb1c44ca7826c1a8e7f80807f'
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.pipeline.build.images.transcode import TURNS, open_image
from recordmill.pipeline.sources.files import is_machine_fault
from recordmill.transforms.images import image_header, image_parts, image_rules
from recordmill.transforms.images.decode import decode_planes, upright
from recordmill.transforms.images.image_stored import PixelOptions
from recordmill.transforms.images.pixels import stretched

COLOURS = PixelOptions()
SIDE = 32
NONE = bytes(16)
GREY = (128, 128, 128, 255)  # the background of transparent pixels; drawings rather use black or white
MIN_DETAIL = 40.0
"""The least root mean square of the 64 frequencies; below, an image is flat noise. 8 bits' rounding gives 5."""
WAVES = np.cos(np.pi / SIDE * (np.arange(SIDE) + 0.5) * np.arange(1, 9)[:, None])
"""Rows 1 to 8 of the cosine transform; row 0 is the mean."""


def perceptual_hash(data: bytes, max_pixels: int, options: PixelOptions = COLOURS) -> bytes:
    """Returns a file's hashes, 8 bytes of shape and 8 of colours.

    Zeros for a flat, damaged or unsupported image, and for one of more than `max_pixels`. Of deep `options`, `data` is
    a PNG of planes, looked at `stretched`.
    Raises: MemoryError, ImportError, OSError: the machine failed (`pipeline.sources.files`).
    """
    pixels = small_pixels(data, max_pixels, options)
    if pixels is None:
        return NONE
    frequencies = (WAVES @ pixels[..., 0] @ WAVES.T).ravel()
    if np.sqrt(np.mean(frequencies**2)) < MIN_DETAIL:
        return NONE
    shape = np.packbits(frequencies > np.median(frequencies))
    quarters = pixels[..., 1:].reshape(2, SIDE // 2, 2, SIDE // 2, 2).mean((1, 3)).round().astype(np.uint8)
    return shape.tobytes() + quarters.tobytes()


def small_pixels(data: bytes, max_pixels: int, options: PixelOptions = COLOURS) -> npt.NDArray[np.float64] | None:
    """Returns an upright image in luma and chroma, 0 to 255, [32, 32, 3]; None and `Raises` as `perceptual_hash`."""
    try:
        if options.planes:
            shown = stretched(decode_planes(data, options.pixel, options.channels))
            return np.asarray(_plain(Image.fromarray(shown[..., 0] if shown.shape[2] == 1 else shown)), np.float64)
        form = image_header.NAMED[image_header.check_header(data, max_pixels).format]
        with open_image(data, form, max_pixels) as image:
            if form.name == "JPEG":  # a HEIF's thumbnail may show anything
                image.draft("YCbCr", (2 * SIDE, 2 * SIDE))  # decoded at 1/8 of the sides
            image.load()
            image.info.pop(image_parts.RAW, None)
            turn = image.getexif().get(image_rules.TAG, 1)
            small = np.asarray(_plain(image), np.float64)
        return upright(small, turn) if turn in TURNS and not form.turned_by_pillow else small
    except Exception as error:  # hostile bytes raise any; building the shard rejects the row
        if is_machine_fault(error):
            raise
        return None


def _plain(image: Image.Image) -> Image.Image:
    """Converts a small image to YCbCr without transparency."""
    if image.mode.startswith("I"):  # 16 bits
        high = np.asarray(image.convert("I").resize((SIDE, SIDE), Image.Resampling.BOX)) >> 8
        image = Image.fromarray(high.clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        clear = image if image.mode == "RGBA" else image.convert("RGBA")
        small = clear.resize((SIDE, SIDE), Image.Resampling.BOX)
        back = Image.new("RGBA", small.size, GREY)
        back.alpha_composite(small)
        return back.convert("RGB").convert("YCbCr")
    plain = image if image.mode in ("L", "RGB", "YCbCr", "CMYK") else image.convert("RGB")
    small = plain.resize((SIDE, SIDE), Image.Resampling.BOX)
    return small if small.mode == "YCbCr" else small.convert("RGB").convert("YCbCr")


MEASURES = ("brightness", "saturation", "blue", "red", "sharpness")
STEPS = 16  # of a level: few enough values for an exact histogram


def appearance(
    images: Iterable[bytes], max_pixels: int, options: PixelOptions = COLOURS
) -> dict[str, npt.NDArray[np.float32]]:
    """Measures images at 32 × 32 pixels, leaving out damaged and unsupported ones. Raises as `perceptual_hash`.

    Returns, by measure, in levels of 0 to 255, float32 [measured images] in steps of 1/16: mean luma; mean length of
    chroma; its means along blue and red; and mean difference of neighbours' luma.
    """
    measured = list[tuple[float, ...]]()
    for data in images:
        pixels = small_pixels(data, max_pixels, options)
        if pixels is None:
            continue
        luma, chroma = pixels[..., 0], pixels[..., 1:] - 128
        blue, red = chroma.mean((0, 1)).tolist()
        edges = (np.abs(np.diff(luma, axis=axis)).mean() for axis in (0, 1))
        measured.append((float(luma.mean()), float(np.hypot(*chroma.T).mean()), blue, red, float(sum(edges)) / 2))
    columns = np.rint(STEPS * np.array(measured).reshape(-1, len(MEASURES)).T) / STEPS
    return dict(zip(MEASURES, columns.astype(np.float32), strict=True))
