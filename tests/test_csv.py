"""CSV and TSV: what a row is, and that it is the same however the file is cut and whatever reads it."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipeline.sources.encoded import open_utf8
from recordmill.pipeline.sources.faults import Reject, SourceError
from recordmill.pipeline.sources.formats import csv as csv_source
from recordmill.pipeline.sources.formats import csv_records as csv_records
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.images import inline, to_file
from recordmill.pipeline.sources.options import Csv, Tsv
from recordmill.pipeline.sources.source_reader import Plan, SourceReader
from recordmill.pipeline.sources.typing.arrays import arrow_type, strings
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, INTEGER, NUMBER, TEXT

T = {"t": TEXT}


def source(path: object, **options: Any) -> SourceReader[Any]:
    kind = Tsv if str(path).endswith(".tsv") else Csv
    return reader_of(kind(format=kind.__name__.lower(), path=str(path), **options))  # type: ignore[arg-type]


def read(
    path: Path, columns: Columns = T, chunk_bytes: int = 1 << 20, key: tuple[str, ...] | None = None, **options: Any
) -> tuple[list[dict[str, Any]], list[Reject]]:
    """Rows and rejects with their lines in their file, counted from 1."""
    asked = source(path, **options)
    plan = asked.plan(FILES, columns, chunk_bytes)
    rows, rejects, lines = list[dict[str, Any]](), list[Reject](), Counter[str]()
    for chunk in plan.chunks:
        first = lines[chunk.file]
        assert chunk.work.first_line == first
        for block in asked.read(chunk, FILES, columns, key):
            block.table.validate(full=True)
            assert block.table.select(list(columns)).schema.types == [arrow_type(column) for column in columns.values()]
            rows += [row | {"@position": row["@position"] + 1 + first} for row in block.table.to_pylist()]
            rejects += [Reject(0, r.position + 1 + first, r.reason, r.message, r.key, r.column) for r in block.rejects]
            json.dumps(block.positions)  # it stands in a report
            lines[chunk.file] += block.positions
    assert plan.rows == len(rows) + len(rejects)
    return rows, rejects


def write(folder: Path, content: bytes, name: str = "rows.csv") -> Path:
    file = folder / name
    file.write_bytes(content)
    return file


def by_python(content: bytes, width: int, **dialect: Any) -> Iterator[tuple[int, list[str] | None]]:
    """The records as Python's `csv` reads them: the line where each starts, and its cells, if it is good."""
    content = re.sub(rb"\r(?!\n|\Z)", b"\x01", content)  # in files with LFs, a CR alone ends no record
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(text, strict=True, **dialect)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield line, None
            continue
        if record:
            yield line, [cell.replace("\x01", "\r") for cell in record] if len(record) == width else None


MARK = b"\xef\xbb\xbf"
RECORDS = [b"a,b\n", b'"a",b\r\n', b'"a\n""",\n', b'a"",\r', b'"a"b,c\n', b"a\n", MARK + b"a,b\n"]
PARTS = [b'"', b'"', b",", b",", b"\n", b"\r", b"a", b" ", b"\0", "é".encode(), b"\xff", *RECORDS, *RECORDS]
ESCAPED = [b"\\", b'\\"', b"\\,", b"\\\n", b"\\\\", b'"a\\"",b\n', b'"\\\\",b\n', b"\\\na,b\n"]
BLANKS = [b"  ", b'a, "b, c"\n', b'a,  "\nb"\n', b' "a", b\n', b'"a" ,b\n', b', " "']
IN_DIALECTS: list[tuple[dict[str, Any], list[bytes]]] = [
    ({}, PARTS),
    ({"escape": "\\"}, [*PARTS, *ESCAPED, *ESCAPED]),
    ({"trim": True}, [*PARTS, *BLANKS, *BLANKS]),
    ({"escape": "\\", "trim": True}, [*PARTS, *ESCAPED, *BLANKS]),
    ({"escape": "\\", "quote": None}, [*PARTS, *ESCAPED]),
]
Content = tuple[dict[str, Any], bytes]


def contents(case: tuple[dict[str, Any], list[bytes]]) -> st.SearchStrategy[Content]:
    return st.lists(st.sampled_from(case[1])).map(lambda parts: (case[0], b"".join(parts)))


