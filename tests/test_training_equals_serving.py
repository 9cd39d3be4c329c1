"""What the serving model gives for raw rows is what the reader gives for their records, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.build import Published
from pipeline.reader import open_dataset
from tests.conftest import ROWS
from tests.every_kind import raw_rows

pytestmark = pytest.mark.slow
SERVE = """
import importlib.abc, json, sys
import numpy as np

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pipeline", "transforms", "tensorflow_transform", "apache_beam", "tfx_bsl"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import tensorflow as tf
import tensorflow_text  # the spec asks for its operations

serving, rows_file, batch_size, signature, out = sys.argv[1:]
rows = np.load(rows_file, allow_pickle=True)
model = tf.saved_model.load(serving).signatures[signature]
wanted = model.structured_input_signature[1]
parts = []
for start in range(0, len(rows["id"]), int(batch_size)):
    end = start + int(batch_size)
    batch = {}
    for name, spec in wanted.items():
        if name + "_lengths" in wanted:
            lists = rows[name][start:end]
            batch[name + "_lengths"] = tf.constant([len(one) for one in lists], tf.int64)
            flat = [value for one in lists for value in one]
            batch[name] = tf.constant(flat, spec.dtype, shape=[len(flat)])
        elif not name.endswith("_lengths"):
            batch[name] = tf.constant(rows[name][start:end], spec.dtype)
    parts.append({name: list(tensor.numpy()) for name, tensor in model(**batch).items()})
served = {name: [value for part in parts for value in part[name]] for name in parts[0]}
np.save(out, served, allow_pickle=True)
"""
COLUMNS = {
    "image": ("image", "jpeg", "png", "pixels", "original", "any_size"),
    "photo": ("missing",),
    "frames": ("frames",),
    "boxes": ("boxes",),
    "text": (*("text", "open", "note", "pieces", "wordpieces", "folded", "letters", "bytes", "shared"),),
    "category": ("category", "given", "hashed"),
    "maybe": ("maybe",),
    "tags": ("tags", "hot"),
    "number": ("number", "plain", "weight", "bucket"),
    "gap": ("gap", "logged"),
    "levels": ("levels",),
    "triple": ("triple",),
    "counts": ("places",),
    "count": ("count",),
    "label": ("label",),
}
LISTS = ("frames", "boxes", "tags", "hot", "levels", "triple", "places")


@pytest.fixture(scope="module")
def folder(every_kind: tuple[Path, Published]) -> Path:
    return every_kind[0]


@pytest.fixture(scope="module")
def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Model-ready features by key, as the reader gives them where TensorFlow decodes, which serving does too."""
    dataset = open_dataset(folder / "out")
    found = {}
    for split in dataset.splits:
        given = dataset.evaluation_input(split, batch_size=100, with_key=True).as_tf_data(engine="tensorflow")
        for features, label in given.as_numpy_iterator():
            for place, key in enumerate(features.pop("key")):
                row = {name: values[place] for name, values in features.items()} | {"label": label[place]}
                found[key.decode()] = row
    return found


def _serve(folder: Path, keys: list[str], batch_size: int, signature: str) -> dict[str, Any]:
    rows = raw_rows(folder / "in")
    columns: dict[str, list[Any]] = {name: [] for features in COLUMNS.values() for name in features}
    for key in keys:
        for column, features in COLUMNS.items():
            value = rows[key][column]
            for name in features:
                columns[name].append(_raw(value))
    objects = {name: _objects(values) for name, values in columns.items()}
    np.savez(folder / "rows.npz", id=np.array(keys), **objects)
    (serving,) = (folder / "out" / "versions").glob("*/serving")
    out = folder / "served.npy"
    command = [
        sys.executable,
        "-c",
        SERVE,
        str(serving),
        str(folder / "rows.npz"),
        str(batch_size),
        signature,
        str(out),
    ]
    subprocess.run(command, check=True, cwd=folder, timeout=200)
    return np.load(out, allow_pickle=True).item()


def _without_padding(value: Any) -> Any:
    """Cuts zeros, or empty strings, off the end of each axis."""
    for axis in range(value.ndim):
        others = tuple(other for other in range(value.ndim) if other != axis)
        filled = np.flatnonzero(np.any(value != np.zeros((), value.dtype), axis=others))
        value = value.take(range(filled[-1] + 1 if len(filled) else 0), axis)
    return value


def _raw(value: Any) -> Any:
    if isinstance(value, list):
        return [_raw(one) for one in value]
    return value.encode() if isinstance(value, str) else value


def _objects(values: list[Any]) -> Any:
    """An array of numbers, or of objects: lists of different lengths are no matrix."""
    if not isinstance(values[0], bytes | list):
        return np.array(values)
    found = np.empty(len(values), object)
    found[:] = values
    return found


@pytest.mark.parametrize(("batch_size", "count"), [(1, 150), (7, 500), (1024, ROWS)])
def test_bit_equal(folder: Path, read: dict[str, dict[str, Any]], batch_size: int, count: int) -> None:
    keys = sorted(read)[:count]
    served = _serve(folder, keys, batch_size, "with_label")
    assert set(served) == {*read[keys[0]]}
    for name, values in served.items():
        for key, value in zip(keys, values, strict=True):
            expected = read[key][name]
            if np.shape(value) != np.shape(expected):  # of any length: padded to the longest of its batch
                value, expected = _without_padding(value), _without_padding(expected)
            np.testing.assert_array_equal(value, expected, err_msg=f"{name} of {key}", strict=True)


def test_the_default_signature_needs_no_label(folder: Path, read: dict[str, dict[str, Any]]) -> None:
    keys = sorted(read)[:40]
    served = _serve(folder, keys, 40, "serving_default")
    assert "label" not in served
    assert set(served) == {*read[keys[0]]} - {"label"}


def test_the_vocabulary_is_of_the_train_split_alone(folder: Path) -> None:
    dataset = open_dataset(folder / "out")
    manifest = json.loads(next((folder / "out" / "versions").glob("*/dataset.json")).read_text())
    assert manifest["statistics"]["number"]["count"] == dataset.splits["train"] < ROWS
    assert manifest["statistics"]["label"]["tokens"] == ROWS
