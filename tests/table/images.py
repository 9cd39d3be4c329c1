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
Scale: TypeAlias = Callable[[Levels, int, int], Levels]
Normalized: TypeAlias = Callable[[Sequence[Levels]], list[Any]]
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


def as_png(levels: Levels, within: float = 0) -> Check:
    """A PNG of these levels, without metadata."""
    return stored(lambda data, one: _wrong_file(data, "PNG", one, within), levels)


def as_jpeg(levels: Levels, *, quality: int = 95, chroma: int = 2) -> Check:
    """A JPEG near these levels, of the quality's tables and this sampling of colours: 0 is 4:4:4, 2 is 4:2:0."""
    tables = Pillow.open(io.BytesIO(saved(smooth(0), "JPEG", quality=quality))).quantization

    def wrong(data: bytes, one: Levels) -> str | None:
        image = Pillow.open(io.BytesIO(data))
        if image.format == "JPEG" and (image.quantization, JpegImagePlugin.get_sampling(image)) != (tables, chroma):
            return f"a JPEG of other tables than quality {quality}'s, or of the sampling {image.layer}"
        return _wrong_file(data, "JPEG", one, 2)

    return stored(wrong, levels)


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


def _lanczos(radius: int) -> Scale:
    return by_kernel(lambda x: float(np.sinc(x) * np.sinc(x / radius)), radius)


TRIANGLE = by_kernel(lambda x: 1 - abs(x), 1, widens=False)
GAUSSIAN = by_kernel(lambda x: math.exp(-(x**2) / (2 * 0.5**2)), 1.5)
CUBIC, MITCHELL = by_kernel(_cubic, 2), by_kernel(_mitchell, 2)


def auto(levels: Levels, height: int, width: int) -> Levels:
    """Means where the result has fewer pixels, or as many; else bilinear."""
    return (area if height * width <= levels.shape[0] * levels.shape[1] else TRIANGLE)(levels, height, width)


# Places


