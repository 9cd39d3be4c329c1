"""LabelMe's JSON: its polygons, rectangles and circles, what is left out, and images that only the JSON holds."""

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.options import AnnotatedImages
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests import published_formats as published
from tests.messages import assert_names, raises
from tests.tables import IMAGE, Read, read

NAMES = Column(ColumnType.CATEGORY, many=True)
COLUMNS: Columns = {
    "image": IMAGE,
    "boxes": Column(ColumnType.NUMBER, many=True, multiple=4),
    "categories": NAMES,
    "shapes": Column(ColumnType.OBJECTS),
}
TRIANGLE = [[1, 2], [9, 2], [9, 8.5]]


def shape(label: Any, points: Any, **others: Any) -> dict[str, Any]:
    """As LabelMe 5 writes it."""
    return {"label": label, "points": points, "group_id": None, "shape_type": "polygon", "flags": {}} | others


def document(name: str, *shapes: Any, **others: Any) -> dict[str, Any]:
    sides = {"imageHeight": published.HEIGHT, "imageWidth": published.WIDTH}
    given = {"version": "5.4.1", "flags": {}, "shapes": list(shapes), "imagePath": name, "imageData": None}
    return {**given, **sides, **others}


def labelled(folder: Path, documents: dict[str, Any], columns: Columns = COLUMNS, **options: str) -> Read:
    """Reads documents, by their file's path without ending, beside an image of that name."""
    for name, value in documents.items():
        published.write(folder / f"{name}.jpg", published.jpeg())
        published.write_json(folder / f"{name}.json", value)
    return read(reader_of(AnnotatedImages(format="labelme", path=str(folder), **options)), columns)


def one(folder: Path, *shapes: Any, **others: Any) -> Read:
    return labelled(folder, {"1": document("1.jpg", *shapes, **others)})


def test_polygons_rectangles_and_circles(tmp_path: Path) -> None:
    shapes = [shape("dog", TRIANGLE), shape("cat", [[20, 30], [10, 5]], shape_type="rectangle")]
    (row,) = one(tmp_path, *shapes).rows
    assert row["image"] == b"z64 x 48:1.jpg"
    assert (row["boxes"], row["categories"]) == ([1, 2, 9, 8.5, 10, 5, 20, 30], ["dog", "cat"])
    assert json.loads(row["shapes"]) == [
        {"name": "dog", "crowd": 0, "polygons": [[1, 2, 9, 2, 9, 8.5]]},
        {"name": "cat", "crowd": 0, "polygons": [[10, 5, 20, 5, 20, 30, 10, 30]]},
    ]
    (row,) = one(tmp_path, shape("ball", [[20, 20], [23, 24]], shape_type="circle")).rows
    assert row["boxes"] == pytest.approx([15, 15, 25, 25])
    assert len(json.loads(row["shapes"])[0]["polygons"][0]) == 2 * 64  # `test_via.py` has where they lie


def test_the_parts_of_a_group_are_one_object(tmp_path: Path) -> None:
    far = [[x + 20, y] for x, y in TRIANGLE]
    shapes = [shape("dog", TRIANGLE, group_id=7), shape("cat", TRIANGLE, group_id=7), shape("dog", far, group_id=7)]
    (row,) = one(tmp_path, *shapes).rows
    assert (row["boxes"], row["categories"]) == ([1, 2, 29, 8.5, 1, 2, 9, 8.5], ["dog", "cat"])
    assert [len(each["polygons"]) for each in json.loads(row["shapes"])] == [2, 1]


def test_what_has_no_area_is_counted_by_its_kind(tmp_path: Path) -> None:
    others = [shape("dog", [[1, 2]], shape_type=kind) for kind in ("point", "line", "point", "linestrip", "mask")]
    found = one(tmp_path, *others, shape("dog", TRIANGLE, shape_type=None))
    assert found.rows[0]["categories"] == ["dog"]
    (noted,) = (each for each in found.plan.notes if "point" in each)
    assert_names(noted, "point 2", "line 1", "linestrip 1", "mask 1")


