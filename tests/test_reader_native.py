"""The native tf.data pipeline: the rows of `as_numpy` in a buffer's order, of TensorFlow's operations alone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill import Dataset, DatasetError, mix, open_dataset
from recordmill.augment import MixUp, RandomFlip
from recordmill.pipeline.reader.batches import SplitSource
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.tf_data import native_tf_data
from recordmill.pipeline.versions.publishing import Published
from tests import hand_made
from tests.messages import raises
from tests.opened import opened

OPTIONS: dict[str, dict[str, Any]] = {
    "uint8 and masks": {"dtype": "uint8", "masks": True, "text_length": 5},
    "bfloat16 and ragged": {"dtype": "bfloat16", "text": "ragged"},
    "to the longest": {"text_length": "longest"},
}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def all_kinds(every_kind: tuple[Path, Published]) -> Dataset:
    return open_dataset(every_kind[1].folder)


@pytest.mark.first(1)
@pytest.mark.parametrize("options", [{}, {"native": True}])
def test_no_module_is_made_in_the_temporary_folder(options: dict[str, Any], dataset: Dataset) -> None:
    with opened() as paths:
        for text in ("padded", "ragged"):
            assert list(dataset.training_input("train", batch_size=4, epochs=1, text=text).as_tf_data(**options))
    assert [path for path in paths if "__autograph" in path] == []


def rows(batches: tf.data.Dataset) -> Iterator[tuple[bytes, Row]]:
    """The rows of batches with their keys, lists without their padding."""
    for features, label in batches:
        batch = {**features, "(label)": label}
        for row, key in enumerate(features["key"].numpy()):
            yield key, {name: unpadded(value[row].numpy()) for name, value in batch.items()}


def unpadded(value: Any) -> Any:
    """Cuts zeros, or empty strings, off the end of each axis."""
    value = np.array(value, object) if isinstance(value, bytes) else value
    for axis in range(value.ndim):
        others = tuple(other for other in range(value.ndim) if other != axis)
        filled = np.flatnonzero(np.any(value != (b"" if value.dtype == object else 0), axis=others))
        value = value.take(range(filled[-1] + 1 if len(filled) else 0), axis)
    return value


def tolerance(description: Any, dtype: Any) -> float:
    """One level of 255 for images scaled while reading; else 0."""
    if description.get("encoding") != "original":
        return 0.0
    rounding = 2.0**-7 if dtype == "bfloat16" else 0.0
    return (1.0 if dtype == np.uint8 else max(description["scale"])) * 1.001 + rounding


def keys(batches: tf.data.Dataset) -> list[bytes]:
    return [key for features, _ in batches for key in features["key"].numpy()]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_rows_of_every_kind_are_those_of_numpy(options: dict[str, Any], all_kinds: Dataset) -> None:
    def given() -> Input:
        return all_kinds.training_input("train[:100]", batch_size=30, drop_remainder=False, with_key=True, **options)

    plain, exact = given().as_tf_data(native=True), given().as_tf_data()
    assert plain.element_spec == exact.element_spec
    mine, theirs = dict(rows(plain)), dict(rows(exact))
    assert len(mine) == 100
    assert mine.keys() == theirs.keys()
    for key, row in theirs.items():
        assert list(mine[key]) == list(row)
        for name, value in row.items():
            allowed = tolerance(all_kinds.features.get(name, {}), value.dtype)
            if not allowed:
                np.testing.assert_array_equal(mine[key][name], value, err_msg=name)
                continue
            difference = np.abs(mine[key][name].astype(np.float64) - value.astype(np.float64))
            assert difference.max(initial=0) <= allowed, name


def operations(batches: tf.data.Dataset) -> set[str]:
    graph = tf.compat.v1.GraphDef.FromString(tf.raw_ops.DatasetToGraphV2(input_dataset=batches._variant_tensor).numpy())
    functions = [node.op for function in graph.library.function for node in function.node_def]
    return {*functions, *(node.op for node in graph.node)}


def test_no_python_runs_in_the_pipeline(dataset: Dataset) -> None:
    found = operations(dataset.training_input(batch_size=2).as_tf_data(native=True))
    assert {"TFRecordDataset", "ParseExampleV2"} <= found
    assert [name for name in found if "PyFunc" in name or "Generator" in name] == []
    assert "FlatMapDataset" in operations(dataset.training_input(batch_size=2).as_tf_data())


def test_it_runs_in_the_tf_data_service(dataset: Dataset) -> None:
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    worker = service.WorkerServer(service.WorkerConfig(dispatcher.target.partition("://")[2]))
    batches = dataset.evaluation_input("train", batch_size=4, with_key=True).as_tf_data(native=True)
    served = batches.apply(service.distribute(processing_mode="parallel_epochs", service=dispatcher.target))
    assert sorted(keys(served)) == sorted(keys(batches))
    del worker


def test_epochs_are_shuffled_anew_by_the_seed(dataset: Dataset) -> None:
    def epochs(seed: int) -> list[list[bytes]]:
        given = dataset.training_input(batch_size=5, seed=seed, with_key=True).as_tf_data(native=True)
        return [keys(given) for _ in range(3)]

    first = epochs(1)
    assert epochs(1) == first
    assert len({tuple(epoch) for epoch in [*first, *epochs(2)]}) == 6
    assert len({tuple(sorted(epoch)) for epoch in first}) == 1
    several = dataset.training_input(batch_size=5, epochs=3).as_tf_data(native=True)
    assert (several.cardinality().numpy(), len(list(several))) == (6, 6)
    endless = dataset.training_input(batch_size=5, epochs=-1).as_tf_data(native=True)
    assert endless.cardinality().numpy() == tf.data.INFINITE_CARDINALITY
    assert len(list(endless.take(7))) == 7


@pytest.mark.first(1)
@pytest.mark.parametrize(
    "split", ["train", "train[3:8]", "train[2:5]+validation[:50%]", "train[:2]+train[:2]", "test", "train[4:4]"]
)
def test_an_evaluation_keeps_the_order_and_the_slice(split: str, dataset: Dataset) -> None:
    given = dataset.evaluation_input(split, batch_size=2, with_key=True)
    assert keys(given.as_tf_data(native=True)) == keys(given.as_tf_data())
    assert given.as_tf_data(native=True).cardinality().numpy() == len(given)
    alone = dataset.evaluation_input("train", batch_size=5, label=None, features=["price"])
    assert [list(batch) for batch in alone.as_tf_data(native=True)] == [["price"]] * 2


@pytest.mark.parametrize("dtype", [None, "uint8"])
def test_channels_are_in_the_order_of_numpy(dtype: str | None, tmp_path: Path) -> None:
    image = {**hand_made.image("jpeg"), "channel_order": "bgr"}
    hand_made.write_dataset(tmp_path, {"image": image, "category": hand_made.FEATURES["category"]})
    given = open_dataset(tmp_path).evaluation_input("train", batch_size=10, dtype=dtype)
    (native, _), (ours, _) = next(iter(given.as_tf_data(native=True))), next(given.as_numpy())
    np.testing.assert_array_equal(native["image"], ours["image"])
    assert native["image"].dtype == (dtype or "float32")


@pytest.mark.parametrize("hosts", [2, 3])
def test_hosts_have_parts_of_their_own_and_as_many_batches(hosts: int, dataset: Dataset) -> None:
    def host(index: int) -> list[bytes]:
        options = {"host_index": index, "host_count": hosts, "with_key": True}
        given = dataset.training_input("train+validation", batch_size=2, **options)
        return keys(given.as_tf_data(native=True))

    found = [host(index) for index in range(hosts)]
    assert {len(part) for part in found} == {15 // (2 * hosts) * 2}
    assert len(set().union(*found)) == sum(map(len, found))


@pytest.mark.parametrize(("options", "name", "remedy"), [
    ({"balance": True}, "balance=True", "leave native=True out"),
    ({"start_step": 2}, "start_step=2", "leave native=True out"),
    ({"without": ["row/3"]}, "without=[", "leave native=True out"),
    ({"on_error": "skip"}, "on_error='skip'", "leave native=True out"),
    ({"augment": [RandomFlip()]}, "augment=[RandomFlip", "Keras' layers"),
    ({"augment": [MixUp()]}, "augment=[MixUp", "Keras' layers"),
    ({"threads": 2}, "threads=2", "leave it out"),
    ({"workers": 1}, "workers=1", "leave it out"),
    ({"drop_remainder": False, "host_count": 2}, "drop_remainder=False", "leave native=True out"),
    ({"features": ["text"], "label": None, "text": "packed", "text_length": 9}, "text='packed'",
     "leave native=True out"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")  # fmt: skip
def test_what_needs_the_exact_order_is_refused(
    options: dict[str, Any], name: str, remedy: str, dataset: Dataset
) -> None:
    with raises(DatasetError, "native=True", name, remedy):
        dataset.training_input(batch_size=1, **options).as_tf_data(native=True)


def test_weights_resumed_inputs_and_mixtures_are_refused(dataset: Dataset) -> None:
    given = dataset.training_input(batch_size=1)
    with raises(DatasetError, "native=True", "pad=True"):
        dataset.evaluation_input("train", batch_size=4, host_count=2).as_tf_data(native=True)
    with raises(DatasetError, "native=True", "start_step=3"):
        given.resume(given.state(step=3)).as_tf_data(native=True)
    with raises(DatasetError, "native=True", "tf.data.Dataset.sample_from_datasets"):
        mix([given, given], [1, 1]).as_tf_data(native=True)


def test_a_url_that_tensorflow_does_not_know_is_refused(dataset: Dataset) -> None:
    source = dataset.training_input(batch_size=1).source
    assert isinstance(source, SplitSource)
    shards = tuple(replace(shard, file="s9://bucket/a") for shard in source.request.shards)
    with raises(DatasetError, "s9://", "leave native=True out"):
        native_tf_data(SplitSource(replace(source.request, shards=shards), source.find))
