"""The reader: what it says about a dataset, and the batches it gives."""

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import keras
import numpy as np
import pytest
import tensorflow as tf

from recordmill import Dataset, DatasetError, RunOptions, forget, load_spec, mix, open_dataset, open_tfrecords
from recordmill.pipeline.dataset.manifest import Latest, read_manifest
from recordmill.pipeline.dataset.version import read_vocabulary
from recordmill.pipeline.reader.input import Input
from recordmill.transforms.base import buffers
from recordmill.transforms.base.buffers import BatchMemory
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.base.stored import Ragged
from tests import hand_made
from tests.messages import assert_names, raises

TRAIN = [f"row/{number}" for number in range(10)]


@pytest.fixture
def copied(dataset: Dataset, tmp_path: Path) -> Path:
    """A copy of the version's folder that a test may damage."""
    return shutil.copytree(dataset.folder, tmp_path / "copy")


def keys(batches: Input) -> list[list[str]]:
    return [[key.decode() for key in features["key"]] for features, _ in batches.as_numpy()]


def test_the_facts_about_a_dataset(dataset: Dataset) -> None:
    assert (dataset.name, dataset.version, dataset.label) == ("hand", hand_made.VERSION, "category")
    assert dataset.splits == {"train": 10, "validation": 5, "test": 0}
    assert dict(dataset.features) == hand_made.FEATURES
    assert dataset.classes == ["dark", "bright"]
    assert dataset.num_classes == 2
    dark = [record.key for record in dataset.records("train") if record.values["category"] == "dark"]
    assert [record.key for record in dataset.records("train", label="dark")] == dark != []
    assert dataset.label_counts("validation") == {"dark": 3, "bright": 2}
    assert dataset.label_counts("test") == {"dark": 0, "bright": 0}
    assert_names(repr(dataset), f"<Dataset hand {hand_made.VERSION}: train 10, ", "text: text", "category: category (l")
    given = dataset.training_input(batch_size=3, seed=7, features=["text"])
    assert_names(repr(given), hand_made.VERSION, "train", "3 batches of 3", "shuffle='global'", "seed=7", "'text'")


def test_no_features_are_the_label_and_the_keys(dataset: Dataset) -> None:
    features, label = next(dataset.evaluation_input("train", batch_size=3, features=[]).as_numpy())
    assert features == {}
    assert label.tolist() == [0, 1, 0]
    for native in (False, True):
        given = dataset.evaluation_input("train", batch_size=3, features=[], with_key=True)
        features, label = next(iter(given.as_tf_data(native=native)))
        assert list(features) == ["key"]
        assert features["key"].numpy().tolist() == [b"row/0", b"row/1", b"row/2"]
        assert label.numpy().tolist() == [0, 1, 0]
    keys_alone = dataset.evaluation_input("train", batch_size=3, features=[], label=None, with_key=True)
    assert next(keys_alone.as_numpy())["key"].tolist() == [b"row/0", b"row/1", b"row/2"]


def test_keras_takes_features_by_the_names_of_a_list_of_inputs(dataset: Dataset) -> None:
    text = keras.Input((3,), name="text", dtype="int64")
    model = keras.Model([text], keras.layers.Flatten()(keras.layers.Embedding(6, 2)(text)))
    batches = dataset.evaluation_input("train", batch_size=5, label=None, masks=True)
    assert len(batches.element_spec) > 2
    with warnings.catch_warnings(action="error"):  # "The structure of `inputs` doesn't match"
        assert model.predict(batches.as_tf_data(), verbose=0).shape == (10, 6)


