"""Small pictures for the table, and what is right of them: by Pillow, by `area` and `by_kernel`, by arithmetic.

A picture's levels tell the row, the place and the band.
"""

import base64
import io
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps, JpegImagePlugin

from tests.table.case import ROWS, TRAIN, Check, File, difference, float32

Levels: TypeAlias = np.ndarray[Any, Any]  # [height, width, bands]
Scale: TypeAlias = Callable[[Levels, int, int], Levels]
Normalized: TypeAlias = Callable[[Sequence[Levels]], list[Any]]
COUNT = len(ROWS)
SIDES = [(4, 8), (8, 4), (2, 2), (4, 4), (8, 8), (4, 8), (8, 4), (2, 4)]
"""Heights and widths by row: in 4 x 4 they are halved or doubled, and margins have 1 pixel or none."""
WHITE = (255, 255, 255)
LEVEL = 1.01
"""The tolerance for sums in another order: the next level."""


def picture(row: int, sides: tuple[int, int] | None = None, bands: int = 3) -> Levels:
    """Levels that differ by row, place and band."""
    y, x, band = np.indices((*(sides or SIDES[row % COUNT]), bands))
    return ((29 * row + 67 * y + 101 * x + 43 * band) % 256).astype(np.uint8)


def smooth(row: int, sides: tuple[int, int] | None = None) -> Levels:
    """Levels that rise slowly, as JPEG keeps them."""
    y, x, band = np.indices((*(sides or SIDES[row % COUNT]), 3))
    return (10 + 5 * row + 6 * y + 7 * x + 40 * band).astype(np.uint8)


def by_row(make: Callable[[int], Any]) -> list[Any]:
    """Makes one for each row."""
    return [*map(make, range(COUNT))]


PICTURES = by_row(picture)

# Files


def saved(levels: Any, form: str, **options: Any) -> bytes:
    """Levels, or a Pillow image, in a file as Pillow writes it."""
    if not isinstance(levels, Pillow.Image):
        levels = Pillow.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels)
    levels.save(file := io.BytesIO(), form, **options)
    return file.getvalue()


def png(levels: Any, **options: Any) -> File:
    return File(".png", saved(levels, "PNG", **options))


def jpeg(levels: Any, **options: Any) -> File:
    return File(".jpg", saved(levels, "JPEG", **{"quality": 95, **options}))


def npy(numbers: Any) -> File:
    np.save(file := io.BytesIO(), numbers)
    return File(".npy", file.getvalue())


def turned(levels: Any, orientation: int) -> File:
    """A PNG whose EXIF states an orientation."""
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    return png(levels, exif=exif)


def upright(file: File) -> Levels:
    """A file's levels, turned as its EXIF says, by Pillow."""
    levels = np.asarray(ImageOps.exif_transpose(Pillow.open(io.BytesIO(file.content))))
    return levels.reshape(*levels.shape[:2], -1)


def url(file: File) -> str:
    return f"data:image/png;base64,{base64.b64encode(file.content).decode()}"


# Stored files


def stored(wrong: Callable[[bytes, Levels], str | None], levels: Levels) -> Check:
    """Right bytes of an image, or of the images of a sequence."""
    rows = levels if levels.ndim == 4 else levels[np.newaxis]

    def wrong_files(found: Any) -> str | None:
        files = [found] if isinstance(found, bytes) else list(found)
        said = [wrong(file, one) for file, one in zip(files, rows, strict=False)]
        return f"{len(files)} files" if len(files) != len(rows) else next(filter(None, said), None)

    return Check(wrong_files)


def as_png(levels: Levels, within: float = 0) -> Check:
    """A PNG of these levels, without metadata."""
    return stored(lambda data, one: _wrong_file(data, "PNG", one, within), levels)


