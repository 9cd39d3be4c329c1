"""Parts of a file are counted before a library sees it: files at a bound are read, larger ones are not."""

import io
import re
import struct
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import GifImagePlugin
from PIL import Image as Picture

from recordmill.pipeline.build.images.perceptual_hash import perceptual_hash
from recordmill.pipeline.build.images.read import Loaded, together
from recordmill.pipeline.sources.faults import Fault, SourceError
from recordmill.pipeline.sources.formats.annotated_images import read_open_images
from recordmill.pipeline.sources.formats.annotated_rows import ImageList, names_in, voc_lists, yolo_lists
from recordmill.pipeline.sources.formats.coco import NO_NUMBERS, NO_VALUES, CocoImage, _hashed, read_coco
from recordmill.pipeline.sources.formats.grouped import Groups
from recordmill.pipeline.sources.source_reader import Block
from recordmill.transforms.base import bounds
from recordmill.transforms.base.bounds import BOUNDS, Bound, ImageError
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.images.decode import DecodeError, decode_original
from recordmill.transforms.images.image_header import check_header, check_tile
from recordmill.transforms.images.image_parts import RAW, jpeg_segments, png_chunks, without_metadata
from recordmill.transforms.images.image_stored import PixelOptions
from tests.messages import assert_names, raises
from tests.pictures import bmp, chunk, saved
from tests.tables import FILES
from tests.test_image_header import box, more_scans

ROOT = Path(__file__).parents[1]
JPEG, PNG, GIF, WEBP = saved(), saved(form="PNG"), saved(form="GIF"), saved(form="WEBP")
AFTER_PALETTE = 13 + (3 << (GIF[10] & 7) + 1)
Entry = tuple[int, int, int, int]


def segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", 2 + len(payload)) + payload


def within(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at] + more + data[at:]


def in_jpeg(more: bytes) -> bytes:
    return within(JPEG, 2, more)


def in_png(more: bytes) -> bytes:
    return within(PNG, 33, more)


def in_gif(more: bytes) -> bytes:
    return within(GIF, AFTER_PALETTE, more)


def in_webp(more: bytes, data: bytes = WEBP) -> bytes:
    return data[:4] + struct.pack("<I", len(data) + len(more) - 8) + data[8:] + more


def tiff(entries: list[Entry], tail: bytes = b"", start: bytes = b"II*\0", at: int = 8) -> bytes:
    """Makes a TIFF of one directory: tag, type, count and value or offset; the tail follows."""
    order = "<" if start[:1] == b"I" else ">"
    body = b"".join(struct.pack(order + "HHII", *entry) for entry in entries)
    return start + struct.pack(order + "I", at) + bytes(at - 8) + struct.pack(order + "H", len(entries)) + body + tail


SIDES: list[Entry] = [(256, 4, 1, 9), (257, 4, 1, 9)]
TABLES = sum(2 + int.from_bytes(JPEG[at + 2 : at + 4], "big") for each, at, _ in jpeg_segments(JPEG) if each < 0xDA)
TABLES += sum(2 + int.from_bytes(JPEG[at + 2 : at + 4], "big") for each, at, _ in jpeg_segments(JPEG) if each == 0xDB)


def shared(beyond: int) -> bytes:
    """Makes a TIFF with two tags that share an array, which adds bytes beyond the file's size."""
    size = 66 + beyond  # the file without the array has 58 bytes, of which the sides are 8
    return tiff([*SIDES, *[(60_000, 7, size - 16, 58)] * 2], bytes(size - 16))


def tiles(beyond: int) -> bytes:
    """Makes a TIFF with two JPEG tiles that add bytes beyond the file's 86."""
    entries = [*SIDES, (259, 3, 1, 7), (324, 4, 2, 70), (325, 4, 2, 78)]
    return tiff(entries, struct.pack("<IIII", 0, 0, 1, 85 + beyond))


def extents(count: int, length: int) -> bytes:
    """Makes an AVIF with a second list of one item, with this many extents of this size."""
    item = struct.pack(">HHH", 1, 0, count) + struct.pack(">II", 0, length) * count
    return saved(form="AVIF") + box(b"meta", bytes(4) + box(b"iloc", bytes(4) + b"\x44\0\0\1" + item))


def twice(beyond: int) -> bytes:
    """Makes an AVIF with items that add bytes beyond the file's size."""
    padding = box(b"free", bytes(beyond))
    own = len(extents(2, 0))
    (image,) = re.findall(rb"iloc.{14}(.{4})(.{4})", saved(form="AVIF"), re.DOTALL)
    whole, pixels = own + len(padding), int.from_bytes(image[1], "big")
    return extents(2, 0)[:-16] + struct.pack(">IIII", 0, whole, 0, beyond - pixels) + padding


