"""Masks beside images: paired by name by the source `image_folder`, found by `init` with the values as classes."""

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from PIL import Image
from pyarrow import parquet
from pydantic import ValidationError

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.starter import first_lines, starter
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.options import ImageFolder
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.base.columns import Column, ColumnType
from tests import tables
from tests.messages import assert_names, raises
from tests.pictures import saved
from tests.tables import FILES, write, write_jsonl

COLUMNS = {"image": Column(ColumnType.IMAGE), "mask": Column(ColumnType.IMAGE, optional=True)}


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        write(folder / name, b"12345")
    return folder


def paired(folder: Path, chunk_bytes: int = 1 << 23, **beside: str) -> tuple[dict[str, str | None], list[str]]:
    """Returns each image's mask, and the plan's notes."""
    source = tables.source("image_folder", folder, beside=beside)
    plan, found = source.plan(FILES, COLUMNS, chunk_bytes), {}
    for chunk in plan.chunks:
        for block in source.read(chunk, FILES, COLUMNS, None):
            for row in block.table.to_pylist():
                found[parse(row["image"]).path] = row["mask"] and parse(row["mask"]).path
    assert plan.rows == len(found)
    masks = {mask for mask in found.values() if mask}
    assert {file.path for file in plan.inputs} == {*found, *masks}
    assert plan.bytes == 5 * (len(found) + sum(mask is not None for mask in found.values()))
    return found, plan.notes


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 23])
@pytest.mark.parametrize(
    ("pattern", "names", "pairs"),
    [
        ("masks", ["images/1.jpg", "masks/1.png"], {"images/1.jpg": "masks/1.png"}),
        ("masks", ["1.jpg", "masks/1.png"], {"1.jpg": "masks/1.png"}),
        ("masks", ["a/images/1.jpg", "b/images/1.jpg", "a/masks/1.png", "b/masks/1.npy"],
         {"a/images/1.jpg": "a/masks/1.png", "b/images/1.jpg": "b/masks/1.npy"}),
        ("masks", ["images/a/1.jpg", "masks/a/1.tif"], {"images/a/1.jpg": "masks/a/1.tif"}),
        ("truth/masks", ["images/1.jpg", "truth/masks/1.png"], {"images/1.jpg": "truth/masks/1.png"}),
        ("*_mask", ["1.jpg", "1_mask.png", "a/2.png", "a/2_mask.png"],
         {"1.jpg": "1_mask.png", "a/2.png": "a/2_mask.png"}),
        ("mask_*", ["1.jpg", "mask_1.png"], {"1.jpg": "mask_1.png"}),
        ("masks/*_seg0", ["images/1.jpg", "masks/1_seg0.png"], {"images/1.jpg": "masks/1_seg0.png"}),
        ("*_labels/*_L", ["train/1.png", "val/1.png", "train_labels/1_L.png", "val_labels/1_L.png"],
         {"train/1.png": "train_labels/1_L.png", "val/1.png": "val_labels/1_L.png"}),
        ("*annot/*", ["train/1.png", "trainannot/1.png"], {"train/1.png": "trainannot/1.png"}),
    ],
)  # fmt: skip
def test_files_pair_by_name(
    tmp_path: Path, pattern: str, names: list[str], pairs: dict[str, str], chunk_bytes: int
) -> None:
    assert paired(fill(tmp_path, *names), chunk_bytes, mask=pattern) == (pairs, [])


def test_what_pairs_with_nothing_is_counted(tmp_path: Path) -> None:
    found, notes = paired(fill(tmp_path, "images/1.jpg", "images/2.jpg", "masks/2.png", "masks/3.png"), mask="masks")
    assert found == {"images/1.jpg": None, "images/2.jpg": "masks/2.png"}
    assert_names(notes[0], "'mask'", 1)
    assert_names(notes[1], "'mask'", 1, "masks/3.png")
    assert_names(paired(tmp_path, mask="maks")[1][1], "no image", "`maks`, from `path` down, fits 0 files")
    found, notes = paired(fill(tmp_path / "twice", "images/1.jpg", "masks/1.bmp", "masks/1.png"), mask="masks")
    assert found == {"images/1.jpg": "masks/1.bmp"}, "of two files of one name the second is left out"
    assert_names(notes, "masks/1.png")