def as_jpeg(levels: Levels, *, quality: int = 95, chroma: int = 2) -> Check:
    """A JPEG near these levels, with Pillow's tables of the quality; `chroma` 0 is 4:4:4, 2 is 4:2:0."""

    def wrong(data: bytes, one: Levels) -> str | None:
        files = (data, saved(one, "JPEG", quality=quality, subsampling=chroma))
        found, wanted = (_properties(Pillow.open(io.BytesIO(file))) for file in files)
        return f"{found}, not {wanted}" if found != wanted else _wrong_file(data, "JPEG", one, 2)

    return stored(wrong, levels)


def _properties(image: Any) -> tuple[Any, ...]:
    sampling = JpegImagePlugin.get_sampling(image) if image.format == "JPEG" else None
    return image.format, sampling, getattr(image, "quantization", None)


def as_raw(levels: Levels, within: float = 0) -> Check:
    """Little-endian numbers, row by row."""

    def wrong(data: bytes, one: Levels) -> str | None:
        found = np.frombuffer(data, one.dtype.newbyteorder("<")).astype(one.dtype)
        return difference(one.ravel(), found, within=within)

    return stored(wrong, levels)


def _wrong_file(data: bytes, form: str, levels: Levels, within: float = 0) -> str | None:
    image = Pillow.open(io.BytesIO(data))
    found = np.asarray(image).reshape(*image.size[::-1], -1)
    if image.format != form or image.info.keys() & {"comment", "exif", "icc_profile"}:
        return f"a file of {image.format} with {[*image.info]}"
    return difference(levels, found, within=within)


# Scaling


def area(levels: Levels, height: int, width: int) -> Levels:
    """The mean of what lies under each pixel."""
    repeated = levels.astype(float).repeat(height, 0).repeat(width, 1)
    means = repeated.reshape(height, levels.shape[0], width, levels.shape[1], -1).mean((1, 3))
    return _as(levels, means)