@given(
    st.sampled_from(IN_DIALECTS).flatmap(contents),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.integers(1, 40),
    st.integers(4, 40),
    st.integers(1, 4),
)
def test_rows_are_what_python_reads_however_the_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, given: Content, mark: bytes, chunk_bytes: int, piece: int, batch: int
) -> None:
    options, content = given[0], mark + b"t,u\nfirst,1\n" + given[1]
    file = write(tmp_path_factory.mktemp("rows"), content)
    names = {"escape": "escapechar", "trim": "skipinitialspace"}
    dialect = {names[name]: value for name, value in options.items() if name in names}
    dialect |= {"quoting": csv.QUOTE_NONE} if "quote" in options else {}
    expected = list(by_python(content, 2, **dialect))[1:]
    with constants(csv_source, BATCH_RECORDS=batch), constants(csv_records, PIECE_BYTES=piece):
        rows, rejects = read(file, T, chunk_bytes, **options)  # by Arrow, or by Python where a record is bad
    assert (rows, rejects) == read(file, T, **options)
    texts = {line: record[0] for line, record in expected if record}
    invalid = {line for line, text in texts.items() if "\udcff" in text}
    assert [(row["@position"], row["t"]) for row in rows] == [item for item in texts.items() if item[0] not in invalid]
    assert [r.position for r in rejects] == [line for line, record in expected if record is None or line in invalid]
    assert {r.reason for r in rejects if r.position in invalid} <= {"invalid_utf8"}


@given(
    st.text("0123456789+-.eExXnaif _\u0661\u00a0", max_size=9)
    | st.floats().map(repr)
    | st.integers(-(1 << 66), 1 << 66).map(str),
    st.sampled_from([NUMBER, INTEGER]),
)
def test_a_number_is_what_python_reads_whatever_stands_beside_it(text: str, column: Column) -> None:
    alone, faults = dict[int, Any](), dict[int, Any]()
    [value] = typed_values("n", column, strings([text]), ("", ""), alone, as_cells=True).to_pylist()
    beside = typed_values("n", column, strings([text, "1_0"]), ("", ""), faults, as_cells=True).to_pylist()
    assert repr(beside) == repr([value, None])
    assert {1: "wrong_type"} | {row: fault.reason for row, fault in alone.items()} == {
        row: fault.reason for row, fault in faults.items()
    }


def digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).hexdigest().encode()


DIALECTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "quoted": (b't,u\n"a,""b""","c\nd"\n\xc3\xa9,\n', {}),
    "quoted as little as possible": (b't,"u"\r\n"a,""b""","c\nd"\r\n"\xc3\xa9",""', {}),
    "semicolons": (b't;u\n"a,""b""";"c\nd"\n\xc3\xa9;', {"separator": ";"}),
    "single quotes": (b"t,u\n'a,\"b\"','c\nd'\n\xc3\xa9,''\n", {"quote": "'"}),
    "an escape": (b't,u\n"a,\\"b\\"","c\nd"\n\xc3\xa9,\n', {"escape": "\\"}),
    "blanks": (b't, u\n  "a,""b""", "c\nd"\n \xc3\xa9, \n', {"trim": True}),
    "no header": (b'"a,""b""","c\nd"\n\xc3\xa9,\n', {"header": ["t", "u"]}),
    "a mark": (b'\xef\xbb\xbf"t",u\n"a,""b""","c\nd"\n\xc3\xa9,\n', {"encoding": "utf-8-sig"}),
    "Latin-1": (b't,u\n"a,""b""","c\nd"\n\xe9,\n', {"encoding": "latin-1"}),
    "UTF-16": ('t,u\n"a,""b""","c\nd"\n\u00e9,\n'.encode("utf-16"), {"encoding": "utf-16"}),
    "UTF-16 with a mark that is named": (
        '\ufefft,u\n"a,""b""","c\nd"\né,\n'.encode("utf-16-be"),
        {"encoding": "utf_16_be"},
    ),
}


