"""Cases of what lies on images: masks, boxes, key points; and of limits, with those of images."""

from collections.abc import Callable, Mapping, Sequence  # noqa: I001 - as in images
from typing import Any, TypeAlias

import numpy as np
from PIL.PngImagePlugin import PngInfo

from tests.table.case import ABSENT, Case, Rejected, float32, int64
from tests.table.pictures import (
    COUNT, SIDES, ZERO_ONE, Levels, as_png, as_raw, auto, by_row, crop, nearest, pad, picture, png, shorter, turned,
    upright, url,
)  # fmt: skip


def values(row: int, sides: tuple[int, int] | None = None) -> Levels:
    """A class, 0 to 2, for each pixel."""
    y, x, _ = np.indices((*(sides or SIDES[row]), 1))
    return ((row + y + 2 * x) % 3).astype(np.uint8)


VALUES = by_row(values)


def padded(levels: Levels, fill: int = 0) -> Levels:
    """A mask in 4 x 4 with margins of the value for no class."""
    return pad(levels, nearest, fill)


def _mask(
    options: str, raw: Sequence[Any], wanted: Sequence[Levels], as_stored: Callable[[Levels], Any] = as_png, **more: Any
) -> Case:
    """A mask's files, of levels, or the column's shapes; and the wanted values."""
    files = [png(each) if isinstance(each, np.ndarray) else each for each in raw]
    return Case(options, files, {"": [*wanted], **more.pop("read", {})}, {"": [*map(as_stored, wanted)]}, **more)


def _of_colors() -> Case:
    colors = np.array([[0, 0, 0], [255, 0, 9], [77, 77, 77]], np.uint8)
    return _mask(
        "{kind: mask, image: image_nearest, classes: {0: ground, 7: car}, ignore: 255, store: raw, "
        "colors: {ground: 0, car: [255, 0, 9], ignore: 77}}",
        [colors[each[..., 0]] for each in VALUES],
        [crop(np.array([0, 7, 255], np.uint8)[each], nearest) for each in VALUES],
        as_raw,
        described={"classes": {"0": "ground", "7": "car"}, "ignore": 255},
    )


def _numbered() -> Case:
    """Masks of 16 bits, some missing."""
    deep = [300 * each.astype(np.uint16) for each in VALUES]
    raw: list[Any] = [*map(png, deep)]
    wanted = [padded(each, 60_000) for each in deep]
    checks: list[Any] = [*map(as_raw, wanted)]
    for row in (2, 7):
        raw[row], wanted[row], checks[row] = ABSENT, np.full((4, 4, 1), 60_000, np.uint16), b""
    missing = {"missing": int64(row in (2, 7) for row in range(COUNT))}
    options = (
        "{kind: mask, image: image, dtype: uint16, ignore: 60000, optional: true, store: raw, column: mask_numbers}"
    )
    return Case(options, [], {"": wanted, **missing}, {"": checks, **missing}, columns={"mask_numbers": raw})


def _own_size() -> Case:
    """Masks of an image that keeps its shape, one missing."""
    raw: list[Any] = [*map(png, VALUES)]
    wanted = [shorter(each, 4, nearest) for each in VALUES]
    held: list[Any] = [*map(as_png, wanted)]
    raw[1], wanted[1], held[1] = ABSENT, VALUES[1][:0, :0], b""
    missing = {"missing": int64(row == 1 for row in range(COUNT))}
    read = {"": wanted, **missing, "+shape": int64(each.shape[:2] for each in wanted)}
    options = "{kind: mask, image: image_own_size, ignore: 9, optional: true}"
    return Case(options, raw, read, {"": held, **missing}, padding={"": 9})


def painted(row: int, *parts: tuple[Any, int]) -> Levels:
    """A mask of a row's sides with values in parts of it."""
    result = np.zeros((*SIDES[row], 1), np.uint8)
    for part, value in parts:
        result[part] = value
    return result


