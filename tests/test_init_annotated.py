"""`recordmill init` on downloaded annotated images: finds their sources, which build."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from recordmill import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.starter import first_lines
from recordmill.pipeline.spec.model import Spec, load_spec
from tests import published_formats as published
from tests.messages import assert_names, raises
from tests.tables import FILES, write
from tests.test_init_foreign import guessed

Make = Callable[[Path], None]


def sources(spec: Spec) -> list[dict[str, Any]]:
    return [source.model_dump(exclude_unset=True) for source in spec.source]


def coco(images: str, path: str, **options: Any) -> dict[str, Any]:
    return {"format": "coco", "path": f"data/annotations/{path}", "images": f"data/{images}/", **options}


def yolo(path: str, images: str, **options: Any) -> dict[str, Any]:
    return {"format": "yolo", "path": f"data/{path}", "images": f"data/{images}", "names": "data/data.yaml", **options}


def only_validation(folder: Path) -> None:
    """The annotations of all splits, and the images of one, as people download it to try it out."""
    published.write_coco(folder)
    shutil.rmtree(folder / "train2017")


def one_json(folder: Path) -> None:
    """A tool's export: one JSON file beside the images, of unequal categories' ids."""
    for number in (1, 4):
        published.write(folder / f"images/{number:012}.jpg", published.jpeg())
    one = published.coco_instances([1, 4], [published.coco_box(1, 1, 17, (1, 2, 3, 4))])
    one["images"] = [image | {"file_name": f"images/{image['file_name']}"} for image in one["images"]]
    published.write_json(folder / "result.json", one)


def lvis(folder: Path) -> None:
    """LVIS names its images by their URLs at COCO."""
    published.write_coco(folder)
    for file in folder.glob("annotations/*.json"):
        content, split = json.loads(file.read_text()), file.stem.rpartition("_")[2]
        for image in content["images"]:
            image["coco_url"] = f"http://images.cocodataset.org/{split}/{image.pop('file_name')}"
        file.write_text(json.dumps(content))


def roboflow_coco(folder: Path) -> None:
    for split, numbers in (("train", (1, 4)), ("valid", (7,))):
        for number in numbers:
            published.write(folder / f"{split}/{number:012}.jpg", published.jpeg())
        boxes = [published.coco_box(number, number, 17, (1, 2, 3, 4)) for number in numbers]
        published.write_json(folder / f"{split}/_annotations.coco.json", published.coco_instances(numbers, boxes))


def alike(folder: Path) -> None:
    """A split's images have the names of another's; the JSON files lie beside none of them."""
    roboflow_coco(folder)
    for split in ("train", "valid"):
        (folder / f"{split}/_annotations.coco.json").rename(folder / f"{split}.json")
        (folder / split).rename(folder / f"{split}_images")
    shutil.copytree(folder / "valid_images", folder / "train_images", dirs_exist_ok=True)
    shutil.copytree(folder / "train_images", folder / "valid_images", dirs_exist_ok=True)


TABLES = [
    ("{}_labels.csv", "{}", "data/{}/"), ("{}/_annotations.csv", "{}", None),
    ("csv/{}.csv", "images/{}", "data/images/{}/")
]  # fmt: skip


@pytest.mark.parametrize(("table", "images", "option"), TABLES, ids=[row[0] for row in TABLES])
def test_tables_and_folders_by_split_are_a_source_each(
    table: str, images: str, option: str | None, tmp_path: Path
) -> None:
    """The layout of most tutorials of detection, and Roboflow's; a table alone is doubted."""
    splits = {"train": range(20), "test": range(6)}
    for split, numbers in splits.items():
        rows = [f"{split}{n}.jpg,ace,5,5,25,{30 + more}" for n in numbers for more in range(1 + n % 2)]
        write(tmp_path / "data" / table.format(split), "\n".join(["filename,class,xmin,ymin,xmax,ymax", *rows, ""]))
        for n in numbers:
            write(tmp_path / "data" / images.format(split) / f"{split}{n}.jpg", published.jpeg())
    for path in ("data", f"data/{table.format('*')}"):
        found = [(source.split, source.path, source.images) for source in guessed(tmp_path, path)[0].source]
        assert found == [(split, f"data/{table.format(split)}", option and option.format(split)) for split in splits]
    write(tmp_path / "data" / images.format("train") / "extra.jpg", published.jpeg())
    spec = write(tmp_path / "spec.yaml", guessed(tmp_path)[1])
    (named,) = (each for each in make_plan(load_spec(str(spec)), FILES).notes if each.startswith("images that no row"))
    assert_names(named, ": 1 ", "extra.jpg")
    doubts = first_lines(guessed(tmp_path, f"data/{table.format('train')}")[1])[0]
    assert ["test" in doubt for doubt in doubts] == [True] * (not table.startswith("{}/"))


