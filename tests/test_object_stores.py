"""Sources and outputs on object stores: real clients against an S3 and a GCS emulator, started and stopped here."""

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.internal.gcp import auth
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import S3Options

from recordmill import open_dataset
from recordmill.pipeline.build.beam.runners import make_runner
from recordmill.pipeline.build.beam.steps import UnreachableError, probe_workers
from recordmill.pipeline.build.build import build, source_files
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.errors import DatasetError, ExitCode
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators
from tests.every_kind import write_pictures
from tests.forked import wait_until
from tests.messages import raises
from tests.test_reader_input import assert_equal

pytestmark = pytest.mark.slow
SPEC = """
name: stored
source: {{format: image_folder, path: "{path}"}}
features:
  image: {{kind: image, store: original, size: [8, 8]}}
  text: {{kind: text}}
"""
ROWS = 12


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder)
    pictures = {path.name: path.read_bytes() for path in sorted(folder.iterdir())[:ROWS]}
    rows = [json.dumps({"file_name": name, "text": f"picture {name}"}) + "\n" for name in pictures]
    return pictures | {"metadata.jsonl": "".join(rows).encode()}


@pytest.fixture(scope="module")
def local(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Published:
    """What is built of these files in a folder."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "set").mkdir()
    for name, data in files.items():
        (folder / "set" / name).write_bytes(data)
    return build(parse_spec(SPEC.format(path=folder / "set")), str(folder / "out"))


def put(files: dict[str, bytes], url: str) -> None:
    for name, data in files.items():
        open_store(url).write_if(name, data, None)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("start", "option"),
    [
        pytest.param(emulators.s3, None, id="s3"),
        pytest.param(emulators.s3, "--s3_endpoint_url={}", id="s3 by Beam's options"),
        pytest.param(lambda: emulators.gcs(conditions=True), "--no_auth", id="gcs"),
    ],
)
def test_a_source_and_an_output(
    start: Callable[[], AbstractContextManager[str]],
    option: str | None,
    files: dict[str, bytes],
    local: Published,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One build reads from a store and publishes there the same as a build from a folder into a folder."""
    # Beam looks for credentials for 20 seconds, also with --no_auth; here it has done so.
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)
    with start() as url:
        source, output = f"{url}/in", f"{url}/out"
        put(files, source)
        spec = parse_spec(SPEC.format(path=source))
        beam_options = () if option is None else (option.format(os.environ.get("AWS_ENDPOINT_URL")),)
        options = RunOptions(work=str(tmp_path / "work"), beam_options=beam_options)
        there, again = build(spec, output, options), build(spec, output, options)
        assert there.manifest.rows == {"read": ROWS, "written": ROWS, "rejected": 0, "duplicates": 0}
        assert (there.is_new, again.is_new, again.folder) == (True, False, there.folder)
        assert there.manifest.splits == local.manifest.splits
        assert there.folder == f"{output}/versions/{there.manifest.version}"
        assert open_store(output).children("") == ["LATEST", "history.jsonl", "versions"]
        mine, other = (open_dataset(one).evaluation_input("train", batch_size=4) for one in (local.folder, output))
        assert_equal(tuple(other), tuple(mine))
        assert not list((tmp_path / "work").rglob("run-*"))


def test_an_image_in_a_bucket_costs_one_request(
    files: dict[str, bytes], local: Published, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with emulators.s3() as url, caplog.at_level(logging.INFO, "werkzeug"):
        put(files, url)
        caplog.clear()
        there = build(parse_spec(SPEC.format(path=url)), str(tmp_path / "out"))
        asked = [record.getMessage() for record in caplog.records if record.name == "werkzeug"]
    assert there.manifest.splits == local.manifest.splits
    images = [name for name in files if name.endswith(".png")]
    assert [sum(f"GET /{url[5:]}/{name} " in line for line in asked) for name in images] == [1] * len(images)
    assert not [line for line in asked if "HEAD " in line]


@pytest.fixture
def _without_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores the options that a command sets for Beam's file systems."""
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)


