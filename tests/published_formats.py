"""Small samples of published datasets, written exactly as their publishers write them: keys, folders, endings."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.tables import write

WIDTH, HEIGHT = 64, 48


def jpeg(shade: int = 0, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (shade % 256, 128, 0)).save(file, "JPEG")
    return file.getvalue()


def write_json(path: Path, value: object) -> None:
    write(path, json.dumps(value))


CATEGORIES = [
    {"supercategory": "person", "id": 1, "name": "person"},
    {"supercategory": "animal", "id": 17, "name": "cat"},
    {"supercategory": "indoor", "id": 90, "name": "toothbrush"},
]
INFO = {"description": "COCO 2017 Dataset", "url": "http://cocodataset.org", "version": "1.0", "year": 2017}
INFO |= {"contributor": "COCO Consortium", "date_created": "2017/09/01"}
LICENSES = [{"url": "http://creativecommons.org/licenses/by-nc-sa/2.0/", "id": 1, "name": "CC BY-NC-SA License"}]


def coco_image(number: int) -> dict[str, Any]:
    name = f"{number:012}.jpg"
    file = {"license": 1, "file_name": name, "coco_url": f"http://images.cocodataset.org/train2017/{name}"}
    file |= {"height": HEIGHT, "width": WIDTH, "date_captured": "2013-11-14 17:02:52"}
    return file | {"flickr_url": f"http://farm7.staticflickr.com/{number}.jpg", "id": number}


def coco_box(known: int, image: int, category: int, box: Sequence[float], crowd: int = 0) -> dict[str, Any]:
    x, y, width, height = box
    polygon = [[x, y, x + width, y, x + width, y + height, x, y + height]]
    mask = {"counts": [0, WIDTH * HEIGHT], "size": [HEIGHT, WIDTH]}
    shape = {"segmentation": mask if crowd else polygon, "area": width * height, "iscrowd": crowd}
    return shape | {"image_id": image, "bbox": list(box), "category_id": category, "id": known}


def coco_instances(images: Sequence[int], annotations: Sequence[Mapping[str, Any]], **others: Any) -> dict[str, Any]:
    """In the order of the published file: the categories come last."""
    head = {"info": INFO, "licenses": LICENSES, "images": list(map(coco_image, images))}
    return head | {"annotations": list(annotations), "categories": CATEGORIES} | others


def coco_captions(images: Sequence[int], captions: Sequence[tuple[int, int, str]]) -> dict[str, Any]:
    annotations = [{"image_id": image, "id": known, "caption": text} for known, image, text in captions]
    head = {"info": INFO, "images": list(map(coco_image, images)), "licenses": LICENSES}
    return head | {"annotations": annotations}


def write_coco(folder: Path, train: int = 30, validation: int = 6) -> None:
    """`annotations/` and the images beside; every third image has no box, every fourth a crowd."""
    for split, first, count in (("train2017", 1, train), ("val2017", 1_001, validation)):
        numbers = [first + 3 * each for each in range(count)]
        boxes = [
            coco_box(10 * number + each, number, (1, 17, 90)[(number + each) % 3], (2.5 + each, 4, 20.25, 16), crowd)
            for at, number in enumerate(numbers)
            if at % 3 != 1
            for each, crowd in enumerate([0, 1] if at % 4 == 0 else [0])
        ]
        texts = [(number, each, f"a photo of thing {number} by {each}") for number in numbers for each in range(2)]
        captions = [(10 * number + each, number, text) for number, each, text in texts]
        write_json(folder / f"annotations/instances_{split}.json", coco_instances(numbers, boxes))
        write_json(folder / f"annotations/captions_{split}.json", coco_captions(numbers, captions))
        for number in numbers:
            write(folder / f"{split}/{number:012}.jpg", jpeg(number))


VOC_OBJECT = """\
\t<object>
\t\t<name>{name}</name>
\t\t<pose>Frontal</pose>
\t\t<truncated>{truncated}</truncated>
\t\t<difficult>{difficult}</difficult>
\t\t<bndbox>
\t\t\t<xmin>{box[0]}</xmin>
\t\t\t<ymin>{box[1]}</ymin>
\t\t\t<xmax>{box[2]}</xmax>
\t\t\t<ymax>{box[3]}</ymax>
\t\t</bndbox>
{part}\t</object>
"""
VOC_PART = """\
\t\t<part>
\t\t\t<name>head</name>
\t\t\t<bndbox>
\t\t\t\t<xmin>9</xmin>
\t\t\t\t<ymin>9</ymin>
\t\t\t\t<xmax>12</xmax>
\t\t\t\t<ymax>12</ymax>
\t\t\t</bndbox>
\t\t</part>
"""


def voc_object(name: str, box: Sequence[float], truncated: int = 0, difficult: int = 0, part: str = "") -> str:
    return VOC_OBJECT.format(name=name, box=box, truncated=truncated, difficult=difficult, part=part)


def voc(name: str, *objects: str) -> str:
    return (
        f"<annotation>\n\t<folder>VOC2012</folder>\n\t<filename>{name}.jpg</filename>\n"
        "\t<source>\n\t\t<database>The VOC2007 Database</database>\n\t\t<annotation>PASCAL VOC2007</annotation>\n"
        "\t\t<image>flickr</image>\n\t</source>\n"
        f"\t<size>\n\t\t<width>{WIDTH}</width>\n\t\t<height>{HEIGHT}</height>\n\t\t<depth>3</depth>\n\t</size>\n"
        f"\t<segmented>0</segmented>\n{''.join(objects)}</annotation>\n"
    )


def write_voc(folder: Path, train: int = 30, validation: int = 6) -> None:
    """VOC2012's folders, and the lists of its splits."""
    names = [f"2008_{number:06}" for number in range(train + validation + 2)]  # of two no list has the name
    for number, name in enumerate(names):
        person = voc_object("person", (8, 12, 40, 44), truncated=number % 2, part=VOC_PART)
        dog = voc_object("dog", (1, 1, 30, 20), difficult=1)
        write(folder / f"Annotations/{name}.xml", voc(name, *([person, dog] if number % 2 else [person])))
        write(folder / f"JPEGImages/{name}.jpg", jpeg(number))
    lists = {"train": names[:train], "val": names[train : train + validation], "trainval": names[: train + validation]}
    for split, some in lists.items():
        write(folder / f"ImageSets/Main/{split}.txt", "".join(f"{name}\n" for name in some))
    write(
        folder / "ImageSets/Main/dog_train.txt",
        "".join(f"{name} {-1 if at % 2 else 1:2}\n" for at, name in enumerate(names)),
    )


