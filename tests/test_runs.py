"""Run lengths in a column: drawn as plain Python draws them, and found by `init` with the side they run along."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture
from pycocotools import mask as coco

from recordmill.dataset import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.images.masks import drawn
from recordmill.pipeline.init.starter import first_lines, starter
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.images.image_header import ImageError
from recordmill.transforms.images.mask_spec import Mask
from recordmill.transforms.images.shapes import counts_of_runs, run_lengths
from tests.messages import assert_names, raises
from tests.tables import FILES

SIDES = ("columns", "rows")


def options(runs: str, draw: str = "classes") -> Mask:
    classes = {"classes": ["background", "a", "b"], "names": "c"} if draw == "classes" else {}
    return Mask(kind="mask", image="image", runs=runs, draw=draw, **classes)


def written(pixels: np.ndarray, runs: str) -> str:
    """Writes a mask's runs, pixel by pixel."""
    found, last = list[list[int]](), -1
    for place in np.flatnonzero(pixels.ravel("F" if runs == "columns" else "C")).tolist():
        if found and place == last + 1:
            found[-1][1] += 1
        else:
            found.append([place + 1, 1])
        last = place
    return " ".join(f"{start} {length}" for start, length in found)


@given(st.integers(1, 9), st.integers(1, 9), st.lists(st.booleans(), max_size=40), st.sampled_from(SIDES))
def test_runs_are_the_pixels_that_plain_python_wrote(height: int, width: int, inside: list[bool], runs: str) -> None:
    pixels = np.resize(np.array([*inside, False]), (height, width))
    rows = json.dumps([{"runs": written(pixels, runs), "name": "b"}]).encode()
    np.testing.assert_array_equal(drawn(rows, options(runs), height, width)[0], 2 * pixels)
    as_coco = coco.encode(np.asfortranarray(pixels.astype(np.uint8)))["counts"].decode()
    counts = counts_of_runs(written(pixels, "columns"), pixels.size)
    assert [each for each in counts[1:] if each] == [each for each in run_lengths(as_coco)[1:].tolist() if each]


