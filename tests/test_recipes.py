"""docs/recipes.md: each recipe runs unchanged, on small images."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import open_dataset
from tests import hand_made

PAGE = (Path(__file__).parents[1] / "docs/recipes.md").read_text()
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
BOXES = {"kind": "boxes", "stored": "float32", "image": "image", "length": "varying", "max_length": None}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The page's own imports and dataset."""
    image_and_label = {name: hand_made.FEATURES[name] for name in ("image", "category")}
    hand_made.write_dataset(tmp_path / "out/photos", image_and_label)
    hand_made.write_dataset(tmp_path / "out/streets", {**image_and_label, "boxes": BOXES})
    monkeypatch.chdir(tmp_path)
    return run(0, {})


def run(number: int, names: dict[str, Any]) -> dict[str, Any]:
    """Runs a block, with batches that the small dataset fills."""
    code = re.sub(r"batch_size=\d+", "batch_size=4", CODE[number])
    exec(compile(code, "docs/recipes.md", "exec"), names)  # noqa: S102
    return names


@pytest.mark.parametrize(("number", "side"), [(1, 224), (2, 176)])
def test_imagenet(number: int, side: int, names: dict[str, Any]) -> None:
    run(number, names)
    for split, sides in (("train", side), ("validation", 224)):
        features, label = next(names[split].as_numpy())
        assert features["image"].shape == (4, sides, sides, 3)
        assert label.shape == ((4, 2) if (number, split) == (2, "train") else (4,))


def test_simclr_parts_two_views_of_each_image(names: dict[str, Any]) -> None:
    run(3, names)
    first, second = names["first"], names["second"]
    assert first.shape == second.shape == (4, 224, 224, 3)
    assert all((one != other).any() for one, other in zip(first, second, strict=True))


def test_detection(names: dict[str, Any]) -> None:
    features, _ = next(run(4, names)["train"].as_numpy())
    assert features["image"].shape == (4, 512, 512, 3)
    assert features["boxes"].shape == (4, 2, 4)
    plain, _ = next(open_dataset("out/streets").training_input(batch_size=4).as_numpy())
    assert not np.array_equal(features["boxes"], plain["boxes"])
    assert len(CODE) == 5