def write_yolo(
    folder: Path, train: int = 30, validation: int = 6, names: str = "names:\n  0: person\n  1: cat\n"
) -> None:
    """Ultralytics' folders: `images/SPLIT` and `labels/SPLIT`; some images have no label file, some an empty one."""
    write(
        folder / "data.yaml", f"path: ../datasets/{folder.name}\ntrain: images/train\nval: images/val\ntest:\n\n{names}"
    )
    for split, count in (("train", train), ("val", validation)):
        for number in range(count):
            write(folder / f"images/{split}/{number:06}.jpg", jpeg(number))
            lines = ["1 0.5 0.5 0.25 0.375", "0 0.25 0.5 0.5 1"][: number % 3]
            if number % 5:
                write(folder / f"labels/{split}/{number:06}.txt", "".join(f"{line}\n" for line in lines))


def write_roboflow(folder: Path, train: int = 30, validation: int = 6) -> None:
    """Roboflow's export for YOLO: `SPLIT/images` and `SPLIT/labels`, names as a list."""
    paths = "train: ../train/images\nval: ../valid/images\n"
    write(folder / "data.yaml", f"{paths}\nnc: 2\nnames: ['person', 'no']\n")
    for split, count in (("train", train), ("valid", validation)):
        for number in range(count):
            name = f"{split}_{number}_jpg.rf.3f2a{number}"
            write(folder / f"{split}/images/{name}.jpg", jpeg(number))
            write(folder / f"{split}/labels/{name}.txt", f"{number % 2} 0.5 0.5 0.25 0.375\n" if number % 4 else "")


def write_labelme(folder: Path, train: int = 30) -> None:
    """LabelMe's JSON beside each image, with the image's bytes inside; some images have none yet."""
    for number in range(train):
        write(folder / f"{number:06}.jpg", jpeg(number))
        points = [[2.5, 4.0], [22.75, 4.0], [22.75, 20.0 + number % 3]]
        shapes = [
            {"label": label, "points": points, "group_id": None, "description": "", "shape_type": kind, "flags": {}}
            for label, kind in (("cat", "polygon"), ("dog", "rectangle"))[: number % 3]
        ]
        shapes = [shape | {"points": points[::2]} if shape["shape_type"] == "rectangle" else shape for shape in shapes]
        about = {"version": "5.4.1", "flags": {}, "shapes": shapes, "imagePath": f"{number:06}.jpg"}
        size = {"imageData": base64.b64encode(jpeg(number)).decode(), "imageHeight": HEIGHT, "imageWidth": WIDTH}
        if number % 5:
            write(folder / f"{number:06}.json", json.dumps(about | size, indent=2))


