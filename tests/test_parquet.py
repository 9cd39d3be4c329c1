"""Parquet: rows of row groups, whatever types the files have; what expands is known before a page is decoded."""

import datetime as dt
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import parquet as parquet
from recordmill.pipeline.sources.formats import parquet_pages
from recordmill.pipeline.sources.formats.parquet_pages import BATCH_ROWS, Expected, expected, pages, rows_at_once
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.sources.typing import checks
from recordmill.pipeline.sources.typing.checks import check_column
from tests import tables
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, INTEGER, NUMBER, TEXT, FarFiles, read

ASKED = {"id": CATEGORY, "text": TEXT, "n": NUMBER}
ROWS = {"id": range(1000), "text": [f"text {row}" for row in range(1000)], "n": [row / 4 for row in range(1000)]}
BOXES = replace(NUMBER, many=True, multiple=4)
source = partial(tables.source, "parquet")


def write(path: Path, columns: Any = ROWS, **options: Any) -> Path:
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize(("group", "chunk_bytes", "chunks"), [(1000, 1, 1), (100, 1, 10), (100, 1 << 20, 1)])
def test_rows_do_not_depend_on_row_groups(tmp_path: Path, group: int, chunk_bytes: int, chunks: int) -> None:
    found = read(source(write(tmp_path / "a.parquet", row_group_size=group)), ASKED, chunk_bytes)
    assert found.rows == [{"id": str(i), "text": f"text {i}", "n": i / 4} for i in range(1000)]
    assert (found.plan.rows, len(found.plan.chunks), found.plan.notes) == (1000, chunks, [])
    assert len(set(found.keys)) == 1000
    whole = read(source(write(tmp_path / "b.parquet")), ASKED)
    assert (found.rows, found.keys) == (whole.rows, whole.keys)


@constants(parquet, BLOCK_BYTES=2000)
def test_blocks_are_small(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"id": range(100), "text": ["x" * 100] * 100}, row_group_size=60)
    chunk = source(path).plan(FILES, {"text": TEXT}, 1 << 20).chunks[0]
    blocks = list(source(path).read(chunk, FILES, {"text": TEXT}, ()))
    assert max(block.table.num_rows for block in blocks) < 20
    assert [place for block in blocks for place in block.table["@position"].to_pylist()] == list(range(100))