def test_a_required_mask_is_a_missing_value(tmp_path: Path) -> None:
    source = tables.source("image_folder", fill(tmp_path, "1.jpg"), beside={"mask": "masks"})
    columns = {**COLUMNS, "mask": Column(ColumnType.IMAGE)}
    [chunk] = source.plan(FILES, columns, 1 << 23).chunks
    [block] = source.read(chunk, FILES, columns, None)
    assert [(reject.reason, reject.column) for reject in block.rejects] == [("missing_value", "mask")]


def test_metadata_names_files_itself(tmp_path: Path) -> None:
    fill(tmp_path, "1.jpg", "metadata.csv")
    with raises(SourceError, "metadata.csv", "`beside`"):
        paired(tmp_path, mask="masks")


def test_a_pattern_of_images_leaves_others_out(tmp_path: Path) -> None:
    city = "train/aachen/aachen_000000_000019"
    names = [f"gt/{city}_gt_{each}.png" for each in ("color", "labelIds")]
    beside = {"image": "left/*_left", "mask": "gt/*_gt_labelIds"}
    folder = fill(tmp_path, f"left/{city}_left.png", *names, "left/test/berlin/berlin_1_left.png")
    found, notes = paired(folder, **beside)
    assert found == {f"left/{city}_left.png": names[1], "left/test/berlin/berlin_1_left.png": None}
    assert_names(notes, 1, names[0])
    columns = {**COLUMNS, **dict.fromkeys(("split", "label"), Column(ColumnType.CATEGORY))}
    source = tables.source("image_folder", folder, beside=beside)
    [chunk] = source.plan(FILES, columns, 1 << 23).chunks
    rows = [row for block in source.read(chunk, FILES, columns, None) for row in block.table.to_pylist()]
    assert [(row["split"], row["label"]) for row in rows] == [("test", "berlin"), ("train", "aachen")]
    with raises(SourceError, "`photos`"):
        paired(folder, image="photos", mask="gt/*_gt_labelIds")


@pytest.mark.parametrize("where", ["lists/train.txt", "../train.txt"])
def test_a_list_names_the_rows(tmp_path: Path, where: str) -> None:
    folder = fill(tmp_path / "voc", *(f"{kind}/{n}.png" for kind in ("JPEGImages", "masks") for n in range(4)))
    (folder / where).parent.mkdir(exist_ok=True)
    (folder / where).write_text("1\n3\n7\n")
    listed = os.path.normpath(folder / where)
    reader = tables.source("image_folder", folder, beside={"mask": "masks"}, image_list=listed)
    plan = reader.plan(FILES, COLUMNS, 1 << 23)
    assert plan.rows == 2
    pairs = {f"{k}/{n}.png" for k in ("JPEGImages", "masks") for n in "13"}
    assert {file.path for file in plan.inputs} == {*pairs, where}
    assert {file.path for file in reader.list_inputs(FILES, COLUMNS)} >= {file.path for file in plan.inputs}
    assert all(os.path.exists(reader.input_path(FILES)(file.path)) for file in plan.inputs)
    assert_names(plan.notes, 2, "JPEGImages/0.png", "JPEGImages/2.png", "(7)")


@pytest.mark.parametrize("pattern", ["*", "a/*/b", "**_mask", "", "a*/b", "a**/*"])
def test_wrong_patterns_are_named(pattern: str) -> None:
    with raises(ValidationError, pattern):
        ImageFolder(format="image_folder", path="x", beside={"mask": pattern})


# --- init

PALETTE = bytes(range(200)) + bytes(568)