LEFT, RIGHT, CORNER = np.s_[:, :1], np.s_[:, -1:], np.s_[:1, :1]
DOWN, ALONG, LAST = np.s_[:2, :1], np.s_[:1, :2], np.s_[-1:, -1:]
"""The masks of the runs `1 2`, by columns and by rows, and of the last pixel."""


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
# fmt: off
MASK = {
    "mask": _mask("{kind: mask, image: image, classes: [ground, road, car]}", VALUES, [*map(padded, VALUES)],
                  described={"classes": {"0": "ground", "1": "road", "2": "car"}}),
    "mask_colors": _of_colors(),
    "mask_numbered": _numbered(),
    "mask_own_size": _own_size(),
    "mask_file": _mask("{kind: mask, image: image_original_size, oriented: file, resize: nearest}",
                       [np.kron(each, np.ones((3, 2, 1), np.uint8)) for each in VALUES],
                       by_row(lambda row: padded(upright(turned(VALUES[row], row + 1))))),
    "mask_drawn": _mask("{kind: mask, image: image, draw: classes, classes: [ground, person, dog], ignore: 255}",
                        SHAPES, by_row(lambda row: padded(painted(row, (LEFT, 1), (RIGHT, 2), (CORNER, 255)), 255))),
    "mask_instances": _mask("{kind: mask, image: image, draw: instances, crowd: draw}", SHAPES,
                            by_row(lambda row: padded(painted(row, (LEFT, 1), (RIGHT, 2), (CORNER, 3))))),
    "mask_columns": _mask("{kind: mask, image: image, draw: classes, runs: columns, classes: [ground, steel]}", RUNS,
                          by_row(lambda row: padded(painted(row, (DOWN, 1), (LAST, 1))))),
    "mask_rows": _mask("{kind: mask, image: image, draw: classes, runs: rows, classes: [ground, a, b], names: named}",
                       RUNS, by_row(lambda row: padded(painted(row, (ALONG, 2), (LAST, 1)))),
                       columns={"named": [["b", "a"]] * COUNT}),
}
# fmt: on


def _masks(options: str, raw: Sequence[Any], wanted: Sequence[Sequence[Levels]], **more: Any) -> Case:
    """Masks of objects: each is a file of 0 and 1; their model-ready array has no bands."""
    stacks = [np.stack(each) if each else np.zeros((0, 4, 4, 1), np.uint8) for each in wanted]
    as_stored = as_raw if "store: raw" in options else as_png
    counts = {} if " length" in options else {"+length": int64(map(len, stacks))}
    checks = [as_stored(each) if len(each) else [] for each in stacks]
    return Case(options, raw, {"": [each[..., 0] for each in stacks], **counts}, {"": checks}, **more)


OBJECTS = by_row(lambda row: [(VALUES[row] == each).astype(np.uint8) for each in ((1,), (2, 1))[row % 2]])
TWO = by_row(lambda row: [(VALUES[row] == each).astype(np.uint8) for each in (1, 2)])
# fmt: off
MASKS = {
    "masks": _masks("{kind: masks, image: image}", [[png(200 * each) for each in row] for row in OBJECTS],
                    [[*map(padded, row)] for row in OBJECTS]),
    "masks_drawn": _masks("{kind: masks, image: image_nearest, draw: objects, max_length: 2, store: raw}",
                          [each[::-1] for each in SHAPES],  # the crowd first
                          by_row(lambda row: [crop(painted(row, (part, 1)), nearest) for part in (CORNER, RIGHT)])),
    "masks_columns": _masks("{kind: masks, image: image, draw: objects, runs: columns, column: mask_columns}", [],
                            by_row(lambda row: [padded(painted(row, (part, 1))) for part in (DOWN, LAST)])),
    "masks_rows": _masks("{kind: masks, image: image, draw: objects, runs: rows, optional: true}", [*RUNS[:7], ABSENT],
                         [[padded(painted(row, (part, 1))) for part in (ALONG, LAST)] for row in range(7)] + [[]]),
    "masks_file": _masks('{kind: masks, image: image_original_size, oriented: file, length: 2, separator: "|", '
                         "column: two_masks, resize: nearest}", [],
                         by_row(lambda row: [padded(upright(turned(each, row + 1))) for each in TWO[row]]),
                         columns={"two_masks": ["|".join(url(png(each.repeat(2, 0))) for each in row) for row in TWO]}),
}
# fmt: on

