"""Plain text: lines and files as rows, with columns from their paths, and files joined line by line."""

import gzip
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.sources import batches
from recordmill.pipeline.sources.faults import Reject, SourceError
from recordmill.pipeline.sources.formats import csv_records, text
from recordmill.pipeline.sources.formats import text as text_source
from recordmill.pipeline.sources.images import to_file
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests import tables
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, INTEGER, NUMBER, TEXT

T = {"text": TEXT}
source = partial(tables.source, "text")


def read(
    path: Path, columns: Columns = T, chunk_bytes: int = 1 << 20, key: tuple[str, ...] | None = (), **options: Any
) -> tuple[list[tuple[Any, ...]], list[Reject]]:
    """Rows, and rejects with their positions in their chunks."""
    found = tables.read(source(path, **options), columns, chunk_bytes, key)
    keys = [(key,) for key in found.keys] if key is None else [()] * len(found.rows)
    rows = [tuple(row[name] for name in columns) for row in found.rows]
    return [row + key for row, key in zip(rows, keys, strict=True)], found.rejects


def fill(folder: Path, **contents: bytes) -> Path:
    """Writes files; `a__b` is `b.txt` in the folder `a`, other endings are written `b_md`."""
    for name, content in contents.items():
        path = name.replace("__", "/").replace("_", ".")
        tables.write(folder / (path if "." in path else f"{path}.txt"), content)
    return folder


def test_lines(tmp_path: Path) -> None:
    fill(tmp_path, a=b'\xef\xbb\xbf one,"1" \r\n\n \t\ntwo\rthree\n\xff\nfour', x__b=b"one\n", c_md=b"no\n")
    columns = T | {"file_name": CATEGORY, "label": Column(ColumnType.CATEGORY, optional=True), "line": INTEGER}
    for chunk_bytes in (1, 1000):
        rows, [reject] = read(tmp_path, columns, chunk_bytes)
        assert rows == [(' one,"1" ', "a.txt", None, 1), ("two\rthree", "a.txt", None, 4),
            ("four", "a.txt", None, 6), ("one", "x/b.txt", "x", 1)]  # fmt: skip
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
    lines = [line.removesuffix("\r") for line in text.split("\n")]  # a CR within a line ends none
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
        assert_names(note, "empty", ": 1 (", "cats/old/c.txt)")
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


@pytest.mark.parametrize("code", ["utf-16-le", "utf-16-be"])
def test_lines_in_utf_16_are_no_lines_of_utf_8(code: str, tmp_path: Path) -> None:
    fill(tmp_path, a="\ufeffone\ntwo\n".encode(code))
    with raises(SourceError, "a.txt", "`encoding: utf-16`"):
        source(tmp_path).plan(FILES, T, 1 << 20)


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


PAIR = {"en": TEXT, "de": TEXT}
NAMES = {"en": "train.en", "de": "train.de"}


def joined(path: object, columns: dict[str, str], **options: Any) -> SourceReader[Any]:
    return source(path, columns=columns, **options)


def fill_sides(folder: Path, **contents: bytes) -> Path:
    """Writes files: `train_en` is `train.en`."""
    for name, content in contents.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


def test_blank_lines_shift_no_row(tmp_path: Path) -> None:
    fill_sides(tmp_path, train_en=b"\xef\xbb\xbfa\n\n \nd\r\n\n", train_de=b"1\n2\n\n4\n\n")
    result = tables.read(joined(tmp_path, NAMES), PAIR | {"line": INTEGER, "file_name": CATEGORY})
    assert [tuple(row.values()) for row in result.rows] == [
        ("a", "1", 1, "train.en"), ("", "2", 2, "train.en"), ("d", "4", 4, "train.en")
    ]  # fmt: skip
    assert result.keys[0] == blake2b(b"1:11:a", digest_size=16).hexdigest().encode()  # train.de comes first
    assert result.plan.inputs[0].path == "train.de"


LINES = st.lists(st.tuples(*[st.sampled_from(["", " ", "a", "é" * 9, '"', "x,\t"])] * 2), min_size=1, max_size=30)


@given(LINES, st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.sampled_from(["\n", "\r\n", "\r"]))
def test_rows_are_the_same_however_the_files_are_cut(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], size: int, piece: int, every: int, end: str
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    sides = [end.join(side) + end for side in zip(*pairs, strict=True)]
    for name, side in zip(NAMES.values(), sides, strict=True):
        (folder / name).write_bytes(side.encode())
        (folder / f"{name}.gz").write_bytes(gzip.compress(side.encode()))
        (folder / f"{name}.16").write_bytes(side.encode("utf-16"))
    expected = [(en, de, line) for line, (en, de) in enumerate(pairs, 1) if en.strip() or de.strip()]
    asked = PAIR | {"line": INTEGER}
    with constants(csv_records, PIECE_BYTES=piece), constants(text, STRIDE=every):
        with constants(text_source, BATCH_LINES=2):
            for ending, encoding in (("", "utf-8"), (".gz", "utf-8"), (".16", "utf-16")):
                columns = {name: f"{file}{ending}" for name, file in NAMES.items()}
                found = tables.read(joined(folder, columns, encoding=encoding), asked, size)
                assert [tuple(row.values()) for row in found.rows] == expected
                assert len(found.plan.chunks) == 1 or not ending
                assert sum(chunk.bytes for chunk in found.plan.chunks) == found.plan.bytes


