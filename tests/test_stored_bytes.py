"""JPEGs that fit, and originals, keep their bytes, without metadata; others get restart markers."""

import io
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from PIL import Image as Picture

from recordmill.pipeline.build.images.transcode import LEAST_SIDE, as_jpeg, interval
from recordmill.transforms.base.graph import Context, Statistics
from recordmill.transforms.base.stored import UNENCODED
from recordmill.transforms.images.image_graph import prepare, stored_image
from recordmill.transforms.images.image_parts import without_metadata
from recordmill.transforms.images.jpeg_parts import read_layout
from tests.pictures import ORIENTATION, options, photo, saved, turned
from tests.test_jpeg_parts import drawn

WIDTH, HEIGHT = 160, 120


def exif(orientation: int = 1) -> Picture.Exif:
    """Makes EXIF with facts that a user would not publish."""
    tags = Picture.Exif()
    tags[0x010F], tags[ORIENTATION] = "SECRET phone", orientation
    return tags


def jpeg(image: Picture.Image | None = None, **keys: Any) -> bytes:
    return saved(image or photo(1), "JPEG", **{"quality": 80, **keys})


def stored(data: bytes, **keys: Any) -> bytes:
    given_options = options(**{"size": (HEIGHT, WIDTH), **keys})
    kept = given_options.model_copy(update={"metadata": "keep"})
    return as_jpeg(stored_image(tf.constant(data), given_options)[""].numpy(), kept)


def pixels(data: bytes) -> Any:
    return np.asarray(Picture.open(io.BytesIO(data)))


FITTING = [
    (jpeg(), {}),
    (jpeg(progressive=True), {}),
    (jpeg(subsampling=0), {}),
    (jpeg(exif=exif()), {}),
    (jpeg(), {"store": "jpeg"}),
    (jpeg(), {"fit": "crop"}),
    (jpeg(), {"fit": "stretch"}),
    (jpeg(photo(1, (120, 120))), {"fit": "crop", "shorter_side": 120, "size": (120, 120)}),
    (jpeg(), {"fit": "none", "size": None}),
    (jpeg(), {"shorter_side": HEIGHT, "size": None}),
    (jpeg(photo(1).convert("L")), {"channels": 1}),
]
OTHERS = [
    (jpeg(), {"size": (HEIGHT, WIDTH - 1)}),
    (jpeg(), {"size": (WIDTH, HEIGHT)}),
    (jpeg(), {"channels": 1}),
    (jpeg(photo(1).convert("L")), {}),
    (jpeg(photo(1).convert("CMYK")), {}),
    (jpeg(exif=exif(3)), {}),
    (jpeg(photo(1, (120, 160)), exif=exif(6)), {}),
    (jpeg(photo(1, (120, 120))), {"fit": "crop", "shorter_side": 128, "size": (120, 120)}),
    (jpeg(), {"shorter_side": HEIGHT + 1, "size": None}),
    (jpeg(), {"store": "png"}),
    (saved(photo(1), "PNG"), {}),
    (saved(photo(1), "PNG"), {"store": "jpeg"}),
]


@pytest.mark.parametrize(("data", "keys"), FITTING)
def test_a_jpeg_that_fits_keeps_its_bytes(data: bytes, keys: dict[str, Any]) -> None:
    assert stored(data, **keys) == data


@pytest.mark.parametrize(("data", "keys"), OTHERS)
def test_any_other_is_encoded(data: bytes, keys: dict[str, Any]) -> None:
    assert stored(data, **keys) != data


def test_a_jpeg_that_fits_and_is_damaged_is_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        stored(jpeg()[:2000])


PROFILE = b"SECRET" * 200
WITH_METADATA = {
    "baseline": jpeg(exif=exif(), comment=b"SECRET", icc_profile=PROFILE),
    "progressive": jpeg(exif=exif(), progressive=True, comment=b"SECRET"),
    "restarts": jpeg(exif=exif(), restart_marker_blocks=3),
    "CMYK": jpeg(photo(1).convert("CMYK"), exif=exif()),
    "and another file": jpeg() + b"SECRET video",
    "a preview in JFIF": jpeg().replace(jpeg()[2:20], b"\xff\xe0\0\x17" + jpeg()[6:18] + b"\1\2SECRET!"[:9]),
    "PNG": saved(photo(1), "PNG", exif=exif(), icc_profile=PROFILE),
    "palette": saved(photo(1).convert("P"), "PNG", exif=exif(), transparency=3),
    "WebP": saved(photo(1), "WEBP", exif=exif(), icc_profile=PROFILE, xmp=b"<SECRET/>"),
}