def label_studio(folder: Path) -> None:
    """YOLO's text, with a JSON file of `categories`, which COCO's files have, too."""
    for number in range(4):
        published.write(folder / f"images/{number}.jpg", published.jpeg())
        published.write(folder / f"labels/{number}.txt", f"{number % 2} 0.5 0.5 0.25 0.375")
    published.write(folder / "data.yaml", "names: [person, cat]")
    published.write_json(folder / "notes.json", {"categories": [{"id": 0, "name": "person"}], "info": {}})


def polygons(folder: Path) -> None:
    published.write_yolo(folder)
    for file in folder.glob("labels/*/*.txt"):
        file.write_text("1 0.5 0.25 0.75 .5 0.5 0.75 0.25 5e-1\n")


def other_folder(folder: Path) -> None:
    """Images of no split beside those of two."""
    published.write_yolo(folder)
    published.write(folder / "images/more/1.jpg", published.jpeg())


def beside(folder: Path) -> None:
    """Darknet's layout: text beside the images, and the names a line."""
    for number in range(4):
        published.write(folder / f"{number}.jpg", published.jpeg())
        published.write(folder / f"{number}.txt", f"{number % 2} 0.5 0.5 0.25 0.375")
    published.write(folder / "classes.txt", "person\ncat\n")


def voc_beside(folder: Path) -> None:
    for split, count in (("train", 4), ("valid", 2)):
        for number in range(count):
            published.write(folder / f"{split}/{split}{number}.jpg", published.jpeg())
            xml = published.voc(f"{number}", published.voc_object("cat", (1, 2, 30, 40)))
            published.write(folder / f"{split}/{split}{number}.xml", xml)


def labelme_apart(folder: Path) -> None:
    """The JSON files of two splits in another folder than their images."""
    for split in ("train", "val"):
        published.write_labelme(folder / f"images/{split}")
        for file in sorted(folder.glob(f"images/{split}/*.json")):
            text = file.read_text().replace('"imagePath": "', f'"imagePath": "../../images/{split}/')
            published.write(folder / f"labels/{split}/{file.name}", text)
            file.unlink()


def via_project(folder: Path) -> None:
    published.write_via(folder, validation=0)
    (folder / "train").rename(folder / "images")
    (folder / "val/via_region_data.json").unlink()
    export = folder / "images/via_region_data.json"
    project = {"_via_settings": {"ui": {}}, "_via_img_metadata": json.loads(export.read_text())}
    export.unlink()
    published.write_json(folder / "project.json", project)


INSTANCES = "instances_train2017.json"
LAYOUTS: list[tuple[Make, str, list[dict[str, Any]]]] = [
    (published.write_coco, "data", [coco("train2017", "*_train2017.json", split="train"),
                                    coco("val2017", "*_val2017.json", split="validation")]),
    (lvis, "data", [coco("", "*_train2017.json", split="train") | {"images": "data/"},
                    coco("", "*_val2017.json", split="validation") | {"images": "data/"}]),
    (published.write_coco, f"data/annotations/{INSTANCES}", [coco("train2017", INSTANCES)]),
    (only_validation, "data", [coco("val2017", "*_val2017.json")]),
    (one_json, "data", [{"format": "coco", "path": "data/result.json"}]),
    (roboflow_coco, "data", [{"format": "coco", "path": "data/train/_annotations.coco.json", "split": "train"},
                             {"format": "coco", "path": "data/valid/_annotations.coco.json", "split": "validation"}]),
    (alike, "data", [{"format": "coco", "path": f"data/{name}.json", "images": f"data/{name}_images/", "split": split}
                     for name, split in (("train", "train"), ("valid", "validation"))]),
    (other_folder, "data", [yolo("labels/train/", "images/train/", split="train"),
                            yolo("labels/val/", "images/val/", split="validation")]),
    (label_studio, "data", [yolo("labels/", "images/")]),
    (polygons, "data", [yolo("labels/train/", "images/train/", split="train"),
                        yolo("labels/val/", "images/val/", split="validation")]),
    (published.write_voc, "data", [
        {"format": "voc", "path": "data/", "image_list": f"data/ImageSets/Main/{name}.txt", "split": split}
        for name, split in (("train", "train"), ("val", "validation"))]),
    (voc_beside, "data", [{"format": "voc", "path": "data/train/", "split": "train"},
                          {"format": "voc", "path": "data/valid/", "split": "validation"}]),
    (published.write_yolo, "data", [yolo("labels/train/", "images/train/", split="train"),
                                    yolo("labels/val/", "images/val/", split="validation")]),
    (published.write_roboflow, "data/data.yaml", [yolo("train/labels/", "train/images/", split="train"),
                                                  yolo("valid/labels/", "valid/images/", split="validation")]),
    (beside, "data", [{"format": "yolo", "path": "data/", "names": "data/classes.txt"}]),
    (published.write_labelme, "data", [{"format": "labelme", "path": "data/"}]),
    (labelme_apart, "data", [{"format": "labelme", "path": f"data/labels/{split}/", "images": f"data/images/{split}/",
                              "split": name} for split, name in (("train", "train"), ("val", "validation"))]),
    (published.write_via, "data", [{"format": "via", "path": f"data/{split}/via_region_data.json", "split": name}
                                   for split, name in (("train", "train"), ("val", "validation"))]),
    (published.write_via, "data/train/via_region_data.json",
     [{"format": "via", "path": "data/train/via_region_data.json"}]),
    (via_project, "data", [{"format": "via", "path": "data/project.json", "images": "data/images/"}]),
    (published.write_open_images, "data", [
        {"format": "open_images", "path": f"data/{split}-annotations-bbox.csv", "images": f"data/{split}/",
         "names": "data/class-descriptions-boxable.csv", "split": split} for split in ("train", "validation")]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "path", "expected"), LAYOUTS)