def boxes(count: int) -> bytes:
    own = saved(form="AVIF")
    low, high = 0, 10_000
    while low < high:  # the most that still pass, less the bound, are the file's own
        some = (low + high + 1) // 2
        try:
            check_header(own + box(b"free", b"") * some, 64_000_000)
            low = some
        except ImageError:
            high = some - 1
    return own + box(b"free", b"") * (low + count - bounds.ISO_BOXES.most)


CASES: dict[Bound, Callable[[int], bytes]] = {
    bounds.JPEG_SEGMENTS: lambda n: in_jpeg(segment(0xE0, b"") * (n + 1 - len(list(jpeg_segments(JPEG))))),
    bounds.JPEG_LOOSE: lambda n: in_jpeg(b"\xff" * (n - TABLES)),
    bounds.JPEG_EXIF: lambda n: in_jpeg(segment(0xE1, b"Exif\0\0") * n),
    bounds.JPEG_SCANS: lambda n: more_scans(saved(progressive=True), n),
    bounds.PNG_CHUNKS: lambda n: in_png(chunk(b"abCd", b"") * (n - len(list(png_chunks(PNG))))),
    bounds.PNG_PROFILES: lambda n: in_png(chunk(b"iCCP", b"") * n),
    bounds.PNG_TEXTS: lambda n: in_png(chunk(b"zTXt", b"a\0\0") * n),
    bounds.TIFF_SHARED: lambda n: tiles(n),
    bounds.GIF_BLOCKS: lambda n: in_gif(bytes(n - 3) + b"!\xff\1a\1a\0"),
    bounds.GIF_COMMENTS: lambda n: in_gif(b"!\xfe\1a\0" + b"!\xfe" + b"\1a" * (n - 1) + b"\0"),
    bounds.BMP_WIDTH: lambda n: bmp(b"\0\2\xff\xff", 1, n, 8, compression=1),
    bounds.BMP_RUNS: lambda n: bmp(bytes(n - 54), 1, 9, 4, compression=2),
    bounds.WEBP_CHUNKS: lambda n: in_webp((b"abcd" + bytes(4)) * (n - 1)),
    bounds.EXIF_TAGS: lambda n: tiff(SIDES + [(60_000, 1, 1, 0)] * (n - 2)),
    bounds.EXIF_NUMBERS: lambda n: tiff([*SIDES, (273, 4, n - 2, 46)], bytes(4 * n)),
    bounds.EXIF_SHARED: shared,
    bounds.EXIF_HEADS: lambda n: in_png(chunk(b"eXIf", b"Exif\0\0" * n)),
    bounds.ISO_EXIF: lambda n: saved(form="AVIF") + box(b"free", b"II*\0" * n),
    bounds.ISO_EXTENTS: lambda n: extents(n - 3, 0),
    bounds.ISO_SHARED: twice,
    bounds.ISO_BOXES: boxes,
}


@pytest.mark.parametrize("bound", CASES, ids=lambda bound: f"{bound.of} {bound.what}")
def test_a_file_at_a_bound_is_read_and_one_beyond_it_is_not(bound: Bound) -> None:
    check_header(CASES[bound](bound.most), 64_000_000)
    with raises(ImageError, f"{bound.most + 1:,}", f"{bound.most:,}") as error:
        check_header(CASES[bound](bound.most + 1), 64_000_000)
    assert error.value.reason == bound.reason


BLOCK = tiff([(number, 5, 2_000, 8) for number in range(600)], bytes(16_000))
"""EXIF of 23 kB whose 600 tags hold 1,200,000 fractions: they share their bytes."""
TURN = tiff([(274, 3, 1, 6)])
PLACES = {
    "JPEG": lambda block: in_jpeg(segment(0xE1, b"Exif\0\0" + block)),
    "JPEG in two segments": lambda block: in_jpeg(
        segment(0xE1, b"Exif\0\0" + block[:9]) + segment(0xE1, b"Exif\0\0" + block[9:])
    ),
    "JPEG's previews": lambda block: in_jpeg(segment(0xE2, b"MPF\0" + block)),
    "PNG": lambda block: in_png(chunk(b"eXIf", block)),
    "WebP": lambda block: in_webp(b"EXIF" + struct.pack("<I", len(block)) + block + bytes(len(block) % 2)),
    "animated WebP": lambda block: saved(form="WEBP", save_all=True, exif=b"Exif\0\0" + block),
    "AVIF": lambda block: within(saved(form="AVIF", exif=TURN), -40, block),
    "HEIF": lambda block: saved(form="HEIF") + box(b"free", b"Exif\0\0" + block),
    "TIFF": lambda block: block,
}


