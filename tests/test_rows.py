"""Blocks of a source become keyed rows: final types, key, split, shard; labels that are no class are rejects."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.columns import ARROW_TYPES, ColumnType
from pipeline.keys import hash_key, join_key
from pipeline.layout import Layout
from pipeline.rejects import Reject
from pipeline.rows import RowFormat, key_rows
from pipeline.sources.base import Block, Chunk

COLUMNS = {
    "text": ColumnType.TEXT,
    "kind": ColumnType.CATEGORY,
    "price": ColumnType.NUMBER,
    "count": ColumnType.INTEGER,
    "file": ColumnType.PATH,
}
FEATURES = {"words": "text", "kind": "kind", "price": "price", "count": "count", "image": "file"}
DATA: dict[str, list[Any]] = {
    "text": ["ü b", "", "c"],
    "kind": ["cat", "dog", "cat"],
    "price": [0.1, -0.0, 3.0e38],
    "count": [2**63 - 1, -(2**63), 0],
    "file": ["a/1.png", "a/2.png", "b.png"],
    "@position": [0, 2, 5],
    "@key": [b"k0", b"k1", b"\xff"],
}
LAYOUT = Layout({"train": 1, "test": 1}, {"train": 4, "test": 2})
CHUNK = Chunk(index=7, source=2, file="rows.jsonl", bytes=100)


def block(data: dict[str, list[Any]] = DATA, rejects: list[Reject] | None = None) -> Block:
    types = {name: ARROW_TYPES[kind] for name, kind in COLUMNS.items()} | {"@position": pa.int64(), "@key": pa.binary()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in data.items()})
    return Block(table, rejects or [], positions=6)


def form(**changes: Any) -> RowFormat:
    options = {"columns": COLUMNS, "features": FEATURES, "key": None, "label": "kind", "classes": None}
    return RowFormat(**(options | changes))


def test_features_come_in_their_final_types() -> None:
    rows, rejects = key_rows(block(), CHUNK, form(), LAYOUT)
    assert rejects == []
    assert {name: rows.schema.field(name).type for name in FEATURES} == {
        "words": pa.binary(),
        "kind": pa.binary(),
        "price": pa.float32(),
        "count": pa.int64(),
        "image": pa.binary(),
    }
    assert rows["words"].to_pylist() == ["ü b".encode(), b"", b"c"]
    assert rows["price"].to_pylist() == np.array(DATA["price"], np.float32).tolist()
    assert rows["count"].to_pylist() == DATA["count"]


def test_a_row_knows_where_it_was_read_and_where_it_goes() -> None:
    rows, _ = key_rows(block(), CHUNK, form(), LAYOUT)
    hashes = [hash_key(key) for key in DATA["@key"]]
    assert rows["@key"].to_pylist() == DATA["@key"]
    assert rows["@hash"].to_pylist() == [hash_.position for hash_ in hashes]
    assert rows["@sample"].to_pylist() == [hash_.sample for hash_ in hashes]
    assert rows["@split"].to_pylist() == [hash_.split >> 63 for hash_ in hashes]  # two equal halves
    first_bits = [(hash_.position >> 62) if not hash_.split >> 63 else 4 + (hash_.position >> 63) for hash_ in hashes]
    assert rows["@group"].to_pylist() == first_bits
    places = rows.select(["@source", "@chunk", "@position"]).to_pylist()
    assert places == [{"@source": 2, "@chunk": 7, "@position": position} for position in (0, 2, 5)]


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (["kind"], [b"cat", b"dog", b"cat"]),
        (["text", "count"], [join_key([t, str(c)]) for t, c in zip(DATA["text"], DATA["count"], strict=True)]),
    ],
)
def test_named_columns_are_the_key(key: list[str], keys: list[bytes]) -> None:
    without = {name: values for name, values in DATA.items() if name != "@key"}
    rows, _ = key_rows(block(without), CHUNK, form(key=key), LAYOUT)
    assert rows["@key"].to_pylist() == keys


def test_a_label_that_is_no_class_is_a_reject_beside_those_of_the_source() -> None:
    bad = Reject(7, 1, "malformed_row", "the line is no JSON")
    rows, rejects = key_rows(block(rejects=[bad]), CHUNK, form(classes=("cat",)), LAYOUT)
    assert rows["@position"].to_pylist() == [0, 5]
    unknown = Reject(7, 2, "unknown_label", "label 'dog' is none of the 1 classes of the spec", "k1", "kind")
    assert rejects == [bad, unknown]


def test_a_long_label_is_cut_in_its_message() -> None:
    _, (reject,) = key_rows(
        block({name: (["x" * 1000] if name == "kind" else values[:1]) for name, values in DATA.items()}),
        CHUNK,
        form(classes=("cat",)),
        LAYOUT,
    )
    assert "x" * 100 in reject.message
    assert "x" * 101 not in reject.message


def test_a_column_may_have_any_name() -> None:
    data = {name: DATA[name] for name in ("@position", "@key")} | {"position": [7, 8, 9], "key": ["x", "y", "z"]}
    types = {"@position": pa.int64(), "@key": pa.binary(), "position": pa.int64(), "key": pa.string()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in data.items()})
    columns = {"position": ColumnType.INTEGER, "key": ColumnType.TEXT}
    rows, _ = key_rows(
        Block(table, [], positions=6),
        CHUNK,
        form(columns=columns, features={"position": "position", "k": "key"}, label=None),
        LAYOUT,
    )
    assert rows["position"].to_pylist() == [7, 8, 9]
    assert rows["k"].to_pylist() == [b"x", b"y", b"z"]
    assert rows["@key"].to_pylist() == DATA["@key"]


@pytest.mark.parametrize("classes", [None, ("none of them",)])
def test_no_rows_keep_the_schema(classes: tuple[str, ...] | None) -> None:
    some, _ = key_rows(block(), CHUNK, form(), LAYOUT)
    empty = {name: values if classes else [] for name, values in DATA.items()}
    none, rejects = key_rows(block(empty), CHUNK, form(classes=classes), LAYOUT)
    assert none.schema == some.schema
    assert (none.num_rows, len(rejects)) == (0, 3 if classes else 0)