def write_pairs(
    folder: Path, image: str, mask: str, form: str, skip: tuple[int, ...] = (), numbers: Sequence[int] = range(12)
) -> None:
    for number in numbers:
        found = np.arange(24, dtype=np.uint8).reshape(4, 6) % (4 + number)
        picture = Image.fromarray(found)
        if form == "palette":
            picture.putpalette(PALETTE)
        elif form == "two levels":
            picture = Image.fromarray((found > 1).astype(np.uint8) * 255)
        elif form == "border":
            picture = Image.fromarray(np.where(found < 1, 255, found % 3))
        elif form == "colours":
            picture = Image.fromarray(np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)[found % 3])
        for name, each in ((image, Image.new("RGB", (6, 4))), (mask, picture)):
            file = folder / name.replace("*", str(number))
            os.makedirs(file.parent, exist_ok=True)
            if file.suffix == ".npy":
                np.save(file, np.asarray(each))
            elif name == image or number not in skip:
                each.save(file)


ALL = {number: f"class_{number}" for number in range(15)}


@pytest.mark.parametrize(
    ("image", "mask", "form", "beside", "wanted"),
    [
        ("images/*.jpg", "masks/*.png", "palette", "masks", {"classes": ALL}),
        ("image/*.jpg", "label/*.png", "grey", "label", {"classes": ALL}),
        ("images/*.png", "masks/*.npy", "grey", "masks", {"classes": ALL}),
        ("JPEGImages/*.jpg", "SegmentationClass/*.png", "border", "SegmentationClass",
         {"classes": {number: f"class_{number}" for number in range(3)}, "ignore": 255}),
        ("*.jpg", "*_mask.png", "two levels", "*_mask", {"classes": {0: "background", 255: "foreground"}}),
        ("*.png", "*_seg0.png", "palette", "*_seg0", {"classes": ALL}),
        ("images/*.jpg", "masks/*_segmentation.tif", "grey", "masks/*_segmentation", {"classes": ALL}),
        ("images/*.jpg", "masks/*.png", "colours", "masks", {
            "classes": ["class_0", "class_1", "class_2"],
            "colors": {"class_0": [0, 0, 0], "class_1": [128, 0, 0], "class_2": [0, 128, 0]}}),
    ],
)  # fmt: skip
def test_init_finds_masks_and_their_values(
    tmp_path: Path, image: str, mask: str, form: str, beside: str, wanted: dict[str, Any]
) -> None:
    write_pairs(tmp_path, image, mask, form)
    text = starter(str(tmp_path), FILES)
    found = yaml.safe_load(text)
    parse_spec(text)
    assert found["source"]["beside"] == {"mask": beside}
    assert found["features"].keys() == {"image", "mask"}
    if "colors" in wanted:  # the most frequent first
        made = found["features"]["mask"]
        assert sorted(made["colors"].values()) == sorted(wanted["colors"].values())
        assert made["classes"] == list(made["colors"]) == wanted["classes"]
    else:
        assert found["features"]["mask"] == {"kind": "mask", "image": "image", **wanted}
    assert "In doubt" not in text


SPLITS = {"train": range(12), "val": range(20, 26)}


@pytest.mark.parametrize(
    ("pairs", "beside", "label"),
    [
        ([("leftImg8bit/{0}/ulm/ulm_*_000019_leftImg8bit.png", "gtFine/{0}/ulm/ulm_*_000019_gtFine_labelIds.png")],
         {"image": "leftImg8bit/*_leftImg8bit", "mask": "gtFine/*_gtFine_labelIds"}, "mask"),
        ([("{0}/*.png", "{0}_labels/*_L.png")], {"mask": "*_labels/*_L"}, "mask"),
        ([("{0}/*.png", "{0}annot/*.png")], {"mask": "*annot/*"}, "mask"),
        ([("images/{0}/*.jpg", "annotations/{0}/*.png")], {"mask": "annotations"}, "mask"),
        ([("images/*.jpg", "annotations/trimaps/*.png")], {"mask": "annotations/trimaps"}, "mask"),
        ([("{0}/*.jpg", "{0}_masks/*_mask.gif")], {"mask": "*_masks/*_mask"}, "mask"),
        ([("img/img_*.jpg", "truth/gt_*.png")], {"image": "img/img_*", "mask": "truth/gt_*"}, "mask"),
        ([("Task1_{0}_Input/a_*.jpg", "Task1_{0}_GroundTruth/a_*_segmentation.png")],
         {"image": "Task1_*_Input/*", "mask": "Task1_*_GroundTruth/*_segmentation"}, "mask"),
        ([("images/*.jpg", "masks/*.png"), ("images/*.jpg", "edges/*.png")], {"mask": "masks", "edges": "edges"}, None),
    ],
)  # fmt: skip
def test_init_finds_usual_layouts(
    tmp_path: Path, pairs: list[tuple[str, str]], beside: dict[str, str], label: str | None
) -> None:
    for image, mask in pairs:
        for split, numbers in SPLITS.items():
            write_pairs(tmp_path, image.format(split), mask.format(split), "grey", numbers=numbers)
    spec = parse_spec(text := starter(str(tmp_path), FILES))
    assert spec.source[0].beside == beside
    assert spec.label == label
    assert "label" not in spec.features
    if "{0}" in pairs[0][0]:
        assert {*spec.splits} == {"train", "validation"}
        assert spec.split_by
    assert "In doubt" not in text


