"""TFRecord files of Examples as a source: framing, damage, and every value as TensorFlow's own parser gives it."""

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.dataset.examples import SEVERAL, parse_example
from recordmill.pipeline.dataset.tfrecord import frame, masked_crc
from recordmill.pipeline.sources import source_reader
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import tfrecord as tfrecord_files
from recordmill.pipeline.sources.images import parse as parse_reference
from tests import tables
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.published import field
from tests.tables import CATEGORY, FILES, IMAGE, INTEGER, NUMBER, TEXT, FarFiles, read

ASKED = {"id": INTEGER, "text": TEXT, "n": NUMBER}
NUMBERS = replace(NUMBER, many=True)
BYTES, FLOATS, INTS = tf.train.BytesList, tf.train.FloatList, tf.train.Int64List


def feature(values: list[Any]) -> tf.train.Feature:
    """Makes a feature of its first value's kind; of none, one without a kind."""
    if not values:
        return tf.train.Feature()
    kinds = {bytes: ("bytes_list", BYTES), float: ("float_list", FLOATS), int: ("int64_list", INTS)}
    name, make = kinds[type(values[0])]
    return tf.train.Feature(**{name: make(value=values)})


def features(row: dict[str, Any]) -> tf.train.Features:
    lists = {name: values if isinstance(values, list) else [values] for name, values in row.items()}
    return tf.train.Features(feature={name: feature(values) for name, values in lists.items()})


def example(**row: Any) -> bytes:
    return tf.train.Example(features=features(row)).SerializeToString()


def rows(count: int) -> list[bytes]:
    return [example(id=row, text=f"text {row}".encode(), n=row / 4) for row in range(count)]


def write(path: Path, records: list[bytes], pack: Callable[[bytes], bytes] = bytes) -> Path:
    path.write_bytes(pack(b"".join(map(frame, records))))
    return path


source = partial(tables.source, "tfrecord")
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "gzip of two members": lambda data: gzip.compress(data[:999]) + gzip.compress(data[999:]) + bytes(9),
}


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_rows_do_not_depend_on_the_packing(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / "a.tfrecord-00000-of-00001", rows(300), pack)
    found = read(source(tmp_path), ASKED, chunk_bytes=2000)
    assert found.rows == [{"id": i, "text": f"text {i}", "n": i / 4} for i in range(300)]
    assert len(set(found.keys)) == found.plan.rows == 300
    assert (len(found.plan.chunks) > 5) == (pack is bytes)
    assert found.keys == read(source(path), {"id": INTEGER}).keys


@pytest.mark.parametrize(
    ("compression", "pack", "works"),
    [("none", bytes, True), ("gzip", gzip.compress, True), ("zlib", zlib.compress, True),
     ("none", gzip.compress, False), ("gzip", bytes, False)],
)  # fmt: skip
def test_a_compression_that_is_given(tmp_path: Path, compression: str, pack: Any, works: bool) -> None:
    path = write(tmp_path / "a.tfrec", rows(3), pack)
    if works:
        assert len(read(source(path, compression=compression), ASKED).rows) == 3
        return
    with raises(SourceError, "a.tfrec", "no tf.train.Example", "byte 0"):
        read(source(path, compression=compression), ASKED)


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], list[str], int]] = {
    "data": (lambda data: data[:-5] + b"w" + data[-4:], ["checksum", "data", "byte {at}"], 5),
    "length": (lambda data: b"?" + data[1:], ["checksum", "length", "byte {at}"], 3),
    "cut in its data": (lambda data: data[:30], ["byte {at}", "claims {length} bytes"], 3),
    "cut in its header": (lambda data: data[:9], ["checksum", "length", "byte {at}"], 3),
    "1 TB": (lambda data: header(1 << 40) + data[12:], ["byte {at}", "claims 1099511627776 bytes"], 3),
    "no example": (lambda _: frame(b"\xff\xff"), ["tf.train.Example"], 5),
    "nothing": (lambda _: frame(b""), ["tf.train.Example"], 5),
}


