"""The command line in separate processes: screen, exit status, and the end on Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.forked import recordmill, recordmill_in_terminal, start_python, wait_until_ended
from tests.messages import assert_names
from tests.test_quick_answers import without_frameworks

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "recordmill"]
SPEC = """
name: numbers
source: {format: jsonl, path: rows.jsonl}
key: id
features:
  number: {kind: number}
  text: {kind: text}
"""


def _run(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command in a new process, to see what frameworks print while loading."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, timeout=120, env=env)


def _write(folder: Path, rows: int) -> None:
    (folder / "dataset.yaml").write_text(SPEC)
    with open(folder / "rows.jsonl", "w") as file:
        for row in range(rows):
            file.write(
                json.dumps({"id": str(row), "number": row, "text": f"word{row % 97} and more words " * 8}) + "\n"
            )


def test_build_says_what_was_published_and_show_shows_it(tmp_path: Path) -> None:
    _write(tmp_path, 3000)
    with open(tmp_path / "rows.jsonl", "a") as file:
        file.write("broken\n")
    built = _run("build", "dataset.yaml", "--output", "out", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert re.search(r"Published numbers \S+ in [\d.]+ s, [\d.]+ kB", built.stderr)
    assert re.search(r"rejected +1 of 3,001 rows\n +malformed_row +1\n", built.stderr)
    assert not re.search("tensorflow|WARNING|INFO|absl|cuda", built.stderr, re.IGNORECASE)
    shown = _run("show", "out", cwd=tmp_path)
    assert shown.returncode == 0
    for word in ("numbers", "(live)", "train", "number", "malformed_row: 1", "3,001 rows read = 3,000 written"):
        assert word in shown.stdout
    again = _run("build", "dataset.yaml", "--output", "out", cwd=tmp_path, env=without_frameworks(tmp_path))
    assert again.returncode == 3, again.stderr
    assert_names(again.stderr, "changed", "live in out/versions/")


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    _write(tmp_path, 50)
    built = recordmill("build", "dataset.yaml", "--output", "out", "--quiet", cwd=tmp_path)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    assert (tmp_path / "out/LATEST").exists()


def test_a_build_whose_messages_nobody_reads_is_published_and_in_the_history(tmp_path: Path) -> None:
    _write(tmp_path, 10)
    read, write = os.pipe()
    os.close(read)
    command = [*COMMAND, "build", "dataset.yaml", "--output", "out"]
    assert subprocess.run(command, stderr=write, cwd=tmp_path, timeout=120, check=False).returncode == 0
    os.close(write)
    assert json.loads((tmp_path / "out/history.jsonl").read_text().splitlines()[-1])["end"] == "published"


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["build", "dataset.yaml", "--outptu", "out"], ["--outptu"]),
        (["build", "none.yaml", "--output", "out"], ["none.yaml"]),
        (["build", "dataset.yaml"], ["--output"]),
        (["build", "dataset.yaml", "--output", ""], ["--output", "empty"]),
        (["versions", "prune", "", "--keep", "1"], ["DIR", "empty"]),
        (["versions", "forget", "out", ""], ["KEY", "empty"]),
        (["init", ""], ["path", "empty"]),
        (["adopt", "*", "", "--output", "out"], ["files", "empty"]),
        (["adopt", "rows.jsonl", "--output", "out", "--split", "train=0"], ["'train': 0"]),
        (["adopt", "a", "b", "--split", "train", "--split", "test", "--output", "out"], ["--split test", "no files"]),
        (["adopt", "a", "--split", "train", "--split", "b=1", "--output", "out"], ["b", "train"]),
        (["preview", "out", "--sources", "nowhere"], ["--sources", "'nowhere'"]),
        (["build", "dataset.yaml", "--output", "\udcff"], ["'\\udcff'", "not UTF-8"]),
        (["build", "wrong.yaml", "--output", "out"], ["wrong.yaml:6: features.number: ", "`knid`", "`kind`"]),
        (["show", "nowhere"], ["nowhere", "`--output`"]),
        (["show", "dataset.yaml"], ["no folder", "dataset.yaml", "`--output`"]),
        (["show", "."], ["published"]),
        (["init", ".", "--order", "xyxy"], ["'--order'", "'xyxy'", "'corners'"]),
        (["bild"], ["'bild'", "'build'"]),
        (["versions", "show", "out"], ["'show'", "`recordmill show out`"]),
        (["versions", "aprove", "out"], ["'aprove'", "`recordmill versions approve`"]),
        (["versions", "out"], ["'out'", "`recordmill versions list out`"]),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(tmp_path: Path, arguments: list[str], facts: list[str]) -> None:
    _write(tmp_path, 10)
    (tmp_path / "wrong.yaml").write_text(SPEC.replace("{kind: number}", "{knid: number, kind: number}"))
    found = recordmill(*arguments, cwd=tmp_path)
    errors = [line for line in found.stderr.splitlines() if line.startswith("recordmill: ")]
    assert found.returncode != 0
    assert len(errors) == 1, found.stderr
    assert_names(errors[0], *facts)
    assert "Traceback" not in found.stderr + found.stdout


@pytest.mark.parametrize(
    ("options", "sent", "status"),
    [([], signal.SIGINT, 130), pytest.param(["--processes", "2"], signal.SIGTERM, 143, marks=pytest.mark.nightly)],
)
def test_a_signal_ends_everything_and_says_how_to_go_on(
    tmp_path: Path, options: list[str], sent: signal.Signals, status: int
) -> None:
    _write(tmp_path, 300_000)
    reading, writing = os.pipe()
    command = ["-m", "recordmill", "build", "dataset.yaml", "--output", "out", *options]
    build = start_python(*command, cwd=tmp_path, stdout=writing, stderr=writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as printed:
        for line in printed:
            if re.search("(reading|building).* [1-9][0-9,]* records", line):
                break
        children = psutil.Process(build.pid).children(recursive=True)
        os.kill(build.pid, sent)
        os.kill(build.pid, sent)  # as people do
        rest = printed.read()
    build.join()
    assert build.exitcode == status
    (told,) = [line for line in rest.splitlines() if line.startswith("recordmill: ")]
    assert_names(told, "stopped", "published", "same command", "`recordmill versions prune out`")
    assert "Traceback" not in rest
    wait_until_ended(children)
    assert not (tmp_path / "out/LATEST").exists()


def test_a_terminal_gets_a_live_line(tmp_path: Path) -> None:
    _write(tmp_path, 40_000)
    command = ["build", "dataset.yaml", "--output", "out"]
    status, seen = recordmill_in_terminal(*command, cwd=tmp_path, environment={**os.environ, "TERM": "xterm"})
    assert status == 0
    assert "\x1b[" in seen
    assert re.search(r"(reading|building shards)", seen)
    assert re.search(r"[1-9][\d,]* records", seen)
    assert "Published" in seen
