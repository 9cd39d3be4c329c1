"""JSON Lines: what a row is, and that it is the same however the file is cut."""

import bz2
import gzip
import json
import math
import tracemalloc
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources import encoded
from recordmill.pipeline.sources.faults import REASONS, Reject, SourceError
from recordmill.pipeline.sources.formats import jsonl_parser
from recordmill.pipeline.sources.source_reader import Plan
from recordmill.pipeline.sources.typing.arrays import arrow_type
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests import tables
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, INTEGER, NUMBER, TEXT
from tests.tables import IMAGE as PATH

source = partial(tables.source, "jsonl")
PATHS = Column(ColumnType.IMAGE, many=True)
ASKED: Columns = {"t": TEXT, "c": CATEGORY, "n": NUMBER, "i": INTEGER, "p": PATH}
GOOD = {"t": "text", "c": "cat", "n": 1.5, "i": 7, "p": "a.png"}
FIRST = json.dumps(GOOD).encode()


def read(
    file: Path, columns: Columns = ASKED, chunk_bytes: int = 1 << 20, with_key: bool = True
) -> tuple[list[dict[str, Any]], list[Reject], list[int]]:
    """Rows and rejects by their lines in the file (from 0), and the positions that each chunk covered."""
    plan = source(file).plan(FILES, columns, chunk_bytes)
    rows, rejects, covered = list[dict[str, Any]](), list[Reject](), list[int]()
    for index, chunk in enumerate(plan.chunks):
        first, covered = sum(covered), [*covered, 0]
        for block in source(file).read(chunk, FILES, columns, None if with_key else ()):
            check_block(block.table, columns, with_key)
            rows += [row | {"@position": row["@position"] + first} for row in block.table.to_pylist()]
            rejects += [Reject(index, r.position + first, r.reason, r.message, r.key, r.column) for r in block.rejects]
            json.dumps(block.positions)  # it stands in a report
            covered[-1] += block.positions
    return rows, rejects, covered


def check_block(table: pa.Table, columns: Columns, with_key: bool) -> None:
    types = {name: arrow_type(column) for name, column in columns.items()} | {"@position": pa.int64()}
    types |= {"@key": pa.binary()} if with_key else {}
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == types
    assert not [name for name, column in columns.items() if table[name].null_count and not column.optional]


def write(folder: Path, *rows: bytes, end: bytes = b"\n") -> Path:
    file = folder / "rows.jsonl"
    file.write_bytes(b"".join(row + end for row in rows))
    return file


def line(**changed: object) -> bytes:
    return json.dumps(GOOD | changed).encode()


FAULTS: dict[str, tuple[bytes, str, str | None]] = {
    "no object": (b"[1]", "malformed_row", None),
    "a word": (b"word", "malformed_row", None),
    "cut": (FIRST[:-1], "malformed_row", None),
    "cut at a brace": (b'{"x": {"y": 1}', "malformed_row", None),
    "a string that is open": (b'{"x": "}', "malformed_row", None),
    "two objects": (FIRST + FIRST, "malformed_row", None),
    "two objects and a NUL": (FIRST + FIRST + b"\0}", "malformed_row", None),
    "a comma too many": (FIRST[:-1] + b",}", "malformed_row", None),
    "single quotes": (b"{'t': 1}", "malformed_row", None),
    "a comment": (b"{/**/}", "malformed_row", None),
    "a control character": (b'{"t": "a\x01"}', "malformed_row", None),
    "a NUL": (b'{"t": "\0"}', "malformed_row", None),
    "another whitespace": ("\u00a0".encode() + FIRST, "malformed_row", None),
    "a mark inside": (b"\xef\xbb\xbf" + FIRST, "malformed_row", None),
    "bytes": (line(t="@").replace(b"@", b"\xff"), "invalid_utf8", "t"),
    "encoded surrogate": (line(t="@").replace(b"@", b"\xed\xa0\x80"), "invalid_utf8", "t"),
    "surrogate": (line(t="@").replace(b"@", rb"\ud800"), "invalid_utf8", "t"),
    "absent": (b'{"t": "a", "c": "b", "i": 1, "p": "a"}', "missing_value", "n"),
    "empty object": (b"{}", "missing_value", "t"),
    "empty category": (line(c=""), "missing_value", "c"),
    "blank category": (line(c=" \u3000\t"), "missing_value", "c"),
    "empty path": (line(p=" "), "missing_value", "p"),
    "a line feed in a category": (line(c="a\nb"), "wrong_type", "c"),
    "a carriage return in a category": (line(c="a\rb"), "wrong_type", "c"),
    "Infinity": (line(n=math.inf), "wrong_type", "n"),
    "beyond float64": (line(n="@").replace(b'"@"', b"1e400"), "malformed_row", None),
    "many digits": (line(n="@").replace(b'"@"', b"1" * 5000), "wrong_type", "n"),
    "an exponent as integer": (line(i="@").replace(b'"@"', b"1e2"), "wrong_type", "i"),
    "beyond int64": (line(i=1 << 63), "wrong_type", "i"),
    "absolute": (line(p="/a.png"), "forbidden_path", "p"),
    "above": (line(p="../a.png"), "forbidden_path", "p"),
    "above in the end": (line(p="x/../../a.png"), "forbidden_path", "p"),
    "a URL": (line(p="http://x/a.png"), "forbidden_path", "p"),
    "a NUL in a path": (line(p="a\0"), "forbidden_path", "p"),
    "deep objects": (b'{"t": "a", "x": ' + b'{"y": ' * 20_000 + b"1" + b"}" * 20_001, "malformed_row", None),
    "the first column counts": (line(n="x", c=1.5), "wrong_type", "c"),
}


