"""COCO's compressed run lengths, against pycocotools' C code (`rleToString`), written out in Python."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.images.shapes import run_lengths
from tests.messages import raises


def encode(counts: list[int]) -> str:
    letters = []
    for index, count in enumerate(counts):
        rest = count - counts[index - 2] if index > 2 else count
        while True:
            digit, rest = rest & 31, rest >> 5
            is_more = rest != -1 if digit & 16 else rest != 0
            letters.append(chr((digit | 32 if is_more else digit) + 48))
            if not is_more:
                break
    return "".join(letters)


@given(st.lists(st.integers(0, 1 << 28), max_size=50))
def test_counts_come_back(counts: list[int]) -> None:
    found = run_lengths(encode(counts))
    assert found.tolist() == counts
    assert found.dtype == np.int64


@given(st.lists(st.integers(0, 1), min_size=1, max_size=200))
def test_a_mask_comes_back(pixels: list[int]) -> None:
    counts, value = [0], 0
    for pixel in pixels:
        if pixel != value:
            counts.append(0)
            value = pixel
        counts[-1] += 1
    drawn = [number % 2 for number, count in enumerate(run_lengths(encode(counts)).tolist()) for _ in range(count)]
    assert drawn == pixels


@pytest.mark.parametrize("text", ["P", "5\n", "5é", "p", "5o", "oooooooo0", "o" * 100 + "0"])
def test_another_text_is_refused(text: str) -> None:
    with raises(ValueError, "`counts`"):
        run_lengths(text)


@given(st.text(max_size=40))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert run_lengths(text).dtype == np.int64
