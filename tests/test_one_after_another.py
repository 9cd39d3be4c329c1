"""Builds into one output run one after another: what a build that waits finds, and says, and leaves."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordmill.pipeline.build.base.live_analysis import SpanError
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.leases import BUILD, Lease, hold
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_store
from tests.messages import assert_names, raises
from tests.publish import publish_assembled
from tests.tables import write


def build_of(folder: Path, listener: Listener, options: RunOptions = RunOptions()) -> Published:  # noqa: B008 - frozen
    spec = parse_spec(
        f"name: toys\nsource: {{format: text, path: {folder}/in}}\nsplits: {{train: 1}}\n"
        "features: {text: {kind: text}}\n"
    )
    return build(spec, str(folder / "out"), options, listener)


def error_of_waiting(folder: Path, meanwhile: Callable[[Lease], None]) -> BaseException | None:
    """Runs a build that waits for another, and does something meanwhile, before the other ends."""
    waits = threading.Event()
    listener = Listener(on_note=lambda note: waits.set() if "waiting for" in note else None)
    with ThreadPoolExecutor() as pool:
        with hold(open_store(str(folder / "out")), BUILD) as lease:
            waiting = pool.submit(build_of, folder, listener)
            assert waits.wait(30)
            meanwhile(lease)
        return waiting.exception(60)


def test_a_mistake_is_reported_before_the_wait(tmp_path: Path) -> None:
    with hold(open_store(str(tmp_path / "out")), BUILD), raises(SourceError, f"{tmp_path}/in"):
        build_of(tmp_path, Listener())
    write(tmp_path / "in/a.txt", "text")
    with hold(open_store(str(tmp_path / "out")), BUILD), raises(SpanError, "--span", "{span}"):
        build_of(tmp_path, Listener(), RunOptions(spans=("2026-01-01",)))


def test_another_dataset_that_came_first_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "in/a.txt", "text")

    def publish(lease: Lease) -> None:
        write(tmp_path / "assembled/data", b"records")
        write(tmp_path / "assembled/index", bytes(16))
        splits = {"train": Split((Shard("data", 7, 1, "00" * 32, "index"),))}
        made = Manifest("d", "20260101T000000Z-4f1c9a2e", "4f" * 32, None, {"x": {"kind": "number"}}, splits)
        publish_assembled(str(tmp_path / "out"), str(tmp_path / "assembled"), made, lease=lease)

    error = error_of_waiting(tmp_path, publish)
    assert isinstance(error, OutputError)
    assert_names(error, "dataset 'd'", "'toys'")


def test_a_folder_that_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError):
        build_of(tmp_path, Listener())
    assert (tmp_path / "out").is_dir()
