"""Parts of JPEGs with restart markers: the pixels of the whole image, and only errors for hostile bytes."""

import io
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.augment import CenterCrop, Grayscale, RandomCrop, RandomFlip, RandomResizedCrop, Views
from recordmill.transforms.base.stored import RowError
from recordmill.transforms.images.augment import chain
from recordmill.transforms.images.augment.base import MovedBoxes, Window
from recordmill.transforms.images.decode import DecodeError, jpeg
from recordmill.transforms.images.image_read import ImageReader
from recordmill.transforms.images.image_stored import ImageDescription
from recordmill.transforms.images.jpeg_parts import JpegLayout, read_layout
from tests.messages import raises

SAMPLINGS = {"4:4:4": (8, 8), "4:2:0": (16, 16), "4:2:2": (8, 16)}


def drawn(height: int, width: int, seed: int = 0) -> Image.Image:
    """Makes an image of coarse and fine noise, with different colours everywhere."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height)), np.int64)
    return Image.fromarray(np.clip(smooth + rng.integers(-20, 21, smooth.shape), 0, 255).astype(np.uint8))


def marked(image: Image.Image, sampling: str = "4:2:0", *, interval: int | None = None) -> bytes:
    """Makes a JPEG with a marker every `interval` MCUs, by default at each row's end."""
    unit = 8 if image.mode == "L" else SAMPLINGS[sampling][1]
    blocks = math.ceil(image.width / unit) if interval is None else interval
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, subsampling=sampling, restart_marker_blocks=blocks)
    return file.getvalue()


def read(data: bytes) -> JpegLayout:
    layout = read_layout(data)
    assert layout is not None
    return layout


@given(st.data())
def test_a_part_has_the_pixels_of_the_whole(data: Any) -> None:
    height, width = (data.draw(st.integers(1, 150), label=side) for side in ("height", "width"))
    sampling = data.draw(st.sampled_from([*SAMPLINGS, "grey"]))
    image = drawn(height, width)
    image = image.convert("L") if sampling == "grey" else image
    row = math.ceil(width / (8 if sampling == "grey" else SAMPLINGS[sampling][1]))
    interval = data.draw(st.sampled_from([blocks for blocks in range(1, row + 1) if row % blocks == 0]))
    file = marked(image, "4:4:4" if sampling == "grey" else sampling, interval=interval)
    high, wide = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    window = Window(data.draw(st.integers(0, height - high)), data.draw(st.integers(0, width - wide)), high, wide)
    part = read(file).part(file, window)
    if part is None:  # all segments are touched
        return
    assert len(part.data) < len(file)
    pixels = jpeg(part.data, len(image.getbands()))[window.y - part.y :, window.x - part.x :][:high, :wide]
    whole = jpeg(file, len(image.getbands()))[window.y : window.y + high, window.x : window.x + wide]
    np.testing.assert_array_equal(pixels, whole, strict=True)


FILE = marked(drawn(256, 256), interval=4)


def test_a_part_leaves_out_what_it_does_not_touch() -> None:
    part = read(FILE).part(FILE, Window(100, 70, 20, 50))
    assert part is not None
    assert (part.y, part.x) == (96, 64)
    assert jpeg(part.data, 3).shape == (32, 64, 3)
    assert len(part.data) < len(FILE) / 6


@pytest.mark.parametrize(
    ("mode", "form", "save"),
    [
        ("RGB", "JPEG", {}),
        ("RGB", "JPEG", {"restart_marker_blocks": 7, "subsampling": "4:2:0"}),  # markers that rows do not share
        ("RGB", "JPEG", {"progressive": True, "restart_marker_blocks": 4}),
        ("CMYK", "JPEG", {"restart_marker_blocks": 2}),
        ("RGB", "PNG", {}),
    ],
)
def test_files_that_cannot_be_cut(mode: str, form: str, save: dict[str, Any]) -> None:
    file = io.BytesIO()
    drawn(128, 256).convert(mode).save(file, form, **save)
    assert read_layout(file.getvalue()) is None


@pytest.mark.parametrize(
    ("change", "to"), [("height", 512), ("height", 1), ("width", 1024), ("height", 65_535)], ids=str
)
def test_a_header_that_lies_is_not_cut_by(change: str, to: int) -> None:
    file = bytearray(FILE)
    found = read(bytes(file))
    offset = found.frame + (5 if change == "height" else 7)
    file[offset : offset + 2] = to.to_bytes(2, "big")
    lying = read_layout(bytes(file))
    assert lying is None or lying.part(bytes(file), Window(0, 0, 1, 1)) is None


