"""Arrays: options, equal results of both engines, and an end-to-end build."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.export.export import export
from recordmill.pipeline.inspection.records import read_records
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.array import Array
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.verify.verify import verify
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.array import DTYPES, ArrayDescription, ArrayLayout, numpy_dtype
from recordmill.transforms.contract.stored import FinishOptions, RowError
from recordmill.transforms.numpy.features import finish
from recordmill.transforms.tensorflow.features import model_features, prepare_array
from recordmill.transforms.tensorflow.kind import Context, Parts, Statistics
from tests.messages import raises
from tests.running import BOTH_WAYS, Run


def described(dtype: str, *shape: int | None, **more: Any) -> ArrayDescription:
    return ArrayDescription(dtype=dtype, shape=shape, **more)


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"shape": [2, None]}, ("`shape`", "[2, None]")),
        ({"shape": [2], "max_length": 3}, ("`max_length`", "`shape`")),
        ({"shape": [1 << 14, 1 << 12], "dtype": "int32"}, ("64 MiB", "int32 [16384, 4096]", "268,435,456")),
        ({"shape": []}, ("at least 1",)),
        ({"shape": [0]}, ("equal to 1",)),
        ({"shape": [2], "dtype": "float64"}, ("'uint8', 'int16', 'int32'",)),
    ],
)
def test_a_shape_that_no_array_has_is_refused(given: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        Array(kind="array", **given)


@pytest.mark.parametrize(
    ("given", "expected", "parts", "read", "words"),
    [
        ({"shape": [2, 3]}, {"dtype": "float32", "shape": [2, 3]}, (), (), "float32 2×3"),
        ({"shape": [4], "optional": True}, {"dtype": "float32", "shape": [4], "optional": True}, ("missing",), (),
         "float32 4"),
        ({"shape": [None, 4], "dtype": "int16"}, {"dtype": "int16", "shape": [None, 4]}, (), ("length",),
         "int16 any×4"),
        ({"shape": [None], "max_length": 9}, {"dtype": "float32", "shape": [None], "max_length": 9}, (), ("length",),
         "float32 at most 9"),
    ],
)  # fmt: skip
def test_the_description_tells_what_is_stored(
    given: dict[str, Any], expected: dict[str, Any], parts: tuple[str, ...], read: tuple[str, ...], words: str
) -> None:
    feature = Array(kind="array", **given)
    description = feature.describe({})
    assert description.to_json() == {"kind": "array", "stored": "bytes", **expected}
    assert read_description(description.to_json()) == description
    assert tuple(description.parts()) == ("", *feature.parts()) == ("", *parts)
    assert (feature.read_parts(), description.words()) == (read, words)
    assert feature.raw_column() == Column(ColumnType.ARRAY, optional=feature.optional, array=feature.layout)
    is_fixed = None not in given["shape"]
    assert description.tfds()["tensor"]["encoding"] == ("bytes" if is_fixed else "none")


@pytest.mark.parametrize("changed", [{"dtype": "object"}, {"shape": [2, None]}, {"shape": []}, {"shape": [0]}])
def test_a_damaged_description_is_refused(changed: dict[str, Any]) -> None:
    with raises(DatasetError, "dataset.json", next(iter(changed))):
        read_description({"kind": "array", "stored": "bytes", "dtype": "int16", "shape": [2], **changed})


def read(description: ArrayDescription, cells: list[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a batch's arrays from NumPy and from TensorFlow."""
    ours = finish({"x": description}, {"x": [memoryview(cell) for cell in cells]}, FinishOptions())
    theirs = model_features({"x": description}, {"x": tf.constant(cells, tf.string, shape=[len(cells)])})
    return dict(ours), {name: tensor.numpy() for name, tensor in theirs.items()}


@given(
    st.sampled_from(DTYPES), st.lists(st.integers(1, 3), max_size=3), st.booleans(), st.none() | st.integers(1, 4),
    st.lists(st.integers(0, 4), max_size=5), st.randoms(),
)  # fmt: skip
def test_both_engines_give_the_arrays_that_were_encoded(
    dtype: str, inner: list[int], ragged: bool, most: int | None, counts: list[int], random: Any
) -> None:
    shape = (None, *inner) if ragged else (2, *inner)
    layout = ArrayLayout(dtype, shape)
    sides = [(count if ragged else 2, *inner) for count in counts]
    arrays = [np.array(random.choices(range(100), k=int(np.prod(side)))).reshape(side) for side in sides]
    description = described(dtype, *shape, max_length=most if ragged else None)
    ours, theirs = read(description, [layout.encode(array) for array in arrays])
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert values.dtype == theirs[name].dtype
        np.testing.assert_array_equal(values, theirs[name], strict=True)
    assert ours["x"].dtype == layout.numpy
    for row, array in enumerate(arrays):
        kept = array[: ours["x"].shape[1]] if ragged else array
        np.testing.assert_array_equal(ours["x"][row][: len(kept)].astype(np.float64), kept)
        assert not ours["x"][row][len(kept) :].astype(bool).any()
    assert ours.get("x_length", np.array([])).tolist() == (counts if ragged else [])


