"""Copies of a picture look like it, other pictures do not; flat and hostile ones have no look."""

import struct
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from recordmill.pipeline.build.duplicates.find import COLOUR_DISTANCE
from recordmill.pipeline.build.images.perceptual_hash import MEASURES, NONE, appearance, perceptual_hash
from recordmill.pipeline.spec.split_by import DISTANCE
from tests.pictures import ORIENTATION, chunk, photo, saved

MAX_PIXELS = 1_000_000


def seen(picture: Image.Image, form: str = "PNG", **options: object) -> bytes:
    found = perceptual_hash(saved(picture, form, **options), MAX_PIXELS)
    assert found != NONE
    return found


def distances(one: bytes, other: bytes) -> tuple[int, int]:
    """How many bits of the shapes differ, and how far the colours are apart."""
    bits = (int.from_bytes(one[:8]) ^ int.from_bytes(other[:8])).bit_count()
    return bits, max(abs(a - b) for a, b in zip(one[8:], other[8:], strict=True))


def alike(one: bytes, other: bytes) -> bool:
    bits, colours = distances(one, other)
    return bits <= DISTANCE and colours <= COLOUR_DISTANCE


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half": lambda picture: picture.resize((80, 60)),
    "thrice": lambda picture: picture.resize((480, 360)),
    "another shape": lambda picture: picture.resize((100, 120)),
    "brighter": lambda picture: ImageEnhance.Brightness(picture).enhance(1.1),
    "darker": lambda picture: ImageEnhance.Brightness(picture).enhance(0.85),
    "more contrast": lambda picture: ImageEnhance.Contrast(picture).enhance(1.15),
    "cropped": lambda picture: picture.crop((2, 1, 159, 119)),
    "CMYK": lambda picture: picture.convert("CMYK"),
    "256 colours": lambda picture: picture.quantize(256),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_looks_like_its_original(copy: str) -> None:
    form = "TIFF" if copy == "CMYK" else "PNG"
    missed = [seed for seed in range(16) if not alike(seen(photo(seed)), seen(COPIES[copy](photo(seed)), form))]
    assert len(missed) <= 1, missed


@pytest.mark.first(3)
@pytest.mark.parametrize("form", ["JPEG", "WEBP", "TIFF", "BMP", "GIF", "AVIF", "HEIF"])
def test_neither_the_format_nor_16_bits_matter(form: str) -> None:
    for seed in range(5):
        assert alike(seen(photo(seed)), seen(photo(seed), form))
    grey = photo(4).convert("L")
    assert alike(seen(grey), seen(Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)))


def test_other_pictures_look_different() -> None:
    looks = [seen(photo(seed)) for seed in range(80)]
    bits = [distances(one, other)[0] for place, one in enumerate(looks) for other in looks[:place]]
    assert min(bits) > DISTANCE


def test_one_drawing_in_two_colours_is_two_pictures() -> None:
    heart = np.asarray(photo(3).convert("L"))
    red = Image.merge("RGB", [Image.fromarray(heart), *[Image.fromarray(heart // 4)] * 2])
    blue = Image.merge("RGB", red.split()[::-1])
    bits, colours = distances(seen(red), seen(blue))
    assert colours > COLOUR_DISTANCE
    assert not alike(seen(red), seen(blue)), bits


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_picture_is_upright_before_it_is_looked_at(turn: int) -> None:
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Pillow's operations that undo what EXIF asks for
    exif = Image.Exif()
    exif[ORIENTATION] = turn
    turned = photo(1) if turn == 1 else photo(1).transpose(Image.Transpose(back[turn]))
    assert distances(seen(photo(1)), seen(turned, exif=exif))[0] <= 2


def test_transparent_pixels_lie_on_grey() -> None:
    clear = photo(2).convert("RGBA")
    clear.putalpha(Image.fromarray(np.where(np.indices((120, 160))[1] < 80, 255, 0).astype(np.uint8)))
    behind = Image.new("RGBA", clear.size, (128, 128, 128, 255))
    behind.alpha_composite(clear)
    assert distances(seen(clear), seen(behind.convert("RGB")))[0] <= 2


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((90, 90, 3), 255, np.uint8),
        np.zeros((1, 1, 3), np.uint8),
        np.tile(np.arange(200, dtype=np.uint8), (100, 1)),
        np.random.default_rng(0).integers(250, 255, (800, 600), np.uint8),
    ],
    ids=["white", "one pixel", "gradient", "a scanned blank page"],
)
def test_a_flat_picture_has_no_look(pixels: np.ndarray) -> None:
    assert perceptual_hash(saved(Image.fromarray(pixels), "PNG"), MAX_PIXELS) == NONE
    assert perceptual_hash(saved(Image.fromarray(pixels), "JPEG"), MAX_PIXELS) == NONE


def test_hostile_bytes_have_no_look_and_raise_nothing() -> None:
    random = np.random.default_rng(1)
    for form in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        data = saved(photo(1, (40, 30)), form)
        assert perceptual_hash(data[: len(data) // 3], MAX_PIXELS) == NONE
        for _ in range(15):
            broken = bytearray(data)
            broken[random.integers(len(data))] = random.integers(256)
            perceptual_hash(bytes(broken), MAX_PIXELS)
    assert perceptual_hash(b"", MAX_PIXELS) == NONE
    assert perceptual_hash(b"no picture", MAX_PIXELS) == NONE


def test_a_picture_of_too_many_pixels_is_not_decoded() -> None:
    assert perceptual_hash(saved(photo(1), "PNG"), 160 * 120) != NONE
    assert perceptual_hash(saved(photo(1), "PNG"), 160 * 120 - 1) == NONE


def test_a_machine_without_memory_is_no_flat_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image.Image, "resize", MagicMock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        perceptual_hash(saved(photo(1), "PNG"), MAX_PIXELS)


def test_a_png_of_two_sizes_has_no_look() -> None:
    """Pillow takes the last header's size, and makes room for it before it tells."""
    head, data = chunk(b"IHDR", struct.pack(">II5B", 60_000, 60_000, 8, 2, 0, 0, 0)), saved(photo(1, (40, 30)), "PNG")
    assert perceptual_hash(data[:33] + head + data[33:], MAX_PIXELS) == NONE


@pytest.mark.parametrize(
    ("color", "expected"),
    [((255, 255, 255), (255, 0, 0, 0, 0)), ((0, 0, 0), (0, 0, 0, 0, 0)), ((255, 0, 0), (76, 134.5, -43, 127, 0))],
)
def test_measures_are_levels(color: tuple[int, int, int], expected: Any) -> None:
    measured = appearance([saved(Image.new("RGB", (9, 5), color)), saved(Image.new("RGB", (64, 64), color), "PNG")], 99)
    assert [len(measured[name]) for name in MEASURES] == [1] * 5  # the second has too many pixels
    np.testing.assert_allclose([measured[name][0] for name in MEASURES], expected, atol=1.5)
    unreadable = appearance([b"", b"no image", saved()[:99]], 1 << 20)
    assert [len(values) for values in unreadable.values()] == [0] * 5