def test_init_names_other_files_of_the_images(tmp_path: Path) -> None:
    for kind in ("labelIds", "instanceIds"):
        write_pairs(tmp_path, "left/*_left.png", f"gt/*_gt_{kind}.png", "grey")
    text = starter(str(tmp_path), FILES)
    assert yaml.safe_load(text)["source"]["beside"] == {"image": "left/*_left", "mask": "gt/*_gt_labelIds"}
    assert_names(first_lines(text)[0], "gt/*_gt_instanceIds", "`beside`")


def test_init_takes_lists_of_segmentation(tmp_path: Path) -> None:
    write_pairs(tmp_path, "JPEGImages/*.jpg", "SegmentationClass/*.png", "palette", skip=(1, 5))
    for name, numbers in (("train", (0, 2, 3)), ("val", (4, 6)), ("trainval", (0, 2, 3, 4, 6))):
        write(tmp_path / f"ImageSets/Segmentation/{name}.txt", "".join(f"{number}\n" for number in numbers))
    text = starter(str(tmp_path), FILES)
    spec = parse_spec(text)
    assert [(each.split, os.path.basename(each.image_list)) for each in spec.source] == [
        ("train", "train.txt"), ("validation", "val.txt")]  # fmt: skip
    assert spec.label == "mask"
    assert_names(text, "5 masks", "left out: 7")


def test_init_counts_images_and_masks_alone(tmp_path: Path) -> None:
    write_pairs(tmp_path, "images/*.jpg", "masks/*.png", "palette", skip=(1, 5, 7, 9))
    Image.new("L", (6, 4)).save(tmp_path / "masks/77.png")
    text = starter(str(tmp_path), FILES)
    assert_names(text, "'mask': 4 (images/1.jpg", "1 (masks/77.png)", "# label: mask")
    with raises(UserError, "'mask'", "`optional`"):
        parse_spec(text.replace("# label: mask", "label: mask"))


def test_init_keeps_depth_an_image(tmp_path: Path) -> None:
    write_pairs(tmp_path, "images/*.jpg", "masks/*.png", "grey")
    for number in range(12):
        write(tmp_path / f"depth/{number}.png", saved(np.full((4, 6), 256 + number, np.uint16), "PNG"))
    found = yaml.safe_load(starter(str(tmp_path), FILES))
    assert found["source"]["beside"] == {"mask": "masks", "depth": "depth"}
    assert (found["features"]["depth"]["kind"], found["features"]["depth"]["dtype"]) == ("image", "uint16")


@pytest.mark.parametrize("folder", ["depth", "groundtruth_depth"])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_init_takes_no_depth_for_a_mask(tmp_path: Path, folder: str, dtype: str) -> None:
    write_pairs(tmp_path, "rgb/*.jpg", f"{folder}/*.png", "grey")
    for mask in sorted((tmp_path / folder).iterdir()):
        numbers = np.arange(24).reshape(4, 6) * 400
        Image.fromarray(numbers.astype(np.uint16)).save(mask)
        if dtype == "float32":
            np.save(mask.with_suffix(".npy"), numbers / np.float32(3))
            mask.unlink()
    text = starter(str(tmp_path), FILES)
    found = yaml.safe_load(text)["features"][folder]
    assert (found["kind"], found["dtype"], found["resize"]) == ("image", dtype, "nearest")
    assert_names(text, "12 files, by their names")