@pytest.mark.parametrize(("side", "limit"), [(20_000, "16,384"), (10**12, "17,179,869,184"), (0, "16,384")])
def test_an_impossible_shape_is_one_line(copied: Path, side: int, limit: str) -> None:
    manifest = json.loads((copied / "dataset.json").read_text())
    manifest["features"]["image"]["shape"] = [side, max(1, side // 4_000), 3]
    (copied / "dataset.json").write_text(json.dumps(manifest))
    with raises(DatasetError, "image", limit):
        open_dataset(copied).training_input(batch_size=1)


def test_a_mask_never_takes_the_name_of_a_feature(copied: Path) -> None:
    manifest = json.loads((copied / "dataset.json").read_text())
    manifest["features"]["text_mask"] = manifest["features"]["category"]
    (copied / "dataset.json").write_text(json.dumps(manifest))
    with raises(DatasetError, "masks=True", "'text_mask'", "leave"):
        open_dataset(copied).training_input(batch_size=1, masks=True)
    assert open_dataset(copied).training_input(batch_size=1, features=["text"], masks=True).element_spec


def test_a_batch_that_memory_does_not_hold_is_one_line(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchMemory, "empty", MagicMock(side_effect=MemoryError("8 EiB")))
    batches = open_dataset(copied).training_input(batch_size=2, features=["text"]).as_numpy()
    with raises(DatasetError, "memory", "2 records", "smaller batch_size"):
        next(batches)


def test_a_batch_beyond_the_free_memory_is_not_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "free_bytes", lambda: 4 << 30)
    with pytest.raises(MemoryError):
        BatchMemory().empty((5, 1 << 30), np.uint8)
    assert BatchMemory().empty((1, 1 << 20), np.uint8).shape == (1, 1 << 20)


def test_the_special_entries_stand_in_their_places(dataset: Dataset) -> None:
    dataset.vocabulary("text").clear()  # by its user: it stays what it was
    assert dataset.class_names("colour") == ["[UNK]", "red", "grün", "line\u0085end"]
    assert dataset.vocabulary("text") == ["", "[UNK]", "a", "tree", "über", "sky"]
    assert dataset.vocabulary_size("text") == 6
    assert dataset.vocabulary_size("category") == 2


@pytest.mark.parametrize("key", ["first_id", "oov_buckets"])
def test_special_entries_without_end_are_refused(dataset: Dataset, key: str) -> None:
    description = {**dataset.features["text"], key: 1 << 60}
    with raises(DatasetError, "vocabulary", "1,152,921,504,606,846,976"):
        read_vocabulary(dataset.folder, read_description(description))


def test_a_broken_description_is_named_when_its_input_is_made(dataset: Dataset) -> None:
    text = {key: value for key, value in hand_made.FEATURES["text"].items() if key != "padding_id"}
    broken = {**dataset.features, "text": text, "count": {"kind": "sound"}}
    changed = Dataset(dataset.folder, replace(dataset.manifest, features=broken))
    with raises(DatasetError, "'text'", "`padding_id`", "dataset.json"):
        changed.training_input("train", batch_size=2, features=["text"])
    with raises(DatasetError, "'count'", "'sound'"):
        changed.training_input("train", batch_size=2, features=["count"])
    with raises(DatasetError, "'text'", "`padding_id`"):
        changed.vocabulary("text")
    assert changed.training_input("train", batch_size=2, features=["price"]).batches_per_epoch  # which is whole


@pytest.mark.parametrize(("feature", "ids", "words"), [
    ("text", [2, 3, 1, 0, 0], ["a", "tree", "[UNK]"]),
    ("text", np.array([[5, 4], [2, 0], [0, 0]]), [["sky", "über"], ["a"], []]),
    ("text", tf.constant([[2], [0]]), [["a"], []]),
    ("text", tf.ragged.constant([[2, 3], []]), [["a", "tree"], []]),
    ("text", [np.array([2, 3]), (4,)], [["a", "tree"], ["über"]]),
    ("text", Ragged(np.array([2, 3, 4]), np.array([0, 2, 2, 3])), [["a", "tree"], [], ["über"]]),
    ("text", [], []),
    ("text", np.zeros([0, 3], np.int64), []),
    ("category", [np.int64(0), 1, 0], ["dark", "bright", "dark"]),
    ("colour", [0, 1], ["[UNK]", "red"]),
])  # fmt: skip
def test_ids_become_words(feature: str, ids: Any, words: Any, dataset: Dataset) -> None:
    assert dataset.to_words(feature, ids) == words


@pytest.mark.parametrize(("ids", "facts"), [
    ([6], ("id 6", "0 to 5")),
    ([[2, -1]], ("id -1", "0 to 5")),
    ([0.5], ("id 0.5", "0 to 5")),
    (3, ("ids", "list or an array", "got 3")),
    (np.int64(3), ("ids", "list or an array", "got")),
    ("tree", ("ids", "list or an array", "got 'tree'")),
])  # fmt: skip
def test_an_invalid_id_is_refused(ids: Any, facts: tuple[str, ...], dataset: Dataset) -> None:
    with raises(DatasetError, *facts):
        dataset.to_words("text", ids)


def test_without_a_label_there_are_only_features(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path, label=None)
    dataset = open_dataset(tmp_path)
    batch = next(iter(dataset.training_input(batch_size=5)))
    assert set(batch) == set(hand_made.FEATURES)
    with raises(DatasetError, "hand", "label", "`class_names"):
        dataset.classes  # noqa: B018


def test_a_label_may_be_a_number(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path, label="price")
    dataset = open_dataset(tmp_path)
    _, prices = next(iter(dataset.evaluation_input("train", batch_size=4)))
    np.testing.assert_array_equal(prices, np.float32([0, 0.125, 0.25, 0.375]))
    with raises(DatasetError, "'price'", "classes", "number"):
        dataset.label_counts("train")


@pytest.mark.parametrize(("ask", "facts"), [
    (lambda d: d.training_input(batch_size=0), ("batch_size", "at least 1", "got 0")),
    (lambda d: d.batches_per_epoch("train", -1), ("batch_size", "at least 1", "got -1")),
    (lambda d: d.training_input(batch_size=11), ("'train'", "10 records", "batch of 11", "drop_remainder=False")),
    (lambda d: d.evaluation_input("validaton", batch_size=1), ("split 'validaton'", "`validation`")),
    (lambda d: d.label_counts("x"), ("hand", "split 'x'", "train, validation, test")),
    (lambda d: d.training_input(batch_size=1, features=["txt"]), ("feature 'txt'", "`text`")),
    (lambda d: d.training_input(batch_size=1, features=["category"]), ("'category'", "label", "leave it out")),
    (lambda d: d.training_input(batch_size=1, features=[], label=None), ("features", "empty", "with_key=True")),
    (lambda d: d.training_input(batch_size=1, features="text"), ("features", "list of names", "'text'")),
    (lambda d: d.training_input(batch_size=1, features=7), ("features", "list of names", "got 7")),
    (lambda d: d.training_input(None, batch_size=1), ("split", "string", "got None")),
    (lambda d: d.training_input(batch_size="8"), ("batch_size", "whole number", "got '8'")),
    (lambda d: d.training_input(batch_size=1, shuffle=True), ("shuffle", "global, blocks, none", "got True")),
    (lambda d: d.training_input(batch_size=1, seed=0.5), ("seed", "whole number", "got 0.5")),
    (lambda d: d.training_input(batch_size=1, epochs=True), ("epochs", "whole number or None", "got True")),
    (lambda d: d.training_input(batch_size=1, verify="false"), ("verify", "True or False", "got 'false'")),
    (lambda d: d.training_input(batch_size=1, label=3), ("label", "string or None", "got 3")),
    (lambda d: d.training_input(batch_size=1).state(-1), ("step", "at least 0", "got -1")),
    (lambda d: d.vocabulary("price"), ("'price'", "vocabulary", "number")),
    (lambda d: d.class_names("text"), ("'text'", "classes", "category")),
    (lambda d: d.to_words("colours", [1]), ("feature 'colours'", "`colour`")),
])  # fmt: skip
def test_a_wrong_argument_is_named(ask: Callable[[Dataset], Any], facts: tuple[str, ...], dataset: Dataset) -> None:
    with raises(DatasetError, *facts):
        ask(dataset)


def read(**options: Any) -> Callable[[Dataset], Any]:
    return lambda dataset: dataset.training_input(**{"batch_size": 2} | options)


def records(**options: Any) -> Callable[[Dataset], Any]:
    return lambda dataset: dataset.records(**{"split": "train"} | options)


@pytest.mark.parametrize(("ask", "name", "got"), [
    *((read(**{name: got}), name, got) for name, got in {
        "split": 3, "batch_size": "8", "seed": 1.5, "epochs": "2", "with_key": "yes", "balance": 1, "host_index": "0",
        "host_count": 2.0, "features": ["text", 5], "label": 5, "cache": 5, "cache_bytes": "1", "dtype": float,
        "shuffle": 0, "start_step": "3", "threads": [1], "workers": True, "on_error": None, "max_skipped": "all",
        "text_length": 2.5, "masks": "no", "captions": 1, "augment": 5, "without": 5,
    }.items()),
    *((records(**{name: got}), name, got) for name, got in {
        "split": ["train"], "limit": "5", "features": ["text", 5], "key": 5, "label": ["cat"], "span": {"a"},
    }.items()),
    (records(features="text"), "features", "text"),
    (records(positions=5), "positions", 5),
    (records(positions=np.array([1.5])), "positions", 1.5),
    (lambda dataset: dataset.vocabulary(["text"]), "feature", ["text"]),
    (lambda dataset: dataset.label_counts(5), "split", 5),
    (lambda dataset: dataset.batches_per_epoch("train", "8"), "batch_size", "8"),
    (lambda dataset: dataset.preview(limit="3"), "limit", "3"),
    (lambda dataset: dataset.input("train"), "options", "train"),
    (lambda dataset: mix(5, [1]), "list of inputs", "a, b"),
    (lambda dataset: mix([read()(dataset)] * 2, [1, 1], seed="a"), "seed", "a"),
    (lambda dataset: open_dataset(dataset.folder, 1.0), "version", 1.0),
    (lambda dataset: open_dataset(dataset.folder, files=[5]), "files", [5]),
    (lambda dataset: open_dataset(None), "path", None),
    (lambda dataset: forget("out", 5), "keys", 5),
    (lambda dataset: open_tfrecords(5, "out"), "files", 5),
    (lambda dataset: RunOptions(processes="2"), "processes", "2"),
    (records(limit=-1), "limit", "-1"),
    (lambda dataset: load_spec(5), "path", 5),
])  # fmt: skip
def test_a_value_of_another_type_is_named(ask: Callable[[Dataset], Any], name: str, got: Any, dataset: Dataset) -> None:
    with raises(DatasetError, name, str(got)):
        ask(dataset)


def test_numpys_numbers_are_as_pythons(dataset: Dataset) -> None:
    chosen = dataset.records("train", positions=np.array([2, 1]), limit=np.int64(1), features=("text",))
    assert [record.position for record in chosen] == [2]


def test_a_shard_that_was_cut_between_records_is_named(copied: Path) -> None:
    offsets = np.fromfile(copied / "hand-validation.index-00000-of-00002", "<u8")
    shard = copied / "hand-validation.tfrecord-00000-of-00002"
    shard.write_bytes(shard.read_bytes()[: offsets[2]])
    facts = str(shard), f"{offsets[2]:,} bytes", f"expected {offsets[3]:,}", "build again"
    with raises(DatasetError, *facts):
        open_dataset(copied).evaluation_input("validation", batch_size=1)
    assert len(list(open_dataset(copied).evaluation_input("train", batch_size=10))) == 1


def test_a_missing_shard_and_bytes_in_an_empty_one_are_named(copied: Path) -> None:
    (copied / "hand-train.tfrecord-00002-of-00004").write_bytes(b"more")
    with raises(DatasetError, "hand-train.tfrecord-00002-of-00004", "4 bytes", "expected 0"):
        open_dataset(copied).training_input(batch_size=1)
    (copied / "hand-train.tfrecord-00001-of-00004").unlink()
    with raises(DatasetError, "/copy/hand-train.tfrecord-00001-of-00004", "missing", "build again"):
        open_dataset(copied).training_input(batch_size=1)


def test_files_that_the_manifest_does_not_list_are_not_read(copied: Path) -> None:
    shutil.copy(copied / "hand-train.tfrecord-00000-of-00004", copied / "hand-train.tfrecord-00004-of-00005")
    batches = open_dataset(copied).evaluation_input("train", batch_size=10, with_key=True)
    assert keys(batches) == [TRAIN]


@pytest.mark.parametrize(("change", "facts"), [
    (lambda path: path.unlink(), ("No such file",)),
    (lambda path: path.write_bytes(b"a\n\xff\nb\nc\n"), ("UTF-8",)),
    (lambda path: path.write_bytes(b""), ("2 words", "expected 6")),
])  # fmt: skip
def test_a_changed_vocabulary_is_named(change: Callable[[Path], Any], facts: tuple[str, ...], copied: Path) -> None:
    change(copied / hand_made.assets("text"))
    with raises(DatasetError, *facts):
        open_dataset(copied).vocabulary("text")


def test_an_open_dataset_stays_on_its_version(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path, version="v1")
    first = open_dataset(tmp_path)
    hand_made.write_dataset(tmp_path, version="v2")
    assert (first.version, open_dataset(tmp_path).version) == ("v1", "v2")
    assert first.folder == open_dataset(tmp_path, "v1").folder == tmp_path / "versions/v1"
    shutil.rmtree(tmp_path / "versions/v2")
    assert len(list(first.training_input(batch_size=5))) == 2


def test_a_dataset_is_read_from_anywhere(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied.parent)
    dataset = open_dataset(copied.name)
    monkeypatch.chdir("/")
    assert keys(dataset.evaluation_input("train", batch_size=10, with_key=True)) == [TRAIN]


@pytest.mark.parametrize(("path", "version", "facts"), [
    (".", "v9", ("version 'v9'", "v1")),
    (".", "../v1", ("'../v1'",)),
    (".", 9, ("no version '9'", "v1")),
    (".", 1.0, ("version", "1.0", "number")),
    ("versions/v1", "v1", ("versions/v1", "leave version='v1' out")),
    ("versions", None, ("versions", "other files", "`--output`")),
    ("nowhere", None, ("nowhere", "`--output`")),
])  # fmt: skip
def test_what_cannot_be_opened_says_why(path: str, version: Any, facts: tuple[str, ...], tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path, version="v1")
    with raises(DatasetError, *facts):
        open_dataset(tmp_path / path, version)


def test_a_version_may_be_meant_by_its_place(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path, version="v1")
    shutil.copytree(tmp_path / "versions/v1", tmp_path / "versions/v2")
    manifest = read_manifest(tmp_path / "versions/v2")
    (tmp_path / "versions/v2/dataset.json").write_text(replace(manifest, version="v2", sequence=2).to_text())
    (tmp_path / "LATEST").write_text(Latest("v2", 2).to_text())
    meant = {wanted: open_dataset(tmp_path, wanted).version for wanted in ("live", "-1", "#2", "1")}
    assert meant == {"live": "v2", "-1": "v1", "#2": "v2", "1": "v1"}
    (tmp_path / "LATEST").write_text(Latest("gone", 7).to_text())
    with raises(DatasetError, str(tmp_path / "LATEST"), "'gone'"):
        open_dataset(tmp_path)
