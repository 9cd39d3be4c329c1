"""Pages and frames of one file as images of a sequence: what Pillow and tifffile read of it, in order."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image as Picture
from PIL import ImageCms, ImageDraw, ImageSequence

from recordmill.pipeline.build.images.transcode import decodable, decoding_of, pages_of
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.transforms.base import bounds
from recordmill.transforms.images import image_spec as kinds
from recordmill.transforms.images.image_facts import losses
from recordmill.transforms.images.image_header import ImageError, read_header
from tests.messages import assert_names, raises


def feature(**keys: Any) -> kinds.ImageSequence:
    return kinds.ImageSequence(kind="image_sequence", **{"size": (20, 30), "pages": "all", **keys})


def pages(data: bytes, **keys: Any) -> list[bytes]:
    return pages_of(decodable(data, decoding_of(feature(**keys))))


def pixels(data: bytes) -> np.ndarray:
    """Returns what the graph decodes: plain colours, behind nothing transparent."""
    return np.asarray(Picture.open(io.BytesIO(data)).convert("RGBA"))


def drawn(count: int, mode: str = "RGB", grow: int = 0) -> list[Picture.Image]:
    """Draws a ball on its way, on images that may grow."""
    images = []
    for number in range(count):
        image = Picture.new(mode, (30 + number * grow, 20))
        left = 4 * number % 24
        ImageDraw.Draw(image).ellipse([left, 3, left + 9, 12], 255 if mode == "L" else "red")
        images.append(image)
    return images


def saved(images: list[Picture.Image], form: str, **options: Any) -> bytes:
    into = io.BytesIO()
    images[0].save(into, form, save_all=True, append_images=images[1:], **options)
    return into.getvalue()


def stacked(*images: np.ndarray, **options: Any) -> bytes:
    """Makes a TIFF of pages; `subfiletypes` gives the type of each."""
    into, types = io.BytesIO(), options.pop("subfiletypes", [0] * len(images))
    with tifffile.TiffWriter(into) as file:
        for image, kind in zip(images, types, strict=True):
            file.write(image, subfiletype=kind, contiguous=False, metadata=None, **options)
    return into.getvalue()


CLEAR = [image.convert("RGBA") for image in drawn(4)]
for number, image in enumerate(CLEAR):
    image.putpixel((number, 0), (0, 0, 0, 0))
FILES = {
    "GIF": saved(drawn(4), "GIF", duration=40),
    "GIF of parts": saved(CLEAR, "GIF", disposal=2),
    "GIF that restores": saved(CLEAR, "GIF", disposal=[1, 3, 1, 2]),
    "APNG": saved(drawn(4), "PNG"),
    "WebP": saved(drawn(4), "WEBP", lossless=True),
    "WebP with alpha": saved(CLEAR, "WEBP", lossless=True),
    "AVIF": saved(drawn(4), "AVIF"),
    "TIFF of sizes": saved(drawn(4, grow=3), "TIFF", compression="tiff_lzw"),
    "TIFF of grey": saved(drawn(4, "L"), "TIFF"),
    "TIFF of inks": saved(drawn(4, "1"), "TIFF", compression="group4"),
}


@pytest.mark.parametrize("name", FILES)
def test_pages_are_pillows_frames_in_order(name):
    found = pages(FILES[name])
    with Picture.open(io.BytesIO(FILES[name])) as file:
        wanted = [np.asarray(frame.convert("RGBA")) for frame in ImageSequence.Iterator(file)]
    assert len(found) == len(wanted) == 4
    assert all(np.array_equal(pixels(page), frame) for page, frame in zip(found, wanted, strict=True))
    assert pages(FILES[name], max_length=3) == found[:3]
    assert "further frames" not in losses(FILES[name], read_header(FILES[name]).format, feature().pixel_options)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP"])
def test_a_file_of_one_image_is_one_page_as_without(form):
    into = io.BytesIO()
    drawn(1)[0].save(into, form)
    assert pages(into.getvalue()) == [into.getvalue()]


def test_a_default_image_is_no_frame():
    into = io.BytesIO()
    ball = drawn(3)
    Picture.new("RGB", (30, 20), "blue").save(into, "PNG", save_all=True, default_image=True, append_images=ball)
    found = pages(into.getvalue())
    assert [pixels(page).tolist() for page in found] == [np.asarray(frame.convert("RGBA")).tolist() for frame in ball]


LEVELS = np.random.default_rng(0).integers(0, 65_536, (4, 16, 20), np.uint16)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_numbers_of_every_page_are_tifffiles(dtype):
    stack = LEVELS.astype(dtype)
    keys = {"dtype": dtype, "channels": 1, "normalize": "none"}
    found = [pixels_of(page) for page in pages(stacked(*stack, photometric="minisblack", compression="lzw"), **keys)]
    halves = stack.view(np.uint16).reshape(*stack.shape, -1)
    wanted = np.concatenate([halves[..., part] for part in reversed(range(halves.shape[-1]))], axis=1)
    assert np.array_equal(found, wanted)


def pixels_of(png: bytes) -> np.ndarray:
    return np.asarray(Picture.open(io.BytesIO(png)))


SMALL = LEVELS[0, ::2, ::2] >> 8


@pytest.mark.parametrize("types", [[0, 1, 0, 1], [2, 1, 2, 1], [1, 0, 1, 0]])
def test_smaller_copies_are_no_pages(types):
    images = [(LEVELS[0] if kind != 1 else SMALL).astype(np.uint8) + 9 * number for number, kind in enumerate(types)]
    found = pages(stacked(*images, subfiletypes=types, photometric="minisblack"))
    wanted = [image for image, kind in zip(images, types, strict=True) if kind != 1]
    assert [pixels_of(page).tolist() for page in found] == [image.tolist() for image in wanted]


def test_masks_are_no_pages_and_a_file_of_copies_alone_is_its_first():
    file = stacked(*LEVELS[:3].astype(np.uint8), subfiletypes=[0, 1, 1], photometric="minisblack")
    entry = struct.pack("<HHII", 254, 4, 1, 1)
    assert [pixels_of(page)[0, 0] for page in pages(file.replace(entry, struct.pack("<HHII", 254, 4, 1, 4)))] == (
        [LEVELS[0, 0, 0] & 255]
    )
    copies = stacked(*LEVELS[:2].astype(np.uint8), subfiletypes=[1, 1], photometric="minisblack")
    assert len(pages(copies)) == 1


GREY16 = {"dtype": "uint16", "channels": 1, "normalize": "none"}
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
GREYS = Picture.new("L", (9, 9))
TINTED = [GREYS, GREYS.copy()]
TINTED[1].encoderinfo = {"tiffinfo": {34675: SRGB}}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data", "keys", "reason", "facts"),
    [
        (stacked(LEVELS[0], SMALL.astype(np.uint8)), GREY16, "unsupported_format", ("uint8", "uint16")),
        (stacked(LEVELS[0], LEVELS[:3], photometric="minisblack", planarconfig="separate"), GREY16,
         "unsupported_format", ("3 bands",)),
        (saved(TINTED, "TIFF"), {}, "unsupported_format", ("page 2", "`color: ignore`")),
        (saved(drawn(9, grow=40), "TIFF"), {"max_pixels": 1000}, "too_many_pixels", ("1400", "1000")),
        (saved(drawn(25), "GIF"), {"max_pixels": 600}, "too_many_pixels", ("12,600", "12,000", "`max_length`")),
        (stacked(*[SMALL] * 170, photometric="minisblack"), {**GREY16, "max_pixels": 600}, "too_many_pixels",
         ("12,080", "`max_length`")),
        (FILES["APNG"][:-150], {}, "undecodable_image", ("PNG",)),
        (FILES["GIF"][:-30], {}, "undecodable_image", ("GIF",)),
    ],
)  # fmt: skip
def test_what_is_refused(data, keys, reason, facts):
    with raises(ImageError, *facts) as error:
        pages(data, **keys)
    assert error.value.reason == reason


def test_colour_profiles_may_be_ignored():
    assert len(pages(saved(TINTED, "TIFF"), color="ignore")) == 2


def directories(count: int) -> bytes:
    """Makes a TIFF of as many directories with the same pixel."""
    own = [(256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 1)]
    entries, size = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in own), 6 + 12 * len(own)
    each = (struct.pack("<H", 9) + entries + struct.pack("<I", 12 + size * (n + 1)) for n in range(count - 1))
    last = struct.pack("<H", 9) + entries + struct.pack("<I", 12)  # back to the first
    return b"II*\0" + struct.pack("<II", 12, 7) + b"".join(each) + last


def test_as_many_pages_as_the_bound_are_read_and_no_circle_is_followed():
    assert len(pages(directories(40))) == 40
    most = bounds.PAGES.most
    assert len(pages(directories(most + 1), max_length=2)) == 2
    with raises(ImageError, f"{most + 1:,}", f"{most:,}") as error:
        pages(directories(most + 1))
    assert error.value.reason == "too_slow"


def test_a_length_is_of_pages():
    assert feature(length=4).raw_column().length is None
    assert feature(length=4, pages="first").raw_column().length == 4


def test_init_reads_stacks_of_numbers_as_pages(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.tif").write_bytes(stacked(*LEVELS, photometric="minisblack"))
    text = starter(str(tmp_path), LocalFiles())
    assert_names(text, "kind: image_sequence", "pages: all", "dtype: uint16", "channels: 1")


def test_init_names_pages_where_it_doubts_frames(tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(FILES["GIF"])
    assert_names(starter(str(tmp_path), LocalFiles()), "kind: image ", "1 with further frames", "`pages: all`")
