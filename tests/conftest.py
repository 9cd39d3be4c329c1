"""Fixtures that several test modules share, the order of the files, and the settings of the garbage collector."""

import fcntl
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from recordmill import Dataset, open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.inputs import input_table
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.publishing import Published
from recordmill.transforms.images import opencv
from tests.constants import constants
from tests.every_kind import make
from tests.needless import set_optimizer, without_needless

ROWS = 1_100
LONGEST = [
    "test_ways",
    "test_ways",
    "test_golden",  # builds what several others look at
    "test_kills",
    "test_same_bytes",
    "test_span_stores",
    "test_object_stores",
    "test_export",
    "test_spans",
    "test_publishing",
    "test_image",
    "test_isolation",
    "test_shared_shards",
    "test_dataflow",
    "test_examples",
    "test_build",
    "test_command_line",
    "test_dead_workers",
]

# A loaded machine is no failure. A change is judged by the same examples each time; `make test-nightly` tries new ones.
settings.register_profile("new", deadline=None, max_examples=100)
settings.register_profile("same", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves all cases but the `first` to the night; starts the longest files first: processes then end together."""
    cases = Counter[str]()
    for item in items:
        if first := item.get_closest_marker("first"):
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > first.args[0]:
                item.add_marker("nightly")
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session", autouse=True)
def _fine_clock() -> Iterator[None]:
    """Lets no build wait for the clock of a file system; here each edit has a time of its own."""
    with constants(input_table, TICK_SECONDS=0.0):
        yield


@pytest.fixture(scope="session", autouse=True)
def _graphs_once() -> Iterator[None]:
    """Makes equal graphs once, if tests loaded what builds them: TensorFlow and Beam take 5 s."""
    if "tensorflow_transform" not in sys.modules:
        yield
        return
    from tests.graphs_once import graphs_once

    with graphs_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache_of_blocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps blocks of remote shards out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


gc.disable()  # while modules and thousands of tests are collected, all of which stay: a third of the time


def pytest_collection_finish() -> None:
    """Collects garbage from here on, seldom, and does not look through TensorFlow and Beam for it or for state."""
    gc.set_threshold(20_000, 20, 20)  # as a build does
    gc.freeze()
    gc.enable()
    without_needless()


def build_every_kind(folder: Path) -> Published:
    """Builds the dataset of every kind below a folder: its inputs in `in`, the dataset in `out`."""
    set_optimizer(on=True)  # as in a user's process
    try:
        return build(make(folder / "in", ROWS, more_images=True), str(folder / "out"))
    finally:
        set_optimizer(on=False)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A small published dataset, written by hand."""
    from tests import hand_made  # loads TensorFlow

    output = tmp_path_factory.mktemp("hand") / "out"
    hand_made.write_dataset(output)
    return open_dataset(output)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache, which notes adopted places, belongs to one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def short_patience() -> Iterator[None]:
    """Lets a process that wants a lease wait for a moment only."""
    with constants(leases, PATIENCE_SECONDS=0.3, POLL_SECONDS=0.01):
        yield


@pytest.fixture
def without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the reader work as where OpenCV is not installed."""
    monkeypatch.setattr(opencv, "cv2", None)


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, Published]:
    """The folder of inputs and dataset, and what was published: by the first of several test processes."""
    alone = worker_id == "master"
    folder = (tmp_path_factory.getbasetemp() if alone else tmp_path_factory.getbasetemp().parent) / "every_kind"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        version = publishing.live_version(str(folder / "out"))
        if version is None:
            return folder, build_every_kind(folder)
    published = str(folder / "out" / "versions" / version)
    return folder, Published(published, read_manifest(published), is_new=True)
