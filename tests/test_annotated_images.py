"""Annotated images in published formats: what is read of small samples of each, and what damage costs."""

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import json_document as items_of_json
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.annotated_rows import ImageList, image_key
from recordmill.pipeline.sources.formats.json_document import json_items
from recordmill.pipeline.sources.options import AnnotatedImages
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests import published_formats as published
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, Read, read

NUMBERS, NAMES = Column(ColumnType.NUMBER, many=True), Column(ColumnType.CATEGORY, many=True)
BOXES: Columns = {"image": IMAGE, "boxes": Column(ColumnType.NUMBER, many=True, multiple=4), "categories": NAMES}
COCO: Columns = {**BOXES, "id": CATEGORY, "crowd": NUMBERS, "captions": Column(ColumnType.TEXT, many=True)}
Change = Callable[[Path], None]
SIZED = f"z{published.WIDTH} x {published.HEIGHT}:".encode()


def source_of(folder: Path, options: dict[str, Any]) -> SourceReader[Any]:
    paths = {name: str(folder / path) for name, path in options.items() if name != "format"}
    return reader_of(AnnotatedImages(format=options["format"], **paths))


def taken(folder: Path, columns: Columns = BOXES, chunk_bytes: int = 1 << 20, **options: Any) -> Read:
    return read(source_of(folder, options), columns, chunk_bytes)


def changed(folder: Path, form: str, change: Change) -> Read:
    """Reads a sample of which something was changed."""
    make, options = MAKE[form]
    make(folder)
    change(folder)
    return taken(folder, **options)


COCO_OPTIONS = {"format": "coco", "path": "annotations/*_train2017.json", "images": "train2017"}
YOLO_OPTIONS = {"format": "yolo", "path": "labels/train", "images": "images/train", "names": "data.yaml"}
ROBOFLOW_OPTIONS = {"format": "yolo", "path": "train", "names": "data.yaml"}
VOC_OPTIONS = {"format": "voc", "path": ".", "image_list": "ImageSets/Main/train.txt"}
OPEN_OPTIONS = {"format": "open_images", "path": "train-annotations-bbox.csv", "images": "train"}
OPEN_OPTIONS["names"] = "class-descriptions-boxable.csv"
SAMPLES = [
    (published.write_coco, COCO_OPTIONS,
     (SIZED + b"000000000001.jpg", [2.5, 4, 20.25, 16, 3.5, 4, 20.25, 16], ["cat", "toothbrush"]),
     (SIZED + b"000000000004.jpg", [], [])),
    (published.write_voc, VOC_OPTIONS, (SIZED + b"JPEGImages/2008_000000.jpg", [8, 12, 40, 44], ["person"]),
     (SIZED + b"JPEGImages/2008_000001.jpg", [8, 12, 40, 44, 1, 1, 30, 20], ["person", "dog"])),
    (published.write_yolo, YOLO_OPTIONS, (b"f000000.jpg", [], []),
     (b"f000001.jpg", [0.5, 0.5, 0.25, 0.375], ["cat"])),
    (published.write_roboflow, ROBOFLOW_OPTIONS, (b"fimages/train_0_jpg.rf.3f2a0.jpg", [], []),
     (b"fimages/train_10_jpg.rf.3f2a10.jpg", [0.5, 0.5, 0.25, 0.375], ["person"])),
    (published.write_open_images, OPEN_OPTIONS, (b"f00t2607ff5c4e5c.jpg", [], []),
     (b"f01t2607ff5c4e5c.jpg", [0.0125, 0.148438, 0.195312, 0.5875, 0.5, 0, 1, 1], ["Person", "Car"])),
]  # fmt: skip


