"""`dataset.yaml` as options: defaults, paths, columns, the schema for editors."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.images.image_spec import Image
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.values.category_spec import Category
from recordmill.transforms.values.values_spec import Number, Raw
from tests.messages import raises

SMALLEST = """
name: small
source: {format: jsonl, path: rows.jsonl}
features:
  image: {kind: image, size: [8, 6]}
  text: {kind: text}
  category: {kind: category}
  number: {kind: number}
  raw: {kind: raw}
"""


def test_defaults_which_nobody_can_change() -> None:
    spec = parse_spec(SMALLEST)
    assert spec.splits == {"train": 80.0, "validation": 10.0, "test": 10.0}
    assert (spec.key, spec.label, spec.shards) == (None, None, None)
    assert [(source.format, source.path) for source in spec.source] == [("jsonl", "rows.jsonl")]
    assert spec.features == {
        "image": Image(
            kind="image", size=(8, 6), channels=3, fit="pad", store="auto", quality=95, normalize="zero_one",
            background=(255, 255, 255), max_pixels=64_000_000, max_bytes=64 << 20,
        ),
        "text": Text(kind="text", tokenizer="words", vocabulary=32_000, minimum_count=1, max_length=None),
        "category": Category(kind="category", classes=None),
        "number": Number(kind="number", normalize="z_score"),
        "raw": Raw(kind="raw", type="bytes"),
    }  # fmt: skip
    assert {feature.column for feature in spec.features.values()} == {None}
    with raises(ValidationError, "frozen"):
        spec.name = "other"  # type: ignore[misc]
    with raises(ValidationError, "frozen"):
        spec.features["text"].vocabulary = 3  # type: ignore[misc, union-attr]


@pytest.mark.parametrize(
    ("more", "attribute", "value"),
    [
        ("key: id", "key", ("id",)),
        ("key: [user, day]", "key", ("user", "day")),
        ("splits: {train: 1}", "splits", {"train": 1.0}),
        ("splits: {train: 1e-3}", "splits", {"train": 0.001}),  # YAML 1.1 reads it as text
        ("splits: {test: 0, train: 3}", "splits", {"test": 0.0, "train": 3.0}),
        ("shards: 4", "shards", 4),
        ("shards: {train: 8}", "shards", {"train": 8}),
        ("label: number", "label", "number"),
    ],
)
def test_what_is_given_is_taken(more: str, attribute: str, value: Any) -> None:
    assert getattr(parse_spec(SMALLEST + more), attribute) == value


def test_several_sources_keep_their_order_and_merge_keys_and_aliases_are_taken() -> None:
    two = "[{format: jsonl, path: b.jsonl}, {format: jsonl, path: a.jsonl}]"
    spec = parse_spec(SMALLEST.replace("{format: jsonl, path: rows.jsonl}", two))
    assert [source.path for source in spec.source] == ["b.jsonl", "a.jsonl"]
    spec = parse_spec("""
name: merged
source: &rows {format: jsonl, path: rows.jsonl}
features:
  one: &image {kind: image, size: [8, 6], quality: 50}
  two: {<<: *image, size: [4, 4]}
  three: *image