def pad(levels: Levels, scale: Scale = auto, fill: Any = WHITE, size: int = 4) -> Levels:
    """The whole picture in a square of the size, centred."""
    height, width = (size * side // max(levels.shape[:2]) for side in levels.shape[:2])
    result = np.full((size, size, levels.shape[2]), fill, levels.dtype)
    top, left = (size - height) // 2, (size - width) // 2
    result[top : top + height, left : left + width] = scale(levels, height, width)
    return result


def crop(levels: Levels, scale: Scale = auto) -> Levels:
    """The centre as a square of 4 x 4."""
    return scale(centre(levels, min(levels.shape[:2])), 4, 4)


def centre(levels: Levels, side: int) -> Levels:
    """A square around the centre."""
    top, left = ((of - side) // 2 for of in levels.shape[:2])
    return levels[top : top + side, left : left + side]


def shorter(levels: Levels) -> Levels:
    """The shorter side as 6 pixels."""
    return auto(levels, *(6 * side // min(levels.shape[:2]) for side in levels.shape[:2]))


def on(levels: Levels, background: tuple[int, int, int]) -> Levels:
    """Transparent pixels, with alpha as the fourth band, on a colour."""
    alpha = levels[..., 3:].astype(int)
    return ((levels[..., :3] * alpha + np.array(background) * (255 - alpha) + 127) // 255).astype(np.uint8)


def grey(levels: Levels) -> Levels:
    """Luma by ITU-R BT.601, as Pillow's mode L."""
    return np.asarray(Pillow.fromarray(levels).convert("L"))[..., np.newaxis]


def through_jpeg(levels: Levels, **options: Any) -> Levels:
    """What is left of levels, by Pillow's libjpeg."""
    return np.asarray(Pillow.open(io.BytesIO(jpeg(levels, **options).content)))


def from_linear(levels: Levels) -> Levels:
    """Levels of light in sRGB's curve."""
    light = levels / 255
    return np.rint(255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)).astype(
        np.uint8
    )


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


# Images, one or several a row


def both(
    name: str,
    options: str,
    wanted: Callable[[Levels], Levels],
    *,
    given: Callable[[int], Any] = picture,
    file: Callable[[Any], File] = png,
    normalized: Normalized = ZERO_ONE,
    as_stored: Callable[[Any], Any] | None = as_png,
    within: float = 0.0,
) -> dict[str, Case]:
    """Cases of one image a row, and of one or two, with equal options: the levels wanted of each.

    Without `as_stored` records hold the files.
    """
    one = [given(row) for row in range(COUNT)]
    some = [[given(row), given((row + 3) % COUNT)][: 1 + row % 2] for row in range(COUNT)]
    levels, lists = [wanted(each) for each in one], [np.stack([wanted(each) for each in row]) for row in some]
    raw: list[Any] = [*map(file, one)]
    rows: list[Any] = [[*map(file, row)] for row in some]
    held = [each.content for each in raw] if as_stored is None else [*map(as_stored, levels)]
    list_held = [[each.content for each in row] for row in rows] if as_stored is None else [*map(as_stored, lists)]
    counts = [np.int64(len(row)) for row in some]
    frames = {"": normalized(lists), "+length": counts}
    return {
        f"image_{name}": Case(f"{{kind: image, {options}}}", raw, {"": normalized(levels)}, {"": held}, within=within),
        f"image_sequence_{name}": Case(
            f"{{kind: image_sequence, {options}}}", rows, frames, {"": list_held}, within=within
        ),
    }


def stretched(scale: Scale) -> Callable[[Levels], Levels]:
    return lambda levels: scale(levels, 3, 5)


def light(levels: Levels) -> File:
    """A PNG whose profile says that its levels are light itself, of sRGB's primaries."""
    return png(levels, icc_profile=display(curve(256)))


def depth(row: int) -> Levels:
    """Levels of 16 bits."""
    return picture(row, bands=1).astype(np.uint16) * 257


def metres(row: int) -> Levels:
    """Numbers of two bands, from -1 to 3.25."""
    return (picture(row, bands=2) / 60 - 1).astype(np.float32)


def planes(levels: Levels) -> Check:
    """A grey PNG of the bands, one below the other."""
    return as_png(np.concatenate(np.split(levels, levels.shape[-1], -1), -3))


def large(row: int) -> Levels:
    """Sparse black pixels on white: in a JPEG the means of blocks are up to 10 levels lighter than those of pixels."""
    black = np.random.default_rng(row).random((256, 256, 1)) < 0.1
    return np.where(black, 0, 255).repeat(3, 2).astype(np.uint8)


IMAGES = {
    **both(
        "area",
        "size: 4, fit: stretch, resize: area, normalize: imagenet, store: png, color: ignore",
        lambda levels: area(levels, 4, 4),
        file=light,
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
        "size: [3, 5], fit: stretch, resize: bilinear, antialias: false, normalize: clip",
        stretched(TRIANGLE),
        normalized=CLIP,
    ),
    **both(
        "jpeg",
        'size: 8, resize: bicubic, store: jpeg, quality: 40, chroma: "4:4:4", normalize: inception',
        lambda levels: through_jpeg(pad(levels, CUBIC, size=8), quality=40, subsampling=0),
        given=smooth,
        normalized=MINUS_ONE_ONE,
        as_stored=lambda levels: as_jpeg(levels, quality=40, chroma=0),
        within=4 / 255,  # two levels between libjpeg's releases
    ),
    **both(
        "background",
        "size: 4, resize: lanczos3, background: [9, 60, 200], normalize: caffe",
        lambda levels: pad(on(levels, (9, 60, 200)), _lanczos(3), (9, 60, 200)),
        given=lambda row: picture(row, bands=4),
        normalized=caffe,
    ),
    **both(
        "uint16",
        "size: [3, 5], fit: stretch, resize: lanczos5, dtype: uint16, channels: 1, normalize: dataset",
        stretched(_lanczos(5)),
        given=depth,
        normalized=by_train,
        as_stored=lambda levels: as_png(levels, within=1),  # float32's sums of 16 bits
        within=1e-4,
    ),
    **both(
        "range",
        "size: 4, dtype: uint16, channels: 1, range: [255, 4095], background: 500",
        lambda levels: pad(levels, fill=500),
        given=depth,
        normalized=by(255, 4095 - 255, unit=1),
    ),
    **both(
        "bands",
        "size: [3, 5], fit: stretch, resize: gaussian, bands: [3, 1], normalize: {mean: [0.1, 0.2], std: [0.5, 0.25]}",
        lambda levels: GAUSSIAN(levels, 3, 5)[..., [2, 0]],
        normalized=by([0.1, 0.2], [0.5, 0.25]),
        as_stored=planes,
    ),
    **both(
        "float32",
        "size: [3, 5], fit: stretch, resize: mitchellcubic, dtype: float32, channels: 2, range: [-1, 3], "
        "normalize: minus_one_one, store: raw",
        stretched(MITCHELL),
        given=metres,
        file=npy,
        normalized=by(1, 2, unit=1),
        as_stored=lambda levels: as_raw(levels, within=1e-5),
        within=1e-5,
    ),
    **both(
        "shorter_side",
        "size: 4, fit: crop, shorter_side: 6",
        lambda levels: centre(shorter(levels), 4),
        as_stored=lambda levels: as_png(levels, within=1),  # thirds of eight pixels
        within=LEVEL / 255,
    ),
    **both(
        "whole",
        "size: 4, fit: stretch, dct_scaling: false",
        lambda levels: area(through_jpeg(levels, quality=30), 4, 4),
        given=large,
        file=lambda levels: jpeg(levels, quality=30),
        as_stored=as_jpeg,
        within=3 / 255,  # a JPEG's losses of grey
    ),
    **both(
        "kept",
        "size: 4, metadata: keep",
        through_jpeg,
        given=lambda row: smooth(row, (4, 4)),
        file=lambda levels: jpeg(levels, comment=b"kept"),
        as_stored=None,
    ),
}


# One image a row


def _default() -> Case:
    """Every option by default: a file of linear light, one with alpha, two JPEGs, one turned, and plain ones."""
    pictures = [picture(row) for row in range(COUNT)]
    files = [*map(png, pictures)]
    levels = [pad(each) for each in pictures]
    checks = [as_png(each, within=1) for each in levels]
    files[0], levels[0] = light(pictures[0]), pad(from_linear(pictures[0]))
    checks[0] = as_png(levels[0], within=1)  # LittleCMS rounds
    files[1], levels[1] = png(picture(1, bands=4)), pad(on(picture(1, bands=4), WHITE))
    checks[1] = as_png(levels[1])
    for row in (3, 4):  # of 4 x 4, stored without its comment, and of 8 x 8
        files[row] = jpeg(smooth(row), comment=b"secret")
        levels[row] = pad(through_jpeg(smooth(row)))
        checks[row] = as_jpeg(levels[row])
    levels[4] = through_jpeg(levels[4])
    file = turned(picture(6, (4, 8)), 6)
    files[6], levels[6] = file, pad(upright(file))
    checks[6] = as_png(levels[6])
    return Case("{kind: image, size: 4}", files, {"": ZERO_ONE(levels)}, {"": checks}, within=LEVEL / 255)


def _missing() -> Case:
    """Grey images, some missing; one is a large JPEG, decoded at an eighth of its sides."""
    raw: list[Any] = [png(picture(row)) for row in range(COUNT)]
    levels: list[Any] = [pad(grey(picture(row)), fill=29) for row in range(COUNT)]  # 29 is blue's grey
    raw[5] = jpeg(large(5), quality=30)
    reduced = Pillow.open(io.BytesIO(raw[5].content))
    reduced.draft("L", (32, 32))
    levels[5] = area(np.asarray(reduced)[..., np.newaxis], 4, 4)
    ready, checks = MINUS_ONE_ONE(levels), [*map(as_png, levels)]
    checks[5] = as_jpeg(levels[5])
    for row in (1, 6):
        raw[row], ready[row], checks[row] = ABSENT, np.zeros((4, 4, 1), np.float32), b""
    missing = int64(row in (1, 6) for row in range(COUNT))
    return Case(
        "{kind: image, size: 4, optional: true, channels: 1, background: [0, 0, 255], normalize: minus_one_one, "
        "column: sometimes}",
        [],
        {"": ready, "missing": missing},
        {"": checks, "missing": missing},
        columns={"sometimes": raw},
        within=4 / 255,  # a JPEG's losses
    )


def _originals(options: str, wanted: Callable[[Levels], Levels], **more: list[Any]) -> Case:
    """Files of all eight orientations, without their EXIF."""
    files = [turned(picture(row), row + 1) for row in range(COUNT)]
    held = {"": [as_png(picture(row)) for row in range(COUNT)], "orientation": int64(range(1, COUNT + 1))}
    levels = [wanted(upright(file)) for file in files]
    sides = {"+shape": int64(each.shape[:2] for each in levels)} if "size" not in options else {}
    return Case(options, files, {"": ZERO_ONE(levels), **sides}, held)


OWN_SIZES = {"": [picture(row) for row in range(COUNT)], "+shape": int64(SIDES)}
CHANNELS = [picture(row, (4, 5)) for row in range(COUNT)]
ONE = {
    "image": _default(),
    "image_missing": _missing(),
    "image_own_size": Case(
        "{kind: image, fit: none, normalize: none}",
        [png(picture(row)) for row in range(COUNT)],
        OWN_SIZES,
        {"": [as_png(picture(row)) for row in range(COUNT)]},
    ),
    "image_original": _originals("{kind: image, store: original}", lambda levels: levels),
    "image_original_size": _originals("{kind: image, store: original, size: 4}", pad),
    "image_shape": Case(  # channels first
        "{kind: image, size: [4, 5], shape: [3, 4, 5]}",
        [each.transpose(2, 0, 1).tolist() for each in CHANNELS],
        {"": ZERO_ONE(CHANNELS)},
        {"": [*map(as_png, CHANNELS)]},
    ),
}

# Several images a row


def tiff(*pages: Levels) -> File:
    first, *others = map(Pillow.fromarray, pages)
    return File(".tif", saved(first, "TIFF", save_all=True, append_images=others))


def _pages() -> dict[str, Case]:
    """Files of several pages: of each the first, and of all files the first two pages."""
    small = [[picture(row + place, (2, 2)) for place in range(3)] for row in range(COUNT)]
    firsts = [np.stack([one, three]) for one, _, three in small]
    files: list[Any] = [
        [tiff(*pages)] if row % 2 else [png(pages[0]), tiff(*pages[1:])] for row, pages in enumerate(small)
    ]
    twos = [np.stack(pages[:2]) for pages in small]
    files[2], twos[2] = ABSENT, np.zeros((0, 2, 2, 3), np.uint8)
    return {
        "image_sequence_length": Case(
            '{kind: image_sequence, size: 2, length: 2, separator: "|", column: addresses}',
            [],
            {"": ZERO_ONE(firsts)},
            {"": [*map(as_png, firsts)]},
            columns={"addresses": [f"{url(tiff(one, two))}|{url(png(three))}" for one, two, three in small]},
        ),
        "image_sequence_pages": Case(
            "{kind: image_sequence, size: 2, pages: all, max_length: 2, optional: true}",
            files,
            {"": ZERO_ONE(twos), "+length": int64(map(len, twos))},
            {"": [as_png(pages) if len(pages) else [] for pages in twos]},
        ),
    }


# Masks


def values(row: int, sides: tuple[int, int] | None = None) -> Levels:
    """A class, 0 to 2, for each pixel."""
    y, x, _ = np.indices((*(sides or SIDES[row]), 1))
    return ((row + y + 2 * x) % 3).astype(np.uint8)


def padded(levels: Levels, fill: int = 0) -> Levels:
    return pad(levels, nearest, fill)


def _mask(
    options: str,
    raw: Sequence[Any],
    wanted: Sequence[Levels],
    as_stored: Callable[[Levels], Any] = as_png,
    **more: Any,
) -> Case:
    return Case(options, raw, {"": [*wanted], **more.pop("read", {})}, {"": [*map(as_stored, wanted)]}, **more)


def _of_colors() -> Case:
    colors = np.array([[0, 0, 0], [255, 0, 9], [77, 77, 77]], np.uint8)
    return _mask(
        "{kind: mask, image: image_nearest, classes: {0: ground, 7: car}, ignore: 255, store: raw, "
        "colors: {ground: 0, car: [255, 0, 9], ignore: 77}}",
        [png(colors[values(row)[..., 0]]) for row in range(COUNT)],
        [crop(np.array([0, 7, 255], np.uint8)[values(row)], nearest) for row in range(COUNT)],
        as_raw,
        described={"classes": {"0": "ground", "7": "car"}, "ignore": 255},
    )


def _numbered() -> Case:
    """Masks of 16 bits, some missing."""
    raw: list[Any] = [png(300 * values(row).astype(np.uint16)) for row in range(COUNT)]
    wanted = [padded(300 * values(row).astype(np.uint16), 60_000) for row in range(COUNT)]
    checks: list[Any] = [*map(as_png, wanted)]
    for row in (2, 7):
        raw[row], wanted[row], checks[row] = ABSENT, np.full((4, 4, 1), 60_000, np.uint16), b""
    missing = {"missing": int64(row in (2, 7) for row in range(COUNT))}
    options = "{kind: mask, image: image, dtype: uint16, ignore: 60000, optional: true, column: numbers_of_objects}"
    return Case(options, [], {"": wanted, **missing}, {"": checks, **missing}, columns={"numbers_of_objects": raw})


def painted(row: int, *parts: tuple[Any, int]) -> Levels:
    """A mask of a row's sides with values in parts of it."""
    result = np.zeros((*SIDES[row], 1), np.uint8)
    for part, value in parts:
        result[part] = value
    return result


LEFT, RIGHT, CORNER = np.s_[:, :1], np.s_[:, -1:], np.s_[:1, :1]
DOWN, ALONG, LAST = np.s_[:2, :1], np.s_[:1, :2], np.s_[-1:, -1:]
"""What the runs `1 2` are in columns and in rows, and those of the last pixel."""


def shapes(row: int) -> list[dict[str, Any]]:
    """A person on the left, a dog on the right, and a crowd in the corner."""
    height, width = SIDES[row]
    size = [height, width]
    return [
        {"name": "person", "polygons": [[0, 0, 1, 0, 1, height, 0, height]]},
        {"name": "dog", "rle": {"size": size, "counts": [height * (width - 1), height]}},
        {"name": "dog", "crowd": 1, "rle": {"size": size, "counts": [0, 1, height * width - 1]}},
    ]


SHAPES = [shapes(row) for row in range(COUNT)]
RUNS = [["1 2", f"{height * width} 1"] for height, width in SIDES]
MASK = {
    "mask": _mask(
        "{kind: mask, image: image, classes: [ground, road, car]}",
        [png(values(row)) for row in range(COUNT)],
        [padded(values(row)) for row in range(COUNT)],
        described={"classes": {"0": "ground", "1": "road", "2": "car"}},
    ),
    "mask_colors": _of_colors(),
    "mask_numbered": _numbered(),
    "mask_own_size": _mask(
        "{kind: mask, image: image_own_size, ignore: 9}",
        [png(values(row)) for row in range(COUNT)],
        [values(row) for row in range(COUNT)],
        read={"+shape": int64(SIDES)},
        padding={"": 9},
    ),
    "mask_file": _mask(
        "{kind: mask, image: image_original_size, oriented: file}",
        [png(values(row)) for row in range(COUNT)],
        [padded(upright(turned(values(row), row + 1))) for row in range(COUNT)],
    ),
    "mask_drawn": _mask(
        "{kind: mask, image: image, draw: classes, classes: [ground, person, dog], ignore: 255}",
        SHAPES,
        [padded(painted(row, (LEFT, 1), (RIGHT, 2), (CORNER, 255)), 255) for row in range(COUNT)],
    ),
    "mask_instances": _mask(
        "{kind: mask, image: image, draw: instances, crowd: draw}",
        SHAPES,
        [padded(painted(row, (LEFT, 1), (RIGHT, 2), (CORNER, 3))) for row in range(COUNT)],
    ),
    "mask_columns": _mask(
        "{kind: mask, image: image, draw: classes, runs: columns, classes: [ground, steel]}",
        RUNS,
        [padded(painted(row, (DOWN, 1), (LAST, 1))) for row in range(COUNT)],
    ),
    "mask_rows": _mask(
        "{kind: mask, image: image, draw: classes, runs: rows, classes: [ground, a, b], names: names_of_runs}",
        RUNS,
        [padded(painted(row, (ALONG, 2), (LAST, 1))) for row in range(COUNT)],
        columns={"names_of_runs": [["b", "a"]] * COUNT},
    ),
}


def _masks(options: str, raw: Sequence[Any], wanted: Sequence[Sequence[Levels]], **more: Any) -> Case:
    """Masks of objects: each is a file of 0 and 1; their model-ready array has no bands."""
    stacks = [np.stack(each) if each else np.zeros((0, 4, 4, 1), np.uint8) for each in wanted]
    as_stored = as_raw if "raw" in options else as_png
    counts = {} if " length" in options else {"+length": int64(map(len, stacks))}
    checks = [as_stored(each) if len(each) else [] for each in stacks]
    return Case(options, raw, {"": [each[..., 0] for each in stacks], **counts}, {"": checks}, **more)


CLASSES = [[1], [2, 1]] * 4
"""The classes of the objects that rows list."""
ONES = [[(values(row) == each).astype(np.uint8) for each in CLASSES[row]] for row in range(COUNT)]
TWO = [[(values(row) == each).astype(np.uint8) for each in (1, 2)] for row in range(COUNT)]
MASKS = {
    "masks": _masks(
        "{kind: masks, image: image}",
        [[png(200 * each) for each in row] for row in ONES],
        [[*map(padded, row)] for row in ONES],
    ),
    "masks_drawn": _masks(
        "{kind: masks, image: image_nearest, draw: objects, max_length: 2, store: raw}",
        SHAPES,
        [[crop(painted(row, (part, 1)), nearest) for part in (LEFT, RIGHT)] for row in range(COUNT)],
    ),
    "masks_columns": _masks(
        "{kind: masks, image: image, draw: objects, runs: columns, column: mask_columns}",
        [],
        [[padded(painted(row, (part, 1))) for part in (DOWN, LAST)] for row in range(COUNT)],
    ),
    "masks_rows": _masks(
        "{kind: masks, image: image, draw: objects, runs: rows, optional: true}",
        [*RUNS[:7], ABSENT],
        [[padded(painted(row, (part, 1))) for part in (ALONG, LAST)] for row in range(7)] + [[]],
    ),
    "masks_file": _masks(
        '{kind: masks, image: image_original_size, oriented: file, length: 2, separator: "|", column: two_masks}',
        [],
        [[padded(upright(turned(each, row + 1))) for each in TWO[row]] for row in range(COUNT)],
        columns={"two_masks": ["|".join(url(png(each)) for each in row) for row in TWO]},
    ),
}

# Boxes and key points


def on_padded(row: int, y: float, x: float, sides: tuple[int, int] | None = None) -> tuple[float, float]:
    """Where a point, in shares of a picture's sides, is in 4 x 4 with margins."""
    height, width = sides or SIDES[row]
    high, wide = (4 * side / max(height, width) for side in (height, width))
    return ((4 - high) // 2 + min(max(y, 0), 1) * high) / 4, ((4 - wide) // 2 + min(max(x, 0), 1) * wide) / 4


def on_cropped(row: int, y: float, x: float) -> tuple[float, float]:
    """Where a point is in the centre of a picture, or on its nearest edge."""
    height, width = SIDES[row]
    side = min(height, width)
    moved = ((y * height - (height - side) // 2) / side, (x * width - (width - side) // 2) / side)
    return min(max(moved[0], 0), 1), min(max(moved[1], 0), 1)


Box: TypeAlias = tuple[float, float, float, float]  # y_min, x_min, y_max, x_max in shares of the sides
BOXES: list[list[Box]] = [
    [(row / 16, 1 / 8, row / 16 + 1 / 2, 1 / 2), (1 / 4, row / 16, 1, 3 / 4)][: 1 + row % 2] for row in range(COUNT)
]
BOXES[0] += [(-1, -1, 2, 2), (3 / 4, 3 / 4, 1 / 2, 1 / 4)]  # beyond the picture, and one that ends before it begins
BOXES[2] = []
ORDERS: Mapping[str, Callable[[float, float, float, float], list[float]]] = {
    "corners": lambda top, left, low, right: [left, top, right, low],
    "coco": lambda top, left, low, right: [left, top, right - left, low - top],
    "center": lambda top, left, low, right: [(left + right) / 2, (top + low) / 2, right - left, low - top],
    "tensorflow": lambda top, left, low, right: [top, left, low, right],
}


def given(row: int, order: str, boxes: Sequence[Box], *, relative: bool = False) -> list[list[float]]:
    """Boxes as a column has them."""
    height, width = (1, 1) if relative else SIDES[row]
    return [ORDERS[order](top * height, left * width, low * height, right * width) for top, left, low, right in boxes]


def placed(row: int, boxes: Sequence[Box], place: Callable[..., tuple[float, float]] = on_padded) -> Any:
    """Boxes as records have them; one that ends before it begins is where it begins."""
    found = [(*place(row, top, left), *place(row, max(top, low), max(left, right))) for top, left, low, right in boxes]
    return np.array(found, np.float32).reshape(-1, 4)


def in_upright(row: int, part: Any) -> Box:
    """Finds where a part of a file's pixels is in the upright picture, by Pillow."""
    found = upright(turned(255 * painted(row, (part, 1)), row + 1))[..., 0]
    (height, width), (y, x) = found.shape, np.nonzero(found)
    top, left, low, right = y.min() / height, x.min() / width, (y.max() + 1) / height, (x.max() + 1) / width
    return (*on_padded(row, top, left, found.shape), *on_padded(row, low, right, found.shape))


def _flat(wanted: Sequence[Any]) -> dict[str, Any]:
    return {"": [each.reshape(-1) for each in wanted]}


def _boxes(options: str, raw: Sequence[Any], wanted: Sequence[Any], **more: Any) -> Case:
    counts = {} if " length" in options else {"+length": int64(map(len, wanted))}
    return Case(options, raw, {"": wanted, **counts}, _flat(wanted), **more)


FIRST = [(boxes or BOXES[1])[0] for boxes in BOXES]
CENTERS = [
    ";".join(str(number) for box in given(row, "center", boxes) for number in box) for row, boxes in enumerate(BOXES)
]
PLACES = {
    "boxes": _boxes(
        "{kind: boxes, image: image, order: corners, unit: absolute}",
        [given(row, "corners", boxes) for row, boxes in enumerate(BOXES)],
        [placed(row, boxes) for row, boxes in enumerate(BOXES)],
    ),
    "boxes_coco": _boxes(
        "{kind: boxes, image: image_nearest, order: coco, unit: relative, max_length: 1}",
        [given(row, "coco", boxes, relative=True) for row, boxes in enumerate(BOXES)],
        [placed(row, boxes[:1], on_cropped) for row, boxes in enumerate(BOXES)],
    ),
    "boxes_center": _boxes(
        '{kind: boxes, image: image, order: center, unit: absolute, separator: ";", optional: true, column: centers}',
        [],
        [placed(row, boxes if row != 2 else []) for row, boxes in enumerate(BOXES)],
        columns={"centers": [ABSENT if row == 2 else text for row, text in enumerate(CENTERS)]},
    ),
    "boxes_columns": _boxes(
        "{kind: boxes, image: image, order: tensorflow, unit: relative, length: 1, columns: [top, left, low, right]}",
        [],
        [placed(row, [box]) for row, box in enumerate(FIRST)],
        columns={name: [box[place] for box in FIRST] for place, name in enumerate(("top", "left", "low", "right"))},
    ),
    "boxes_file": _boxes(
        "{kind: boxes, image: image_original_size, order: corners, unit: absolute, oriented: file}",
        [[[1, 0, 2, 2]]] * COUNT,
        [np.array([in_upright(row, np.s_[0:2, 1:2])], np.float32) for row in range(COUNT)],
    ),
}


def _keypoints() -> dict[str, Case]:
    """Points in shares of the sides: one of each visibility and one outside; of two numbers; of a column each."""
    visible = [[(0.25, 0.5, 2), (row / 8, 0.125, 1), (0.5, 0.5, 0)] for row in range(COUNT)]
    visible[3][0] = (1.5, 0.5, 2)
    raw = [
        [[number for y, x, seen in points for number in (x * width, y * height, seen)]] * 2
        for points, (height, width) in zip(visible, SIDES, strict=True)
    ]
    wanted = [
        [[*on_padded(row, y, x), seen] if seen and y < 1.5 else [0, 0, 0] for y, x, seen in points]
        for row, points in enumerate(visible)
    ]
    ends = [(y, x) for row in range(COUNT) for y, x in [(row / 8, 0.5)]]
    is_seen = [on_cropped(row, y, x) == _cropped(row, y, x) for row, (y, x) in enumerate(ends)]
    pairs = [
        [[*on_cropped(row, 0.5, 0.5), 2], [*on_cropped(row, *ends[row]), 2] if is_seen[row] else [0, 0, 0]]
        for row in range(COUNT)
    ]
    texts: list[Any] = [f"0.5;0.5;{x};{y}" for y, x in ends]
    one = [[np.mean(np.reshape(in_upright(row, np.s_[1:2, 0:1]), (2, 2)), 0).tolist() + [1]] for row in range(COUNT)]
    texts[5], none = ABSENT, np.zeros((0, 2, 3), np.float32)
    return {
        "keypoints": _boxes(
            "{kind: keypoints, image: image, points: [nose, left, right], flip_pairs: [[left, right]], "
            "skeleton: [[nose, left]], unit: absolute, max_length: 1}",
            raw,
            float32([[each] for each in wanted]),
            described={"names": ["nose", "left", "right"], "flip_pairs": [[1, 2]], "skeleton": [[0, 1]]},
        ),
        "keypoints_pairs": _boxes(
            "{kind: keypoints, image: image_nearest, points: 2, flip_pairs: [], numbers: 2, unit: relative, "
            'separator: ";", optional: true, column: pairs}',
            [],
            [none if row == 5 else np.array([each], np.float32) for row, each in enumerate(pairs)],
            columns={"pairs": texts},
        ),
        "keypoints_columns": _boxes(
            "{kind: keypoints, image: image_original_size, points: [tip], flip_pairs: [], unit: absolute, "
            "oriented: file, length: 1, columns: [tip_x, tip_y, tip_seen]}",
            [],
            float32([[each] for each in one]),
            columns={"tip_x": [0.5] * COUNT, "tip_y": [1.5] * COUNT, "tip_seen": [1] * COUNT},
        ),
    }


def _cropped(row: int, y: float, x: float) -> tuple[float, float]:
    height, width = SIDES[row]
    side = min(height, width)
    return (y * height - (height - side) // 2) / side, (x * width - (width - side) // 2) / side


# Limits


def _limits(kind: str, options: str, bad: int, given: Sequence[Any], ready: Sequence[Any], **more: Any) -> Case:
    """Two rows are rejects: one of 20 pixels, one of more than 1,000 bytes."""


CASES: dict[str, Case] = {**ONE, **IMAGES, **_pages(), **MASK, **MASKS, **PLACES, **_keypoints()}
SPECS: dict[str, dict[str, object]] = {}
