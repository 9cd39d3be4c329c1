"""Losses of images are counted from headers, and messages name their remedies."""

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pillow_heif
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture

from recordmill import build, load_spec, open_dataset
from recordmill.dataset import Dataset
from recordmill.pipeline.build.context import build_context
from recordmill.pipeline.cli.screen import Screen
from recordmill.pipeline.cli.show import print_dataset, print_published
from recordmill.pipeline.facts.page import report_of
from recordmill.pipeline.facts.sidecars import card
from recordmill.pipeline.forecast import rehearsal
from recordmill.pipeline.forecast.forecast import Forecast, forecast
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.images.image_facts import LOSSES, fact_lines, loss_lines, losses
from recordmill.transforms.images.image_header import ImageError, check_header
from tests.constants import constants
from tests.messages import assert_names
from tests.pictures import PIXELS, animated, bmp, chunk, options, png, saved, turned
from tests.tables import write

RGB = Picture.fromarray(PIXELS)
ALPHA = RGB.convert("RGBA")
ALPHA.putalpha(RGB.convert("L"))
LEVELS = np.arange(4096, dtype=np.uint16).reshape(64, 64)
PHOTO = RGB.quantize(16)
INDICES = np.arange(256).reshape(16, 16)


def voc(colours: int = 256) -> list[int]:
    """Pascal VOC's palette, as its development kit computes it."""
    palette = []
    for index in range(colours):
        red = green = blue = 0
        for place in range(8):
            red |= (index >> 3 * place & 1) << 7 - place
            green |= (index >> 3 * place + 1 & 1) << 7 - place
            blue |= (index >> 3 * place + 2 & 1) << 7 - place
        palette += [red, green, blue]
    return palette


WINDOWS = [
    0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0, 0, 0, 128, 128, 0, 128, 0, 128, 128, 192, 192, 192, 128, 128, 128,
]  # fmt: skip
GREYS = [level for level in range(256) for _ in range(3)]