@pytest.mark.parametrize("place", PLACES)
def test_exif_is_counted_wherever_it_is(place: str) -> None:
    with raises(ImageError, "tags") as error:
        check_header(PLACES[place](BLOCK), 64_000_000)
    assert error.value.reason == "too_slow"


@pytest.mark.parametrize("start", [b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"MM\0+"])
@pytest.mark.parametrize(("tag", "kind"), [(34_665, 4), (34_853, 13), (40_965, 3)])
def test_directories_below_are_counted_in_every_order_of_bytes(start: bytes, tag: int, kind: int) -> None:
    order = "<" if start[:1] == b"I" else ">"
    value = 26 if order == "<" or kind != 3 else 26 << 16
    below = struct.pack(order + "H", 600) + b"".join(
        struct.pack(order + "HHII", number, 5, 1_000, 26) for number in range(600)
    )
    exif = tiff([(tag, kind, 1, value)], bytes(4) + below + bytes(9_000), start)
    with raises(ImageError, "bytes of tags"):
        check_header(in_png(chunk(b"eXIf", exif)), 1 << 20)


def test_damaged_exif_and_a_circle_of_directories_cost_no_image() -> None:
    for damage in (BLOCK[:100], TURN[:9], b"II*\0" + b"\xff" * 9, tiff([(1, 5, 1 << 31, 8), (2, 99, 1 << 31, 8)])):
        check_header(in_jpeg(segment(0xE1, b"Exif\0\0" + damage)), 1 << 20)
    check_header(in_png(chunk(b"eXIf", tiff([(34_665, 4, 1, 8), (34_853, 4, 1, 8)]))), 1 << 20)


def test_exif_as_text_is_not_read() -> None:
    text = b"\nexif\n 1\n" + BLOCK.hex().encode()
    data = in_png(chunk(b"tEXt", RAW.encode() + b"\0" + text))
    assert perceptual_hash(data, 1 << 20) == perceptual_hash(PNG, 1 << 20)


@given(
    st.lists(st.sampled_from([b"!\xfe", b"!\xff", b"!\1", b"\0", b"\1", b"\2", b"a", b"\x0bNETSCAPE2.0"]), max_size=60)
)
def test_blocks_of_a_gif_are_those_that_pillow_reads(pieces: list[bytes]) -> None:
    data, calls = in_gif(b"".join(pieces)), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "GIF_BLOCKS", bounds.GIF_BLOCKS._replace(most=20))
        read = GifImagePlugin.GifImageFile.data
        patch.setattr(GifImagePlugin.GifImageFile, "data", lambda image: calls.append(1) or read(image))
        try:
            check_header(data, 1 << 20)
            Picture.open(io.BytesIO(data), formats=["GIF"])
        except (ImageError, OSError, SyntaxError, IndexError):
            pass
    assert len(calls) <= 2 * 20 + 2, "Pillow reads no more than was counted: a block and an end for each"


def test_segments_without_end_behind_the_pixels_stay_as_they_are() -> None:
    plain = without_metadata(JPEG[:-2] + b"\xff\xfe\0\2" * 30_000 + JPEG[-2:])
    assert 10_000 <= plain.count(b"\xff\xfe\0\2") < 11_000
    assert plain.replace(b"\xff\xfe\0\2", b"") == without_metadata(JPEG)


def voc(inner: str, head: str = "", root: str = "annotation") -> bytes:
    return f"{head}<{root}>{inner}</annotation>".encode()


def coco(annotations: list[dict[str, object]], first: int = 0) -> Fault | object:
    image = CocoImage(1, path="a.jpg")
    for number, each in enumerate(annotations, first):
        image.add({"id": number, **each})
    return image.row().annotations


def joined(count: int) -> object:
    images = [CocoImage(1, path="a.jpg"), CocoImage(1, path="a.jpg")]
    for number in range(count):
        images[number % 2].add({"id": number, "bbox": [1, 2, 3, 4]})
    images[0].join(images[1])
    return images[0].row().annotations


def open_images(count: int) -> object:
    groups = Groups(["ImageID"], {"XMin": Column(ColumnType.NUMBER, many=True)})
    rows = pa.table({"ImageID": ["a"] * count, "XMin": np.zeros(count), "@position": np.arange(count)})
    groups.add(Block(rows, [], count), lambda position: ("a.csv", position))
    return groups.join().faults.get(0)


