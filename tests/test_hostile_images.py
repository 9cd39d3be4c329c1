"""Hostile images are decoded or refused with a reason, in bounded time and memory; nothing else is raised."""

import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.images.read import BuildImageReader
from recordmill.pipeline.sources.faults import REASONS
from recordmill.pipeline.sources.images import inline, to_file, to_piece
from recordmill.transforms.images.image_graph import stored_image
from recordmill.transforms.images.image_header import PNG, ImageError
from tests.messages import raises
from tests.pictures import PIXELS, animated, bmp, chunk, opened, options, png, saved, turned

OPTIONS = options(max_pixels=1_000_000, max_bytes=1 << 20)
ALPHA = Picture.fromarray(PIXELS).convert("RGBA")
ALPHA.putalpha(Picture.fromarray(PIXELS[..., 1]))
INKS = Picture.fromarray(PIXELS).convert("CMYK")
FORMATS = {
    "jpeg": saved(),
    "progressive": saved(progressive=True),
    "arithmetic": saved().replace(b"\xff\xc0", b"\xff\xc9", 1),
    "inks": saved(INKS),
    "turned": turned("JPEG", 6),
    "png": saved(form="PNG"),
    "alpha": saved(ALPHA, "PNG"),
    "palette": saved(Picture.fromarray(PIXELS).quantize(16), "PNG"),
    "16 bits": png(PIXELS.astype(np.int64) * 257, 16, 2),
    "animated png": animated("PNG"),
    "webp": saved(form="WEBP"),
    "lossy webp": saved(ALPHA, "WEBP", lossless=False),
    "animated webp": animated("WEBP"),
    "gif": animated("GIF"),
    "bmp": saved(form="BMP"),
    "bmp palette": saved(Picture.fromarray(PIXELS).quantize(16), "BMP"),
    "run lengths": bmp(b"\x1b\1\0\0" * 18, 18, 27, 8, compression=1),
    "tiff": saved(form="TIFF"),
    "lzw": saved(form="TIFF", compression="tiff_lzw"),
    "fax": saved(Picture.fromarray(PIXELS).convert("1"), "TIFF", compression="group4"),
    "tiff jpeg": saved(form="TIFF", compression="jpeg"),
    "tiff inks": saved(INKS, "TIFF"),
    "avif": saved(form="AVIF"),
    "avif alpha": saved(ALPHA, "AVIF"),
    "animated avif": animated("AVIF"),
    "turned avif": turned("AVIF", 6),
    "heif": saved(form="HEIF"),
    "heif alpha": saved(ALPHA, "HEIF"),
    "heif of many": animated("HEIF"),
    "heif grid": saved(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)), "HEIF", tile_size=64),
}


def stating(form: str, width: int, height: int) -> bytes:
    """Makes an image with a false size in its header."""
    return re.sub(rb"(?s)(ispe\0{4}).{8}", lambda found: found[1] + struct.pack(">II", width, height), saved(form=form))


BOMB = zlib.compress(bytes(20_000_000), 9)
HUGE = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 6, 0, 0, 0)
AFTER_HEAD = len(PNG) + 25
Graph = tf.types.experimental.PolymorphicFunction


@pytest.fixture(scope="module")
def graph() -> Graph:
    return tf.function(
        lambda data: stored_image(data, OPTIONS)[""], autograph=False, input_signature=[tf.TensorSpec([], tf.string)]
    )


@pytest.fixture
def reader(tmp_path: Path) -> BuildImageReader:
    return BuildImageReader(BeamFiles(), [str(tmp_path)], str(tmp_path / "scratch"))


def outcome(graph: Graph, reader: BuildImageReader, data: bytes) -> str:
    """Returns `accepted`, or the reason; other exceptions fail the test."""
    try:
        graph(tf.constant(reader.load(0, inline(data), OPTIONS).data))
    except ImageError as error:
        return error.reason
    except tf.errors.InvalidArgumentError:
        return "undecodable_image"
    return "accepted"


