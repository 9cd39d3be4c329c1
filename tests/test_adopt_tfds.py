"""Adopted files of TensorFlow Datasets: each of its feature shapes, equal to `tfds.as_numpy` value by value."""

import os
from collections.abc import Callable, Iterator
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


def box() -> Any:
    return tfds.features.BBox(ymin=0.125, xmin=0.25, ymax=0.5, xmax=0.75)


def tensor(shape: Any, dtype: Any, **more: Any) -> Any:
    return tfds.features.Tensor(shape=shape, dtype=dtype, **more)


def png(*shape: int | None, **more: Any) -> Any:
    return tfds.features.Image(shape=shape, encoding_format="png", **more)


def shapes() -> dict[str, tuple[Any, Callable[[int], Any]]]:
    """The features, each with its value in a row by the row's number; `n % 4` is a length."""
    make = tfds.features
    return {
        "image": (png(None, None, 3), lambda n: pixels(4 + n % 4, 5, 3)),
        "fixed": (png(5, 6, 3), lambda _: pixels(5, 6, 3)),
        "grey": (png(8, 8, 1), lambda _: pixels(8, 8, 1)),
        "label": (make.ClassLabel(names=["cat", "dog", "eel"]), lambda n: n % 3),
        "several": (make.Sequence(make.ClassLabel(num_classes=5)), lambda n: list(range(n % 4))),
        "objects": (
            make.Sequence({"bbox": make.BBoxFeature(), "label": make.ClassLabel(num_classes=3)}),
            lambda n: [{"bbox": box(), "label": each % 3} for each in range(n % 4)],
        ),
        "text": (make.Text(), lambda n: f"Größe {n}"),
        "nested": (
            {"flag": make.Scalar(np.bool_), "deep": {"name": make.Text()}},
            lambda n: {"flag": n % 2 == 0, "deep": {"name": f"n{n}"}},
        ),
        "translation": (make.Translation(["en", "de"]), lambda n: {"en": "a", "de": f"b{n}"}),
        "matrix": (tensor((2, 3), np.float32), lambda _: RANDOM.random((2, 3)).astype(np.float32)),
        "uint8": (tensor((4,), np.uint8), lambda _: pixels(4)),
        "int8": (tensor((3,), np.int8), lambda n: np.array([-128, 127, n], np.int8)),
        "int16": (make.Scalar(np.int16), lambda _: -300),
        "int32": (make.Scalar(np.int32), lambda _: -(2**31)),
        "int64": (tensor((2, 2), np.int64), lambda n: np.array([[2**62, -1], [0, n]])),
        "float16": (tensor((2,), np.float16), lambda n: np.array([0.5, n], np.float16)),
        "float64": (tensor((2,), np.float64), lambda n: [0.25, n]),
        "strings": (tensor((2,), np.str_), lambda n: ["x", f"ü{n}"]),
        "as_bytes": (
            tensor((2, 3), np.int32, encoding="bytes"),
            lambda n: np.arange(6, dtype=np.int32).reshape(2, 3) - n,
        ),
        "list": (make.Sequence(np.int64), lambda n: [7] * (n % 4)),
        "three": (make.Sequence(np.float32, length=3), lambda n: [0.5, 1.5, n]),
        "rows": (tensor((None, 2), np.int64), lambda n: np.arange(2 * (n % 4)).reshape(n % 4, 2)),
        "ragged": (make.Sequence(make.Sequence(np.int64)), lambda n: [[n] * each for each in range(n % 4)]),
        "frames": (make.Sequence(png(4, 4, 3)), lambda n: [pixels(4, 4, 3) for _ in range(n % 4)]),
        "audio": (make.Audio(), lambda n: np.arange(n % 4 + 1)),
        "maybe": (tensor((), np.int64, optional=True), lambda n: None if n % 4 == 1 else n),
        "maybe_two": (
            tensor((2,), np.float32, optional=True),
            lambda n: None if n % 4 == 1 else np.array([0.5, n], np.float32),
        ),
        "never": (tensor((), np.float32, optional=True), lambda _: None),
        "bools": (tensor((3,), np.bool_), lambda n: [True, False, n % 2 == 0]),
        "uint32": (make.Scalar(np.uint32), lambda n: 2**32 - 1 - n),
        "uint64": (tensor((2,), np.uint64), lambda n: np.array([n, 2**62], np.uint64)),
        "beyond": (make.Scalar(np.uint64), lambda n: np.uint64(2**64 - 1 - n)),
        "any": (tensor((None,), np.float32), lambda n: np.arange(n % 4, dtype=np.float32)),
        "any_as_bytes": (
            tensor((None, 2), np.float32, encoding="bytes"),
            lambda n: np.full((n % 4 + 1, 2), n, np.float32),
        ),
        "open": (tensor((None, None), np.int64, encoding="bytes"), lambda _: np.arange(6).reshape(2, 3)),
        "wide": (tensor((2,), np.float64, encoding="bytes"), lambda n: np.array([0.25, n])),
        "texts": (make.Sequence(make.Text()), lambda n: ["ü", "v", "w"][: n % 4]),
        "steps": (
            make.Sequence({"image": png(4, 4, 3), "name": make.Text()}),
            lambda n: [{"image": pixels(4, 4, 3), "name": f"s{n}"}] * (n % 4),
        ),
        "matrices": (make.Sequence(tensor((2,), np.float32), length=3), lambda n: [np.array([0.5, n], np.float32)] * 3),
        "pair": (make.Sequence(make.ClassLabel(names=["a", "b"]), length=2), lambda n: [n % 2, 1]),
        "box": (make.BBoxFeature(), lambda _: box()),
        "mask": (make.LabeledImage(labels=3, shape=(4, 4, 1)), lambda _: pixels(4, 4, 1) % 3),
        "video": (make.Video(shape=(None, 4, 4, 3), encoding_format="png"), lambda n: pixels(n % 4 + 1, 4, 4, 3)),
        "stereo": (make.Audio(shape=(None, 2)), lambda n: np.full((n % 4 + 1, 2), n)),
        "rgba": (png(3, 3, 4), lambda _: pixels(3, 3, 4)),
        "zipped": (tensor((2, 3), np.uint8, encoding="zlib"), lambda _: pixels(2, 3)),
        "deep_image": (png(None, None, 1, dtype=np.uint16), lambda _: pixels(3, 3, 1).astype(np.uint16) * 200),
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dataset that TensorFlow Datasets prepared."""

    class Shapes(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")
        code_path = None  # else it looks for the package of this module

        def _info(self) -> Any:
            features = tfds.features.FeaturesDict({name: feature for name, (feature, _) in shapes().items()})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, _: Any) -> dict[str, Any]:
            return {split: self._generate_examples(records) for split, records in RECORDS.items()}

        def _generate_examples(self, records: int = 0) -> Iterator[tuple[int, Any]]:
            values = {name: value for name, (_, value) in shapes().items()}
            yield from ((number, {name: of(number) for name, of in values.items()}) for number in range(records))

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
    in_bytes = ("zipped", "rgba", "wide", "open_value")
    for name in (*in_bytes, "deep_image", "ragged", "rows", "stereo", "maybe", "maybe_two", "never", "beyond"):
        assert any(line.startswith(f"{name}:") for line in caplog.messages), name
    assert {dataset.features[name]["kind"] for name in in_bytes} == {"raw"}
    known = {name.split("_")[0] for name in dataset.features}
    assert known >= {name.split("_")[0] for name in shapes()} - {"never"}


def test_labels_have_their_names_and_counts(adopted: Dataset) -> None:
    assert adopted.classes == ["cat", "dog", "eel"]
    assert adopted.label_counts("train") == {"cat": 4, "dog": 4, "eel": 3}
    assert adopted.class_names("several") == ["0", "1", "2", "3", "4"]
