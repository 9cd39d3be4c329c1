"""Blocks of a source become keyed rows: final types, key, split, shard; unknown labels are rejects."""

import hashlib
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.context.build_context import RowSchema
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.dataset.placement import Layout, hash_key, join_key
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.images import to_piece
from recordmill.pipeline.sources.source_reader import Block, Chunk
from recordmill.pipeline.sources.typing.arrays import arrow_type
from recordmill.pipeline.spec.split_by import SplitBy
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.images.image_header import ImageError
from tests.messages import assert_names

COLUMNS = {
    "text": Column(ColumnType.TEXT),
    "kind": Column(ColumnType.CATEGORY),
    "price": Column(ColumnType.NUMBER),
    "count": Column(ColumnType.INTEGER),
    "file": Column(ColumnType.IMAGE),
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
    types = {name: arrow_type(column) for name, column in COLUMNS.items()}
    types |= {"@position": pa.int64(), "@key": pa.binary()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in data.items()})
    return Block(table, rejects or [], positions=6)


def form(**changes: Any) -> RowSchema:
    options = {"columns": COLUMNS, "features": FEATURES, "key": None, "label": "kind", "classes": None}
    return RowSchema(**(options | changes))


def test_features_come_in_their_final_types() -> None:
    rows, rejects = key_rows(block(), CHUNK, form(), LAYOUT)
    assert rejects == []
    others = {"price": pa.float32(), "count": pa.int64()}
    assert {name: rows.schema.field(name).type for name in FEATURES} == dict.fromkeys(FEATURES, pa.binary()) | others
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


def test_an_unknown_label_joins_the_rejects_of_the_source() -> None:
    bad = Reject(7, 1, "malformed_row", "the line is no JSON")
    rows, rejects = key_rows(block(rejects=[bad]), CHUNK, form(classes=("cat",)), LAYOUT)
    assert rows["@position"].to_pylist() == [0, 5]
    unknown = Reject(7, 2, "unknown_label", rejects[1].message, "k1", "kind")
    assert rejects == [bad, unknown]
    assert_names(unknown.message, "`classes`")


def test_a_column_may_have_any_name() -> None:
    data = {name: DATA[name] for name in ("@position", "@key")} | {"position": [7, 8, 9], "key": ["x", "y", "z"]}
    types = {"@position": pa.int64(), "@key": pa.binary(), "position": pa.int64(), "key": pa.string()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in data.items()})
    columns = {"position": Column(ColumnType.INTEGER), "key": Column(ColumnType.TEXT)}
    schema = form(columns=columns, features={"position": "position", "k": "key"}, label=None)
    rows, _ = key_rows(Block(table, [], positions=6), CHUNK, schema, LAYOUT)
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


MORE = {
    "tags": Column(ColumnType.CATEGORY, many=True, optional=True),
    "price": Column(ColumnType.NUMBER, optional=True),
    "count": Column(ColumnType.INTEGER, optional=True),
    "when": Column(ColumnType.CATEGORY),
    "file": Column(ColumnType.IMAGE, optional=True),
}
MORE_DATA: dict[str, list[Any]] = {
    "tags": [["a", "b"], None, [], ["c"]],
    "price": [1.5, None, 2.0, 3.0],
    "count": [1, 2, None, 4],
    "when": ["2024-01-01", "2025-01-01", "soon", "2026-01-01"],
    "file": [b"fa.png", None, b"ixyz", b"fb.png"],
}
FILLS = {"tags": b"", "price": math.nan, "count": -7, "file": b""}


def more(rows: int = 4, **changes: Any) -> tuple[pa.Table, list[Reject]]:
    """Keyed rows of the columns above, and the rejects."""
    columns = {name: pa.array(values[:rows], arrow_type(MORE[name])) for name, values in MORE_DATA.items()}
    table = pa.table({**columns, "@position": range(rows), "@key": [b"k%d" % row for row in range(rows)]})
    table = table.set_column(table.num_columns - 1, "@key", table["@key"].cast(pa.binary()))
    options = {"columns": MORE, "features": {name: name for name in MORE if name != "when"}, "key": None, "label": None}
    form = RowSchema(**({**options, "classes": None, "fills": FILLS} | changes))
    read = {b"fa.png": b"one", b"ixyz": b"two", b"fb.png": b"one"}
    return key_rows(Block(table, [], rows), CHUNK, form, LAYOUT, lambda source, reference: read[reference])


def test_what_a_row_lacks_is_filled() -> None:
    rows, rejects = more()
    assert rejects == []
    assert rows["tags"].to_pylist() == [[b"a", b"b"], [], [], [b"c"]]
    assert rows["price"].to_pylist()[::2] == [1.5, 2.0]
    assert math.isnan(rows["price"][1].as_py())
    assert rows["count"].to_pylist() == [1, 2, -7, 4]
    assert rows["file"].to_pylist() == [b"fa.png", b"", b"ixyz", b"fb.png"]