def nearest(levels: Levels, height: int, width: int) -> Levels:
    """The pixel under each pixel's middle."""
    y, x = (((2 * np.arange(to) + 1) * of) // (2 * to) for to, of in ((height, len(levels)), (width, levels.shape[1])))
    return levels[y][:, x]


def by_kernel(kernel: Callable[[float], float], radius: float, *, widens: bool = True) -> Scale:
    """Weighted means by a kernel of the distance, which widens where a side shrinks, as in Pillow."""

    def weights(of: int, to: int) -> Levels:
        wide = max(1.0, of / to) if widens else 1.0
        far = (np.arange(of)[np.newaxis] + 0.5 - (np.arange(to)[:, np.newaxis] + 0.5) * of / to) / wide
        given = np.vectorize(lambda each: kernel(each) if abs(each) < radius else 0.0, [float])(far)
        return np.asarray(given / given.sum(1, keepdims=True))

    def scale(levels: Levels, height: int, width: int) -> Levels:
        rows, columns = weights(len(levels), height), weights(levels.shape[1], width)
        return _as(levels, np.einsum("hy,yxc,wx->hwc", rows, levels, columns))

    return scale


def _as(levels: Levels, scaled: Levels) -> Levels:
    """Rounds whole levels, and keeps them in their range."""
    if levels.dtype.kind == "u":
        scaled = np.clip(np.rint(scaled), 0, np.iinfo(levels.dtype).max)
    return scaled.astype(levels.dtype)


def _cubic(x: float) -> float:
    """Keys' cubic of a = -0.5, Pillow's and Catmull and Rom's."""
    x = abs(x)
    return 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2


def _mitchell(x: float) -> float:
    """Mitchell and Netravali's cubic of B = C = 1/3."""
    x = abs(x)
    return (7 * x**3 - 12 * x**2 + 16 / 3 if x < 1 else -7 / 3 * x**3 + 12 * x**2 - 20 * x + 32 / 3) / 6


TRIANGLE = by_kernel(lambda x: 1 - abs(x), 1, widens=False)
GAUSSIAN = by_kernel(lambda x: math.exp(-(x**2) / (2 * 0.5**2)), 1.5)
LANCZOS3, LANCZOS5 = (by_kernel(lambda x, a=a: float(np.sinc(x) * np.sinc(x / a)), a) for a in (3, 5))
CUBIC, MITCHELL = by_kernel(_cubic, 2), by_kernel(_mitchell, 2)


def auto(levels: Levels, height: int, width: int) -> Levels:
    """Means where the result has fewer pixels, or as many; else bilinear."""
    return (area if height * width <= levels.shape[0] * levels.shape[1] else TRIANGLE)(levels, height, width)


# Places and colours


Sides: TypeAlias = tuple[int, int]


def pad(levels: Levels, scale: Scale = auto, fill: Any = 0, size: Sides = (4, 4)) -> Levels:
    """The whole picture in the size, centred; an odd margin is larger below and to the right."""
    share = min(to / of for to, of in zip(size, levels.shape, strict=False))
    height, width = (round(share * side) for side in levels.shape[:2])
    result = np.full((*size, levels.shape[2]), fill, levels.dtype)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    result[top : top + height, left : left + width] = scale(levels, height, width)
    return result


def crop(levels: Levels, scale: Scale = auto, size: Sides = (4, 4)) -> Levels:
    """The largest centre of the size's shape, scaled to it."""
    height, width = levels.shape[:2]
    across, down = int(height * size[1] / size[0] + 0.5), int(width * size[0] / size[1] + 0.5)
    return scale(centre(levels, (min(height, down), min(width, across))), *size)


def centre(levels: Levels, sides: Sides) -> Levels:
    top, left = ((of - to) // 2 for of, to in zip(levels.shape, sides, strict=False))
    return levels[top : top + sides[0], left : left + sides[1]]


def shorter(levels: Levels, side: int, scale: Scale | None = None) -> Levels:
    """The shorter side as so many pixels."""
    return (scale or auto)(levels, *(side * each // min(levels.shape[:2]) for each in levels.shape[:2]))


def on(levels: Levels, background: tuple[int, int, int]) -> Levels:
    """Transparent pixels, with alpha as the fourth band, on a colour."""
    alpha = levels[..., 3:].astype(int)
    return ((levels[..., :3] * alpha + np.array(background) * (255 - alpha) + 127) // 255).astype(np.uint8)


def grey(levels: Levels) -> Levels:
    """Luma by ITU-R BT.601, as Pillow's mode L."""
    return np.asarray(Pillow.fromarray(levels).convert("L"))[..., np.newaxis]


def through_jpeg(levels: Levels, **options: Any) -> Levels:
    """Encodes and decodes levels by Pillow's libjpeg."""
    return np.asarray(Pillow.open(io.BytesIO(jpeg(levels, **options).content)))


def from_linear(levels: Levels) -> Levels:
    """Levels of light in sRGB's curve."""
    light = levels / 255
    bent = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.rint(255 * bent).astype(np.uint8)


# Normalized levels, of all rows together


def by(mean: Any, std: Any, *, unit: float = 255) -> Normalized:
    """(level / unit - mean) / std."""
    return lambda rows: float32([(row / unit - np.array(mean)) / np.array(std) for row in rows])


def by_train(rows: Sequence[Levels]) -> list[Any]:
    """Mean 0 and variance 1 in each band of the six rows of `train`."""
    pixels = np.concatenate([row.reshape(-1, row.shape[-1]) for row in rows[TRAIN]]).astype(float)
    return by(pixels.mean(0), pixels.std(0), unit=1)(rows)


def caffe(rows: Sequence[Levels]) -> list[Any]:
    """Blue, green and red without their means."""
    return by([103.939, 116.779, 123.68], 1, unit=1)([row[..., ::-1] for row in rows])


ZERO_ONE, MINUS_ONE_ONE = by(0, 1), by(0.5, 0.5)
IMAGENET = by([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = by([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
