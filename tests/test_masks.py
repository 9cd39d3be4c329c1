"""Masks of objects: one an object of its image, 0 and 1, in order, drawn or from lists of files; read by both engines.

`test_mask` has the rules of files and places, `test_drawn_masks` those of shapes.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture
from pycocotools import mask as coco

from recordmill.augment import RandomAffine, RandomCrop, RandomFlip, RandomRotation90
from recordmill.dataset import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.images.masks import Frame, framed_values
from recordmill.pipeline.spec.model import Spec, load_spec
from recordmill.transforms.contract.image_header import ImageError
from recordmill.transforms.contract.kinds.mask import MasksOptions
from tests.messages import raises

OBJECTS = [0, 3, 1, 2, 5, 3]  # in each row; the last row has a bad mask
HEIGHT, WIDTH = 16, 16
SPEC = """
name: objects
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 1}
rejects: {max_share: 0.5}
features:
  image: {kind: image, size: 16, store: png, normalize: none}
  boxes: {kind: boxes, image: image, order: corners, unit: absolute}
  files: {kind: masks, image: image, optional: true}
  drawn: {kind: masks, image: image, column: shapes, draw: objects}
  numbers: {kind: mask, image: image, column: shapes, draw: instances, crowd: draw, dtype: uint16}
  first: {kind: masks, image: image, column: files, max_length: 2, store: raw, optional: true}
together: [boxes, drawn]
"""


def saved(picture: Picture.Image, form: str = "PNG") -> bytes:
    into = io.BytesIO()
    picture.save(into, form)
    return into.getvalue()


def rectangle(rng: np.random.Generator) -> tuple[list[int], np.ndarray]:
    (left, right), (top, bottom) = (sorted(map(int, rng.choice(17, 2, replace=False))) for _ in range(2))
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    pixels[top:bottom, left:right] = 1
    return [left, top, right, bottom], pixels


def write_rows(folder: Path) -> dict[bytes, list[np.ndarray]]:
    """Writes rows whose objects are rectangles: numbered files, of values 0 and 1 to 255, and run lengths."""
    rng, found, lines = np.random.default_rng(4), {}, []
    for row, count in enumerate(OBJECTS):
        objects = [rectangle(rng) for _ in range(count)]
        names = [f"{row}_{number}.png" for number in range(count)]
        for (_, pixels), name, inside in zip(objects, names, (255, 1, 7, 128, 255), strict=False):
            (folder / name).write_bytes(saved(Picture.fromarray(pixels * np.uint8(inside))))
        (folder / f"{row}.png").write_bytes(saved(Picture.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))))
        rles = [coco.encode(np.asfortranarray(pixels)) for _, pixels in objects]
        shapes = [
            {"name": "a", "crowd": number % 2, "rle": {"size": rle["size"], "counts": rle["counts"].decode()}}
            for number, rle in enumerate(rles)
        ]
        boxes = [box for box, _ in objects]
        lines.append({"id": row, "image": f"{row}.png", "files": names, "boxes": boxes, "shapes": shapes})
        found[str(row).encode()] = [pixels for _, pixels in objects]
    (folder / f"{len(OBJECTS) - 1}_1.png").write_bytes(saved(Picture.fromarray(np.eye(16, dtype=np.uint8) * 9 + 1)))
    lines[3]["shapes"].append({"name": "b", "polygons": []})  # an object without a shape and a box of nothing
    lines[3]["boxes"].append([0, 0, 0, 0])
    lines.append({**lines[4], "id": 6, "shapes": lines[4]["shapes"][1:]})
    lines[4].pop("files")
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "dataset.yaml").write_text(SPEC)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[bytes, list[np.ndarray]]]:
    folder = tmp_path_factory.mktemp("objects")
    found = write_rows(folder)
    build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"))
    return str(folder / "out"), found


def read(output: str, engine: str = "numpy", **keys: Any) -> Mapping[str, np.ndarray]:
    train = open_dataset(output).training_input("train", batch_size=5, with_key=True, **keys)
    batch = next(iter(train.as_numpy() if engine == "numpy" else train.as_tf_data()))
    return {name: np.asarray(values) for name, values in batch.items()}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpy", "tensorflow"])
def test_masks_move_with_their_image_and_boxes(built: tuple[str, dict[bytes, list[np.ndarray]]], engine: str) -> None:
    """A mask of one object is a rectangle: by whole pixels, its moved box is the box around it."""
    for changes in ([RandomFlip(0.5, 0.5), RandomRotation90()], [RandomCrop(12), RandomFlip()], [RandomCrop(20)]):
        batch = read(built[0], engine, augment=changes, seed=3)
        size = batch["image"].shape[1]
        assert batch["drawn"].shape == (5, 5, size, size)
        for masks, boxes in zip(batch["drawn"], batch["boxes"], strict=True):
            for mask, box in zip(masks, np.rint(boxes * size).astype(int), strict=True):
                top, left, bottom, right = box
                expected = np.zeros((size, size), np.uint8)
                expected[top:bottom, left:right] = 1
                np.testing.assert_array_equal(mask, expected)
    batch = read(built[0], engine, augment=[RandomAffine(degrees=30)], seed=3)
    assert set(np.unique(batch["drawn"])) == {0, 1}


def options(**keys: Any) -> MasksOptions:
    return MasksOptions(max_pixels=1_000, max_bytes=9, image="image", crowd="draw", **keys)


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
        framed_values(data, options(**keys), Frame(1, 4, 1), 7)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("image", "keys", "facts"),
    [
        ({"fit": "none"}, {}, ["'image'", "`size`"]),
        ({"size": 8}, {"draw": "objects", "length": 3}, ["`max_length`"]),
        ({"size": 8}, {"image": "no"}, ["'no'"]),
    ],
)
def test_wrong_options_are_named(image: dict[str, Any], keys: dict[str, Any], facts: list[str]) -> None:
    features = {"image": {"kind": "image", **image}, "masks": {"kind": "masks", "image": "image", **keys}}
    with raises(ValueError, *facts):
        Spec.model_validate({"name": "x", "source": {"format": "image_folder", "path": "x"}, "features": features})
