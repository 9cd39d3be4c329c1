"""Mistakes that a command reports before TensorFlow and Beam load: both fail here as soon as something imports them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.versions.leases import BUILD, hold
from recordmill.pipeline.versions.stores.open_store import open_store
from tests.messages import assert_names, raises
from tests.test_import_tiers import ROOT

SPEC = "name: quick\nsource: {format: jsonl, path: rows.jsonl}\nkey: id\nfeatures: {price: {kind: number}}\n"
ROWS = "".join(json.dumps({"id": f"k{row}", "price": row}) + "\n" for row in range(10))
FULL_DISK = "import shutil\nshutil.disk_usage = lambda folder: shutil._ntuple_diskusage(1 << 40, 1 << 40, 0)\n"
COMMAND = "import sys\nfrom recordmill.pipeline.cli.commands import main\nmain()\n"


def without_frameworks(folder: Path) -> dict[str, str]:
    """Gives the environment of a process in which TensorFlow and Beam cannot be imported; writes into a folder."""
    for name in ("tensorflow", "apache_beam"):
        (folder / "blocked" / name).mkdir(parents=True, exist_ok=True)
        (folder / "blocked" / name / "__init__.py").write_text(f"raise ImportError('{name} is loaded')")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "blocked"), str(ROOT)])}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dataset.yaml").write_text(SPEC)
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(b"")
    return tmp_path


@pytest.mark.first(1)
@pytest.mark.parametrize("line", [
    "print(plan('dataset.yaml', Path('out')))", "build('dataset.yaml', Path('out'))", "adopt('none-*', 'out')",
    "print(verify(Path('none')))",
])  # fmt: skip
def test_functions_take_paths_as_people_type_them(folder: Path, line: str) -> None:
    (folder / "dataset.yaml").write_text(SPEC.replace("id\n", "idd\n"))
    head = "from pathlib import Path\nfrom recordmill import *\n"
    code = f"{head}try:\n    {line}\nexcept UserError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=without_frameworks(folder), capture_output=True)
    assert_names(done.stdout.decode(), *(["'idd'"] if "yaml" in line else ["none"]))


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["init", "rows.jsonl", "other.jsonl"], ["'other.jsonl'", "`recordmill init`", "quote"]),
        (["plan", "dataset.yaml", "b.yaml", "--", "--region=x"], ["'b.yaml'", "`recordmill plan`", "quote"]),
        (["build", "dataset.yaml", "b.yaml", "-o", "out"], ["'b.yaml'", "`recordmill build`", "quote"]),
        (["doctor", "nonsense"], ["'nonsense'", "`recordmill doctor`", "quote"]),
        (["doctor", "--runner", "flinkk"], ["'flinkk'", "'local', 'flink'"]),
        (["doctor", "--runner", "dataflow"], ["'dataflow'", "'local', 'flink'"]),
    ],
)
def test_an_argument_too_many_is_not_dropped(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    facts: list[str],
) -> None:
    monkeypatch.chdir(folder)
    with raises(SystemExit, "2"):
        main(arguments)
    printed = capsys.readouterr()
    assert_names(" ".join(printed.err.split()), *facts)
    assert printed.out == ""
    if "--" in arguments:  # options of Beam stay
        with raises(SystemExit, "0"):
            main(["init", "rows.jsonl", "-o", "new.yaml", "--", "--region", "x"])
        assert (folder / "new.yaml").is_file()


FUNCTION = "import recordmill\nrecordmill.build(recordmill.load_spec('dataset.yaml'), 'out')\n"


def build(folder: Path, code: str = COMMAND) -> tuple[int, str]:
    """Runs a program where TensorFlow and Beam cannot be imported; gives its status and what it printed."""
    environment = without_frameworks(folder)
    command = [sys.executable, "-c", code, "build", "dataset.yaml", "--output", "out"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, cwd=folder)
    return done.returncode, done.stderr


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (("kind: number", "kind: nmber"), ["dataset.yaml:4: features.price: ", "'nmber'", "`number`?"]),
        (("key: id", "key: [id, prize]"), ["rows.jsonl", "column 'prize'", "id, price"]),
    ],
    ids=["spec", "no column"],
)
def test_a_mistake_is_reported(folder: Path, change: tuple[str, str], facts: list[str]) -> None:
    (folder / "dataset.yaml").write_text(SPEC.replace(*change))
    status, printed = build(folder)
    assert_names(printed, *facts)
    assert (status, "is loaded" in printed) == (1, False), printed
    assert not (folder / "out").exists()


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("source", "message"),
    [("gone.jsonl", "SourceError: "), ("rows.jsonl", "ImportError: apache_beam is loaded")],
    ids=["a mistake", "none"],
)
def test_the_function_answers_as_the_command_does(folder: Path, source: str, message: str) -> None:
    (folder / "dataset.yaml").write_text(SPEC.replace("rows.jsonl", source))
    _, printed = build(folder, FUNCTION)
    assert message in printed.splitlines()[-1], printed


def test_too_little_space_is_reported(folder: Path) -> None:
    status, printed = build(folder, FULL_DISK + COMMAND)
    assert status == 1
    assert_names(printed, "build needs about", "0.0 kB", "free")


def test_who_builds_in_the_output_is_named(folder: Path) -> None:
    command = [sys.executable, "-c", COMMAND, "build", "dataset.yaml", "--output", "out"]
    with hold(open_store(str(folder / "out")), BUILD):
        environment = without_frameworks(folder)
        waiting = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=folder)
        assert waiting.stderr is not None
        lines = iter(waiting.stderr.readline, "")
        assert any(line.startswith("note: ") and f"process {os.getpid()} on " in line for line in lines)
    assert any("ImportError: apache_beam is loaded" in line for line in lines)
    assert waiting.wait() == 1
