"""Rows packed by shard come back unchanged, from scratch and inline."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipeline.build.worker.packing import Packed, pack, unpack

ROWS = st.lists(st.tuples(st.integers(0, 5) | st.just(70_000), st.binary(max_size=20)), max_size=40)


def table(rows: list[tuple[int, bytes]], chunks: int = 1) -> pa.Table:
    """Rows of groups and values, with their places, in several Arrow chunks."""
    columns = {
        "@group": pa.array([group for group, _ in rows], pa.int64()),
        "value": pa.array([value for _, value in rows], pa.binary()),
        "place": pa.array(range(len(rows)), pa.int64()),
    }
    whole = pa.table(columns)
    size = -(-len(rows) // chunks) or 1
    return pa.concat_tables([whole.slice(start, size) for start in range(0, len(rows), size)] or [whole])


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("scratch"))


@settings(max_examples=30)
@given(ROWS, ROWS, st.booleans())
def test_rows_come_back_as_they_were(scratch: str, one: list, other: list, inline: bool) -> None:
    folder = None if inline else scratch
    packed = [pickle.loads(pickle.dumps(pair)) for rows in (one, other) for pair in pack(table(rows), folder)]
    for group in {group for group, _ in one + other}:
        back = unpack(reversed([piece for of, piece in packed if of == group]))
        assert back.schema == table(one).schema
        expected = [value for of, value in other if of == group] + [value for of, value in one if of == group]
        assert back["value"].to_pylist() == expected


def test_scratch_holds_one_file_a_pack_and_the_shuffle_its_name(tmp_path: Path) -> None:
    packed = list(pack(table([(3, b"x" * 10_000), (1, b"y"), (3, b"z")]), str(tmp_path)))
    (file,) = tmp_path.iterdir()
    assert packed == [(1, Packed(file=str(file), batch=0)), (3, Packed(file=str(file), batch=1))]


def test_a_repeated_pack_takes_another_file(tmp_path: Path) -> None:
    files = {packed.file for _ in range(2) for _, packed in pack(table([(0, b"")]), str(tmp_path))}
    assert len(files) == 2


@pytest.mark.parametrize("inline", [False, True])
def test_no_rows_pack_nothing(tmp_path: Path, inline: bool) -> None:
    assert list(pack(table([]), None if inline else str(tmp_path))) == []
    assert list(tmp_path.iterdir()) == []
