"""Masks: values of files, checked, moved as their image by the nearest pixel, read by both engines."""

import io
import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture
from pycocotools import mask as coco

from recordmill.augment import CutMix, RandomAffine, RandomCrop, RandomFlip, RandomRotation90
from recordmill.dataset import open_dataset
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.images.masks import Frame, framed_values, stored_mask, values
from recordmill.pipeline.build.images.read import BuildImageReader, Loaded
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.facts.painting import painted
from recordmill.pipeline.sources.images import inline
from recordmill.pipeline.spec.model import Spec, load_spec
from recordmill.transforms.images import image_graph as image
from recordmill.transforms.images.image_facts import UNLEARNED, loss_lines
from recordmill.transforms.images.image_header import ImageError
from recordmill.transforms.images.image_read import ImageReader
from recordmill.transforms.images.image_stored import MaskDescription
from recordmill.transforms.images.mask_spec import Mask, Masks
from tests import pictures
from tests.messages import assert_names, raises
from tests.pictures import png
from tests.tables import npy

Values = np.ndarray
VOC = {0: "background", 1: "aeroplane", 15: "person", 16: "plant"}
MANY_PIXELS = 1 << 30


def of_spec(of_image: Mapping[str, Any] = {"size": 8}, **keys: Any) -> tuple[Mask, MaskDescription]:  # noqa: B006
    features = {"image": {"kind": "image", **of_image}, "mask": {"kind": "mask", "image": "image", **keys}}
    spec = Spec.model_validate({"name": "x", "source": {"format": "image_folder", "path": "x"}, "features": features})
    description = spec.features["mask"].describe({})
    assert isinstance(description, MaskDescription)
    return spec.features["mask"], description  # type: ignore[return-value]


def saved(picture: Picture.Image, form: str = "PNG", **keys: Any) -> bytes:
    return pictures.saved(picture, form, **keys)


def palette(found: Values, form: str = "PNG", **keys: Any) -> bytes:
    picture = Picture.fromarray(found)
    picture.putpalette(np.random.default_rng(5).integers(0, 256, 3 * (int(found.max()) + 1), np.uint8).tobytes())
    return saved(picture, form, **keys)


def tiff(found: Values, **keys: Any) -> bytes:
    into = io.BytesIO()
    tifffile.imwrite(into, found, **keys)
    return into.getvalue()


FORMS: dict[str, tuple[int, Callable[[Values], bytes]]] = {
    "palette PNG": (255, palette),
    "palette PNG, 2 colours": (1, palette),
    "palette PNG, 4 bits": (15, palette),
    "palette GIF": (255, lambda found: palette(found, "GIF", optimize=False)),
    "palette BMP": (255, lambda found: palette(found, "BMP")),
    "palette TIFF": (255, lambda found: palette(found, "TIFF", compression="tiff_lzw")),
    "clear palette PNG": (200, lambda found: palette(found, transparency=0)),
    "grey PNG": (255, lambda found: saved(Picture.fromarray(found))),
    "grey PNG, 1 bit": (1, lambda found: png(found[..., None], 1, 0)),
    "grey PNG, 2 bits": (3, lambda found: png(found[..., None], 2, 0)),
    "grey PNG, 4 bits": (15, lambda found: png(found[..., None], 4, 0)),
    "1-bit PNG": (1, lambda found: saved(Picture.fromarray(found * 255).convert("1"))),
    "16-bit PNG": (255, lambda found: saved(Picture.fromarray(found.astype(np.uint16)))),
    "grey TIFF": (255, lambda found: saved(Picture.fromarray(found), "TIFF")),
    "grey as RGB": (255, lambda found: saved(Picture.fromarray(np.stack([found] * 3, -1)))),
    "grey, opaque": (255, lambda found: saved(Picture.fromarray(np.stack([found, 0 * found + 255], -1)))),
    "uint8 .npy": (255, npy),
    "int64 .npy": (255, lambda found: npy(found.astype(np.int64))),
    "columns first .npy": (255, lambda found: npy(np.asfortranarray(found.astype(">u2")))),
    "PNG of 16 bits": (65_535, lambda found: saved(Picture.fromarray(found.astype(np.uint16)))),
    "TIFF of 16 bits": (65_535, lambda found: saved(Picture.fromarray(found.astype(np.uint16)), "TIFF")),
    "big-endian TIFF": (65_535, lambda found: tiff(found.astype(np.uint16), byteorder=">")),
    "TIFF of 32 bits": (65_535, lambda found: tiff(found.astype(np.int32), compression="zlib")),
    "16 bits .npy": (65_535, lambda found: npy(found.astype(np.uint16))),
}  # fmt: skip
sides = st.tuples(st.integers(1, 25), st.integers(1, 25))