@pytest.mark.parametrize(("bad", "reason", "column"), FAULTS.values(), ids=FAULTS)
def test_a_bad_line_is_one_reject(tmp_path: Path, bad: bytes, reason: str, column: str | None) -> None:
    rows, rejects, covered = read(write(tmp_path, FIRST, bad, line(t="last")))
    assert [row["t"] for row in rows] == ["text", "last"]
    [reject] = rejects
    assert (reject.position, reject.reason, reject.column) == (1, reason, column)
    assert reason in REASONS
    assert reject.key == blake2b(bad.strip(b" \t\r"), digest_size=16).hexdigest()
    assert covered == [3]
    assert read(write(tmp_path, FIRST, bad, line(t="last")), chunk_bytes=len(FIRST) + 1)[1][0].message == reject.message


ACCEPTED: dict[str, tuple[bytes, dict[str, object]]] = {
    "escapes": (rb'{"t": "\u0061\ud83d\ude00\n\u0000"}', {"t": "a😀\n\0"}),
    "an escaped key": (rb'{"\u0074": "a"}', {"t": "a"}),
    "empty text": (b'{"t": ""}', {"t": ""}),
    "whitespace": (b' \t{ "t" :\r"a"}\t ', {"t": "a"}),
    "NaN, not asked for": (b'{"t": "a", "x": [NaN, -Infinity]}', {"t": "a"}),
    "another key twice": (b'{"x": 1, "t": "a", "x": "b"}', {"t": "a"}),
    "bytes, not asked for": (b'{"t": "a", "x": "\xff"}', {"t": "a"}),
    "deep": (b'{"x": ' + b"[" * 199 + b"]" * 199 + b', "t": "a"}', {"t": "a"}),
    "deep objects": (b'{"t": "a", "x": ' + b'{"y": ' * 199 + b"1" + b"}" * 200, {"t": "a"}),
    "many brackets, not deep": (b'{"t": "a", "x": [' + b"[{}]," * 300 + b'"' + b'[{\\"' * 300 + b'"]}', {"t": "a"}),
    "braces in a string": (b'{"t": "}{", "x": {"y": {}}}', {"t": "}{"}),
}


@pytest.mark.parametrize(("good", "expected"), ACCEPTED.values(), ids=ACCEPTED)
def test_an_odd_line_is_a_row(tmp_path: Path, good: bytes, expected: dict[str, object]) -> None:
    rows, rejects, _ = read(write(tmp_path, good, b'{"t": "next"}', b"{}"), {"t": TEXT}, with_key=False)
    assert rows == [expected | {"@position": 0}, {"t": "next", "@position": 1}]
    assert [reject.key for reject in rejects] == [None]


