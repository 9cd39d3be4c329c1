"""A dataset that a stranger made: whatever stands in its files, a command ends with one line, in bounded memory."""

import copy
import io
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.dataset import open_dataset
from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.dataset import version
from recordmill.pipeline.dataset.arrow_tables import WORDS, read_table
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, read_latest
from recordmill.pipeline.dataset.profile import profiles_of
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.inspection import StoredImage
from recordmill.pipeline.json_values import MOST_CONTAINERS, Count, parse_json, read_as
from recordmill.pipeline.rows import MOST_LINE_BYTES, read_reject_lines
from recordmill.pipeline.versions import history, leases
from recordmill.pipeline.versions.base import FORGOTTEN_FILE, read_forgotten
from recordmill.pipeline.versions.stores.base import Content
from recordmill.pipeline.versions.stores.open_store import open_store
from recordmill.transforms.base.description import Stored
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.images.decode import DecodeError, decode
from recordmill.transforms.images.image_stored import Pixels
from tests import published
from tests.constants import constants
from tests.messages import raises

DEEP = json.loads("[" * 400 + "]" * 400)
ODD = (None, "", [], {}, 1.5, True, [None], {"a": 1}, "x" * 5000, DEEP)
HOSTILE = (*ODD, 10**30, -1, 2**70, float("nan"), float("inf"))
GROUPS = {"groups": 1, "rows": 1, "within": {"train": 1}, "across": {"train": {"test": 1}}}
PAIR = [{"split": "train", "key": "row/1"}, {"split": "test", "key": "row/2"}]
PARTS: dict[str, Any] = {
    "statistics": {
        "label": {"words": 2, "distinct": 2, "tokens": 9, "known_tokens": 9},
        "text": {"lengths": {"rows": 9, "ids": 9, "longest": 3, "in_batches": 9}, "words": 3, "known_tokens": None},
        "price": {"mean": 1.0, "variance": 2.0, "minimum": 0.0, "maximum": 4.0, "median": 1.0, "count": 9},
    },
    "duplicates": {"content": ["note"], "keys_across": 1, "exact": {**GROUPS, "examples": [PAIR]}},
    "drift": {"against": "v", "rows": {"train": 9}, "features": {"price": {"count": 9, "mean_shift": 0.5}}},
    "gate": {
        "live": "v",
        "figures": {"rows_lost": {"all": 0.1}},
        "breaches": [{"rule": "psi", "subject": "price", "figure": 0.3, "limit": 0.2, "detail": "far"}],
        "not_compared": ["x"],
    },
    "provenance": {
        "built_at": "2026-11-20T12:00:00Z",
        "packages": {"numpy": "2"},
        "kept_names": {"label": 2},
        "source_key": "ab" * 32,
    },
}
PIXELS = Pixels(
    stored="", encoding="jpeg", shape=(96, 96, 3), dtype="uint8", offset=(0.0, 0.0, 0.0), scale=(1.0, 1.0, 1.0)
)
COMMANDS = (["show", "DIR"], ["show", "DIR", "--json"], ["versions", "list", "DIR"], ["head", "DIR"], ["verify", "DIR"])


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each value in JSON, the first of a list alone."""
    if at:
        yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*at, key))


def check_line(error: Exception) -> None:
    """Checks that a message is a line that a person reads."""
    assert "\n" not in str(error)
    assert len(str(error)) < 2000


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    whole = here = copy.deepcopy(value)
    for key in at[:-1]:
        here = here[key]
    here[at[-1]] = new
    return whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a version with all parts in its manifest."""
    return published.write_version(tmp_path_factory.mktemp("hostile"), 20, **PARTS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), new=st.sampled_from(HOSTILE))
def test_any_value_of_a_manifest_ends_in_a_line(folder: Path, data: st.DataObject, new: Any) -> None:
    output, path = folder.parents[1], folder / MANIFEST_FILE
    whole = path.read_text()
    parsed = json.loads(whole)
    at = data.draw(st.sampled_from([place for place in places(parsed) if place[0] in (*PARTS, "rows", "rejects")]))
    path.write_text(json.dumps(changed(parsed, at, new)))
    try:
        for command in COMMANDS:
            try:
                app([str(output) if word == "DIR" else word for word in command], standalone_mode=False)
            except (UserError, OSError) as error:
                check_line(error)
            except SystemExit:
                pass
    finally:
        path.write_text(whole)


@pytest.mark.parametrize(
    "other",
    [
        {"note": {"kind": "array", "stored": "bytes", "dtype": "int16", "shape": [7, 3]}},
        {"label": {"kind": "number", "stored": "int64", "normalize": "none", "buckets": 9, "boundaries": []}},
    ],
    ids=str,
)
def test_records_that_are_not_as_described_are_a_line(other: dict[str, Any], tmp_path: Path) -> None:
    published.write_version(tmp_path, 200, features={**published.FEATURES, **other}, label=None)
    with raises(DatasetError, *other, "dataset.json"):
        list(open_dataset(tmp_path).records("train"))


RANGES = {"padding_id": 2**70, "max_length": -1, "vocabulary_size": 10**30, "unknown_id": math.nan, "first_id": DEEP}


@pytest.mark.parametrize(("name", "value"), RANGES.items())
def test_a_description_has_numbers_in_their_range(name: str, value: Any) -> None:
    with raises(DatasetError, f"text.{name}", "out of range", "dataset.json"):
        read_description({**published.FEATURES["text"], name: value})


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"format": 1, "keys": 3}', '{"format": 1, "keys": {"zz": 1}}', "9" * 5000]
)
def test_an_invalid_list_of_forgotten_keys_is_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / FORGOTTEN_FILE).write_text(text)
    with raises(UserError, "forgotten.json"):
        read_forgotten(open_store(str(tmp_path)))


