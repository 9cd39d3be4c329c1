"""The same input gives the same bytes: whatever the files' order, the chunks, the threads, the processes, the runner,
the repeats, the time of day and the folder: those of a golden file.

One dataset with every way to analyze and some hundred rows in several chunks, because small data is equal by luck; of
the images a sample is measured. If the bytes should change, say why in the changelog and write the file again:
`.venv/bin/python -m tests.test_same_bytes`.
"""

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.build.beam import runners
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan import plan
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.manifest import Manifest
from tests.constants import constants
from tests.every_kind import ANALYZED, make

ROWS = 800
pytestmark = pytest.mark.slow
OWN_MODULE = """
import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs, outputs):
    return outputs | {"above": tf.cast(inputs["number"] - tft.min(inputs["number"]), tf.float32)}
"""
GOLDEN = Path(__file__).with_name("golden_same_bytes.json")
EXPECTED = json.loads(GOLDEN.read_text())
SAMPLE = {"SAMPLE_IMAGES": 160}
LOOPBACK = ("--job_endpoint=embed", "--environment_type=LOOPBACK")


def fingerprint(folder: str, manifest: Manifest) -> dict[str, Any]:
    """All that must be equal."""
    found = {
        "shards": {shard.file: shard.sha256 for split in manifest.splits.values() for shard in split.shards},
        "statistics": manifest.statistics,
        "label_counts": {name: split.label_counts for name, split in manifest.splits.items()},
        "vocabularies": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(Path(folder, "transform_fn/assets").iterdir())
        },
    }
    return dict(json.loads(json.dumps(found)))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    make(folder, ROWS)
    return folder


@pytest.fixture(autouse=True, scope="module")
def sample() -> Iterator[None]:
    """Measures a sample of the images, as for many images."""
    with constants(plan, **SAMPLE):
        yield


def _build(inputs: Path, output: Path, options: RunOptions, **make_options: bool) -> dict[str, Any]:
    spec = make(inputs, ROWS, only=ANALYZED, **make_options)
    (inputs / "own_module.py").write_text(OWN_MODULE)
    spec = spec.model_copy(update={"preprocessing": "own_module:preprocessing_fn"})  # every worker has to find it
    with chdir(inputs):  # the folder of the module
        published = build(spec, str(output), options)
    assert published.is_new
    assert "above" in published.manifest.features
    rows = published.manifest.rows
    assert rows == {**rows, "read": ROWS, "written": ROWS, "rejected": 0}
    return fingerprint(published.folder, published.manifest)


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 33_333)
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tomorrow")
def test_another_order_folder_time_and_four_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "worker_threads", lambda processes: 4)
    options = RunOptions(chunk_bytes=260 << 10)
    assert _build(tmp_path / "elsewhere" / "inputs", tmp_path / "out", options, swap_files=True) == EXPECTED


@pytest.mark.nightly
def test_one_thread_and_every_bundle_twice(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "worker_threads", lambda processes: 1)
    options = RunOptions(beam_options=("--direct_runner_bundle_repeat=1",), chunk_bytes=100 << 10)
    assert _build(inputs, tmp_path, options) == EXPECTED


@pytest.mark.nightly
def test_two_processes_without_onednn(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")  # which the command line sets, and the workers of a cluster lack
    assert _build(inputs, tmp_path, RunOptions(processes=2, chunk_bytes=50 << 10)) == EXPECTED


@pytest.mark.nightly
def test_a_portable_runner(inputs: Path, tmp_path: Path) -> None:
    options = RunOptions(runner="PortableRunner", beam_options=LOOPBACK, temp=str(tmp_path / "temp"))
    assert _build(inputs, tmp_path, options) == EXPECTED


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, constants(plan, **SAMPLE):
        found = _build(Path(scratch, "in"), Path(scratch, "out"), RunOptions(chunk_bytes=100 << 10))
        GOLDEN.write_text(json.dumps(found) + "\n")