def test_numbers_are_exact(tmp_path: Path) -> None:
    values = [(0, -(1 << 63)), (-0.0, (1 << 63) - 1), (1e-400, -0), (3.4028234e38, 1), (1 << 60, 2), (0.1, 3)]
    file = write(tmp_path, *(json.dumps({"n": n, "i": i}).encode() for n, i in values))
    rows, rejects, _ = read(file, {"n": NUMBER, "i": INTEGER})
    assert [(row["n"], row["i"]) for row in rows] == [(float(n), i) for n, i in values]
    assert math.copysign(1, rows[1]["n"]) == -1
    assert not rejects


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_blank_lines_and_marks_count_as_lines_and_are_no_rows(tmp_path: Path, end: bytes, mark: bytes) -> None:
    file = write(tmp_path, mark + b"", b'{"t": "a"}', b" \t", b"", b'{"t": "b"}', b"x", b"", end=end)
    for chunk_bytes in range(1, file.stat().st_size + 2):
        rows, rejects, covered = read(file, {"t": TEXT}, chunk_bytes)
        assert [(row["@position"], row["t"]) for row in rows] == [(1, "a"), (4, "b")]
        assert [reject.position for reject in rejects] == [5]
        assert sum(covered) == 7
        assert rows[0]["@key"] == blake2b(b'{"t": "a"}', digest_size=16).hexdigest().encode()


def test_the_last_line_needs_no_newline(tmp_path: Path) -> None:
    file = write(tmp_path, b'{"t": "a"}\n{"t": "b"}', end=b"")
    assert [[row["t"] for row in read(file, {"t": TEXT}, size)[0]] for size in (1, 5, 100)] == [["a", "b"]] * 3


WORDS = st.text(st.characters(codec="utf-8"), max_size=8)
ROWS = st.fixed_dictionaries(
    {"t": WORDS, "n": st.floats(width=32, allow_nan=False, allow_infinity=False)},
    optional={"x": st.recursive(st.none() | WORDS | st.integers(), lambda inner: st.lists(inner, max_size=3))},
)


@given(st.lists(ROWS | st.none(), min_size=1), st.booleans(), st.integers(1, 200), st.integers(1, 64))
def test_well_formed_lines_are_what_json_says(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], ascii_only: bool, chunk_bytes: int, piece: int
) -> None:
    first = {"t": "first", "n": 0.0}
    texts = ["" if row is None else json.dumps(row, ensure_ascii=ascii_only) for row in (first, *values)]
    file = write(tmp_path_factory.mktemp("rows"), *(text.encode() for text in texts))
    with constants(encoded, PIECE_BYTES=piece, TAIL_BYTES=piece):
        rows, rejects, covered = read(file, {"t": TEXT, "n": NUMBER}, chunk_bytes, with_key=False)
    expected = [json.loads(text) | {"@position": place} for place, text in enumerate(texts) if text]
    assert rows == [{name: row[name] for name in ("t", "n", "@position")} for row in expected]
    assert (rejects, sum(covered)) == ([], len(texts))


