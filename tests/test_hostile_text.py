"""Hostile text: each row becomes a row of valid UTF-8 or a reject, whatever the bytes, however the file is cut."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordmill.pipeline.sources.faults import REASONS, SourceError
from tests.tables import TEXT, Read, read, source

NAUGHTY = [
    "", " ", "\0", "\x1b[31m\x1b]0;title\x07", "\u202eright to left", "Z\u0351\u0336alg\u0325o",
    "\U0001f469\u200d\U0001f52c",
    "\ufeff", "\ufffe", "\uffff", "\u2028line", "\x85next", "NaN", "1e999", "-0", "null",
    "=cmd|' /C calc'!A0", "<script>",
    "../../etc/passwd", "${jndi:ldap://x}", "%s%n", "'; DROP TABLE x; --", '"', '""', '"open', ",", "\\", "\\u0000",
]  # fmt: skip
BYTES = [
    b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\0", b"\r", b"\n", b"\r\n",
    b'"', b",",    b"{",    b"}", b"[", b"\\", b"\xef\xbb\xbf", b"\x1a", b"\xff",
]  # fmt: skip
ROWS = {
    "csv": b"".join(b'%d,"%s"\r\n' % (n, t.encode().replace(b'"', b'""')) for n, t in enumerate(NAUGHTY)),
    "jsonl": b"".join(json.dumps({"id": n, "text": t}).encode() + b"\n" for n, t in enumerate(NAUGHTY)),
    "text": b"".join(t.encode() + b"\n" for t in NAUGHTY),
}
HEADS = {"csv": b"id,text\n0,first\n", "jsonl": b'{"id": 0, "text": "first"}\n', "text": b"first\n"}
CHANGES = st.lists(st.tuples(st.integers(0, 2_000), st.sampled_from(BYTES), st.booleans()), max_size=6)


def read_bytes(form: str, data: bytes, folder: Path, chunk_bytes: int = 1 << 20) -> Read:
    path = folder / f"rows.{'txt' if form == 'text' else form}"
    path.write_bytes(HEADS[form] + data)
    return read(source(form, path), {"text": TEXT}, chunk_bytes)


def changed(data: bytes, changes: list[tuple[int, bytes, bool]]) -> bytes:
    for place, piece, is_new in changes:
        at = place % (len(data) + 1)
        data = data[:at] + piece + data[at if is_new else at + len(piece) :]
    return data


@pytest.mark.parametrize("form", ROWS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
def test_a_row_is_a_row_or_a_reject_however_the_file_is_cut(
    tmp_path: Path, form: str, changes: list[tuple[int, bytes, bool]]
) -> None:
    data = changed(ROWS[form], changes)
    whole, parts = read_bytes(form, data, tmp_path), read_bytes(form, data, tmp_path, chunk_bytes=64)
    assert whole.rows == parts.rows
    assert whole.faults == parts.faults
    assert {reason for reason, _, _ in whole.faults} <= set(REASONS)
    assert all(row["text"].encode() is not None for row in whole.rows)


@pytest.mark.parametrize("form", ROWS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path: Path, form: str, data: bytes) -> None:
    found = read_bytes(form, data, tmp_path)
    assert found.rows[0] == {"text": "first"}


@pytest.mark.parametrize(
    ("form", "line", "reason"),
    [
        pytest.param(
            "jsonl", lambda: b'{"text": "' + b"x" * (65 << 20) + b'"}', "too_large", marks=pytest.mark.nightly
        ),
        ("jsonl", lambda: b"[" * 200_000, "malformed_row"),
        ("jsonl", lambda: b'{"text": "a", "n": ' + b"9" * 100_000 + b"}", None),
        ("jsonl", lambda: '{"text": "a"}'.encode("utf-16"), "malformed_row"),
        ("csv", lambda: b'1,"open\n2,x\n', "malformed_row"),
        ("csv", lambda: b"1," + b",".join([b"x"] * 100_000), "malformed_row"),
        ("text", lambda: b"\xff\xfe\0", "invalid_utf8"),
    ],
)
def test_what_is_known_to_be_hostile_costs_its_row(
    tmp_path: Path, form: str, line: Callable[[], bytes], reason: str | None
) -> None:
    found = read_bytes(form, line() + b"\n", tmp_path)
    assert found.rows[0] == {"text": "first"}
    assert sorted({fault[0] for fault in found.faults}) == ([reason] if reason else [])


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"\0" * 5_000, b"\xff\xfe" + "a,b\n".encode("utf-16-le")])
def test_a_file_of_nothing_good_is_one_clear_line(tmp_path: Path, form: str, data: bytes) -> None:
    path = tmp_path / f"rows.{'txt' if form == 'text' else form}"
    path.write_bytes(data)
    try:
        found = read(source(form, path), {"text": TEXT})
    except SourceError as error:
        assert "\n" not in str(error)  # noqa: PT017 - or it is read
        return
    assert len(found.rows) + len(found.rejects) <= 2
