"""Files of other users in the temporary folder are never run, and none of ours stay there."""

import os
import py_compile
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from recordmill.pipeline import private_folder
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.private_folder import PREFIX, private_temporary_files
from tests.forked import python, recordmill, start_python, wait_until
from tests.messages import raises

ROOT = Path(__file__).parents[1]
HOLDER = """
import os, sys, tempfile, time
from recordmill.pipeline.private_folder import end_by_signal, use_private_folder
import signal
signal.signal(signal.SIGTERM, end_by_signal)
use_private_folder()
tempfile.mkstemp()
os.mkdir(os.path.join(tempfile.gettempdir(), "graph"))
print(tempfile.gettempdir(), flush=True)
sys.stdin.read()
"""
ATTACK = "open({canary!r}, 'w').close()\n"
READER = """
import itertools, os, stat, tempfile
import tensorflow as tf

def rows():
    folder = tempfile.gettempdir()
    tempfile._name_sequence = (f"known{number}" for number in itertools.count())  # what a watcher sees, and is first

    @tf.function
    def sign(number):
        if number > 0:
            return 1
        return -1

    with open("seen.txt", "w") as file:
        file.write(f"{folder} {stat.S_IMODE(os.stat(folder).st_mode):o} {os.stat(folder).st_uid}")
    for number in range(20):
        yield {"id": number, "n": int(sign(tf.constant(number)))}
"""
SPEC = """
name: signs
source: {format: python, rows: "reader:rows"}
key: id
features: {n: {kind: number}}
"""
WORKER = """
import importlib, os, sys, tempfile
from types import SimpleNamespace
from recordmill.pipeline.build.beam import worker_boot

def work(arguments):
    print(tempfile.gettempdir(), oct(os.stat(tempfile.gettempdir()).st_mode), flush=True)
    if "stop" in sys.argv:
        os.kill(os.getpid(), 15)

worker_boot.provision_info = lambda *_: None
worker_boot.environment = lambda *_: {}
importlib.import_module = lambda name: SimpleNamespace(main=work)
worker_boot.main(["--id=1"])
"""
WAITS = """
import os, time

def rows():
    for number in range(20):
        yield {"id": number, "n": number}
    open("at_work.txt", "w").close()
    time.sleep(600)
"""


@contextmanager
def holder(shared: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process with a private folder, which it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(shared)}
    with subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world-writable folder, as the usual temporary folder of this process and its children."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(private_folder, "_files", private_folder._TemporaryFiles())
    return folder


def test_files_are_made_in_a_folder_of_mode_0700_until_the_block_ends(shared: Path) -> None:
    with private_temporary_files():
        inside = Path(tempfile.gettempdir())
        assert (inside.parent, inside.stat().st_mode & 0o777, inside.stat().st_uid) == (shared, 0o700, os.geteuid())
        assert os.environ["TMPDIR"] == str(inside)
        assert private_folder.usual_folder() == str(shared)
    assert (tempfile.gettempdir(), os.environ["TMPDIR"]) == (str(shared), str(shared))
    with private_temporary_files():
        assert tempfile.gettempdir() == str(inside)
    private_folder.remove_private_folder()
    assert list(shared.iterdir()) == []


def test_blocks_of_several_threads_end_in_any_order(shared: Path) -> None:
    first, second = private_temporary_files(), private_temporary_files()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert tempfile.gettempdir() != str(shared)
    second.__exit__(None, None, None)
    assert tempfile.gettempdir() == str(shared)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, None])
def test_the_folder_goes_with_its_process_or_with_the_next(number: int | None, shared: Path) -> None:
    with holder(shared) as (process, folder):
        assert folder.parent == shared
        if number is None:
            process.communicate("")
        else:
            process.send_signal(number)
        assert process.wait() == -(number or 0)
    assert folder.exists() == (number == signal.SIGKILL)
    with private_temporary_files():
        assert [str(entry) for entry in shared.iterdir()] == [tempfile.gettempdir()]


