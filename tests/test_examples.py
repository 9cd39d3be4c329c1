"""The examples: each is generated, built and learned from (most of them at night), one after a stop; what the generator
of shapes promises."""

import csv
import hashlib
import json
import random
import re
import runpy
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from recordmill.pipeline.spec.model import load_spec
from tests.forked import python
from tests.messages import raises

EXAMPLES = Path(__file__).parents[1] / "examples"
Generate = Callable[[Path, int, int], Counter[str]]
IMAGES = 60
NOT_AN_IMAGE = b"<html><body>404 Not Found</body></html>\n"

# As few rows as a model learns from, and the bounds of the figure that `train.py` prints first.
LEARNED = {
    "captioning": (400, (0.5, 1)),
    "chats": (1500, (0.7, 1)),
    "detection": (500, (0.5, 1)),
    "language_model": (400, (1, 5)),
    "multi_label": (1000, (0.7, 1)),
    "segmentation": (400, (0.6, 1)),
    "table": (1500, (0.75, 1)),
    "tabular_and_image": (400, (0, 12)),
    "text_classification": (800, (0.85, 1)),
    "transfer_learning": (600, (0.7, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name != "text_classification")) for name in LEARNED]
)
def test_a_model_learns_from_the_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, (lowest, highest) = LEARNED[name]
    example, output = build_example(name, rows, tmp_path)
    check_a_single_step(example, output, monkeypatch)
    capsys.readouterr()
    run(example / "train.py", "__main__")
    printed = capsys.readouterr().out
    figure = re.search(r"test split[^:]*: ([0-9.]+)", printed)
    assert figure, printed
    assert lowest <= float(figure[1]) <= highest, printed


@pytest.mark.nightly
def test_of_a_week_of_nights_the_bad_one_is_held_back(tmp_path: Path) -> None:
    printed = python(str(EXAMPLES / "nights/week.py"), str(tmp_path / "nights"), cwd=tmp_path).stdout
    assert printed.count("$ recordmill build") == 8  # one of seven again
    assert printed.count("is removed; what is live stays live") == 1
    assert len(re.findall(r"^7 .* live ", printed, re.MULTILINE)) == 1


