"""Profiles of rows: sums and files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import (
    FILE,
    FeatureProfile,
    add_up,
    pixel_moments,
    profile_of_json,
    read_profiles,
    to_text,
)

NUMBERS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=3000)


def profile(values: list[float], ids: dict[int, int] | None = None) -> dict[str, FeatureProfile]:
    histogram = Histogram.merged([Histogram.of(np.array(values, np.float32))], 1024)
    return {
        "age": FeatureProfile(len(values) + 1, 1, histogram),
        "class": FeatureProfile(len(values), 0, None, ids or {}, 7, 2),
        "image": FeatureProfile(len(values), appearance={"red": histogram, f"of {len(values) % 2}": histogram}),
    }


@given(st.lists(NUMBERS, min_size=1, max_size=4), st.randoms())
def test_sums_do_not_depend_on_order_or_parts(parts: list[list[float]], random: object) -> None:
    profiles = [profile(values, {len(values): 1}) for values in parts]
    whole = to_text({"train": add_up(profiles)})
    random.shuffle(profiles)  # type: ignore[attr-defined]
    assert to_text({"train": add_up(profiles)}) == whole
    in_steps = add_up([profiles[0], add_up(profiles[1:])]) if profiles[1:] else add_up(profiles)
    assert to_text({"train": in_steps}) == whole


def test_too_many_ids_are_not_counted_by_whatever_way_they_came_together() -> None:
    few, others = (profile([], dict.fromkeys(range(first, first + 600), 1)) for first in (0, 600))
    assert add_up([few, few])["class"].ids == dict.fromkeys(range(600), 2)
    both = add_up([few, others])
    assert both["class"].ids is None
    assert add_up([both, few])["class"].ids is None
    assert both["class"].tokens == 14


def test_a_version_keeps_them_by_split(tmp_path: Path) -> None:
    counted = profile([1.0, 2.5], {3: 2})
    splits = {"train": add_up([counted, counted]), "test": {}}
    assert splits["train"]["age"].missing == 2
    assert read_profiles(tmp_path) is None
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(to_text(splits))
    again = read_profiles(tmp_path)
    assert again is not None
    assert to_text(again) == to_text(splits)
    assert again["train"]["class"] == FeatureProfile(4, 0, None, {3: 4}, 14, 4)
    assert profile_of_json({}) == {}


@pytest.mark.parametrize("halves", [False, True])
def test_moments_of_pixels(halves: bool) -> None:
    pixels = np.array([[65_535, 3], [60_001, 5], [7, 5]], np.int64)
    total, squares = pixels.sum(0).tolist(), (pixels**2).sum(0).tolist()
    sums = [{"images": 1, "pixels": 3, "total": each, "squares": of} for each, of in zip(total, squares, strict=True)]
    if halves:  # as of 16 bits
        low = [{**each, "squares": each["squares"] & 0xFFFF_FFFF} for each in sums]
        sums = low + [{**each, "total": 0, "squares": each["squares"] >> 32} for each in sums]
    moments = pixel_moments(sums, 2)
    np.testing.assert_allclose(moments["mean"], pixels.mean(0), rtol=1e-15)
    np.testing.assert_allclose(moments["variance"], pixels.var(0), rtol=1e-12)
    assert moments["images"] == 1
