"""Categories: options that do not go together, crosses, labels, and files of classes."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from recordmill.pipeline.errors import WrongValueError
from recordmill.transforms.values.category_spec import Categories, Category, check_not_crossed, read_classes
from recordmill.transforms.values.values_spec import Raw
from tests.messages import raises

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
MISTAKES_OF_LISTS: list[Any] = [
    ({"oov_buckets": 0}, ("equal to 1",)),
    ({"hash_buckets": 2, "oov_buckets": 2}, ("unknown",)),
    ({"cross": ["a", "b"]}, ("cross", "Extra")),
    ({"length": 1, "max_length": 1}, ("`length`", "`max_length`")),
]


@pytest.mark.parametrize(
    ("kind", "given", "facts"),
    [*((Category, *each) for each in MISTAKES), *((Categories, *each) for each in MISTAKES_OF_LISTS)],
)
def test_options_that_make_no_sense_are_told(kind: Any, given: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        kind(kind=kind.__name__.lower(), **given)


@pytest.mark.parametrize("kind", [Category, Categories])
@pytest.mark.parametrize("given", [{"max_classes": 2}, {"minimum_count": 2}, {"oov_buckets": 2}, {"hash_buckets": 2}])
def test_every_class_of_a_label_has_an_id(given: dict[str, Any], kind: Any) -> None:
    kind(kind=kind.__name__.lower(), classes=("a",)).check_label()
    with raises(WrongValueError, "label", "`classes`") as raised:
        kind(kind=kind.__name__.lower(), **given).check_label()
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