@pytest.mark.parametrize("form", FORMS)
@given(sides, st.integers(0, 1 << 30))
def test_a_pixel_is_its_index_or_level(form: str, shape: tuple[int, int], seed: int) -> None:
    most, write = FORMS[form]
    dtype = "uint8" if most < 256 else "uint16"
    found = np.random.default_rng(seed).integers(0, most + 1, shape, dtype)
    got = values(write(found), MANY_PIXELS, None, dtype)
    np.testing.assert_array_equal(got, found)
    assert got.dtype == dtype


@given(sides, st.integers(0, 1 << 30), st.booleans())
def test_colours_are_their_classes(shape: tuple[int, int], seed: int, is_palette: bool) -> None:
    rng = np.random.default_rng(seed)
    colors = {(*map(int, rng.integers(0, 256, 3)),): int(value) for value in rng.permutation(256)[:9]}
    chosen = rng.integers(0, len(colors), shape)
    picture = Picture.fromarray(np.array([*colors], np.uint8)[chosen])
    file = saved(picture.convert("P", palette=Picture.Palette.ADAPTIVE, colors=16) if is_palette else picture)
    expected = np.array([*colors.values()], np.uint8)[chosen]
    np.testing.assert_array_equal(values(file, MANY_PIXELS, [*colors.items()]), expected)


RAMP = np.arange(12, dtype=np.uint8).reshape(3, 4)
CLEAR = np.dstack([RAMP, RAMP])
RED = np.zeros((3, 4, 3), np.uint8) + np.array([128, 0, 0], np.uint8)


@pytest.mark.parametrize(
    ("file", "reason", "facts"),
    [
        (saved(Picture.fromarray(RAMP), "JPEG"), "unsupported_format", ["JPEG", "PNG"]),
        (saved(Picture.fromarray(RAMP), "WEBP", lossless=True), "unsupported_format", ["WebP", "PNG"]),
        (saved(Picture.fromarray(RAMP), "TIFF", compression="jpeg"), "unsupported_format", ["TIFF", "PNG"]),
        (saved(Picture.fromarray(RAMP), "GIF", save_all=True, append_images=[Picture.fromarray(RAMP + np.uint8(1))]),
         "unsupported_format", ["several", "frames"]),
        (tiff(np.stack([RAMP] * 2), photometric="minisblack"), "unsupported_format", ["several pages"]),
        (saved(Picture.fromarray(RED)), "unsupported_format", ["`colors`"]),
        (saved(Picture.fromarray(CLEAR)), "unsupported_format", ["alpha"]),
        (saved(Picture.fromarray(RAMP.astype(np.uint16) + 250)), "unknown_class", ["256", "6", "`dtype: uint16`"]),
        (saved(Picture.fromarray(RAMP / np.float32(2)), "TIFF"), "unknown_class", ["0.5", "6"]),
        (saved(Picture.fromarray(RAMP * np.float32(np.nan)), "TIFF"), "unknown_class", ["nan", "12"]),
        (saved(Picture.fromarray(RAMP - np.uint8(1)), "TIFF", tiffinfo={339: 2}), "unknown_class", ["-1"]),
        (saved(Picture.fromarray(RAMP), "TIFF", tiffinfo={262: 0}), "unsupported_format", ["white", "PNG"]),
        (npy(RAMP.astype(np.int64) - 1), "unknown_class", ["-1"]),
        (npy(RAMP / np.float32(2)), "unknown_class", ["0.5", "6"]),
        (npy(np.array([["a"]])), "unsupported_format", ["array of numbers"]),
        (tiff(np.stack([RAMP] * 3, -1) * np.uint16(257), photometric="rgb"), "unsupported_format", ["16", "grey"]),
        (npy(np.dstack([RAMP, RAMP])), "unsupported_format", ["[3, 4, 2]"]),
        (saved(Picture.fromarray(RAMP))[:50], "undecodable_image", []),
        (b"text", "unsupported_format", []),
    ],
)  # fmt: skip
def test_files_that_hold_no_values_are_rejects(file: bytes, reason: str, facts: list[str]) -> None:
    with raises(ImageError, *facts) as caught:
        values(file, MANY_PIXELS, None)
    assert caught.value.reason == reason


