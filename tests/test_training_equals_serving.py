"""The serving model's output for raw rows equals the reader's for their records, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import open_dataset
from recordmill.pipeline.build.run_options import Published
from tests.conftest import ROWS
from tests.every_kind import raw_rows

pytestmark = pytest.mark.slow
SERVE = """
import importlib.abc, json, sys
import numpy as np

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("recordmill", "tensorflow_transform", "apache_beam", "tfx_bsl"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import tensorflow as tf
import tensorflow_text  # the spec asks for its operations

serving, rows_file, cases, out = sys.argv[1:]
rows = dict(np.load(rows_file, allow_pickle=True))
signatures = tf.saved_model.load(serving).signatures

model, default = signatures["with_label"], signatures["serving_default"]

def serve(batch_size, count):
    wanted = model.structured_input_signature[1]
    parts = []
    for start in range(0, count, batch_size):
        end = min(start + batch_size, count)
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
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}

names = [[*default.structured_input_signature[1]], [*default.structured_outputs]]
np.save(out, np.array([*(serve(*case) for case in json.loads(cases)), names], object), allow_pickle=True)
"""
CASES = [(1, 40), (7, 140), (1024, 200)]
"""The rows in a batch, and how many there are."""
Served = tuple[dict[tuple[int, int], dict[str, Any]], list[list[str]]]
"""Outputs of `with_label`, by case; names of the inputs and outputs of `serving_default`."""
COLUMNS = {
    "image": ("image", "jpeg", "png", "pixels", "original", "any_size"),
    "photo": ("missing",),
    "frames": ("frames",),
    "boxes": ("boxes",),
    "text": (*("text", "open", "note", "pieces", "wordpieces", "folded", "letters", "bytes", "shared"),),
    "captions": ("captions",),
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


@pytest.fixture(scope="module")
def folder(every_kind: tuple[Path, Published]) -> Path:
    return every_kind[0]


@pytest.fixture(scope="module")
def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Reads model-ready features of a split by key, with the native tf.data pipeline."""
    given = open_dataset(folder / "out").evaluation_input("test", batch_size=100, with_key=True)
    found = {}
    for features, label in given.as_tf_data(native=True).as_numpy_iterator():
        for place, key in enumerate(features.pop("key")):
            found[key.decode()] = {name: values[place] for name, values in features.items()} | {"label": label[place]}
    return found


@pytest.fixture(scope="module")
def served(folder: Path, read: dict[str, dict[str, Any]]) -> Served:
    """Serves in a process with TensorFlow alone."""
    rows = raw_rows(folder / "in")
    columns: dict[str, list[Any]] = {name: [] for features in COLUMNS.values() for name in features}
    for key in sorted(read):
        for column, features in COLUMNS.items():
            value = rows[key][column]
            for name in features:
                columns[name].append(_raw(value))
    np.savez(folder / "rows.npz", **{name: _objects(values) for name, values in columns.items()})
    (serving,) = (folder / "out" / "versions").glob("*/serving")
    arguments = [str(serving), str(folder / "rows.npz"), json.dumps(CASES), str(folder / "served.npy")]
    subprocess.run([sys.executable, "-c", SERVE, *arguments], check=True, cwd=folder, timeout=300)
    *given, names = np.load(folder / "served.npy", allow_pickle=True)
    return dict(zip(CASES, given, strict=True)), names


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


@pytest.mark.parametrize("case", CASES)
def test_bit_equal(case: tuple[int, int], served: Served, read: dict[str, dict[str, Any]]) -> None:
    keys, given = sorted(read)[: case[1]], served[0][case]
    assert set(given) == {*read[keys[0]]}
    for name, values in given.items():
        for key, value in zip(keys, values, strict=True):
            expected = read[key][name]
            if np.shape(value) != np.shape(expected):  # of any length: padded to the longest of its batch
                value, expected = _without_padding(value), _without_padding(expected)
            np.testing.assert_array_equal(value, expected, err_msg=f"{name} of {key}", strict=True)


def test_the_default_signature_needs_no_label(served: Served, read: dict[str, dict[str, Any]]) -> None:
    takes, gives = served[1]
    assert "label" not in takes
    assert set(gives) == {*next(iter(read.values()))} - {"label"}


def test_the_vocabulary_is_of_the_train_split_alone(folder: Path) -> None:
    dataset = open_dataset(folder / "out")
    manifest = json.loads(next((folder / "out" / "versions").glob("*/dataset.json")).read_text())
    assert manifest["statistics"]["number"]["count"] == dataset.splits["train"] < ROWS
    assert manifest["statistics"]["label"]["tokens"] == ROWS