@pytest.mark.parametrize(("make", "options", "first", "second"), SAMPLES)
def test_published_samples(
    make: Change, options: dict[str, str], first: tuple[Any, ...], second: tuple[Any, ...], tmp_path: Path
) -> None:
    make(tmp_path)
    found = taken(tmp_path, **options)
    assert [tuple(row.values()) for row in found.rows[:2]] == [first, second]
    assert (len(found.rows), found.plan.rows, found.plan.is_exact, found.rejects) == (30, 30, True, [])
    assert len({*found.keys}) == 30
    in_parts = taken(tmp_path, chunk_bytes=20_000, **options)
    assert len(in_parts.plan.chunks) > 3
    assert (in_parts.rows, in_parts.keys) == (found.rows, found.keys)
    path_of = source_of(tmp_path, options).input_path(FILES)
    inputs = {Path(path_of(file.path)).resolve() for file in found.plan.inputs}
    assert {tmp_path.resolve() / value for name, value in options.items() if name in ("names", "image_list")} <= inputs
    assert all(path.is_file() for path in inputs)


def test_flags_captions_and_ids(tmp_path: Path) -> None:
    for form, (make, _) in MAKE.items():
        make(tmp_path / form)
    rows = taken(tmp_path / "coco", COCO, **COCO_OPTIONS).rows
    assert (rows[0]["id"], rows[0]["crowd"]) == ("1", [0, 1])
    assert rows[1]["captions"] == ["a photo of thing 4 by 0", "a photo of thing 4 by 1"]
    flags = taken(tmp_path / "voc", BOXES | {"difficult": NUMBERS, "truncated": NUMBERS}, **VOC_OPTIONS).rows[1]
    assert (flags["difficult"], flags["truncated"]) == ([0, 1], [1, 0])
    asked = BOXES | dict.fromkeys(("occluded", "group", "inside"), NUMBERS)
    flags = taken(tmp_path / "open_images", asked, **OPEN_OPTIONS).rows[1]
    assert (flags["occluded"], flags["group"], flags["inside"]) == ([0, 1], [0, 1], [0, -1])


def edit(path: str, change: Callable[[Any], Any]) -> Change:
    """Changes a JSON file of a sample."""

    def apply(folder: Path) -> None:
        value = json.loads((folder / path).read_text())
        published.write_json(folder / path, change(value) or value)

    return apply


def swap(path: str, old: str, new: str) -> Change:
    """Replaces a piece of a text file, which it holds."""

    def apply(folder: Path) -> None:
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new, 1))

    return apply


def annotation(number: int, **fields: Any) -> Change:
    return edit(INSTANCES, lambda value: value["annotations"][number].update(fields))


def named(file: str | None) -> Change:
    return edit(INSTANCES, lambda value: value["images"][0].update(file_name=file, coco_url=None))


def rename(pattern: str) -> Change:
    """Renames the images: no annotation matches any more."""

    def apply(folder: Path) -> None:
        for path in sorted(folder.glob(pattern)):
            path.rename(path.with_stem(f"x{path.stem}"))

    return apply


def put(path: str, content: str | bytes) -> Change:
    return lambda folder: published.write(folder / path, content)


