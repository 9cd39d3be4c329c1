"""Masks of objects: one an object of its image, 0 and 1, in order, drawn or from lists of files; read by both engines.

`test_mask` has the rules of files and places, `test_drawn_masks` those of shapes.
"""

import io
import json
from collections.abc import Mapping
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

HEIGHT, WIDTH = 16, 16
SPEC = """
name: objects
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 1}
features:
  image: {kind: image, size: 16, store: png, normalize: none}
  boxes: {kind: boxes, image: image, order: corners, unit: absolute}
  drawn: {kind: masks, image: image, column: shapes, draw: objects}
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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows whose objects are rectangles, up to five each."""
    folder, rng, lines = tmp_path_factory.mktemp("objects"), np.random.default_rng(4), []
    for row, count in enumerate((0, 3, 1, 2, 5)):
        objects = [rectangle(rng) for _ in range(count)]
        (folder / f"{row}.png").write_bytes(saved(Picture.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))))
        rles = [coco.encode(np.asfortranarray(pixels)) for _, pixels in objects]
        shapes = [{"name": "a", "rle": {**rle, "counts": rle["counts"].decode()}} for rle in rles]
        lines.append({"id": row, "image": f"{row}.png", "boxes": [box for box, _ in objects], "shapes": shapes})
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "dataset.yaml").write_text(SPEC)
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out")).folder


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpy", "tensorflow"])
def test_masks_move_with_their_image_and_boxes(built: str, engine: str) -> None:
    """A mask of one object is a rectangle: by whole pixels, its moved box is the box around it."""

    def read(augment: list[Any]) -> Mapping[str, np.ndarray]:
        train = open_dataset(built).training_input("train", batch_size=5, augment=augment, seed=3)
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