@pytest.mark.parametrize(("content", "options"), DIALECTS.values(), ids=DIALECTS)
def test_a_row_and_its_key_are_the_same_however_it_is_written(
    tmp_path: Path, content: bytes, options: dict[str, Any]
) -> None:
    first = 1 if "header" in options else 2
    expected = [
        {"t": 'a,"b"', "@position": first, "@key": digest('5:a,"b":3:c\nd')},
        {"t": "é", "@position": first + 2, "@key": digest("2:é:0:")},
    ]
    for chunk_bytes in (1, 1000):
        assert read(write(tmp_path, content), T, chunk_bytes, **options) == (expected, [])


@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_nulls_of_mysql_are_empty_cells(tmp_path: Path, chunk_bytes: int) -> None:
    file = write(tmp_path, b"t,u\n\\N,1\na,\\N\n\\\\N,\\Nb\n\\N,\\N\n", "rows.csv")
    columns = {name: Column(ColumnType.CATEGORY, optional=True) for name in "tu"}
    rows, rejects = read(file, columns, chunk_bytes, escape="\\")
    assert ([(row["t"], row["u"]) for row in rows], rejects) == (
        [(None, "1"), ("a", None), ("\\N", "Nb"), (None, None)], []
    )  # fmt: skip


def test_tabs_and_no_quotes(tmp_path: Path) -> None:
    file = write(tmp_path, b't\tu\n"a\t5" pipe\n', "rows.tsv")
    assert [row["t"] for row in read(file, quote=None)[0]] == ['"a']
    [reject] = read(file)[1]
    assert_names(reject.message, "not CSV", "closing quote")
    assert [row["t"] for row in read(write(tmp_path, b't\tu\n5"\tb"\n', "rows.tsv"))[0]] == ['5"']


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"t,u\na,\x81\n\x81,b\n", "cp1252"),
        (b"t,u\na,\xe9\n\xe9,b\n", "ascii"),
        ("t,u\na,@\n@,b\n".encode("utf-16").replace("@".encode("utf-16-le"), b"\0\xdc"), "utf-16"),
        (b"t,u\na,\x81\n\x81,b\n", "shift_jis"),
    ],
)
def test_what_is_not_of_the_encoding_is_a_fault_of_columns_that_are_read(
    tmp_path: Path, content: bytes, encoding: str
) -> None:
    rows, [reject] = read(write(tmp_path, content), encoding=encoding)
    assert [row["t"] for row in rows] == ["a"]
    assert (reject.position, reject.reason, reject.column) == (3, "invalid_utf8", "t")
    assert reject.message.endswith(f" {encoding}")


MALFORMED: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "too few cells": (b"a", ("1 cell,", "2")),
    "too many cells": (b"a,b,c", ("3 cells,", "2")),
    "text behind a quote": (b'"a"b,c', ("not CSV", "closing quote")),
    "a comma at the end": (b"a,b,", ("3 cells,", "2", "`header`", "`skip: 1`")),
    "an escape": (b'"a \\"b\\"",c', ("not CSV", "closing quote", "`escape: '\\'`")),
    "a space before a quote": (b'a, "b,c"', ("3 cells,", "2", "`trim: true`")),
    "a space behind a quote": (b'a,"b" ', ("not CSV", "closing quote")),
}


