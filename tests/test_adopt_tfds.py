"""Adopted files of TensorFlow Datasets: each of its feature shapes, equal to `tfds.as_numpy` value by value."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import Dataset, open_tfrecords

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tfds = pytest.importorskip("tensorflow_datasets")
pytestmark = pytest.mark.slow
RECORDS = {"train": 11, "test": 4}
RANDOM = np.random.default_rng(1)


def pixels(*shape: int) -> Any:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def features() -> dict[str, Any]:
    make = tfds.features
    png = {"encoding_format": "png"}
    return {
        "image": make.Image(shape=(None, None, 3), **png),
        "fixed": make.Image(shape=(5, 6, 3), **png),
        "grey": make.Image(shape=(8, 8, 1), **png),
        "label": make.ClassLabel(names=["cat", "dog", "eel"]),
        "several": make.Sequence(make.ClassLabel(num_classes=5)),
        "objects": make.Sequence({"bbox": make.BBoxFeature(), "label": make.ClassLabel(num_classes=3)}),
        "text": make.Text(),
        "nested": {"flag": make.Scalar(np.bool_), "deep": {"name": make.Text()}},
        "translation": make.Translation(["en", "de"]),
        "matrix": make.Tensor(shape=(2, 3), dtype=np.float32),
        "uint8": make.Tensor(shape=(4,), dtype=np.uint8),
        "int8": make.Tensor(shape=(3,), dtype=np.int8),
        "int16": make.Scalar(np.int16),
        "int32": make.Scalar(np.int32),
        "int64": make.Tensor(shape=(2, 2), dtype=np.int64),
        "float16": make.Tensor(shape=(2,), dtype=np.float16),
        "float64": make.Tensor(shape=(2,), dtype=np.float64),
        "strings": make.Tensor(shape=(2,), dtype=np.str_),
        "as_bytes": make.Tensor(shape=(2, 3), dtype=np.int32, encoding="bytes"),
        "list": make.Sequence(np.int64),
        "three": make.Sequence(np.float32, length=3),
        "rows": make.Tensor(shape=(None, 2), dtype=np.int64),
        "ragged": make.Sequence(make.Sequence(np.int64)),
        "frames": make.Sequence(make.Image(shape=(4, 4, 3), **png)),
        "audio": make.Audio(),
        "maybe": make.Tensor(shape=(), dtype=np.int64, optional=True),
        "zipped": make.Tensor(shape=(2, 3), dtype=np.uint8, encoding="zlib"),
        "deep_image": make.Image(shape=(None, None, 1), dtype=np.uint16, **png),
    }


def row(number: int) -> dict[str, Any]:
    some = number % 4
    box = tfds.features.BBox(ymin=0.125, xmin=0.25, ymax=0.5, xmax=0.75)
    return {
        "image": pixels(4 + some, 5, 3),
        "fixed": pixels(5, 6, 3),
        "grey": pixels(8, 8, 1),
        "label": number % 3,
        "several": list(range(some)),
        "objects": [{"bbox": box, "label": each % 3} for each in range(some)],
        "text": f"Größe {number}",
        "nested": {"flag": number % 2 == 0, "deep": {"name": f"n{number}"}},
        "translation": {"en": "a", "de": f"b{number}"},
        "matrix": RANDOM.random((2, 3)).astype(np.float32),
        "uint8": pixels(4),
        "int8": np.array([-128, 127, number], np.int8),
        "int16": -300,
        "int32": -(2**31),
        "int64": np.array([[2**62, -1], [0, number]]),
        "float16": np.array([0.5, number], np.float16),
        "float64": [0.25, number],
        "strings": ["x", f"ü{number}"],
        "as_bytes": np.arange(6, dtype=np.int32).reshape(2, 3) - number,
        "list": [7] * some,
        "three": [0.5, 1.5, number],
        "rows": np.arange(2 * some).reshape(some, 2),
        "ragged": [[number] * each for each in range(some)],
        "frames": [pixels(4, 4, 3) for _ in range(some)],
        "audio": np.arange(some + 1),
        "maybe": None if some == 1 else number,
        "zipped": pixels(2, 3),
        "deep_image": pixels(3, 3, 1).astype(np.uint16) * 200,
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dataset that TensorFlow Datasets prepared."""

    class Shapes(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")
        code_path = None  # else it looks for the package of this module

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features()))

        def _split_generators(self, _: Any) -> dict[str, Any]:
            return {split: self._generate_examples(records) for split, records in RECORDS.items()}

        def _generate_examples(self, records: int = 0) -> Iterator[tuple[int, Any]]:
            yield from ((number, row(number)) for number in range(records))

    folder = tmp_path_factory.mktemp("tfds")
    Shapes(data_dir=folder).download_and_prepare()
    return folder / "shapes" / "1.0.0"


@pytest.fixture(scope="module")
def adopted(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return open_tfrecords(prepared, tmp_path_factory.mktemp("index") / "shapes")


def ours(dataset: Dataset, split: str) -> list[dict[str, Any]]:
    """The rows as the reader gives them, padding cut off by lengths."""
    source = dataset.source(split, label=None)
    return [source[number] for number in range(len(source))]


def cut(found: dict[str, Any], name: str) -> Any:
    return found[name][: found[f"{name}_length"]] if f"{name}_length" in found else found[name]


SAME = [
    "fixed", "grey", "label", "text", "matrix", "uint8", "int8", "int16", "int32", "int64", "float16", "float64",
    "strings", "as_bytes", "list", "three", "audio", "several", "frames",
]  # fmt: skip
RENAMED = {
    "nested_flag": ("nested", "flag"), "nested_deep_name": ("nested", "deep", "name"),
    "translation_en": ("translation", "en"), "translation_de": ("translation", "de"),
    "objects_label": ("objects", "label"), "objects_bbox": ("objects", "bbox"),
}  # fmt: skip


def test_every_feature_is_equal_to_what_tensorflow_datasets_reads(adopted: Dataset, prepared: Path) -> None:
    builder = tfds.builder_from_directory(str(prepared))
    for split in RECORDS:
        theirs = list(tfds.as_numpy(builder.as_dataset(split=split)))
        rows = ours(adopted, split)
        assert len(rows) == len(theirs) == RECORDS[split]
        for found, expected in zip(rows, theirs, strict=True):
            for name in SAME:
                assert np.array_equal(cut(found, name), expected[name]), name
            for name, path in RENAMED.items():
                inner = expected
                for part in path:
                    inner = inner[part]
                assert np.array_equal(cut(found, name), inner), name
            height, width = found["image_shape"]
            assert np.array_equal(found["image"][:height, :width], expected["image"])
            assert np.array_equal(cut(found, "rows"), expected["rows"].reshape(-1))
            assert found["maybe"] == (0 if found["maybe_missing"] else expected["maybe"])
            assert np.array_equal(cut(found, "ragged"), expected["ragged"].flat_values)
            assert np.array_equal(cut(found, "ragged_row_lengths_0"), expected["ragged"].row_lengths())


def test_what_is_not_decoded_is_said(prepared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = open_tfrecords(prepared, tmp_path / "index")
    for name in ("zipped", "deep_image", "ragged", "rows", "maybe"):
        assert any(f"{name}:" in line for line in caplog.messages), name
    assert {dataset.features[name]["kind"] for name in ("zipped", "deep_image")} == {"raw"}


def test_labels_have_their_names_and_counts(adopted: Dataset) -> None:
    assert adopted.classes == ["cat", "dog", "eel"]
    assert adopted.label_counts("train") == {"cat": 4, "dog": 4, "eel": 3}
    assert adopted.class_names("several") == ["0", "1", "2", "3", "4"]