def test_line_ends_do_not_change_within_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\r" * 99 + b"b\n")
    with constants(csv_records, TAIL_BYTES=3, PIECE_BYTES=9), raises(SourceError, str(path), "CR", "LF", "`tr"):
        read(path)


def test_a_chunk_is_about_as_large_as_asked_and_rejects_name_line_and_file(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    fill_sides(tmp_path, train_en="\n".join(lines).encode(), n=b"1\n" * 41 + b"x\n" + b"\xff\n" + b"1\n" * 57)
    asked = joined(tmp_path, {"en": "train.en", "n": "n"})
    with constants(text, STRIDE=10):
        plan = asked.plan(FILES, {"en": TEXT, "n": NUMBER}, 200)
        result = tables.read(asked, {"en": TEXT, "n": NUMBER}, 200)
    assert 4 <= len(plan.chunks) <= 7
    assert [row["en"] for row in result.rows] == lines[:41] + lines[43:]
    assert [(reject.reason, reject.column) for reject in result.rejects] == [("wrong_type", "n")] * 2
    before = sum(chunk.index < result.rejects[0].chunk for chunk in plan.chunks)
    assert asked.locate(plan.chunks[before], 0)[0] == "train.en"


@constants(csv_records, MAX_LINE_BYTES=50)
def test_a_line_that_is_too_long_rejects_its_row(tmp_path: Path) -> None:
    fill_sides(tmp_path, train_en=b"a\n" + b"b" * 200 + b"\nc\n", train_de=b"1\n2\n3\n")
    result = tables.read(joined(tmp_path, NAMES), PAIR)
    assert [row["de"] for row in result.rows] == ["1", "3"]
    [reject] = result.rejects
    assert (reject.reason, reject.position) == ("too_large", 1)


@pytest.mark.parametrize(
    ("contents", "facts"),
    [
        ({"train_en": b"a\nb\nc\n", "train_de": b"1\n2\n"}, ["train.en has 3", "train.de has 2", "remove lines"]),
        ({"train_en": b"a\n", "train_de": b""}, ["train.en has 1", "train.de has 0"]),
        ({"train_en": b"a\nb\n", "train_de": b"1\n2\n\n"}, ["train.en has 2", "train.de has 3"]),
        ({"train_en": b"", "train_de": b""}, ["empty"]),
        ({"train_en": b"a\n", "train_ed": b""}, ["'train.de'", "no file", "mean `train.ed`", "`columns`"]),
    ],
)
def test_files_that_do_not_fit_together(tmp_path: Path, contents: dict[str, bytes], facts: list[str]) -> None:
    with raises(SourceError, *facts):
        tables.read(joined(fill_sides(tmp_path, **contents), NAMES), PAIR)


def test_a_column_of_text_is_not_one_of_joined_files(tmp_path: Path) -> None:
    fill_sides(tmp_path, train_en=b"a\n", train_de=b"1\n")
    with raises(SourceError, "'text'", "train.en", "line"):
        tables.read(joined(tmp_path, NAMES), PAIR | {"text": TEXT})
    with raises(SourceError, "txet", "mean `text`"):
        tables.read(joined(tmp_path, {"caption": "txet"}), {"caption": TEXT})
    row = tables.read(joined(tmp_path, NAMES | {"n": "line"}), PAIR | {"n": CATEGORY}).rows[0]
    assert row == {"en": "a", "de": "1", "n": "1"}


SPEC = """
name: pairs
source: {format: text, SOURCE}
features: {en: {kind: text}, de: {kind: text}}
"""


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("split: train", ["`path`", "train.en"]),
        ("columns: {en: text}", ["`path`"]),
        ("columns: {en: ../train.en}", ["'../train.en'", "`path`"]),
        ("columns: {en: /data/train.en}", ["'/data/train.en'", "`path`"]),
        ("columns: {en: train.en}, document: file", ["`document: file`"]),
    ],
)
def test_a_wrong_spec_is_one_line(options: str, facts: list[str]) -> None:
    with raises(SpecError, *facts):
        parse_spec(SPEC.replace("SOURCE", options))


def test_the_folder_is_the_specs_and_each_file_belongs_to_the_build_key(tmp_path: Path) -> None:
    fill_sides(tmp_path, train_en=b"a\n", train_de=b"1\n", dataset_yaml=b"")
    (tmp_path / "dataset.yaml").write_text(SPEC.replace("SOURCE", "columns: {en: train.en, de: ./train.de}"))
    keys = set()
    for lines in (b"1\n", b"22\n"):
        (tmp_path / "train.de").write_bytes(lines)
        keys.add(make_plan(load_spec(str(tmp_path / "dataset.yaml")), FILES).build_key)
    assert len(keys) == 2


def test_each_day_joins_its_own_files(tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / day).mkdir()
        fill_sides(tmp_path / day, train_en=b"a\n", train_de=day.encode())
    spec = SPEC.replace("SOURCE", f"path: '{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}', columns: {{en: train.en, de: train.de}}")
    plan = make_plan(parse_spec(spec), FILES)
    assert [each.span for each in plan.sources] == ["2026-01-01", "2026-01-02"]
