"""Categories: ids by vocabulary position, by hash, and of crossed features."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from pydantic import ValidationError

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.category import Category, check_not_crossed, read_classes
from recordmill.pipeline.spec.features.raw import Raw
from recordmill.transforms.tensorflow import category
from recordmill.transforms.tensorflow.features import KINDS
from recordmill.transforms.tensorflow.kind import Context, Prepared, Statistics
from tests.messages import raises
from tests.running import BOTH_WAYS, Run, lookup_of

NAMES = tf.constant(["cat", "dög", "with space", "never seen", ""])
LOOKUP = lookup_of("cat", "dög", "with space")


def prepared(column: tf.Tensor, is_label: bool = False, **given: Any) -> Prepared:
    options = Category(kind="category", **given).options(is_label=is_label)
    return category.prepare(options, column, Context())


IDS: list[Any] = [
    ({"is_label": True}, [0, 1, 2, -1, -1]),
    ({}, [1, 2, 3, 0, 0]),
    ({"optional": True}, [1, 2, 3, 0, 0]),
    ({"oov_buckets": 1}, [2, 3, 4, 1, 0]),
    ({"oov_buckets": 9}, [10, 11, 12, 5, 0]),
    ({"hash_buckets": 9}, [3, 1, 1, 5, 0]),
    ({"hash_buckets": 1}, [1, 1, 1, 1, 0]),
]


@BOTH_WAYS
@pytest.mark.parametrize(("given", "ids"), IDS)
def test_ids_of_known_unknown_and_missing_names(given: dict[str, Any], ids: list[int], run: Run) -> None:
    stored = run(lambda column: prepared(column, **given).store(Statistics(lookup=LOOKUP)), NAMES)
    assert (stored[""].dtype, stored[""].numpy().tolist()) == (tf.int64, ids)
    assert KINDS["category"].features({}, stored)[""].numpy().tolist() == ids


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"is_label": True}, ["cat", "dög", "with space", "never seen", ""]),
        ({}, ["cat", "dög", "with space", "never seen", ""]),
        ({"optional": True}, ["cat", "dög", "with space", "never seen"]),
        ({"classes": ["cat"]}, None),
        ({"hash_buckets": 2}, None),
    ],
)
def test_no_feature_learns_what_is_missing(given: Any, names: list[str] | None) -> None:
    tokens = prepared(NAMES, **given).tokens
    assert (None if tokens is None else [name.decode() for name in tokens().numpy().tolist()]) == names
    options = {name: value for name, value in given.items() if name != "is_label"}
    assert Category(kind="category", **options).analyzed == bool(names)


@pytest.mark.parametrize("given", [{}, {"oov_buckets": 2}, {"hash_buckets": 2}, {"optional": True}])
def test_no_rows_give_no_ids(given: dict[str, Any]) -> None:
    assert prepared(tf.constant([], tf.string), **given).store(Statistics(lookup=LOOKUP))[""].shape == [0]


@BOTH_WAYS
def test_a_cross_is_the_hash_of_all_names_in_their_places(run: Run) -> None:
    options = Category(kind="category", cross=("a", "b"), hash_buckets=1000).options(is_label=False)

    def crossed(columns: dict[str, tf.Tensor]) -> tf.Tensor:
        return category.prepare(options, None, Context(columns)).store(Statistics())[""]

    columns = {"a": tf.constant(["x", "xy", "y", "x"]), "b": tf.constant(["yz", "z", "", "yz"]), "c": NAMES[:4]}
    ids = run(crossed, columns).numpy().tolist()
    expected = 1 + tf.strings.to_hash_bucket_fast(["x\nyz", "xy\nz"], 1000).numpy()
    assert ids == [*expected, 0, expected[0]]
    assert expected[0] != expected[1]  # the boundary counts


DESCRIBED: list[Any] = [
    ({}, False, {"vocabulary": "v.txt", "vocabulary_size": 4, "unknown_id": 0, "first_id": 1}),
    ({}, True, {"vocabulary": "v.txt", "vocabulary_size": 3, "unknown_id": None, "first_id": 0}),
    (
        {"oov_buckets": 5},
        False,
        {"vocabulary": "v.txt", "vocabulary_size": 9, "unknown_id": 1, "first_id": 6, "oov_buckets": 5},
    ),
    ({"hash_buckets": 10}, False, {"vocabulary_size": 11, "hash_buckets": 10}),
    (
        {"hash_buckets": 10, "cross": ["a", "b"]},
        False,
        {"vocabulary_size": 11, "hash_buckets": 10, "cross": ["a", "b"]},
    ),
]


@pytest.mark.parametrize(("given", "is_label", "expected"), DESCRIBED)
def test_the_description_tells_the_ids(given: dict[str, Any], is_label: bool, expected: dict[str, Any]) -> None:
    feature = Category(kind="category", **given)
    description = feature.describe({"is_label": is_label, "vocabulary": "v.txt", "words": 3})
    assert description.to_json() == {"kind": "category", "stored": "int64", **expected}
    named = description.tfds()["pythonClassName"].endswith("ClassLabel")
    assert named == ("vocabulary" in expected and "oov_buckets" not in expected)
    column = None if "cross" in given else Column(ColumnType.CATEGORY)
    assert feature.raw_column() == column
    assert Category.model_validate(feature.model_dump(mode="json")) == feature


MISTAKES: list[Any] = [
    ({"classes": ["a", "a"]}, ("'a'", "2 times")),
    ({"classes": [" "]}, ("one line",)),
    ({"classes": ["a"], "classes_file": "a.txt"}, ("`classes`", "`classes_file`")),
    ({"classes": ["a"], "max_classes": 2}, ("`max_classes`",)),
    ({"classes_file": "a.txt", "minimum_count": 2}, ("`minimum_count`", "or `classes`")),
    ({"hash_buckets": 2, "minimum_count": 2}, ("`minimum_count`", "or `hash_buckets`")),
    ({"hash_buckets": 2, "classes": ["a"]}, ("`hash_buckets`", "unknown")),
    ({"hash_buckets": 2, "oov_buckets": 2}, ("`hash_buckets`", "unknown")),
    ({"cross": ["a", "b"]}, ("`cross`", "`hash_buckets`")),
    ({"cross": ["a"], "hash_buckets": 2}, ("two features",)),
    ({"cross": ["a", "a"], "hash_buckets": 2}, ("once",)),
    ({"cross": ["a", "b"], "hash_buckets": 2, "column": "c"}, ("`column` and `optional`",)),
]


@pytest.mark.parametrize(("given", "facts"), MISTAKES)
def test_options_that_make_no_sense_are_told(given: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        Category(kind="category", **given)


@pytest.mark.parametrize("given", [{"max_classes": 2}, {"minimum_count": 2}, {"oov_buckets": 2}, {"hash_buckets": 2}])
def test_every_class_of_a_label_has_an_id(given: dict[str, Any]) -> None:
    Category(kind="category", classes=("a",)).check_label()
    with raises(WrongValueError, "label", "`classes`") as raised:
        Category(kind="category", **given).check_label()
    assert raised.value.path == tuple(given)


@pytest.mark.parametrize(
    ("other", "facts"),
    [("dau", ("'dau'", "day")), ("note", ("'note'", "kind raw")), ("x", ("'x'", "cross")),
     ("day", None)],
)  # fmt: skip
def test_a_cross_is_of_categories(other: str, facts: tuple[str, ...] | None) -> None:
    plain = {name: Category(kind="category") for name in ("hour", "day")}
    cross = Category(kind="category", cross=("hour", other), hash_buckets=9)
    features = {**plain, "note": Raw(kind="raw"), "x": cross.model_copy(update={"cross": ("hour", "day")})}
    features["hour"].check(features)
    if facts is None:
        cross.check(features)
    else:
        with raises(WrongValueError, *facts):
            cross.check(features)


def test_a_cross_is_not_of_the_label() -> None:
    features = {"hour": Category(kind="category"), "x": Category(kind="category", cross=("a", "b"), hash_buckets=9)}
    check_not_crossed("hour", features)
    with raises(WrongValueError, "'b'", "label") as raised:
        check_not_crossed("b", features)
    assert raised.value.path == ("features", "x", "cross")


BAD_FILES = [
    ("blank.txt", b"a\n\nb\n", ("blank.txt, line 2", "one line")),
    ("empty.txt", b"", ("empty.txt, line 1", "one line")),
    ("twice.txt", b"a\na", ("twice.txt", "'a'", "2 times")),
    ("bytes.txt", b"a\n\xff", ("bytes.txt", "UTF-8", "byte 2")),
    ("none.txt", None, ("none.txt", "No such file")),
]


def test_classes_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_bytes("\ufeffcat\r\ndög\nwith space\u0085\n".encode())
    names = ("cat", "dög", "with space\u0085")
    assert read_classes(tmp_path / "good.txt") == names
    feature = Category(kind="category", classes_file=str(tmp_path / "good.txt"))
    assert feature.with_classes() == Category(kind="category", classes=names) == feature.with_classes().with_classes()
    for name, content, facts in BAD_FILES:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with raises(ValueError, *facts):
            read_classes(tmp_path / name)
