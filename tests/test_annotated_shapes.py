"""Shapes, key points and dialects of COCO, VOC and YOLO, against plain Python on what was written."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources.faults import Fault, SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.annotated_rows import voc_lists, yolo_lists
from recordmill.pipeline.sources.formats.coco import CocoImage
from recordmill.pipeline.sources.options import AnnotatedImages
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests import published_formats as published
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, Read, read
from tests.test_shapes import encode

NUMBERS, NAMES = Column(ColumnType.NUMBER, many=True), Column(ColumnType.CATEGORY, many=True)
COLUMNS: Columns = {
    "boxes": NUMBERS,
    "categories": NAMES,
    "crowd": NUMBERS,
    "shapes": Column(ColumnType.OBJECTS, optional=True),
    "keypoints": Column(ColumnType.NUMBER, many=True, optional=True),
}
SKELETON = ["nose", "left_eye"]
CATEGORIES = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog", "keypoints": SKELETON, "skeleton": [[1, 2]]}]
TRIANGLE, SQUARE = [1, 2, 9, 2, 9, 8.5], [20, 20, 30, 20, 30, 30, 20, 30]
BOX = [1, 2, 8, 6.5]
RUNS = [100, 20, 30, 4850]
EYES = [3, 4, 2, 5.5, 4, 1]


def box(known: Any, category: int = 1, **fields: Any) -> dict[str, Any]:
    return {"id": known, "image_id": 1, "category_id": category, "bbox": BOX} | fields


def rle(counts: Any, size: Any = (50, 100)) -> dict[str, Any]:
    return {"size": size, "counts": counts}


def assert_malformed(fault: Any, *facts: str) -> None:
    assert fault.reason == "malformed_row"
    assert_names(fault.message, *facts)


def coco(folder: Path, *files: list[dict[str, Any]], columns: Columns = COLUMNS, **others: Any) -> Read:
    """Reads files of one image's annotations."""
    image = {"id": 1, "file_name": "1.jpg", "width": 100, "height": 50}
    for number, annotations in enumerate(files):
        one = {"images": [image], "annotations": annotations, "categories": CATEGORIES} | others
        published.write_json(folder / f"{number}.json", one)
    return read(reader_of(AnnotatedImages(format="coco", path=f"{folder}/*.json")), columns)


SEGMENTATIONS = [
    ([TRIANGLE], {"polygons": [TRIANGLE]}),
    ([TRIANGLE, SQUARE], {"polygons": [TRIANGLE, SQUARE]}),
    (rle(RUNS), {"rle": {"size": [50, 100], "counts": RUNS}}),
    (rle(encode(RUNS)), {"rle": {"size": [50, 100], "counts": encode(RUNS)}}),
    ([], {"polygons": []}),
    (None, {"polygons": []}),
]


@pytest.mark.parametrize(("segmentation", "expected"), SEGMENTATIONS)
def test_a_segmentation_is_a_shape(segmentation: Any, expected: dict[str, Any], tmp_path: Path) -> None:
    (row,) = coco(tmp_path, [box(3, 2, segmentation=segmentation, iscrowd=1), box(4, segmentation=[SQUARE])]).rows
    second = {"name": "cat", "crowd": 0, "polygons": [SQUARE]}
    assert json.loads(row["shapes"]) == [{"name": "dog", "crowd": 1, **expected}, second]
    assert (row["categories"], row["crowd"], row["boxes"]) == (["dog", "cat"], [1, 0], BOX * 2)


def test_objects_without_key_points_have_zeros(tmp_path: Path) -> None:
    (row,) = coco(tmp_path, [box(1), box(2, 2, keypoints=EYES, num_keypoints=2), box(3, 2, keypoints=[])]).rows
    assert row["keypoints"] == [0] * 6 + EYES + [0] * 6
    (row,) = coco(tmp_path, [box(1)]).rows
    assert row["keypoints"] == [0] * 6
    plain = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    (row,) = coco(tmp_path, [box(1), box(2, 2, keypoints=EYES * 2)], categories=plain).rows
    assert row["keypoints"] == [0] * 12 + EYES * 2