def check_a_single_step(example: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains on one batch: the script works from its beginning to its end, and says that the model did not learn."""
    monkeypatch.setattr(sys, "argv", ["train.py", str(output)])
    with monkeypatch.context() as patch:
        steps = take_single_steps(patch)
        with raises(SystemExit, "not learn"):
            run(example / "train.py", "__main__")
    assert steps
    assert set(steps) == {1}


def take_single_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets Keras' `fit` learn from one batch and no more; gives a list that gets the steps that each call took."""
    import keras

    fit, steps = keras.Model.fit, list[int]()

    def fit_once(model: keras.Model, *data: Any, **options: Any) -> Any:
        before = int(model.optimizer.iterations)
        done = fit(model, *data, **{**options, "initial_epoch": 0, "epochs": 1, "steps_per_epoch": 1})
        steps.append(int(model.optimizer.iterations) - before)
        return done

    monkeypatch.setattr(keras.Model, "fit", fit_once)
    return steps


@pytest.mark.nightly
def test_a_training_loop_that_is_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    example, output = build_example("training_loop", 1500, tmp_path, broken=5)
    train = [str(example / "train.py"), str(output), "--checkpoints"]
    begun = printed(*train, "stopped", "--stop-after-steps", "40", cwd=tmp_path)
    assert begun == ["Begins with step 0", "Stopped after step 40: run again to go on"]
    went_on, whole = printed(*train, "stopped", cwd=tmp_path), printed(*train, "whole", cwd=tmp_path)
    assert (went_on[0], whole[0]) == ("Begins with step 40", "Begins with step 0")
    assert went_on[1:] == whole[1:]
    assert [line.partition(":")[0] for line in whole[1:]] == ["Weights", "Accuracy on the test split"]


@pytest.mark.nightly
def test_the_detector_begins_with_a_coco_of_ones_own(tmp_path: Path) -> None:
    """As the page `coco` leads there: few images, of any size, of which one has no object."""
    images, draw = tmp_path / "coco/train", random.Random(0)
    images.mkdir(parents=True)
    described: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    described["categories"] = [{"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}]
    for number in range(12):
        width, height = draw.randrange(80, 120), draw.randrange(60, 100)
        Image.new("RGB", (width, height), (20 * number, 90, 10)).save(images / f"{number}.jpg")
        described["images"].append({"id": number, "file_name": f"{number}.jpg", "width": width, "height": height})
        for _ in range(number % 3):
            box = [draw.randrange(30), draw.randrange(20), 20, 30]
            entry = {"id": len(described["annotations"]), "image_id": number, "bbox": box, "iscrowd": 0}
            described["annotations"].append(entry | {"category_id": draw.choice([7, 9])})
    (tmp_path / "coco/train.json").write_text(json.dumps(described))
    (tmp_path / "coco.yaml").write_text(
        "name: coco\nsource: {format: coco, path: coco/train.json, images: coco/train}\n"
        "splits: {train: 9, validation: 3}\nfeatures:\n  image: {kind: image, size: [72, 96]}\n"
        "  categories: {kind: categories}\n"
        "  boxes: {kind: boxes, image: image, order: coco, unit: absolute}\ntogether: [boxes, categories]\n"
    )
    build_at(tmp_path / "coco.yaml", tmp_path / "out", 12, 0)
    train = str(EXAMPLES / "detection/train.py"), str(tmp_path / "out"), "--split", "validation"
    figure = next(line for line in printed(*train, "--least", "0", cwd=tmp_path) if line.startswith("Objects of"))
    assert 0 <= float(figure.rpartition(" ")[2]) <= 1


def printed(script: str, *arguments: str, cwd: Path) -> list[str]:
    """The lines that a script prints in a new process, so that nothing here affects its weights."""
    done = python(script, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def build_example(name: str, rows: int, folder: Path, broken: int = 0) -> tuple[Path, Path]:
    """Generates and builds an example of so many rows; gives its folder and the dataset's."""
    shutil.copytree(EXAMPLES, folder / "examples")
    example, output = folder / "examples" / name, folder / "out"
    run(example / "generate.py")["generate"](folder / "demo" / name / "data", rows)
    build_at(example / "dataset.yaml", output, rows, broken)
    return example, output


def run(script: Path, as_module: str = "example") -> dict[str, Any]:
    return runpy.run_path(str(script), run_name=as_module)


def build_at(spec: Path, output: Path, rows: int, broken: int) -> None:
    from recordmill.pipeline.build.build import build

    published = build(load_spec(str(spec)), str(output))
    assert published.manifest.rows == {"read": rows, "written": rows - broken, "rejected": broken, "duplicates": 0}


@pytest.fixture(scope="module")
def generate() -> Generate:
    return run(EXAMPLES / "shapes/generate.py")["generate"]


@pytest.fixture(scope="module")
def shapes(generate: Generate, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[str]]:
    folder = tmp_path_factory.mktemp("shapes")
    return folder, generate(folder, IMAGES, 0)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metadata.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_seed_gives_the_same_bytes(shapes, generate: Generate, tmp_path: Path) -> None:
    generate(tmp_path, IMAGES, 0)
    assert digests(tmp_path) == digests(shapes[0])


def test_another_seed_gives_other_pictures(shapes, generate: Generate, tmp_path: Path) -> None:
    generate(tmp_path, IMAGES, 1)
    first, other = digests(shapes[0]), digests(tmp_path)
    broken = {hashlib.sha256(content).hexdigest() for content in (b"", NOT_AN_IMAGE)}
    assert set(first.values()) & set(other.values()) == broken


def test_what_is_broken_is_what_it_says(shapes) -> None:
    folder, counts = shapes
    found: Counter[str] = Counter()
    for row in rows(folder):
        found[state(folder / row["file_name"], row["label"])] += 1
    assert found == counts
    broken = ("truncated", "not an image", "empty", "missing", "without a label")
    assert counts == {"good": IMAGES - 5, **dict.fromkeys(broken, 1)}


def state(path: Path, label: str) -> str:
    if not path.exists():
        return "missing"
    if path.stat().st_size == 0:
        return "empty"
    if not label:
        return "without a label"
    try:
        with Image.open(path) as picture:
            picture.load()
    except OSError as error:
        return "truncated" if "truncated" in str(error) else "not an image"
    return "good"


def test_the_pictures_are_of_every_sort(shapes) -> None:
    folder, _ = shapes
    seen: set[str] = set()
    for row in rows(folder):
        path = folder / row["file_name"]
        if state(path, row["label"]) == "good":
            with Image.open(path) as picture:
                seen |= {f"{picture.format} {picture.mode}", "turned" if picture.getexif() else "upright"}
                seen |= {"square" if picture.width == picture.height else "oblong"}
    assert seen >= {"JPEG RGB", "JPEG L", "PNG RGB", "PNG RGBA", "PNG L", "turned", "upright", "oblong"}


def test_the_caption_never_names_the_label(shapes) -> None:
    folder, _ = shapes
    labels = {row["label"] for row in rows(folder)} - {""}
    assert labels == {"circle", "cross", "heart", "square", "star", "triangle"}
    assert not [row for row in rows(folder) for label in labels if label in row["text"]]


def test_a_folder_that_is_not_empty_is_refused(shapes, generate: Generate) -> None:
    with raises(ValueError, shapes[0], "new folder"):
        generate(shapes[0], IMAGES, 0)


def test_too_few_images_are_refused(generate: Generate, tmp_path: Path) -> None:
    with raises(ValueError, "4 images", "5"):
        generate(tmp_path / "few", 4, 0)
