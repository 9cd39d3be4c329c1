"""Shapes and key points of COCO's JSON and YOLO's text, against plain Python on what was written."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.annotated_images import yolo_lists
from recordmill.pipeline.sources.formats.coco import CocoImage
from recordmill.pipeline.sources.options import AnnotatedImages
from recordmill.pipeline.sources.source_reader import SourceError
from tests import published_formats as published
from tests.messages import assert_names, raises
from tests.tables import FILES, IMAGE, Read, read
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


def test_polygons_without_a_box_are_an_object(tmp_path: Path) -> None:
    (row,) = coco(tmp_path, [box(1, bbox=None, segmentation=[TRIANGLE]), box(2, 2)]).rows
    assert row["boxes"] == BOX * 2
    assert [each["polygons"] for each in json.loads(row["shapes"])] == [[TRIANGLE], []]


def test_objects_without_key_points_have_zeros(tmp_path: Path) -> None:
    (row,) = coco(tmp_path, [box(1), box(2, 2, keypoints=EYES, num_keypoints=2), box(3, 2, keypoints=[])]).rows
    assert row["keypoints"] == [0] * 6 + EYES + [0] * 6
    (row,) = coco(tmp_path, [box(1)]).rows
    assert row["keypoints"] == [0] * 6


def test_the_number_of_key_points_is_that_of_an_annotation_without_names(tmp_path: Path) -> None:
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
    ((reason, _, message),) = found.faults
    assert reason == "malformed_row"
    assert_names(message, *facts)
    boxes = coco(tmp_path, [box(6), box(7, **fields), box(8)], columns={"boxes": NUMBERS})
    assert [len(row["boxes"]) for row in boxes.rows] == [12]


TWO_FILES = [
    ({"segmentation": [TRIANGLE]}, {"segmentation": [[float(each) for each in TRIANGLE]]}, 1),
    ({"segmentation": [TRIANGLE]}, {"segmentation": [TRIANGLE[2:] + TRIANGLE[:2]]}, 2),
    ({"segmentation": rle(RUNS)}, {"segmentation": rle(RUNS)}, 1),
    ({"keypoints": EYES}, {"keypoints": [3.0, 4.0, 2.0, 5.5, 4.0, 1.0]}, 1),
    ({"keypoints": EYES}, {"keypoints": [0] * 6}, 2),
]


@pytest.mark.parametrize(("first", "second", "count"), TWO_FILES)
def test_an_annotation_of_two_files(first: Any, second: Any, count: int, tmp_path: Path) -> None:
    (row,) = coco(tmp_path, [box(0, **first)], [box(0, **second)]).rows
    assert len(json.loads(row["shapes"])) == len(row["categories"]) == len(row["keypoints"]) // 6 == count


def test_columns_that_are_there_are_named(tmp_path: Path) -> None:
    names = [coco(tmp_path, [box(1, 2, **fields)], columns={}).plan.names
             for fields in ({}, {"segmentation": [TRIANGLE]}, {"keypoints": EYES})]  # fmt: skip
    assert [{"shapes", "keypoints"} & {*each} for each in names] == [set(), {"shapes"}, {"keypoints"}]


def test_what_is_not_asked_is_not_held(tmp_path: Path) -> None:
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
    fault = yolo_lists(text, {}, points)
    assert isinstance(fault, Fault)
    assert fault.reason == "malformed_row"
    assert_names(fault.message, *facts)


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