def polygon(numbers: int) -> object:
    """An image whose two polygons have so many numbers, and one more if they are odd."""
    image = CocoImage(1, path="a.jpg")
    for count in (6, numbers - 6 + numbers % 2):
        image.add({"id": 1, "segmentation": [[1] * count]}, {"shapes"})
    return image.row(0).annotations


def polygon_lines(numbers: int) -> bytes:
    return b"".join(b"0" + b" 1" * count + b"\n" for count in (6, numbers - 6 + numbers % 2))


ANNOTATIONS: dict[str, tuple[Bound, Callable[[int], object]]] = {
    "bytes": (bounds.FILE_BYTES, lambda n: voc_lists(voc(" " * (n - 25)), {})),
    "depth": (bounds.VOC_DEPTH, lambda n: voc_lists(voc("<a>" * (n - 1) + "</a>" * (n - 1)), {})),
    "elements": (bounds.VOC_ELEMENTS, lambda n: voc_lists(voc("<a/>" * (n - 1)), {})),
    "attributes": (
        bounds.VOC_ELEMENTS,
        lambda n: voc_lists(voc("", root="annotation " + " ".join(f"a{each}=''" for each in range(n - 1))), {}),
    ),
    "YOLO's bytes": (bounds.FILE_BYTES, lambda n: yolo_lists(b"0 .1 .1 .1 .1" + b" " * (n - 13), {})),
    "YOLO's lines": (bounds.OBJECTS, lambda n: yolo_lists(b"0 .1 .1 .1 .1\r" * n, {})),
    "COCO's captions": (bounds.OBJECTS, lambda n: coco([{"caption": ""}] * n)),
    "COCO's boxes": (bounds.OBJECTS, lambda n: coco([{"bbox": [1, 2, 3, 4]}] * n)),
    "COCO's boxes of two files": (bounds.OBJECTS, joined),
    "COCO's polygons": (bounds.POINTS, polygon),
    "YOLO's polygons": (bounds.POINTS, lambda n: yolo_lists(polygon_lines(n), {})),
    "boxes of Open Images": (bounds.OBJECTS, open_images),
}


@pytest.mark.first(4)
@pytest.mark.parametrize("case", ANNOTATIONS)
def test_annotations_at_a_bound_are_read_and_beyond_it_are_not(case: str) -> None:
    bound, made = ANNOTATIONS[case]
    assert not isinstance(made(bound.most), Fault)
    beyond = made(bound.most + 1)
    assert isinstance(beyond, Fault)
    assert beyond.reason == bound.reason
    assert_names(beyond.message, f"{bound.most + 1 + ('polygons' in case):,}", f"{bound.most:,}")  # x and y


def test_key_points_that_objects_lack_are_counted() -> None:
    image = CocoImage(1, path="a.jpg")
    for _ in range(1_001):
        image.add({"id": 1, "bbox": [1, 2, 3, 4]}, {"keypoints"})
    for fault in (image.row(1_000).annotations, yolo_lists(b"0 .1 .1 .1 .1\n" * 1_001, {}, (1_000, 3))):
        assert isinstance(fault, Fault)
        assert fault.reason == "too_large"
        assert_names(fault.message, "1,000,000")


def test_namespaces_cost_no_more_than_their_letters() -> None:
    lists = voc_lists(voc("<a/>" * 1_000, root=f'annotation xmlns="{"u" * 100_000}"'), {})
    assert lists == voc_lists(voc(""), {})
    names = voc("".join(f'<object p:a{number}=""/>' for number in range(3)), root=f'annotation xmlns:p="{"u" * 99}"')
    assert isinstance(voc_lists(names, {}), Fault)  # its objects have no box


@pytest.mark.parametrize("name", ["utf-7", "utf-32", "idna", "punycode", "hex", "rot13", "none", "undefined", "utf-16"])
def test_an_encoding_that_is_not_read_costs_its_row(name: str) -> None:
    fault = voc_lists(voc("", f'<?xml version="1.0" encoding="{name}"?>'), {})
    assert isinstance(fault, Fault)
    assert fault.reason == "malformed_row"


