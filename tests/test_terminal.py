"""Data never controls the terminal: commands run on a terminal, as people run them."""

import ast
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.cli.screen import Screen
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.safe_text import printable, say
from tests.forked import read_terminal, recordmill_in_terminal, start_python
from tests.messages import assert_names
from tests.published import write_version

ROOT = Path(__file__).parents[1]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt\u200b\u2028\r[red]x[/]:boom:"
SHOWN = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202etxt\\u200b\\u2028\\r[red]x[/]:boom:"
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\r(?!\n)")
ENVIRONMENT = {**os.environ, "TERM": "xterm", "COLUMNS": "300", "PYTHONPATH": str(ROOT)}
LIVE_LINE = re.compile(r"\x1b\[(?:[\d;]*[mAK]|\?25[lh])|\r")  # what rich needs to draw over it


def in_terminal(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Runs the command with both outputs on a terminal; returns its status and what the terminal received."""
    driver, terminal = pty.openpty()
    command = [sys.executable, "-m", "recordmill", *arguments]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, cwd=cwd, env=ENVIRONMENT) as process:
        os.close(terminal)
        seen = read_terminal(driver)
    return process.returncode, seen


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A dataset with hostile words, except for names that become paths."""
    folder = write_version(tmp_path / "out", rows=40)
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    label = manifest["features"]["label"]
    manifest |= {
        "features": {"label": label, "k": {"kind": f"d{HOSTILE}", "stored": f"s{HOSTILE}"}},
        "rejects": {"by_reason": {f"r{HOSTILE}": 2}, "files": []},
        "sources": [{"path": f"p{HOSTILE}", "format": f"f{HOSTILE}", "read": 1, "written": 1, "rejected": 0}] * 2,
    }
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    (folder / label["vocabulary"]).write_text(f"c{HOSTILE}\nbright\n")
    (tmp_path / "out/history.jsonl").write_text(json.dumps({"act": "pin", "user": HOSTILE, "message": HOSTILE}))
    return tmp_path / "out"


def test_show_shows_what_steers_and_obeys_none_of_it(hostile: Path) -> None:
    status, seen = in_terminal("show", str(hostile), cwd=hostile)
    assert status == 0, seen
    assert "\x1b[1m" in seen  # it is a terminal: our own headers are bold
    plain = re.sub(r"\x1b\[[01]m", "", seen)
    assert STEERING.search(plain) is None
    for name in "dsrpfc":
        assert f"{name}{SHOWN}" in plain, name


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "arguments",
    [["show", "OUT", "--version", HOSTILE], ["show", HOSTILE], ["history", "OUT"], ["verify", "OUT"]]
    + [["build", HOSTILE, "-o", "x"], [HOSTILE]],
    ids=lambda arguments: arguments[0][:8].strip("\x1b]0;"),
)
def test_no_command_obeys(hostile: Path, arguments: list[str]) -> None:
    _, seen = in_terminal(*(str(hostile) if one == "OUT" else one for one in arguments), cwd=hostile)
    assert "\\x1b]0;owned\\x07\\x1b[2J" in seen
    assert STEERING.search(re.sub(r"\x1b\[[01]m", "", LIVE_LINE.sub("", seen))) is None


def test_an_unforeseen_error_tells_no_value(monkeypatch: pytest.MonkeyPatch, hostile: Path, capfd: Any) -> None:
    def fail(*arguments: object) -> None:
        raise TypeError(HOSTILE)

    monkeypatch.setattr("recordmill.pipeline.cli.show.print_dataset", fail)
    with pytest.raises(SystemExit):
        main(["show", str(hostile)])
    seen = capfd.readouterr().err
    assert_names(seen, "unexpectedly", "TypeError", "pipeline/cli/inspect_commands.py, line ")
    assert "owned" not in seen


@pytest.mark.slow
def test_a_build_of_hostile_names(tmp_path: Path) -> None:
    name, shown = (text.replace("/", "") for text in (HOSTILE, SHOWN))
    folder = tmp_path / "in" / name.translate(dict.fromkeys(map(ord, "\u2028\r")))  # a class is one line
    folder.mkdir(parents=True)
    (folder / f"{name}.txt").write_bytes(b"\xff")
    for number in range(20):
        (folder / f"{number}.txt").write_text(f"text {number} {HOSTILE}")
    (tmp_path / "dataset.yaml").write_text(
        "name: texts\nsource: {format: text, path: in/, document: file}\nkey: file_name\n"
        "features: {text: {kind: text}, label: {kind: category}}\nlabel: label\n"
        "rejects: {max_share: 0.5}\n"
    )
    status, seen = recordmill_in_terminal("build", "dataset.yaml", "-o", "out", cwd=tmp_path, environment=ENVIRONMENT)
    assert status == 0, seen
    assert STEERING.search(LIVE_LINE.sub("", seen)) is None
    status, seen = in_terminal("show", "out", cwd=tmp_path)
    assert (status, STEERING.search(re.sub(r"\x1b\[[01]m", "", seen))) == (0, None), seen
    assert shown.replace("\\u2028\\r", "") in seen
    spec = (tmp_path / "dataset.yaml").read_text()
    (tmp_path / "dataset.yaml").write_text(spec.replace("0.5", "0.01"))
    status, seen = recordmill_in_terminal("build", "dataset.yaml", "-o", "other", cwd=tmp_path, environment=ENVIRONMENT)
    assert (status, STEERING.search(LIVE_LINE.sub("", seen))) == (5, None), seen
    assert f"{shown}.txt" in seen