INSTANCES = "annotations/instances_train2017.json"
XML, TXT, TABLE = "Annotations/2008_000000.xml", "labels/train/000001.txt", "train-annotations-bbox.csv"
BOX = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>"
BOMB = '<!DOCTYPE a [<!ENTITY b "0123456789"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><annotation>&c;</annotation>'
REJECTS = [
    ("coco", annotation(0, bbox=[1, 2, 3]), "malformed_row", ["annotation 10", "`caption`", "`bbox`"]),
    ("coco", annotation(0, bbox=[1, 2, 3, "4"]), "malformed_row", ["annotation 10", "`bbox`"]),
    ("coco", annotation(0, bbox=[1, 2, 3, 10**400]), "malformed_row", ["annotation 10", "`bbox`"]),
    ("coco", annotation(0, iscrowd=7), "malformed_row", ["annotation 10", "`iscrowd`"]),
    ("coco", annotation(0, category_id=91), "malformed_row", ["annotation 10", "`category_id`", "`categories`"]),
    ("coco", annotation(0, bbox=[1, 2, math.nan, 4]), "malformed_row", ["annotation 10", "`bbox`"]),
    ("coco", annotation(0, category_id=[1]), "malformed_row", ["annotation 10", "`category_id`"]),
    ("coco", annotation(0, bbox=[1, 2, 3, math.inf]), "malformed_row", ["annotation 10", "`bbox`"]),
    ("coco", named(None), "malformed_row", ["image 1", "`file_name`"]),
    ("coco", named("../../x.jpg"), "forbidden_path", ["leaves"]),
    ("coco", named("/etc/x.jpg"), "forbidden_path", ["absolute"]),
    ("voc", swap(XML, "</object>", ""), "malformed_row", ["XML", "mismatched tag"]),
    ("voc", swap(XML, "<xmin>8</xmin>", "<xmin>a</xmin>"), "malformed_row", ["object 1", "four numbers", "`bndbox`"]),
    ("voc", swap(XML, "<xmax>40<", "<xmax>4<"), "malformed_row", ["object 1", "one `bndbox`", "max", "min"]),
    ("voc", swap(XML, "<bndbox>", f"{BOX}<bndbox>"), "malformed_row", ["object 1", "one `bndbox`"]),
    ("voc", swap(XML, "<name>person</name>", ""), "malformed_row", ["object 1", "`name`"]),
    ("voc", swap(XML, "<annotation>\n\t<folder>", "<annotations>\n\t<folder>"), "malformed_row", ["mismatched tag"]),
    ("voc", put(XML, BOMB), "malformed_row", ["document type"]),
    ("voc", put(XML, BOMB.encode("utf-16")), "malformed_row", ["document type"]),
    ("voc", put(XML, "<a/>"), "malformed_row", ["outer element", "`annotation`"]),
    ("voc", put(XML, ""), "malformed_row", ["no element found"]),
    ("yolo", swap(TXT, "1 0.5", "2 0.5"), "malformed_row", ["line 1", "class 2", "`names`"]),
    ("yolo", swap(TXT, "1 0.5", "0.5 0.5"), "malformed_row", ["class 0.5", "whole number"]),
    ("yolo", swap(TXT, "0.375", "0.375 0.5"), "malformed_row", ["polygon", "found 6", "key points"]),
    ("yolo", swap(TXT, "0.375", "0.375 0.5 2"), "malformed_row", ["line 1", "0 to 1"]),
    ("yolo", swap(TXT, "0.375", "x"), "malformed_row", ["line 1", "numbers"]),
    ("yolo", swap(TXT, "0.375", "180"), "malformed_row", ["line 1", "0 to 1"]),
    ("yolo", swap(TXT, "0.375", "nan"), "malformed_row", ["line 1", "0 to 1"]),
    ("open_images", swap(TABLE, "/m/0k4j", "/m/other"), "malformed_row", ["`LabelName`", "`names`"]),
    ("open_images", swap(TABLE, "0.195312", "wide"), "wrong_type", [f"{TABLE}, line 2", "a number"]),
]
MAKE = {
    "coco": (published.write_coco, COCO_OPTIONS),
    "voc": (published.write_voc, VOC_OPTIONS),
    "yolo": (published.write_yolo, YOLO_OPTIONS),
    "open_images": (published.write_open_images, OPEN_OPTIONS),
}


@pytest.mark.parametrize(("form", "damage", "reason", "facts"), REJECTS)
def test_a_damaged_annotation_costs_its_row(
    form: str, damage: Change, reason: str, facts: list[str], tmp_path: Path
) -> None:
    found = changed(tmp_path, form, damage)
    (reject,) = found.rejects
    assert reject.reason == reason
    assert_names(reject.message, *facts)
    assert len(found.rows) >= 29


