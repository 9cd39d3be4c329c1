"""Plain text: lines and files as rows, with columns from their paths."""

import gzip
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.sources import batches
from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.formats import csv_records, reader_of
from recordmill.pipeline.sources.formats import text as text_source
from recordmill.pipeline.sources.images import to_file
from recordmill.pipeline.sources.options import TextFiles
from recordmill.pipeline.sources.source_reader import SourceError, SourceReader
from recordmill.pipeline.sources.typing.arrays import arrow_type
from tests.constants import constants
from tests.messages import assert_names, raises

TEXT, CATEGORY, NUMBER, INTEGER, IMAGE, *_ = map(Column, ColumnType)
FILES = BeamFiles()
T = {"text": TEXT}


def source(path: object, **options: Any) -> SourceReader[Any]:
    return reader_of(TextFiles(format="text", path=str(path), **options))


def read(
    path: Path, columns: Columns = T, chunk_bytes: int = 1 << 20, key: tuple[str, ...] | None = (), **options: Any
) -> tuple[list[tuple[Any, ...]], list[Reject]]:
    """Rows, and rejects with their positions in their chunks."""
    asked = source(path, **options)
    rows, rejects = list[tuple[Any, ...]](), list[Reject]()
    for chunk in asked.plan(FILES, columns, chunk_bytes).chunks:
        for block in asked.read(chunk, FILES, columns, key):
            assert block.table.select(list(columns)).schema.types == [arrow_type(column) for column in columns.values()]
            names = [*columns, "@key"] if key is None else list(columns)
            rows += [tuple(row[name] for name in names) for row in block.table.to_pylist()]
            rejects += block.rejects
    return rows, rejects


def fill(folder: Path, **contents: bytes) -> Path:
    """Writes files; `a__b` is `b.txt` in the folder `a`, other endings are written `b_md`."""
    for name, content in contents.items():
        path = name.replace("__", "/").replace("_", ".")
        file = folder / (path if "." in path else f"{path}.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def test_lines(tmp_path: Path) -> None:
    fill(tmp_path, a=b'\xef\xbb\xbf one,"1" \r\n\n \t\ntwo\rthree\n\xff\nfour', x__b=b"one\n", c_md=b"no\n")
    columns = T | {"file_name": CATEGORY, "label": Column(ColumnType.CATEGORY, optional=True), "line": INTEGER}
    for chunk_bytes in (1, 1000):
        rows, [reject] = read(tmp_path, columns, chunk_bytes)
        assert rows == [(' one,"1" ', "a.txt", None, 1), ("two", "a.txt", None, 4), ("three", "a.txt", None, 5),
            ("four", "a.txt", None, 7), ("one", "x/b.txt", "x", 1)]  # fmt: skip
        assert (reject.reason, reject.column) == ("invalid_utf8", "text")
    plan = source(tmp_path).plan(FILES, T, 1000)
    [note] = plan.notes
    assert_names(note, "other files", ": 1 (c.md)")
    assert source(tmp_path).locate(plan.chunks[0], 5) == ("a.txt", 6)


def test_the_key_of_a_line_is_its_text_or_its_place(tmp_path: Path) -> None:
    fill(tmp_path, a=b"x\ny\nx\n", b=b"x\r\n")
    keys = [key for _, key in read(tmp_path, key=None)[0]]
    assert [keys[0]] * 2 == [keys[2], keys[3]] == [blake2b(b"x", digest_size=16).hexdigest().encode()] * 2
    places = {"file_name": CATEGORY, "line": CATEGORY}
    assert read(tmp_path, places, chunk_bytes=1)[0] == [("a.txt", "1"), ("a.txt", "2"), ("a.txt", "3"), ("b.txt", "1")]


@given(st.lists(st.sampled_from(["a", "é", " ", "\n", "\r\n", "\r", '"', ","])), st.integers(1, 20), st.integers(1, 9))
def test_lines_are_the_same_however_the_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], chunk_bytes: int, piece: int
) -> None:
    text = "first\n" + "".join(parts)
    folder = fill(tmp_path_factory.mktemp("text"), a=text.encode(), b_txt_gz=gzip.compress(text.encode()))
    (folder / "u.text").write_bytes(text.encode())
    with constants(csv_records, PIECE_BYTES=piece), constants(text_source, BATCH_LINES=2):
        rows, rejects = read(folder, T | {"line": INTEGER}, chunk_bytes)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert rows == [(line, number) for number, line in enumerate(lines, 1) if line.strip()] * 3
    assert not rejects


