"""Models learn what lies on images: masks from `init` to serving, key points, and depth."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageDraw

from recordmill import Dataset, build, open_dataset, parse_spec
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.facts.page import report_of
from recordmill.pipeline.init.starter import starter
from tests.messages import assert_names

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(yaml|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROWS = 120
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def seed() -> None:
    import keras

    keras.utils.set_random_seed(0)


@pytest.mark.nightly
def test_a_model_learns_masks_from_what_init_suggests(tmp_path: Path) -> None:
    """By chance the overlap is 0.31, if all is background."""
    data, output = tmp_path / "data", tmp_path / "out"
    runpy.run_path(str(ROOT / "examples/segmentation/generate.py"))["generate"](data, ROWS)
    (data / "coco.json").unlink()
    spec = starter(str(data), BeamFiles())
    assert "\nlabel: mask" in spec
    build(parse_spec(spec), str(output))
    model = segmenter()
    assert learned("segmentation", open_dataset(output), "photos", model, "image")["overlap"] > 0.5
    check_served(model, open_dataset(output), data)
    assert_names(report_of(open_dataset(output)).decode(), "classes: 3", "255 ignored")


def learned(page: str, dataset: Dataset, called: str, model: Any, *features: str) -> dict[str, float]:
    """Trains a model by the code of a page; returns what it reaches on the test split."""
    import keras

    from recordmill.augment import RandomAffine, RandomFlip

    code, *_ = [
        text for language, text in BLOCK.findall((ROOT / f"docs/{page}.md").read_text()) if language == "python"
    ]
    names = {"keras": keras, "RandomAffine": RandomAffine, "RandomFlip": RandomFlip, called: dataset, "model": model}
    exec(compile(code, f"docs/{page}.md", "exec"), names)  # noqa: S102
    test = dataset.evaluation_input("test", batch_size=8, features=list(features))
    return model.evaluate(test.as_tf_data(model), verbose=0, return_dict=True)


def build_page(page: str, folder: Path, rows: Iterator[dict[str, Any]]) -> Dataset:
    """Builds rows by the first spec of a page."""
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    features = BLOCK.search((ROOT / f"docs/{page}.md").read_text())
    assert features is not None
    head = f"name: page\nsource: {{format: jsonl, path: {folder}/rows.jsonl}}\nsplits: {{train: 80, test: 20}}\n"
    build(parse_spec(head + features[2]), str(folder / "out"))
    return open_dataset(folder / "out")


def segmenter() -> Any:
    """Makes a model of two convolutions, on a grid of 32 by 32."""
    import keras
    from keras import layers

    image = keras.Input((224, 224, 3), name="image")
    found = layers.AveragePooling2D(7)(image)
    for filters in (16, 24):
        found = layers.ReLU()(layers.BatchNormalization(momentum=0.7)(layers.Conv2D(filters, 5, padding="same")(found)))
    scores = layers.UpSampling2D(7, interpolation="bilinear")(layers.Conv2D(3, 1)(found))
    return keras.Model(image, scores)


def check_served(model: Any, dataset: Dataset, data: Path) -> None:
    """A file, without a mask, gets the scores of its record's pixels."""
    from recordmill.keras import servable

    features, _ = next(iter(dataset.evaluation_input("test", batch_size=1, with_key=True).as_numpy()))
    name = Path(features["key"][0].decode()).stem.zfill(4)
    (file,) = data.glob(f"*/{name}.jpg")
    served = servable(model, dataset, activation="softmax")(image=[file.read_bytes()])["output"].numpy()
    assert served.shape == (1, 224, 224, 3)
    logits = model.predict(features["image"], verbose=0)
    wanted = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert np.allclose(served, wanted, atol=1e-3)


@pytest.mark.nightly
def test_a_model_learns_key_points_that_move_with_their_image(tmp_path: Path) -> None:
    """A face of three dots; a model that always answers with the middle errs by 0.02, squared."""
    dataset = build_page("keypoints", tmp_path, faces(tmp_path))
    error = learned("keypoints", dataset, "people", pose_model(), "image")["loss"]
    assert error < 0.005, error


def faces(folder: Path) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(0)
    for number in range(ROWS):
        picture, (x, y) = Image.new("RGB", (96, 128)), random.uniform((20, 20), (76, 108))
        places = [(x, y), (x + 12, y - 12), (x - 12, y - 12)]  # its left is our right
        for (across, down), color in zip(places, ("red", "lime", "blue"), strict=True):
            ImageDraw.Draw(picture).ellipse([across - 5, down - 5, across + 5, down + 5], color)
        picture.save(folder / f"{number}.png")
        points = [float(each) for place in places for each in (*place, 2)]
        yield {"image": str(folder / f"{number}.png"), "keypoints": points}


def pose_model() -> Any:
    """Makes a model of two convolutions and two dense layers."""
    import keras
    from keras import layers

    image = keras.Input((256, 192, 3), name="image")
    found = layers.AveragePooling2D(8)(image)
    for _ in range(2):
        found = layers.Conv2D(16, 5, padding="same", activation="relu")(found)
    flat = layers.Dense(64, activation="relu")(layers.Flatten()(layers.MaxPooling2D(2)(found)))
    return keras.Model(image, layers.Reshape((4, 3, 2))(layers.Dense(24, "sigmoid")(flat)))


@pytest.mark.nightly
def test_a_model_learns_depth(tmp_path: Path) -> None:
    """Depth is where the X-ray is bright, 0 to 80 for 0 to 4,095."""
    import keras
    from keras import layers

    dataset = build_page("depth", tmp_path, scans(tmp_path))
    xray = keras.Input((512, 512, 1), name="xray")
    small = layers.Conv2D(4, 3, padding="same", activation="relu")(layers.AveragePooling2D(8)(xray))
    model = keras.Model(xray, layers.UpSampling2D(4)(layers.Conv2D(1, 3, padding="same")(small)))
    assert learned("depth", dataset, "scans", model, "xray")["loss"] < 0.05
    assert "black…white" in report_of(dataset).decode()


def scans(folder: Path) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(0)
    for number in range(40):
        coarse = Image.fromarray(random.uniform(0, 4095, (6, 6)).astype(np.float32))
        light = np.asarray(coarse.resize((64, 64))).clip(0, 4095)
        files = {"image": light.astype(np.uint16), "tile": np.repeat(light[..., None], 8, 2).astype(np.uint16)}
        for name, pixels in (files | {"depth": light / 4095 * 80}).items():
            tifffile.imwrite(folder / f"{name}{number}.tif", pixels, photometric="minisblack", planarconfig="contig")
        yield {name: str(folder / f"{name}{number}.tif") for name in ("image", "tile", "depth")}
