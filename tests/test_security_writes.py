"""No command makes, changes or removes a file outside its target, whatever a dataset from somebody else says."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.cli import commands
from recordmill.pipeline.dataset.manifest import DatasetError, Latest, Manifest, read_manifest
from recordmill.pipeline.dataset.paths import path_within, replacing
from recordmill.pipeline.versions.base import Forgotten
from recordmill.pipeline.versions.listing import list_versions
from recordmill.pipeline.versions.stores.local import LocalStore
from tests.messages import raises
from tests.opened import written
from tests.publish import BREACH
from tests.published import FEATURES, VERSION, write_manifest, write_version

SECOND = "20261121T120000Z-77d0a4b1"
KINDS = {name: about for name, about in FEATURES.items() if name != "note"}  # its bytes are no text to export
OPTIONS = {name: {"kind": about["kind"]} for name, about in KINDS.items()}
SPEC = {"splits": {"train": 60, "test": 40}, "split_by": None, "features": OPTIONS, "source": [{"split": None}]}
NIGHTS = [
    [
        ["report", "out", "--output", "cwd/report.html"],
        ["export", "out", "export/b", "--to", "parquet"],
        ["export", "out", "export/c", "--to", "webdataset"],
        ["versions", "forget", "out", "row/3"],
        ["versions", "unpin", "out", "2"],
        ["versions", "rollback", "out"],
        ["versions", "prune", "out", "--keep", "1", "--grace", "0"],
    ],
    [["versions", "approve", "out"], ["versions", "rollback", "out"]],
    [["versions", "reject", "out"], ["versions", "prune", "out", "--keep", "1", "--grace", "0", "--purge"]],
]
"""Commands that follow each other on one output."""
TARGETS = ("out", "cwd", "export", "temp")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output of two versions, one of which waits for approval."""
    output = tmp_path_factory.mktemp("good") / "out"
    first = write_version(output, rows=24, spec=SPEC, features=KINDS, sequence=1)
    second = first.with_name(SECOND)
    shutil.copytree(first, second)
    gate = {"live": VERSION, "figures": {}, "breaches": [BREACH]}
    names = {"version": SECOND, "build_key": SECOND[-8:] * 8}
    write_manifest(second, replace(read_manifest(first), sequence=2, gate=gate, **names))
    (output / "LATEST").write_text(Latest(VERSION, 2, pinned=(SECOND,)).to_text())
    return output


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of folders: a target of each command, the temporary files, and what belongs to a victim."""
    for name in (*TARGETS, "victim/outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "victim/outside/dataset.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    return tmp_path


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Gives the way to each value of a JSON document, of a list's items to the first alone."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def tampered(value: Any, path: tuple[Any, ...], hostile: str) -> Iterator[Any]:
    """Gives the document with a value replaced, and with its key, if it has one."""
    for rename in (False, True):
        copy = json.loads(json.dumps(value))
        parent = copy
        for key in path[:-1]:
            parent = parent[key]
        if not rename:
            parent[path[-1]] = hostile
        elif isinstance(path[-1], str):
            parent[hostile] = parent.pop(path[-1])
        yield copy


def paths_of(place: Path, good: Path, path: str, content: str) -> set[str]:
    """Runs all commands on copies of the output with one file changed; gives the real paths that they wrote."""
    paths = set[str]()
    for night in NIGHTS:
        for name in TARGETS:
            shutil.rmtree(place / name, ignore_errors=True)
            (place / name).mkdir()
        shutil.copytree(good, place / "out", dirs_exist_ok=True)
        (place / "out" / path).write_text(content)
        with written() as new:
            for arguments in night:
                with suppress(SystemExit):
                    commands.main(arguments)
        paths |= {os.path.join(os.path.realpath(os.path.dirname(each)), os.path.basename(each)) for each in new}
    return paths


def touched(place: Path, good: Path, path: str, content: str) -> set[str]:
    """Gives the paths that the commands wrote outside of all targets."""
    ours = tuple(f"{place}/{name}" for name in TARGETS)
    return {
        each
        for each in paths_of(place, good, path, content)
        if each.startswith(str(place)) and not each.startswith(ours)
    }


FILES = {
    "dataset.json": f"versions/{VERSION}/dataset.json",
    "held back": f"versions/{SECOND}/dataset.json",
    "LATEST": "LATEST",
    "forgotten.json": "forgotten.json",
}
FORGOTTEN = Forgotten({"0" * 48: "2026-11-20T12:00:00Z"}).to_text()


@pytest.mark.first(2)
@pytest.mark.parametrize("step", [80, pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("file", FILES)
def test_no_value_leads_a_command_out_of_its_target(
    file: str, step: int, place: Path, good: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Tries a value of eighty by day, and of eight by night: others each night."""
    first = date.today().toordinal() % step if step == 8 else 0
    path = FILES[file]
    content = json.loads((good / path).read_text() if (good / path).exists() else FORGOTTEN)
    hostile = [f"{'../' * up}victim/outside" for up in (1, 3, 5)] + [str(place / "victim/outside")]
    before = sorted(place.joinpath("victim").rglob("*"))
    for number, way in enumerate(places(content)):
        if number % step == first:
            for bad in tampered(content, way, hostile[number % len(hostile)]):
                assert not touched(place, good, path, json.dumps(bad))
                assert "unexpectedly" not in capfd.readouterr().err
    assert sorted(place.joinpath("victim").rglob("*")) == before
    assert (place / "victim/outside/dataset.json").read_text() == "{}"


