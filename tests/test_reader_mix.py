"""Inputs mixed by weights: exact shares, every record of each input, states."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from recordmill import Dataset, DatasetError, mix, open_dataset
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.mix import Shares, drawn, merged, quotas
from recordmill.transforms.base.kinds import read_description
from tests import hand_made
from tests.descriptions import whole
from tests.messages import raises

FEATURES = ["text", "price"]


def inputs(dataset: Dataset, **options: Any) -> list[Input]:
    common = {"batch_size": 4, "with_key": True, "features": FEATURES, **options}
    return [dataset.training_input("train", **common), dataset.training_input("validation", **common)]


def keys(given: Input) -> list[list[int]]:
    return [[int(key[4:]) for key in features["key"]] for features, _ in given.as_numpy()]


def test_weights_become_whole_numbers() -> None:
    weights = [1, 1], [0.7, 0.3], [3, 1, 4], [1, 10**4], [1 / 3, 2 / 3], np.float32([0.75, 0.25])
    assert [*map(quotas, weights)] == [[1, 1], [7, 3], [3, 1, 4], [1, 9999], [1, 2], [3, 1]]
    for small in ([1, 10_001], [1, 10**7], [10**4, 1, 10**4]):
        with raises(DatasetError, "1 : 10,000", "got 1", "leave its input out"):
            quotas(small)


def test_every_block_has_exact_shares_and_no_record_twice() -> None:
    sources, ranks = drawn(np.arange(1000), [3, 2], seed=1)
    for start in range(0, 1000, 5):
        assert Counter(sources[start : start + 5].tolist()) == {0: 3, 1: 2}
    assert sorted(ranks[sources == 0].tolist()) == list(range(600))
    assert sorted(ranks[sources == 1].tolist()) == list(range(400))
    assert len({tuple(block) for block in sources.reshape(-1, 5).tolist()}) == 10  # all that there are


SHARES = st.lists(st.integers(1, 9), min_size=2, max_size=2)


@settings(max_examples=40)
@for_all(st.dictionaries(st.integers(1, 12), SHARES, max_size=3), SHARES, st.integers(1, 7), st.integers(0, 9))
def test_shares_change_at_their_steps(
    later: dict[int, list[int]], first: list[int], global_batch: int, seed: int
) -> None:
    by_step = {0: first, **dict(sorted(later.items()))}
    starts = [step * global_batch for step in by_step]
    ends = [*starts[1:], starts[-1] + 5 * sum([*by_step.values()][-1])]
    shares = Shares(by_step, global_batch, seed)
    sources, ranks = shares(np.arange(ends[-1]))
    for start, end, quota in zip(starts, ends, by_step.values(), strict=True):
        for block in range(start, end, sum(quota)):  # the last may be cut off
            counts = np.bincount(sources[block : min(block + sum(quota), end)], minlength=2)
            assert (abs(counts - np.array(quota) * counts.sum() / sum(quota)) < 1).all()
        for source in (0, 1):
            given = ranks[:end][sources[:end] == source].tolist()
            assert sorted(given) == list(range(len(given))), "each record once, none left out"
    some = np.random.default_rng(seed).integers(0, ends[-1], 20)
    assert [*map(list, shares(some))] == [sources[some].tolist(), ranks[some].tolist()]


def test_each_input_gives_its_share_and_all_of_its_records(dataset: Dataset) -> None:
    both = mix(inputs(dataset), [2, 1], epochs=4)  # 15 records an epoch: 3 batches of 4
    assert (both.batches_per_epoch, len(both)) == (3, 12)
    seen = [key for batch in keys(both) for key in batch]
    assert len(seen) == 48
    assert Counter(key < 10 for key in seen) == {True: 32, False: 16}
    assert set(Counter(key for key in seen if key < 10).values()) == {3, 4}
    assert set(Counter(key for key in seen if key >= 10).values()) == {3, 4}


def test_texts_of_different_lengths_are_padded_together(dataset: Dataset) -> None:
    for how in ({"text_length": "longest"}, {"text": "ragged"}):
        for features, label in mix(inputs(dataset, **how), [1, 1]).as_numpy():
            for place, key in enumerate(features["key"]):
                row, text = hand_made.row(int(key[4:])), features["text"]
                assert (features["price"][place], label[place]) == (row["price"], row["category"])
                found = text.values[text.splits[place] : text.splits[place + 1]] if "text" in how else text[place]
                assert [id_ for id_ in found.tolist() if id_] == row["text"]


def test_a_mixture_goes_on_where_it_stopped(dataset: Dataset) -> None:
    whole = keys(mix(inputs(dataset), [2, 1], epochs=3, seed=5))
    assert whole != keys(mix(inputs(dataset), [2, 1], epochs=3, seed=6))
    both = mix(inputs(dataset), [2, 1], epochs=3, seed=5)
    state = both.state(step=4)
    assert state["records"] == 16
    assert keys(both.resume(state)) == keys(mix(inputs(dataset), [2, 1], epochs=3, seed=5, start_step=4)) == whole[4:]
    with raises(DatasetError, "quotas: [2, 1]", "[1, 1]"):
        mix(inputs(dataset), [1, 1], epochs=3, seed=5).resume(state)


def test_weights_by_step_are_those_of_any_hosts_and_resumed_before_and_after_a_change(dataset: Dataset) -> None:
    weights, steps = {4: [1, 3], 0: [3, 1]}, {"epochs": 3, "seed": 2}
    whole = keys(mix(inputs(dataset), weights, **steps))
    rows = [sum(key < 10 for batch in part for key in batch) for part in (whole[:4], whole[4:8])]
    assert rows == [12, 4]
    assert whole[:4] == keys(mix(inputs(dataset), [3, 1], **steps))[:4]
    of_hosts = [inputs(dataset, batch_size=2, host_index=host, host_count=2) for host in range(2)]
    parts = [keys(mix(each, weights, **steps)) for each in of_hosts]
    assert [[*first, *second] for first, second in zip(*parts, strict=True)] == whole
    for step in (3, 4, 6):
        state = json.loads(json.dumps(mix(of_hosts[1], weights, **steps).state(step)))
        assert keys(mix(inputs(dataset), weights, **steps).resume(state)) == whole[step:]
    with raises(DatasetError, "quotas: [[0, [3, 1]], [4, [1, 3]]]", "[3, 1]"):
        mix(inputs(dataset), [3, 1], **steps).resume(state)


def test_hosts_and_workers_share_a_mixture_and_it_is_tf_data_too(dataset: Dataset) -> None:
    whole = keys(mix(inputs(dataset), [2, 1], epochs=2))
    of_hosts = [inputs(dataset, batch_size=2, host_index=host, host_count=2) for host in range(2)]
    parts = [keys(mix(both, [2, 1], epochs=2, workers=host)) for host, both in enumerate(of_hosts)]
    assert [[*first, *second] for first, second in zip(*parts, strict=True)] == whole
    both = mix(inputs(dataset), [2, 1], epochs=2)
    batches = both.as_tf_data()
    assert batches.cardinality() == 6
    assert [[int(key[4:]) for key in features["key"].numpy()] for features, _ in batches] == keys(both)


@pytest.mark.parametrize(("second", "weights", "facts"), [
    ({}, [1], ("weight above 0", "[1]", "2")),
    ({}, [1, 0], ("weight above 0", "[1, 0]")),
    ({}, [1, float("inf")], ("weight above 0", "[1, inf]")),
    ({}, ["a", 1], ("weight above 0", "['a', 1]")),
    ({}, {0: [1, 1], 5: [1]}, ("weight above 0", "[1]", "2")),
    ({}, {0: 3}, ("weight above 0", "3", "2")),
    ({}, {5: [1, 1]}, ("from 0", "[5]")),
    ({}, {0: [1, 1], "5": [1, 1]}, ("from 0", "[0, '5']")),
    ({}, {0: [1, 1], -5: [1, 1]}, ("from 0", "[0, -5]")),
    ({"start_step": 2}, [1, 1], ("hand", "start_step=2", "mix")),
    ({"epochs": 3}, [1, 1], ("hand", "epochs=3", "mix")),
    ({"batch_size": 2}, [1, 1], ("batch_size", "(2, 0, 1)", "(4, 0, 1)")),
    ({"features": ["price"]}, [1, 1], ("batches of hand and hand", "price")),
    ({"split": "test"}, [1, 1], ("'test'", "hand", "leave it out")),
])  # fmt: skip
def test_what_does_not_fit_is_refused(
    second: dict[str, Any], weights: Any, facts: tuple[str, ...], dataset: Dataset
) -> None:
    first, common = inputs(dataset)[0], {"split": "train", "batch_size": 4, "with_key": True, "features": FEATURES}
    with raises(DatasetError, *facts):
        mix([first, dataset.training_input(**{**common, **second})], weights)


def test_a_mixture_refuses_what_an_input_refuses_and_an_evaluation_with_weights(dataset: Dataset) -> None:
    for option, value in (("epochs", 0), ("start_step", -1), ("threads", 0), ("workers", -1)):
        with raises(DatasetError, option, f"got {value}"):
            mix(inputs(dataset), [1, 1], **{option: value})  # type: ignore[arg-type]
    padded = dataset.evaluation_input("train", batch_size=4, features=FEATURES, pad=True)
    two = inputs(dataset)
    with raises(DatasetError, "mix([a, b], weights)"):
        mix(*two)  # type: ignore[arg-type]
    assert [each.meter for each in two] == [None, None]  # nothing was read
    with raises(DatasetError, "mix", "pad=True"):
        mix([padded, padded], [1, 1])


def test_ids_that_mean_other_words_are_not_mixed(dataset: Dataset, tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path)
    other = open_dataset(tmp_path)
    words = Path(other.folder, other.features["category"]["vocabulary"])
    words.write_text("\n".join(reversed(words.read_text().splitlines())) + "\n")
    with raises(DatasetError, "'category'", other.folder, dataset.folder, "`classes`"):
        mix([inputs(dataset)[0], inputs(other)[0]], [1, 1])
    without = [inputs(each, label=None)[0] for each in (dataset, other)]
    assert mix(without, [1, 1]).batches_per_epoch == 5


MASK = {**whole({"kind": "image"}), "kind": "mask", "encoding": "png", "shape": [None, None, 1], "image": "photo"}
LABELS = {"kind": "token_labels", "text": "words", "classes": ["O", "B"], "padding_id": -100, "max_length": 4}
NUMBER = {"kind": "number", "stored": "float32", "normalize": "z_score"}
IMAGE = whole({"kind": "image", "encoding": "png", "shape": [6, 8, 3]}) | {"dtype": "float32"}
POINTS = whole({"kind": "keypoints", "image": "a", "count": 2, "names": ["left", "right"], "flip_pairs": [[0, 1]]})
HASHED = whole({"kind": "text"}) | {"unknown_id": None, "hash_buckets": 9}
LEARNED = {"mean": 1.5, "variance": 4.0, "minimum": 0.0, "maximum": 9.0}
IDS = {"stored": "int64", "read": "ids", "hash_buckets": 9, "padding_id": -1}


def test_a_narrower_part_is_padded_as_its_kind_says() -> None:
    lists = {"length": "varying", "max_length": None}
    numbers = whole({"kind": "numbers", "stored": "float32", **lists})
    cases = [(MASK | {"ignore": 255}, 255), (MASK, 0), (LABELS, -100), (HASHED | {"padding_id": 7}, 7), (numbers, 0)]
    cases += [({"kind": "raw", "stored": "bytes", **lists}, b""),
        ({"kind": "own", "stored": "bytes", "shape": None}, b"")]  # fmt: skip
    cases += [(whole({"kind": "categories"}) | IDS, -1)]
    for description, expected in cases:
        one = {"x": np.full((1, 3), 1, type(expected) if expected != b"" else object), "x_beside": np.full((1, 3), 1)}
        other = {name: array[:, :2] for name, array in one.items()}
        found = merged([one, other], np.array([1, 0]), {"x": read_description(description)})
        assert found["x"].tolist() == [[1, 1, expected], [1, 1, 1]]
        assert found["x_beside"].tolist() == [[1, 1, 0], [1, 1, 1]]


def mixed_with(dataset: Dataset, description: dict[str, Any], change: dict[str, Any], **options: Any) -> Input:
    """Mixes a feature with that of a version where its description or its statistics differ."""
    given = {"batch_size": 4, "features": ["x"], "label": None, **options}
    both = []
    for changed in ({}, change):
        learned = {name: changed.get(name, figure) for name, figure in LEARNED.items()}
        described = description | {name: value for name, value in changed.items() if name not in learned}
        manifest = replace(dataset.manifest, label=None, features={"x": described}, statistics={"x": learned})
        both.append(Dataset(dataset.folder, manifest).training_input("train", **given))
    return mix(both, [1, 1])


@pytest.mark.parametrize(("description", "changes"), [
    (NUMBER, {"mean": 2.5, "variance": 5.0, "normalize": "none", "transform": "log1p", "clip": [0.0, 5.0]}),
    (NUMBER | {"normalize": "min_max"}, {"minimum": -1.0, "maximum": 8.0}),
    (NUMBER | {"stored": "int64", "boundaries": [1.0, 2.0]}, {"boundaries": [1.0, 3.0]}),
    (IMAGE, {"offset": [0.0, 1.0, 0.0], "scale": [0.5] * 3, "channel_order": "bgr", "pixel": "uint16"}),
    (MASK, {"classes": {"1": "cat"}, "ignore": 255, "image": "other"}),
    (POINTS, {"names": ["right", "left"], "flip_pairs": [], "skeleton": [[0, 1]]}),
    (LABELS, {"classes": ["B", "O"], "padding_id": -1, "text": "other"}),
    (HASHED, {"hash_buckets": 10, "first_id": 3, "padding_id": 5, "begin_id": 2, "tokenizer": "characters"}),
])  # fmt: skip
def test_values_of_another_meaning_are_not_mixed(
    description: dict[str, Any], changes: dict[str, Any], dataset: Dataset
) -> None:
    assert mixed_with(dataset, description, {}).batches_per_epoch == 5
    for field, value in changes.items():
        facts = value if isinstance(value, float) else ""
        with raises(DatasetError, "'x'", field, dataset.folder, facts, "without 'x'"):
            mixed_with(dataset, description, {field: value})


def test_other_forms_of_the_same_values_are_mixed(dataset: Dataset) -> None:
    mixed_with(dataset, IMAGE, {"offset": [9.0] * 3, "encoding": "raw"}, dtype="uint8")
    mixed_with(dataset, NUMBER, {"impute": "mean", "minimum": -1.0})
    mixed_with(dataset, NUMBER | {"normalize": "none"}, {"kind": "raw", "mean": 2.5})
    mixed_with(dataset, HASHED, {"max_length": 4}, text_length=4)