REJECTS = [
    (document("1.jpg", shape("dog", TRIANGLE), shape("dog", [[1, 2], [3, 4]])), ["region 2", "three corners", "4"]),
    (document("1.jpg", shape("dog", [[1, 2], [3, 4], [5, math.nan]])), ["region 1", "finite"]),
    (document("1.jpg", shape("dog", [[1, 2], [3, 4], [5, "6"]])), ["region 1", "finite"]),
    (document("1.jpg", shape("", TRIANGLE)), ["region 1", "class"]),
    (document("1.jpg", shape(None, TRIANGLE)), ["region 1", "class"]),
    (document("1.jpg", shape("dog", None)), ["region 1"]),
    (document("1.jpg", "dog"), ["region 1", "labelme"]),
    (document("1.jpg", shape("dog", [[1, 2]], shape_type="circle")), ["region 1"]),
    (document("1.jpg", shape("dog", [], shape_type="rectangle")), ["region 1"]),
    ({"shapes": []}, ["labelme"]),
    ({"imagePath": 7, "shapes": []}, ["labelme"]),
    ([1], ["JSON object"]),
]


@pytest.mark.parametrize(("value", "facts"), REJECTS)
def test_a_wrong_file_costs_its_row(value: Any, facts: list[str], tmp_path: Path) -> None:
    found = labelled(tmp_path, {"1": value, "2": document("2.jpg")})
    ((reason, _, message),) = found.faults
    assert reason == "malformed_row"
    assert_names(message, *facts)
    assert [row["categories"] for row in found.rows] == [[]]


def test_an_image_that_is_missing_comes_from_the_file(tmp_path: Path) -> None:
    data = published.jpeg(9)
    here = document("a.jpg", imageData=base64.b64encode(b"another").decode())
    gone = document("gone.jpg", shape("dog", TRIANGLE), imageData=base64.b64encode(data).decode())
    found = labelled(tmp_path, {"a": here, "b": gone})
    assert [parse(row["image"]).data for row in found.rows] == [None, data]
    assert found.keys == [b"a.jpg", b"gone.jpg"]
    assert any("`imageData`" in each and ": 1 (gone.jpg)" in each for each in found.plan.notes)
    assert any("without annotations" in each and ": 1 (b.jpg)" in each for each in found.plan.notes)


PLACES = [
    ("labels/1.json", "../images/1.jpg", {"images": "images"}, "1.jpg"),
    ("labels/1.json", "..\\images\\1.jpg", {"images": "images"}, "1.jpg"),
    ("labels/1.json", "C:\\Users\\me\\1.jpg", {"images": "images"}, "1.jpg"),
    ("labels/a/1.json", "1.jpg", {"images": "images"}, "1.jpg"),
    ("images/1.json", "1.jpg", {}, "1.jpg"),
]


@pytest.mark.parametrize(("file", "said", "options", "expected"), PLACES)
def test_an_image_is_found(file: str, said: str, options: dict[str, str], expected: str, tmp_path: Path) -> None:
    published.write(tmp_path / "images/1.jpg", published.jpeg())
    published.write_json(tmp_path / file, document(said))
    paths = {name: str(tmp_path / path) for name, path in options.items()}
    source = AnnotatedImages(format="labelme", path=str(tmp_path / file.split("/", maxsplit=1)[0]), **paths)
    assert read(reader_of(source), {"image": IMAGE}).rows == [{"image": b"f" + expected.encode()}]


def test_an_absolute_path_outside_is_refused(tmp_path: Path) -> None:
    ((reason, column, _),) = one(tmp_path, imagePath="/etc/passwd.jpg").faults
    assert (reason, column) == ("forbidden_path", "image")


def test_names_and_attributes_are_not_for_it(tmp_path: Path) -> None:
    for option in ("names", "attribute"):
        with raises(ValueError, f"`{option}`", "labelme"):
            AnnotatedImages(format="labelme", path=".", **{option: "a"})


def test_a_folder_without_a_file_is_refused(tmp_path: Path) -> None:
    with raises(SourceError, str(tmp_path), ".json"):
        labelled(tmp_path, {})