REJECTS = [
    ({"segmentation": [TRIANGLE, [1, 2, 3, 4, 5]]}, ["annotation 7", "polygon", "5 numbers"]),
    ({"segmentation": [[1, 2, 3, 4]]}, ["annotation 7", "three corners", "4 numbers"]),
    ({"segmentation": [[]]}, ["annotation 7", "0 numbers"]),
    ({"segmentation": [[1, 2, 3, 4, 5, float("inf")]]}, ["annotation 7", "finite"]),
    ({"segmentation": [[1, 2, 3, 4, 5, 10**400]]}, ["annotation 7", "finite"]),
    ({"segmentation": [[1, 2, 3, 4, 5, "6"]]}, ["annotation 7", "finite"]),
    ({"segmentation": TRIANGLE}, ["annotation 7", "polygons", "[[x, y"]),
    ({"segmentation": rle([100, 20])}, ["annotation 7", "120 pixels", "50 x 100"]),
    ({"segmentation": rle(encode([100, 20]))}, ["annotation 7", "120 pixels"]),
    ({"segmentation": rle([5010, -10])}, ["annotation 7", "`counts`"]),
    ({"segmentation": rle("\n")}, ["annotation 7", "`counts`"]),
    ({"segmentation": rle([5000.0])}, ["annotation 7", "`counts`"]),
    ({"segmentation": rle(None)}, ["annotation 7", "`counts`"]),
    ({"segmentation": rle([5000], [100, 50])}, ["annotation 7", "100 x 50", "50 x 100"]),
    ({"segmentation": rle([5000], [5000])}, ["annotation 7", "`size`"]),
    ({"segmentation": {"x": 1}}, ["annotation 7", "`size`"]),
    ({"segmentation": "mask.png"}, ["annotation 7"]),
    ({"segmentation": 5}, ["annotation 7", "finite"]),
    ({"keypoints": [1, 2, 2, 3]}, ["annotation 7", "key point", "4 numbers"]),
    ({"keypoints": [1, 2, None]}, ["annotation 7", "finite"]),
    ({"keypoints": EYES * 2}, ["annotation 7", "4 key points", "2"]),
]


@pytest.mark.parametrize(("fields", "facts"), REJECTS)
def test_a_wrong_shape_costs_its_row(fields: dict[str, Any], facts: list[str], tmp_path: Path) -> None:
    found = coco(tmp_path, [box(6), box(7, **fields), box(8)])
    (reject,) = found.rejects
    assert_malformed(reject, *facts)
    boxes = coco(tmp_path, [box(6), box(7, **fields), box(8)], columns={"boxes": NUMBERS})
    assert [len(row["boxes"]) for row in boxes.rows] == [12]


TWO_FILES = [
    ({"segmentation": [TRIANGLE]}, {"segmentation": [[float(each) for each in TRIANGLE]]}, 1),
    ({"segmentation": [TRIANGLE]}, {"segmentation": [TRIANGLE[2:] + TRIANGLE[:2]]}, 2),
    ({"segmentation": rle(RUNS)}, {"segmentation": rle(RUNS)}, 1),
    ({"keypoints": EYES}, {"keypoints": [3.0, 4.0, 2.0, 5.5, 4.0, 1.0]}, 1),
    ({"keypoints": EYES}, {"keypoints": [0] * 6}, 2),
    ({"segmentation": [TRIANGLE]}, {"segmentation": [TRIANGLE], "keypoints": EYES}, 1),
    ({"keypoints": EYES}, {}, 1),
]


@pytest.mark.parametrize(("first", "second", "count"), TWO_FILES)
def test_an_annotation_of_two_files(first: Any, second: Any, count: int, tmp_path: Path) -> None:
    (row,) = coco(tmp_path, [box(0, **first)], [box(0, **second)]).rows
    assert len(json.loads(row["shapes"])) == len(row["categories"]) == len(row["keypoints"]) // 6 == count
    assert row["keypoints"][:6] == (EYES if "keypoints" in first | second else [0] * 6)