def test_that_of_a_living_process_and_those_of_others_and_links_stay(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").mkdir(mode=0o700)
    (shared / f"{PREFIX}link").symlink_to(tmp_path / "precious")
    (shared / f"{PREFIX}open").mkdir()
    os.mkfifo(shared / f"{PREFIX}pipe", 0o700)
    with holder(shared) as (_, folder):
        before = {*shared.iterdir()}
        with private_temporary_files():
            assert {*shared.iterdir()} == before | {Path(tempfile.gettempdir())}
        assert (tmp_path / "precious").is_dir()
        process = folder
    monkeypatch.setattr(os, "geteuid", lambda: 4711)  # the folder of the holder, which is dead, is another user's now
    private_folder._remove_dead(shared)
    assert process.is_dir()


def test_a_fork_leaves_the_folder_to_its_parent(shared: Path) -> None:
    with private_temporary_files():
        if not (child := os.fork()):
            private_folder.remove_private_folder()
            os._exit(0)
        os.waitpid(child, 0)
        assert Path(tempfile.gettempdir()).is_dir()


def test_without_a_place_for_it_nothing_begins(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared / "gone"))
    with raises(UserError, shared / "gone", "free some space", "TMPDIR"):
        private_folder.use_private_folder()


def planted(shared: Path, canary: Path) -> set[Path]:
    """Puts code into the shared folder that Python may mistake for AutoGraph's, as any user of the machine can."""
    attack = canary.with_name("attack.py")
    attack.write_text(ATTACK.format(canary=str(canary)))
    modules = [shared / f"__autograph_generated_fileknown{number}.py" for number in range(20)]
    for module in modules:
        (cached := Path(cache_from_source(str(module)))).parent.mkdir(parents=True, exist_ok=True)
        py_compile.compile(str(attack), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return {*shared.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_planted_code_does_not_run_and_nothing_stays(processes: str, tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    (tmp_path / "dataset.yaml").write_text(SPEC)
    (tmp_path / "reader.py").write_text(READER)
    before = planted(shared, tmp_path / "canary")
    command = ["build", "dataset.yaml", "-o", "out", "--processes", processes]
    done = recordmill(*command, cwd=tmp_path, environment={**os.environ, "TMPDIR": str(shared)})
    assert not (tmp_path / "canary").exists()
    assert done.returncode == 0, done.stderr
    folder, mode, owner = (tmp_path / "seen.txt").read_text().split()
    assert (Path(folder).parent, mode, owner) == (shared, "700", str(os.geteuid()))
    assert {*shared.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["stop"], -signal.SIGTERM)])
def test_a_worker_on_a_cluster_has_a_folder_of_its_own(arguments: list[str], status: int, tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    (tmp_path / "worker.py").write_text(WORKER)
    environment = {**os.environ, "TMPDIR": str(shared)}
    done = python(str(tmp_path / "worker.py"), *arguments, cwd=tmp_path, environment=environment)
    assert (done.returncode, list(shared.iterdir())) == (status, [])
    assert done.stderr.startswith(f"{shared}/{PREFIX}")
    assert done.stderr.rstrip().endswith(" 0o40700")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_stopped_leaves_nothing(number: int, tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    (tmp_path / "dataset.yaml").write_text(SPEC)
    (tmp_path / "reader.py").write_text(WAITS)
    with open(tmp_path / "log.txt", "wb") as log:
        environment = {**os.environ, "TMPDIR": str(shared)}
        command = ["-m", "recordmill", "build", "dataset.yaml", "-o", "out"]
        outputs = log.fileno()
        build = start_python(*command, cwd=tmp_path, stdout=outputs, stderr=outputs, environment=environment)
    wait_until((tmp_path / "at_work.txt").exists)
    made = [entry.name for entry in shared.iterdir()]
    assert build.pid is not None
    os.kill(build.pid, number)
    build.join()
    assert (len(made), made[0].startswith(PREFIX)) == (1, True)
    assert (build.exitcode, list(shared.iterdir())) == (128 + number, [])