def test_layouts(make: Make, path: str, expected: list[dict[str, Any]], tmp_path: Path) -> None:
    make(tmp_path / "data")
    spec, text = guessed(tmp_path, path)
    assert sources(spec) == expected
    assert all(spec.features[name].kind == name for name in ("image", "boxes", "categories"))
    assert "none would be a reject" in text
    assert "max_share" not in text
    assert "question" not in text
    assert spec.label is None


def test_coco_has_its_ids_as_key_and_its_order(tmp_path: Path) -> None:
    published.write_coco(tmp_path / "data")
    spec, _ = guessed(tmp_path)
    boxes = spec.features["boxes"]
    assert spec.key == ("id",)
    assert (boxes.order, boxes.unit, boxes.image) == ("coco", "absolute", "image")
    assert {"crowd", "captions"} <= spec.features.keys()


def test_annotations_without_their_images_are_left_out_or_refused(tmp_path: Path) -> None:
    only_validation(tmp_path / "data")
    assert_names(guessed(tmp_path)[1], "# left out", "train2017.json)")
    shutil.rmtree(tmp_path / "data/val2017")
    with raises(UserError, ".json", "annotations", "folder"):
        guessed(tmp_path)


def test_a_name_that_is_not_utf8_is_said_with_its_file(tmp_path: Path) -> None:
    published.write_coco(tmp_path / "data")
    for file in tmp_path.glob("data/annotations/*.json"):
        file.write_bytes(file.read_bytes().replace(b'.jpg"', b'\xf6.jpg"', 1))
    with raises(UserError, "data/annotations/", ".json", "UTF-8"):
        guessed(tmp_path)


FOLDER = [{"format": "image_folder", "path": "data/"}]


def captions(folder: Path) -> None:
    for number in range(4):
        published.write(folder / f"{number}.jpg", published.jpeg())
        published.write(folder / f"{number}.txt", "five of 7 cats sat")


def fields(folder: Path) -> None:
    for number in range(4):
        published.write(folder / f"{number}.jpg", published.jpeg())
        published.write(folder / f"{number}.json", json.dumps({"images": [{"id": 1}], "annotations": [2]}))


def metadata(folder: Path) -> None:
    beside(folder)
    published.write(folder / "metadata.csv", "file_name,label\n0.jpg,a\n1.jpg,b\n")


@pytest.mark.parametrize("make", [captions, fields, metadata])
def test_other_folders_of_images_stay_what_they_are(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "data")
    assert sources(guessed(tmp_path)[0]) == FOLDER


def kaggle(path: str, images: str) -> list[dict[str, Any]]:
    return [{"format": "csv", "path": f"data/{path}", "images": f"data/{images}"}]


def with_endings(folder: Path) -> None:
    published.write_kaggle(folder, ending="")


def labels(folder: Path) -> None:
    published.write_kaggle(folder)
    (folder / "train.csv").rename(folder / "labels.csv")