def test_a_row_has_one_key_whatever_its_files_types_are(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": pa.array([1], pa.int32()), "text": ["a"], "n": pa.array([2], pa.int8())})
    write(tmp_path / "b.parquet", {"n": [2.0], "text": pa.array(["a"]).dictionary_encode(), "more": [1], "id": ["1"]})
    found = read(source(tmp_path), ASKED)
    assert found.rows == [{"id": "1", "text": "a", "n": 2.0}] * 2
    assert found.keys[0] == found.keys[1]
    [note] = found.plan.notes
    assert_names(note, "columns", ": more")
    assert read(source(tmp_path), ASKED, key=["id"]).keys == []


def test_only_the_asked_columns_are_read(tmp_path: Path) -> None:
    noise = [bytes([row % 256]) * 1000 for row in range(1000)]
    objects = [[{"bbox": [at, at + 1, at + 2, at + 3], "mask": mask} for at in (1, 5)] for mask in noise]
    columns = {"noise": noise, "objects": objects, "id": range(1000)}
    path = write(tmp_path / "a.parquet", columns, use_dictionary=False, compression="none")
    found = read(source(path), {"objects.bbox": BOXES, "id": INTEGER})
    assert found.rows[7] == {"objects.bbox": [1, 2, 3, 4, 5, 6, 7, 8], "id": 7}
    assert found.plan.chunks[0].bytes < 200_000 < path.stat().st_size
    [note] = found.plan.notes
    assert_names(note, "columns", ": noise, objects.mask")


def test_columns_that_are_optional(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": [1, 2], "more": ["x", None]})
    write(tmp_path / "b.parquet", {"id": [3]})
    asked = {"id": CATEGORY, "more": replace(TEXT, optional=True), "never": replace(NUMBER, optional=True)}
    found = read(source(tmp_path), asked)
    assert [row["more"] for row in found.rows] == ["x", None, None]
    assert len(set(found.keys)) == 3
    assert read(source(tmp_path), {"never": asked["never"]}).rows == [{"never": None}] * 3
    with raises(SourceError, "b.parquet", "'more'", " id"):
        read(source(tmp_path), {"more": TEXT})


def test_pictures(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "c.png").write_bytes(b"picture")
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pictures = [{"bytes": b"\xff\xd8", "path": "a.jpg"}, {"bytes": None, "path": "c.png"}, {"path": "/c.png"}, None]
    write(tmp_path / "x" / "a.parquet", {"image": pa.array(pictures, kind)})
    found = read(source(f"{tmp_path}/**/*.parquet"), {"image": IMAGE})
    assert [row["image"] for row in found.rows] == [b"i\xff\xd8", b"fx/c.png"]
    assert [fault[:2] for fault in found.faults] == [("forbidden_path", "image"), ("missing_value", "image")]
    assert [reject.key is None for reject in found.rejects] == [True, False]
    assert [file.path for file in found.plan.inputs] == ["x/a.parquet", "x/c.png"]
    write(tmp_path / "b.parquet", {"image": ["c.png"]})
    (row,) = read(source(tmp_path / "b.parquet", images=f"{tmp_path}/x/"), {"image": IMAGE}).rows
    assert row["image"] == b"fc.png"
    with raises(SourceError, f"images: {tmp_path}/none", "no such folder"):
        read(source(tmp_path / "b.parquet", images=f"{tmp_path}/none"), {"image": IMAGE})


def test_bad_rows_are_rejects(tmp_path: Path) -> None:
    day = dt.date(2026, 11, 20)
    rows = {"t": pa.array([b"a", b"\xff", None, b"", b"b"]), "d": [day] * 5, "n": [1, 2, 3, 4, float("nan")]}
    found = read(source(write(tmp_path / "a.parquet", rows)), {"t": TEXT, "d": CATEGORY, "n": NUMBER})
    assert found.rows == [{"t": "a", "d": "2026-11-20", "n": 1}, {"t": "", "d": "2026-11-20", "n": 4}]
    faults = [(reject.position, reject.reason, reject.column) for reject in found.rejects]
    assert faults == [(1, "invalid_utf8", "t"), (2, "missing_value", "t"), (4, "wrong_type", "n")]


@pytest.mark.parametrize(
    ("columns", "asked", "facts"),
    [
        ({"id": [1.0]}, {"id": CATEGORY}, ["a.parquet", "'id'", "a whole number", "a float"]),
        ({"id": [1.0]}, {"idd": NUMBER}, ["a.parquet", "'idd'", " id;", "mean 'id'"]),
        ({"o": [{"id": "a"}]}, {"o.id": NUMBER}, ["a.parquet", "'o.id'", "a number", "a string"]),
        ({"id": pa.array([], pa.int8())}, {"id": NUMBER}, ["row"]),
        (pa.table([[1], [2]], names=["id", "id"]), {"id": NUMBER}, ["a.parquet", "two columns 'id'"]),
    ],
)
def test_sources_that_cannot_be_read(tmp_path: Path, columns: Any, asked: Any, facts: list[str]) -> None:
    write(tmp_path / "a.parquet", columns)
    with raises(SourceError, str(tmp_path), *facts):
        read(source(tmp_path), asked)


@pytest.mark.parametrize("cut", [10, -10, -1])
def test_a_file_whose_footer_is_damaged(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:cut])
    with raises(SourceError, "a.parquet", "Parquet: "):
        read(source(path), ASKED)


def test_a_file_whose_pages_are_damaged_ends_the_build(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", row_group_size=500, compression="snappy")
    column = pq.read_metadata(path).row_group(1).column(1)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    with raises(SourceError, "a.parquet", "group 1 ") as raised:
        read(source(path), ASKED, chunk_bytes=1)
    assert raised.value.__cause__ is None, "what is told to the user is the first cause"
    assert len(read(source(path), {"id": CATEGORY}).rows) == 1000


def test_checksums_of_pages_are_checked(tmp_path: Path) -> None:
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    path = write(tmp_path / "a.parquet", **options)
    path.write_bytes(path.read_bytes().replace(b"text 500", b"text 5O0"))
    with raises(SourceError, "a.parquet", "group 0 ", "CRC"):
        read(source(path), {"text": TEXT})


def test_a_footer_that_lies_of_rows_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", row_group_size=500)
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *args, **more: [*batches(*args, **more)][:-1])
    with raises(SourceError, "a.parquet", "groups 0 to 1", "1000 rows too few"):
        read(source(path), ASKED)


def test_a_file_that_is_far_away_and_one_that_is_gone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    far = FarFiles(a_parquet=path.read_bytes())
    assert len(read(source("mem://far/a.parquet"), ASKED, files=far).rows) == 1000
    plan = source(path).plan(FILES, ASKED, 1)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(source(path).read(plan.chunks[0], FILES, ASKED, None))


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


def write_values(path: Path, values: Any, **options: Any) -> SourceReader[Any]:
    pq.write_table(pa.table({"v": values}), path, **{"compression": "zstd", **options})
    assert path.stat().st_size < 100_000
    return source(path)


def one_list(values: Any) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pa.array(values))


def repeated(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [LONG])


@pytest.mark.parametrize(
    "options",
    [{}, {"use_dictionary": False, "column_encoding": {"v": "DELTA_BYTE_ARRAY"}}],
    ids=["dictionary", "delta"],
)
def test_a_text_that_stands_in_many_rows_is_held_in_some(tmp_path: Path, pool: pa.MemoryPool, options: Any) -> None:
    found = write_values(tmp_path / "a.parquet", repeated(400).cast(pa.string()), **options)
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
        (lambda: one_list(np.zeros(1 << 26, np.int8)), replace(NUMBER, many=True),
         ["'v.list.element'", "67,108,864 values", " 33,554,432"]),
        (lambda: one_list(repeated(300)).cast(pa.list_(pa.string())), TEXTS,
         ["lists", "'v.list.element'", "314,572,800 bytes", " 268,435,456"]),
    ],
    ids=["page", "list", "list of texts"],
)  # fmt: skip
def test_what_expands_too_far_is_refused_before_it_is_decoded(
    tmp_path: Path, pool: pa.MemoryPool, values: Callable[[], pa.Array], column: Any, facts: list[str]
) -> None:
    found = write_values(tmp_path / "a.parquet", values(), use_dictionary=column is not TEXT)
    before = pool.max_memory()
    with raises(SourceError, "a.parquet", "group 0 ", *facts, "smaller row groups"):
        read(found, {"v": column})
    assert pool.max_memory() - before < 16 * MIB


@constants(parquet, BLOCK_BYTES=100, ROWS_BYTES=5000)
def test_rows_too_large_for_a_list_are_refused(tmp_path: Path) -> None:
    found = write_values(tmp_path / "a.parquet", [["a"], ["word"] * 5000])
    with raises(SourceError, "a.parquet", "1 of its rows", " 5,000"):
        read(found, {"v": TEXTS})


@constants(checks, MAX_LINE_BYTES=10)
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