NAMES = {
    "the dataset": lambda manifest, name: manifest.update(name=name),
    "a split": lambda manifest, name: manifest["splits"].update({name: manifest["splits"].pop("train")}),
    "a feature": lambda manifest, name: manifest["features"].update({name: manifest["features"].pop("text")}),
    "a version": lambda manifest, name: manifest.update(version=name),
    "a span": lambda manifest, name: manifest.update(spans={name: SPAN}),
    "a shard's span": lambda manifest, name: manifest["splits"]["train"]["shards"][0].update(span=name),
}
OF_FOLDERS = {"a version", "a span", "a shard's span"}
SPAN = {"key": "00" * 32, "rows": {}, "files": 0, "bytes": 0, "inputs_sha256": "00" * 32}


@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("name", ["../../victim/outside", "/victim", "a/b", "..", "", "x" * 101, "a\\b", "a\x1b[2J"])
def test_a_name_that_becomes_a_path_is_checked_where_a_manifest_is_read(what: str, name: str, good: Path) -> None:
    manifest = json.loads((good / FILES["dataset.json"]).read_text())
    assert Manifest.from_json(manifest).version == VERSION
    NAMES[what](manifest, name)
    with raises(DatasetError, "plain characters" if what in OF_FOLDERS else "letters, digits and underscores"):
        Manifest.from_json(manifest)


@pytest.mark.first(3)
@pytest.mark.parametrize("what", NAMES)
def test_no_name_leads_a_command_out_of_its_target(what: str, place: Path, good: Path) -> None:
    manifest = json.loads((good / FILES["dataset.json"]).read_text())
    for up in (3, 5):  # from an export, and from a version that `forget` assembles
        tampered_with = json.loads(json.dumps(manifest))
        NAMES[what](tampered_with, f"{'../' * up}victim/outside/x")
        assert not touched(place, good, FILES["dataset.json"], json.dumps(tampered_with))
    assert [path.name for path in (place / "victim/outside").iterdir()] == ["dataset.json"]


def test_two_versions_are_never_one(place: Path, good: Path) -> None:
    """A manifest that takes the name of another version would let a prune of it remove the other."""
    shutil.copytree(good, place / "out", dirs_exist_ok=True)
    path = place / "out" / FILES["held back"]
    path.write_text(path.read_text().replace(SECOND, VERSION))
    assert [version.manifest.version for version in list_versions(str(place / "out"))] == [VERSION]


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "link/x", "~/x"])
def test_whatever_is_written_stays_in_its_folder(path: str, place: Path) -> None:
    (place / "out/link").symlink_to(place / "victim")
    store = LocalStore(str(place / "out"))
    acts: list[Callable[[], object]] = [
        lambda: path_within(place / "out", path),
        lambda: store.write_if(path, b"", None),
        lambda: store.delete(path),
        lambda: store.remove(path, "dataset.json"),
        lambda: store.reveal(str(place / "temp"), path, "dataset.json", b""),
        lambda: LocalStore(str(place / "out")).write(path, b""),
    ]
    for act in acts:
        with raises(DatasetError, "leaves", "folder"):
            act()


@pytest.mark.parametrize("device", ["pipe", "link to a device"])
def test_no_file_takes_the_place_of_a_device(device: str, place: Path) -> None:
    """Such as `/dev/stdout`, which root could replace."""
    path = place / "cwd/stdout"
    os.mkfifo(path) if device == "pipe" else path.symlink_to("/dev/null")
    with raises(OSError, path, "pipe"), replacing(path) as file:
        file.write(b"")
    assert [each.name for each in (place / "cwd").iterdir()] == ["stdout"]
    assert not path.is_file()


def test_a_link_in_an_output_is_removed_and_not_what_it_leads_to(place: Path) -> None:
    (place / "out/versions").mkdir()
    (place / "out/versions/old").symlink_to(place / "victim/outside")
    LocalStore(str(place / "out")).remove("versions/old", "dataset.json")
    assert [path.name for path in (place / "out").rglob("*")] == ["versions"]
    assert (place / "victim/outside/dataset.json").exists()


def test_no_version_is_moved_through_a_link(place: Path) -> None:
    (place / "out/versions/old").mkdir(parents=True)
    (place / "out/.removing").symlink_to(place / "victim")
    with raises(DatasetError, place / "out/.removing", "link"):
        LocalStore(str(place / "out")).remove("versions/old", "dataset.json")
    assert (place / "out/versions/old").is_dir()


def test_nothing_is_swept_through_a_link(place: Path) -> None:
    (place / f"victim/outside/dataset.json.{'0a' * 16}").write_text("")
    (place / "out/versions").symlink_to(place / "victim")
    assert LocalStore(str(place / "out")).strays(remove=True) == {}
    assert (place / f"victim/outside/dataset.json.{'0a' * 16}").exists()


def test_all_that_is_written_is_seen(place: Path, good: Path) -> None:
    """Proves that the tests above watch: the commands write, in their targets."""
    seen = " ".join(paths_of(place, good, "forgotten.json", Forgotten().to_text()))
    assert all(name in seen for name in ("LATEST", "report.html", ".jsonl", ".tar", "forgotten.json", ".removing"))
