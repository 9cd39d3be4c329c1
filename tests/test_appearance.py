"""The appearance of images: the gate notices some changes of all images, and ignores others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from recordmill.pipeline.build.images.perceptual_hash import MEASURES, appearance
from recordmill.pipeline.compare.distributions import profile_drift
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import FeatureProfile
from recordmill.pipeline.spec.gate import Gate
from tests.pictures import photo, saved

MAX_PIXELS = 1 << 20
LIMIT = Gate().appearance


def warm(seed: int) -> Image.Image:
    """A photo-like picture: more red than blue, with a brightness by seed."""
    light = np.random.default_rng(seed).uniform(0.6, 1.1) * np.array([1.0, 0.8, 0.55])
    return Image.fromarray((np.asarray(photo(seed, (48, 36))) * light).clip(0, 255).astype(np.uint8))


def profile_of(pictures: list[Image.Image], form: str = "PNG") -> dict[str, FeatureProfile]:
    measured = appearance([saved(picture, form) for picture in pictures], MAX_PIXELS)
    return {"image": FeatureProfile(appearance={name: Histogram.of(values) for name, values in measured.items()})}


LIVE = [warm(seed) for seed in range(120)]
CASES: dict[str, tuple[Callable[[Image.Image], Image.Image], bool]] = {
    "inverted": (ImageOps.invert, True),
    "red and blue swapped": (lambda image: Image.merge("RGB", image.split()[::-1]), True),
    "grey": (lambda image: image.convert("L").convert("RGB"), True),
    "upscaled from 8 × 8": (lambda image: image.resize((8, 8)).resize(image.size), True),
    "half as bright": (lambda image: image.point(lambda level: level / 2), True),
    "mirrored": (ImageOps.mirror, False),
    "cropped a little": (lambda image: image.crop((2, 2, 46, 34)), False),
    "a little softer": (lambda image: image.filter(ImageFilter.GaussianBlur(0.5)), False),
    "a little brighter": (lambda image: image.point(lambda level: level * 1.02), False),
}


@pytest.mark.parametrize("case", CASES)
def test_changes_of_all_images(case: str) -> None:
    change, is_breach = CASES[case]
    figures = profile_drift(profile_of(LIVE), profile_of([change(image) for image in LIVE]))["image"]
    assert LIMIT is not None
    assert (figures["appearance"] > LIMIT) == is_breach


def test_other_images_of_the_same_kind_are_no_breach() -> None:
    others = profile_of([warm(seed) for seed in range(200, 320)], "JPEG")
    assert profile_drift(profile_of(LIVE), others)["image"]["appearance"] < 0.05


@pytest.mark.parametrize(
    ("color", "expected"),
    [((255, 255, 255), (255, 0, 0, 0, 0)), ((0, 0, 0), (0, 0, 0, 0, 0)), ((255, 0, 0), (76, 134.5, -43, 127, 0))],
)
def test_measures_are_levels(color: tuple[int, int, int], expected: Any) -> None:
    measured = appearance([saved(Image.new("RGB", (9, 5), color)), saved(Image.new("RGB", (64, 64), color), "PNG")], 99)
    assert [len(measured[name]) for name in MEASURES] == [1] * 5  # the second has too many pixels
    np.testing.assert_allclose([measured[name][0] for name in MEASURES], expected, atol=1.5)


def test_an_unreadable_image_is_not_counted() -> None:
    assert [len(values) for values in appearance([b"", b"no image", saved()[:99]], MAX_PIXELS).values()] == [0] * 5