def test_columns_that_are_there_are_named_and_held_where_they_are_asked(tmp_path: Path) -> None:
    names = [coco(tmp_path, [box(1, 2, **fields)], columns={}).plan.names
             for fields in ({}, {"segmentation": [TRIANGLE]}, {"keypoints": EYES})]  # fmt: skip
    assert [{"shapes", "keypoints"} & {*each} for each in names] == [set(), {"shapes"}, {"keypoints"}]
    chunks = [coco(tmp_path, [box(1, segmentation=[TRIANGLE * 400])], columns=columns).plan.chunks
              for columns in ({"boxes": NUMBERS}, COLUMNS)]  # fmt: skip
    without, held = (chunk.work.rows[0].annotations for (chunk,) in chunks)
    assert without.keys() & {"shapes", "keypoints"} == set()
    assert len(held["shapes"]) > 10_000


def test_a_picture_has_the_size_of_its_entry_for_shapes(tmp_path: Path) -> None:
    for column in ("shapes", "keypoints", "categories"):
        (row,) = coco(tmp_path, [box(1, 2)], columns={"image": IMAGE, column: COLUMNS[column]}).rows
        assert row["image"] == (b"f1.jpg" if column == "categories" else b"z100 x 50:1.jpg")


FINITE = st.floats(-1e9, 1e9)
POLYGONS = st.lists(st.lists(st.tuples(FINITE, FINITE), min_size=3, max_size=9), min_size=1, max_size=4)


@given(POLYGONS)
def test_polygons_of_any_numbers(polygons: list[list[tuple[float, float]]]) -> None:
    flat = [[each for corner in polygon for each in corner] for polygon in polygons]
    image = CocoImage(1, path="1.jpg")
    image.add({"id": 1, "category_id": 1, "segmentation": flat}, {"shapes"})
    image.name_categories({1: "cat"})
    lists: Any = image.row(0).annotations
    assert json.loads(lists["shapes"]) == [{"name": "cat", "crowd": 0, "polygons": flat}]
    xs, ys = ([corner[side] for polygon in polygons for corner in polygon] for side in (0, 1))
    assert lists["boxes"] == [min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)]


def test_polygons_and_boxes_of_yolo() -> None:
    lists = yolo_lists(b"0 .5 .25 .75 .5 .5 .75\n1 .5 .5 .25 .5\n", {"0": "cat", "1": "dog"})
    assert not isinstance(lists, Fault), lists
    shape = {"crowd": 0, "unit": "relative"}
    assert lists["shapes"] == [
        {"name": "cat", **shape, "polygons": [[0.5, 0.25, 0.75, 0.5, 0.5, 0.75]]},
        {"name": "dog", **shape, "polygons": []},
    ]
    assert lists["boxes"] == [0.625, 0.5, 0.25, 0.5, 0.5, 0.5, 0.25, 0.5]


POSES = [
    ((2, 3), b".1 .2 2 .3 .4 0", [0.1, 0.2, 2, 0.3, 0.4, 0]),
    ((2, 2), b".1 .2 .3 .4", [0.1, 0.2, 2, 0.3, 0.4, 2]),
    ((2, 2), b"", [0] * 6),
]


@pytest.mark.parametrize(("points", "marks", "expected"), POSES)
def test_key_points_of_yolo(points: tuple[int, int], marks: bytes, expected: list[float]) -> None:
    lists = yolo_lists(b"0 .5 .5 .2 .2 " + marks + b"\n1 .5 .5 .4 .4", {}, points)
    assert not isinstance(lists, Fault), lists
    assert lists["keypoints"] == [*expected, *[0] * 6]
    assert lists["boxes"] == [0.5, 0.5, 0.2, 0.2, 0.5, 0.5, 0.4, 0.4]


