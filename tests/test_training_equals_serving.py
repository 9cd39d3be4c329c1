"""The serving model's output for raw rows equals the reader's for their records, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import open_dataset
from recordmill.pipeline.build.outcome import Published
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

def serve(signature, batch_size, count):
    model = signatures[signature]
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

np.save(out, [serve(*case) for case in json.loads(cases)], allow_pickle=True)
"""
CASES = [("with_label", 1, 40), ("with_label", 7, 140), ("with_label", 1024, ROWS), ("serving_default", 40, 40)]
"""The signature, the rows in a batch, and how many there are."""
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
LISTS = ("frames", "boxes", "tags", "hot", "levels", "triple", "places")


@pytest.fixture(scope="module")
def folder(every_kind: tuple[Path, Published]) -> Path:
    return every_kind[0]


@pytest.fixture(scope="module")
def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Reads model-ready features by key, with the native tf.data pipeline."""
    dataset = open_dataset(folder / "out")
    found = {}
    for split in dataset.splits:
        given = dataset.evaluation_input(split, batch_size=100, with_key=True).as_tf_data(native=True)
        for features, label in given.as_numpy_iterator():
            for place, key in enumerate(features.pop("key")):
                row = {name: values[place] for name, values in features.items()} | {"label": label[place]}
                found[key.decode()] = row
    return found


@pytest.fixture(scope="module")
def served(folder: Path, read: dict[str, dict[str, Any]]) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Serves in a process with TensorFlow alone, by case."""
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
    return dict(zip(CASES, np.load(folder / "served.npy", allow_pickle=True), strict=True))


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


@pytest.mark.parametrize("case", CASES[:3])
def test_bit_equal(
    case: tuple[str, int, int], served: dict[tuple[str, int, int], dict[str, Any]], read: dict[str, dict[str, Any]]
) -> None:
    keys = sorted(read)[: case[2]]
    assert set(served[case]) == {*read[keys[0]]}
    for name, values in served[case].items():
        for key, value in zip(keys, values, strict=True):
            expected = read[key][name]
            if np.shape(value) != np.shape(expected):  # of any length: padded to the longest of its batch
                value, expected = _without_padding(value), _without_padding(expected)
            np.testing.assert_array_equal(value, expected, err_msg=f"{name} of {key}", strict=True)


def test_the_default_signature_needs_no_label(
    served: dict[tuple[str, int, int], dict[str, Any]], read: dict[str, dict[str, Any]]
) -> None:
    assert set(served[CASES[3]]) == {*next(iter(read.values()))} - {"label"}


def test_the_vocabulary_is_of_the_train_split_alone(folder: Path) -> None:
    dataset = open_dataset(folder / "out")
    manifest = json.loads(next((folder / "out" / "versions").glob("*/dataset.json")).read_text())
    assert manifest["statistics"]["number"]["count"] == dataset.splits["train"] < ROWS
    assert manifest["statistics"]["label"]["tokens"] == ROWS