@pytest.mark.nightly
@pytest.mark.usefixtures("_without_options")
def test_a_plan_of_a_source_at_a_url(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with emulators.s3() as url:
        put(files, url)
        (tmp_path / "dataset.yaml").write_text(SPEC.format(path=url))
        with pytest.raises(SystemExit, match="0"):
            main(["plan", str(tmp_path / "dataset.yaml")])
    printed = capsys.readouterr().out
    assert f"{ROWS} rows of {ROWS + 1} files" in printed
    assert f"in all {ROWS} rows:" in printed
    assert f"rejected: none of {ROWS} rows" in printed


@pytest.mark.usefixtures("_without_options")
def test_a_command_opens_urls_by_beam_and_with_its_options() -> None:
    assert not source_files(["--s3_endpoint_url=http://here"]).match("/absent.csv")
    assert FileSystems._pipeline_options is None
    for given, endpoint in ((["--s3_endpoint_url=http://here"], "http://here"), ([], None)):
        with raises(OSError, "ftp://host/a.csv"):
            source_files(given).match("ftp://host/a.csv")
        assert FileSystems._pipeline_options.view_as(S3Options).s3_endpoint_url == endpoint


BY_COMMAND = """
name: rows
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 80, test: 20}
shards: {train: 32, test: 8}
features: {number: {kind: number}, text: {kind: text}}
"""
STORES = pytest.mark.parametrize(
    "start", [pytest.param(emulators.s3, id="s3"), pytest.param(lambda: emulators.gcs(conditions=True), id="gcs")]
)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    rows = [json.dumps({"id": number, "number": number / 7, "text": f"word {number}"}) + "\n" for number in range(900)]
    (folder / "rows.jsonl").write_text("".join(rows))
    (folder / "rows.yaml").write_text(BY_COMMAND)
    return folder / "rows.yaml"


@pytest.fixture(scope="module")
def in_a_folder(spec: Path) -> Published:
    return build(load_spec(spec), str(spec.parent / "out"))


def begin_build(spec: Path, output: str, work: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "recordmill", "build", str(spec), "-o", output, "--work", str(work)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def end(process: subprocess.Popen[str]) -> str:
    """Waits for a build; gives what it printed, which must be a success."""
    printed, _ = process.communicate(timeout=240)
    assert process.returncode in (0, ExitCode.UP_TO_DATE), printed
    return printed


def reported_shards(output: str) -> int:
    return sum("/reports/shard-" in name for name in open_store(output).sizes(".building"))


def assert_published(output: str, local: Published, work: Path) -> None:
    manifest = open_dataset(output).manifest
    assert (manifest.splits, manifest.rows) == (local.manifest.splits, local.manifest.rows)
    assert verify(output).is_whole
    assert open_store(output).children("") == ["LATEST", "history.jsonl", "versions"]
    assert open_store(output).children("versions") == [manifest.version]
    assert not list(work.rglob("run-*"))


@pytest.mark.nightly
@STORES
def test_a_killed_build_goes_on(
    start: Callable[[], AbstractContextManager[str]], spec: Path, in_a_folder: Published, tmp_path: Path
) -> None:
    with start() as url:
        output = f"{url}/out"
        first = begin_build(spec, output, tmp_path / "work")
        wait_until(lambda: reported_shards(output) > 2)
        first.kill()
        first.communicate()
        with raises(DatasetError, f"`recordmill build dataset.yaml --output {output}`"):
            open_dataset(output)
        kept = set(open_store(output).sizes("versions"))
        printed = end(begin_build(spec, output, tmp_path / "elsewhere"))  # as on another machine
        assert re.search(r"\b([3-9]|[1-3]\d) of 40 shards", printed)
        assert {name for name in kept if ".tfrecord-" in name} & set(open_store(output).sizes("versions"))
        assert_published(output, in_a_folder, tmp_path / "elsewhere")


@pytest.mark.nightly
@STORES
def test_two_builds_at_once(
    start: Callable[[], AbstractContextManager[str]], spec: Path, in_a_folder: Published, tmp_path: Path
) -> None:
    with start() as url:
        output = f"{url}/out"
        builds = [begin_build(spec, output, tmp_path / "work") for _ in range(2)]
        printed = sorted(map(end, builds), key=len)
        assert any("same build" in text or "changed" in text for text in printed)
        assert_published(output, in_a_folder, tmp_path / "work")


@pytest.mark.nightly
@pytest.mark.parametrize("jobs", ["shards", "chunks"])
def test_a_bucket_that_is_away_for_25_seconds(jobs: str, spec: Path, in_a_folder: Published, tmp_path: Path) -> None:
    """Either the clients' patience lasts, or the same command goes on; nothing is left of either."""
    with emulators.s3_by_a_road() as (url, road):
        output = f"{url}/out"
        first = begin_build(spec, output, tmp_path / "work")
        is_at = lambda: any("/reports/" in name for name in open_store(output).sizes(".building"))  # noqa: E731
        wait_until(is_at if jobs == "chunks" else lambda: reported_shards(output) > 2)
        road.close()
        time.sleep(25)
        road.open()
        printed = first.communicate()[0]
        if first.returncode:
            assert "Traceback" not in printed
            assert "same command" in printed, printed
            end(begin_build(spec, output, tmp_path / "work"))
        assert_published(output, in_a_folder, tmp_path / "work")


@pytest.mark.nightly
def test_what_is_left_on_this_machine_is_named_and_goes_with_the_next_build(
    spec: Path, in_a_folder: Published, tmp_path: Path
) -> None:
    with emulators.s3() as url:
        output, work = f"{url}/out", tmp_path / "work"
        first = begin_build(spec, output, work)
        wait_until(lambda: reported_shards(output) > 2)
        first.terminate()
        printed = first.communicate()[0]
        assert first.returncode == 143
        (run,) = work.rglob("run-*")
        prune = f"`recordmill versions prune {output} --work {work}` removes it"
        assert f"{prune}, with rows on their way in {run}" in printed
        end(begin_build(spec, output, tmp_path / "elsewhere"))
        assert run.exists()
        again = begin_build(spec, output, work)
        again.communicate()
        assert (again.returncode, run.exists()) == (ExitCode.UP_TO_DATE, False)
        assert_published(output, in_a_folder, work)


class OnTheDriverOnly(LocalStore):
    """A folder that workers do not have."""

    def __reduce__(self) -> Any:
        return LocalStore, ("/nowhere",)


@pytest.mark.parametrize("which", ["workspace", "shards"])
def test_workers_that_do_not_reach_the_folder_are_refused_before_the_job(tmp_path: Path, which: str) -> None:
    folders = {name: tmp_path / name for name in ("workspace", "shards")}
    for folder in folders.values():
        folder.mkdir()
    planned: Any = SimpleNamespace(**{name: LocalStore(str(folder)) for name, folder in folders.items()})
    with make_runner(RunOptions()) as runner:
        probe_workers(planned, runner)
        setattr(planned, which, OnTheDriverOnly(str(folders[which])))
        with raises(UnreachableError, "workers", folders[which]):
            probe_workers(planned, runner)
    assert not list(tmp_path.rglob("worker"))