def test_a_reject_says_where(tmp_path: Path) -> None:
    published.write_coco(tmp_path)
    annotation(0, category_id=91)(tmp_path)
    source = source_of(tmp_path, COCO_OPTIONS)
    (chunk,) = source.plan(FILES, BOXES, 1 << 20).chunks
    assert source.locate(chunk, 1) == ("captions_train2017.json", 2)
    published.write_yolo(tmp_path)
    source = source_of(tmp_path, YOLO_OPTIONS)
    (chunk,) = source.plan(FILES, BOXES, 1 << 20).chunks
    assert [source.locate(chunk, row) for row in (0, 1)] == [("000000.jpg", None), ("000001.txt", None)]


LEAVING = [
    ("coco", annotation(0, bbox=[50, 4, 20, 16], iscrowd=0.0), [50, 4, 20, 16], ": 1 (10)"),
    ("coco", annotation(0, bbox=[6, 4, 0, 16]), [6, 4, 0, 16], ": 1 (10)"),
    ("voc", swap(XML, "<xmax>40<", "<xmax>90<"), [8, 12, 90, 44], None),
    ("voc", swap(XML, "<xmax>40<", "<xmax>8<"), [8, 12, 8, 44], None),
    ("yolo", swap(TXT, "0.5 0.5 0.25", "0.9 0.5 0.25"), [0.9, 0.5, 0.25, 0.375], None),
    ("yolo", swap(TXT, "0.5 0.5 0.25", "0.9 0.5 0"), [0.9, 0.5, 0, 0.375], None),
    ("open_images", swap(TABLE, "0.195312", "1.2"), [0.0125, 0.148438, 1.2, 0.5875], ": 1 (01"),
    ("open_images", swap(TABLE, "0.195312", "0.0125"), [0.0125, 0.148438, 0.0125, 0.5875], ": 1 (01"),
]


@pytest.mark.parametrize(("form", "change", "box", "noted"), LEAVING)
def test_a_box_that_leaves_its_image_stays_as_it_is(
    form: str, change: Change, box: list[float], noted: str | None, tmp_path: Path
) -> None:
    """`kind: boxes` cuts it; a plan that reads all boxes has a note."""
    found = changed(tmp_path, form, change)
    assert any(row["boxes"][:4] == box for row in found.rows)
    assert found.rejects == []
    if noted:
        assert_names([note for note in found.plan.notes if "boxes" in note and "area" in note], noted)


SHARES = edit(INSTANCES, lambda value: [each.update(bbox=[0.1, 0.2, 0.3, 1]) for each in value["annotations"]] and None)
NAMESAKES = edit(INSTANCES, lambda value: [each.update(name="cat") for each in value["categories"]] and None)
NOTES = [
    ("coco", SHARES, ["1 pixel", "`unit: relative`", ": 1 (instances_train2017.json)"]),
    ("coco", NAMESAKES, ["categories", "ids", ": 1 (cat)"]),
    ("coco", annotation(0, image_id=555), ["annotations", ": 1 (10)"]),
    ("coco", annotation(0, image_id=None), ["annotations", ": 1 (10)"]),
    ("voc", swap("ImageSets/Main/train.txt", "2008_000000", "2009_1"), ["listed images", ": 1 (2009_1)"]),
    ("voc", lambda folder: (folder / XML).unlink(), ["without an annotation file", ": 1 (JPEG"]),
    ("yolo", lambda folder: (folder / "images/train/000001.jpg").unlink(), ["without an image", ": 1 (000001.txt)"]),
    ("open_images", lambda folder: None, ["boxes of images", ": 3"]),
    ("open_images", swap(TABLE, ",0,0,0\n", ",0,0\n"), ["cells", "header", ": 1"]),
]


@pytest.mark.parametrize(("form", "damage", "facts"), NOTES)
def test_what_belongs_to_no_row_is_counted(form: str, damage: Change, facts: list[str], tmp_path: Path) -> None:
    found = changed(tmp_path, form, damage)
    assert [note for note in found.plan.notes if all(fact in note for fact in facts)], found.plan.notes
    assert found.rejects == []