""")
    images = [each for each in spec.features.values() if isinstance(each, Image)]
    assert [(each.size, each.quality) for each in images] == [((8, 6), 50), ((4, 4), 50), ((8, 6), 50)]


def test_columns_are_those_of_features_and_key() -> None:
    shared = SMALLEST.replace("{kind: raw}", "{kind: text, column: text}")
    assert list(parse_spec(shared).columns()) == ["image", "text", "category", "number"]
    with_key = parse_spec(SMALLEST + "key: [id, text]")
    assert with_key.columns() == {
        "image": Column(ColumnType.IMAGE),
        "text": Column(ColumnType.TEXT),
        "category": Column(ColumnType.CATEGORY),
        "number": Column(ColumnType.NUMBER),
        "raw": Column(ColumnType.TEXT),
        "id": Column(ColumnType.CATEGORY),
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rows.jsonl", "{folder}/rows.jsonl"),
        ("../up/*.jsonl", "{folder}/../up/*.jsonl"),
        ("/absolute/rows.jsonl", "/absolute/rows.jsonl"),
        ("gs://bucket/rows.jsonl", "gs://bucket/rows.jsonl"),
    ],
)
def test_paths_are_relative_to_the_folder_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "dataset.yaml").write_text(SMALLEST.replace("rows.jsonl", path))
    monkeypatch.chdir(tmp_path)
    spec = load_spec("inner/dataset.yaml")
    assert spec.source[0].path == path
    assert spec.resolved_sources()[0].path == expected.format(folder=tmp_path / "inner")


@pytest.mark.parametrize(
    ("name", "content", "reason", "data"),
    [
        ("dataset.yaml", None, "No such file", "DATA -o {}"),
        ("dataset.yaml", b"name: \xff", "UTF-8", "{}"),
        ("t.CSV", b"text,label\na,b\n", "got text", "{}"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes | None, reason: str, data: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with raises(SpecError, f"{path}: ", reason, f"`recordmill init {data.format(path)}`"):
        load_spec(path)


def test_a_spec_that_is_no_text_is_refused() -> None:
    with raises(DatasetError, "text", "{'name': 'x'}"):
        parse_spec({"name": "x"})  # type: ignore[arg-type]


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in ("key", "train"))
FEATURES = st.one_of(
    st.fixed_dictionaries({"kind": st.just("number")}, optional={"normalize": st.sampled_from(["z_score", "none"])}),
    st.fixed_dictionaries(
        {"kind": st.just("text")}, optional={"vocabulary": st.integers(1), "max_length": st.integers(1) | st.none()}
    ),
    st.fixed_dictionaries({"kind": st.just("raw")}, optional={"type": st.sampled_from(["bytes", "int64", "float32"])}),
    st.fixed_dictionaries(
        {"kind": st.just("category")},
        optional={"classes": st.lists(st.text("aä :#-[1\t'\"", min_size=1).filter(str.strip), min_size=1, unique=True)},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("image"), "size": st.tuples(*[st.integers(1, 16_384)] * 2)},
        optional={"background": st.tuples(*[st.integers(0, 255)] * 3), "channels": st.sampled_from([1, 3])},
    ),
)
SPECS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "source": st.just({"format": "jsonl", "path": "ä: #.jsonl"}),
        "features": st.dictionaries(NAMES, FEATURES, min_size=1, max_size=4),
    },
    optional={
        "key": st.lists(st.text(min_size=1), min_size=1, max_size=2).map(lambda names: [f"key_{n}" for n in names]),
        "splits": st.dictionaries(NAMES, st.just(0.0) | st.floats(0.001, 100)).map(
            lambda splits: splits | {"train": 1.5}
        ),
        "shards": st.integers(0, 16).map(lambda power: 1 << power),
    },
)


@settings(max_examples=50)
@given(SPECS)
def test_a_valid_spec_comes_back_from_yaml(options: dict[str, Any]) -> None:
    spec = Spec.model_validate(options)
    for written in (options, spec.model_dump(mode="json")):
        text = yaml.safe_dump(json.loads(json.dumps(written)), sort_keys=False)
        assert parse_spec(text) == spec


def properties(schema: Any) -> list[tuple[str, dict[str, Any]]]:
    """Every property of every object of a schema."""
    if not isinstance(schema, dict):
        return []
    own = list(schema.get("properties", {}).items())
    return own + [found for inner in schema.values() for found in properties(inner)]


def test_editors_can_explain_every_option() -> None:
    found = properties(Spec.model_json_schema())
    options = [(name, option) for name, option in found if name not in ("kind", "format")]
    assert len(options) > 20
    assert [name for name, option in options if not option.get("description")] == []


def test_editors_take_each_form_of_an_option() -> None:
    schema, types = Spec.model_json_schema(), {"object", "string", "array"}

    def leaves(part: dict[str, Any]) -> list[str]:
        inner = [*part.get("anyOf", []), *part.get("oneOf", [])]
        if "$ref" in part:
            return leaves(schema["$defs"][part["$ref"].rpartition("/")[2]])
        return [kind for one in inner for kind in leaves(one)] or [part["type"]]

    for option, wanted in (("source", types), ("key", types), ("shards", {"integer", "object"})):
        assert set(leaves(schema["properties"][option])) - {"null"} == wanted
