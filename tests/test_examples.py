"""The shapes example: what its generator promises."""

import csv
import hashlib
import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

Generate = Callable[[Path, int, int], Counter[str]]
IMAGES = 60
NOT_AN_IMAGE = b"<html><body>404 Not Found</body></html>\n"


@pytest.fixture(scope="module")
def generate() -> Generate:
    return runpy.run_path(str(Path(__file__).parents[1] / "examples/shapes/generate.py"))["generate"]


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
    assert counts == {
        "good": IMAGES - 5,
        "truncated": 1,
        "not an image": 1,
        "empty": 1,
        "missing": 1,
        "without a label": 1,
    }


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
    with pytest.raises(ValueError, match="is not empty: name a new folder"):
        generate(shapes[0], IMAGES, 0)


def test_too_few_images_are_refused(generate: Generate, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4 images: at least 5 are needed"):
        generate(tmp_path / "few", 4, 0)
