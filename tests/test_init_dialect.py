r"""`init` finds how cells are written, and its options read the rows that Python's `csv` reads."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from recordmill.pipeline.init.dialect import cell_options, find_encoding
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.options import Csv
from recordmill.transforms.base.columns import Column, ColumnType
from tests.messages import assert_names

ROWS = [[str(row), f"the {'word' if row % 3 else 'quoted'} {row}", "np"[row % 2]] for row in range(12)]
BACKSLASH = {"escape": "\\"}


def lines(pattern: str, separator: str = ",") -> str:
    return "".join(pattern.format(*row) + "\n" for row in ROWS)


DIALECTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Spark": ("id,text,label\n" + lines('{},"say \\"hi, {}\\"",{}'), BACKSLASH, {"escapechar": "\\"}),
    "MySQL": ("id,text,label\n" + lines("{},{}\\, and\\\nmore,{}"), BACKSLASH, {"escapechar": "\\"}),
    "Excel": ("sep=;\nid;text;label\n" + lines("{};a, {};{}"), {"separator": ";", "skip": 1}, {"delimiter": ";"}),
    "Excel, quoted": (
        '"sep=|"\nid|text|label\n' + lines("{}|{}|{}"), {"separator": "|", "skip": 1}, {"delimiter": "|"}
    ),
    "blanks": ("id, text, label\n" + lines('{}, "{}, too", {}'), {"trim": True}, {"skipinitialspace": True}),
    "blanks without quotes": ("id, text, label\n" + lines("{}, {}, {}"), {"trim": True}, {"skipinitialspace": True}),
    "comments": ("# a list, by me\n# 2026\n\nid,text,label\n" + lines("{},{},{}"), {"skip": 2}, {}),
    "metadata": ("##version=1\n#id,text,label\n" + lines("{},{},{}"), {"skip": 1}, {}),
    "NumPy": ("# id,text,label\n" + lines("{},{},{}"), {}, {}),
    "a header with a mark": ("#id,text,label\n" + lines('{},"{}, or",{}'), {}, {}),
    "a comma at each end": (
        "id,text,label\n" + lines("{},{},{},"), {"header": ["id", "text", "label", "column_4"], "skip": 1}, {}
    ),
    "a comma at the header's end": (
        "id,text,label,\n" + lines("{},{},{}"), {"header": ["id", "text", "label"], "skip": 1}, {}
    ),
    "commas at all ends": ("id,text,label,\n" + lines("{},{},{},"), {}, {}),
    "all at once": (
        "# by me\nsep=;\nid; text; label\n" + lines('{}; "a \\"{}\\"; b"; {}'),
        {"separator": ";", "escape": "\\", "trim": True, "skip": 2},
        {"delimiter": ";", "escapechar": "\\", "skipinitialspace": True},
    ),
    "plain": ("id,text,label\n" + lines("{},C:\\{},{}"), {}, {}),
    "quotes without a meaning": ("id,text,label\n" + lines('{},"{},{}'), {"quote": None}, {"quoting": csv.QUOTE_NONE}),
}  # fmt: skip


@pytest.mark.parametrize(("content", "options", "dialect"), DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("chunk_bytes", [30, 1 << 20])
def test_what_is_found_reads_pythons_rows(
    tmp_path: Path, content: str, options: dict[str, Any], dialect: dict[str, Any], chunk_bytes: int
) -> None:
    (tmp_path / "rows.csv").write_text(content)
    found, why, _ = cell_options(content.encode(), "csv")
    assert (found, why.keys()) == (options, options.keys())
    source = reader_of(Csv(format="csv", path=str(tmp_path), **found))
    head = options.get("skip", 0) + ("header" not in options)
    expected = [row for row in csv.reader(io.StringIO(content), **dialect) if row][head:]
    names = source.plan(LocalFiles(), {}, chunk_bytes).names[:3]
    columns = {name: Column(ColumnType.TEXT) for name in names}
    chunks = source.plan(LocalFiles(), columns, chunk_bytes).chunks
    tables = [block.table for chunk in chunks for block in source.read(chunk, LocalFiles(), columns, ())]
    assert [[row[name] for name in names] for table in tables for row in table.to_pylist()] == [
        row[:3] for row in expected
    ]
    assert (len(expected), len(chunks) > 3) == (12, chunk_bytes == 30)


@pytest.mark.parametrize(
    ("head", "options"),
    [
        (b"a;b\n1,5;2\n2,5;3\n", {"separator": ";", "decimal": ","}),
        (b"a;b\n1,5;2\n2.5;3\n", {"separator": ";"}),
        (b'a,b\n"1,5",2\n', {}),
        (b'a,b\n"one\n1,","two"\n', {}),
        (b'a,b\n"one,two\n1,5" pipe\n', {"quote": None}),
        (b'"a|x","b"\n"1","2|3"\n', {}),
        (b"1,x\n2,y\n", {"header": ["column_1", "column_2"]}),
        (b"a.png,x\nb.png,y\n", {"header": ["column_1", "column_2"]}),
        ("a,b\n1,é\n".encode("cp1252"), {}),
        (("id,text,id\n" + lines("{},{},{},")).encode(), {}),  # a name twice
        (("id,text,label\n" + lines("{},\\N,{}")).encode(), BACKSLASH),  # MySQL's nulls
    ],
)
def test_options_of_cells(head: bytes, options: dict[str, Any]) -> None:
    assert cell_options(head, "csv")[0] == options


def test_files_of_two_encodings_are_said() -> None:
    words = [f"a,b\n1,{word}\n" for word in ("K\u00f6ln", "Ulm")]
    for text, is_mixed in zip(words, (True, False), strict=True):
        found, why = find_encoding("a.csv", [text.encode(), words[0].encode("cp1252")])
        assert (found, "UTF-8: give them a source" in why) == ("cp1252", is_mixed)


@pytest.mark.parametrize(
    ("head", "facts"),
    [
        (b"Report 2026,,\n,,\nx,y,label\n1,2,a\n2,3,b\n", [["Report 2026", "`skip`"]]),
        (b"x,y,,\n1,2,,\n2,3,,\n", []),
        (b",x,y\n0,1,a\n1,2,b\n", []),  # pandas' index
    ],
)
def test_several_columns_without_a_name(head: bytes, facts: list[list[str]]) -> None:
    doubts = cell_options(head, "csv", "rows.csv")[2]
    for doubt, names in zip(doubts, facts, strict=True):
        assert_names(str(doubt), "rows.csv", *names)


@pytest.mark.parametrize("name", ["Spark", "Excel", "comments", "a comma at each end"])
def test_the_spec_says_it(tmp_path: Path, name: str) -> None:
    content, options, _ = DIALECTS[name]
    (tmp_path / "rows.csv").write_text(content)
    spec = starter(str(tmp_path), LocalFiles())
    assert_names(spec, "The 12 rows: none")
    assert {option: yaml.safe_load(spec)["source"][option] for option in options} == options
