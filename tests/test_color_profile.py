"""Colour profiles are found, recognised by their values, and applied as by LittleCMS."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture

from recordmill import open_dataset
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.images.read import BuildImageReader
from recordmill.pipeline.build.images.transcode import as_jpeg, decodable
from recordmill.pipeline.facts.version import VersionFacts
from recordmill.pipeline.sources.images import inline
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.images.color_profile import PRIMARIES, foreign_profile, profile_name
from recordmill.transforms.images.image_graph import stored_image
from recordmill.transforms.images.image_header import ImageError, read_header
from recordmill.transforms.images.image_spec import ImageSequence
from tests.messages import raises
from tests.pictures import ORIENTATION, PIXELS, RANDOM, opened, options, photo, png, saved
from tests.profiles import (
    ADOBE,
    P3,
    PROPHOTO,
    SRGB,
    SRGB_COLUMNS,
    curve,
    display,
    fixed,
    grey,
    in_srgb,
    press,
    profile,
    srgb_points,
)

MAX_PIXELS = {"max_pixels": 1_000_000}
LARGE = np.kron(RANDOM.integers(0, 256, (6, 9, 3)), np.ones((8, 8, 1))).astype(np.uint8)  # AVIF's colours are near
INKS = Picture.merge("CMYK", [Picture.fromarray(plane) for plane in RANDOM.integers(0, 256, (4, 18, 27), np.uint8)])
PARA = b"para\0\0\0\0\0\4\0\0" + fixed(2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045, 0, 0)
ADOBE_COLUMNS = ((0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457))
"""Those of Adobe RGB (1998)."""


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (SRGB, "sRGB"),
        (display(curve(*srgb_points(1_024))), "sRGB"),
        (display(curve(*srgb_points(64))), "sRGB"),
        (display(PARA), "sRGB"),
        (display(PARA, tuple((x + 5e-5, y, z - 5e-5) for x, y, z in SRGB_COLUMNS)), "sRGB"),
        (profile(b"GRAY", b"XYZ ", {b"kTRC": PARA}), "sRGB"),
        (display(curve(563)), "RGB"),  # 2.2 moves dark colours by 7 levels
        (display(curve()), "RGB"),
        (display(PARA, A2B0=b"mft1"), "RGB"),  # a table comes before the curves
        (display(PARA, vcgt=b"vcgt"), "sRGB"),
        (P3, "Display P3"),
        (ADOBE, "Adobe RGB"),
        (display(curve(563), ADOBE_COLUMNS), "Adobe RGB"),
        (PROPHOTO, "ProPhoto RGB"),
        (grey(2.2), "grey"),
        (press(), "CMYK"),
        (profile(b"Lab ", b"Lab ", {}), "broken"),
        (b"", "broken"),
        (P3[:100], "RGB"),
        (SRGB[:400], "RGB"),
        (bytes(500), "broken"),
    ],
)
def test_a_profile_is_recognised_by_its_values(data: bytes, name: str) -> None:
    assert profile_name(data) == name


@given(st.integers(0, len(SRGB) - 1), st.binary(min_size=1, max_size=8), st.sampled_from([SRGB, P3, display(PARA)]))
def test_any_bytes_have_a_name(place: int, change: bytes, data: bytes) -> None:
    changed = data[:place] + change + data[place + len(change) :]
    assert profile_name(changed) in {*PRIMARIES, "RGB", "grey", "CMYK", "broken"}
    assert foreign_profile(saved(icc_profile=changed), "JPEG") in (changed, b"")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
def test_a_profile_is_found_in_every_format(form: str) -> None:
    long = display(PARA, A2B0=RANDOM.bytes(200_000))  # four segments of a JPEG
    for data in (P3, press(), long):
        file = saved(LARGE, form, icc_profile=data)
        assert foreign_profile(file, read_header(file).format) == data
    for own in ({}, {"icc_profile": SRGB}, {"icc_profile": display(PARA)}):
        none = saved(LARGE, form, **own)
        assert foreign_profile(none, read_header(none).format) == b""


def described(**chunks: bytes) -> bytes:
    return png(PIXELS.astype(int), 8, 2, *((name.encode(), data) for name, data in chunks.items()))


ICC = b"name\0\0" + zlib.compress(P3)
LINEAR = struct.pack(">I", 100_000)
WIDE = struct.pack(">8I", *(round(1e5 * number) for point in PRIMARIES["Display P3"] for number in point))


@pytest.mark.parametrize(
    ("chunks", "name"),
    [
        ({"iCCP": ICC}, "Display P3"),
        ({"iCCP": b"name\0\0" + b"no zlib"}, "broken"),
        ({"iCCP": b""}, "broken"),
        ({"gAMA": LINEAR, "cHRM": WIDE}, None),
        ({"cICP": b"\x0c\x0d\0\1"}, None),
        ({"cICP": b"\1\x0d\0\1", "iCCP": ICC, "gAMA": LINEAR, "sRGB": b"\0"}, "Display P3"),
    ],
)
def test_png_is_srgb_unless_it_has_an_icc_profile(chunks: dict[str, bytes], name: str | None) -> None:
    assert (profile_name(profile) if (profile := foreign_profile(described(**chunks), "PNG")) else None) == name


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
@pytest.mark.parametrize("data", [P3, ADOBE, PROPHOTO])
def test_colours_become_those_of_srgb(form: str, data: bytes) -> None:
    file = saved(LARGE, form, icc_profile=data)
    for compress in (True, False):
        ready = decodable(file, MAX_PIXELS | {"compress": compress})
        np.testing.assert_array_equal(opened(ready), in_srgb(Picture.open(io.BytesIO(file)).convert("RGB"), data))
        assert decodable(ready, MAX_PIXELS) is ready
    assert not np.array_equal(opened(decodable(file, MAX_PIXELS | {"color": "ignore"})), opened(ready))


@pytest.mark.parametrize(
    ("picture", "form", "data"),
    [
        (INKS, "JPEG", press()),
        (INKS, "TIFF", press()),
        (Picture.fromarray(PIXELS[..., 0]), "JPEG", grey(1.8)),
        (Picture.fromarray(PIXELS[..., 0]), "PNG", grey(1.8)),
        (Picture.fromarray(PIXELS).quantize(16), "PNG", ADOBE),
    ],
)
def test_inks_greys_and_palettes_are_converted(picture: Picture.Image, form: str, data: bytes) -> None:
    file = saved(picture, form, icc_profile=data)
    plain = Picture.open(io.BytesIO(file))
    plain = plain.convert("RGB") if plain.mode == "P" else plain
    expected = in_srgb(plain, data)
    got = Picture.open(io.BytesIO(decodable(file, MAX_PIXELS)))
    assert got.mode == ("L" if plain.mode == "L" else "RGB")
    assert np.abs(np.asarray(got.convert("RGB")).astype(int) - expected).max() <= 1


def test_a_grey_image_may_have_a_profile_of_colours_and_alpha_stays() -> None:
    alpha = Picture.fromarray(PIXELS).convert("RGBA")
    alpha.putalpha(Picture.fromarray(PIXELS[..., 1]))
    got = opened(decodable(saved(alpha, "PNG", icc_profile=ADOBE), MAX_PIXELS), "RGBA")
    np.testing.assert_array_equal(got[..., 3], PIXELS[..., 1])
    np.testing.assert_array_equal(got[..., :3], in_srgb(Picture.fromarray(PIXELS), ADOBE))
    plain = opened(decodable(saved(PIXELS[..., 0], "PNG", icc_profile=ADOBE), MAX_PIXELS))
    np.testing.assert_array_equal(plain, in_srgb(Picture.fromarray(PIXELS[..., 0]).convert("RGB"), ADOBE))


READER = BuildImageReader(BeamFiles(), [""], "")


def loaded(data: bytes, **keys: Any) -> tuple[bytes, str | None]:
    """Returns an image as the graph gets it, and the name of its profile."""
    image = READER.load(0, inline(data), options(**keys))
    return image.data, dict(image.counts).get("profiles")


@pytest.mark.parametrize(
    "file",
    [
        saved(icc_profile=P3[:200]),  # LittleCMS does not read it
        saved(icc_profile=b"no profile"),
        saved(icc_profile=press()),  # of other colours
        saved(form="PNG", icc_profile=grey(1.8)),
        saved(icc_profile=RANDOM.bytes(70_000)).replace(b"PROFILE\0\1", b"PROFILE\0\7"),  # two pieces of one number
    ],
)
def test_a_broken_profile_is_counted_and_ignored(file: bytes) -> None:
    data, name = loaded(file)
    assert (data, name) == (file, "broken")


def test_profiles_are_counted_by_name() -> None:
    assert loaded(saved(icc_profile=P3))[1] == "Display P3"
    assert loaded(saved(form="TIFF", icc_profile=ADOBE))[1] == "Adobe RGB"
    assert loaded(saved(icc_profile=SRGB))[1] is None
    assert loaded(saved(icc_profile=P3), color="ignore") == (saved(icc_profile=P3), None)


@pytest.mark.parametrize(
    "file",
    [
        described(iCCP=b"name\0\0" + zlib.compress(bytes(2 << 20))),
        saved(form="WEBP", icc_profile=bytes(17 << 20)),
        saved(form="TIFF", icc_profile=bytes(17 << 20)),
    ],
)
def test_a_bomb_of_a_profile_costs_its_row(file: bytes) -> None:
    with raises(ImageError, "colour profile", " MiB") as error:
        loaded(file)
    assert error.value.reason == "too_large"
    assert loaded(file, color="ignore")[1] is None


@pytest.mark.parametrize("compress", [True, False])
def test_what_was_a_jpeg_is_stored_as_jpeg_and_upright(compress: bool) -> None:
    limits = MAX_PIXELS | {"compress": compress}
    exif = Picture.Exif()
    exif[ORIENTATION] = 6
    file = saved(photo(1), icc_profile=P3, quality=95, exif=exif)
    for store, magic in (("auto", b"\xff\xd8"), ("png", b"\x89PNG")):
        keys = options(size=(160, 120), store=store, quality=100, chroma="4:4:4")
        data = as_jpeg(stored_image(tf.constant(decodable(file, limits)), keys)[""].numpy(), keys)
        assert data.startswith(magic)
        expected = np.rot90(in_srgb(Picture.open(io.BytesIO(file)), P3), 3)
        assert np.abs(opened(data).astype(int) - expected).mean() <= 1.5
    parts = stored_image(tf.constant(decodable(file, limits)), options(store="original", size=None))
    assert parts["orientation"].numpy() == 6
    was_png = decodable(saved(photo(1), "PNG", icc_profile=P3), limits)
    assert as_jpeg(stored_image(tf.constant(was_png), options())[""].numpy(), options()).startswith(b"\x89PNG")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_only_a_file_that_is_stored_is_compressed(form: str, mode: str) -> None:
    flat = Picture.new(mode, (64, 48), "teal")
    file = saved(flat.convert("RGB") if form == "JPEG" and mode == "RGBA" else flat, form, icc_profile=P3)
    stored, carried = (loaded(file, store=store, size=(8, 8))[0] for store in ("original", "auto"))
    with_others = READER.load(0, inline(file), ImageSequence(kind="image_sequence", size=(8, 8))).data
    assert len(stored) < 64 * 48 <= len(carried)
    assert with_others == stored  # all images of a row are held at once
    np.testing.assert_array_equal(opened(stored, "RGBA"), opened(carried, "RGBA"))


SPEC = """
name: photos
source: {format: image_folder, path: FOLDER}
splits: {train: 1}
features:
  image: {kind: image, size: 48}
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_version_counts_and_names_its_profiles(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = [saved(photo(1), icc_profile=P3), saved(photo(2), "PNG", icc_profile=ADOBE), saved(photo(3))]
    for number, file in enumerate([*files, saved(photo(4), icc_profile=P3[:200])]):
        (tmp_path / f"in/{number}.{read_header(file).format.lower()}").write_bytes(file)
    published = build(parse_spec(SPEC.replace("FOLDER", str(tmp_path / "in"))), str(tmp_path / "out"))
    counts = {"Display P3": 1, "Adobe RGB": 1, "broken": 1}
    assert published.manifest.statistics == {"image": {"profiles": counts}}
    dataset = open_dataset(tmp_path / "out")
    words = VersionFacts(dataset.folder, dataset.manifest).features["image"].learned
    assert words == (
        "1 Adobe RGB converted to sRGB",
        "1 Display P3 converted to sRGB",
        "1 with a broken colour profile",
    )
