"""The end of a build: its line in the history, and its metrics; neither fails a build."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill import RunOptions, build, parse_spec
from recordmill.pipeline.build.journal import Journal, to_openmetrics, write_metrics
from recordmill.pipeline.build.run_options import Listener, Stage
from recordmill.pipeline.dataset.manifest import Span
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.versions.history import public_message, read_history, within
from recordmill.pipeline.versions.publishing import Published
from tests.messages import assert_names, raises
from tests.test_publishing import manifest, publish

CANARY = "C4nary"
SPEC = """
name: d
source: {format: jsonl, path: rows.jsonl}
key: id
features: {number: {kind: number}}
rejects: {max_share: 0.1}
"""


@pytest.fixture
def output(tmp_path: Path) -> str:
    """An output whose live version is v1."""
    publish(str(tmp_path / "out"), tmp_path, "v1")
    return str(tmp_path / "out")


def journal(output: str, **options: Any) -> Journal:
    return Journal(output, RunOptions(**options))


def test_the_entry_of_a_version(output: str) -> None:
    """Stages that the user waits for are named; other waits belong to the stage that they are in."""
    stages: list[str] = []
    followed = journal(output)
    listener = followed.follow(Listener(on_stage=stages.append), "d")
    for stage in (Stage.LOAD, "waiting for the Flink cluster", Stage.PUBLISH):
        listener.on_stage(stage)
    made = replace(manifest("v2"), rows={"read": 3, "written": 1}, rejects={"by_reason": {"missing": 2}})
    spans = {name: Span("00", {}, 1, 1, "00") for name in "ab"}
    published = Published("out/versions/v2", replace(made, spans=spans), True, built_spans=("b",), kept_spans=("a",))
    assert followed.end(ExitCode.PUBLISHED, published=published) == []
    (entry,) = read_history(output)
    assert stages == [Stage.LOAD, "waiting for the Flink cluster", Stage.PUBLISH]
    assert [*entry["stages"]] == ["plan", "load", "publish"]
    assert entry["seconds"] >= entry["stages"]["plan"] >= 0
    assert (entry["end"], entry["exit_code"], entry["message"]) == ("published", 0, None)
    assert (entry["version"], entry["live_before"], entry["name"]) == ("v2", "v1", "d")
    assert entry["build_key"] == made.build_key
    assert entry["rows"] == {"read": 3, "written": 1}
    assert entry["rejects"] == {"missing": 2}
    assert entry["bytes"] == 7
    assert entry["spans"] == {"built": ["b"], "kept": ["a"]}


@pytest.mark.parametrize(("exit_code", "message", "end"), [
    (1, "no folder 'data'", "failed"),
    (5, "too many rejects", "failed"),
    (143, "stopped: …", "stopped"),
    (0, "a graph of 3 kB", "dry_run"),
])  # fmt: skip
def test_the_entry_of_a_build_without_a_version(output: str, exit_code: int, message: str, end: str) -> None:
    followed = journal(output)
    followed.end(ExitCode(exit_code), message)
    followed.end(ExitCode.PUBLISHED)  # the process may end by a signal while it ends by itself: the first counts
    (entry,) = read_history(output)
    assert (entry["end"], entry["exit_code"], entry["message"]) == (end, exit_code, message)
    assert entry["version"] is None


def test_a_build_that_holds_the_lease_has_its_line(output: str) -> None:
    journal(output).follow(Listener(), "d").on_stage(Stage.PLAN)
    assert [(each["name"], each["end"]) for each in read_history(output)] == [("d", "killed")]  # no lease any more


def test_an_entry_holds_no_secret_and_no_words_of_a_users_function(output: str) -> None:
    for message in (
        f"cannot read s3://k:{CANARY}@b/a?token={CANARY}: no",
        f"`code:words` failed in code.py, line 3: ValueError: {CANARY}\n{CANARY}",
        f"`code` failed: KeyError: {CANARY}",
    ):
        journal(output, beam_options=(f"--password={CANARY}",)).end(ExitCode.ERROR, message)
    assert CANARY not in json.dumps(read_history(output))
    assert public_message("x" * 5000) == "x" * 1000


def test_what_cannot_be_written_is_a_warning(output: str, tmp_path: Path) -> None:
    (Path(output) / "history.jsonl").mkdir()
    followed = journal(output, metrics=str(tmp_path / "away/m.prom"))
    history, metrics = followed.end(ExitCode.ERROR, "no")
    assert_names(history, "history", output, "Is a directory")
    assert_names(metrics, "metrics", "No such file or directory", f"{tmp_path}/away/m.prom")


def test_a_store_that_does_not_answer_is_waited_for_only_so_long() -> None:
    forever = threading.Event()
    assert_names(within(0.01, "the history", forever.wait), "history", "0 seconds")
    forever.set()


def test_metrics_of_a_version_and_of_a_failure(tmp_path: Path) -> None:
    """A file has every figure, also 0, since a push replaces an earlier night's."""
    live = replace(manifest('v"1\\\n'), provenance={"built_at": "2026-11-20T12:00:00Z"})
    entry = {"name": "d", "exit_code": 0, "ended_at": "2026-11-20T12:00:05Z", "stages": {"plan": 0.5},
        "rows": {"read": 3}, "rejects": {"missing_value": 2}, "bytes": 7, "version": "v1",
        "spans": {"built": ["2026-11-20"], "kept": ["2026-11-18", "2026-11-19"]},
        "gate": {"figures": {"psi": {"age (train)": 0.25}}, "breaches": []}}  # fmt: skip
    samples = [line for line in to_openmetrics(entry, live).splitlines() if not line.startswith("#")]
    assert [line for line in samples if not line.endswith(" 0")] == [
        'recordmill_build_ended_timestamp_seconds{dataset="d"} 1795176005',
        'recordmill_build_duration_seconds{dataset="d",stage="plan"} 0.5',
        'recordmill_build_rows{dataset="d",outcome="read"} 3',
        'recordmill_build_rejected_rows{dataset="d",reason="missing_value"} 2',
        'recordmill_build_bytes{dataset="d"} 7',
        'recordmill_build_spans{dataset="d",state="built"} 1',
        'recordmill_build_spans{dataset="d",state="kept"} 2',
        'recordmill_gate_figure{dataset="d",rule="psi",subject="age (train)"} 0.25',
        'recordmill_live_built_timestamp_seconds{dataset="d"} 1795176000',
        'recordmill_live_info{dataset="d",version="v\\"1\\\\\\n"} 1',
    ]
    zeros = {line.partition("{")[0] for line in samples if line.endswith(" 0")}
    assert zeros == {f"recordmill_{name}" for name in ("build_exit_code", "build_duration_seconds", "build_rows",
        "build_rejected_rows", "gate_breaches")}  # fmt: skip
    path = tmp_path / "d.prom"
    path.write_text("old")
    assert write_metrics(str(path), {"name": "d", "exit_code": 75}, str(tmp_path / "out")) is None
    text = path.read_text()
    assert 'recordmill_build_exit_code{dataset="d"} 75\n' in text
    assert ("build_rejected_rows" in text, text.endswith("# EOF\n")) == (False, True), "nothing says that none was"
    assert [each.name for each in tmp_path.iterdir()] == ["d.prom"]


