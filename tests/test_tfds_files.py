"""The files that TensorFlow Datasets reads, as it wants them; that it opens them is proven on a whole build."""

import json

import pytest

from recordmill.pipeline.build.publish.described import tfds_files
from recordmill.pipeline.dataset.catalogues import dataset_info
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.values.category_spec import Category


def shards(*records: int) -> tuple[Shard, ...]:
    return tuple(Shard(f"s{place}", 100 * count, count, "00", f"i{place}") for place, count in enumerate(records))


def files(feature: Feature, *, is_label: bool = False, words: tuple[str, ...] = ("a", "ü", "c")) -> dict[str, bytes]:
    description = feature.describe({"vocabulary": "v.txt", "words": len(words), "is_label": is_label})
    return dict(tfds_files({"x": description}, {"x": list(words)}))


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


@pytest.mark.parametrize(
    ("is_label", "lines"), [(True, ["a", "ü", "x\u0085y"]), (False, ["[UNK]", "a", "ü", "x\u0085y"])]
)
def test_class_names_stand_in_the_order_of_their_ids(is_label: bool, lines: list[str]) -> None:
    made = files(Category(kind="category"), is_label=is_label, words=("a", "ü", "x\u0085y"))
    assert made["x.labels.txt"].decode().split("\n") == [*lines, ""]
    classes = json.loads(made["features.json"])["featuresDict"]["features"]["x"]["classLabel"]
    assert classes == {"numClasses": str(len(lines))}
