"""Parquet: rows of row groups, only the asked columns, whatever types the files have."""

import datetime as dt
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipeline.sources.formats import parquet as parquet
from recordmill.pipeline.sources.source_reader import SourceError
from tests import tables
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, INTEGER, NUMBER, TEXT, FarFiles, read

source = partial(tables.source, "parquet")
ASKED = {"id": CATEGORY, "text": TEXT, "n": NUMBER}
ROWS = {"id": range(1000), "text": [f"text {row}" for row in range(1000)], "n": [row / 4 for row in range(1000)]}
BOXES = replace(NUMBER, many=True, multiple=4)


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
    objects = [
        [{"bbox": [1, 2, 3, 4], "mask": noise[row]}, {"bbox": [5, 6, 7, 8], "mask": noise[row]}] for row in range(1000)
    ]
    path = write(
        tmp_path / "a.parquet",
        {"noise": noise, "objects": objects, "id": range(1000)},
        use_dictionary=False,
        compression="none",
    )
    found = read(source(path), {"objects.bbox": BOXES, "id": INTEGER})
    assert found.rows[7] == {"objects.bbox": [1, 2, 3, 4, 5, 6, 7, 8], "id": 7}
    assert found.plan.chunks[0].bytes < 200_000 < path.stat().st_size
    [note] = found.plan.notes
    assert_names(note, "columns", ": noise, objects.mask")


def test_columns_of_dotted_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a.b": ["x"], "a": [{"b": "y", "c.d": "z"}]})
    assert read(source(path), {"a.b": TEXT, "a.c.d": TEXT}).rows == [{"a.b": "x", "a.c.d": "z"}]


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


def test_bad_rows_are_rejects(tmp_path: Path) -> None:
    day = dt.date(2026, 11, 20)
    rows = {"t": pa.array([b"a", b"\xff", None, b"", b"b"]), "d": [day] * 5, "n": [1, 2, 3, 4, float("nan")]}
    found = read(source(write(tmp_path / "a.parquet", rows)), {"t": TEXT, "d": CATEGORY, "n": NUMBER})
    assert found.rows == [{"t": "a", "d": "2026-11-20", "n": 1}, {"t": "", "d": "2026-11-20", "n": 4}]
    assert [(reject.position, reject.reason, reject.column) for reject in found.rejects] == [
        (1, "invalid_utf8", "t"),
        (2, "missing_value", "t"),
        (4, "wrong_type", "n"),
    ]


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


def test_files_that_are_far_away(tmp_path: Path) -> None:
    far = FarFiles(a_parquet=write(tmp_path / "a.parquet").read_bytes())
    assert len(read(source("mem://far/a.parquet"), ASKED, files=far).rows) == 1000


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    plan = source(path).plan(FILES, ASKED, 1)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(source(path).read(plan.chunks[0], FILES, ASKED, None))
