"""Processes forked from one that has loaded Beam and TensorFlow, and has a single thread."""

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.forked import CHILDREN, recordmill

pytestmark = pytest.mark.slow


def _tell(answer: Connection) -> None:
    answer.send(sorted({"apache_beam", "tensorflow"} & sys.modules.keys()))
    import tensorflow as tf

    summed = tf.data.Dataset.range(100).map(lambda number: number + 1, num_parallel_calls=2)
    answer.send(sum(map(int, summed)))
    answer.send([_threads(process) for process in (os.getppid(), os.getpid())])


def _threads(process: int) -> list[str]:
    """The names of a process' threads."""
    return [file.read_text().strip() for file in Path(f"/proc/{process}/task").glob("*/comm")]


@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_tensorflow_is_loaded_before_the_fork_and_begins_after_it() -> None:
    ours, theirs = CHILDREN.Pipe(duplex=False)
    child = CHILDREN.Process(target=_tell, args=(theirs,))
    child.start()
    assert ours.recv() == ["apache_beam", "tensorflow"]
    assert ours.recv() == 5050
    of_server, of_child = ours.recv()
    child.join(60)
    assert child.exitcode == 0
    assert [name for name in of_child if name.startswith("tf_")], of_child
    assert len(of_server) == 1, of_server  # a fork copies what another thread is in the middle of


def test_a_command_has_its_own_folder_environment_output_and_status(tmp_path: Path) -> None:
    (tmp_path / "dataset.yaml").write_text("name: a\nsource: {format: python, rows: 'mine:rows'}\n")
    done = recordmill("build", "dataset.yaml", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("recordmill: dataset.yaml")
    done = recordmill("--help", cwd=tmp_path, environment={"COLUMNS": "60"})
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) == 60
    assert recordmill("bild", cwd=tmp_path).returncode == 2