def header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc(packed))


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(("spoil", "facts", "good"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_records(tmp_path: Path, spoil: Any, facts: list[str], good: int, pack: Any, chunk_bytes: int) -> None:
    records = [frame(record) for record in rows(6)]
    at, length = sum(map(len, records[:3])), len(records[3]) - 16
    spoiled = spoil(records[3])
    path = tmp_path / "a.tfrecord"
    behind = [] if "claims {length} bytes" in facts else records[4:]
    path.write_bytes(pack(b"".join([*records[:3], spoiled, *behind])))
    found = read(source(path), ASKED, chunk_bytes)
    assert [row["id"] for row in found.rows] == [0, 1, 2, 4, 5][:good]
    ((reason, column, said),) = found.faults
    if pack is gzip.compress and "claims" in facts[-1]:
        facts = ["cut off", "byte {at}"]
    assert_names(said, *(fact.format(at=at, length=length) for fact in facts))
    assert (reason, column) == ("malformed_row" if "tf.train.Example" in facts else "damaged_record", None)
    assert found.plan.rows == good + 1


@pytest.mark.parametrize("spoil", [lambda data: data[:-20], lambda data: data[:-99] + bytes(99)], ids=["cut", "zeros"])
def test_compressed_data_that_is_damaged(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    records = [example(id=row, text=str(row).encode() * 99, n=0.0) for row in range(9999)]
    path = write(tmp_path / "a.tfrecord.gz", records, lambda data: spoil(gzip.compress(data)))
    found = read(source(path), ASKED)
    assert {reason for reason, _, _ in found.faults} == {"damaged_record"}
    assert_names(found.faults[-1][2], "byte ", "rest of ")
    assert [row["id"] for row in found.rows] == list(range(len(found.rows)))
    assert len(found.rows) > 9000


@constants(tfrecord_files, MAX_RECORD_BYTES=1000)
def test_a_record_that_is_too_large_costs_itself(tmp_path: Path) -> None:
    records = [*rows(1), example(id=1, text=b"x" * 1000, n=0.0), *rows(1)]
    found = read(source(write(tmp_path / "a.tfrecord", records)), ASKED)
    assert len(found.rows) == 2
    assert [fault[0] for fault in found.faults] == ["too_large"]


def test_columns_and_their_faults(tmp_path: Path) -> None:
    asked = {"t": TEXT, "c": CATEGORY, "n": NUMBER, "i": INTEGER, "l": NUMBERS}
    good = {"t": b"a", "c": 7, "n": 2, "i": 3, "l": [1.0, 2.0]}
    bad: list[tuple[dict[str, Any], str, str, list[str]]] = [
        ({"t": [b"a", b"b"]}, "wrong_type", "t", ["one value", "found 2"]),
        ({"t": 1.0}, "wrong_type", "t", ["a string", "found a float"]),
        ({"t": b"\xff"}, "invalid_utf8", "t", ["UTF-8"]),
        ({"c": 1.0}, "wrong_type", "c", ["a string, a whole number", "found a float"]),
        ({"n": b"1"}, "wrong_type", "n", ["a number", "found bytes"]),
        ({"i": 1.0}, "wrong_type", "i", ["64-bit integer", "found a float"]),
        ({"l": [1.0, float("nan")]}, "wrong_type", "l", [" list: ", "not finite"]),
        ({"l": [b"1,2"]}, "wrong_type", "l", [" list: ", "a number", "found bytes"]),
    ]
    records = [example(**good), *(example(**(good | change)) for change, *_ in bad)]
    records += [example(**{name: value for name, value in good.items() if name != left}) for left in good]
    found = read(source(write(tmp_path / "a.tfrecord", records)), asked)
    assert found.rows == [{"t": "a", "c": "7", "n": 2.0, "i": 3, "l": [1.0, 2.0]}]
    missing = [({}, "missing_value", name, ["absent"]) for name in good]
    for fault, (_, reason, column, facts) in zip(found.faults, bad + missing, strict=True):
        assert fault[:2] == (reason, column)
        assert_names(fault[2], *facts)
    assert len({reject.key for reject in found.rejects}) == len(found.rejects)


def test_lists_and_optional_columns(tmp_path: Path) -> None:
    asked = {"l": replace(TEXT, many=True, optional=True), "n": replace(NUMBER, optional=True)}
    empty = tf.train.Example(features=tf.train.Features(feature={"l": tf.train.Feature(bytes_list=BYTES())}))
    records = [example(l=[b"a,b", b"c"], n=[1.5]), empty.SerializeToString(), example(x=1)]
    found = read(source(write(tmp_path / "a.tfrecord", records)), asked)
    expected = [{"l": ["a,b", "c"], "n": 1.5}, {"l": [], "n": None}, {"l": None, "n": None}]
    [note] = found.plan.notes
    assert_names(note, "columns", ": x")
    assert found.rows == expected


def test_sequence_examples(tmp_path: Path) -> None:
    def steps(*lists: list[Any]) -> tf.train.FeatureLists:
        return tf.train.FeatureLists(feature_list={"s": tf.train.FeatureList(feature=[feature(one) for one in lists])})

    sequences = [
        tf.train.SequenceExample(context=features({"id": 1}), feature_lists=steps([1, 2], [3])),
        tf.train.SequenceExample(context=features({"id": 2}), feature_lists=steps([1], [2.0])),
        tf.train.SequenceExample(context=features({"id": 3}), feature_lists=steps([0.5])),
    ]
    path = write(tmp_path / "a.tfrecord", [one.SerializeToString() for one in sequences])
    found = read(source(path), {"id": INTEGER, "s": NUMBERS})
    assert found.rows == [{"id": 1, "s": [1, 2, 3]}, {"id": 3, "s": [0.5]}]
    [(reason, column, message)] = found.faults
    assert (reason, column) == ("wrong_type", "s")
    assert_names(message, "several types")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_pictures_stay_where_they_lie(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    pictures = [b"\xff" * 64 + b"\xff\xd8", b"\xff" * 65 + b"\xd8", b""]
    (tmp_path / "x").mkdir()
    path = write(tmp_path / "x" / "a.tfrecord", [example(a=b"\xff" * 64, image=one) for one in pictures], pack)
    found = read(source(f"{tmp_path}/**/*.tfrecord"), {"image": IMAGE, "a": replace(IMAGE, many=True)})
    references = [parse_reference(row["image"]) for row in found.rows]
    if pack is bytes:
        assert {one.path for one in references} == {"x/a.tfrecord"}
        data = path.read_bytes()
        assert [data[one.offset : one.offset + (one.length or 0)] for one in references] == pictures[:2]
    else:
        assert [one.data for one in references] == pictures  # the empty one is a reject where it is loaded
    assert [fault[0] for fault in found.faults] == (["missing_value"] if pack is bytes else [])


@constants(source_reader, IMAGES_CHUNK_BYTES=1000)
def test_chunks_of_images_are_larger(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [example(image=bytes(100))] * 100)
    plan = source(path).plan(FILES, {"image": IMAGE}, 1)
    assert [1000 <= chunk.bytes < 1200 for chunk in plan.chunks[:-1]] == [True] * (len(plan.chunks) - 1)
    assert len(source(path).plan(FILES, {"image": INTEGER}, 1).chunks) == 100


@constants(tfrecord_files, HEAD_RECORDS=1000)
def test_the_rows_of_compressed_files_are_estimated_by_all(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", [example(text=bytes(str(row) * 9, "ascii")) for row in range(40_000)], gzip.compress)
    write(tmp_path / "b.tfrecord", rows(3), gzip.compress)
    plan = source(tmp_path).plan(FILES, {"text": TEXT}, 1 << 20)
    assert 15_000 < plan.rows < 80_000


def test_files_that_are_far_away_are_not_walked_through() -> None:
    data = b"".join(map(frame, rows(2000)))
    for pack, about in ((bytes, 100), (gzip.compress, 1100)):
        found = read(source("mem://far/a.tfrecord"), ASKED, 1000, files=FarFiles(a_tfrecord=pack(data)))
        assert (len(found.rows), len(found.plan.chunks)) == (2000, 1)
        assert abs(found.plan.rows - 2000) < about


UNUSUAL = {
    "not packed": field(2, b"\x0d\0\0\x80\x3f\x0d\0\0\0\x40"),
    "packed in two pieces": field(3, field(1, b"\1\2") + field(1, b"\3")),
    "negative": field(3, field(1, b"\xff" * 9 + b"\1")),
    "two kinds: the last one counts": field(1, field(1, b"a")) + field(3, field(1, b"\1")),
    "one kind twice": field(3, field(1, b"\1")) + field(3, field(1, b"\2")),
    "unknown fields": field(9, b"?") + field(3, b"\x50\1" + field(1, b"\1")) + b"\x5d????",
    "no kind": b"",
}


@pytest.mark.parametrize("encoded", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_encodings_are_read_as_tensorflow_reads_them(encoded: bytes) -> None:
    values = (field(3, field(1, b"\7")), encoded)
    check_against_tensorflow(field(1, b"".join(field(1, field(1, b"a") + field(2, value)) for value in values)))


LISTS = {"bytes_list": (BYTES, st.binary(max_size=5)), "float_list": (FLOATS, st.floats(width=32, allow_nan=False))}
LISTS |= {"int64_list": (INTS, st.integers(-(1 << 63), (1 << 63) - 1))}
KIND_LISTS = [
    st.lists(values, max_size=3).map(lambda found, name=name, make=make: tf.train.Feature(**{name: make(value=found)}))
    for name, (make, values) in LISTS.items()
]


@given(st.dictionaries(st.text(max_size=3), st.one_of(*KIND_LISTS, st.just(tf.train.Feature())), max_size=4))
def test_values_are_those_of_tensorflow(row: dict[str, tf.train.Feature]) -> None:
    check_against_tensorflow(tf.train.Example(features=tf.train.Features(feature=row)).SerializeToString())


def check_against_tensorflow(record: bytes) -> None:
    theirs = tf.train.Example.FromString(record).features.feature
    ours = parse_example(record)
    assert (ours.names() if ours else []) == sorted(theirs)
    for name, one in theirs.items():
        kind = one.WhichOneof("kind")
        found = ours.values(name) if ours else None
        assert (found and (found[0], list(found[1]))) == (kind and (kind, list(getattr(one, kind).value)))


@given(st.binary(max_size=40))
def test_any_bytes_are_an_example_or_none(record: bytes) -> None:
    found = parse_example(record)
    for name in found.names() if found else ():
        values = found.values(name) if found else None
        assert values is None or values[0] in ("bytes_list", "float_list", "int64_list", SEVERAL)
