"""The reader without what some platforms do not have: each is taken away before Recordmill is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.published import write_version
from tests.test_import_tiers import ROOT

PROGRAM = """
import mmap, os, pathlib, sys
{without}
from recordmill import open_dataset

dataset = open_dataset(sys.argv[1])
for chosen in (0, 1):
    train = dataset.training_input("train", batch_size=8, epochs=2, workers=chosen)
    print(sum(len(features["price"]) for features, _ in train.as_numpy()))
print(len(list(dataset.records("test", limit=2))))
"""


@pytest.mark.first(4)
@pytest.mark.parametrize(
    "without",
    [
        pytest.param("del os.memfd_create", id="memfd_create"),
        pytest.param("sys.modules['fcntl'] = None", id="fcntl"),
        pytest.param("sys.modules['resource'] = None", id="resource"),
        pytest.param("del os.sched_getaffinity", id="sched_getaffinity"),
        pytest.param("del mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS", id="private maps"),
        pytest.param("del mmap.MADV_REMOVE", id="MADV_REMOVE"),
        pytest.param("sys.modules['ctypes'] = None", id="ctypes"),
    ],
)
def test_the_reader_has_another_way(without: str, tmp_path: Path) -> None:
    write_version(tmp_path / "out")
    program = PROGRAM.format(without=without)
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["240", "240", "2"]), done.stderr