@pytest.mark.parametrize(("bad", "facts"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_row_is_one_reject(tmp_path: Path, bad: bytes, facts: tuple[str, ...]) -> None:
    rows, [reject] = read(write(tmp_path, b't,u\n\nfirst,1\n%b\nlast,"2"\n\n\n' % bad), key=("t",))
    assert [(row["t"], row["@position"]) for row in rows] == [("first", 3), ("last", 5)]
    assert (reject.position, reject.reason, reject.key) == (4, "malformed_row", None)
    assert_names(reject.message, *facts)
    assert ("`" in reject.message) == ("`" in "".join(facts))


@pytest.mark.parametrize("bad", [b'"a"b,c', b"a", b"\xff,b"])
def test_a_bad_first_row_without_a_header_is_a_reject(tmp_path: Path, bad: bytes) -> None:
    rows, [reject] = read(write(tmp_path, b"%b\nc,d\n" % bad), header=["t", "u"])
    assert ([row["t"] for row in rows], reject.position) == (["c"], 1)


@constants(csv_records, MAX_LINE_BYTES=100)
def test_a_record_that_is_too_large(tmp_path: Path) -> None:
    just = b'"%b"\n' % (b"a\n" * 48)
    file = write(tmp_path, b't\nb\n"' + b"c\n" * 60 + b"d\n" + just + b'e\n"' + b"f\r" * 120)
    for piece in (7, 64, 1 << 20):
        with constants(csv_records, PIECE_BYTES=piece):
            for chunk_bytes in (10, 1000):
                rows, rejects = read(file, T, chunk_bytes)
                assert [row["@position"] for row in rows][:3] == [2, 53, 54]
                assert (rejects[0].position, rejects[0].reason, rejects[0].key) == (3, "too_large", None)
                assert (rows, rejects) == read(file)


def test_columns_of_every_type(tmp_path: Path) -> None:
    many, maybe = Column(ColumnType.NUMBER, many=True), Column(ColumnType.NUMBER, optional=True)
    words, none = Column(ColumnType.CATEGORY, many=True, separator=" "), Column(ColumnType.TEXT, optional=True)
    columns = {"c": CATEGORY, "n": NUMBER, "i": INTEGER, "p": IMAGE, "many": many, "w": words, "o": maybe, "none": none}
    content = (
        b"c,n,i,p,many,w,o\n"
        b'x, 1e3 ,+7,a/b.png,"1,2.5",b a,\n'
        b'y,2,8,"data:;base64,YQ==","[[1], [2]]","[""q r"", 1]",3\n'
        b"z,3,9,a.png,,,x\n"
        b",3,9,a.png,,,1\n"
        b"z,3,9,../a.png,,,1\n"
        b'z,3,9,a.png,"1,b",,1\n'
    )
    rows, rejects = read(write(tmp_path, content), columns, key=("c",))
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("x", 1000, 7, to_file("a/b.png"), [1, 2.5], ["b", "a"], None, None),
        ("y", 2, 8, inline(b"a"), [1, 2], ["q r", "1"], 3, None),
    ]
    assert [(r.position, r.reason, r.column) for r in rejects] == [
        (4, "wrong_type", "o"), (5, "missing_value", "c"), (6, "forbidden_path", "p"), (7, "wrong_type", "many"),
    ]  # fmt: skip


@pytest.mark.parametrize("other", ["2.5", "2_5", "1e400"])
def test_cells_that_stand_for_no_number(tmp_path: Path, other: str) -> None:
    """The same for other cells in the batch, which Arrow reads if it can."""
    maybe = Column(ColumnType.NUMBER, optional=True)
    cells = ["", " ", "?", " ?", "NA", "n/a", "nan ", "NaN", "null", "NULL", "None", "1", "na", "-nan", other]
    file = write(tmp_path, b"n,t\n" + b"".join(f"{cell},a\n".encode() for cell in cells))
    rows, rejects = read(file, {"n": maybe})
    assert [row["n"] for row in rows] == [*[None] * 11, 1.0, None, *([2.5] if other == "2.5" else [])]
    assert [reject.reason for reject in rejects] == ["wrong_type"] * (1 if other == "2.5" else 2)
    _, rejects = read(file, {"n": NUMBER})
    assert [reject.reason for reject in rejects][:11] == ["missing_value"] * 11
    rows, _ = read(file, {"n": Column(ColumnType.NUMBER, many=True, optional=True, length=1)})
    assert [row["n"] or [] for row in rows][:13] == [*[[]] * 11, [1.0], *([[2.5]] if other == "2.5" else [])]


def test_a_decimal_comma(tmp_path: Path) -> None:
    file = write(tmp_path, b"n;t;many\n1,5;1,5;1,5\n-2;a;3\n1.234,5;a;3\n1.5;a;3\n")
    columns = {"n": NUMBER, "t": CATEGORY, "many": Column(ColumnType.NUMBER, many=True)}
    rows, rejects = read(file, columns, separator=";", decimal=",")
    assert [(row["n"], row["t"], row["many"]) for row in rows] == [(1.5, "1,5", [1.0, 5.0]), (-2.0, "a", [3.0])]
    assert [reject.message for reject in rejects] == ["wanted a number, found another string"] * 2
    rows, [with_comma, other] = read(file, {"n": NUMBER}, separator=";")
    assert_names(with_comma.message, other.message, "`decimal: ','`")
    assert "decimal" not in other.message


def test_a_decimal_comma_in_lists(tmp_path: Path) -> None:
    file = write(tmp_path, b"n;t\n1,5|2;a\n[1.5, 2];b\n1.234;c\n")
    many = Column(ColumnType.NUMBER, many=True, separator="|")
    rows, [reject] = read(file, {"n": many}, separator=";", decimal=",")
    assert [row["n"] for row in rows] == [[1.5, 2.0], [1.5, 2.0]]
    assert (reject.position, "decimal" in reject.message) == (4, False)


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    ".bz2": lambda data: bz2.compress(data[:9]) + bz2.compress(data[9:]),
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", COMPRESSED)
def test_compressed_files(tmp_path: Path, ending: str) -> None:
    data = b"t,u\n" + b'a,"1\n"\n' * 1000
    packed = COMPRESSED[ending](data)
    write(tmp_path, packed, f"rows.csv{ending}")
    rows, rejects = read(tmp_path, chunk_bytes=10)
    assert ([row["@position"] for row in rows], rejects) == (list(range(2, 2002, 2)), [])
    write(tmp_path, packed[:-5], f"rows.csv{ending}")
    with raises(SourceError, f"rows.csv{ending}", "Truncated compressed stream"):
        source(tmp_path).plan(FILES, T, 1000)


def test_files_are_cut_where_records_start(tmp_path: Path) -> None:
    write(tmp_path, b"t,u\n" + b'a,"1\n\n"\n' * 500, "a.csv")
    write(tmp_path, b"u,more,t\n" + b"1,,b\n" * 500, "b.csv")
    plan: Plan = source(tmp_path).plan(FILES, T, 1000)
    assert (plan.rows, plan.bytes) == (1000, sum(file.bytes for file in plan.inputs))
    [note] = plan.notes
    assert_names(note, "columns", ": u, more")
    assert [chunk.file for chunk in plan.chunks] == ["a.csv"] * 5 + ["b.csv"] * 3
    assert all(790 < chunk.bytes < 810 for chunk in plan.chunks[:4])
    assert sum(chunk.bytes for chunk in plan.chunks) == plan.bytes
    assert "".join(row["t"] for row in read(tmp_path, T, 1000)[0]) == "a" * 500 + "b" * 500
    assert [len(source(tmp_path, encoding=name).plan(FILES, T, 1000).chunks) for name in ("cp1252", "gbk")] == [8, 2]


@pytest.mark.parametrize(
    ("content", "options", "facts"),
    [
        (b"text,u\n", {}, ["'t'", "text, u"]),
        (b"a sentence,1\nanother,0\n", {}, ["'t'", "first line", "2 columns", "`header: [t, …]`"]),
        (b"cat/1.jpg,cat\n", {}, ["'t'", "first line", "`header: [t, …]`"]),
        (b",cat,1\n", {}, ["'t'", "first line", "3 columns"]),
        (b",text,label\n", {}, ["'t'", " , text, label"]),  # pandas writes its index so
        (b"id,2025,kind,place\n", {}, ["'t'", " id, 2025, kind, place"]),
        (b"x" * 65 + b",cat\n", {}, ["'t'", "first line", "2 columns"]),
        (b"a,b\n", {}, ["'t'", " a, b"]),
        (b"t;u\n", {}, ["one column", "`separator`", "';'"]),
        (b"t,t\n", {}, ["two columns 't'"]),
        (b'"t"x,u\n', {}, ["header", "not CSV", "closing quote"]),
        (b"\n\n", {}, ["'t'", "none"]),
        (b"t,\xe9\n", {}, ["header", "not utf-8", "`encoding`", "utf-16 or cp1252"]),
        ("t,u\n".encode("utf-16"), {}, ["UTF-16", "`encoding: utf-16`"]),
        (gzip.compress(b"t,u\na,b\n", mtime=0), {}, ["compressed", ".gz"]),
        *((pack(b"t,u\na,b\n"), {}, ["compressed", ".gz"]) for pack in (bz2.compress, lzma.compress)),
        (b"PK\x03\x04\x14\x00\x06", {"header": ["t", "u"]}, ["archive"]),  # Excel's
        (b"sep=;\nt;u\n", {}, ["'sep=;'", "`skip: 1`", "`separator: ';'`"]),
        (b"sep=;\na;b\n", {"separator": ";", "header": ["t", "u"]}, ["'sep=;'", "`skip: 1`"]),
        (b"#id,u\n", {}, ["comment", "`skip: 1`"]),
        (b"# by me\nt,u\n", {}, ["comment", "`skip: 1`"]),
        (b"t,u\na,b\n", {"header": ["t", "u"]}, ["names", "`header`", "`skip: 1`"]),
        (b't,"\\"u\\""\n', {}, ["header", "not CSV", r"`escape: '\'`"]),
        (b"t,u\\", {"escape": "\\"}, ["header", "not CSV", "end of data"]),
        (b"t,u\n", {"skip": 2}, ["'t'", "none"]),
        (b"t,u\n", {"encoding": "utf-16"}, ["BOM", "`encoding`", "utf-8"]),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes, options: dict[str, Any], facts: list[str]) -> None:
    file = write(tmp_path, content)
    with raises(SourceError, "rows.csv", *facts):
        source(file, **options).plan(FILES, T, 1000)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"encoding": "utf-9"}, ["encoding", "'utf-9'", "utf-8 or cp1252"]),
        ({"encoding": "base64"}, ["encoding", "'base64'"]),
        ({"separator": "||"}, ["separator", "one ASCII character", "'||'"]),
        ({"separator": "\n"}, ["separator", "one ASCII character", "'\\n'"]),
        ({"quote": ","}, ["`quote`", "`separator`", "','"]),
        ({"quote": None, "escape": ","}, ["`separator`", "`escape`", "','"]),
        ({"skip": -1}, ["skip", "greater than or equal to 0"]),
        ({"header": ["a", "a"]}, ["`header`", "twice", "a, a"]),
        ({"header": []}, ["header", "at least 1 item"]),
        ({"header": False}, ["header", "true", "False"]),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], facts: list[str]) -> None:
    with raises(ValidationError, *facts):
        source("rows.csv", **options)


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-8"])
def test_letters_of_two_bytes_at_the_very_start(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("öäü;größe\nß;é\n".encode(encoding))
    with open_utf8(FILES, str(path), encoding) as file:
        assert file.read(100).decode() == "öäü;größe\nß;é\n"


def test_columns_that_nobody_reads_cost_no_memory(tmp_path: Path) -> None:
    wide, names = 10_000, ",".join(f"c{number}" for number in range(10_000))
    file = write(tmp_path, f"{names}\n{','.join('1' * wide)}\n{','.join('2' * wide)}\n".encode())
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    try:
        rows, rejects = read(file, {"c5": NUMBER})
    finally:
        pa.set_memory_pool(before)
    assert ([row["c5"] for row in rows], rejects) == ([1, 2], [])
    assert counted.max_memory() < 10 << 20
    alike = blake2b(b":".join(b"1:1" for _ in range(wide)), digest_size=16).hexdigest().encode()
    assert rows[0]["@key"] == alike


def test_a_header_of_too_many_columns_is_one_line(tmp_path: Path) -> None:
    file = write(tmp_path, b"a," * 1_000_000 + b"b\n1\n")
    with raises(SourceError, str(file), "1,000,001 columns", "limit of 1,000,000", "header"):
        read(file, {"b": NUMBER})


@pytest.mark.parametrize("row", [b"a," * 60, b'"' + b"\n" * 60, b"a" + b'"' * 60 + b"\n"])
def test_a_record_of_too_many_signs_is_refused_unparsed(row: bytes, tmp_path: Path) -> None:
    bound, found = csv_records.CSV_SIGNS._replace(most=50), list[Any]()
    file = write(tmp_path, b"t\nb\n" + row + b"c\n" * 30 + b'"\nd\n' + b"e\n" * 30)
    for piece in (3, 16, 50):  # however it is read
        with constants(csv_records, CSV_SIGNS=bound, PIECE_BYTES=piece):
            found += [read(file, T), read(file, T, 10)]
    assert all(each == found[0] for each in found)
    rejects = found[0][1]
    assert (rejects[0].position, rejects[0].reason) == (3, "too_large")
    assert_names(rejects[0].message, "separators, quotes", "limit of 50")