WRONG = [
    ((2, 3), b"0 .5 .5 .2 .2 .1 .2 2 .3 .4", ["line 1", "2 key points of 3 numbers", "found 10"]),
    ((2, 3), b"0 .5 .5 .2 .2 .1 .2 2 .3 1.4 2", ["line 1", "0 to 1"]),
    ((2, 2), b"0 .5 .5 .2 .2 .1 nan .3 .4", ["line 1", "0 to 1"]),
    (None, b"0 .5 .5 .2 .2 .1 .2 2", ["line 1", "`kpt_shape`", "found 8"]),
    (None, b"0 .5 .5 .2 .2 .1 .2 2 .3 .4 2", ["line 1", "0 to 1", "`kpt_shape`"]),
]


@pytest.mark.parametrize(("points", "text", "facts"), WRONG)
def test_wrong_key_points_of_yolo(points: Any, text: bytes, facts: list[str]) -> None:
    assert_malformed(yolo_lists(text, {}, points), *facts)


def posed(folder: Path, yaml: str, columns: Columns = COLUMNS) -> Read:
    published.write(folder / "1.jpg", published.jpeg())
    published.write(folder / "1.txt", "1 .5 .5 .2 .2 .1 .2 2 .3 .4 0\n")
    published.write(folder / "data.yaml", f"names: [cat, dog]\n{yaml}\n")
    source = AnnotatedImages(format="yolo", path=str(folder), names=str(folder / "data.yaml"))
    return read(reader_of(source), columns)


def test_the_yaml_says_the_form_of_key_points(tmp_path: Path) -> None:
    columns = {name: COLUMNS[name] for name in ("categories", "shapes", "keypoints")}
    (row,) = posed(tmp_path, "kpt_shape: [2, 3]", columns).rows
    assert (row["categories"], row["keypoints"]) == (["dog"], [0.1, 0.2, 2, 0.3, 0.4, 0])
    with raises(SourceError, "'keypoints'"):
        posed(tmp_path, "", {"keypoints": NUMBERS})


@pytest.mark.parametrize("shape", ["[2]", "[2, 4]", "[0, 3]", "2", "[a, 3]", "{a: 1}", "[2, 3, 1]", "[2.0, 3]"])
def test_another_form_of_key_points_ends_the_plan(shape: str, tmp_path: Path) -> None:
    with raises(SourceError, "data.yaml", "`kpt_shape`", "[17, 3]"):
        posed(tmp_path, f"kpt_shape: {shape}")
    assert FILES.match(f"{tmp_path}/data.yaml")


