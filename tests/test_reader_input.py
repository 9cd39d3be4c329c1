"""Inputs of a model: batches, orders, hosts, epochs and states, in every form alike."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill import Dataset, DatasetError, open_dataset
from recordmill.augment import (
    ColorJitter,
    CutMix,
    GaussianBlur,
    Mask,
    MixUp,
    RandAugment,
    RandomApply,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation,
    Views,
)
from recordmill.pipeline.reader.input import Input
from recordmill.transforms.base.stored import ArraySpec
from tests import hand_made
from tests.messages import raises

TRAIN = [f"row/{number}" for number in range(10)]
FORMS: dict[str, Callable[[Input], Iterator[Any]]] = {
    "numpy": lambda given: given.as_numpy(),
    "tf.data": lambda given: given.as_tf_data().as_numpy_iterator(),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Callable[[Input], Iterator[Any]]:
    return FORMS[request.param]


def of_hosts(make: Callable[..., Input], count: int, *split: str, **options: Any) -> list[Input]:
    """The inputs of several hosts, with keys."""
    return [make(*split, host_index=host, host_count=count, with_key=True, **options) for host in range(count)]


def keys(batches: Iterator[Any]) -> list[list[str]]:
    return [[key.decode() for key in batch[0]["key"]] for batch in batches]


def flat(batches: list[list[str]]) -> list[str]:
    return [key for batch in batches for key in batch]


def assert_equal(left: Any, right: Any) -> None:
    """Compares structures of arrays to the bit."""
    if isinstance(left, dict):
        assert list(left) == list(right)
        for name in left:
            assert_equal(left[name], right[name])
    elif isinstance(left, tuple):
        assert (type(left), len(left)) == (type(right), len(right))
        for mine, other in zip(left, right, strict=True):
            assert_equal(mine, other)
    else:
        assert getattr(left, "dtype", None) == getattr(right, "dtype", None)
        np.testing.assert_array_equal(left, right)


def test_threads_and_processes_make_the_same_batches(dataset: Dataset) -> None:
    first, *others = (
        list(dataset.training_input(batch_size=2, epochs=2, seed=4, with_key=True, **how).as_numpy())
        for how in ({"threads": 1}, {"threads": 5}, {"workers": 2})
    )
    assert len(first) == 10
    for other in others:
        assert_equal(tuple(first), tuple(other))


def test_epochs_in_one_iteration_are_those_of_several(dataset: Dataset, form: Any) -> None:
    several = dataset.training_input(batch_size=3, with_key=True)
    one = dataset.training_input(batch_size=3, epochs=3, with_key=True)
    assert keys(form(one)) == [batch for _ in range(3) for batch in keys(several.as_numpy())]
    assert len(one) == 9
    endless = dataset.training_input(batch_size=3, epochs=-1, with_key=True)
    with raises(TypeError, "epochs=-1"):
        len(endless)
    batches = form(endless)
    assert [keys(iter([next(batches)]))[0] for _ in range(9)] == keys(one.as_numpy())


@pytest.mark.parametrize("step", [1, 3, 11])
def test_a_resumed_input_goes_on_with_the_batches_that_would_have_come(step: int, dataset: Dataset, form: Any) -> None:
    whole = list(dataset.training_input(batch_size=3, epochs=4, seed=3, with_key=True).as_numpy())
    rest = list(form(dataset.training_input(batch_size=3, epochs=4, seed=3, with_key=True, start_step=step)))
    assert len(rest) == 12 - step
    assert_equal(tuple(whole[step:]), tuple(rest))


@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": "blocks"}, {"balance": True}, {"split": "train[:70%]+validation"}, {"drop_remainder": False}],
)
def test_a_state_goes_on(options: dict[str, Any], dataset: Dataset) -> None:
    def given() -> Input:
        return dataset.training_input(**{"split": "train", "batch_size": 3, "with_key": True, **options})

    first = given()
    expected = [keys(first.as_numpy()) for _ in range(3)]
    batches = given().as_numpy()
    begun = keys(iter([next(batches), next(batches)]))
    state = json.loads(json.dumps(batches.state()))
    assert len(json.dumps(state)) < 1000
    assert (state["step"], state["records"]) == (2, 6)
    resumed = given().resume(state)
    assert begun + keys(resumed.as_numpy()) == expected[0]
    assert [keys(resumed.as_numpy()) for _ in range(2)] == expected[1:]


@pytest.mark.parametrize("shuffle", ["global", "blocks"])
def test_the_seed_and_the_epoch_make_the_order(dataset: Dataset, shuffle: str) -> None:
    def epochs(seed: int) -> list[list[str]]:
        given = dataset.training_input(batch_size=3, seed=seed, shuffle=shuffle, drop_remainder=False, with_key=True)
        return [flat(keys(given.as_numpy())) for _ in range(3)]

    first = epochs(1)
    assert epochs(1) == first
    assert len({tuple(epoch) for epoch in [*first, *epochs(2), TRAIN]}) == 7
    assert all(sorted(epoch) == TRAIN for epoch in first)


def test_a_state_of_another_seed_is_refused(dataset: Dataset) -> None:
    state = dataset.training_input(batch_size=3).state(step=2)
    with raises(DatasetError, "seed: 0", "1"):
        dataset.training_input(batch_size=3, seed=1).resume(state)


def test_numbers_and_names_may_be_numpys(dataset: Dataset) -> None:
    options = {"batch_size": np.int64(3), "seed": np.uint8(5), "balance": np.False_, "features": np.array(["price"])}
    state = dataset.training_input(**options).state(np.int32(2))
    expected = dataset.training_input(batch_size=3, seed=5, features=["price"]).state(2)
    assert json.dumps(state) == json.dumps(expected)


def test_a_state_is_of_the_latest_iteration_or_of_a_step(dataset: Dataset) -> None:
    given = dataset.training_input(batch_size=3)
    with raises(DatasetError, "state()", "step"):
        given.state()
    batches = given.as_numpy()
    next(batches)
    assert given.state() == batches.state() == given.state(step=1)
    for _ in given.as_numpy():
        pass
    assert given.state() == given.state(step=6)  # though the iteration over the second epoch is gone
    assert given.state(step=7)["records"] == 21


def test_a_state_of_a_balance_by_another_label_is_refused(dataset: Dataset) -> None:
    state = dataset.training_input(batch_size=4, balance=True).state(1)
    other = dataset.training_input(batch_size=4, balance=True, label="colour")
    with raises(DatasetError, "label: 'category'", "'colour'", "same arguments"):
        other.resume(state)
    del state["label"]  # a state of an earlier release
    assert other.resume(state).source.given.start_step == 1


@pytest.mark.parametrize("order", [{}, {"shuffle": "blocks"}])
def test_hosts_may_become_more(dataset: Dataset, order: dict[str, Any]) -> None:
    def hosts(count: int, **options: Any) -> list[list[list[str]]]:
        given = of_hosts(dataset.training_input, count, batch_size=6 // count, **order, **options)
        return [keys(one.as_numpy()) for one in given]

    def together(parts: list[list[list[str]]]) -> list[list[str]]:
        return [sorted(flat(list(step))) for step in zip(*parts, strict=True)]

    assert together(hosts(3, epochs=4)) == together(hosts(1, epochs=4))
    state = dataset.training_input(batch_size=6, **order).state(step=2)
    resumed = dataset.training_input(batch_size=2, epochs=4, host_index=1, host_count=3, with_key=True, **order)
    assert keys(resumed.resume(state).as_numpy()) == hosts(3, epochs=4)[1][2:]


def test_a_state_keeps_its_lanes_and_one_of_the_order_before_is_refused(dataset: Dataset) -> None:
    state = dataset.training_input(batch_size=1, host_count=7, shuffle="blocks").state(step=1)
    assert state["lanes"] == 245
    alone = dataset.training_input(batch_size=7, shuffle="blocks").resume(state)
    assert alone.state(step=2)["lanes"] == 245
    for old in (None, 0, "240"):
        with raises(DatasetError, "lanes", "set_epoch(1)"):
            dataset.training_input(batch_size=7, shuffle="blocks").resume({**state, "lanes": old})


@pytest.mark.first(10)
@pytest.mark.parametrize("records", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_evaluation_is_complete_on_every_host(records: int, hosts: int, dataset: Dataset, form: Any) -> None:
    given = of_hosts(dataset.evaluation_input, hosts, f"train[:{records}]", batch_size=2, pad=True)
    parts = [list(form(one)) for one in given]
    assert {len(part) for part in parts} == {-(-records // (2 * hosts))}
    steps = [batch for step in zip(*parts, strict=True) for batch in step]
    assert all(len(features["key"]) == len(label) == len(weight) == 2 for features, label, weight in steps)
    there = [key.decode() for features, _, weight in steps for key in features["key"][weight > 0]]
    assert there == TRAIN[:records]
    assert sum(weight.sum() for *_, weight in steps) == records


def test_hosts_pad_by_default(dataset: Dataset) -> None:
    assert len(next(dataset.evaluation_input("train", batch_size=2, host_count=2).as_numpy())) == 3
    assert len(next(dataset.evaluation_input("train", batch_size=2).as_numpy())) == 2


@pytest.mark.parametrize("hosts", [2, 5])
def test_training_hosts_have_as_many_batches(hosts: int, dataset: Dataset) -> None:
    """Also with more hosts than shards."""
    parts = [flat(keys(one.as_numpy())) for one in of_hosts(dataset.training_input, hosts, batch_size=1)]
    assert {len(part) for part in parts} == {10 // hosts}
    assert sorted(key for part in parts for key in part) == TRAIN


@pytest.mark.parametrize(
    ("split", "rows"), [("train[3:5]+validation[1:]", [3, 4, 11, 12, 13, 14]), ("train[-2:]", [8, 9])]
)
def test_slices_are_read(split: str, rows: list[int], dataset: Dataset) -> None:
    expected = [f"row/{number}" for number in rows]
    assert flat(keys(dataset.evaluation_input(split, batch_size=3, with_key=True).as_numpy())) == expected
    given = dataset.training_input(split, batch_size=1, with_key=True)
    assert sorted(flat(keys(given.as_numpy()))) == sorted(expected)


@pytest.mark.parametrize(("drop_remainder", "sizes"), [(True, [4, 4]), (False, [4, 4, 2])])
def test_the_remainder_is_left_out_or_kept(drop_remainder: bool, sizes: list[int], dataset: Dataset, form: Any) -> None:
    given = dataset.training_input(batch_size=4, drop_remainder=drop_remainder, with_key=True)
    assert [len(batch) for batch in keys(form(given))] == sizes
    assert len(given) == given.batches_per_epoch == len(sizes) == given.as_tf_data().cardinality()
    assert dataset.batches_per_epoch("train", 4, drop_remainder=drop_remainder) == len(sizes)
    features, label = given.element_spec
    rows = 4 if drop_remainder else None
    assert features["image"] == ArraySpec((rows, hand_made.HEIGHT, hand_made.WIDTH, 3), "float32")
    assert features["text"] == ArraySpec((rows, 3), "int64")
    assert features["key"] == ArraySpec((rows,), "bytes")
    assert label == ArraySpec((rows,), "int64")


def test_tf_data_says_how_many_batches_there_are(dataset: Dataset) -> None:
    def cardinality(**options: Any) -> int:
        return int(dataset.training_input(batch_size=3, **options).as_tf_data().cardinality())

    assert cardinality() == cardinality(start_step=3) == 3
    assert cardinality(epochs=4) == 12
    assert cardinality(epochs=4, start_step=5) == 7
    assert cardinality(on_error="skip", host_count=3) == 1  # another record takes the place of a damaged one
    assert cardinality(epochs=-1) == tf.data.INFINITE_CARDINALITY
    assert cardinality(start_step=2) == cardinality(on_error="skip") == tf.data.UNKNOWN_CARDINALITY


@pytest.mark.parametrize("split", ["train", "test"])
def test_only_the_chosen_features_are_read(split: str, dataset: Dataset) -> None:
    training = dataset.training_input(split, batch_size=2, features=["text", "price"])
    evaluation = dataset.evaluation_input(split, batch_size=2, features=["text", "price"])
    assert list(training.element_spec[0]) == list(evaluation.element_spec[0]) == ["text", "price"]
    for batch in training.as_numpy():
        assert list(batch[0]) == ["text", "price"]


def test_an_empty_split_gives_no_batch_of_the_same_shapes(dataset: Dataset, form: Any) -> None:
    empty = dataset.training_input("test", batch_size=4)
    assert (list(form(empty)), len(empty), empty.as_tf_data().cardinality()) == ([], 0, 0)
    assert empty.element_spec == dataset.training_input("train", batch_size=4).element_spec
    empty = dataset.evaluation_input("test", batch_size=4)
    assert (list(form(empty)), len(empty)) == ([], 0)
    assert empty.state(step=0)["records"] == 0


def test_another_label_or_none(dataset: Dataset, form: Any) -> None:
    features, price = next(iter(form(dataset.evaluation_input("train", batch_size=2, label="price"))))
    assert price.tolist() == [0.0, 0.125]
    assert features["category"].tolist() == [0, 1]
    alone = next(iter(form(dataset.evaluation_input("train", batch_size=2, label=None, features=["count"]))))
    assert alone["count"].tolist() == [0, -1]


def test_packed_texts_have_any_number_of_rows(dataset: Dataset, form: Any) -> None:
    given = dataset.training_input(batch_size=3, features=["text"], label=None, text="packed", text_length=3)
    assert given.element_spec["text"] == ArraySpec((None, 3), "int64")
    assert {array.shape[1] for batch in form(given) for array in batch.values()} == {3}


def test_ragged_texts_are_ragged_tensors(dataset: Dataset) -> None:
    for native in (False, True):
        given = dataset.evaluation_input("train", batch_size=3, features=["text"], text="ragged")
        features, label = next(iter(given.as_tf_data(native=native)))
        assert features["text"].to_list() == [[], [3], [4, 5]]
        assert label.shape[0] in (3, None)
        assert label.numpy().tolist() == [0, 1, 0]


@pytest.mark.parametrize(("options", "facts"), [
    ({"shuffle": "all"}, ("shuffle", "global, blocks, none", "'all'")),
    ({"on_error": "x"}, ("on_error", "raise, skip", "'x'")),
    ({"host_index": 2, "host_count": 2}, ("host_index", "host_count - 1", "2 of 2")),
    ({"batch_size": 4, "host_count": 3}, ("batch of 4", "3 hosts", "smaller batch_size")),
    ({"epochs": 0}, ("epochs", "at least 1", "got 0")),
    ({"start_step": -1}, ("start_step", "at least 0", "got -1")),
    ({"threads": 0}, ("threads", "at least 1", "got 0")),
    ({"dtype": "int8"}, ("dtype", "uint8, uint16, float32, bfloat16", "'int8'")),
    ({"features": ["price"], "dtype": "uint8"}, ("dtype='uint8'", "image", "leave it out")),
    ({"text": "rows"}, ("text", "padded, bucketed, ragged, packed", "'rows'")),
    ({"features": ["price"], "text": "ragged"}, ("text='ragged'", "leave it out")),
    ({"text": "bucketed"}, ("text='bucketed'", "'image'", "text='padded'")),
    ({"text": "packed"}, ("text='packed'", "image, text", "label=None")),
    ({"text_length": 0}, ("text_length", "at least 1", "0")),
    ({"label": "price", "balance": True}, ("balance=True", "category", "got number")),
    ({"split": "train[:x]"}, ("'train[:x]'", "train[100:200]")),
    ({"augment": ["flip"]}, ("augment", "'flip'")),
    ({"augment": {"text": []}}, ("augment", "'text'", "image")),
])  # fmt: skip
def test_a_wrong_argument_is_named(options: dict[str, Any], facts: tuple[str, ...], dataset: Dataset) -> None:
    with raises(DatasetError, *facts):
        dataset.training_input(**{"batch_size": 1, **options})


def test_classes_are_balanced(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path)
    split = "train[:1]+train[1:2]+train[3:4]+train[5:6]"
    given = open_dataset(tmp_path).training_input(split, batch_size=2, balance=True)
    assert [sorted(label.tolist()) for _ in range(3) for _, label in given.as_numpy()] == [[0, 1]] * 6


def test_buckets_take_little_padding(tmp_path: Path) -> None:
    features = {name: hand_made.FEATURES[name] for name in ("text", "category")}
    hand_made.write_dataset(tmp_path, features)
    given = open_dataset(tmp_path).training_input(batch_size=2, text="bucketed", text_length="longest", with_key=True)
    batches = [features for features, _ in given.as_numpy()]
    assert sorted(batch["text"].shape[1] for batch in batches) == [0, 1, 1, 2, 3]
    assert sorted(flat([[key.decode() for key in batch["key"]] for batch in batches])) == TRAIN


AUGMENT = [RandomCrop((4, 5), pad=1), RandomFlip(vertical=0.5), ColorJitter(brightness=0.3, contrast=0.2)]
POLICY = [RandAugment(), RandomErasing(fill="random"), Views([RandomRotation(20), RandomApply([GaussianBlur(3)])])]


@pytest.mark.parametrize(
    "augment",
    [AUGMENT, {"image": AUGMENT}, [*AUGMENT, MixUp(0.4)], [CutMix()], POLICY],
    ids=["list", "dictionary", "MixUp", "CutMix", "policy"],
)
def test_augmentations_are_the_same_in_every_form(augment: Any, dataset: Dataset) -> None:
    def given(**options: Any) -> Input:
        return dataset.training_input(batch_size=5, seed=4, dtype="uint8", augment=augment, epochs=2, **options)

    first, *others = (list(form(given())) for form in FORMS.values())
    assert first[0][0]["image"].shape[1:] == (given().element_spec[0]["image"].shape[1:])
    for other in others:
        assert_equal(tuple(first), tuple(other))
    assert_equal(tuple(first[2:]), tuple(given(start_step=2).as_numpy()))
    plain = list(dataset.training_input(batch_size=5, seed=4, dtype="uint8", epochs=2).as_numpy())
    images = [(mine[0]["image"], other[0]["image"]) for mine, other in zip(first, plain, strict=True)]
    assert not all(np.array_equal(*both) for both in images)
    if isinstance(augment, list) and isinstance(augment[-1], MixUp | CutMix):
        assert given().element_spec[1] == ArraySpec((5, 2), "float32")
        np.testing.assert_allclose(first[0][1].sum(1), 1)


def test_views_of_an_image_with_boxes_are_refused_at_once(tmp_path: Path) -> None:
    boxes = {"kind": "boxes", "image": "image", "stored": "float32", "length": "varying", "max_length": None}
    hand_made.write_dataset(tmp_path, {**hand_made.FEATURES, "mask": hand_made.image(), "boxes": boxes})
    dataset = open_dataset(tmp_path)
    facts = "boxes", "features=[…]"
    for augment in ([Views([RandomFlip()])], {"image": [RandomFlip(), Views([])]}, {"image": Mask([Views([])])}):
        with raises(DatasetError, *facts):
            dataset.training_input(batch_size=2, augment=augment)
    dataset.training_input(batch_size=2, augment={"mask": [Views([])]})
    dataset.training_input(batch_size=2, augment=[Views([])], features=["image"])


def test_views_in_a_batch_have_one_height(tmp_path: Path) -> None:
    """Else `reshape`, which separates them, would cut at other rows."""
    hand_made.write_dataset(tmp_path, {"image": {**hand_made.image(), "shape": [None, None, 3]}}, label=None)
    dataset = open_dataset(tmp_path)
    with raises(DatasetError, "'image'", "height", "RandomResizedCrop"):
        dataset.training_input(batch_size=2, augment=[RandomFlip(), Views([RandomFlip()])])
    given = dataset.training_input(batch_size=2, augment=[Views([RandomResizedCrop(3)])])
    assert given.element_spec["image"].shape == (2, 6, 3, 3)


def test_a_function_of_the_users_augments(dataset: Dataset) -> None:
    def noise(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, 256, pixels.shape, np.uint8)

    given = dataset.training_input(batch_size=10, augment=[noise], dtype="uint8")
    (features, _), (again, _) = next(given.as_numpy()), next(given.resume(given.state(step=0)).as_numpy())
    np.testing.assert_array_equal(features["image"], again["image"])
    assert len({image.tobytes() for image in features["image"]}) == 10


def test_a_mask_moves_with_its_image(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path, {**hand_made.FEATURES, "mask": hand_made.image()})
    moves = [RandomResizedCrop((4, 4)), RandomFlip()]
    augment = {"image": [*moves, ColorJitter(brightness=0.5)], "mask": Mask(moves)}
    given = open_dataset(tmp_path).training_input(batch_size=10, augment=augment, dtype="uint8")
    plain = open_dataset(tmp_path).training_input(batch_size=10, dtype="uint8")
    changed, before = (next(one.as_numpy())[0] for one in (given, plain))
    for mask, whole in zip(changed["mask"], before["mask"], strict=True):
        assert set(mask.reshape(-1, 3)[:, 0].tolist()) <= set(whole.reshape(-1, 3)[:, 0].tolist())
    assert not np.array_equal(changed["image"], changed["mask"])