@pytest.mark.parametrize("extra", ["1_mask_2.png", "1_parts.png"])
def test_init_doubts_further_masks_of_an_image(tmp_path: Path, extra: str) -> None:
    write_pairs(tmp_path, "*.png", "*_mask.png", "grey")
    (tmp_path / extra).write_bytes((tmp_path / "1_mask.png").read_bytes())
    assert_names(first_lines(starter(str(tmp_path), FILES))[0], extra[:-4], "`image_list")


def test_init_doubts_masks_that_it_leaves_out(tmp_path: Path) -> None:
    write_pairs(tmp_path, "images/*.jpg", "masks/*.png", "grey")
    for mask in (tmp_path / "masks").iterdir():
        Image.new("LA", (6, 4)).save(mask)
    assert_names(first_lines(starter(str(tmp_path), FILES))[0], "column 'mask'", "alpha", "`init` again")


def test_init_takes_no_masks_for_images_of_voc(tmp_path: Path) -> None:
    write_pairs(tmp_path, "JPEGImages/*.jpg", "SegmentationClass/*.png", "palette")
    for number in range(12):
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
        xml = f"<annotation><object><name>cat</name>{box}</object></annotation>"
        write(tmp_path / f"Annotations/{number}.xml", xml)
    text = starter(str(tmp_path), FILES)
    assert yaml.safe_load(text)["source"]["images"].rstrip("/").endswith("JPEGImages")
    assert_names(first_lines(text)[0], "12 masks", '`beside: {"mask": "SegmentationClass"}`', "`image_list`")


CODES, COLORS = (0, 1, 2), ((0, 0, 0), (9, 0, 0))
LISTED = [
    ("classes.txt", "background\nroad\ntree\n", CODES, "background road tree"),
    ("_classes.csv", "Pixel Value, Class\n0, sky\n1, road\n2, x\n", CODES, "sky road x"),
    ("classes.txt", "sky\nroad\n", CODES, "class_0 class_1 class_2"),
    ("class_dict.csv", "name,r,g,b\nsky,0,0,0\nroad,9,0,0\nx,7,7,7\n", COLORS, "sky road x"),
    ("label_colors.txt", "0 0 0\tsky\n9 0 0\troad\n", COLORS, "sky road"),
]


@pytest.mark.parametrize(("file", "text", "values", "classes"), LISTED)
def test_init_names_values_and_colours_of_masks_by_a_file_beside(
    file: str, text: str, values: tuple[Any, ...], classes: str, tmp_path: Path
) -> None:
    write(tmp_path / file, text)
    for number in range(4):
        write(tmp_path / f"images/{number}.png", saved(np.full((4, 6, 3), 9 * number, np.uint8), "PNG"))
        mask = np.resize(np.array(values, np.uint8), (4, 6, *np.shape(values)[1:]))
        write(tmp_path / f"masks/{number}.png", saved(mask, "PNG"))
    found = parse_spec(starter(str(tmp_path), FILES)).features["mask"].model_dump()
    assert list(getattr(found["classes"], "values", found["classes"].__iter__)()) == classes.split()
    assert not found["colors"] or dict(found["colors"])["road"] == (9, 0, 0)


def test_masks_that_fit_no_image_are_no_pictures(tmp_path: Path) -> None:
    """Open Images': a folder of masks with a part of a name, and its table without images."""
    for n in range(6):
        write(tmp_path / f"data/train/{n}.png", saved(np.arange(72, dtype=np.uint8).reshape(4, 6, 3) + n, "PNG"))
        write(tmp_path / f"data/train-masks/{n}_m0{n}_{n}a.png", saved(np.zeros((4, 6), np.uint8), "PNG"))
    text = starter(str(tmp_path / "data"), FILES)
    assert parse_spec(text).source[0].model_dump()["beside"] == {"image": "train/*"}
    assert_names(first_lines(text)[0][0], "6 masks", "left out")
    write(tmp_path / "data/a.csv", "MaskPath,LabelName\n" + "".join(f"{n}_m0{n}_{n}a.png,/m/1\n" for n in range(6)))
    text = starter(str(tmp_path / "data/a.csv"), FILES)
    assert {each.kind for each in parse_spec(text).features.values()} == {"category"}
    assert_names(first_lines(text)[0][0], "'MaskPath'", "left out")