def test_invalid_times_and_types_are_a_line(tmp_path: Path) -> None:
    (tmp_path / "LATEST").write_text('{"version": "v", "sequence": 1, "retired": {"u": 1.5}}')
    with raises(DatasetError, "retired.u", "1.5"):
        read_latest(str(tmp_path))
    with raises(DatasetError, "'uint9'", "dataset.json"):
        Stored("uint9")


@pytest.mark.parametrize("new", HOSTILE)
def test_any_value_of_a_profile_is_read_or_refused(new: Any) -> None:
    histogram = {"lost": 0, "keys": [1, 2], "counts": [3, 4]}
    profile = {"train": {"price": {"rows": 7, "missing": 0, "histogram": histogram, "ids": {"1": 2}, "tokens": 3}}}
    for at in places(profile):
        try:
            profiles_of(json.dumps(changed(profile, at, new)).encode())
        except DatasetError as error:
            check_line(error)


def test_json_is_parsed_within_bounds() -> None:
    with raises(DatasetError, f"{MOST_CONTAINERS:,}"):
        parse_json(b"[" + b"[]," * (MOST_CONTAINERS + 1) + b"1]")
    assert read_as({"a": 2**63 - 1, "b": None}, dict[str, Count | None], "it") == {"a": 2**63 - 1, "b": None}


def table(rows: int, codec: str) -> bytes:
    empty = pa.array(["x", ""]).take(pa.array(np.ones(rows, np.int64)))
    words = pa.table([empty, empty.cast(pa.binary()), pa.array(np.ones(rows, np.int64))], schema=WORDS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, WORDS, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(words)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_an_arrow_file_that_expands_is_refused_by_its_header(codec: str) -> None:
    data = table(6_000_000, codec)
    assert len(data) < 2 << 20
    before = pa.total_allocated_bytes()
    with raises(DatasetError, "x.arrow", "67,108,864"):
        read_table(Path("v"), "x.arrow", data, WORDS)
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert read_table(Path("v"), "x.arrow", table(1000, codec), WORDS).num_rows == 1000


@given(st.lists(st.tuples(st.integers(0, 900), st.sampled_from((0, 1, 127, 128, 255))), min_size=1, max_size=4))
def test_an_arrow_file_with_any_bytes_changed_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(table(50, "zstd"))
    for place, byte in changes:
        data[place % len(data)] = byte
    try:
        read_table(Path("v"), "x.arrow", bytes(data), WORDS).to_pylist()
    except DatasetError as error:
        check_line(error)


def test_other_columns_are_refused() -> None:
    sink = pa.BufferOutputStream()
    columns = pa.table({"word": pa.array(["a"] * 9).dictionary_encode()})
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_table(columns)
    with raises(DatasetError, "x.arrow", "word"):
        read_table(Path("v"), "x.arrow", bytes(sink.getvalue()))


@constants(version, MOST_WORDS=9)
def test_a_vocabulary_and_rejects_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\n" * 10)
    with raises(DatasetError, "words.txt", "10", "9 words"):
        version.read_words(tmp_path, "words.txt")
    (tmp_path / "r.jsonl").write_bytes(b'{"id": null}\n{"id": "' + b"x" * MOST_LINE_BYTES + b'"}\n')
    with raises(DatasetError, "r.jsonl, line 2", f"{MOST_LINE_BYTES:,}", "`recordmill verify`"):
        list(read_reject_lines(tmp_path, "r.jsonl"))


def test_a_jpeg_that_states_too_many_pixels_is_not_decoded() -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "JPEG")
    data = bytearray(file.getvalue())
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 65_500, 65_500)
    with pytest.raises(DecodeError, match=r"4,290,250,000|JPEG"):
        decode(bytes(data), 3)


@pytest.mark.parametrize(("form", "stated"), [("JPEG", 169_000_000), ("PNG", 1_440_000)])
def test_an_image_larger_than_its_feature_is_refused_by_its_header(form: str, stated: int) -> None:
    side = math.isqrt(stated)
    pixels = replace(PIXELS, encoding=form.lower(), shape=(96, 96, 3))
    file = io.BytesIO()
    Image.new("RGB", (64, 64) if form == "JPEG" else (side, side)).save(file, form)
    data = bytearray(file.getvalue())
    if form == "JPEG":
        frame = data.index(b"\xff\xc0")
        data[frame + 5 : frame + 9] = struct.pack(">HH", side, side)
    facts = f"{stated:,} pixels", "1,048,576"
    with raises(DatasetError, *facts):
        StoredImage(bytes(data), pixels).array()
    scratch = np.zeros((96, 96, 3), np.uint8)
    with raises(DecodeError, *facts):
        decode(bytes(data), 3, scratch, pixels.most_pixels)


@constants(history, MOST_BYTES=100)
def test_the_end_of_a_long_history_is_read_and_a_lease_may_hold_anything(tmp_path: Path) -> None:
    entries = history._parse(Content(b'{"id": 1}\n' * 1000 + b'{"id": 2}\n' * 9, ""))
    assert len(entries) == 160
    assert entries[-1] == {"id": 2}
    (tmp_path / leases.LEASES_FOLDER).mkdir()
    (tmp_path / leases.LEASES_FOLDER / "a.json").write_text("[" * 100_000)
    assert str(leases.holders(open_store(str(tmp_path)))["a"]) == "an unknown process"
