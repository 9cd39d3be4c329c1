"""Records as columns: any legal form as protobuf reads it, and one error for illegal ones."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.pipeline.reader import parsing
from recordmill.pipeline.reader.parsing import walk
from recordmill.pipeline.reader.wire import BYTES, FLOATS, INTS, PADDING, decode
from recordmill.transforms.base.stored import Column, Ragged, RowError, Stored
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.published import varint

WAYS = {"side by side": (1, 1 << 30), "one by one": (1 << 30, 0)}
Values = Sequence[int] | Sequence[float] | Sequence[bytes]
KINDS = {BYTES: "bytes_list", FLOATS: "float_list", INTS: "int64_list"}
DTYPES = {BYTES: "bytes", FLOATS: "float32", INTS: "int64"}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    few, small = WAYS[request.param]
    with constants(parsing, FEW=few, SMALL=small):
        yield


def parse_both(records: Sequence[bytes], parts: Mapping[str, Stored]) -> Any:
    """The columns, or the error as a tuple, which both ways give alike."""
    results = []
    for few, small in WAYS.values():
        with constants(parsing, FEW=few, SMALL=small):
            try:
                results.append({name: plain(column) for name, column in parsing.parse(records, parts).items()})
            except RowError as error:
                results.append((error.row, error.message))
    assert results[0] == results[1]
    return results[0]


def plain(column: Column) -> Any:
    """A column as lists that compare: floats as their bits."""
    if isinstance(column, Ragged):
        return plain(column.values), column.splits.tolist()
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column.dtype.name, column.shape, column.tobytes()
    return [bytes(value) for value in np.ravel(column)] if isinstance(column, np.ndarray) else list(map(bytes, column))


def field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + varint(len(data)) + data


def packed(kind: int, values: Values) -> bytes:
    if kind == FLOATS:
        return np.array(values, "<f4").tobytes()
    return b"".join(varint(int(value) & (1 << 64) - 1) for value in values)


def a_list(kind: int, values: Values) -> bytes:
    if kind == BYTES:
        return field(kind, b"".join(field(0x0A, bytes(value)) for value in values))  # type: ignore[arg-type]
    return field(kind, field(0x0A, packed(kind, values)) if len(values) else b"")


def unpacked(kind: int, values: Values) -> bytes:
    if kind == BYTES:
        return a_list(kind, values)
    tag = {FLOATS: 0x0D, INTS: 0x08}[kind]
    return field(kind, b"".join(bytes([tag]) + packed(kind, [value]) for value in values))


def split(kind: int, values: Values) -> bytes:
    """The list in two, which protocol buffers merge."""
    return a_list(kind, values[: len(values) // 2]) + a_list(kind, values[len(values) // 2 :])


def entry(name: str, feature: bytes) -> bytes:
    return field(0x0A, field(0x0A, name.encode()) + field(0x12, feature))


def record(**features: tuple[int, Values]) -> bytes:
    """An Example as TensorFlow writes it."""
    return field(0x0A, b"".join(entry(name, a_list(*features[name])) for name in sorted(features)))


ROWS = [
    record(bits=(FLOATS, [0.5, -2.0]), ids=(INTS, [1, 300, -1]), image=(BYTES, [b"\0p"]), key=(BYTES, [b"a"])),
    record(bits=(FLOATS, [1.5, 4.0]), ids=(INTS, []), image=(BYTES, [b""]), key=(BYTES, [b"b" * 200])),
    record(bits=(FLOATS, [7.5, 9.0]), ids=(INTS, [1 << 62]), image=(BYTES, [b"x" * 300]), key=(BYTES, [b""])),
]


def test_every_type_and_shape(way: None) -> None:
    parts = {"bits": Stored("float32", (2, 1)), "ids": Stored("int64", None), "image": Stored("bytes")}
    found = parsing.parse(ROWS, parts)
    assert list(found) == ["bits", "ids", "image"]
    assert (found["bits"].dtype, found["bits"].tolist()) == (np.float32, [[[0.5], [-2]], [[1.5], [4]], [[7.5], [9]]])
    assert (found["ids"].values.dtype, found["ids"].values.tolist()) == (np.int64, [1, 300, -1, 1 << 62])
    assert (found["ids"].splits.dtype, found["ids"].splits.tolist()) == (np.int64, [0, 3, 3, 4])
    assert [bytes(value) for value in found["image"]] == [b"\0p", b"", b"x" * 300]
    assert found["bits"].flags.writeable
    assert found["ids"].values.flags.writeable


def test_bytes_in_lists_and_shapes(way: None) -> None:
    rows = [record(words=(BYTES, [b"a", b"", b"ccc", b"d"]))] * 2
    assert parse_both(rows, {"words": Stored("bytes", None)}) == {"words": ([b"a", b"", b"ccc", b"d"] * 2, [0, 4, 8])}
    (found,) = parsing.parse(rows, {"words": Stored("bytes", (2, 2))}).values()
    assert found.tolist() == [[[b"a", b""], [b"ccc", b"d"]]] * 2


@pytest.mark.parametrize(
    "parts", [{}, {"a": Stored("int64", None), "b": Stored("bytes"), "c": Stored("float32", (2,))}]
)
def test_no_records(parts: dict[str, Stored]) -> None:
    found = parse_both([], parts)
    assert found == {"a": (("int64", (0,), b""), [0]), "b": [], "c": ("float32", (0, 2), b"")} if parts else found == {}


def test_a_large_value_is_not_copied() -> None:
    one = record(image=(BYTES, [bytes(100_000)]), label=(INTS, [1]))
    image = parsing.parse([one] * 20, {"image": Stored("bytes")})["image"][7]
    assert isinstance(image, memoryview)
    assert image.obj is one


def test_records_of_one_layout_are_walked_side_by_side() -> None:
    kinds = {b"ids": INTS, b"bits": FLOATS, b"image": BYTES}
    assert walk(ROWS, kinds) is not None
    assert walk([*ROWS, record(ids=(INTS, [1]))], kinds) is None
    assert walk([field(0x0A, entry("a" * 200, a_list(INTS, [1])))], {}) is None


@pytest.mark.parametrize("length", [1, 120, 128, 16_300, 16_384, 1_100_000])
def test_lengths_of_one_to_four_bytes(length: int) -> None:
    rows = [record(a=(INTS, [5]), b=(BYTES, [bytes(length)]), c=(FLOATS, [0.5] * size)) for size in (1, length // 4)]
    found = parse_both(rows, {"a": Stored("int64"), "c": Stored("float32", None)})
    assert found["a"] == ("int64", (2,), np.array([5, 5]).tobytes())
    assert found["c"][1] == [0, 1, 1 + length // 4]


ONE = {"x": Stored("int64")}
MANY = {"x": Stored("int64", None)}
NO_EXAMPLE = ("tf.train.Example",)
GOOD = record(x=(INTS, [7]))


@pytest.mark.parametrize(("bad", "parts", "facts"), [
    (record(y=(INTS, [1])), ONE, ("'x'", "missing")),
    (b"", ONE, ("'x'", "missing")),
    (field(0x0A, entry("x", b"")), ONE, ("'x'", "missing")),
    (record(x=(FLOATS, [1.0])), ONE, ("'x'", "floats", "expected int64")),
    (record(x=(BYTES, [b"1"])), MANY, ("'x'", "bytes", "expected int64")),
    (record(x=(INTS, [1, 2, 3])), ONE, ("'x'", "3 values", "expected 1")),
    (record(x=(INTS, [])), ONE, ("'x'", "0 values", "expected 1")),
    (record(x=(BYTES, [b"a", b"b"])), {"x": Stored("bytes")}, ("'x'", "2 values", "expected 1")),
    (record(x=(INTS, [1])), {"x": Stored("int64", (2, 2))}, ("'x'", "1 values", "expected 4")),
    (field(0x0A, entry("x", field(INTS, field(0x0A, b"\x01\x80")))), ONE, ("int64", "ends inside a number")),
    (field(0x0A, entry("x", field(INTS, field(0x0A, b"\x80" * 10 + b"\1")))), ONE, ("int64", "11 bytes")),
    (field(0x0A, entry("x", field(FLOATS, field(0x0A, b"123")))), {"x": Stored("float32")}, ("floats", "4 bytes")),
    (GOOD[:-1], ONE, NO_EXAMPLE),
    (GOOD + b"\x0a", ONE, NO_EXAMPLE),
    (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", ONE, NO_EXAMPLE),
    (b"\x0b" * 200, ONE, NO_EXAMPLE),
    (b"\x0b\x14", ONE, NO_EXAMPLE),
    (b"\x0f", ONE, NO_EXAMPLE),
    (b"\x00\x00", ONE, NO_EXAMPLE),
    (b"\xff", ONE, NO_EXAMPLE),
])  # fmt: skip
def test_what_is_wrong_is_said_of_the_first_such_row(
    bad: bytes, parts: dict[str, Stored], facts: tuple[str, ...]
) -> None:
    kind = {dtype: kind for kind, dtype in DTYPES.items()}[parts["x"].dtype]
    value: Values = {BYTES: [b"v"], FLOATS: [1.0], INTS: [7]}[kind]
    good = record(x=(kind, value * int(np.prod(parts["x"].shape or ()))))  # type: ignore[operator]
    row, found = parse_both([good, good, bad, good, bad], parts)
    assert row == 2
    assert_names(found, *facts)


names = st.sampled_from(["x", "label", "words_length", "ü", "long" * 50])
ints = st.one_of(st.integers(0, 300), st.integers(0, 1 << 30), st.integers(-(1 << 63), (1 << 63) - 1))
contents = st.one_of(st.tuples(st.just(INTS), st.lists(ints, max_size=6)),
    st.tuples(st.just(FLOATS), st.lists(st.floats(width=32), max_size=6)),
    st.tuples(st.just(BYTES), st.lists(st.binary(max_size=200), max_size=4)))  # fmt: skip
unknown = st.sampled_from([b"", b"\x38\x05", b"\x3a\x02ab", b"\x3d1234", b"\x3912345678", b"\x3b\x08\x01\x3c"])


@st.composite
def examples(draw: st.DrawFn) -> bytes:
    """A legal Example in any order and form: split, unpacked, repeated, with unknown fields, without a kind."""
    entries = b""
    for name in draw(st.lists(names, max_size=4)):
        form: Callable[..., bytes] = draw(st.sampled_from([a_list, a_list, unpacked, split, lambda *_: b""]))
        lists = draw(st.lists(contents, min_size=1, max_size=2))
        feature = draw(unknown) + b"".join(form(*one) for one in lists)
        key, value = field(0x0A, name.encode()), field(0x12, feature)
        order = draw(st.sampled_from([key + value, value + key, value]))
        entries += field(0x0A, order)
    halves = draw(st.sampled_from([[entries], [entries, b""], [b"", entries]]))
    return draw(unknown) + b"".join(field(0x0A, half) for half in halves)


def expected_of(rows: Sequence[bytes], name: str, kind: int) -> Any:
    """Reads a list of each row by protocol buffers; None if a row has values of another kind."""
    lists = []
    for row in rows:
        features = tf.train.Example.FromString(row).features.feature
        found = features[name].WhichOneof("kind") if name in features else None
        values = list(getattr(features[name], found).value) if found else []
        if values and found != KINDS[kind]:
            return None
        lists.append(values)
    flat = [value for one in lists for value in one]
    column: Any = flat if kind == BYTES else np.array(flat, DTYPES[kind])
    return plain(Ragged(column, np.cumsum([0, *map(len, lists)])))


@given(st.lists(examples(), min_size=1, max_size=4), names, st.sampled_from([*KINDS]))
def test_every_legal_form_reads_as_protocol_buffers_read_it(rows: list[bytes], name: str, kind: int) -> None:
    found = parse_both(rows, {name: Stored(DTYPES[kind], None)})
    expected = expected_of(rows, name, kind)
    assert found[name] == expected if expected is not None else "expected" in found[1]


@given(st.lists(st.tuples(contents, contents), min_size=2, max_size=12), st.sampled_from([*KINDS]))
def test_tensorflows_own_serialization(rows: list[tuple[Any, Any]], kind: int) -> None:
    serialized = []
    for row in rows:
        one = tf.train.Example()
        for name, (found, values) in zip(("label", "x"), row, strict=True):
            getattr(one.features.feature[name], KINDS[found]).value.extend(values)
        serialized.append(one.SerializeToString(deterministic=True))
    found = parse_both(serialized, {"x": Stored(DTYPES[kind], None)})
    expected = expected_of(serialized, "x", kind)
    assert found["x"] == expected if expected is not None else "expected" in found[1]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A truncated or altered Example, or arbitrary bytes."""
    data = bytearray(draw(examples()))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@given(st.lists(st.one_of(damaged(), st.binary(max_size=40)), min_size=1, max_size=3), st.sampled_from([*KINDS]))
@example([b"\x0a\xff\xff\xff\xff\x0f"], INTS)
def test_damage_is_one_error_and_no_other(rows: list[bytes], kind: int) -> None:
    found = parse_both(rows, {"x": Stored(DTYPES[kind], None)})
    assert isinstance(found, dict) or (found[0] < len(rows) and found[1])


def test_another_form_needs_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "recordmill.pipeline.dataset.examples", None)
    assert parsing.parse([GOOD], ONE)["x"].tolist() == [7]
    for record in (field(0x0A, entry("x", unpacked(INTS, [7]))), b"garbage bytes", bytes(40)):
        with raises(RowError, "pip install protobuf") as raised:
            parsing.parse([GOOD, record], ONE)
        assert raised.value.row == 1


@pytest.mark.parametrize(
    ("data", "value"), [(b"\x80\x00", 0), (b"\x81\x80\x80\x80\x80\x00", 1), (b"\xff" * 9 + b"\x7f", -1)]
)
def test_varints_that_are_longer_than_they_need_to_be(data: bytes, value: int) -> None:
    assert decode(data + bytes(PADDING), np.array([len(data)]))[0].tolist() == [value]