def paletted(palette: list[int], indices: Any = INDICES) -> Picture.Image:
    picture = Picture.fromarray((indices % (len(palette) // 3)).astype(np.uint8)).convert("P")
    picture.putpalette(palette)
    return picture


def mask(colours: int = 256, form: str = "PNG") -> bytes:
    return saved(paletted(voc(colours)), form)


def by_opencv(ending: str, *keys: int) -> bytes:
    return bytes(cv2.imencode(ending, np.zeros((32, 32, 3), np.uint16), keys)[1].tobytes())


def deep_heif() -> bytes:
    file = io.BytesIO()
    pillow_heif.from_bytes("RGB;16", (64, 64), bytes(2 * 3 * 64 * 64)).save(file, quality=-1)
    return file.getvalue()


def tiff_of(bands: int, photometric: int, extra: tuple[int, ...] = (), bits: int = 8, kind: int = 1) -> bytes:
    """Makes a TIFF of 4 x 4 pixels with interleaved samples."""
    rows, tags = bytes(16 * bands * bits // 8), {256: (4,), 257: (4,), 258: (bits,) * bands, 259: (1,)}
    tags |= {262: (photometric,), 273: (0,), 277: (bands,), 278: (4,), 279: (len(rows),), 339: (kind,) * bands}
    tags |= {338: extra} if extra else {}
    place, entries, values = 8 + 2 + 12 * len(tags) + 4, b"", b""
    tags[273] = (place + sum(2 * len(each) for each in tags.values() if len(each) > 2),)
    for tag in sorted(tags):
        field = struct.pack(f"<{len(tags[tag])}H", *tags[tag])
        if len(field) > 4:
            field, values = struct.pack("<I", place + len(values)), values + field
        entries += struct.pack("<HHI4s", tag, 3, len(tags[tag]), field)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + values + rows


def pages(kind: int) -> bytes:
    """Makes a TIFF of two directories, the second a page (0), a smaller copy (1) or a mask (4)."""
    second = Picture.fromarray(PIXELS[::2, ::2])
    second.encoderinfo = {"tiffinfo": {254: kind}}  # type: ignore[attr-defined]
    return saved(RGB, "TIFF", save_all=True, append_images=[second])


def timed_gif() -> bytes:
    return saved(RGB, "GIF", save_all=True, append_images=[RGB.rotate(180)], duration=9, loop=0, comment=b"a, b; c")


def clear_bmp() -> bytes:
    """Makes a 32-bit BMP with the masks of header version 4."""
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    head = struct.pack("<IiiHHIIiiII", 108, 4, 4, 1, 32, 3, 64, 0, 0, 0, 0) + masks + bytes(52)
    return b"BM" + struct.pack("<IHHI", 14 + 108 + 64, 0, 0, 14 + 108) + head + bytes(range(64))


GREY, NEAREST = {"channels": 1}, {"resize": "nearest"}
FILES: list[tuple[bytes, dict[str, Any], tuple[str, ...]]] = [
    (saved(), {}, ()),
    (saved(RGB, "PNG"), GREY, ()),
    (saved(RGB.convert("L"), "PNG"), NEAREST, ()),
    (saved(RGB.convert("1"), "TIFF", compression="group4"), {}, ()),
    (saved(LEVELS, "PNG"), {}, ("16 bits",)),
    (saved(LEVELS, "TIFF"), {}, ("16 bits",)),
    (by_opencv(".png"), {}, ("16 bits",)),
    (by_opencv(".tiff"), {}, ("16 bits",)),
    (by_opencv(".avif", cv2.IMWRITE_AVIF_DEPTH, 10), {}, ("10 bits",)),
    (by_opencv(".avif", cv2.IMWRITE_AVIF_DEPTH, 12), {}, ("12 bits",)),
    (deep_heif(), {}, ("10 bits",)),
    (tiff_of(1, 1, bits=12), {}, ("12 bits",)),
    (tiff_of(1, 0), {}, ("0 for white",)),
    (tiff_of(1, 0, bits=16), {"dtype": "uint16", **GREY, "background": 0, "normalize": "none"}, ("0 for white",)),
    (tiff_of(1, 0, bits=32, kind=3), {}, ("32 bits",)),
    (mask(), {}, ("palette indices",)),
    (mask(22), {}, ("palette indices",)),
    (mask(2), GREY, ("palette indices",)),
    (mask(form="TIFF"), {}, ("palette indices",)),
    (mask(form="GIF"), {}, ("palette indices",)),
    (mask(form="BMP"), {}, ("palette indices",)),
    (saved(PHOTO, "BMP"), {}, ("palette colours",)),
    (saved(PHOTO, "BMP"), GREY, ("palette indices",)),
    (saved(RGB.convert("L"), "BMP"), NEAREST, ()),
    (saved(RGB.convert("1"), "BMP"), GREY, ()),
    (saved(RGB, "BMP"), NEAREST, ()),
    (saved(ALPHA, "BMP"), {}, ()),  # the same bits: Pillow reads the fourth byte as nothing
    (clear_bmp(), {}, ("alpha",)),
    (saved(PHOTO, "PNG"), {}, ("palette colours",)),
    (saved(PHOTO, "PNG"), GREY, ("palette indices",)),
    (saved(PHOTO, "TIFF"), NEAREST, ("palette indices",)),
    (saved(PHOTO, "GIF"), GREY, ("palette indices",)),
    (saved(paletted(WINDOWS), "PNG"), {}, ("palette colours",)),
    (saved(paletted(GREYS), "PNG"), NEAREST, ()),
    (saved(paletted(GREYS[::-1]), "PNG"), GREY, ()),
    (saved(paletted(GREYS[::-1]), "PNG"), NEAREST, ("palette indices",)),
    (saved(paletted([0, 0, 0, 255, 255, 255]), "GIF"), GREY, ()),
    (saved(ALPHA, "PNG"), {}, ("alpha",)),
    (saved(ALPHA.convert("LA"), "PNG"), {}, ("alpha",)),
    (saved(RGB, "PNG", transparency=(1, 2, 3)), {}, ("alpha",)),
    (saved(PHOTO, "PNG", transparency=3), {}, ("alpha", "palette colours")),
    (saved(PHOTO, "PNG", transparency=b"\xff" * 16), {}, ("palette colours",)),
    (saved(PHOTO, "GIF", transparency=3), {}, ("alpha", "palette colours")),
    (saved(ALPHA, "WEBP"), {}, ("alpha",)),
    (saved(ALPHA, "WEBP", lossless=False), {}, ("alpha",)),
    (saved(RGB, "WEBP"), {}, ()),
    (saved(RGB, "WEBP", lossless=False, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"), {}, ()),
    (saved(ALPHA, "TIFF"), {}, ("alpha",)),
    (saved(ALPHA, "AVIF"), {}, ("alpha",)),
    (saved(ALPHA, "HEIF"), {}, ("alpha",)),
    (png(np.zeros((4, 4, 4), int), 16, 6), {}, ("16 bits", "alpha")),
    (tiff_of(4, 2, (0,)), {}, ("extra bands",)),
    (tiff_of(5, 2, (2, 0)), {}, ("alpha", "extra bands")),
    (tiff_of(4, 2), {}, ("alpha",)),
    (tiff_of(4, 5), {}, ()),
    (tiff_of(3, 8), {}, ()),
    (tiff_of(5, 5, (0,)), {}, ("extra bands",)),
    (animated("PNG"), {}, ("further frames",)),
    (animated("GIF"), {}, ("further frames", "palette colours")),
    (timed_gif(), {}, ("further frames", "palette colours")),
    (animated("TIFF"), {}, ("further frames",)),
    (animated("AVIF"), {}, ("further frames",)),
    (pages(0), {}, ("further frames",)),
    (pages(1), {}, ()),
    (pages(4), {}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("data", "keys", "lost"), FILES)
def test_a_header_says_what_is_lost(data: bytes, keys: dict[str, Any], lost: tuple[str, ...]) -> None:
    header = check_header(data, 1_000_000)
    assert losses(data, header.format, options(**keys).pixel_options) == lost


HIGH, WIDE = PIXELS.shape[:2]
AS_SHOWN, IN_FILE = f"{HIGH} x {WIDE}", f"{WIDE} x {HIGH}"
FRAMES = [
    (6, IN_FILE, "upright", "sides stated of the file"),
    (8, AS_SHOWN, "file", "sides stated upright"),
    (6, AS_SHOWN, "upright", None),
    (6, IN_FILE, "file", None),
    (3, IN_FILE, "upright", None),
]


@pytest.mark.parametrize(("orientation", "stated", "oriented", "lost"), FRAMES)
def test_stated_sides_of_another_frame_are_counted_by_init_and_plan(
    orientation: int, stated: str, oriented: str, lost: str | None, tmp_path: Path
) -> None:
    write(tmp_path / "a/1.jpg", turned("JPEG", orientation))
    image = dict(zip(("width", "height"), map(int, stated.split(" x ")), strict=True)) | {"id": 1, "file_name": "1.jpg"}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}
    coco = {"images": [image], "annotations": [box], "categories": [{"id": 1, "name": "x"}]}
    write(tmp_path / "a/a.json", json.dumps(coco))
    text = starter(str(tmp_path / "a"), LocalFiles())
    assert text.startswith("# In doubt: images: 1 with") == (orientation == 6 and stated == IN_FILE)
    spec = parse_spec(text.replace("unit: absolute", f"unit: absolute\n    oriented: {oriented}"))
    warned = [line for line in forecast(spec, LocalFiles()).warnings if "`oriented: file`" in line]
    assert [f"1 with {lost}, " in line for line in warned] == [True] * bool(lost)


def test_frames_of_a_webp_are_counted() -> None:
    assert "further frames" in losses(animated("WEBP"), "WebP")
    assert "further frames" not in losses(saved(RGB, "WEBP", save_all=True, append_images=[RGB]), "WebP")  # one frame


def starts() -> Iterator[bytes]:
    for data, _, _ in FILES:
        yield from (data[:-1], data[: len(data) // 2], data[:60])
    yield png(np.zeros((4, 4, 1), int), 8, 3, (b"PLTE", bytes(3 * 300)))
    yield bmp(bytes(9), 18, 27, 8)
    yield b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">II", 4, 4)) + chunk(b"acTL", b"")


@given(st.sampled_from([*starts()]), st.binary(max_size=80), st.integers(0, 200))
def test_hostile_bytes_raise_nothing(start: bytes, more: bytes, at: int) -> None:
    data = start[:at] + more + start[at + len(more) :]
    try:
        header = check_header(data, 1 << 40)
    except ImageError:
        return
    assert {name.split()[-1] for name in losses(data, header.format)} <= {name.split()[-1] for name in LOSSES}


def test_lines_name_the_loss_and_what_keeps_it() -> None:
    counts = {"16 bits": 4, "palette colours": 1_200, "later": 2}
    lines = [line.split(", ")[0] for line in fact_lines({"losses": counts})]
    assert lines == ["4 with 16 bits", "2 with later", "1,200 with palette colours"]
    bits, later = loss_lines(counts)
    assert_names(bits, "4 with 16 bits", "`dtype: uint16`")
    assert_names(later, "2 with later", "Recordmill")


SPEC = """
name: scans
source: {{format: image_folder, path: {folder}}}
splits: {{train: 1}}
features:
  image: {{kind: image, size: [64, 64], channels: {channels}, store: png, normalize: none, resize: nearest}}
{more}
"""


def spec_of(folder: Path, files: dict[str, bytes], channels: int = 1, more: str = "") -> Path:
    (folder / "data").mkdir()
    for name, data in files.items():
        (folder / "data" / name).write_bytes(data)
    path = folder / "dataset.yaml"
    path.write_text(SPEC.format(folder=folder / "data", channels=channels, more=more))
    return path


def planned(path: Path) -> Forecast:
    result = forecast(load_spec(str(path)), LocalFiles())
    assert isinstance(result, Forecast)
    return result


def test_a_plan_says_what_is_lost_and_what_keeps_it(tmp_path: Path) -> None:
    files = {"a.png": saved(LEVELS, "PNG"), "b.tif": saved(LEVELS, "TIFF"), "c.png": mask(), "d.jpg": saved()}
    result = planned(spec_of(tmp_path, files))
    assert result.columns[0].losses == {"16 bits": 2, "palette indices": 1}
    assert json.loads(json.dumps(result.to_json()))["columns"][0]["losses"] == result.columns[0].losses
    assert "2 with 16 bits, cut to 8" in result.columns[0].facts
    (bits,) = (each for each in result.warnings if "2 with 16 bits" in each)
    assert "`dtype: uint16`" in bits
    assert any("1 with palette indices" in each and "`kind: mask`" in each for each in result.warnings)
    assert (result.built_rows, result.rejects, result.exit_code) == (4, {}, 0)


BAD = {
    "float.tif": saved(np.zeros((9, 9), np.float32), "TIFF"),
    "bands.tif": tiff_of(13, 1, (0,) * 12),
    "grey4.tif": tiff_of(4, 1, (0, 0, 0)),
    "long.tif": saved(np.zeros((9, 9), np.int32), "TIFF"),
    "cut.gif": saved(RGB, "GIF")[:60],
    "cut.webp": animated("WEBP")[:120],
    "lab.tif": saved(Picture.new("LAB", (5, 5)), "TIFF"),
    "cut.heic": saved(RGB, "HEIF")[:-30],
    "cut.png": saved(RGB, "PNG")[:-40],
}


def test_a_plan_rejects_what_a_build_would(tmp_path: Path) -> None:
    result = planned(spec_of(tmp_path, {"cut.png": BAD["cut.png"], "good.png": saved(LEVELS, "PNG")}))
    assert result.rejects == {"undecodable_image": 1}
    assert (result.built_rows, int(result.exit_code)) == (2, 5)
    assert any("such as cut.png, column 'image': " in each for each in result.warnings)


def test_a_plan_of_bad_images_alone_ends_as_a_build_would(tmp_path: Path) -> None:
    result = planned(spec_of(tmp_path, BAD, more="rejects: {max_share: null}\n"))
    assert (result.rejects, int(result.exit_code)) == ({"unsupported_format": 4, "undecodable_image": 5}, 1)


def test_a_plan_opens_fewer_images_where_they_are_large(tmp_path: Path) -> None:
    files = {f"{number}.tif": saved(form="TIFF") for number in range(20)}
    with constants(rehearsal, MOST_PIXELS=PIXELS.size), constants(build_context, IMAGE_BATCH=5):
        result = planned(spec_of(tmp_path, files))
    assert (result.rows, result.built_rows) == (20, 5)


def test_a_plan_takes_what_the_graph_alone_decodes(tmp_path: Path) -> None:
    clear = png(np.zeros((4, 4, 3), int), 16, 2, (b"tRNS", bytes(6)))
    result = planned(spec_of(tmp_path, {"a.png": clear, "b.gif": animated("GIF"), "c.tif": saved(form="TIFF")}))
    assert (result.rejects, result.built_rows) == ({}, 3)


def test_init_says_what_is_lost_and_what_keeps_it(tmp_path: Path) -> None:
    large = np.random.default_rng(1).integers(0, 256, (700, 700, 3), np.uint8)
    files = {"a.png": saved(LEVELS, "PNG"), "b.png": saved(PHOTO, "PNG"), "c.png": saved(ALPHA, "PNG")}
    files |= {"d.tif": saved(large, "TIFF", compression="tiff_lzw")}  # its tags stand behind 1 MiB
    spec_of(tmp_path, files | {"e.tif": BAD["float.tif"]})
    text = " ".join(starter(str(tmp_path / "data"), LocalFiles()).replace("\n#  ", "").split())
    assert_names(text, "1 unsupported_format in column image", "1 with 16 bits", "1 with palette colours")
    assert_names(text, "1 with alpha", "`background`", "`dtype: uint16`", "grey image")


@pytest.mark.slow
def test_a_build_counts_what_it_loses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"scan.png": saved(LEVELS, "PNG"), "mask.png": mask(), "film.gif": animated("GIF"), "photo.jpg": saved()}
    more = "  photo: {kind: image, column: image, size: [64, 64]}\n"
    published = build(load_spec(str(spec_of(tmp_path, files, more=more))), str(tmp_path / "out"))
    manifest = published.manifest
    assert manifest.statistics["image"]["losses"] == {"16 bits": 1, "further frames": 1, "palette indices": 2}
    assert manifest.statistics["photo"]["losses"] == {
        "16 bits": 1, "further frames": 1, "palette colours": 1, "palette indices": 1,
    }  # fmt: skip
    dataset = open_dataset(tmp_path / "out")
    (batch,) = dataset.evaluation_input("train", batch_size=4, with_key=True).as_numpy()
    stored = dict(zip(batch["key"].tolist(), batch["image"], strict=True))
    assert len(np.unique(stored[b"scan.png"])) == len(np.unique(LEVELS >> 8)) == 16
    luma = np.asarray(paletted(voc()).convert("L").resize((64, 64), Picture.Resampling.NEAREST))
    assert np.abs(stored[b"mask.png"][..., 0].astype(int) - luma).max() <= 1
    page = report_of(dataset).decode()
    print_dataset(manifest, dataset.folder, [])
    for text in (page, card(dataset.folder, manifest).decode().replace("\\", ""), capsys.readouterr().out):
        assert_names(text, "image: 1 with 16 bits", "`dtype: uint16`", "photo: 1 with palette indices", "`kind: mask`")
        assert "photo: 1 with palette colours" not in text
    assert "Nothing stands out" not in page
    without = Dataset(dataset.folder, replace(manifest, statistics={}))
    assert "Nothing stands out" in report_of(without).decode()
    screen = io.StringIO()
    print_published(Screen(file=screen, width=300), published, 1.0)
    assert_names(screen.getvalue(), "image: 1 with 16 bits", "`dtype: uint16`")