ERRORS = [
    ("coco", swap(INSTANCES, '"annotations": [', '"annotations": [,'), ["instances_train2017.json", "Expecting value"]),
    ("coco", put(INSTANCES, "[1, 2]"), ["instances_train2017.json", "JSON", "no object"]),
    ("coco", put(INSTANCES, '{"a": ' * 100_000), ["instances_train2017.json", "nested too deeply"]),
    ("coco", put(INSTANCES, b'{"\xff": 1}'), ["instances_train2017.json", "UTF-8"]),
    ("coco", put(INSTANCES, '{"a": ' + "9" * 5_000 + "}"), ["instances_train2017.json", "digits"]),
    ("coco", put(INSTANCES, '{"type": "FeatureCollection"}'), ["instances_train2017.json", "`images`"]),
    ("voc", rename("JPEGImages/*"), ["no image", "annotations"]),
    ("yolo", rename("images/*/*"), ["no annotation", "000001.txt", "x000000.jpg", "`images`"]),
    ("yolo", put("data.yaml", "nc: 3"), ["data.yaml", "no names", "`names`"]),
    ("yolo", put("data.yaml", "kpt_shape: [4]\nnames: [a]"), ["data.yaml", "`kpt_shape`", "[4]", "[17, 3]"]),
    ("yolo", put("data.yaml", "names: [a"), ["data.yaml:1", "YAML"]),
    ("yolo", put("data.yaml", ""), ["data.yaml", "mapping", "`names:`", "nothing"]),
    ("yolo", put("data.yaml", "names: !!python/name:os.system"), ["data.yaml", "`!!python/name:os.system`"]),
    ("open_images", swap(TABLE, "LabelName", "Label"), [TABLE, "'LabelName'"]),
]


@pytest.mark.parametrize(("form", "damage", "facts"), ERRORS)
def test_what_is_no_such_format_is_one_line(form: str, damage: Change, facts: list[str], tmp_path: Path) -> None:
    with raises(SourceError, *facts) as error:
        changed(tmp_path, form, damage)
    assert "\n" not in str(error.value)


def test_files_of_coco_are_joined_by_image(tmp_path: Path) -> None:
    box = published.coco_box
    first = published.coco_instances([1, 2], [box(1, 1, 17, (1, 2, 3, 4)), box(2, 1, 1, (5, 6, 7, 8))])
    again = published.coco_instances([2, 1, 3], [box(2, 1, 1, (5, 6, 7, 8)), box(3, 2, 90, (9, 9, 9, 9))])
    published.write_json(tmp_path / "a/instances.json", first)
    published.write_json(tmp_path / "a/person_keypoints.json", again)
    (tmp_path / "images").mkdir()
    found = taken(tmp_path, BOXES | {"id": CATEGORY}, format="coco", path="a/*.json", images="images")
    rows = [(row["id"], row["categories"]) for row in found.rows]
    assert rows == [("1", ["cat", "person"]), ("2", ["toothbrush"]), ("3", [])]


def test_an_image_that_a_file_lists_twice_is_two_rows_of_one_key(tmp_path: Path) -> None:
    twice = published.coco_instances([1, 1], [published.coco_box(1, 1, 17, (1, 2, 3, 4))])
    published.write_json(tmp_path / "a.json", twice)
    found = taken(tmp_path, format="coco", path="a.json")
    assert [row["categories"] for row in found.rows] == [["cat"], []]
    assert len({*found.keys}) == 1