@pytest.mark.parametrize(("shape", "bad"), [((2, 2), b"\0" * 9), ((None, 2), b"\0" * 9), ((2, 2), b"")])
def test_an_array_of_another_size_names_its_row(shape: tuple[int | None, ...], bad: bytes) -> None:
    description = described("int16", *shape)
    with raises(RowError, "'x'", f"{len(bad)} bytes") as error:
        finish({"x": description}, {"x": [b"\0" * 8, bad]}, FinishOptions())
    assert error.value.row == 1
    assert description.fault(b"\0" * 8) is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        model_features({"x": described("int16", 2, 2)}, {"x": tf.constant([bad or b"\0", bad])})


@BOTH_WAYS
def test_what_a_row_lacks_is_zeros_that_are_marked_or_no_entries(run: Run) -> None:
    column = tf.constant([b"\1\0\2\0", b""])

    def stored(given: dict[str, Any], values: tf.Tensor) -> Parts:
        options: Any = Array(kind="array", dtype="int16", **given).options()
        return prepare_array(options, values, Context()).store(Statistics())

    fixed = run(lambda values: stored({"shape": [2], "optional": True}, values), column)
    assert fixed[""].numpy().tolist() == [b"\1\0\2\0", bytes(4)]
    assert fixed["missing"].numpy().tolist() == [0, 1]
    cut = run(lambda values: stored({"shape": [None], "max_length": 1, "optional": True}, values), column)
    assert {part: tensor.numpy().tolist() for part, tensor in cut.items()} == {"": [b"\1\0", b""]}


SPEC = """
name: arrays
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 100}
rejects: {max_share: 0.1}
features:
  latent: {kind: array, shape: [2, 3], dtype: bfloat16}
  mask: {kind: array, shape: [4], dtype: uint8, optional: true}
  steps: {kind: array, shape: [null, 2], max_length: 3}
"""
BAD = {"r8": {"latent": [[1, 2, 3]]}, "r9": {"mask": [1, 2, 3, 256]}, "r10": {"steps": [[1, 2], [3]]}}


def rows() -> dict[str, dict[str, Any]]:
    made = {}
    for number in range(40):
        key = f"r{number}"
        row = {"latent": [[number, 0.5, -1], [2, 3, number / 4]], "steps": [[n, -n] for n in range(number % 5)]}
        mask = {} if number % 3 == 0 else {"mask": [number, 0, 1, 255]}
        made[key] = {"id": key, **row, **mask, **BAD.get(key, {})}
    return made


def check(batch: dict[str, Any], number: int, place: int) -> None:
    """Checks a row of either engine's batch."""
    latent, mask, steps, length = (np.asarray(batch[name]) for name in ("latent", "mask", "steps", "steps_length"))
    assert latent[place].astype(float).tolist() == [[number, 0.5, -1], [2, 3, number / 4]]
    assert mask[place].tolist() == ([0] * 4 if number % 3 == 0 else [number, 0, 1, 255])
    assert np.asarray(batch["mask_missing"])[place] == (number % 3 == 0)
    kept = min(3, number % 5)
    assert (steps.shape[1:], length[place]) == ((3, 2), kept)
    assert steps[place].tolist() == [[n, -n] for n in range(kept)] + [[0, 0]] * (3 - kept)


@pytest.mark.slow
def test_a_dataset_of_arrays_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows().values()))
    (tmp_path / "dataset.yaml").write_text(SPEC)
    published = build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))
    assert published.manifest.rejects["by_reason"] == {"wrong_type": 3}
    dataset = open_dataset(str(tmp_path / "out"))
    inputs = dataset.evaluation_input("train", batch_size=8, with_key=True)
    seen = 0
    for ours, theirs in zip(inputs.as_numpy(), inputs.as_tf_data(), strict=True):
        for place, key in enumerate(ours["key"]):
            check(ours, int(key[1:]), place)
            check({name: tensor.numpy() for name, tensor in theirs.items()}, int(key[1:]), place)
            seen += 1
    assert seen == 37
    assert verify(str(tmp_path / "out")).is_whole
    record = next(read_records(dataset, key="r7"))
    assert record.values == {"latent": [[7, 0.5, -1], [2, 3, 1.75]], "mask": [7, 0, 1, 255], "steps": [[0, 0], [1, -1]]}
    export(dataset, "parquet", tmp_path / "exported")
    exported = pq.read_table(next((tmp_path / "exported/data").iterdir())).to_pylist()
    assert {row["key"]: row["mask"] for row in exported}["r3"] is None
    model = tf.saved_model.load(str(Path(published.folder) / "serving")).signatures["serving_default"]
    raw = {"latent": [record.values["latent"]], "mask": [record.values["mask"]], "steps": [record.values["steps"]]}
    specs = parse_spec(SPEC).features
    served = model(
        **{
            name: tf.constant([specs[name].layout.encode(np.array(value)) for value in values])
            for name, values in raw.items()
        }
    )
    check({name: tensor.numpy() for name, tensor in served.items()}, 7, 0)


@pytest.mark.parametrize("name", ["M8[25s/0]", "x" * 10_000, "O", "(1000000,1000000)f4"])
def test_a_foreign_dtype_is_not_parsed_by_numpy(name: str) -> None:
    with raises(DatasetError, "none of", "float32"):
        numpy_dtype(name)