@pytest.mark.parametrize("found", [RAMP > 5, (RAMP > 5) * 2.0, RAMP[..., np.newaxis], RAMP.astype(np.int64)])
def test_an_array_of_whole_numbers_is_a_mask_in_any_type(found: Any) -> None:
    np.testing.assert_array_equal(values(npy(found), MANY_PIXELS, None), found.reshape(3, 4))


def test_an_unknown_colour_is_named_and_counted() -> None:
    with raises(ImageError, "[128, 0, 0]", "12") as caught:
        values(saved(Picture.fromarray(RED)), MANY_PIXELS, [((0, 0, 0), 0), ((128, 0, 1), 1)])
    assert caught.value.reason == "unknown_class"


def mask_file(data: bytes, options: Mask | Masks, frame: Frame) -> bytes:
    return stored_mask(framed_values(data, options, frame)[0], options, frame.turn)


def test_unknown_values_are_named_and_counted() -> None:
    options, _ = of_spec(classes=VOC, ignore=255)
    good = np.array([[0, 1, 255], [15, 16, 0]], np.uint8)
    np.testing.assert_array_equal(framed_values(palette(good), options, Frame(2, 3, 1))[0], good)
    with raises(ImageError, "7 in 2", "254 in 1") as caught:
        framed_values(palette(np.array([[0, 7, 254], [7, 1, 255]], np.uint8)), options, Frame(2, 3, 1))
    assert caught.value.reason == "unknown_class"


def test_another_size_than_the_images_names_both() -> None:
    options, _ = of_spec()
    with raises(ImageError, "4 x 3", "3 x 4", "'image'", "`oriented: file`") as caught:
        framed_values(palette(RAMP), options, Frame(4, 3, 1))
    assert caught.value.reason == "unequal_sides"


@pytest.mark.parametrize("sides", [(7, 5), (3, 4), (2, 9), (1, 1)])
def test_another_size_is_scaled_by_the_nearest_pixel(sides: tuple[int, int]) -> None:
    found, _ = framed_values(palette(RAMP), of_spec(resize="nearest")[0], Frame(*sides, 1))
    np.testing.assert_array_equal(found, Picture.fromarray(RAMP).resize(sides[::-1], Picture.Resampling.NEAREST))


@pytest.mark.parametrize(
    ("found", "ignore", "is_counted"),
    [([0, 255], 255, True), ([255, 255], 255, True), ([0, 1, 255], 255, False), ([0, 1], 255, False),
     ([0, 0], None, False), ([0, 0], 0, True), ([0, 5], 0, False)],
)  # fmt: skip
def test_ignored_objects_are_counted(found: list[int], ignore: int | None, is_counted: bool) -> None:
    options, _ = of_spec(ignore=ignore)
    files = BuildImageReader(BeamFiles(), [""], "")
    image = Loaded(saved(Picture.new("RGB", (len(found), 1))), b"", 0)
    mask = inline(saved(Picture.fromarray(np.array([found], np.uint8))))
    (loaded,) = files.load_all(0, mask, options, [image])
    assert [*loaded.counts] == [("losses", UNLEARNED)] * is_counted
    lines = [*loss_lines({UNLEARNED: 3})]
    assert_names(lines[0], "3 with", "`ignore`", "`classes`")


# --- resized: the other side is plain Python


def rounded(share: Fraction) -> int:
    return max(1, floor(share + Fraction(1, 2)))


def taken(before: int, after: int) -> list[int]:
    step = np.float32(before) / np.float32(after)
    return [min(floor(np.float32(place + 0.5) * step), before - 1) for place in range(after)]