@constants(csv_records, MAX_LINE_BYTES=50)
def test_a_line_that_is_too_long(tmp_path: Path) -> None:
    rows, [reject] = read(fill(tmp_path, a=b"a\n" + b"b" * 200 + b"\nc\n"), T | {"line": INTEGER}, 10)
    assert rows == [("a", 1), ("c", 3)]
    assert reject.reason == "too_large"
    assert_names(reject.message, "64 MiB")


def test_files(tmp_path: Path) -> None:
    fill(tmp_path, a=b"\xef\xbb\xbfone\n\ntwo\n", cats__b=b"b", cats__old__c=b"", dogs__d=b"\xff", dogs__e=b"e" * 60)
    (tmp_path / "cats" / "e\u0301.txt").write_bytes(b" ")
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress(b"zzz")[:-9])
    with constants(text_source, MAX_LINE_BYTES=50):
        columns = T | {"file_name": TEXT, "label": Column(ColumnType.CATEGORY, optional=True)}
        plan = source(tmp_path, document="file").plan(FILES, columns, 1 << 20)
        [note] = plan.notes
        assert_names(note, "empty", ": 1 (cats/old/c.txt)")
        assert plan.rows == 6
        for chunk_bytes, piece in ((1, 1), (1000, 4), (1 << 20, 1 << 20)):
            with constants(batches, BLOCK_BYTES=piece):
                rows, rejects = read(tmp_path, columns, chunk_bytes, key=None, document="file")
                assert rows == [("one\n\ntwo\n", "a.txt", None, b"a.txt"), ("b", "cats/b.txt", "cats", b"cats/b.txt"),
                    (" ", "cats/e\u0301.txt", "cats", "cats/\u00e9.txt".encode())]  # fmt: skip
                assert [reject.reason for reject in rejects] == ["invalid_utf8", "too_large", "unreadable"]
                for reject, fact in zip(rejects, ("UTF-8", "64 MiB", "Truncated compressed stream"), strict=True):
                    assert_names(reject.message, fact)
                assert not any(reject.path for reject in rejects)  # they are there
        [chunk] = plan.chunks
        assert [source(tmp_path).locate(chunk, reject.position) for reject in rejects] == [
            ("dogs/d.txt", None), ("dogs/e.txt", None), ("z.txt.gz", None),
        ]  # fmt: skip


def test_files_that_are_gone_or_of_another_encoding_are_rejects(tmp_path: Path) -> None:
    fill(tmp_path, a="é".encode("utf-16"), b=b"plain", c="é".encode("utf-16") + b"\0\xdc", d=b"gone")
    asked = source(tmp_path / "*", document="file", encoding="utf-16")
    [chunk] = asked.plan(FILES, T, 1 << 20).chunks
    (tmp_path / "d.txt").unlink()
    [block] = asked.read(chunk, FILES, T, ())
    assert block.table["text"].to_pylist() == ["é"]
    assert [reject.reason for reject in block.rejects] == ["invalid_utf8", "invalid_utf8", "unreadable"]
    facts = (["file", "utf-16"], ["column", "utf-16"], ["file", "No such file or directory"])
    for reject, names in zip(block.rejects, facts, strict=True):
        assert_names(reject.message, *names)
    assert [reject.path for reject in block.rejects] == [None, None, "d.txt"]


def test_lines_may_be_numbers_or_paths_of_pictures(tmp_path: Path) -> None:
    fill(tmp_path, lists__a=b"1.5\nx/1.png\n../2.png\n")
    rows, rejects = read(tmp_path / "lists", {"text": IMAGE}, images=str(tmp_path))
    assert rows == [(to_file("1.5"),), (to_file("x/1.png"),)]
    assert [reject.reason for reject in rejects] == ["forbidden_path"]
    assert read(tmp_path / "lists" / "a.txt", {"text": NUMBER})[0] == [(1.5,)]


@pytest.mark.parametrize(("path", "document", "columns", "facts"), [
    ("", "line", {"tex": TEXT}, ["'tex'", "text, file_name, label, line", "mean 'text'"]),
    ("", "file", {"line": TEXT}, ["'line'", "text, file_name, label"]),
    ("x", "line", T, ["/x", "no *.txt or *.text"]),
    ("b.txt.gz", "line", T, ["b.txt.gz", "zlib inflate failed"]),
])  # fmt: skip
def test_a_source_that_cannot_be_read(
    tmp_path: Path, path: str, document: str, columns: Columns, facts: list[str]
) -> None:
    fill(tmp_path, a=b"a", b_txt_gz=b"plain", x__y_md=b"a")
    with raises(SourceError, *facts):
        source(tmp_path / path, document=document).plan(FILES, columns, 1000)