# Boxes and key points


def on_padded(row: int, y: float, x: float, sides: tuple[int, int] | None = None) -> tuple[float, float]:
    """Moves a point, in shares of a picture's sides, into 4 x 4 with margins."""
    height, width = sides or SIDES[row]
    high, wide = (4 * side / max(height, width) for side in (height, width))
    return ((4 - high) // 2 + min(max(y, 0), 1) * high) / 4, ((4 - wide) // 2 + min(max(x, 0), 1) * wide) / 4


def in_centre(row: int, y: float, x: float) -> tuple[float, float]:
    """Moves a point into a picture's centre; outside it is below 0 or above 1."""
    height, width = SIDES[row]
    side = min(height, width)
    return (y * height - (height - side) // 2) / side, (x * width - (width - side) // 2) / side


def on_cropped(row: int, y: float, x: float) -> tuple[float, float]:
    """Moves a point into a picture's centre, or onto its nearest edge."""
    y, x = in_centre(row, y, x)
    return min(max(y, 0), 1), min(max(x, 0), 1)


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


def _boxes(options: str, raw: Sequence[Any], wanted: Sequence[Any], **more: Any) -> Case:
    counts = {} if " length" in options else {"+length": int64(map(len, wanted))}
    return Case(options, raw, {"": wanted, **counts}, {"": [each.reshape(-1) for each in wanted]}, **more)


FIRST = [(boxes or BOXES[1])[0] for boxes in BOXES]
CENTERS = [";".join(f"{number}" for box in given(row, "center", BOXES[row]) for number in box) for row in range(COUNT)]
# fmt: off
PLACES = {
    "boxes": _boxes("{kind: boxes, image: image, order: corners, unit: absolute}",
                    by_row(lambda row: given(row, "corners", BOXES[row])), by_row(lambda row: placed(row, BOXES[row]))),
    "boxes_coco": _boxes("{kind: boxes, image: image_nearest, order: coco, unit: relative, max_length: 1}",
                         by_row(lambda row: given(row, "coco", BOXES[row], relative=True)),
                         by_row(lambda row: placed(row, BOXES[row][:1], on_cropped))),
    "boxes_center": _boxes('{kind: boxes, image: image, order: center, unit: absolute, separator: ";", optional: true, '
                           "column: centers}", [], by_row(lambda row: placed(row, BOXES[row])),
                           columns={"centers": [text or ABSENT for text in CENTERS]}),
    "boxes_columns": _boxes("{kind: boxes, image: image, order: tensorflow, unit: relative, length: 1, "
                            "columns: [top, left, low, right]}",
                            [], by_row(lambda row: placed(row, FIRST[row : row + 1])),
                            columns=dict(zip(("top", "left", "low", "right"), zip(*FIRST, strict=True), strict=True))),
    "boxes_file": _boxes("{kind: boxes, image: image_original_size, order: corners, unit: relative, oriented: file}",
                         [[[1 / width, 0, 2 / width, 2 / height]] for height, width in SIDES],
                         float32(by_row(lambda row: [in_upright(row, np.s_[0:2, 1:2])]))),
}
# fmt: on


def _keypoints() -> dict[str, Case]:
    """Points of each visibility, and outside; of two numbers, also cropped away; of a column for each number."""
    triples = by_row(lambda row: [(1.5 if row == 3 else 0.25, 0.5, 2), (row / 8, 0.125, 1), (0.5, 0.5, 0)])
    raw = [
        [[number for y, x, seen in points for number in (x * width, y * height, seen)]] * 2
        for points, (height, width) in zip(triples, SIDES, strict=True)
    ]
    wanted = by_row(
        lambda row: [[[*on_padded(row, y, x), seen] if seen and y <= 1 else [0, 0, 0] for y, x, seen in triples[row]]]
    )
    ends = by_row(lambda row: in_centre(row, row / 8, 0.5))
    pairs = [[[[0.5, 0.5, 2], [y, x, 2] if 0 <= y <= 1 else [0, 0, 0]]] for y, x in ends]
    texts: list[Any] = by_row(lambda row: f"0.5;0.5;0.5;{row / 8}")
    texts[5], pairs[5] = ABSENT, np.zeros((0, 2, 3))
    tips = [np.reshape(in_upright(row, np.s_[1:2, 0:1]), (2, 2)).mean(0).tolist() for row in range(COUNT)]
    return {
        "keypoints": _boxes(
            "{kind: keypoints, image: image, points: [nose, left, right], flip_pairs: [[left, right]], "
            "skeleton: [[nose, left]], unit: absolute, max_length: 1}", raw, float32(wanted),
            described={"names": ["nose", "left", "right"], "flip_pairs": [[1, 2]], "skeleton": [[0, 1]]},
        ),
        "keypoints_pairs": _boxes(
            "{kind: keypoints, image: image_nearest, points: 2, flip_pairs: [], numbers: 2, unit: relative, "
            'separator: ";", optional: true, column: pairs}', [], float32(pairs), columns={"pairs": texts},
        ),
        "keypoints_columns": _boxes(
            "{kind: keypoints, image: image_original_size, points: [tip], flip_pairs: [], unit: absolute, "
            "oriented: file, length: 1, columns: [tip_x, tip_y, tip_seen]}",
            [], float32([[[[*tip, 1]]] for tip in tips[:7]] + [np.zeros((1, 1, 3))]),
            columns={"tip_x": [0.5] * 7 + [ABSENT], "tip_y": [1.5] * COUNT, "tip_seen": [1] * COUNT},
        ),
    }  # fmt: skip


# Limits


def _limited(options: str, bad: int, make: Callable[..., Levels]) -> Case:
    """Two rows are rejects: one of 20 pixels, one of more than 1,000 bytes."""
    note, is_mask, is_list = PngInfo(), "mask" in options, options in ("masks", "image_sequence")
    note.add_text("note", "x" * 1000)
    small = by_row(lambda row: make(row, (2, 2)))
    raw: list[Any] = [*map(png, small)]
    raw[bad : bad + 2] = [png(make(0, (4, 5))), png(small[0], pnginfo=note)]
    ready: list[Any] = small if is_mask else ZERO_ONE(small)
    held: list[Any] = [*map(as_png, small)]
    if is_list:
        raw = [[each] for each in raw]
        ready = [each[np.newaxis, ..., 0] if is_mask else each[np.newaxis] for each in ready]
    if is_mask:
        raw[4 - bad] = ABSENT  # its image has 20 pixels for the other kind of mask
    ready[bad : bad + 2] = held[bad : bad + 2] = [Rejected("too_many_pixels"), Rejected("too_large")]
    missing = {"missing": int64([0] * COUNT)} if options == "mask" else {}
    counts = {"+length": int64([1] * COUNT)} if is_list else {}
    limits = f"max_pixels: 16, max_bytes: 1000, {'image: image_beside, optional: true' if is_mask else 'size: 2'}"
    parts = {"": ready, **missing, **counts}, {"": held, **missing}
    return Case(f"{{kind: {options}, {limits}}}", raw, *parts, dataset="mask_limits" if is_mask else "image_limits")


BESIDE = by_row(lambda row: picture(row, (4, 5) if row in (1, 3) else (2, 2)))
LIMITS = {
    "image_limits": _limited("image", 1, picture),
    "image_sequence_limits": _limited("image_sequence", 3, picture),
    "image_beside": Case(
        "{kind: image, size: 2, fit: stretch, normalize: none, store: raw}", [*map(png, BESIDE)],
        {"": [auto(each, 2, 2) for each in BESIDE]}, {"": [as_raw(auto(each, 2, 2)) for each in BESIDE]},
        dataset="mask_limits",
    ),
    "mask_limits": _limited("mask", 1, values),
    "masks_limits": _limited("masks", 3, lambda *of: (values(*of) > 0).astype(np.uint8)),
}  # fmt: skip
CASES: dict[str, Case] = {**MASK, **MASKS, **PLACES, **_keypoints(), **LIMITS}
SPECS: dict[str, dict[str, object]] = dict.fromkeys(("image_limits", "mask_limits"), {"rejects": {"max_share": 1}})