def nearest(found: Values, size: tuple[int, int]) -> Values:
    rows, columns = map(taken, found.shape, size)
    return np.array([[found[row][column] for column in columns] for row in rows], found.dtype)


def placed(found: Values, of_image: Mapping[str, Any], outside: int) -> Values:
    (height, width), size, fit = found.shape, of_image.get("size"), of_image.get("fit", "pad")
    if size is None:
        shorter = of_image.get("shorter_side", min(height, width))
        scale = Fraction(shorter, min(height, width))
        return nearest(found, (rounded(height * scale), rounded(width * scale)))
    if fit == "stretch":
        return nearest(found, size)
    if fit == "crop":
        high, wide = Fraction(width * size[0], size[1]), Fraction(height * size[1], size[0])
        box = min(height, rounded(high)), min(width, rounded(wide))
        top, left = (height - box[0]) // 2, (width - box[1]) // 2
        return nearest(found[top : top + box[0], left : left + box[1]], size)
    high, wide = Fraction(height * size[1], width), Fraction(width * size[0], height)
    scaled = min(size[0], rounded(high)), min(size[1], rounded(wide))
    full = np.full(size, outside, found.dtype)
    top, left = (size[0] - scaled[0]) // 2, (size[1] - scaled[1]) // 2
    full[top : top + scaled[0], left : left + scaled[1]] = nearest(found, scaled)
    return full


def in_batch(masks: list[Values], outside: int) -> Values:
    full = np.full((len(masks), *np.max([mask.shape for mask in masks], 0)), outside, masks[0].dtype)
    for row, mask in zip(full, masks, strict=True):
        row[: mask.shape[0], : mask.shape[1]] = mask
    return full


@pytest.mark.parametrize(("ignore", "dtype"), [(None, "uint8"), (255, "uint8"), (60_001, "uint16")])
@pytest.mark.parametrize(
    ("of_image", "store"),
    [
        ({"size": (9, 14)}, "png"),
        ({"size": (9, 14)}, "raw"),
        ({"size": (14, 9), "fit": "crop"}, "png"),
        ({"size": (7, 7), "fit": "stretch", "resize": "bicubic", "store": "original"}, "png"),
        ({"fit": "none"}, "png"),
        ({"shorter_side": 6}, "png"),
    ],
    ids=str,
)
@settings(max_examples=12)
@given(st.lists(sides, min_size=1, max_size=3), st.integers(0, 1 << 30))
def test_a_mask_takes_the_nearest_pixel_of_its_images_place(
    ignore: int | None, dtype: str, of_image: dict[str, Any], store: str, shapes: list[tuple[int, int]], seed: int
) -> None:
    options, description = of_spec(of_image, store=store, ignore=ignore, dtype=dtype)
    rng = np.random.default_rng(seed)
    found = [rng.integers(0, np.iinfo(dtype).max, shape, dtype) for shape in shapes]
    files = [mask_file(saved(Picture.fromarray(each)), options, Frame(*each.shape, 1)) for each in found]
    outside = ignore or 0
    expected = in_batch([placed(each, of_image, outside) for each in found], outside)[..., np.newaxis]
    read = image.features(description, {"": tf.constant(files)})[""].numpy()
    np.testing.assert_array_equal(read, expected)
    assert read.dtype == dtype
    np.testing.assert_array_equal(ImageReader("mask", description, None).images(files)[""], expected)


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ({"image": "no"}, ["'no'"]),
        ({"classes": ["a", "b"], "ignore": 1}, ["1", "value of a class"]),
        ({"ignore": 256}, ["256", "`dtype: uint16`"]),
        ({"classes": {300: "a"}}, ["300", "`dtype: uint16`"]),
        ({"draw": "classes"}, ["`draw: classes`"]),
        ({"draw": "instances", "classes": VOC}, ["`draw: instances`"]),
        ({"classes": VOC, "colors": {"persn": 255}}, ["persn", "person"]),
        ({"classes": ["a", "b"], "colors": {"a": 9, "b": [9, 9, 9]}}, ["one colour"]),
        ({"classes": ["a", "b"], "colors": {"a": 9}, "draw": "classes"}, ["`draw`"]),
    ],
)
def test_wrong_options_are_named(keys: dict[str, Any], facts: list[str]) -> None:
    with raises(ValueError, *facts):
        of_spec(**keys)


