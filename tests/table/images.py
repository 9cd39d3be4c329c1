"""Cases of images, and of what lies on them: boxes, masks, key points.

Pictures have few pixels: their levels tell the row, the place and the band. What is right comes from Pillow, from
`area` and `kernel` here, and from arithmetic by hand.
"""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps, JpegImagePlugin

from tests.profiles import curve, display
from tests.table.case import ABSENT, ROWS, TRAIN, Case, Check, File, Rejected, difference, float32, int64

Levels: TypeAlias = np.ndarray[Any, Any]  # [height, width, bands]
COUNT = len(ROWS)
SIDES = [(4, 8), (8, 4), (2, 2), (4, 4), (8, 8), (4, 8), (8, 4), (2, 4)]
"""Heights and widths by row: in 4 x 4 they are halved or doubled, and margins have 1 pixel or none."""
WHITE = (255, 255, 255)
LEVEL = 1.01
"""What is computed in another order may be rounded to the next level."""


def picture(row: int, sides: tuple[int, int] | None = None, bands: int = 3) -> Levels:
    """Levels that differ by row, place and band."""
    y, x, band = np.indices((*(sides or SIDES[row % COUNT]), bands))
    return ((29 * row + 67 * y + 101 * x + 43 * band) % 256).astype(np.uint8)


def smooth(row: int, sides: tuple[int, int] | None = None) -> Levels:
    """Levels that rise slowly, as JPEG keeps them."""
    y, x, band = np.indices((*(sides or SIDES[row % COUNT]), 3))
    return (10 + 5 * row + 6 * y + 7 * x + 40 * band).astype(np.uint8)


# Files


def saved(levels: Any, form: str, **options: Any) -> bytes:
    """Levels, or a Pillow image, in a file as Pillow writes it."""
    image = levels if isinstance(levels, Pillow.Image) else opened_levels(levels)
    image.save(file := io.BytesIO(), form, **options)
    return file.getvalue()


def opened_levels(levels: Levels) -> Pillow.Image:
    return Pillow.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels)


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


def as_png(levels: Levels) -> Check:
    """A PNG of these levels."""
    return stored(lambda data, one: _wrong_file(data, "PNG", one), levels)


def as_jpeg(levels: Levels, *, quality: int = 95, chroma: int = 2) -> Check:
    """A JPEG near these levels, of the quality's tables and this sampling of colours: 0 is 4:4:4, 2 is 4:2:0."""
    tables = Pillow.open(io.BytesIO(saved(smooth(0), "JPEG", quality=quality))).quantization

    def wrong(data: bytes, one: Levels) -> str | None:
        image = Pillow.open(io.BytesIO(data))
        if image.format == "JPEG" and (image.quantization, JpegImagePlugin.get_sampling(image)) != (tables, chroma):
            return f"a JPEG of other tables than quality {quality}'s, or of the sampling {image.layer}"
        return _wrong_file(data, "JPEG", one, 2)

    return stored(wrong, levels)


def as_raw(levels: Levels) -> Check:
    """Little-endian numbers, row by row."""
    return stored(lambda data, one: difference(one.tobytes(), data), levels)


def _wrong_file(data: bytes, form: str, levels: Levels, within: float = 0) -> str | None:
    image = Pillow.open(io.BytesIO(data))
    found = np.asarray(image).reshape(*image.size[::-1], -1)
    return f"a file of {image.format}" if image.format != form else difference(levels, found, within=within)


# Scaling


def area(levels: Levels, height: int, width: int) -> Levels:
    """The mean of what lies under each pixel."""
    repeated = levels.astype(float).repeat(height, 0).repeat(width, 1)
    means = repeated.reshape(height, levels.shape[0], width, levels.shape[1], -1).mean((1, 3))
    return (np.rint(means) if levels.dtype.kind == "u" else means).astype(levels.dtype)