class Id(int):
    """An id that counts its comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Id.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_boxes_of_two_files_are_joined_in_as_many_steps() -> None:
    counts = []
    for count in (500, 1_000):
        images, Id.compared = [CocoImage(1), CocoImage(1)], 0
        for each, image in enumerate(images):
            for number in range(count):
                image.add({"id": Id(number + each * count // 2), "bbox": [1, 2, 3, 4]})
        images[0].join(images[1])
        assert len(images[0].ids) == count * 3 // 2
        counts.append(Id.compared)
    assert counts[1] <= 3 * counts[0] <= 3_000
    assert len({hash(_hashed(number * (2**61 - 1))) for number in range(100)}) > 90


@pytest.mark.parametrize("known", [1, 2**90, 1.5, "1", None, [1], {"a": [1]}, True])
def test_a_box_of_two_files_is_known_by_any_id(known: object) -> None:
    images = [CocoImage(1), CocoImage(1)]
    for image in images:
        image.add({"id": known, "bbox": [1, 2, 3, 4]})
    images[0].join(images[1])
    assert len(images[0].boxes) == (8 if known is None else 4)


def test_a_path_is_looked_up_as_often_as_the_list_has_lengths() -> None:
    listed = ImageList(["b/c/a.jpg", "d.jpg"])
    assert "a/" * 500_000 + "b/c/a.jpg" in listed
    assert "a/" * 500_000 + "e.jpg" not in listed


def test_names_in_yaml_are_counted() -> None:
    for text in ("names: [" + "a," * 100_000 + "a]", "names:\n" + "- a\n" * 100_001, "names: " + "a" * 10_000_100):
        with raises(SourceError, "data.yaml", "100,000"):
            names_in(text, "data.yaml")
    assert len(names_in("names: [" + "a," * 1_000 + "a]", "data.yaml")[0]) == 1_001


def test_an_image_without_annotations_is_small() -> None:
    image = CocoImage(None)
    assert image.boxes is image.crowd is NO_NUMBERS
    assert image.ids is image.categories is image.captions is NO_VALUES == []
    assert image.sides is None
    assert sys.getsizeof(image) < 160


def test_the_page_prints_the_table() -> None:
    text = (ROOT / "docs/security.md").read_text()
    listed = re.findall(r"^\| (.+?) \| (.+?) \| ([\d,]+) \| `?([^`|]+?)`? \|$", text, re.MULTILINE)
    assert listed == [(each.of, each.what, f"{each.most:,}", each.reason) for each in BOUNDS]


def test_scans_in_a_tiff_are_counted_and_what_follows_a_jpeg_has_none() -> None:
    entries, scan = [*SIDES, (259, 3, 1, 7), (324, 4, 1, 70)], b"\xff\xda"
    few, many = (tiff([*entries, (325, 4, 1, 2 * scans)], scan * 99) for scans in (20, 21))
    assert check_header(few, 81).scans == 20
    with raises(ImageError, "TIFF", "21 scans"):
        check_header(many, 81)
    progressive = saved(progressive=True)
    film = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8).tobytes() + b"\xff\xda" * 200
    assert check_header(progressive + film, 1 << 20) == check_header(progressive, 1 << 20)


def test_a_tile_is_allocated_whole() -> None:
    with raises(ImageError, "1600000000 pixels"):
        check_tile({322: 40_000, 323: 40_000}, 64_000_000)


def test_the_images_of_a_row_are_counted_together() -> None:
    bomb = Loaded(b"a", b"a", 0, pixels=64_000_000)
    assert len([*together([bomb] * 39)]) == 39
    for images, bound in (([bomb] * 40, bounds.ROW_PIXELS), (repeat(Loaded(b"", b"", 0)), bounds.ROW_PIXELS)):
        with raises(ImageError, f"{bound.most:,}") as error:
            [*together(images)]
        assert error.value.reason == bound.reason
    with raises(ImageError, f"{bounds.ROW_BYTES.most:,}"):
        [*together([Loaded(bytes(300 << 20), b"", 0)] * 2)]


def test_a_record_of_a_dataset_is_counted_too() -> None:
    with pytest.raises(DecodeError):
        decode_original(in_png(chunk(b"zTXt", b"a\0\0") * 33), PixelOptions(), 1)
    assert decode_original(in_png(chunk(b"zTXt", b"a\0\0") * 32), PixelOptions(), 1).shape[2] == 3


def test_a_coco_of_images_without_names_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"images": [' + "{}," * 100_000 + "{}]}")
    with raises(SourceError, "a.json", "100,001", "`file_name`"):
        read_coco(FILES, str(tmp_path), ["a.json"], None, ImageList(None))


def test_a_wide_table_of_open_images_is_no_wide_table_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "ImageID,LabelName,XMin,YMin,XMax,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
    (tmp_path / "a.csv").write_text(names + "," * 5_000 + "\na,/m/1,0,1,0,1,0,0,0,0,0" + "," * 5_000 + "\n")
    seen: list[int] = []
    monkeypatch.setattr(Groups, "add", lambda _, block, place: seen.append(block.table.num_columns))
    read_open_images(FILES, str(tmp_path), ["a.csv"], ["a.jpg"], {"/m/1": "cat"})
    assert set(seen) == {12}
