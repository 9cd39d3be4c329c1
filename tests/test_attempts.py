"""Attempts at a build on a runner whose jobs fail, and `--runner flink` up to the job server, without a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apache_beam import Pipeline
from google.api_core.exceptions import ServiceUnavailable

from recordmill.pipeline.build import build as builds
from recordmill.pipeline.build import make_version
from recordmill.pipeline.build.attempt.attempts import Run
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.beam.runners import make_runner
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.runners.flink_cluster import FlinkOptions
from recordmill.pipeline.build.runners.job import JobFailedError, RunnerError
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.leases import Lease
from recordmill.pipeline.versions.stores.base import OutputError
from tests.fake_flink import fake_flink
from tests.messages import assert_names, raises

SPEC = """\
name: tries
source: {{format: jsonl, path: {}/rows.jsonl}}
features: {{price: {{kind: number, normalize: none}}}}
"""
EMBEDDED = ("--job_endpoint=embed", "--environment_type=LOOPBACK")
pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"price": {price}}}\n' for price in range(40)))
    return tmp_path


class FailingRunner(Runner):
    """The local runner, whose first jobs fail: before they begin, when they are done, or by an error of a worker."""

    def __init__(self, before: int = 0, after: int = 0, left: int = 0) -> None:
        self.__dict__ = vars(make_runner()) | {"attempts": 3}
        self.before, self.after, self.left, self.keys = before, after, left, list[str]()

    def begin(self, build_key: str, *rest: object) -> None:
        self.keys.append(build_key)

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[Pipeline]:
        if self.before:
            self.before -= 1
            raise JobFailedError("a worker process died")
        with super().pipeline(planned) as pipeline:
            yield pipeline
            if self.left:
                self.left -= 1
                with leaving_error(planned.workspace):
                    raise OutputError("the store answers 503") from ServiceUnavailable("busy")
        if self.after:
            self.after -= 1
            raise JobFailedError("the cluster went away")


def build(folder: Path, monkeypatch: pytest.MonkeyPatch, runner: Runner, more: str = "") -> list[str]:
    notes, spec = list[str](), parse_spec(f"{SPEC.format(folder)}{more}")
    monkeypatch.setattr(make_version, "make_runner", lambda options: runner)
    published = builds.build(spec, str(folder / "out"), RunOptions(), Listener(on_note=notes.append))
    assert published.manifest.rows["written"] == 40
    return notes


def test_a_failed_job_is_tried_again_with_what_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = FailingRunner(before=1, after=1)
    notes = build(folder, monkeypatch, runner)
    assert_names(notes[0], "attempt 1 of 3", "worker process died")
    assert_names(notes[1], "attempt 2 of 3", "cluster went away")
    assert_names(notes[2], "earlier build")
    assert len(set(runner.keys)) == 1
    assert len(runner.keys) == 3


class FailingAtTheEnd(FailingRunner):
    """The local runner, whose first job with finished shards fails."""

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[Pipeline]:
        with super().pipeline(planned) as pipeline:
            yield pipeline
        if self.keys and len(self.keys) == 1 and any("shard-" in name for name in planned.workspace.names("reports")):
            raise JobFailedError("the cluster went away")


def test_packed_rows_of_finished_shards_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "features: {{text: {{kind: text, column: price, tokenizer: bytes, pack: 64}}}}"
    (folder / "rows.jsonl").write_text("".join(f'{{"price": "{"x" * row}"}}\n' for row in range(40)))
    monkeypatch.setattr(f"{__name__}.SPEC", "\n".join([*SPEC.splitlines()[:2], text, ""]))
    notes = build(folder, monkeypatch, FailingAtTheEnd())
    assert_names(notes[0], "attempt 1 of 3", "cluster went away")
    assert_names(notes[1], "earlier build", "shards")
    assert verify(str(folder / "out")).findings.problems == []


def test_a_store_that_is_away_for_a_worker_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_names(build(folder, monkeypatch, FailingRunner(left=1))[0], "attempt 1 of 3", "store answers 503")


def test_a_network_that_is_down_costs_no_attempt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, answers = Lease.check, iter([OutputError("the output cannot be read: timed out")])

    def look(*_: object) -> bool:
        raise OutputError("the output cannot be read: timed out")

    def check_later(lease: Lease) -> None:
        for error in answers:
            raise error
        check(lease)

    monkeypatch.setattr(Run, "is_there", look)
    monkeypatch.setattr(Lease, "check", check_later)
    assert_names(build(folder, monkeypatch, FailingRunner(before=1))[0], "attempt 1 of 3", "worker process died")
    assert list(answers) == []


def test_attempts_have_an_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = FailingRunner(before=100)
    with raises(JobFailedError, "worker process died"):
        build(folder, monkeypatch, runner)
    assert len(runner.keys) == 3


def flink_build(folder: Path, *beam_options: str) -> list[str]:
    """Builds by `--runner flink` on a cluster of HTTP alone, with Beam's own runner as its job server."""
    notes, spec, output = list[str](), parse_spec(SPEC.format(folder)), str(folder / "out")
    with fake_flink() as flink:
        beam = (*EMBEDDED, *beam_options)
        options = RunOptions("flink", beam_options=beam, flink=FlinkOptions(flink.url, workers="/opt/worker"))
        old = flink.run(f"recordmill-{make_plan(spec, BeamFiles()).build_key[:16]}-1")
        builds.build(spec, output, options, Listener(on_note=notes.append))
        assert flink.state(old) == "CANCELED"
    return notes


def test_a_build_on_flink_cancels_the_job_of_a_dead_driver(folder: Path) -> None:
    notes = flink_build(folder, "--parallelism=2")
    assert any("cancelled" in note and "0000" in note for note in notes)


def test_options_that_nobody_knows_are_refused(folder: Path) -> None:
    with raises(RunnerError, "--paralelism", "did you mean --parallelism"):
        flink_build(folder, "--paralelism=2")