def one_folder(folder: Path) -> None:
    """All splits' images in one folder."""
    published.write_kaggle(folder)
    (folder / "train").rename(folder / "images")
    for image in (folder / "test").iterdir():
        image.rename(folder / "images" / image.name)


HUB = [{"format": "parquet", "path": f"data/data/{split}-00000-of-00001.parquet", "split": split}
       for split in ("train", "validation")]  # fmt: skip
TABLES = [
    (published.write_hub_parquet, "data", HUB, {"image": "image", "captions": "texts"}),
    (published.write_kaggle, "data", kaggle("train.csv", "train/*.jpg"), {"image": "image", "breed": "category"}),
    (with_endings, "data", kaggle("train.csv", "train/"), {"image": "image", "breed": "category"}),
    (labels, "data/labels.csv", kaggle("labels.csv", "train/*.jpg"), {"image": "image", "breed": "category"}),
    (labels, "data", FOLDER, {"image": "image"}),
    (one_folder, "data", kaggle("train.csv", "images/*.jpg"), {"image": "image", "breed": "category"}),
    (published.write_imagenet, "data", FOLDER, {"image": "image", "label": "category"}),
]


@pytest.mark.parametrize(("make", "path", "expected", "kinds"), TABLES)
def test_tables_and_folders(
    make: Make, path: str, expected: list[dict[str, Any]], kinds: dict[str, str], tmp_path: Path
) -> None:
    make(tmp_path / "data")
    spec, text = guessed(tmp_path, path)
    assert sources(spec) == expected
    assert {name: feature.kind for name, feature in spec.features.items()} == kinds
    assert "max_share" not in text


@pytest.mark.parametrize(
    ("other", "classes"),
    [
        ("goldfish", {"n01440764": "tench, Tinca tinca", "n01443537": "goldfish"}),
        ("tench, Tinca tinca", {name: f"tench, Tinca tinca ({name})" for name in ("n01440764", "n01443537")}),
        ("", ("n01440764", "n01443537")),
    ],
)
def test_names_of_synsets(other: str, classes: Any, tmp_path: Path) -> None:
    published.write_imagenet(tmp_path / "data")
    file = tmp_path / "data/LOC_synset_mapping.txt"
    file.write_text(file.read_text().replace("goldfish, Carassius auratus", other))
    assert guessed(tmp_path)[0].features["label"].model_dump()["classes"] == classes


@pytest.mark.slow
@pytest.mark.first(1)
@pytest.mark.parametrize(
    "make",
    [
        published.write_coco,
        pytest.param(lambda folder: yolo_pose(folder), id="yolo_pose"),
        published.write_yolo,
        published.write_open_images,
    ],
)
def test_what_init_writes_builds_unedited(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "data")
    spec = write(tmp_path / "dataset.yaml", guessed(tmp_path)[1])
    dataset = open_dataset(build(load_spec(str(spec)), str(tmp_path / "out")).folder)
    rows = [row.values for row in dataset.records("train")]
    assert len(rows) > 2
    assert all(len(row.get("boxes", ())) == len(row.get("categories", ())) for row in rows)