def nearest(levels: Levels, height: int, width: int) -> Levels:
    """The pixel under each pixel's middle."""
    y, x = (((2 * np.arange(to) + 1) * of) // (2 * to) for to, of in ((height, len(levels)), (width, levels.shape[1])))
    return levels[y][:, x]


def auto(levels: Levels, height: int, width: int) -> Levels:
    """Means where the result has fewer pixels, or as many; else bilinear."""
    shrinks = height * width <= levels.shape[0] * levels.shape[1]
    return (area if shrinks else by_pillow(Pillow.Resampling.BILINEAR))(levels, height, width)


Scale: TypeAlias = Callable[[Levels, int, int], Levels]


def by_pillow(method: Pillow.Resampling) -> Scale:
    return lambda levels, height, width: np.asarray(Pillow.fromarray(levels).resize((width, height), method))


def by_kernel(kernel: Callable[[float], float], radius: float, *, widens: bool = True) -> Scale:
    """Weighted means by a kernel of the distance, which widens where a side shrinks."""

    def weights(of: int, to: int) -> Levels:
        wide = max(1.0, of / to) if widens else 1.0
        far = (np.arange(of)[np.newaxis] + 0.5 - (np.arange(to)[:, np.newaxis] + 0.5) * of / to) / wide
        given = np.vectorize(lambda each: kernel(each) if abs(each) < radius else 0.0)(far)
        return np.asarray(given / given.sum(1, keepdims=True))

    def scale(levels: Levels, height: int, width: int) -> Levels:
        rows, columns = weights(len(levels), height), weights(levels.shape[1], width)
        return np.rint(np.clip(np.einsum("hy,yxc,wx->hwc", rows, levels, columns), 0, 255)).astype(np.uint8)

    return scale


def _mitchell(x: float) -> float:
    """Mitchell and Netravali's cubic of B = C = 1/3."""
    x = abs(x)
    return (7 * x**3 - 12 * x**2 + 16 / 3 if x < 1 else -7 / 3 * x**3 + 12 * x**2 - 20 * x + 32 / 3) / 6


TRIANGLE = by_kernel(lambda x: 1 - abs(x), 1, widens=False)
LANCZOS5 = by_kernel(lambda x: float(np.sinc(x) * np.sinc(x / 5)), 5)
GAUSSIAN = by_kernel(lambda x: math.exp(-(x**2) / (2 * 0.5**2)), 1.5)
MITCHELL = by_kernel(_mitchell, 2)


def pad(levels: Levels, scale: Scale = auto, fill: Any = WHITE, size: int = 4) -> Levels:
    """The whole picture in a square of the size, centred."""
    height, width = (size * side // max(levels.shape[:2]) for side in levels.shape[:2])
    result = np.full((size, size, levels.shape[2]), fill, levels.dtype)
    top, left = (size - height) // 2, (size - width) // 2
    result[top : top + height, left : left + width] = scale(levels, height, width)
    return result


def crop(levels: Levels, scale: Scale = auto) -> Levels:
    """The centre as a square of 4 x 4."""
    side = min(levels.shape[:2])
    return scale(centre(levels, side), 4, 4)


def centre(levels: Levels, side: int) -> Levels:
    top, left = ((of - side) // 2 for of in levels.shape[:2])
    return levels[top : top + side, left : left + side]


# Normalized levels, of all rows together


Normalized: TypeAlias = Callable[[Sequence[Levels]], list[Any]]


def by(mean: Any, std: Any, *, unit: float = 255) -> Normalized:
    """(level / unit - mean) / std."""
    return lambda rows: float32([(row / unit - np.array(mean)) / np.array(std) for row in rows])


def by_train(rows: Sequence[Levels]) -> list[Any]:
    """Mean 0 and variance 1 in each band of the six rows of `train`."""
    pixels = np.concatenate([row.reshape(-1, row.shape[-1]) for row in rows[TRAIN]]).astype(float)
    return by(pixels.mean(0), pixels.std(0), unit=1)(rows)


ZERO_ONE, MINUS_ONE_ONE = by(0, 1), by(0.5, 0.5)
IMAGENET = by([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = by([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])


def caffe(rows: Sequence[Levels]) -> list[Any]:
    """Blue, green and red without their means."""
    return by([103.939, 116.779, 123.68], 1, unit=1)([row[..., ::-1] for row in rows])


# Images


def both(
    name: str,
    options: str,
    wanted: Callable[[Levels], Levels],
    *,
    given: Callable[[int], Levels] = picture,
    file: Callable[[Levels], File] = png,
    normalized: Normalized = ZERO_ONE,
    as_stored: Callable[[Levels], Any] = as_png,
    within: float = 0.0,
) -> dict[str, Case]:
    """Cases of one image a row, and of one or two, with equal options: the levels wanted of each."""
    one, some = (
        [given(row) for row in range(COUNT)],
        [[given(row), given(row + 3)][: 1 + row % 2] for row in range(COUNT)],
    )
    levels, lists = [wanted(each) for each in one], [np.stack([wanted(each) for each in row]) for row in some]
    stored_one, stored_some = ([as_stored(row) for row in rows] for rows in (levels, lists))
    image = Case(
        f"{{kind: image, {options}}}", [*map(file, one)], {"": normalized(levels)}, {"": stored_one}, within=within
    )
    frames = {"": normalized(lists), "+length": [np.int64(len(row)) for row in some]}
    raw = [[*map(file, row)] for row in some]
    sequence = Case(f"{{kind: image_sequence, {options}}}", raw, frames, {"": stored_some}, within=within)
    return {f"image_{name}": image, f"image_sequence_{name}": sequence}


def stretched(scale: Scale) -> Callable[[Levels], Levels]:
    return lambda levels: scale(levels, 3, 5)


METHODS = {
    **both(
        "area",
        "size: [3, 5], fit: stretch, resize: area, normalize: imagenet, store: png",
        stretched(area),
        normalized=IMAGENET,
    ),
    **both(
        "nearest",
        "size: 4, fit: crop, resize: nearest, normalize: none, store: raw",
        lambda levels: crop(levels, nearest),
        normalized=list,
        as_stored=as_raw,
    ),
    **both(
        "bilinear",
        "size: [3, 5], fit: stretch, resize: bilinear, normalize: clip",
        stretched(by_pillow(Pillow.Resampling.BILINEAR)),
        normalized=CLIP,
    ),
    **both(
        "sparse",
        "size: [3, 5], fit: stretch, resize: bilinear, antialias: false, normalize: minus_one_one",
        stretched(TRIANGLE),
        normalized=MINUS_ONE_ONE,
    ),
    **both(
        "bicubic",
        "size: [3, 5], fit: stretch, resize: bicubic, normalize: inception",
        stretched(by_pillow(Pillow.Resampling.BICUBIC)),
        normalized=MINUS_ONE_ONE,
    ),
    **both(
        "lanczos3",
        "size: [3, 5], fit: stretch, resize: lanczos3, normalize: caffe",
        stretched(by_pillow(Pillow.Resampling.LANCZOS)),
        normalized=caffe,
    ),
    **both(
        "lanczos5",
        "size: [3, 5], fit: stretch, resize: lanczos5, normalize: dataset",
        stretched(LANCZOS5),
        normalized=by_train,
    ),
    **both(
        "gaussian",
        "size: [3, 5], fit: stretch, resize: gaussian, normalize: {mean: [0.1, 0.2, 0.3], std: [0.5, 0.25, 0.2]}",
        stretched(GAUSSIAN),
        normalized=by([0.1, 0.2, 0.3], [0.5, 0.25, 0.2]),
    ),
    **both("mitchell", "size: [3, 5], fit: stretch, resize: mitchellcubic", stretched(MITCHELL)),
}
CASES: dict[str, Case] = {**METHODS}
SPECS: dict[str, dict[str, object]] = {}
