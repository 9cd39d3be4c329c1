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
        "maybe_two": make.Tensor(shape=(2,), dtype=np.float32, optional=True),
        "never": make.Tensor(shape=(), dtype=np.float32, optional=True),
        "bools": make.Tensor(shape=(3,), dtype=np.bool_),
        "uint32": make.Scalar(np.uint32),
        "uint64": make.Tensor(shape=(2,), dtype=np.uint64),
        "beyond": make.Scalar(np.uint64),
        "any": make.Tensor(shape=(None,), dtype=np.float32),
        "any_as_bytes": make.Tensor(shape=(None, 2), dtype=np.float32, encoding="bytes"),
        "open": make.Tensor(shape=(None, None), dtype=np.int64, encoding="bytes"),
        "wide": make.Tensor(shape=(2,), dtype=np.float64, encoding="bytes"),
        "texts": make.Sequence(make.Text()),
        "steps": make.Sequence({"image": make.Image(shape=(4, 4, 3), **png), "name": make.Text()}),
        "matrices": make.Sequence(make.Tensor(shape=(2,), dtype=np.float32), length=3),
        "pair": make.Sequence(make.ClassLabel(names=["a", "b"]), length=2),
        "box": make.BBoxFeature(),
        "mask": make.LabeledImage(labels=3, shape=(4, 4, 1)),
        "video": make.Video(shape=(None, 4, 4, 3), encoding_format="png"),
        "stereo": make.Audio(shape=(None, 2)),
        "rgba": make.Image(shape=(3, 3, 4), **png),
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
        "maybe_two": None if some == 1 else np.array([0.5, number], np.float32),
        "never": None,
        "bools": [True, False, number % 2 == 0],
        "uint32": 2**32 - 1 - number,
        "uint64": np.array([number, 2**62], np.uint64),
        "beyond": np.uint64(2**64 - 1 - number),
        "any": np.arange(some, dtype=np.float32),
        "any_as_bytes": np.full((some + 1, 2), number, np.float32),
        "open": np.arange(6).reshape(2, 3),
        "wide": np.array([0.25, number]),
        "texts": ["ü", "v", "w"][:some],
        "steps": [{"image": pixels(4, 4, 3), "name": f"s{number}"}] * some,
        "matrices": [np.array([0.5, number], np.float32)] * 3,
        "pair": [number % 2, 1],
        "box": box,
        "mask": pixels(4, 4, 1) % 3,
        "video": pixels(some + 1, 4, 4, 3),
        "stereo": np.full((some + 1, 2), number),
        "rgba": pixels(3, 3, 4),
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
    "strings", "as_bytes", "list", "three", "audio", "several", "frames", "bools", "uint32", "uint64", "any",
    "any_as_bytes", "texts", "matrices", "pair", "mask", "video",
]  # fmt: skip
RENAMED = {
    "nested_flag": ("nested", "flag"), "nested_deep_name": ("nested", "deep", "name"),
    "translation_en": ("translation", "en"), "translation_de": ("translation", "de"),
    "objects_label": ("objects", "label"), "objects_bbox": ("objects", "bbox"),
    "steps_image": ("steps", "image"), "steps_name": ("steps", "name"),
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
            assert np.array_equal(cut(found, "box"), [expected["box"]])
            assert np.array_equal(cut(found, "stereo"), expected["stereo"].reshape(-1))
            assert np.array_equal(cut(found, "maybe_two"), [] if found["maybe_missing"] else expected["maybe_two"])
            assert int(found["beyond"]) % 2**64 == expected["beyond"]
            assert found["wide"] == expected["wide"].tobytes()
            assert found["open_value"] == expected["open"].tobytes()
            assert found["maybe"] == (0 if found["maybe_missing"] else expected["maybe"])
            assert np.array_equal(cut(found, "ragged"), expected["ragged"].flat_values)
            assert np.array_equal(cut(found, "ragged_row_lengths_0"), expected["ragged"].row_lengths())


def test_what_is_not_decoded_is_said(prepared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = open_tfrecords(prepared, tmp_path / "index")
    in_bytes = ("zipped", "deep_image", "rgba", "wide", "open_value")
    for name in (*in_bytes, "ragged", "rows", "stereo", "maybe", "maybe_two", "never", "beyond"):
        assert any(line.startswith(f"{name}:") for line in caplog.messages), name
    assert {dataset.features[name]["kind"] for name in in_bytes} == {"raw"}
    known = {name.split("_")[0] for name in dataset.features}
    assert known >= {name.split("_")[0] for name in features()} - {"never"}


def test_labels_have_their_names_and_counts(adopted: Dataset) -> None:
    assert adopted.classes == ["cat", "dog", "eel"]
    assert adopted.label_counts("train") == {"cat": 4, "dog": 4, "eel": 3}
    assert adopted.class_names("several") == ["0", "1", "2", "3", "4"]
