"""A dataset does not depend on its folder: a spec copied with its data and output to another folder goes on."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.inputs.input_table import INPUTS_FILE
from recordmill.pipeline.build.plan.keys import listing_key
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan
from recordmill.pipeline.build.publish.same_version import GRAPHS
from recordmill.pipeline.build.run_options import Listener, RunOptions, Stage
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import load_spec
from recordmill.pipeline.verify.parity import with_parity
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.publishing import GateBreachedError, Published
from tests.opened import opened
from tests.pictures import photo, saved

DAYS = tuple(f"2026-11-1{day}" for day in range(6))
SPECS = {
    "days": "{format: csv, path: 'data/{YYYY}-{MM}-{DD}/*.csv'}\ngate: {min_rows: 5}\nfeatures: {n: {kind: number}}",
    "folders of days": "{format: csv, path: 'data/{span}'}\nfeatures: {n: {kind: number}}",
    "a folder": "{format: jsonl, path: rows/}\nfeatures: {n: {kind: number}}",
    "files that are added": "{format: jsonl, path: './rows/*.jsonl'}\nanalysis: frozen\nfeatures: {n: {kind: number}}",
    "beside the spec's folder": "{format: jsonl, path: ../shared/}\nfeatures: {n: {kind: number}}",
    "images": "{format: image_folder, path: .}\nfeatures: {image: {kind: image, size: 4}}",
    "named images": "{format: jsonl, path: named.jsonl, images: in}\nfeatures: {image: {kind: image, size: 4}}",
    "words": "{format: jsonl, path: rows}\nfeatures: {t: {kind: text, vocabulary: words.txt}}",
    "classes": "{format: jsonl, path: rows}\nfeatures: {t: {kind: category, classes_file: words.txt}}",
    "code": "{format: python, rows: 'own_rows:rows', inputs: [rows/*, ../shared/*]}\nfeatures: {n: {kind: number}}",
}
CODE = "def rows():\n    return [{'n': n} for n in range(20)]\n"


def write(folder: Path, source: str) -> Path:
    """Writes a spec and data of every format, in `folder/spec`, and beside it."""
    texts = {f"data/{day}/rows.csv": "n\n" + "".join(f"{day[-1]}{n}\n" for n in range(20)) for day in DAYS}
    rows = "".join(f'{{"n": {n}, "t": "b"}}\n' for n in range(20))
    texts |= {"rows/1.jsonl": rows, "../shared/1.jsonl": rows, "words.txt": "a\nb\n", "own_rows.py": CODE}
    texts |= {"named.jsonl": "".join(f'{{"image": "{n}.png"}}\n' for n in range(4))}
    texts |= {"dataset.yaml": f"name: d\nsource: {source}\nrejects: {{max_share: 1}}\n"}
    for name, text in texts.items():
        (folder / "spec" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "spec" / name).write_text(text)
    (folder / "spec/in").mkdir()
    for n in range(4):
        (folder / f"spec/in/{n}.png").write_bytes(saved(photo(n), "PNG"))
    return folder / "spec"


def plan_of(spec: str | Path) -> BuildPlan:
    return make_plan(load_spec(str(spec)), LocalFiles())


def keys_of(spec: str | Path) -> list[object]:
    """All that a later build compares."""
    plan, parsed, files = plan_of(spec), load_spec(str(spec)), LocalFiles()
    spans = {name: span.key for name, span in plan.spans.built.items()}
    listed = listing_key(parsed, files)
    inputs = [[file.path for file in group.files] for group in plan.inputs]
    return [plan.build_key, spans, plan.keys.provenance, listed, inputs]


@pytest.mark.parametrize("source", SPECS.values(), ids=SPECS)
def test_no_key_knows_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    folder = write(tmp_path / "one", source)
    shutil.copytree(tmp_path / "one", tmp_path / "other [1]")
    (tmp_path / "link").symlink_to(tmp_path / "one", target_is_directory=True)
    keys = keys_of(folder / "dataset.yaml")
    assert keys_of(tmp_path / "other [1]/spec/dataset.yaml") == keys
    assert keys_of(tmp_path / "link/spec/dataset.yaml") == keys
    monkeypatch.chdir(folder)
    assert keys_of("dataset.yaml") == keys
    monkeypatch.chdir(tmp_path / "other [1]")
    assert keys_of("../one/spec/dataset.yaml") == keys


@pytest.mark.parametrize("given", ["path: ONE/rows", "rows: 'own_rows:rows', inputs: ['ONE/rows/*']"])
def test_an_absolute_path_stays_as_given(tmp_path: Path, given: str) -> None:
    form = "jsonl" if given.startswith("path") else "python"
    given = given.replace("ONE", str(tmp_path / "one/spec"))
    folder = write(tmp_path / "one", f"{{format: {form}, {given}}}\nfeatures: {{n: {{kind: number}}}}")
    shutil.copytree(folder, tmp_path / "other")
    assert keys_of(folder / "dataset.yaml") == keys_of(tmp_path / "other/dataset.yaml")


def build_in(folder: Path, listener: Listener = Listener()) -> Published:  # noqa: B008 - frozen
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"), RunOptions(), listener)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("days"), SPECS["days"])
    assert build_in(folder).is_new
    return folder


def as_checked_out(source: str, target: str) -> None:
    """Copies a file as a checkout does: its time is that of the copy."""
    shutil.copyfile(source, target)
    os.utime(target, (2e9, 2e9))


@pytest.mark.slow
@pytest.mark.parametrize("copy", [as_checked_out, pytest.param(shutil.copy2, marks=pytest.mark.nightly)])
def test_a_copy_builds_and_judges_what_changed_alone(days: Path, tmp_path: Path, copy: Callable[..., object]) -> None:
    folder = shutil.copytree(days, tmp_path / "spec", copy_function=copy)
    found = build_in(folder)
    assert (found.exit_code, found.manifest) == (ExitCode.UP_TO_DATE, build_in(days).manifest)
    with (folder / f"data/{DAYS[0]}/rows.csv").open("a") as file:
        file.write("7\n")
    night = build_in(folder)
    assert (night.built_spans, night.kept_spans) == (DAYS[:1], DAYS[1:])
    report = with_parity(verify(night.folder), load_spec(str(folder / "dataset.yaml")), rows=8)
    assert (report.findings.problems, report.findings.unchecked) == ([], [])
    (folder / "data/2026-11-16").mkdir()
    (folder / "data/2026-11-16/rows.csv").write_text("n\n" + "1\n" * 7)
    with pytest.raises(GateBreachedError, match="rows_short.*2026-11-16"):
        build_in(folder)


def contents(version: Path) -> dict[str, bytes]:
    """The files of a version but those of inodes, and graphs, which TensorFlow writes otherwise in each process."""
    others = {*GRAPHS, MANIFEST_FILE, INPUTS_FILE}
    files = (path for path in version.rglob("*") if path.is_file() and path.name not in others)
    return {str(path.relative_to(version)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_two_folders_hold_the_same_bytes(days: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(days, tmp_path / "spec", ignore=shutil.ignore_patterns("out"))
    here, there = build_in(days), build_in(folder)
    assert (there.is_new, there.manifest.build_key) == (True, here.manifest.build_key)
    assert contents(Path(there.folder)) == contents(Path(here.folder))
    assert there.manifest.digest == here.manifest.digest
    known, made = (json.loads(Path(each.folder, MANIFEST_FILE).read_bytes()) for each in (here, there))
    assert {name for name in known if known[name] != made[name]} <= {"version", "files", "provenance"}
    assert known["provenance"] | {"built_at": ""} == made["provenance"] | {"built_at": ""}


class _KilledError(Exception):
    """The build is killed."""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_build_that_was_killed_goes_on_where_it_is_moved_to(tmp_path: Path) -> None:
    """Keeps all shards and opens 0 images, as their digests are cached; a copy's files are digested again."""
    folder, notes = write(tmp_path / "one", SPECS["named images"]), list[str]()

    def kill(stage: str) -> None:
        if stage == Stage.COMPARE:
            raise _KilledError

    with pytest.raises(_KilledError):
        build_in(folder, Listener(on_stage=kill))
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert plan_of(copy / "dataset.yaml").pieces != plan_of(folder / "dataset.yaml").pieces
    other = folder.rename(tmp_path / "other")
    with opened() as files:
        assert build_in(other, Listener(on_note=notes.append)).is_new
    assert any("2 of 2 shards" in note for note in notes)
    assert not [file for file in files if file.endswith(".png")]