def kinds_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the written options of the features that `init` made of annotated objects."""
    features = yaml.safe_load(guessed(folder)[1])["features"]
    return {name: features[name] for name in ("mask", "keypoints") if name in features}


MASK = {"kind": "mask", "image": "image", "column": "shapes", "draw": "classes", "ignore": 255}


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (published.write_coco, ["person", "cat", "toothbrush"]),
        (polygons, ["person", "cat"]),
        (published.write_labelme, ["cat", "dog"]),
        (published.write_yolo, []),  # boxes alone
    ],
)
def test_polygons_become_a_mask_of_all_classes(make: Make, classes: list[str], tmp_path: Path) -> None:
    make(tmp_path / "data")
    assert kinds_of(tmp_path) == ({"mask": {**MASK, "classes": ["background", *classes]}} if classes else {})


def test_objects_without_a_shape_are_a_doubt_about_the_mask(tmp_path: Path) -> None:
    polygons(tmp_path / "data")
    file = next((tmp_path / "data").glob("labels/**/*.txt"))
    file.write_text("0 0.5 0.5 0.2 0.2\n" + file.read_text())
    assert_names(guessed(tmp_path)[1].partition("\n# The ")[0], "In doubt: column 'shapes'", "1 of ", "background")


def test_boxes_of_open_images_without_flags_are_a_table(tmp_path: Path) -> None:
    rows = "".join(f"{n % 30},/m/01,.1,.5,.2,{0.6 + n / 1000}\n" for n in range(60))
    (tmp_path / "data/images").mkdir(parents=True)
    (tmp_path / "data/a.csv").write_text(f"ImageID,LabelName,XMin,XMax,YMin,YMax\n{rows}")
    for number in range(30):
        Image.new("RGB", (60, 40)).save(tmp_path / f"data/images/{number}.jpg")
    spec = yaml.safe_load(guessed(tmp_path, "data/a.csv")[1])
    assert spec["source"]["group"] == "ImageID"
    assert spec["features"]["boxes"]["columns"] == ["XMin", "YMin", "XMax", "YMax"]


@pytest.mark.parametrize(("classes", "package"), [(41, True), (3, False)])
def test_a_mask_that_would_not_build_is_a_comment(
    classes: int, package: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = published.coco_instances([1], [published.coco_box(1, 1, 1, (1, 2, 3, 4))])
    one["categories"] = [{"id": number, "name": f"thing {number}"} for number in range(1, classes + 1)]
    published.write_json(tmp_path / "data/instances_train2017.json", one)
    published.write(tmp_path / "data/000000000001.jpg", published.jpeg())
    if not package:
        monkeypatch.setattr("recordmill.pipeline.init.images.find_spec", lambda name: None)
    text = guessed(tmp_path)[1]
    assert kinds_of(tmp_path) == {}
    assert_names(text, "# shapes: ", "41" if package else "recordmill[masks]", '"draw": "classes"')


def pose(folder: Path) -> None:
    """COCO's key points of a person in each image."""
    points = [published.coco_box(each, each, 1, (1, 2, 30, 40)) for each in range(1, 7)]
    one = published.coco_instances(range(1, 7), [each | {"keypoints": [1, 2, 2] * 3} for each in points])
    one["categories"] = [published.CATEGORIES[0] | {"keypoints": EYES, "skeleton": [[1, 2], [1, 3]]}]
    published.write_json(folder / "person_keypoints_train2017.json", one)
    for number in range(1, 7):
        published.write(folder / f"{number:012}.jpg", published.jpeg())


def yolo_pose(folder: Path) -> None:
    published.write_yolo(folder, names="kpt_shape: [3, 2]\nflip_idx: [0, 2, 1]\nnames: [person, cat]\n")
    for file in folder.glob("labels/*/*.txt"):
        file.write_text("1 0.5 0.5 0.25 0.375 .1 .2 .3 .4 .5 .6\n")


EYES = ["nose", "left_eye", "right_eye"]
KEYPOINTS = {"kind": "keypoints", "image": "image"}


def test_key_points_of_coco_have_its_names_and_skeleton(tmp_path: Path) -> None:
    pose(tmp_path / "data")
    joined = [["nose", "left_eye"], ["nose", "right_eye"]]
    pairs = {"flip_pairs": [["left_eye", "right_eye"]], "skeleton": joined}
    assert kinds_of(tmp_path)["keypoints"] == {**KEYPOINTS, "unit": "absolute", "points": EYES, **pairs}


PAIRS = [
    "eye_left eye_right", "eye_left_outer eye_right_outer", "eye_l eye_r", "LeftEye RightEye", "EyeLeft EyeRight",
    "LEye REye", "EyeL EyeR", "L-Eye R-Eye", "eye.L eye.R", "LF_paw RF_paw", "LEFT-EYE RIGHT-EYE",
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), [pair.split() for pair in PAIRS])
def test_points_are_paired_by_left_and_right_in_any_case_and_place(left: str, right: str, tmp_path: Path) -> None:
    pose(tmp_path / "data")
    path = tmp_path / "data/person_keypoints_train2017.json"
    text = path.read_text().replace("left_eye", left).replace("right_eye", right)
    path.write_text(text)
    assert kinds_of(tmp_path)["keypoints"]["flip_pairs"] == [[left, right]]
    path.write_text(text.replace(right, "other"))
    assert "keypoints" not in kinds_of(tmp_path)
    assert_names(first_lines(guessed(tmp_path)[1])[0][0], "'keypoints'", "`flip_pairs`")


def test_key_points_of_yolo_are_those_of_its_yaml(tmp_path: Path) -> None:
    yolo_pose(tmp_path / "data")
    points = {"points": ["point_0", "point_1", "point_2"], "flip_pairs": [["point_1", "point_2"]]}
    assert kinds_of(tmp_path) == {"keypoints": {**KEYPOINTS, "unit": "relative", **points}}