# --- augmented

COLOURS = np.array([[0, 0, 0], [250, 10, 10], [10, 250, 10], [10, 10, 250], [200, 200, 10]], np.uint8)
SPEC = """
name: shapes
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 1}
features:
  mask: {kind: mask, image: image, classes: [none, a, b, c, d], ignore: 255}
  image: {kind: image, size: [24, 32], store: png, normalize: none, background: [0, 0, 0]}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Images whose colours are their masks' classes, 24 x 32 pixels."""
    folder, rng, lines = tmp_path_factory.mktemp("masks"), np.random.default_rng(3), []
    for row in range(8):
        mask = np.kron(rng.integers(0, 5, (4, 4)), np.ones((6, 8))).astype(np.uint8)
        (folder / f"{row}.png").write_bytes(saved(Picture.fromarray(COLOURS[mask])))
        (folder / f"{row}_mask.png").write_bytes(palette(mask))
        lines.append(json.dumps({"id": f"{row}", "image": f"{row}.png", "mask": f"{row}_mask.png"}))
    (folder / "rows.jsonl").write_text("\n".join(lines))
    (folder / "dataset.yaml").write_text(SPEC)
    return open_dataset(build(load_spec(str(folder / "dataset.yaml")), str(folder / "out")).folder)


def moved(built: Any, changes: Any, **options: Any) -> tuple[Values, Values]:
    """Returns the masks and the images of a batch."""
    (batch, *_) = built.training_input("train", batch_size=8, shuffle="none", augment=changes, **options).as_numpy()
    return batch["mask"][..., 0], batch["image"]


def test_a_mask_is_painted_on_a_stretched_deep_image() -> None:
    deep = np.arange(16, dtype=np.uint16).reshape(2, 2, 4) * 4000
    shown = np.asarray(painted(np.array([[[0], [0]], [[1], [0]]], np.uint8), deep, None))
    assert (shown.shape, shown[0, 0].tolist(), shown[1, 1].tolist()) == ((2, 2, 3), [0] * 3, [255] * 3)
    assert shown[1, 0].tolist() not in shown[0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [[RandomFlip(0.5, 0.5)], [RandomCrop((12, 20)), RandomFlip()], [RandomRotation90()], [RandomCrop((30, 30))]],
    ids=str,
)
def test_a_mask_moves_with_its_image(built: Any, changes: list[Any]) -> None:
    """Each pixel of an image has its mask's colour, wherever it went; outside, images are black and masks ignored."""
    for wanted in (changes, {"image": changes}):
        masks, images = moved(built, wanted, dtype="uint8")
        assert masks.shape == images.shape[:3]
        inside = masks != 255
        assert inside.all() == (changes != [RandomCrop((30, 30))])
        np.testing.assert_array_equal(COLOURS[np.where(inside, masks, 0)], images)


@pytest.mark.slow
def test_an_affine_mask_is_nearest(built: Any) -> None:
    masks, images = moved(built, [RandomAffine(degrees=20, translate=0.2, scale=(0.8, 1.2))])
    assert set(np.unique(masks)) <= {0, 1, 2, 3, 4, 255}
    pure = (images[..., np.newaxis, :] == COLOURS[1:]).all(-1)  # pixels between four of one colour
    assert pure.sum() > 100
    np.testing.assert_array_equal(masks[pure.any(-1)], pure.argmax(-1)[pure.any(-1)] + 1)
    assert (images[masks == 255].max(initial=0) < 250).all()
    assert (masks == 255).any()


@pytest.mark.slow
def test_mixtures_of_masks_must_be_asked_for(built: Any) -> None:
    with raises(DatasetError, "mask", "images="):
        moved(built, [CutMix()])


HEIGHT, WIDTH = 16, 16
OBJECTS = """
name: objects
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 1}
features:
  image: {kind: image, size: 16, store: png, normalize: none}
  boxes: {kind: boxes, image: image, order: corners, unit: absolute}
  drawn: {kind: masks, image: image, column: shapes, draw: objects}
"""