def write_via(folder: Path, train: int = 30, validation: int = 6) -> None:
    """The balloons of Mask R-CNN's tutorial: an export of version 1 or 2 beside the images of each split."""
    for split, count in (("train", train), ("val", validation)):
        entries = {}
        for number in range(count):
            write(folder / f"{split}/{split}{number}.jpg", jpeg(number))
            shape = {"name": "polygon", "all_points_x": [2, 20, 20, 2], "all_points_y": [4, 4, 16 + number % 3, 2]}
            regions = [{"shape_attributes": shape, "region_attributes": {"name": "balloon"}}] * (number % 3)
            name = {"fileref": "", "size": 3000 + number, "filename": f"{split}{number}.jpg", "base64_img_data": ""}
            by_number = {str(each): region for each, region in enumerate(regions)}
            some = by_number if split == "train" else regions
            entries[f"{split}{number}.jpg{3000 + number}"] = name | {"file_attributes": {}, "regions": some}
        write_json(folder / f"{split}/via_region_data.json", entries)


OPEN_IMAGES_HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
)


def write_open_images(folder: Path, train: int = 30, validation: int = 6) -> None:
    """The boxes' CSV of each split, the class descriptions, and some of the images."""
    write(folder / "class-descriptions-boxable.csv", "/m/011k07,Tortoise\n/m/01g317,Person\n/m/0k4j,Car\n")
    for split, count in (("train", train), ("validation", validation)):
        lines = [OPEN_IMAGES_HEADER]
        for number in range(count + 3):  # of three the images are not there
            name = f"{number:02x}{split[:1]}2607ff5c4e5c"
            boxes = ["/m/01g317,1,0.012500,0.195312,0.148438,0.587500,0,1,0,0,0", "/m/0k4j,1,0.5,1,0,1,1,0,1,0,-1"]
            lines += [f"{name},xclick,{box}" for box in boxes[: 1 + number % 2] if number % 4]
            if number < count:
                write(folder / f"{split}/{name}.jpg", jpeg(number))
        write(folder / f"{split}-annotations-bbox.csv", "\n".join(lines) + "\n")


def write_hub_parquet(folder: Path, train: int = 30, validation: int = 6) -> None:
    """A dataset of captions as the Hugging Face hub stores it: images as structs of bytes and path."""
    for split, count in (("train", train), ("validation", validation)):
        images = [{"bytes": jpeg(number), "path": f"{split}{number}.jpg"} for number in range(count)]
        captions = [[f"a photo of thing {number} by {each}" for each in range(5)] for number in range(count)]
        kinds = {"image": pa.struct([("bytes", pa.binary()), ("path", pa.string())]), "captions": pa.list_(pa.string())}
        table = pa.table({"image": images, "captions": captions}, pa.schema(list(kinds.items())))
        (folder / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"data/{split}-00000-of-00001.parquet")


def write_kaggle(folder: Path, train: int = 30, test: int = 6, ending: str = ".jpg") -> None:
    """A competition's `train.csv` of ids and labels, `train/` and `test/` with the images, a sample submission."""
    names = [f"{number:032x}" for number in range(train + test)]
    written = "" if ending == ".jpg" else ".jpg"  # in some, ids have the ending
    lines = [f"{name}{written},{('boston_bull', 'dingo')[at % 2]}" for at, name in enumerate(names[:train])]
    write(folder / "train.csv", "\n".join(["id,breed", *lines]) + "\n")
    write(
        folder / "sample_submission.csv", "\n".join(["id,breed", *(f"{name},dingo" for name in names[train:])]) + "\n"
    )
    for at, name in enumerate(names):
        write(folder / f"{'train' if at < train else 'test'}/{name}.jpg", jpeg(at))


def write_imagenet(folder: Path, train: int = 30, validation: int = 6) -> None:
    """ILSVRC's folders by synset, with the file of their names."""
    synsets = {"n01440764": "tench, Tinca tinca", "n01443537": "goldfish, Carassius auratus"}
    write(folder / "LOC_synset_mapping.txt", "".join(f"{synset} {name}\n" for synset, name in synsets.items()))
    for split, count in (("train", train), ("val", validation)):
        for number in range(count):
            synset = list(synsets)[number % 2]
            write(folder / f"{split}/{synset}/{synset}_{split}_{number}.JPEG", jpeg(number))