def test_a_failed_build_has_metrics_too(output: str, tmp_path: Path) -> None:
    """Also of a spec that cannot be read, and so names no dataset: the live version does, or else the output."""
    options = RunOptions(spans=("a",), compact=True, metrics=str(tmp_path / "d.prom"))
    for folder, name, version in ((output, "d", ',version="v1"'), (str(tmp_path / "cats"), "cats", None)):
        Journal(folder, options).end(ExitCode.REJECTS, "too many rejects")
        text = (tmp_path / "d.prom").read_text()
        assert f'recordmill_build_exit_code{{dataset="{name}"}} 5\n' in text
        assert ("live_info" in text) == (version is not None)
        assert f'recordmill_live_info{{dataset="{name}"{version}}} 1\n' in text or version is None
    assert read_history(output)[-1]["name"] == "d"
    with raises(UserError, "--span", "--compact"):
        build(parse_spec(SPEC), str(tmp_path / "new"), options)
    assert 'recordmill_build_exit_code{dataset="d"} 1\n' in (tmp_path / "d.prom").read_text()


@pytest.mark.slow
def test_builds_write_their_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = Path("rows.jsonl")
    rows.write_text("".join(json.dumps({"id": str(row), "number": row}) + "\n" for row in range(300)) + "broken\n")
    spec = parse_spec(SPEC)
    published = build(spec, "out", RunOptions(metrics="d.prom"))
    (first,) = read_history("out")
    assert [*first["stages"]] == ["plan", "load", "look", "write", "compare", "serve", "publish"]
    assert first["version"] == published.manifest.version
    assert first["rows"] == {"read": 301, "written": 300, "rejected": 1, "duplicates": 0}
    assert first["rejects"] == {"malformed_row": 1}
    assert 'recordmill_build_rows{dataset="d",outcome="written"} 300\n' in Path("d.prom").read_text()
    build(spec, "out")
    rows.write_text(rows.read_text() + "broken\n" * 200)
    with raises(UserError, "rejected"):
        build(spec, "out")
    ends = [(entry["end"], entry["live_before"], entry["version"]) for entry in read_history("out")]
    name = published.manifest.version
    assert ends == [("published", None, name), ("up_to_date", name, name), ("failed", name, None)]
    failed = read_history("out")[-1]
    assert failed["rows"] == {"read": 501, "written": 300, "rejected": 201}