@pytest.mark.parametrize("name", FORMATS)
def test_cut_anywhere_it_is_accepted_or_refused(graph: Graph, reader: BuildImageReader, name: str) -> None:
    data = FORMATS[name]
    found = [outcome(graph, reader, data[:size]) for size in range(0, len(data), max(1, len(data) // 40))]
    assert set(found[1:]) <= {"accepted", "unsupported_format", "undecodable_image", "too_many_pixels"}
    assert found[0] == "missing_value"
    assert outcome(graph, reader, data) in ("accepted", "undecodable_image")  # no decoder takes the arithmetic one


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_with_any_bytes_changed_it_is_accepted_or_refused(graph: Graph, name: str, data: st.DataObject) -> None:
    changed = bytearray(FORMATS[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(changed), 400) - 1))
        piece = data.draw(st.sampled_from([b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f", b"\xff\xda"]))
        changed[place : place + len(piece)] = piece
    assert outcome(graph, BuildImageReader(BeamFiles(), [], ""), bytes(changed)) in ("accepted", *REASONS)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "missing_value"),
        (b"\xff", "unsupported_format"),
        (b"<html><body>404 Not Found</body></html>", "unsupported_format"),
        (stating("AVIF", 2**32 - 1, 2**32 - 1), "too_many_pixels"),
        (stating("HEIF", 2**32 - 1, 2**32 - 1), "too_many_pixels"),
        (stating("HEIF", 1_000, 1_000), "undecodable_image"),
        (stating("HEIF", 1, 1), "undecodable_image"),
        (stating("AVIF", 9, 6), "accepted"),  # it is scaled to what it states
        (FORMATS["heif"] + bytes(5_000), "accepted"),
        (FORMATS["heif"][:-30], "undecodable_image"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "unsupported_format"),
        (bytes(1 << 20), "unsupported_format"),
        (bytes((1 << 20) + 1), "too_large"),
        (b"\xff\xd8" + b"\xff\x01" * 20_000, "unsupported_format"),
        (saved() + saved(), "accepted"),
        (saved()[:-2] + saved(), "undecodable_image"),
        (saved() + bytes(5_000), "accepted"),
        (saved().replace(b"\xff\xdb", b"\xff\xfe\xff\xff" + bytes(65_533) + b"\xff\xdb", 1), "accepted"),
        (bmp(b"", 18, -27, 24), "unsupported_format"),
    ],
)
def test_the_reason_of_what_is_known_to_be_hostile(
    graph: Graph, reader: BuildImageReader, data: bytes, expected: str
) -> None:
    assert outcome(graph, reader, data) == expected


@pytest.mark.parametrize(("name", "expected"), [(b"zTXt", "accepted"), (b"iTXt", "accepted"), (b"iCCP", "too_large")])
def test_a_bomb_beside_the_pixels_is_not_blown_up(
    graph: Graph, reader: BuildImageReader, name: bytes, expected: str
) -> None:
    head = {b"zTXt": b"k\0\0", b"iTXt": b"k\0\1\0\0\0", b"iCCP": b"k\0\0"}[name]
    good = saved(form="PNG")
    data = good[:AFTER_HEAD] + chunk(name, head + BOMB) + good[AFTER_HEAD:]
    outcome(graph, reader, good)  # what the first image takes stays
    before = peak()
    assert outcome(graph, reader, data) == expected
    assert peak() - before < 15_000_000


def test_more_pixels_than_the_header_says_are_left(graph: Graph, reader: BuildImageReader) -> None:
    good = saved(form="PNG")
    start = good.index(b"IDAT") - 4
    data = good[:start] + chunk(b"IDAT", BOMB) + chunk(b"IEND", b"")
    outcome(graph, reader, good)  # what the first image takes stays
    before = peak()
    assert outcome(graph, reader, data) in ("accepted", "undecodable_image")
    assert peak() - before < 15_000_000


def peak() -> int:
    """Returns the peak resident memory in bytes, and resets it."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    Path("/proc/self/clear_refs").write_text("5")
    return int(found[1]) * 1024 if found else 0


def test_what_is_no_file_is_unreadable_and_nobody_waits_for_it(reader: BuildImageReader, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    for name in ("pipe.jpg", "folder.jpg", "loop.jpg", "zero.jpg", "none.jpg", "x" * 300):
        with raises(ImageError, name[:20]) as error:
            reader.load(0, to_file(name), OPTIONS)
        assert error.value.reason == "unreadable"


def test_a_path_with_backslashes_that_is_nowhere_names_the_other_slash(reader: BuildImageReader) -> None:
    with raises(ImageError, "a\\1.jpg", "`/`") as error:
        reader.load(0, to_file("a\\1.jpg"), OPTIONS)
    assert error.value.reason == "unreadable"


def test_a_file_of_gigabytes_is_not_read(reader: BuildImageReader, tmp_path: Path) -> None:
    with open(tmp_path / "large.jpg", "wb") as file:
        file.write(saved())
        file.truncate(200 << 30)
    for reference in (to_file("large.jpg"), to_piece("large.jpg", 0, 100 << 30)):
        with raises(ImageError, "max_bytes", "1,048,576") as error:
            reader.load(0, reference, OPTIONS)
        assert error.value.reason == "too_large"
    with raises(ImageError, "max_bytes", "67,108,864"):
        reader.read(0, to_file("large.jpg"))


def test_a_large_image_with_alpha_is_laid_on_its_background_by_bands(graph: Graph) -> None:
    keys = options(fit="none", size=None, max_pixels=10_000_000)
    rgba = np.kron(np.asarray(ALPHA)[:17], np.ones((120, 100, 1), np.uint8))  # 5.5 million pixels
    data = saved(Picture.fromarray(rgba), "PNG", compress_level=1)
    got = tf.io.decode_png(stored_image(tf.constant(data), keys)[""]).numpy()
    alpha, behind = rgba[..., 3:].astype(np.int32), np.array(keys.background)
    expected = (rgba[..., :3] * alpha + behind * (255 - alpha) + 127) // 255
    np.testing.assert_array_equal(got, expected)


def test_the_name_says_nothing(graph: Graph, reader: BuildImageReader) -> None:
    Path(reader.roots[0], "x.jpg").write_bytes(FORMATS["tiff"])
    loaded = reader.load(0, to_file("x.jpg"), OPTIONS)
    assert loaded.counts == [("transcoded", "TIFF")]
    np.testing.assert_array_equal(opened(loaded.data), PIXELS)