def test_init_counts_masks_of_another_size_and_no_palette(tmp_path: Path) -> None:
    write_pairs(tmp_path, "images/*.jpg", "masks/*.png", "palette")
    assert "palette" not in starter(str(tmp_path), FILES)
    Image.new("L", (3, 4)).save(tmp_path / "masks/7.png")
    text = starter(str(tmp_path), FILES)
    assert_names(text, "1 unequal_sides in column mask", "headers in 12 rows", "max_share: 8.3% ")


def test_init_names_blurred_edges(tmp_path: Path) -> None:
    write_pairs(tmp_path, "images/*.jpg", "masks/*.png", "colours")
    noise = np.random.default_rng(0).integers(0, 256, (4, 600, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "masks/0.png")
    Image.new("RGB", (600, 4)).save(tmp_path / "images/0.jpg")
    text = starter(str(tmp_path), FILES)
    assert "mask" not in yaml.safe_load(text)["features"]
    assert_names(text, "colours in 12 masks", "blurred")


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (lambda found: found > 3, {"classes": {0: "background", 1: "foreground"}}),
        (lambda found: (found > 3) * 127 + (found > 5) * 128,
         {"classes": {0: "background", 127: "unknown", 255: "foreground"}}),
        (lambda found: found * 1000, {"dtype": "uint16"}),
        (lambda found: np.where(found > 270, found - 260, 255 * (found > 99)), None),
    ],
)  # fmt: skip
def test_init_names_only_what_is_sure(tmp_path: Path, made: Any, wanted: dict[str, Any] | None) -> None:
    write_pairs(tmp_path, "images/*.jpg", "masks/*.png", "grey")
    found = made(np.arange(24).reshape(4, 6)) if wanted else made(np.arange(1200).reshape(4, 300) % 300)
    for number in range(12):
        Image.new("RGB", found.shape[::-1]).save(tmp_path / f"images/{number}.jpg")
        kind = np.uint16 if found.max() > 255 else np.uint8
        Image.fromarray(found.astype(kind)).save(tmp_path / f"masks/{number}.png")
    text = starter(str(tmp_path), FILES)
    features = yaml.safe_load(text)["features"]
    assert features.get("mask") == (wanted and {"kind": "mask", "image": "image", **wanted})
    assert_names(text, *([] if wanted and "dtype" in wanted else ["%", "in 12 masks"]))


def test_init_lets_images_lack_a_mask(tmp_path: Path) -> None:
    write_pairs(tmp_path, "JPEGImages/*.jpg", "SegmentationClass/*.png", "palette", skip=(1, 5))
    write_pairs(tmp_path, "JPEGImages/*.jpg", "SegmentationObject/*.png", "palette", skip=(1, 5))
    found = yaml.safe_load(starter(str(tmp_path), FILES))
    assert found["source"]["beside"] == {"mask": "SegmentationClass", "SegmentationObject": "SegmentationObject"}
    assert {found["features"][name]["optional"] for name in ("mask", "SegmentationObject")} == {True}


def test_init_takes_no_class_or_photo_for_a_mask(tmp_path: Path) -> None:
    for number in range(9):
        for name in (f"with_mask/{number}.png", f"without_mask/{number + 20}.png", f"images/{number}.jpg"):
            write(tmp_path / name, saved(Image.new("RGB", (6, 4)), "JPEG" if name.endswith("jpg") else "PNG"))
    write(tmp_path / "masks/0.jpg", saved(Image.new("L", (6, 4))))
    assert "beside" not in yaml.safe_load(starter(str(tmp_path), FILES))["source"]