FOURS = Column(ColumnType.NUMBER, many=True, multiple=4)
BOXES: Columns = {"image": IMAGE, "id": CATEGORY, "boxes": FOURS, "categories": NAMES}
CAT, DOG = {"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}
FIRST, SECOND = [1, 2, 10, 10], [40, 2, 10, 10]


def image(known: Any, name: str = "1.jpg") -> dict[str, Any]:
    return {"id": known, "file_name": name, "width": 100, "height": 50}


def box_of(known: Any, image: Any, category: Any, bbox: Any = FIRST, **others: Any) -> dict[str, Any]:
    return {"id": known, "image_id": image, "category_id": category, "bbox": bbox, **others}


def of_files(folder: Path, *files: dict[str, Any], columns: Columns = BOXES) -> Read:
    """Reads files of some images and annotations, of cats and dogs."""
    for number, file in enumerate(files):
        published.write_json(folder / f"{number}.json", {"categories": [CAT, DOG], "images": [image(1)], **file})
    return read(reader_of(AnnotatedImages(format="coco", path=f"{folder}/*.json")), columns)


JOINED: list[tuple[str, Sequence[Any], Sequence[Any], list[str]]] = [
    ("others with an id that repeats", [box_of(0, 1, 1)], [box_of(0, 1, 2, SECOND)], ["cat", "dog"]),
    ("another class", [box_of(0, 1, 1)], [box_of(0, 1, 2)], ["cat", "dog"]),
    ("another box", [box_of(0, 1, 1)], [box_of(0, 1, 1, SECOND)], ["cat", "cat"]),
    ("a crowd", [box_of(0, 1, 1)], [box_of(0, 1, 1, iscrowd=1)], ["cat", "cat"]),
    ("the same", [box_of(0, 1, 1)], [box_of(0, 1, 1)], ["cat"]),
    ("the same, as pandas writes it", [box_of(0, 1, 1)], [box_of(0.0, 1.0, 1.0, [1.0, 2.0, 10.0, 10.0])], ["cat"]),
    ("the same without an id", [box_of(None, 1, 1)], [box_of(None, 1, 1)], ["cat", "cat"]),
]


@pytest.mark.parametrize(("first", "second", "categories"), [case[1:] for case in JOINED], ids=[c[0] for c in JOINED])
def test_a_box_of_two_files(first: Any, second: Any, categories: list[str], tmp_path: Path) -> None:
    found = of_files(tmp_path, {"annotations": first}, {"annotations": second})
    assert [row["categories"] for row in found.rows] == [categories]
    assert len(found.rows[0]["boxes"]) == 4 * len(categories)


def test_a_caption_of_two_files(tmp_path: Path) -> None:
    texts = [("a cat", "a cat"), ("a dog",)]
    files = [{"annotations": [{"id": n, "image_id": 1, "caption": text} for n, text in enumerate(each)]}
             for each in texts]  # fmt: skip
    columns = {"captions": Column(ColumnType.TEXT, many=True)}
    found = of_files(tmp_path, *files, files[0], columns=columns)
    assert found.rows == [{"captions": ["a cat", "a cat", "a dog"]}]


def test_an_annotation_with_a_caption_and_a_box_is_both(tmp_path: Path) -> None:
    columns = BOXES | {"captions": Column(ColumnType.TEXT, many=True)}
    annotations = [box_of(1, 1, 2, caption="a dog"), {"id": 2, "image_id": 1, "caption": "of no class", "bbox": SECOND}]
    (row,) = of_files(tmp_path, {"annotations": annotations}, columns=columns).rows
    assert (row["captions"], row["categories"], row["boxes"]) == (["a dog", "of no class"], ["dog"], FIRST)


IDS: list[tuple[Any, Any, Any]] = [
    (1, 1.0, 2.0), (1.0, 1, 2), (1, "1", "2"), ("1", 1, 2), ("1", 1.0, 2.0), ("a1", "a1", 2),
    (1 << 62, float(1 << 62), 2), (1 << 70, 1 << 70, 2),
]  # fmt: skip


@pytest.mark.parametrize(("listed", "named", "category"), IDS)
def test_an_id_is_the_same_however_it_is_written(listed: Any, named: Any, category: Any, tmp_path: Path) -> None:
    found = of_files(tmp_path, {"images": [image(listed)], "annotations": [box_of(1, named, category)]})
    (row,) = found.rows
    expected = str(int(listed)) if isinstance(listed, float) else str(listed)
    assert (row["id"], row["categories"], row["boxes"]) == (expected, ["dog"], FIRST)
    assert not [note for note in found.plan.notes if "annotations" in note]


@pytest.mark.parametrize("named", [1.5, True, [1], "01", " 1", None])
def test_what_is_no_such_id_is_counted(named: Any, tmp_path: Path) -> None:
    found = of_files(tmp_path, {"annotations": [box_of(7, named, 1), box_of(8, 1, 1)]})
    assert found.rows[0]["categories"] == ["cat"]
    assert any("annotations" in note and ": 1 (7)" in note for note in found.plan.notes)


def test_two_images_or_categories_of_one_id(tmp_path: Path) -> None:
    found = of_files(tmp_path, {"images": [image(5), image(5, "2.jpg")], "annotations": [box_of(1, 5, 1)]})
    assert [row["image"] for row in found.rows] == [b"z100 x 50:1.jpg"]
    (reject,) = found.rejects
    assert_malformed(reject, "`id` 5 ")
    with raises(SourceError, "0.json", "`categories`", "id 1 "):
        of_files(tmp_path, {"categories": [CAT, {"id": 1.0, "name": "dog"}], "annotations": []})


@pytest.mark.parametrize(("width", "start"), [(100.0, "z100 x 50:"), (0, "f"), (None, "f"), ("100", "f"), (1e400, "f")])
def test_a_picture_has_the_size_that_its_entry_states(width: Any, start: str, tmp_path: Path) -> None:
    file = {"images": [image(1) | {"width": width}], "annotations": [box_of(1, 1, 1)]}
    assert of_files(tmp_path, file).rows[0]["image"] == f"{start}1.jpg".encode()
    assert of_files(tmp_path, file, columns={"image": IMAGE}).rows[0]["image"] == b"f1.jpg"


SHAPES: list[tuple[Any, list[float]]] = [
    ([[10, 10, 30, 10, 30, 20]], [10, 10, 20, 10]),
    ([[10.5, 4, 2, 8, 6, 6]], [2, 4, 8.5, 4]),
    ([[1, 1, 5, 1, 5, 5], [20, 30, 40, 30, 40, 45]], [1, 1, 39, 44]),
]


@pytest.mark.parametrize("absent", [{}, {"bbox": []}, {"bbox": None}])
@pytest.mark.parametrize(("polygons", "expected"), SHAPES)
def test_polygons_without_a_box(absent: Any, polygons: Any, expected: list[float], tmp_path: Path) -> None:
    annotation = {key: value for key, value in box_of(3, 1, 2, segmentation=polygons).items() if key != "bbox"}
    found = of_files(tmp_path, {"annotations": [annotation | absent]})
    assert [(row["boxes"], row["categories"]) for row in found.rows] == [(expected, ["dog"])]


NO_SHAPES: list[tuple[Any, str]] = [
    ({"size": [50, 100], "counts": [0, 5000]}, "toBbox"),
    ({"size": [50, 100], "counts": "PPYo0"}, "toBbox"),
    ([[]], "polygons"),
    ([], "polygons"),
    (None, "polygons"),
]


@pytest.mark.parametrize(("segmentation", "word"), NO_SHAPES)
def test_a_segmentation_that_gives_no_box_costs_its_row(segmentation: Any, word: str, tmp_path: Path) -> None:
    found = of_files(tmp_path, {"annotations": [box_of(3, 1, 2, None, segmentation=segmentation)]})
    (reject,) = found.rejects
    assert_malformed(reject, "annotation 3 ", word)


def test_panoptic_annotations_name_their_converter(tmp_path: Path) -> None:
    segments = [{"id": 513, "category_id": 1, "iscrowd": 0, "bbox": [4, 4, 5, 5]}]
    found = of_files(tmp_path, {"annotations": [{"image_id": 1, "file_name": "1.png", "segments_info": segments}]})
    (reject,) = found.rejects
    assert_malformed(reject, "`segments_info`", "`panopticapi`")


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


UNKNOWN = [("x-nonsense", b"cat", "x-nonsense"), ("GBK", b"\xff\xff", "gbk"), ("utf-8", b"\xc3", "")]


@pytest.mark.parametrize(("encoding", "name", "word"), UNKNOWN)
def test_an_encoding_that_is_not_known_or_wrong_costs_its_row(encoding: str, name: bytes, word: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    assert_malformed(voc_lists(XML.format(head=head, name="@").encode().replace(b"@", name), {}), word)


def test_what_is_declared_does_not_lift_a_bound() -> None:
    """The document type of an entity bomb, in an encoding that expat does not know."""
    bomb = '<?xml version="1.0" encoding="GBK"?><!DOCTYPE a [<!ENTITY b "bb">]><annotation>&b;</annotation>'
    assert_malformed(voc_lists(bomb.encode("gbk"), {}), "document type")


@pytest.mark.parametrize(("names", "expected"), [({"0": "cat", "1": "dog"}, ["dog", "cat"]), ({}, ["1", "0"])])
def test_a_class_of_yolo_that_is_written_as_a_float(names: dict[str, str], expected: list[str]) -> None:
    lists = yolo_lists(b"1.0 0.5 0.5 0.2 0.2\n0. 0.5 0.5 0.2 0.2\n", names)
    assert not isinstance(lists, Fault), lists
    assert lists["categories"] == expected
