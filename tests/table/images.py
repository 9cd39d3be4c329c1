"""Cases of images, one or several a row."""

import io  # noqa: I001 - one name a line would be a page
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from PIL import Image as Pillow

from tests.profiles import curve, display
from tests.table import on_images
from tests.table.case import ABSENT, Case, Check, File, int64
from tests.table.pictures import (
    CLIP, COUNT, CUBIC, GAUSSIAN, IMAGENET, LANCZOS3, LANCZOS5, LEVEL, MINUS_ONE_ONE, MITCHELL, PICTURES, WHITE,
    TRIANGLE, ZERO_ONE, Levels, Normalized, Scale, area, as_jpeg, as_png, as_raw, auto, by, by_row, by_train, caffe,
    centre, crop, from_linear, grey, jpeg, nearest, npy, on, pad, picture, png, saved, shorter, smooth, through_jpeg,
    turned, upright, url,
)  # fmt: skip


def both(
    name: str,
    options: str,
    wanted: Callable[[Levels], Levels],
    normalized: Normalized = ZERO_ONE,
    as_stored: Callable[[Any], Any] | None = as_png,
    *,
    given: Callable[[int], Any] = picture,
    file: Callable[[Any], File] = png,
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


# fmt: off
IMAGES = {
    **both("area", "size: 4, fit: stretch, resize: area, normalize: imagenet, store: png, color: ignore",
           lambda levels: area(levels, 4, 4), IMAGENET, file=light),
    **both("nearest", "size: 4, fit: crop, resize: nearest, normalize: none, store: raw",
           lambda levels: crop(levels, nearest), list, as_raw),
    **both("bilinear", "size: [3, 5], fit: crop, resize: bilinear, antialias: false, normalize: clip",
           lambda levels: crop(levels, TRIANGLE, (3, 5)), CLIP, partial(as_png, within=1), within=LEVEL / 255 / 0.26),
    **both("jpeg", 'size: 8, resize: bicubic, store: jpeg, quality: 40, chroma: "4:4:4", normalize: inception',
           lambda levels: through_jpeg(pad(levels, CUBIC, size=(8, 8)), quality=40, subsampling=0), MINUS_ONE_ONE,
           lambda levels: as_jpeg(levels, quality=40, chroma=0), given=smooth, within=4 / 255),  # two levels of -1..1
    **both("background", "size: 4, resize: lanczos3, background: [9, 60, 200], padding: [7, 0, 99], normalize: caffe",
           lambda levels: pad(on(levels, (9, 60, 200)), LANCZOS3, (7, 0, 99)), caffe,
           given=lambda row: picture(row, bands=4)),
    **both("uint16", "size: [3, 5], fit: stretch, resize: lanczos5, dtype: uint16, channels: 1, normalize: dataset",
           stretched(LANCZOS5), by_train, partial(as_png, within=1), given=depth, within=1e-4),  # float32's 24 bits
    **both("range", "size: [4, 9], dtype: uint16, channels: 1, range: [255, 4095], background: 500",
           lambda levels: pad(levels, fill=500, size=(4, 9)), by(255, 3840, unit=1), given=depth),
    **both("bands", "size: [3, 5], fit: stretch, resize: gaussian, bands: [3, 1], "
           "normalize: {mean: [0.1, 0.2], std: [0.5, 0.25]}",
           lambda levels: GAUSSIAN(levels, 3, 5)[..., [2, 0]], by([0.1, 0.2], [0.5, 0.25]), planes),
    **both("float32", "size: [3, 5], fit: stretch, resize: mitchellcubic, dtype: float32, channels: 2, "
           "range: [-1, 3], normalize: minus_one_one, store: raw",
           stretched(MITCHELL), by(1, 2, unit=1), partial(as_raw, within=1e-5), given=metres, file=npy, within=1e-5),
    **both("shorter_side", "size: [3, 4], fit: crop, shorter_side: 6",
           lambda levels: centre(shorter(levels, 6), (3, 4)), ZERO_ONE, partial(as_png, within=1), within=LEVEL / 255),
    **both("whole", "size: 4, fit: stretch, dct_scaling: false",
           lambda levels: through_jpeg(area(through_jpeg(levels, quality=30), 4, 4)), ZERO_ONE, as_jpeg,
           given=large, file=partial(jpeg, quality=30), within=2.01 / 255),  # a level, encoded
    **both("kept", "size: 4, metadata: keep", through_jpeg, ZERO_ONE, None,
           given=lambda row: smooth(row, (4, 4)), file=partial(jpeg, comment=b"kept")),
}
# fmt: on

# One image a row


def _default() -> Case:
    """Every option by default: files of linear light, with alpha, of JPEG, turned by EXIF; and plain ones."""
    files, levels = [*map(png, PICTURES)], [*map(pad, PICTURES)]
    files[0], levels[0] = light(PICTURES[0]), pad(from_linear(PICTURES[0]))
    files[1], levels[1] = png(picture(1, bands=4)), pad(on(picture(1, bands=4), WHITE))
    files[6] = turned(picture(6, (4, 8)), 6)
    levels[6] = pad(upright(files[6]))
    checks = [as_png(each, within=1) for each in levels]  # LittleCMS rounds
    for row in (3, 4):  # of 4 x 4, stored without its comment, and of 8 x 8
        files[row], levels[row] = jpeg(smooth(row), comment=b"secret"), pad(through_jpeg(smooth(row)))
        checks[row] = as_jpeg(levels[row])
    levels[4] = through_jpeg(levels[4])
    return Case("{kind: image, size: 4}", files, {"": ZERO_ONE(levels)}, {"": checks}, within=LEVEL / 255)


def _missing() -> Case:
    """Grey images, some missing; one is a large JPEG, decoded at an eighth of its sides."""
    raw: list[Any] = [*map(png, PICTURES)]
    levels = [pad(grey(each), fill=29) for each in PICTURES]  # 29 is blue's grey
    raw[5] = jpeg(large(5), quality=30)
    reduced = Pillow.open(io.BytesIO(raw[5].content))
    reduced.draft("L", (32, 32))
    levels[5] = area(np.asarray(reduced)[..., np.newaxis], 4, 4)
    ready, checks = MINUS_ONE_ONE(levels), [*map(as_png, levels)]
    checks[5] = as_jpeg(levels[5])
    for row in (1, 6):
        raw[row], ready[row], checks[row] = ABSENT, np.zeros((4, 4, 1), np.float32), b""
    missing = {"missing": int64(row in (1, 6) for row in range(COUNT))}
    options = "kind: image, size: 4, optional: true, channels: 1, padding: [0, 0, 255], normalize: minus_one_one"
    columns, within = {"sometimes": raw}, 4 / 255  # a JPEG's losses
    return Case(
        f"{{{options}, column: sometimes}}",
        [],
        {"": ready, **missing},
        {"": checks, **missing},
        {},
        columns,
        within=within,
    )


def _originals(options: str, wanted: Callable[[Levels], Levels]) -> Case:
    """Files of all eight orientations, with their EXIF if it is kept; a row lacks its image if it may."""
    files: list[Any] = by_row(lambda row: turned(PICTURES[row], row + 1))
    held: list[Any] = [file.content if "keep" in options else as_png(PICTURES[row]) for row, file in enumerate(files)]
    levels, turns, missing = [wanted(upright(file)) for file in files], [*range(1, COUNT + 1)], [0] * COUNT
    if "optional" in options:
        files[4], held[4], levels[4], turns[4], missing[4] = ABSENT, b"", PICTURES[4][:0, :0], 1, 1
    parts = {"missing": int64(missing)} if "optional" in options else {}
    sides = {} if "size" in options else {"+shape": int64(each.shape[:2] for each in levels)}
    stored = {"": held, "orientation": int64(turns), **parts}
    return Case(options, files, {"": ZERO_ONE(levels), **parts, **sides}, stored, within=LEVEL / 255)


OWN = [shorter(each, 4) for each in PICTURES]
CHANNELS = by_row(lambda row: picture(row, (4, 5)))
AS_MANY = [area(each, 2, 10) for each in CHANNELS]
# fmt: off
ONE = {
    "image": _default(),
    "image_missing": _missing(),
    "image_own_size": Case("{kind: image, fit: none, shorter_side: 4, normalize: minus_one_one}", [*map(png, PICTURES)],
                           {"": MINUS_ONE_ONE(OWN), "+shape": int64(each.shape[:2] for each in OWN)},
                           {"": [*map(as_png, OWN)]}),
    "image_original": _originals("{kind: image, store: original, optional: true}", lambda levels: levels),
    "image_original_size": _originals("{kind: image, store: original, size: 4, metadata: keep}", pad),
    "image_original_stretched": _originals("{kind: image, store: original, size: [2, 8], fit: stretch}",
                                           lambda levels: auto(levels, 2, 8)),
    "image_shape": Case("{kind: image, size: [2, 10], fit: stretch, shape: [3, 4, 5]}",  # channels first
                        [each.transpose(2, 0, 1).tolist() for each in CHANNELS],
                        {"": ZERO_ONE(AS_MANY)}, {"": [*map(as_png, AS_MANY)]}),
}
# fmt: on

# Several images a row


def tiff(*pages: Levels) -> File:
    first, *others = map(Pillow.fromarray, pages)
    return File(".tif", saved(first, "TIFF", save_all=True, append_images=others))


def _pages() -> dict[str, Case]:
    """Files of several pages: of each the first, and of all files the first two pages."""
    small = by_row(lambda row: [picture(row + place, (2, 2)) for place in range(3)])
    files: list[Any] = [[tiff(*each)] if row % 2 else [png(each[0]), tiff(*each[1:])] for row, each in enumerate(small)]
    firsts, twos = [np.stack([one, three]) for one, _, three in small], [np.stack(each[:2]) for each in small]
    files[2], twos[2] = ABSENT, np.zeros((0, 2, 2, 3), np.uint8)
    return {
        "image_sequence_length": Case(
            '{kind: image_sequence, size: 2, length: 2, separator: "|", column: addresses}',
            [], {"": ZERO_ONE(firsts)}, {"": [*map(as_png, firsts)]},
            columns={"addresses": [f"{url(tiff(one, two))}|{url(png(three))}" for one, two, three in small]},
        ),
        "image_sequence_pages": Case(
            "{kind: image_sequence, size: 2, pages: all, max_length: 2, optional: true}",
            files, {"": ZERO_ONE(twos), "+length": int64(map(len, twos))},
            {"": [as_png(pages) if len(pages) else [] for pages in twos]},
        ),
    }  # fmt: skip


CASES: dict[str, Case] = {**ONE, **IMAGES, **_pages(), **on_images.CASES}
SPECS = on_images.SPECS
