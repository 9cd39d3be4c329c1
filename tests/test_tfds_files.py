"""The files that TensorFlow Datasets reads, as it wants them; that it opens them is proven on a whole build."""

import json
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.build.publish.assemble import write_tfds_files
from recordmill.pipeline.dataset.catalogues import dataset_info
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.pipeline.spec.features.category import Category
from recordmill.pipeline.spec.features.feature import Feature
from recordmill.pipeline.spec.features.image import Image
from recordmill.pipeline.spec.features.number import Number
from recordmill.pipeline.spec.features.raw import Raw
from recordmill.pipeline.spec.features.text import Text

CLASSES = "tensorflow_datasets.core.features"


def picture(**options: Any) -> Image:
    return Image(kind="image", size=(4, 6), **options)


SCALAR = f"{CLASSES}.scalar.Scalar"
DIMENSIONS = {"dimensions": ["4", "6", "3"]}
ENCODED = {"shape": DIMENSIONS, "dtype": "uint8", "encodingFormat": "png"}
KINDS: list[tuple[Feature, dict[str, Any]]] = [
    (picture(), {"pythonClassName": f"{CLASSES}.image_feature.Image", "image": ENCODED}),
    (picture(store="jpeg", channels=1), {
        "pythonClassName": f"{CLASSES}.image_feature.Image",
        "image": {**ENCODED, "shape": {"dimensions": ["4", "6", "1"]}, "encodingFormat": "jpeg"},
    }),
    (picture(store="raw"), {
        "pythonClassName": f"{CLASSES}.tensor_feature.Tensor",
        "tensor": {"shape": DIMENSIONS, "dtype": "uint8", "encoding": "bytes"},
    }),
    (Text(kind="text"), {
        "pythonClassName": f"{CLASSES}.sequence_feature.Sequence",
        "sequence": {"length": "-1", "feature": {
            "pythonClassName": SCALAR, "tensor": {"shape": {}, "dtype": "int64", "encoding": "none"},
        }},
    }),
    (Category(kind="category"), {
        "pythonClassName": f"{CLASSES}.class_label_feature.ClassLabel", "classLabel": {"numClasses": "4"},
    }),
    *(
        (feature, {"pythonClassName": SCALAR, "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"}})
        for feature, dtype in [
            (Number(kind="number"), "float32"),
            (Raw(kind="raw"), "string"),
            (Raw(kind="raw", type="int64"), "int64"),
            (Raw(kind="raw", type="float32"), "float32"),
        ]
    ),
]  # fmt: skip


def shards(*records: int) -> tuple[Shard, ...]:
    return tuple(Shard(f"s{place}", 100 * count, count, "00", f"i{place}") for place, count in enumerate(records))


def write(folder: Path, feature: Feature, *, is_label: bool = False, words: tuple[str, ...] = ("a", "ü", "c")) -> None:
    description = feature.describe({"vocabulary": "v.txt", "words": len(words), "is_label": is_label})
    write_tfds_files(str(folder), {"x": description}, {"x": list(words)})


def test_splits_without_records_are_left_out() -> None:
    splits = {"train": Split(shards(3, 0, 2)), "validation": Split(shards(0, 0)), "test": Split(shards(1))}
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    assert json.loads(dataset_info(Manifest("emoji", "", "", None, {}, splits))) == {
        "name": "emoji",
        "version": "1.0.0",
        "splits": [
            {"name": "train", "shardLengths": ["3", "0", "2"], "numBytes": "500", "filepathTemplate": template},
            {"name": "test", "shardLengths": ["1"], "numBytes": "100", "filepathTemplate": template},
        ],
        "fileFormat": "tfrecord",
    }


@pytest.mark.parametrize(("feature", "expected"), KINDS, ids=[str(feature) for feature, _ in KINDS])
def test_a_kind(tmp_path: Path, feature: Feature, expected: dict[str, Any]) -> None:
    write(tmp_path, feature)
    written = json.loads((tmp_path / "features.json").read_text())
    assert written["pythonClassName"] == f"{CLASSES}.features_dict.FeaturesDict"
    features = written["featuresDict"]["features"]
    assert features["x"] == expected
    assert features["key"]["tensor"]["dtype"] == "string"
    has_labels = (tmp_path / "x.labels.txt").exists()
    assert has_labels == isinstance(feature, Category)


@pytest.mark.parametrize(
    ("is_label", "lines"), [(True, ["a", "ü", "x\u0085y"]), (False, ["[UNK]", "a", "ü", "x\u0085y"])]
)
def test_class_names_stand_in_the_order_of_their_ids(tmp_path: Path, is_label: bool, lines: list[str]) -> None:
    write(tmp_path, Category(kind="category"), is_label=is_label, words=("a", "ü", "x\u0085y"))
    assert (tmp_path / "x.labels.txt").read_bytes().decode().split("\n") == [*lines, ""]
    classes = json.loads((tmp_path / "features.json").read_text())["featuresDict"]["features"]["x"]["classLabel"]
    assert classes == {"numClasses": str(len(lines))}