def test_markers_out_of_order_are_not_cut_by() -> None:
    file = bytearray(FILE)
    offset = file.index(b"\xff\xd3")
    file[offset + 1] = 0xD5
    assert read(bytes(file)).part(bytes(file), Window(0, 0, 9, 9)) is None


def test_a_window_has_the_part_of_what_it_cuts_off_inside_the_image() -> None:
    beyond, left, all_of_it, inside, across = (
        read(FILE).part(FILE, Window(*each))
        for each in ((256, 0, 9, 9), (0, -9, 9, 9), (0, 0, 256, 256), (0, 200, 40, 56), (-9, 200, 49, 99))
    )
    assert beyond is left is all_of_it is None
    assert inside is not None
    assert across is not None
    assert across[:-1] == inside[:-1]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_hostile_bytes(seed: int, changes: int) -> None:
    """Bytes cause at most an error of decoding."""
    rng = np.random.default_rng(seed)
    file = np.frombuffer(HOSTILE, np.uint8).copy()
    early = rng.integers(0, 2) == 0  # headers are where it hurts
    file[rng.integers(0, 650 if early else len(file), changes)] = rng.integers(0, 256, changes)
    data = file[: rng.integers(1, len(file) + 1)].tobytes() if seed % 3 == 0 else file.tobytes()
    found = read_layout(data)
    if found is None:
        return
    part = found.part(data, Window(found.height // 3, found.width // 3, 1, 1))
    if part is None:
        return
    assert len(part.data) <= len(data)
    try:
        pixels = jpeg(part.data, 3)
    except DecodeError:
        return
    assert pixels.shape[0] <= found.height
    assert pixels.shape[1] <= found.width


DESCRIPTION = ImageDescription(
    stored="bytes", encoding="jpeg", shape=(176, 240, 3), dtype="uint8", offset=(0.0,) * 3, scale=(1.0,) * 3
)
HOSTILE = marked(drawn(96, 128), interval=4)
AUGMENTATIONS: dict[str, Any] = {
    "RandomResizedCrop": [RandomResizedCrop(64), RandomFlip()],
    "RandomResizedCrop of little": [RandomResizedCrop(64, area=(0.01, 0.1))],
    "RandomCrop": [RandomCrop(64)],
    "RandomCrop with zeros": [RandomCrop(200, pad=30), Grayscale()],
    "CenterCrop": [CenterCrop((40, 80))],
    "CenterCrop of more": [CenterCrop(400)],
    "a flip first": [RandomFlip(), RandomCrop(64)],
    "a colour first": [Grayscale(), RandomCrop(64)],
    "no crop": [RandomFlip()],
    "views": [Views([RandomResizedCrop(64)], 2)],
}


@pytest.mark.parametrize("of_one_size", [True, False])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("changes", AUGMENTATIONS.values(), ids=AUGMENTATIONS.keys())
def test_a_reader_gives_the_same_of_files_with_and_without_markers(
    changes: list[Any], mask: bool, of_one_size: bool
) -> None:
    images = [drawn(176, 240, seed) for seed in range(6)]
    plain, with_markers = ([marked(image, interval=blocks) for image in images] for blocks in (0, 5))
    assert read_layout(plain[0]) is None
    read(with_markers[0])
    checked = chain.check(changes)
    drawn_values = chain.parameters(checked, np.random.default_rng(3).random((6, chain.lanes(checked))))
    description = DESCRIPTION if of_one_size else replace(DESCRIPTION, shape=(None, None, 3))

    def batch(files: list[bytes]) -> tuple[Any, Any]:
        boxes = np.random.default_rng(4).random((12, 2, 2), np.float32)
        boxes = np.concatenate([boxes.min(1), boxes.max(1)], 1)
        lying = [] if isinstance(checked[0], Views) else [lambda row: MovedBoxes(boxes[2 * row : 2 * row + 2])]
        reader = ImageReader("image", description, augment=chain.Augment(checked, drawn_values, mask), lying=lying)
        return reader.images(files)[""], boxes

    for expected, found in zip(batch(plain), batch(with_markers), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_a_file_that_is_cut_off_is_a_rows_error() -> None:
    file = marked(drawn(176, 240), interval=5)
    reader = ImageReader("image", DESCRIPTION, augment=chain.Augment(chain.check([CenterCrop(50)]), np.zeros((1, 0))))
    with raises(RowError, "'image'", "decoded"):
        reader.images([file[:-300]])
