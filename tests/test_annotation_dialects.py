"""Variants of COCO, VOC and YOLO that other tools write are read, or named."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.annotated_images import voc_lists, yolo_lists
from recordmill.pipeline.sources.formats.annotated_rows import ImageList
from recordmill.pipeline.sources.options import AnnotatedImages
from recordmill.pipeline.sources.source_reader import SourceError
from tests import published_formats as published
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, Read, read

NAMES = Column(ColumnType.CATEGORY, many=True)
BOXES: Columns = {
    "image": IMAGE,
    "id": CATEGORY,
    "boxes": Column(ColumnType.NUMBER, many=True, multiple=4),
    "categories": NAMES,
}
CAT, DOG = {"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}
FIRST, SECOND = [1, 2, 10, 10], [40, 2, 10, 10]


def image(known: Any, name: str = "1.jpg") -> dict[str, Any]:
    return {"id": known, "file_name": name, "width": 100, "height": 50}


def box(known: Any, image: Any, category: Any, bbox: Any = FIRST, **others: Any) -> dict[str, Any]:
    return {"id": known, "image_id": image, "category_id": category, "bbox": bbox, **others}


def coco(folder: Path, *files: dict[str, Any], columns: Columns = BOXES) -> Read:
    """Reads files of some images and annotations, of cats and dogs."""
    for number, file in enumerate(files):
        published.write_json(folder / f"{number}.json", {"categories": [CAT, DOG], "images": [image(1)], **file})
    return read(reader_of(AnnotatedImages(format="coco", path=f"{folder}/*.json")), columns)


JOINED: list[tuple[str, Sequence[Any], Sequence[Any], list[str]]] = [
    ("others with an id that repeats", [box(0, 1, 1)], [box(0, 1, 2, SECOND)], ["cat", "dog"]),
    ("another class", [box(0, 1, 1)], [box(0, 1, 2)], ["cat", "dog"]),
    ("another box", [box(0, 1, 1)], [box(0, 1, 1, SECOND)], ["cat", "cat"]),
    ("a crowd", [box(0, 1, 1)], [box(0, 1, 1, iscrowd=1)], ["cat", "cat"]),
    ("the same", [box(0, 1, 1)], [box(0, 1, 1)], ["cat"]),
    ("the same, as pandas writes it", [box(0, 1, 1)], [box(0.0, 1.0, 1.0, [1.0, 2.0, 10.0, 10.0])], ["cat"]),
    ("the same without an id", [box(None, 1, 1)], [box(None, 1, 1)], ["cat", "cat"]),
]


@pytest.mark.parametrize(("first", "second", "categories"), [case[1:] for case in JOINED], ids=[c[0] for c in JOINED])
def test_an_annotation_of_two_files(first: Any, second: Any, categories: list[str], tmp_path: Path) -> None:
    found = coco(tmp_path, {"annotations": first}, {"annotations": second})
    assert [row["categories"] for row in found.rows] == [categories]
    assert len(found.rows[0]["boxes"]) == 4 * len(categories)


def test_a_caption_of_two_files(tmp_path: Path) -> None:
    texts = [("a cat", "a cat"), ("a dog",)]
    files = [{"annotations": [{"id": n, "image_id": 1, "caption": text} for n, text in enumerate(each)]}
             for each in texts]  # fmt: skip
    columns = {"captions": Column(ColumnType.TEXT, many=True)}
    found = coco(tmp_path, *files, files[0], columns=columns)
    assert found.rows == [{"captions": ["a cat", "a cat", "a dog"]}]


def test_an_annotation_with_a_caption_and_a_box_is_both(tmp_path: Path) -> None:
    columns = BOXES | {"captions": Column(ColumnType.TEXT, many=True)}
    annotations = [box(1, 1, 2, caption="a dog"), {"id": 2, "image_id": 1, "caption": "of no class", "bbox": SECOND}]
    (row,) = coco(tmp_path, {"annotations": annotations}, columns=columns).rows
    assert (row["captions"], row["categories"], row["boxes"]) == (["a dog", "of no class"], ["dog"], FIRST)


IDS: list[tuple[Any, Any, Any]] = [
    (1, 1.0, 2.0), (1.0, 1, 2), (1, "1", "2"), ("1", 1, 2), ("1", 1.0, 2.0), ("a1", "a1", 2),
    (1 << 62, float(1 << 62), 2),
]  # fmt: skip


@pytest.mark.parametrize(("listed", "named", "category"), IDS)
def test_an_id_is_the_same_however_it_is_written(listed: Any, named: Any, category: Any, tmp_path: Path) -> None:
    found = coco(tmp_path, {"images": [image(listed)], "annotations": [box(1, named, category)]})
    (row,) = found.rows
    expected = str(int(listed)) if isinstance(listed, float) else str(listed)
    assert (row["id"], row["categories"], row["boxes"]) == (expected, ["dog"], FIRST)
    assert not [note for note in found.plan.notes if "annotations" in note]


@pytest.mark.parametrize("named", [1.5, True, [1], "01", " 1", None])
def test_what_is_no_such_id_is_counted(named: Any, tmp_path: Path) -> None:
    found = coco(tmp_path, {"annotations": [box(7, named, 1), box(8, 1, 1)]})
    assert found.rows[0]["categories"] == ["cat"]
    assert any("annotations" in note and ": 1 (7)" in note for note in found.plan.notes)


def test_two_images_of_one_id_are_no_two_rows(tmp_path: Path) -> None:
    found = coco(tmp_path, {"images": [image(5), image(5, "2.jpg")], "annotations": [box(1, 5, 1)]})
    assert [row["image"] for row in found.rows] == [b"z100 x 50:1.jpg"]
    ((reason, _, message),) = found.faults
    assert reason == "malformed_row"
    assert "`id` 5 " in message


def test_two_names_of_one_category_end_the_plan(tmp_path: Path) -> None:
    with raises(SourceError, "0.json", "`categories`", "id 1 "):
        coco(tmp_path, {"categories": [CAT, {"id": 1.0, "name": "dog"}], "annotations": []})


@pytest.mark.parametrize(("width", "start"), [(100.0, "z100 x 50:"), (0, "f"), (None, "f"), ("100", "f"), (1e400, "f")])
def test_a_picture_has_the_size_that_its_entry_states(width: Any, start: str, tmp_path: Path) -> None:
    file = {"images": [image(1) | {"width": width}], "annotations": [box(1, 1, 1)]}
    assert coco(tmp_path, file).rows[0]["image"] == f"{start}1.jpg".encode()
    assert coco(tmp_path, file, columns={"image": IMAGE}).rows[0]["image"] == b"f1.jpg"


SHAPES: list[tuple[Any, list[float]]] = [
    ([[10, 10, 30, 10, 30, 20]], [10, 10, 20, 10]),
    ([[10.5, 4, 2, 8, 6, 6]], [2, 4, 8.5, 4]),
    ([[1, 1, 5, 1, 5, 5], [20, 30, 40, 30, 40, 45]], [1, 1, 39, 44]),
]


@pytest.mark.parametrize("absent", [{}, {"bbox": []}, {"bbox": None}])
@pytest.mark.parametrize(("polygons", "expected"), SHAPES)
def test_polygons_without_a_box(absent: Any, polygons: Any, expected: list[float], tmp_path: Path) -> None:
    annotation = {key: value for key, value in box(3, 1, 2, segmentation=polygons).items() if key != "bbox"}
    found = coco(tmp_path, {"annotations": [annotation | absent]})
    assert [(row["boxes"], row["categories"]) for row in found.rows] == [(expected, ["dog"])]


NO_SHAPES: list[tuple[Any, str]] = [
    ({"size": [50, 100], "counts": [0, 5000]}, "toBbox"),
    ({"size": [50, 100], "counts": "PPYo0"}, "toBbox"),
    ([[1, 2, 3]], "polygons"),
    ([[1, 2, "3", 4]], "polygons"),
    ([[1, 2, float("nan"), 4]], "polygons"),
    ([10, 10, 30, 10, 30, 20], "polygons"),
    ([[]], "polygons"),
    ([], "polygons"),
    (None, "polygons"),
]


@pytest.mark.parametrize(("segmentation", "word"), NO_SHAPES)
def test_a_segmentation_that_gives_no_box_costs_its_row(segmentation: Any, word: str, tmp_path: Path) -> None:
    found = coco(tmp_path, {"annotations": [box(3, 1, 2, None, segmentation=segmentation)]})
    ((reason, _, message),) = found.faults
    assert reason == "malformed_row"
    assert "annotation 3 " in message
    assert word in message


def test_panoptic_annotations_name_their_converter(tmp_path: Path) -> None:
    segments = [{"id": 513, "category_id": 1, "iscrowd": 0, "bbox": [4, 4, 5, 5]}]
    found = coco(tmp_path, {"annotations": [{"image_id": 1, "file_name": "1.png", "segments_info": segments}]})
    ((reason, _, message),) = found.faults
    assert reason == "malformed_row"
    assert_names(message, "`segments_info`", "`panopticapi`")


XML = (
    '{head}\n<annotation><object><name>{name}</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax>'
    "<ymax>40</ymax></bndbox></object></annotation>"
)  # fmt: skip
ENCODINGS = [
    ("GBK", "猫"), ("gb2312", "猫"), ("GB18030", "猫€𠮷"), ("Big5", "貓"), ("Big5-HKSCS", "貓"), ("Shift_JIS", "猫"),
    ("EUC-KR", "고양"), ("EUC-JP", "猫"), ("cp932", "猫①"), ("cp949", "고"), ("ISO-2022-JP", "猫"), ("HZ", "猫"),
    ("utf8", "猫"), ("UTF-8", "猫"), ("utf-16", "猫"), ("koi8-r", "кот"), ("windows-1251", "кот"), ("latin-1", "é"),
    ("ISO-8859-15", "€"), ("us-ascii", "cat"),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "name"), ENCODINGS)
def test_a_declared_encoding_is_decoded(encoding: str, name: str) -> None:
    for head in (f'<?xml version="1.0" encoding="{encoding}"?>', f"<?xml version='1.0'  encoding = '{encoding}' ?>"):
        lists = voc_lists(XML.format(head=head, name=name).encode(encoding), {})
        assert not isinstance(lists, Fault), lists
        assert (lists["categories"], lists["boxes"]) == ([name], [1, 2, 30, 40])


UNKNOWN = [
    ("x-nonsense", b"cat", "x-nonsense"),
    ("GBK", b"\xff\xff", "gbk"),
    ("punycode", b"cat", ""),
    ("base64", b"cat", "base64"),
    ("rot13", b"cat", "rot13"),
    ("utf-16", b"cat", ""),
    ("utf-8", b"\xc3", ""),
]


@pytest.mark.parametrize(("encoding", "name", "word"), UNKNOWN)
def test_an_encoding_that_is_not_known_or_wrong_costs_its_row(encoding: str, name: bytes, word: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    fault = voc_lists(XML.format(head=head, name="@").encode().replace(b"@", name), {})
    assert isinstance(fault, Fault)
    assert fault.reason == "malformed_row"
    assert word in fault.message


def test_what_is_declared_does_not_lift_a_bound() -> None:
    """The document type of an entity bomb, in an encoding that expat does not know."""
    bomb = '<?xml version="1.0" encoding="GBK"?><!DOCTYPE a [<!ENTITY b "bb">]><annotation>&b;</annotation>'
    fault = voc_lists(bomb.encode("gbk"), {})
    assert isinstance(fault, Fault)
    assert "document type" in fault.message


@pytest.mark.parametrize(("names", "expected"), [({"0": "cat", "1": "dog"}, ["dog", "cat"]), ({}, ["1", "0"])])
def test_a_class_of_yolo_that_is_written_as_a_float(names: dict[str, str], expected: list[str]) -> None:
    lists = yolo_lists(b"1.0 0.5 0.5 0.2 0.2\n0. 0.5 0.5 0.2 0.2\n", names)
    assert not isinstance(lists, Fault), lists
    assert lists["categories"] == expected


@pytest.mark.parametrize("names", [{"1": "dog"}, {}])
def test_a_class_of_yolo_between_two_names_its_line(names: dict[str, str]) -> None:
    fault = yolo_lists(b"1.0 0.5 0.5 0.2 0.2\n1.5 0.5 0.5 0.2 0.2\n", names)
    assert isinstance(fault, Fault)
    assert "line 2" in fault.message
    assert "1.5" in fault.message


def test_a_list_of_images_that_windows_wrote() -> None:
    assert "images/train/9.jpg" in ImageList([r".\images\train\9.jpg"])
    assert "images/val/9.jpg" not in ImageList([r".\images\train\9.jpg"])


def test_an_id_beyond_64_bits_is_an_id(tmp_path: Path) -> None:
    text = json.dumps({"images": [image(1 << 70)], "annotations": [box(1, 1 << 70, 1)], "categories": [CAT]})
    published.write(tmp_path / "a.json", text)
    found = read(reader_of(AnnotatedImages(format="coco", path=f"{tmp_path}/a.json")), {"categories": NAMES})
    assert found.rows == [{"categories": ["cat"]}]
    assert FILES.match(f"{tmp_path}/a.json")