def rectangle(rng: np.random.Generator) -> tuple[list[int], np.ndarray]:
    (left, right), (top, bottom) = (sorted(map(int, rng.choice(17, 2, replace=False))) for _ in range(2))
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    pixels[top:bottom, left:right] = 1
    return [left, top, right, bottom], pixels


@pytest.fixture(scope="module")
def built_objects(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows whose objects are rectangles, up to five each."""
    folder, rng, lines = tmp_path_factory.mktemp("objects"), np.random.default_rng(4), []
    for row, count in enumerate((0, 3, 1, 2, 5)):
        objects = [rectangle(rng) for _ in range(count)]
        (folder / f"{row}.png").write_bytes(saved(Picture.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))))
        rles = [coco.encode(np.asfortranarray(pixels)) for _, pixels in objects]
        shapes = [{"name": "a", "rle": {**rle, "counts": rle["counts"].decode()}} for rle in rles]
        lines.append({"id": row, "image": f"{row}.png", "boxes": [box for box, _ in objects], "shapes": shapes})
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "dataset.yaml").write_text(OBJECTS)
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out")).folder


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpy", "tensorflow"])
def test_masks_move_with_their_image_and_boxes(built_objects: str, engine: str) -> None:
    """A mask of one object is a rectangle: by whole pixels, its moved box is the box around it."""

    def read(augment: list[Any]) -> Mapping[str, np.ndarray]:
        train = open_dataset(built_objects).training_input("train", batch_size=5, augment=augment, seed=3)
        batch = next(iter(train.as_numpy() if engine == "numpy" else train.as_tf_data()))
        return {name: np.asarray(values) for name, values in batch.items()}

    for changes in ([RandomFlip(0.5, 0.5), RandomRotation90()], [RandomCrop(12), RandomFlip()], [RandomCrop(20)]):
        batch = read(changes)
        size = batch["image"].shape[1]
        assert batch["drawn"].shape == (5, 5, size, size)
        for masks, boxes in zip(batch["drawn"], batch["boxes"], strict=True):
            for mask, (top, left, bottom, right) in zip(masks, np.rint(boxes * size).astype(int), strict=True):
                expected = np.zeros((size, size), np.uint8)
                expected[top:bottom, left:right] = 1
                np.testing.assert_array_equal(mask, expected)
    assert set(np.unique(read([RandomAffine(degrees=30)])["drawn"])) == {0, 1}


@pytest.mark.parametrize(
    ("data", "keys", "reason", "facts"),
    [
        (saved(Picture.fromarray(np.arange(4, dtype=np.uint8)[None])), {}, "unknown_class", ["1, 2, 3", "0"]),
        (saved(Picture.fromarray(np.zeros((1, 4), np.uint8)), "JPEG"), {}, "unsupported_format", ["JPEG", "PNG"]),
        (saved(Picture.fromarray(np.zeros((4, 1), np.uint8))), {}, "unequal_sides", ["1 x 4", "4 x 1"]),
        (b'[{"polygons": [[1, 2]]}]', {"draw": "objects"}, "malformed_row", ["object 7"]),
    ],
    ids=str,
)
def test_bad_masks_are_named(data: bytes, keys: dict[str, Any], reason: str, facts: list[str]) -> None:
    with raises(ImageError, *facts) as caught:
        framed_values(data, Masks(kind="masks", image="image", **keys), Frame(1, 4, 1), 7)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("image", "keys", "facts"),
    [
        ({"fit": "none"}, {}, ["'image'", "`size`"]),
        ({"size": 8}, {"draw": "objects", "length": 3}, ["`max_length`"]),
        ({"size": 8}, {"image": "no"}, ["'no'"]),
    ],
)
def test_wrong_options_of_masks_are_named(image: dict[str, Any], keys: dict[str, Any], facts: list[str]) -> None:
    features = {"image": {"kind": "image", **image}, "masks": {"kind": "masks", "image": "image", **keys}}
    with raises(ValueError, *facts):
        Spec.model_validate({"name": "x", "source": {"format": "image_folder", "path": "x"}, "features": features})
