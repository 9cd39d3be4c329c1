"""JPEGs of the build: restart markers for cutting, and the same pixels as the graph's encoder."""

import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipeline.build.images.transcode import LEAST_SIDE, as_jpeg, interval
from recordmill.transforms.contract.stored import UNENCODED
from recordmill.transforms.numpy.jpeg_parts import read_layout
from recordmill.transforms.tensorflow.image import prepare
from recordmill.transforms.tensorflow.kind import Context, Statistics
from tests.pictures import options, saved, turned
from tests.test_jpeg_parts import drawn


def stored(images: list[bytes], **given: Any) -> tuple[list[bytes], list[bytes]]:
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
    in_graph, in_worker = stored(images, **given)
    for graphs, ours in zip(in_graph, in_worker, strict=True):
        for channels in ("RGB", "L"):
            expected, found = (np.asarray(Image.open(io.BytesIO(data)).convert(channels)) for data in (graphs, ours))
            np.testing.assert_array_equal(found, expected)
        assert read_layout(ours) is not None or ours == graphs
    assert any(read_layout(ours) for ours in in_worker)


def test_what_is_no_netpbm_stays() -> None:
    png, nothing = saved(drawn(120, 120), "PNG"), b""
    in_graph, in_worker = stored([png, nothing], size=(100, 100), optional=True)
    assert in_worker == in_graph
    assert in_worker[1] == b""


def test_a_small_image_has_no_markers() -> None:
    for side, has_markers in ((LEAST_SIDE - 1, False), (LEAST_SIDE, True)):
        _, (file,) = stored([saved(drawn(200, 200))], size=(side, 200))
        assert (read_layout(file) is not None) == has_markers


@pytest.mark.parametrize(
    ("width", "unit", "blocks"), [(256, 16, 2), (224, 16, 2), (240, 16, 3), (208, 16, 13), (80, 16, 5), (224, 8, 4)]
)
def test_the_blocks_between_markers_divide_a_row(width: int, unit: int, blocks: int) -> None:
    assert interval(width, unit) == blocks