def test_each_of_several_labels_must_be_a_class() -> None:
    rows, (reject,) = more(label="tags", classes=("a", "b"))
    assert rows["@position"].to_pylist() == [0, 1, 2]
    assert (reject.position, reject.reason, reject.column) == (3, "unknown_label", "tags")


def test_a_time_decides_the_split() -> None:
    rows, (reject,) = more(split_by=SplitBy(time="when", starts={"test": "2025-01-01"}))
    assert rows["@split"].to_pylist() == [0, 1, 1]
    assert [group >= 4 for group in rows["@group"].to_pylist()] == [False, True, True]
    assert (reject.position, reject.reason, reject.column) == (2, "unknown_split", "when")


def test_a_group_is_in_one_split_and_a_source_may_be_of_one() -> None:
    rows, _ = more(split_by=SplitBy(group="when"))
    assert rows["@split"].to_pylist() == [hash_key(value.encode()).split >> 63 for value in MORE_DATA["when"]]
    rows, _ = more(source_splits=(None, None, "test"))
    assert set(rows["@split"].to_pylist()) == {1}


def test_an_image_as_key_is_its_content_its_path_or_its_digest() -> None:
    rows, _ = more(rows=1, content_key="file")
    assert rows["@key"].to_pylist() == [hashlib.blake2b(b"one", digest_size=16).hexdigest().encode()]
    columns = {"file": pa.array([b"fa.png", b"ixyz"], pa.binary()), "@position": pa.array([0, 1])}
    form = RowSchema({"file": Column(ColumnType.IMAGE)}, {"file": "file"}, ("file",), None, None)
    rows, _ = key_rows(Block(pa.table(columns), [], 2), CHUNK, form, LAYOUT)
    assert rows["@key"].to_pylist() == [b"a.png", hashlib.blake2b(b"xyz", digest_size=16).hexdigest().encode()]


@pytest.mark.parametrize("by", ["content", "key", "group"])
def test_an_image_that_cannot_be_read_has_no_key_and_no_group(by: str) -> None:
    def read(source: int, reference: bytes) -> bytes:
        if reference == bad:
            raise ImageError("too_large", "the image has 9 bytes")
        return b"xyz"

    good, bad = to_piece("a.tar", 0, 3), to_piece("a.tar", 512, 9)
    form = RowSchema(
        {"file": Column(ColumnType.IMAGE)}, {"file": "file"}, ("file",) if by == "key" else None, None, None,
        content_key="file" if by == "content" else None, split_by=SplitBy(group="file") if by == "group" else None,
    )  # fmt: skip
    table = pa.table({"file": pa.array([bad, good], pa.binary()), "@position": [0, 1], "@key": [b"k0", b"k1"]})
    rows, (reject,) = key_rows(Block(table, [], 2), CHUNK, form, LAYOUT, read)
    assert rows["@position"].to_pylist() == [1]
    assert (reject.position, reject.reason, reject.message) == (0, "too_large", "the image has 9 bytes")
    assert reject.key == ("k0" if by == "group" else None)


LISTS = {
    "boxes": Column(ColumnType.NUMBER, many=True, multiple=4),
    "tags": Column(ColumnType.CATEGORY, many=True, optional=True),
    "counts": Column(ColumnType.INTEGER, many=True),
}


LENGTHS = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3), st.integers(0, 3))


@given(st.lists(LENGTHS, min_size=1, max_size=9))
def test_lists_that_belong_together_are_of_one_length(lengths: list[tuple[int, int | None, int]]) -> None:
    columns = {
        "boxes": [[0.5] * 4 * boxes for boxes, _, _ in lengths],
        "tags": [None if tags is None else ["a"] * tags for _, tags, _ in lengths],
        "counts": [[1] * counts for _, _, counts in lengths],
    }
    table = pa.table({name: pa.array(values, arrow_type(LISTS[name])) for name, values in columns.items()})
    table = table.append_column("@position", pa.array(range(len(lengths)), pa.int64()))
    table = table.append_column("@key", pa.array([b"%d" % row for row in range(len(lengths))]))
    features = {"things": "boxes", "names": "tags", "counts": "counts"}
    schema = RowSchema(LISTS, features, None, None, None, {"names": []}, together=(("things", "names", "counts"),))
    rows, rejects = key_rows(Block(table, [], len(lengths)), CHUNK, schema, LAYOUT)
    counted = [(boxes, tags or 0, counts) for boxes, tags, counts in lengths]
    wrong = [row for row, counts in enumerate(counted) if len(set(counts)) > 1]
    assert rows["@position"].to_pylist() == [row for row in range(len(lengths)) if row not in wrong]
    assert [(reject.position, reject.reason) for reject in rejects] == [(row, "unequal_lists") for row in wrong]
    for reject in rejects:
        things, names, counts = counted[reject.position]
        assert re.findall(r"(things|names|counts)\D+(\d+)", reject.message) == [
            ("things", str(things)), ("names", str(names)), ("counts", str(counts))
        ]  # fmt: skip
        assert reject.column == ("tags" if names != things else "counts")