def test_without_images_paths_are_relative_to_the_json(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        one = published.coco_instances([1], [published.coco_box(1, 1, 17, (1, 2, 3, 4))])
        published.write_json(tmp_path / split / "_annotations.coco.json", one)
    found = taken(tmp_path, format="coco", path="*/_annotations.coco.json")
    images = [row["image"] for row in found.rows]
    assert images == [SIZED + b"train/000000000001.jpg", SIZED + b"valid/000000000001.jpg"]


PAIRS = [
    ("coco128/images/train2017/9.jpg", "coco128/labels/train2017/9.txt"),
    ("train/images/9.rf.1.jpg", "train/labels/9.rf.1.txt"),
    ("JPEGImages/9.jpg", "Annotations/9.xml"),
    ("Data/CLS-LOC/train/n01/9.JPEG", "Annotations/CLS-LOC/train/n01/9.xml"),
    ("street/9.png", "street/9.xml"),
]


@pytest.mark.parametrize(("image", "annotation"), PAIRS)
def test_images_and_annotations_find_each_other(image: str, annotation: str) -> None:
    assert image_key(image) == image_key(annotation)
    assert image_key(image) != image_key(annotation.replace("9", "8"))


LISTED = [
    (["9"], "JPEGImages/9.jpg", True),
    (["9 -1"], "JPEGImages/9.jpg", True),
    (["./images/train/9.jpg"], "images/train/9.jpg", True),
    (["./images/train/9.jpg"], "images/val/9.jpg", False),
    (["n01/n01_9 12"], "Data/train/n01/n01_9.JPEG", True),
    (["2008.01"], "JPEGImages/2008.01.jpg", True),
    (["2008.01"], "JPEGImages/2008.jpg", False),
    ([r".\images\train\9.jpg"], "images/train/9.jpg", True),
    ([r".\images\train\9.jpg"], "images/val/9.jpg", False),
    ([""], "9.jpg", False),
    (None, "9.jpg", True),
]


@pytest.mark.parametrize(("lines", "image", "is_listed"), LISTED)
def test_lists_of_images(lines: list[str] | None, image: str, is_listed: bool) -> None:
    assert (image in ImageList(lines)) is is_listed


@pytest.mark.parametrize(
    ("name", "text", "category"),
    [
        ("classes.txt", "person\nno\n", "no"),
        ("obj.names", "person\r\nno", "no"),
        ("data.yaml", "names: [person, no]", "no"),
        ("data.yml", "names: {0: person, 1: no}", "no"),
        ("data.yaml", "nc: 2\nnames:\n- person\n- 1e3", "1e3"),
        ("classes.csv", "0,person\n1,no\n", "no"),
        (None, "", "1"),
    ],
)
def test_names_of_classes(name: str | None, text: str, category: str, tmp_path: Path) -> None:
    published.write(tmp_path / "1.jpg", published.jpeg())
    published.write(tmp_path / "1.txt", "1 0.5 0.5 1 1")
    published.write(tmp_path / (name or "x"), text)
    options = {"format": "yolo", "path": ".", **({"names": name} if name else {})}
    assert [row["categories"] for row in taken(tmp_path, **options).rows] == [[category]]


def test_names_belong_to_some_formats_alone() -> None:
    with raises(SpecError, "`names`", "`voc`"):
        parse_spec("name: a\nsource: {format: voc, path: a, names: b.txt}\nfeatures: {boxes: {kind: numbers}}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=3), JSON, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]))
def test_items_of_json_are_those_of_the_whole(value: dict[str, Any], size: int, indent: int | None) -> None:
    expected = [(key, item) for key, items in value.items() if isinstance(items, list) for item in items]
    with constants(items_of_json, READ_BYTES=size):
        assert list(json_items(io.BytesIO(json.dumps(value, indent=indent).encode()))) == expected


def test_a_table_of_open_images_without_a_box(tmp_path: Path) -> None:
    published.write_open_images(tmp_path)
    header = (tmp_path / TABLE).read_text().partition("\n")[0]
    (tmp_path / TABLE).write_text(f"{header}\n")
    assert [row["boxes"] for row in taken(tmp_path, **OPEN_OPTIONS).rows] == [[]] * 30