@pytest.mark.parametrize("name", WITH_METADATA)
def test_metadata_is_left_out_and_every_pixel_stays(name: str) -> None:
    data = WITH_METADATA[name]
    assert b"SECRET" in data or name in ("PNG", "palette")
    bare = without_metadata(data)
    with Picture.open(io.BytesIO(bare)) as picture:
        assert b"SECRET" not in bare
        assert not picture.getexif()
        assert "icc_profile" not in picture.info
    np.testing.assert_array_equal(pixels(bare), pixels(data))
    assert without_metadata(bare) == bare


def test_the_graphs_own_jpegs_and_pngs_hold_none() -> None:
    for store, size in itertools.product(("jpeg", "png"), ((50, 40), (8, 8))):
        data = stored(saved(photo(1), "PNG"), store=store, size=size)
        assert without_metadata(data) == data


@given(st.sampled_from(sorted(WITH_METADATA)), st.integers(0, 20_000), st.binary(max_size=8))
@example("restarts", 3000, b"\xff\x42")
@example("WebP", 17, b"")
@example("CMYK", 404, b"\xff\xe0")
def test_damaged_bytes_break_nothing_and_decode_as_before(name: str, offset: int, noise: bytes) -> None:
    data = WITH_METADATA[name]
    offset %= len(data)
    for hostile in (data[:offset], data[:offset] + noise + data[offset + len(noise) :]):
        bare = without_metadata(hostile)
        try:
            before = pixels(hostile)
        except Exception:  # noqa: BLE001, S112 - whatever Pillow raises: it cannot be decoded
            continue
        np.testing.assert_array_equal(pixels(bare), before)


def both_ways(images: list[bytes], **given: Any) -> tuple[list[bytes], list[bytes]]:
    """Returns the files encoded by the graph, and those that a worker makes from its pixels."""
    image = options(**given)
    parts = prepare(image, tf.constant(images), Context()).store(Statistics())
    return parts[""].numpy().tolist(), [as_jpeg(data, image) for data in parts[UNENCODED].numpy().tolist()]


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "given",
    [
        {"size": (224, 224)},
        {"size": (150, 231), "chroma": "4:4:4", "quality": 75},
        {"size": (128, 96), "channels": 1},
        {"size": None, "fit": "none"},
        {"size": None, "shorter_side": 100, "fit": "none", "store": "jpeg", "quality": 100},
    ],
    ids=str,
)
def test_the_pixels_are_the_graphs(given: dict[str, Any]) -> None:
    images = [saved(drawn(300, 401)), turned("JPEG", 6, drawn(170, 201))]
    in_graph, in_worker = both_ways(images, **given)
    for graphs, ours in zip(in_graph, in_worker, strict=True):
        for channels in ("RGB", "L"):
            expected, found = (np.asarray(Image.open(io.BytesIO(data)).convert(channels)) for data in (graphs, ours))
            np.testing.assert_array_equal(found, expected)
        assert read_layout(ours) is not None or ours == graphs
    assert any(read_layout(ours) for ours in in_worker)


def test_what_is_no_netpbm_stays() -> None:
    png, nothing = saved(drawn(120, 120), "PNG"), b""
    in_graph, in_worker = both_ways([png, nothing], size=(100, 100), optional=True)
    assert in_worker == in_graph
    assert in_worker[1] == b""


def test_a_small_image_has_no_markers() -> None:
    for side, has_markers in ((LEAST_SIDE - 1, False), (LEAST_SIDE, True)):
        _, (file,) = both_ways([saved(drawn(200, 200))], size=(side, 200))
        assert (read_layout(file) is not None) == has_markers


@pytest.mark.parametrize(
    ("width", "unit", "blocks"), [(256, 16, 2), (224, 16, 2), (240, 16, 3), (208, 16, 13), (80, 16, 5), (224, 8, 4)]
)
def test_the_blocks_between_markers_divide_a_row(width: int, unit: int, blocks: int) -> None:
    assert interval(width, unit) == blocks
