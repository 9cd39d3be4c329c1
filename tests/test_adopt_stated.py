"""Features of adopted records that a user states: in a spec's words, or as TensorFlow's parsing options."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recordmill import Dataset, UserError, open_tfrecords
from recordmill.pipeline.adopt.adopt import read_features
from tests import tfrecords
from tests.messages import assert_names, raises
from tests.pictures import saved

pytestmark = pytest.mark.usefixtures("home")
ROWS = 6
PIXELS = np.random.default_rng(1).integers(0, 256, (ROWS, 4, 6, 3), dtype=np.uint8)


def row(number: int) -> dict[str, Any]:
    corners = {f"box/{name}": np.full(2, at / 4) for at, name in enumerate(("ymin", "xmin", "ymax", "xmax"))}
    some = {"some": number, "ratio": number / 2, "pair": np.arange(2.0), "grid": bytes([number] * 4)}
    some |= {"grey": saved(np.full((4, 6), number, np.uint8), "PNG")}
    return {
        "png": saved(PIXELS[number], "PNG"),
        "pixels": PIXELS[number].tobytes(),
        "id": number,
        "class": number % 3,
        "classes": [0, 2][: 1 + number % 2],
        "matrix": np.arange(6) + number / 2,
        "list": [number] * (1 + number % 3),
        "text": b"row %d" % number,
        "array": np.arange(number, number + 6, dtype="<i2").tobytes(),
        **corners,
        **(some if number % 2 else {}),
    }


@pytest.fixture
def old(tmp_path: Path) -> Path:
    (tmp_path / "names.txt").write_text("cat\ndog\neel\n")
    return tfrecords.write(tmp_path / "old" / "train.tfrecord", map(row, range(ROWS)))


def adopt(old: Path, features: Mapping[str, Any], **options: Any) -> Dataset:
    return open_tfrecords(old, old.parent.parent / "out", features=features, **options)


def batch(dataset: Dataset) -> Any:
    (found,) = dataset.evaluation_input("train", batch_size=ROWS).as_numpy()
    return found if isinstance(found, Mapping) else found[0]


IMAGE = {"kind": "image", "column": "png"}
FOUR = ["box/ymin", "box/xmin", "box/ymax", "box/xmax"]
LISTS = [[number] * (1 + number % 3) + [0] * (2 - number % 3) for number in range(ROWS)]
KINDS: list[tuple[dict[str, Any], Any]] = [
    (IMAGE, PIXELS),
    ({"kind": "image", "column": "pixels", "shape": [4, 6, 3]}, PIXELS),
    ({"kind": "image_sequence", "column": "png"}, PIXELS[:, None]),
    ({"kind": "category", "column": "class", "classes": ["a", "b", "c"]}, [0, 1, 2] * 2),
    ({"kind": "category", "column": "class", "classes_file": "names.txt"}, [0, 1, 2] * 2),
    ({"kind": "categories", "column": "classes", "classes": ["a", "b", "c"]}, [[0, -1], [0, 2]] * 3),
    ({"kind": "raw", "column": "id"}, list(range(ROWS))),
    ({"kind": "raw", "column": "text", "type": "bytes"}, [b"row %d" % number for number in range(ROWS)]),
    ({"kind": "raw", "column": "list", "many": True}, LISTS),
    ({"kind": "raw", "column": "matrix", "many": True, "length": 6}, [row(n)["matrix"] for n in range(ROWS)]),
    ({"kind": "raw", "column": "matrix", "shape": [2, 3]}, [row(n)["matrix"].reshape(2, 3) for n in range(ROWS)]),
    ({"kind": "raw", "column": "some", "optional": True}, [0, 1, 0, 3, 0, 5]),
    ({"kind": "raw", "column": "some", "default": -1}, [-1, 1, -1, 3, -1, 5]),
    ({"kind": "raw", "column": "ratio"}, [math.nan, 0.5, math.nan, 1.5, math.nan, 2.5]),
    ({"kind": "array", "column": "grid", "dtype": "uint8", "shape": [4]}, [[n * (n % 2)] * 4 for n in range(ROWS)]),
    ({"kind": "array", "column": "array", "dtype": "int16", "shape": [2, 3]},
     [np.arange(n, n + 6).reshape(2, 3) for n in range(ROWS)]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), KINDS)
def test_each_kind_is_read_as_stated(
    given: dict[str, Any], expected: Any, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(old.parent.parent)
    dataset = adopt(old, {"it": given})
    assert set(dataset.features) == {"it"}
    np.testing.assert_array_equal(batch(dataset)["it"], expected)
    if given["kind"] == "category":
        assert dataset.class_names("it") == given.get("classes", ["cat", "dog", "eel"])


def test_a_mask_is_padded_by_its_ignored_value(old: Path) -> None:
    mask = {"kind": "mask", "column": "grey", "image": "of", "ignore": 255}
    dataset = adopt(old, {"of": IMAGE, "it": mask})
    assert batch(dataset)["it"][:, 0, 0, 0].tolist() == [255, 1, 255, 3, 255, 5]


def test_boxes_and_a_label_are_read_as_stated(old: Path) -> None:
    boxes = {"kind": "boxes", "columns": FOUR, "image": "image", "order": "tensorflow", "unit": "relative"}
    label = {"kind": "category", "column": "class", "classes": ["a", "b", "c"]}
    dataset = adopt(old, {"image": IMAGE, "boxes": boxes, "y": label}, label="y")
    assert (dataset.label, dataset.classes) == ("y", ["a", "b", "c"])
    assert batch(dataset)["boxes"].tolist() == [[[0, 0.25, 0.5, 0.75]] * 2] * ROWS


def tf_io(form: str, dtype: str, *shape: int, default: Any = None, key: str | None = None) -> Any:
    """A feature of `tf.io`, without TensorFlow."""
    made = type(form, (SimpleNamespace,), {})
    more = {"value_key": key} if key else {"shape": shape, "default_value": default}
    return made(dtype=SimpleNamespace(name=dtype), **more)


BOXES = {"kind": "boxes", "image": "image", "columns": FOUR}
MISTAKES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"it": {"kind": "text", "column": "text"}}, ("'it'", "'text'", "format: adopted")),
    ({"it": "raw", "id": {"kind": "raw"}}, ("'it'", "'raw'", "categories")),
    ({"it": {"kind": "raw", "colum": "id"}}, ("'it'", "'colum'", "did you mean `column`")),
    ({"it": {"kind": "image", "column": "pgn"}}, ("'it'", "'pgn'", "did you mean `png`")),
    ({"it": {"kind": "image", "column": "text"}}, ("'it'", "bytes", "give `shape`")),
    ({"it": {"kind": "image", "column": "pixels", "shape": [4, 7, 3]}}, ("'it'", "84", "72")),
    ({"it": {"kind": "image", "column": "pixels", "shape": [4, 6, 4]}}, ("'it'", "[4, 6, 4]", "1 or 3")),
    ({"it": {"kind": "image", "column": "id", "shape": [4, 6, 3]}}, ("'it'", "int64")),
    ({"it": {"kind": "image", "column": "pixels", "shape": [4, None, 3]}}, ("'it'", "[4, None, 3]", "height")),
    ({"it": {"kind": "raw", "column": "id", "type": "bytes"}}, ("'it'", "bytes", "int64")),
    ({"it": {"kind": "raw", "column": "list"}}, ("'it'", "1 to 3 values", "`many: true`")),
    ({"it": {"kind": "raw", "column": "list", "many": True, "length": 2}}, ("'it'", "2 values", "1 to 3", "many")),
    ({"it": {"kind": "raw", "column": "matrix", "shape": [2, 2]}}, ("'it'", "4 values", "6 values")),
    ({"it": {"kind": "raw", "column": "matrix", "shape": "six"}}, ("'it'", "shape", "six")),
    ({"it": {"kind": "raw", "column": "matrix", "length": "six", "many": True}}, ("'it'", "length", "six")),
    ({"it": {"kind": "raw", "column": "list", "many": True, "shape": [0]}}, ("'it'", "shape", "[0]", "from 1")),
    ({"it": {"kind": ["raw"]}}, ("'it'", "['raw']", "categories")),
    ({"it": {"kind": "array", "column": "classes", "dtype": "int16", "shape": [6]}}, ("'it'", "1 to 2 values")),
    ({"it": {"kind": "raw", "column": ["id"]}}, ("'it'", "column", "['id']")),
    ({"it": {"kind": "category", "column": "class", "classes": ["a", "b"]}}, ("'it'", "2 `classes`", "0 to 2")),
    ({"it": {"kind": "category", "column": "class"}}, ("'it'", "0 `classes`", "name all")),
    ({"it": {"kind": "category", "column": "class", "classes": ["a", "b", "a"]}}, ("'it'", "'a'", "twice")),
    ({"it": {"kind": "category", "column": "class", "classes_file": "none.txt"}}, ("classes_file", "none.txt")),
    ({"it": {"kind": "category", "column": "text", "classes": ["a"]}}, ("'it'", "bytes", "kind: raw")),
    ({"it": {"kind": "category", "column": "some", "classes": list("abcdef")}}, ("'it'", "3 records without", "raw")),
    ({"it": {"kind": "array", "column": "array", "dtype": "int61", "shape": [6]}}, ("'it'", "int61", "int64")),
    ({"it": {"kind": "array", "column": "array", "dtype": "int16", "shape": [7]}}, ("'it'", "14 bytes", "12")),
    ({"it": {"kind": "array", "column": "matrix", "shape": [6]}}, ("'it'", "6 values", "kind: raw")),
    ({"image": IMAGE, "it": {**BOXES, "order": "coco"}}, ("'it'", "coco", "order: tensorflow")),
    ({"image": IMAGE, "it": {**BOXES, "columns": FOUR[:3]}}, ("'it'", "y_min, x_min, y_max, x_max")),
    ({"image": IMAGE, "it": {"kind": "mask", "column": "png", "image": "image"}}, ("'it'", "PNG", "one channel")),
    ({"image": IMAGE, "it": {"kind": "mask", "column": "id", "image": "image"}}, ("'it'", "PNG", "one channel")),
    ({"it": {"kind": "mask", "column": "grey", "image": "of"}}, ("'it'", "`image`", "'of'")),
    ({"it": {"kind": "raw", "column": "some", "default": "x"}}, ("'some'", "'x'", "1 of int64")),
    ({"it": BOXES}, ("'it'", "'image'", "stated before")),
    ({"a b": {"kind": "raw", "column": "id"}}, ("a b",)),
    ({"idd": tf_io("FixedLenFeature", "int64")}, ("'idd'", "the records hold", "id")),
    ({"id": tf_io("Tensor", "int64")}, ("'id'", "Tensor", "tf.io")),
    ({"id": tf_io("FixedLenFeature", "string")}, ("'id'", "bytes", "int64")),
    ({"list": tf_io("FixedLenFeature", "int64")}, ("'list'", "1 to 3 values", "VarLenFeature")),
    ({"matrix": tf_io("FixedLenFeature", "float32", 5)}, ("'matrix'", "5 values", "6 values")),
    ({"some": tf_io("FixedLenFeature", "int64")}, ("'some'", "3 records", "default_value")),
    ({"some": tf_io("FixedLenFeature", "int64", default=[1, 2])}, ("'some'", "[1, 2]", "int64")),
    ({"list": tf_io("FixedLenSequenceFeature", "int64", default=7)}, ("'list'", "default_value", "0")),
    ({"id": tf_io("SparseFeature", "int64", key="id")}, ("'id'", "SparseFeature", "VarLenFeature")),
]


@pytest.mark.parametrize(("features", "facts"), MISTAKES)
def test_mistakes_are_refused_with_value_place_and_remedy(
    features: dict[str, Any], facts: tuple[str, ...], old: Path
) -> None:
    with raises(UserError, *facts):
        adopt(old, features)
    assert not (old.parent.parent / "out" / "LATEST").exists()


@pytest.mark.slow
def test_tensorflow_parses_the_same(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    tf = pytest.importorskip("tensorflow")
    features = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "text": tf.io.FixedLenFeature([], tf.string),
        "matrix": tf.io.FixedLenFeature([2, 3], tf.float32),
        "some": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
        "ratio": tf.io.FixedLenFeature([], tf.float32, default_value=math.nan),
        "grid": tf.io.FixedLenFeature([], tf.string, default_value=b"none"),
        "pair": tf.io.FixedLenFeature([2], tf.float32, default_value=[0.5, 3]),
        "list": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
        "classes": tf.io.RaggedFeature(tf.int64),
    }
    records = [tfrecords.example(row(number)) for number in range(ROWS)]
    expected, found = tf.io.parse_example(records, features), batch(adopt(old, features))
    assert found["classes"][1].tolist() == expected["classes"].to_list()[1]
    for name in features.keys() - {"classes"}:
        np.testing.assert_array_equal(found[name], expected[name].numpy())
    assert_names(caplog.text, "some", "missing in 3 records", "-1")


@pytest.mark.parametrize("text", ["", "features: {}\n", "features: [a]\n", "kind: raw\n", "- a\n", "\udcff"])
def test_a_file_without_features_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "stated.yaml").write_text(text, encoding="utf-8", errors="surrogateescape")
    with raises(UserError, "stated.yaml"):
        read_features(str(tmp_path / "stated.yaml"))