@pytest.mark.parametrize(
    ("runs", "facts"),
    [
        ("1 2 3", ["3 numbers"]), ("-1", ["1 numbers"]), ("1.5 2", ["1.5"]), ("one 2", ["one"]),
        ("0 3", ["0 3", "1 to 30"]), ("5 -2", ["5 -2"]), ("28 4", ["28 4", "1 to 30"]), ("31 1", ["31 1", "30"]),
        ("5 4 8 2", ["8 2", "9 to 30"]), ("9 2 1 2", ["1 2", "11 to 30"]), (f"{10**30} 1", ["object 2"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("along", SIDES)
def test_wrong_runs_are_rejects_that_name_the_object_and_the_run(runs: str, facts: list[str], along: str) -> None:
    with raises(ImageError, "object 2", *facts) as caught:
        drawn(json.dumps([{"runs": "1 1"}, {"runs": runs}]).encode(), options(along, draw="instances"), 5, 6)
    assert caught.value.reason == "malformed_row"


@pytest.mark.parametrize(
    ("mask", "facts"),
    [
        ("kind: mask, runs: columns", ["runs", "`draw`"]),
        ("kind: masks, runs: rows", ["runs", "`draw`"]),
        ("kind: mask, draw: classes, classes: [background, a, b], runs: rows", ["classes", "`names`"]),
        ("kind: mask, draw: classes, classes: [background, a, b], names: c", ["names", "`runs`"]),
        ("kind: mask, draw: instances, runs: columns, names: c", ["names", "`draw: classes`"]),
    ],
)
def test_wrong_options_are_named(mask: str, facts: list[str]) -> None:
    features = f"{{image: {{kind: image, size: [8, 8]}}, mask: {{image: image, {mask}}}}}"
    with raises(SpecError, *facts):
        parse_spec(f"name: a\nsource: {{format: csv, path: a.csv}}\nfeatures: {features}\n")


def blob(seed: int, height: int, width: int) -> np.ndarray:
    """A rectangle without a corner."""
    rng = np.random.default_rng(seed)
    pixels, y, x = np.zeros((height, width), bool), *rng.integers(0, [height // 2, width // 2])
    pixels[y : y + height // 3, x : x + width // 3] = True
    pixels[y, x] = False
    return pixels


def objects(number: int, size: tuple[int, int]) -> list[np.ndarray]:
    """The objects of an image: none, two or four."""
    return [blob(10 * number + each, *size) for each in range(number % 3 * 2)]


def table(folder: Path, header: list[str], side: str, size: tuple[int, int], name: str = "{}.png") -> Path:
    """A row an object, of two classes; every third image has none."""
    (folder / "train").mkdir(parents=True)
    rows = []
    for number in range(6):
        Picture.new("RGB", size[::-1], (number, 9, 9)).save(folder / f"train/{number}.png")
        cells = [[written(each, side), str(place % 2)] for place, each in enumerate(objects(number, size))]
        rows += [[name.format(number), *each] for each in cells or [["", ""]]]
    with (folder / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *([row[: len(header)] for row in rows])])
    return folder / "train.csv"


NAMED, ALONE = ["ImageId", "EncodedPixels", "ClassId"], ["id", "rle_mask"]
FOUND: list[tuple[list[str], str, tuple[int, int], str, dict[str, Any]]] = [
    (NAMED, "columns", (24, 60), "{}.png", {"classes": ["background", "0", "1"], "names": "ClassId"}),
    (NAMED, "rows", (60, 24), "{}.png", {"classes": ["background", "0", "1"], "names": "ClassId"}),
    (ALONE, "rows", (24, 60), "{}", {"classes": ["background", "foreground"]}),
    (ALONE, "columns", (30, 30), "{}", {"classes": ["background", "foreground"]}),
]


@pytest.mark.parametrize(("header", "side", "size", "name", "more"), FOUND)
def test_init_finds_runs_and_their_side(
    header: list[str], side: str, size: tuple[int, int], name: str, more: dict[str, Any], tmp_path: Path
) -> None:
    text = starter(str(table(tmp_path / "a", header, side, size, name)), FILES)
    spec = yaml.safe_load(text)
    wanted = {"kind": "mask", "column": header[1], "image": "image", "runs": side, "draw": "classes", **more}
    assert spec["features"] == {"image": spec["features"]["image"], "mask": wanted}
    assert (spec["source"]["group"], spec["label"], "rejects" in spec) == (header[0], "mask", False)
    doubts = first_lines(text)[0]
    assert [f"'{header[1]}'" in doubt and "`runs: rows`" in doubt for doubt in doubts] == [True] * (size == (30, 30))


def test_init_says_that_runs_lack_their_image_or_lie_outside(tmp_path: Path) -> None:
    """The first is as `Image_Label` of Understanding Clouds."""
    path = table(tmp_path / "clouds", ["Image_Label", "EncodedPixels"], "columns", (30, 30), "{}.png_Fish")
    assert_names(first_lines(starter(str(path), FILES))[0], "'EncodedPixels'", "column")
    path = table(tmp_path / "a", ALONE, "rows", (24, 60), "{}")
    path.write_text(path.read_text() + "4,1439 1 1440 2\n")
    assert_names(starter(str(path), FILES), "1 malformed_row", "rle_mask")


@pytest.mark.slow
def test_runs_of_a_table_are_built_and_read(tmp_path: Path) -> None:
    path = table(tmp_path / "a", NAMED, "rows", (12, 20))
    spec = yaml.safe_load(starter(str(path), FILES))
    of_runs = {"image": "image", "column": "EncodedPixels", "runs": "rows"}
    spec["features"]["objects"] = {"kind": "masks", "draw": "objects", **of_runs}
    spec["features"]["numbers"] = {"kind": "mask", "draw": "instances", **of_runs}
    (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(spec))
    build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))
    given = open_dataset(str(tmp_path / "out")).training_input("train", batch_size=6, shuffle="none", with_key=True)
    features, classes = next(iter(given.as_numpy()))
    for place, key in enumerate(features["key"]):
        wanted, some = np.zeros((12, 20), int), objects(int(key.removesuffix(b".png")), (12, 20))
        for number, pixels in enumerate(some):
            wanted[pixels] = number + 1
            np.testing.assert_array_equal(features["objects"][place, number], pixels)
        assert features["objects_length"][place] == len(some)
        np.testing.assert_array_equal(features["numbers"][place, ..., 0], wanted)
        np.testing.assert_array_equal(classes[place, ..., 0], np.where(wanted, 2 - wanted % 2, 0))
