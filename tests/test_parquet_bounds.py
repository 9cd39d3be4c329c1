"""Parquet files that expand: what they hold is known by their pages' headers, before Arrow decodes a page."""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources.formats import parquet, parquet_pages, reader_of
from recordmill.pipeline.sources.formats.parquet_pages import BATCH_ROWS, Expected, expected, pages, rows_at_once
from recordmill.pipeline.sources.options import Parquet
from recordmill.pipeline.sources.source_reader import SourceError, SourceReader
from recordmill.pipeline.sources.typing import blocks
from recordmill.pipeline.sources.typing.blocks import check_column
from tests.constants import constants
from tests.messages import raises
from tests.tables import FILES, NUMBER, TEXT, read

MIB = 1 << 20
LONG = "x" * MIB
TEXTS = replace(TEXT, many=True)


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """The memory that Arrow takes, and its peak."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def write(path: Path, values: Any, **options: Any) -> SourceReader[Any]:
    pq.write_table(pa.table({"v": values}), path, **{"compression": "zstd", **options})
    assert path.stat().st_size < 100_000
    return reader_of(Parquet(format="parquet", path=str(path)))


def repeated(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [LONG])


@pytest.mark.parametrize(
    "options",
    [{}, {"use_dictionary": False, "column_encoding": {"v": "DELTA_BYTE_ARRAY"}}],
    ids=["dictionary", "delta"],
)
def test_a_text_that_stands_in_many_rows_is_held_in_some(tmp_path: Path, pool: pa.MemoryPool, options: Any) -> None:
    found = write(tmp_path / "a.parquet", repeated(400).cast(pa.string()), **options)
    plan = found.plan(FILES, {"v": TEXT}, 1 << 20)
    before, rows = pool.max_memory(), 0
    for block in found.read(plan.chunks[0], FILES, {"v": TEXT}, []):
        rows += block.table.num_rows
    assert rows == 400
    assert pool.max_memory() - before < 200 * MIB


@pytest.mark.parametrize(
    ("values", "column", "facts"),
    [
        (lambda: pa.array(["y" * (80 * MIB)]), TEXT, ["page", "'v'", " 83,886,", " 67,108,864"]),
        (
            lambda: pa.ListArray.from_arrays(pa.array([0, 1 << 26], pa.int32()), pa.array(np.zeros(1 << 26, np.int8))),
            replace(NUMBER, many=True),
            ["'v.list.element'", "67,108,864 values", " 33,554,432"],
        ),
        (
            lambda: pa.ListArray.from_arrays(pa.array([0, 300], pa.int32()), repeated(300)).cast(pa.list_(pa.string())),
            TEXTS,
            ["lists", "'v.list.element'", "314,572,800 bytes", " 268,435,456"],
        ),
    ],
    ids=["page", "list", "list of texts"],
)
def test_what_expands_too_far_is_refused_before_it_is_decoded(
    tmp_path: Path, pool: pa.MemoryPool, values: Callable[[], pa.Array], column: Any, facts: list[str]
) -> None:
    found = write(tmp_path / "a.parquet", values(), use_dictionary=column is not TEXT)
    before = pool.max_memory()
    with raises(SourceError, "a.parquet", "group 0 ", *facts, "smaller row groups"):
        read(found, {"v": column})
    assert pool.max_memory() - before < 16 * MIB


@constants(parquet, BLOCK_BYTES=100, ROWS_BYTES=5000)
def test_rows_too_large_for_a_list_are_refused(tmp_path: Path) -> None:
    found = write(tmp_path / "a.parquet", [["a"], ["word"] * 5000])
    with raises(SourceError, "a.parquet", "1 of its rows", " 5,000"):
        read(found, {"v": TEXTS})


@constants(blocks, MAX_LINE_BYTES=10)
def test_a_text_over_the_bound_of_a_line_is_a_reject() -> None:
    faults: Any = {}
    assert check_column("v", TEXT, pa.array(["a" * 10, "b" * 11]), faults).to_pylist() == ["a" * 10, None]
    assert [(row, fault.reason) for row, fault in faults.items()] == [(1, "too_large")]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_headers_say_what_the_footer_says(tmp_path: Path, version: str) -> None:
    words = [f"word {row % 700}" for row in range(20_000)]
    table = pa.table({"v": words, "w": [[word, None] for word in words], "x": [None, 1.5] * 10_000})
    pq.write_table(table, tmp_path / "a.parquet", data_page_version=version, data_page_size=1000, row_group_size=9000)
    with (tmp_path / "a.parquet").open("rb") as opened, pq.ParquetFile(tmp_path / "a.parquet") as file:
        for group, leaf in np.ndindex(file.num_row_groups, len(file.schema)):
            chunk = file.metadata.row_group(group).column(leaf)
            found = list(pages(opened, chunk.dictionary_page_offset or chunk.data_page_offset, chunk.num_values))
            assert sum(page.values for page in found if not page.is_dictionary) == chunk.num_values
            assert [page.is_dictionary for page in found].count(True) == 1
            assert 0 < chunk.total_uncompressed_size - sum(page.decoded for page in found) < 100 * len(found)
            assert expected(opened, file, group, leaf).repeated <= (8 if leaf == 2 else 8192)


def test_only_large_rows_are_read_few_at_a_time() -> None:
    ends = np.arange(0, 100_001, 1000)
    small = Expected(ends, ends * 1000, 0, 100_000)
    assert rows_at_once([small] * 8) == BATCH_ROWS
    assert rows_at_once([replace(small, repeated=MIB)]) == 32
    one_large_page = replace(small, sums=ends * 1000 + (ends > 50_000) * (40 * MIB))
    assert rows_at_once([one_large_page]) == BATCH_ROWS
    assert rows_at_once([replace(small, repeated=1 << 40)]) == 1


@given(st.binary(max_size=60), st.integers(0, 1 << 40))
def test_headers_of_any_bytes_are_read_or_refused(data: bytes, values: int) -> None:
    with suppress(OSError):
        for page, _ in zip(pages(io.BytesIO(data * 3), 0, values), range(1000), strict=False):
            assert min(page.decoded, page.stored, page.values) >= 0


def test_a_dictionary_of_impossibly_many_values_is_refused() -> None:
    page = parquet_pages.Page(is_dictionary=True, decoded=10, stored=10, values=1 << 30, encoding=0)
    with raises(OSError, "dictionary", "'v'", "1,073,741,824 values", "10 bytes"):
        parquet_pages._check_page("v", page)