@given(
    st.lists(st.sampled_from([FIRST, b"", *(bad for bad, *_ in FAULTS.values() if len(bad) < 1000)]), max_size=60),
    st.integers(1, 3000),
)
def test_a_line_has_the_outcome_that_it_has_alone(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[bytes], chunk_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    file = write(folder, FIRST, *chosen)
    rows, rejects, covered = read(file, chunk_bytes=chunk_bytes)
    whole, whole_rejects, _ = read(file)
    assert rows == whole
    assert [(r.position, r.reason, r.message, r.key, r.column) for r in rejects] == [
        (r.position, r.reason, r.message, r.key, r.column) for r in whole_rejects
    ]
    assert len(rows) + len(rejects) + chosen.count(b"") == sum(covered) == len(chosen) + 1
    reasons = {bad: reason for bad, reason, _ in FAULTS.values()}
    assert [reject.reason for reject in rejects] == [reasons[text] for text in chosen if text in reasons]


def test_a_column_that_is_wrong_everywhere(tmp_path: Path) -> None:
    file = write(tmp_path, *[FIRST] * 500, FIRST.replace(b'"text"', b"5"))
    rows, rejects, _ = read(file, {"t": NUMBER})
    assert [row["@position"] for row in rows] == [500]
    assert {reject.reason for reject in rejects} == {"wrong_type"}
    [message] = {reject.message for reject in rejects}
    assert_names(message, "a number", "a string", "`parse: true`")


def test_a_line_of_quotes_and_brackets_without_an_end_is_refused_at_once(tmp_path: Path) -> None:
    bad = b'{"t": "' + b"[" * 300 + rb"\"" * 2_000_000 + b"}"
    _, rejects, _ = read(write(tmp_path, FIRST, bad))
    assert [reject.reason for reject in rejects] == ["malformed_row"]


@constants(encoded, MAX_LINE_BYTES=100)
def test_a_line_that_is_too_long(tmp_path: Path) -> None:
    just, too_long = line(t="a" * (100 - len(line(t="")))), line(t="a" * 5000)
    file = write(tmp_path, FIRST, too_long, just, too_long, too_long, FIRST)
    for piece in (16, 150, 1 << 20):
        with constants(encoded, PIECE_BYTES=piece, TAIL_BYTES=piece):
            for chunk_bytes in (50, 6000, 1 << 20):
                rows, rejects, covered = read(file, {"t": TEXT}, chunk_bytes)
                assert [row["@position"] for row in rows] == [0, 2, 5]
                assert [(r.position, r.reason, r.key) for r in rejects] == [(n, "too_large", None) for n in (1, 3, 4)]
                assert sum(covered) == 6


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    write(tmp_path / "x" / "y", line(p="a//b/../é.png"), line(p="../b.png"), line(p="../../../b.png"))
    rows, rejects = [], []
    pattern = source(tmp_path / "**" / "*.jsonl")
    for chunk in pattern.plan(FILES, ASKED, 1000).chunks:
        assert pattern.locate(chunk, 2) == ("x/y/rows.jsonl", 3)
        for block in pattern.read(chunk, FILES, ASKED, False):
            rows += block.table["p"].to_pylist()
            rejects += [reject.position for reject in block.rejects]
    assert (rows, rejects) == (["fx/y/a/é.png".encode(), b"fx/b.png"], [2])


@pytest.mark.parametrize(
    ("path", "root", "inputs"),
    [
        ("a.jsonl", "", ["a.jsonl"]),
        ("", "", ["a.jsonl", "b.jsonl"]),
        ("*/*.jsonl", "", ["[1]/d.jsonl", "x/c.jsonl"]),
        ("x/*.jsonl", "/x", ["c.jsonl"]),
        ("[1]", "/[1]", ["d.jsonl"]),
        ("[1]/d.jsonl", "/[1]", ["d.jsonl"]),
        ("[ab].jsonl", "", ["a.jsonl", "b.jsonl"]),
    ],
)
def test_a_path_is_a_file_a_folder_or_a_glob(tmp_path: Path, path: str, root: str, inputs: list[str]) -> None:
    for name in ("a.jsonl", "b.jsonl", "x/c.jsonl", "[1]/d.jsonl", "e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(FIRST)
    (tmp_path / "x" / "empty.jsonl").touch()
    found = source(f"{tmp_path}/{path}")
    plan = found.plan(FILES, ASKED, 1000)
    assert found.root(FILES) == f"{tmp_path}{root}"
    assert [file.path for file in plan.inputs] == inputs == [chunk.file for chunk in plan.chunks]
    assert plan.bytes == len(FIRST) * len(inputs)
    assert ["empty.jsonl" in note for note in plan.notes] == [True] * (path in ("*/*.jsonl", "x/*.jsonl"))


def test_the_plan_does_not_depend_on_the_cutting(tmp_path: Path) -> None:
    file = write(tmp_path, *[line(t="a" * (number % 50)) for number in range(3000)])
    sizes = (100, 5000, 1 << 20)
    plans = [source(file).plan(FILES, ASKED, size) for size in sizes]
    assert len({(plan.rows, plan.bytes, tuple(plan.inputs)) for plan in plans}) == 1
    assert abs(plans[0].rows - 3000) < 300
    assert all(chunk.bytes <= size for plan, size in zip(plans, sizes, strict=True) for chunk in plan.chunks)
    assert {sum(chunk.bytes for chunk in plan.chunks) for plan in plans} == {file.stat().st_size}


@pytest.mark.parametrize("content", [b"{}", b"{}\n", b'{"t": "%s"}' % (b"a" * 200_000)])
def test_rows_of_one_line(tmp_path: Path, content: bytes) -> None:
    plan: Plan = source(write(tmp_path, content, end=b"")).plan(FILES, {}, 1000)
    assert 1 <= plan.rows <= 4


@pytest.mark.parametrize(
    ("path", "columns", "facts"),
    [
        ("none.jsonl", ASKED, ["none.jsonl", "no such file"]),
        ("none/*.jsonl", ASKED, ["none/*.jsonl", "no such file"]),
        ("folder", ASKED, ["folder", "no *.jsonl or *.ndjson"]),
        ("empty.jsonl", ASKED, ["empty.jsonl", "empty"]),
        ("blank.jsonl", ASKED, ["blank.jsonl", "no JSON object"]),
        ("list.jsonl", ASKED, ["list.jsonl", "no JSON object"]),
        ("array.jsonl", ASKED, ["one JSON array", "`format: json, rows: '[]'`"]),
        ("array_lines.jsonl", ASKED, ["one JSON array", "`format: json, rows: '[]'`"]),
        ("pretty.jsonl", ASKED, ["jq -c . ", "/pretty.jsonl > ", "/pretty-lines.jsonl"]),
        (
            "wide.jsonl",
            {"column1": NUMBER, "column1.x": Column(ColumnType.NUMBER, optional=True)},
            ["'column1.x'", "value", "object"],
        ),
        ("rows.jsonl", {"tex": TEXT}, ["'tex'", "first lines", "n, text", "mean 'text'"]),
        ("rows.jsonl", {"zzz": TEXT}, ["'zzz'", " n, text"]),
        ("wide.jsonl", {"zzz": TEXT}, ["'zzz'", "column19 and 10 more"]),
    ],
)
def test_a_source_that_cannot_be_read(tmp_path: Path, path: str, columns: Columns, facts: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    wide = json.dumps({f"column{number}": 1 for number in range(30)})
    contents = {"empty": "", "blank": "\n \n", "list": "[1]\nx\n", "rows": '{"n": 1}\n{"text": 1}\n', "wide": wide}
    contents |= {"array": '[{"t": 1}]', "array_lines": '[\n{"t": 1},\n{"t": 2}\n]', "pretty": '{\n  "t": 1\n}'}
    for name, content in contents.items():
        (tmp_path / f"{name}.jsonl").write_text(content)
    with raises(SourceError, *facts):
        source(tmp_path / path).plan(FILES, columns, 1000)


def test_rows_of_pictures_are_counted_exactly_and_in_any_order_of_the_files(tmp_path: Path) -> None:
    contents = [b'{"p": "a"}\n' * 40, b'{"p": "a", "more": "' + b"x" * 400 + b'"}\n{"p": "b"}']
    for names in (("a", "b"), ("b", "a")):
        for name, content in zip(names, contents, strict=True):
            (tmp_path / f"{name}.jsonl").write_bytes(content)
        assert source(tmp_path).plan(FILES, {"p": PATH}, 1 << 20).rows == 42


def test_a_broken_link_is_an_error_and_not_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"t": "x"}\n')
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "nowhere")
    with raises(SourceError, "b.jsonl", "No such file"):
        source(tmp_path).plan(FILES, {"t": TEXT}, 1 << 20)


SHAPES: dict[str, tuple[Column, str, object, dict[str, object]]] = {
    "numbers in a string": (
        Column(ColumnType.NUMBER, many=True, separator=" "), "a", "1 2.5", {'"3"': [3], '"x"': "wrong_type"},
    ),
    "pictures": (PATHS, "a", ["x.png"], {'["y.png", "data:,z"]': [b"fy.png", b"iz"], '["/y.png"]': "forbidden_path"}),
}  # fmt: skip


@pytest.mark.parametrize(("column", "name", "first", "cases"), SHAPES.values(), ids=SHAPES)
def test_lists_and_fields(tmp_path: Path, column: Column, name: str, first: object, cases: dict[str, object]) -> None:
    file = write(tmp_path, json.dumps({"a": first}).encode(), *(b'{"a": %s}' % text.encode() for text in cases))
    for chunk_bytes in (1, 1000):
        rows, rejects, _ = read(file, {name: column}, chunk_bytes)
        outcomes = {reject.position: reject.reason for reject in rejects}
        assert {reject.column for reject in rejects if reject.reason != "malformed_row"} <= {name}
        outcomes |= {row["@position"]: row[name] for row in rows}
        assert [outcomes[place + 1] for place in range(len(cases))] == list(cases.values())


def test_optional_columns_are_null_and_may_be_nowhere(tmp_path: Path) -> None:
    columns = {name: Column(kind, optional=True) for name, kind in zip("tcnip", ColumnType, strict=False)}
    columns |= {"o.x": Column(ColumnType.TEXT, optional=True), "l": Column(ColumnType.NUMBER, many=True, optional=True)}
    rows, rejects, _ = read(write(tmp_path, FIRST, b"{}", line(t=1), line(c=" ")), columns)
    assert [row["t"] for row in rows] == ["text", None, "text"]
    assert [name for name in columns if rows[1][name] is None] == list(columns)
    assert (rows[2]["c"], [reject.position for reject in rejects]) == (None, [2])


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_compressed_data_that_is_cut_off_is_an_error(tmp_path: Path, ending: str) -> None:
    packed = COMPRESSIONS[ending](b"".join(line(t=f"{number}" * 99) + b"\n" for number in range(5_000)))
    file = tmp_path / f"rows.jsonl{ending}"
    for bad in (packed[:-9], packed + packed[:40], packed + b"text"):
        file.write_bytes(bad)
        with raises(SourceError, f"rows.jsonl{ending}", "damaged"):
            read(file)
    file.write_bytes(FIRST)
    with raises(SourceError, f"rows.jsonl{ending}", "damaged"):
        source(file).plan(FILES, ASKED, 1000)


def test_endings_in_a_folder(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.ndjson", "c.json", "d.ndjson.gz"):
        (tmp_path / name).write_bytes(gzip.compress(FIRST) if name.endswith("gz") else FIRST)
    made = source(tmp_path).plan(FILES, {"t": TEXT}, 1000)
    assert [file.path for file in made.inputs] == ["a.jsonl", "b.ndjson", "d.ndjson.gz"]
    assert [file.path for file in source(tmp_path / "c.json").plan(FILES, {"t": TEXT}, 1000).inputs] == ["c.json"]
    [note] = made.notes
    assert_names(note, "columns", ": c, n, i, p")


@pytest.mark.parametrize("value", ["[" + "[]," * 60 + "[]]", "{" + ",".join(f'"{n}":1' for n in range(60)) + "}"])
def test_a_line_of_too_many_signs_is_refused_unparsed(value: str, tmp_path: Path) -> None:
    file = write(tmp_path, FIRST, f'{{"t": "a", "x": {value}}}'.encode(), FIRST)
    bound = jsonl_parser.JSON_SIGNS._replace(most=100)
    with constants(jsonl_parser, JSON_SIGNS=bound):
        rows, rejects, _ = read(file)
    assert [row["@position"] for row in rows] == [0, 2]
    assert [(each.position, each.reason) for each in rejects] == [(1, "too_large")]
    assert_names(rejects[0].message, "commas, colons", "limit of 100")


def test_the_depth_of_a_line_costs_no_memory() -> None:
    line = b'{"x":' * 20_000
    tracemalloc.start()
    assert jsonl_parser.depth(line) == 20_000
    assert tracemalloc.get_traced_memory()[1] < 1 << 15
    tracemalloc.stop()


def test_many_lines_are_pieces(tmp_path: Path) -> None:
    data = b"1\n" * 700_000 + b"2"
    parts = list(encoded.pieces(FILES, str(write(tmp_path, data, end=b"")), "utf-8", 0, len(data)))
    assert b"".join(parts) == data
    assert max(part.count(b"\n") for part in parts) <= 1 << 18