def test_an_abort_of_native_code_says_where(tmp_path: Path) -> None:
    (tmp_path / "dataset.yaml").write_text(
        "name: a\nsource: {format: python, rows: 'mine:rows'}\nfeatures: {n: {kind: number}}\n"
    )
    (tmp_path / "mine.py").write_text("import os\n\ndef rows():\n    yield os.abort()\n")
    status, seen = recordmill_in_terminal("build", "dataset.yaml", "-o", "out", cwd=tmp_path, environment=ENVIRONMENT)
    assert status == -6
    assert_names(seen, "Aborted", "mine.py", "line 4 in rows")


@pytest.mark.slow
def test_a_build_ends_where_its_terminal_was_closed(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": "many"}\n')
    (tmp_path / "dataset.yaml").write_text(
        "name: numbers\nsource: {format: jsonl, path: rows.jsonl}\nfeatures: {n: {kind: number}}\n"
    )
    driver, terminal = pty.openpty()
    command = "-m", "recordmill", "build", "dataset.yaml", "-o", "out"
    child = start_python(*command, cwd=tmp_path, environment=ENVIRONMENT, stdout=terminal, stderr=terminal)
    os.close(terminal)
    os.close(driver)
    child.join()
    assert child.exitcode == 5


def test_text_is_left_as_it_is() -> None:
    for text in ("", "a b", "über 猫 🙂", "a\u3000b\u00a0c", "line\nnext\ttab", "\\x1b", "[bold]x[/]"):
        assert printable(text) == text


@pytest.mark.parametrize("code", [*range(32), *range(127, 160), 0xAD, 0x61C, 0x200B, 0x200D, 0x200E, 0x2028, 0x2029,
                                  0x202A, 0x202E, 0x2060, 0x2066, 0x2069, 0xFEFF, 0xDC80, 0xE0041])  # fmt: skip
def test_what_steers_is_shown(code: int) -> None:
    shown = printable(f"a{chr(code)}b")
    if chr(code) in "\n\t":
        assert shown == f"a{chr(code)}b"
    else:
        assert re.fullmatch(r"a\\(r|x\w\w|u\w{4}|U\w{8})b", shown)
    assert printable(shown) == shown


def test_a_screen_escapes_strings_text_and_cells() -> None:
    out = io.StringIO()
    screen = Screen(file=out, width=200, force_terminal=True, color_system="truecolor")
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    screen.print(HOSTILE, Text(HOSTILE), table, style="bold")
    screen.print("s3://key:secret@bucket/a?token=abc")
    plain = re.sub(r"\x1b\[[01]m", "", out.getvalue())
    assert STEERING.search(plain) is None
    assert plain.count("\\x1b[2J\\x9b31m\\u202etxt") == 4
    assert "s3://***@bucket/a?***" in plain


def test_a_message_is_said_line_by_line() -> None:
    out = io.StringIO()
    say("first\x85 \x1b[2J\nsecond https://u:p@h/x?sig=1", out)
    assert out.getvalue() == "recordmill: first\\x85 \\x1b[2J\nrecordmill: second https://***@h/x?***\n"


PRINTING = {
    "recordmill.__main__", "recordmill.pipeline.cli.build_commands", "recordmill.pipeline.cli.commands",
    "recordmill.pipeline.cli.screen", "recordmill.pipeline.safe_text",
}  # fmt: skip


def test_nothing_else_prints() -> None:
    """Nobody can forget it: a module prints through `Screen` and `say`."""
    consoles, printers = set(), set()
    for file in [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "recordmill").glob("*.py")]:
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        name = name if name.startswith("recordmill") else f"recordmill.{name}"
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module == "rich.console":
                consoles |= {name} if "Console" in [alias.name for alias in node.names] else set()
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                printers.add(name)
    assert (consoles, printers) == ({"recordmill.pipeline.cli.screen"}, PRINTING)
