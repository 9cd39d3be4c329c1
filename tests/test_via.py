"""VGG Image Annotator's JSON of version 2 (and 1): a project or an export, with the class in an attribute."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.annotated_rows import _ellipse
from recordmill.pipeline.sources.options import AnnotatedImages
from tests import published_formats as published
from tests.messages import assert_names, raises
from tests.tables import FILES, Read, read
from tests.test_labelme import COLUMNS

SHAPES: list[tuple[dict[str, Any], list[float]]] = [
    ({"name": "polygon", "all_points_x": [1, 9, 9], "all_points_y": [2, 2, 8.5]}, [1, 2, 9, 8.5]),
    ({"name": "rect", "x": 3, "y": 4, "width": 10, "height": 20}, [3, 4, 13, 24]),
    ({"name": "circle", "cx": 20, "cy": 20, "r": 5.5}, [14.5, 14.5, 25.5, 25.5]),
    ({"name": "ellipse", "cx": 20, "cy": 20, "rx": 9, "ry": 4}, [11, 16, 29, 24]),
    ({"name": "ellipse", "cx": 20, "cy": 20, "rx": 9, "ry": 4, "theta": math.pi / 2}, [16, 11, 24, 29]),
]
POLYGON = SHAPES[0][0]


def region(shape: Any = POLYGON, **attributes: Any) -> dict[str, Any]:
    return {"shape_attributes": shape, "region_attributes": attributes}


def entry(name: Any, *regions: Any) -> dict[str, Any]:
    return {"filename": name, "size": 1234, "regions": list(regions), "file_attributes": {}}


def export(*entries: dict[str, Any]) -> dict[str, Any]:
    return {f"{each.get('filename')}{each.get('size')}": each for each in entries}


def project(*entries: dict[str, Any]) -> dict[str, Any]:
    names = [f"{each['filename']}1234" for each in entries]
    listed = {"_via_img_metadata": export(*entries), "_via_image_id_list": names}
    settings = {"ui": {}, "core": {}, "project": {"name": "a"}}
    about = {"_via_attributes": {"region": {}, "file": {}}, "_via_data_format_version": "2.0.10"}
    return {"_via_settings": settings, **listed, **about}


def annotated(folder: Path, *documents: Any, **options: str) -> Read:
    for name in ("1", "2"):
        published.write(folder / f"{name}.jpg", published.jpeg())
    for number, document in enumerate(documents):
        published.write_json(folder / f"via{number}.json", document)
    return read(reader_of(AnnotatedImages(format="via", path=str(folder), **options)), COLUMNS)


@pytest.mark.parametrize("form", [export, project])
def test_each_image_is_a_row(form: Any, tmp_path: Path) -> None:
    found = annotated(tmp_path, form(entry("2.jpg", region(kind="dog"), region(kind="cat")), entry("1.jpg")))
    assert [(row["image"], row["categories"]) for row in found.rows] == [(b"f2.jpg", ["dog", "cat"]), (b"f1.jpg", [])]
    assert json.loads(found.rows[0]["shapes"]) == [
        {"name": name, "crowd": 0, "polygons": [[1, 2, 9, 2, 9, 8.5]]} for name in ("dog", "cat")
    ]


@pytest.mark.parametrize(("shape", "box"), SHAPES)
def test_a_shape_has_its_box(shape: dict[str, Any], box: list[float], tmp_path: Path) -> None:
    (row,) = annotated(tmp_path, export(entry("1.jpg", region(shape, kind="dog")))).rows
    assert row["boxes"] == pytest.approx(box)
    (polygon,) = json.loads(row["shapes"])[0]["polygons"]
    assert [min(polygon[::2]), min(polygon[1::2]), max(polygon[::2]), max(polygon[1::2])] == row["boxes"]


@given(st.floats(1, 100), st.floats(1, 100), st.floats(0, 7))
def test_the_corners_of_an_ellipse_lie_on_it(across: float, down: float, turn: float) -> None:
    polygon = _ellipse(300, 200, across, down, turn)
    for x, y in zip(polygon[::2], polygon[1::2], strict=True):
        u = (x - 300) * math.cos(turn) + (y - 200) * math.sin(turn)
        v = (y - 200) * math.cos(turn) - (x - 300) * math.sin(turn)
        assert (u / across) ** 2 + (v / down) ** 2 == pytest.approx(1, abs=1e-6)


def test_regions_of_version_1_are_in_an_object(tmp_path: Path) -> None:
    one = entry("1.jpg") | {"regions": {"0": region(name="balloon"), "1": region(name="kite")}}
    (row,) = annotated(tmp_path, export(one)).rows
    assert row["categories"] == ["balloon", "kite"]


CLASSES: list[tuple[list[dict[str, Any]], dict[str, str], list[str]]] = [
    ([{"kind": "dog"}], {}, ["dog"]),
    ([{"kind": {"dog": True, "cat": False}}], {}, ["dog"]),
    ([{"kind": "dog", "age": "7"}], {"attribute": "kind"}, ["dog"]),
    ([{}, {}], {}, ["object", "object"]),
]


@pytest.mark.parametrize(("attributes", "options", "expected"), CLASSES)
def test_an_attribute_is_the_class(attributes: Any, options: Any, expected: list[str], tmp_path: Path) -> None:
    document = export(entry("1.jpg", *(region(**each) for each in attributes)))
    assert annotated(tmp_path, document, **options).rows[0]["categories"] == expected


def test_several_attributes_need_the_option(tmp_path: Path) -> None:
    with raises(SourceError, "via0.json", "kind", "age", "`attribute: NAME`"):
        annotated(tmp_path, export(entry("1.jpg", region(kind="dog")), entry("2.jpg", region(age="7"))))


REJECTS = [
    (region(POLYGON | {"all_points_x": [1, 2], "all_points_y": [1, 2]}, kind="dog"), ["region 2", "4 numbers"]),
    (region({"name": "polygon", "all_points_x": [1, 2, 3], "all_points_y": [1, 2]}, kind="dog"), ["region 2", "via"]),
    (region({"name": "rect", "x": 3, "y": 4, "width": "10", "height": 2}, kind="dog"), ["region 2", "finite"]),
    (region({"name": "circle", "cx": 3, "cy": 4}, kind="dog"), ["region 2"]),
    (region(), ["region 2"]),
    (region(kind=""), ["region 2", "class"]),
    (region(kind={"dog": True, "cat": True}), ["region 2"]),
    ({"region_attributes": {"kind": "dog"}}, ["region 2"]),
]


@pytest.mark.parametrize(("wrong", "facts"), REJECTS)
def test_a_wrong_region_costs_its_row(wrong: Any, facts: list[str], tmp_path: Path) -> None:
    found = annotated(tmp_path, export(entry("1.jpg", region(kind="dog"), wrong), entry("2.jpg")))
    ((reason, _, message),) = found.faults
    assert reason == "malformed_row"
    assert_names(message, *facts)
    assert [row["categories"] for row in found.rows] == [[]]


@pytest.mark.parametrize("document", [[1], {"a": 1}, export(entry(7)), {"a": {"filename": "1.jpg"}}, {"project": {}}])
def test_another_json_ends_the_plan(document: Any, tmp_path: Path) -> None:
    with raises(SourceError, "via0.json"):
        annotated(tmp_path, document)


def test_a_reject_says_where(tmp_path: Path) -> None:
    source = AnnotatedImages(format="via", path=str(tmp_path / "via0.json"))
    annotated(tmp_path, export(entry("1.jpg"), entry("2.jpg")))
    (chunk,) = reader_of(source).plan(FILES, COLUMNS, 1 << 20).chunks
    assert [reader_of(source).locate(chunk, row) for row in (0, 1)] == [("via0.json", 1), ("via0.json", 2)]