@pytest.mark.parametrize(
    ("column", "made", "kind"),
    [*((name, 2, "mask") for name in ("annotation", "label", "mask")), ("label", 90, "image"), ("next", 2, "image")],
)
def test_init_knows_masks_of_bytes(tmp_path: Path, column: str, made: int, kind: str) -> None:
    def cell(picture: Any) -> dict[str, Any]:
        return {"bytes": saved(picture, "PNG"), "path": None}

    found = np.arange(100, dtype=np.uint8).reshape(10, 10) % made
    rows = [{"image": cell(Image.new("RGB", (10, 10), (n, 9, 9))), column: cell(found)} for n in (1, 2)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    features = yaml.safe_load(starter(str(tmp_path / "rows.parquet"), FILES))["features"]
    assert (features["image"]["kind"], features[column]["kind"]) == ("image", kind)
    assert features[column].get("classes") == ({0: "background", 1: "foreground"} if kind == "mask" else None)


def test_init_finds_images_beside_the_tables_folder(tmp_path: Path) -> None:
    write(tmp_path / "imgs/1.png", saved(Image.new("RGB", (8, 6)), "PNG"))
    write(tmp_path / "meta/rows.csv", "image\nimgs\\1.png\n")
    found = yaml.safe_load(starter(str(tmp_path / "meta/rows.csv"), FILES))
    assert os.path.samefile(found["source"]["images"], tmp_path)


def test_init_knows_masks_of_a_table(tmp_path: Path) -> None:
    rows = [{"mask": f"{n}_m.png", "image": f"{n}.png"} for n in range(3)]
    for n, row in enumerate(rows):
        Image.new("RGB", (8, 6), (n, 9, 9)).save(tmp_path / row["image"])
        mask = Image.new("P", (8, 6), n)
        mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
        mask.save(tmp_path / row["mask"])
    text = starter(str(write_jsonl(tmp_path / "rows.jsonl", rows)), FILES)
    assert_names(text, "kind: mask", "image: image", "{0: class_0, 1: class_1, 2: class_2}", "in 3 masks")


def test_init_knows_lists_of_masks(tmp_path: Path) -> None:
    names = [f"{n}.png" for n in range(4)]
    for n, name in enumerate(names):
        Image.new("L", (8, 6), n).save(tmp_path / name)
    rows = [{"image": name, "masks": names[: n + 1], "views": names[:2]} for n, name in enumerate(names)]
    features = yaml.safe_load(starter(str(write_jsonl(tmp_path / "rows.jsonl", rows)), FILES))["features"]
    assert features["masks"] == {"kind": "masks", "image": "image"}
    assert features["views"]["kind"] == "image_sequence"


def test_init_doubts_annotations_of_other_tools(tmp_path: Path) -> None:
    write_pairs(tmp_path, "img/*.jpg", "masks/*.png", "grey")
    (tmp_path / "boxes.json").write_text(json.dumps({f"{number}": {"bbox": [1, 2, 3, 4]} for number in range(12)}))
    assert_names(first_lines(starter(str(tmp_path), FILES))[0], "boxes.json", "COCO")
    for number in range(12):
        write(tmp_path / f"ann/{number}.jpg.json", json.dumps({"objects": []}))
    assert_names(first_lines(starter(str(tmp_path), FILES))[0], "ann/0.jpg.json", "COCO")


@pytest.mark.parametrize("data", [None, "aGk="])
def test_init_says_that_labelme_lacks_its_images(tmp_path: Path, data: str | None) -> None:
    data = data and base64.b64encode(saved(Image.new("RGB", (6, 4)), "PNG")).decode()
    shape = {"label": "dog", "points": [[0, 0], [3, 0], [3, 3]], "shape_type": "polygon"}
    for number in range(3):
        entry = {"shapes": [shape], "imagePath": f"{number}.jpg", "imageHeight": 4, "imageWidth": 6, "imageData": data}
        write(tmp_path / f"labels/{number}.json", json.dumps(entry))
    if data:
        found = yaml.safe_load(starter(str(tmp_path), FILES))
        assert found["source"]["format"] == "labelme"
        assert {name: each["kind"] for name, each in found["features"].items()}["boxes"] == "boxes"
    else:
        with raises(UserError, "labels/0.json", "give the folder that holds both"):
            starter(str(tmp_path), FILES)
