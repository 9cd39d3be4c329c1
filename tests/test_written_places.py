"""All that is written is known: who writes, where, and that nothing planted there leads a command elsewhere."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from recordmill.pipeline.cli import commands
from recordmill.pipeline.dataset.manifest import Latest, read_manifest
from recordmill.pipeline.private_folder import PREFIX
from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.files import inventory
from recordmill.pipeline.versions.stores import local
from tests.constants import constants
from tests.opened import snapshot, written
from tests.places import EARLIER, PLACES, WRITERS, place_of, writers
from tests.publish import BREACH
from tests.published import VERSION, write_manifest, write_version
from tests.test_security_writes import KINDS, SECOND, SPEC

ROOT = Path(__file__).parents[1]
ADVICE = "list the function in WRITERS of tests/places.py, and in PLACES what it writes, where links are planted"
COMMANDS = {
    "show": ["../out"],
    "head": ["../out"],
    "preview": ["../out"],
    "report": ["../out"],
    "diff": ["../out", "1", "2"],
    "verify": ["../out"],
    "export": ["../out", "../export/set", "--to", "webdataset"],
    "history": ["../out"],
    "schema": ["-o", "dataset.schema.json"],
    "versions list": ["../out"],
    "versions pin": ["../out", "2"],
    "versions tag": ["../out", "v1", "2"],
    "versions forget": ["../out", "row/3"],
    "versions unpin": ["../out", "2"],
    "versions rollback": ["../out"],
    "versions prune": ["../out", "--keep", "1", "--grace", "0"],
    "versions approve": ["../out"],
    "versions reject": ["../out"],
}
"""Every command with its arguments, in an order in which each finds something to do."""
BUILDING = {"init", "plan", "build", "doctor"}
"""Those that load TensorFlow: a test of their own runs them."""
ADOPTING = {"adopt"}
"""`test_adopted_version` runs it."""
ACTS = [name for name in COMMANDS if name.startswith("versions ")][1:]
NIGHTS = [ACTS[:-2], ["versions approve"], ["versions reject"]]
"""The commands that write into an output, by the copies of an output that they follow each other on."""
UNWATCHED = ("/dev/", "/memfd:", "/proc/", "__pycache__", PREFIX)
"""Parts of paths that are no files, are Python's own, or lie in the private folder of a process."""
TARGETS = ("out", "cwd", "export", "temp")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output of two versions: the second waits for approval, and needs the shards of the first."""
    output = tmp_path_factory.mktemp("good") / "out"
    first = write_version(output, rows=24, spec=SPEC, features=KINDS, sequence=1)
    second, before = first.with_name(SECOND), read_manifest(first)
    (first / "croissant.json").write_text("{}")
    write_manifest(first, before)
    shards = {file for shard in before.shards for file in (shard.file, shard.index)}
    shutil.copytree(first, second, ignore=lambda *_: shards)
    gate = {"live": VERSION, "figures": {}, "breaches": [BREACH]}
    splits = {
        name: replace(split, shards=tuple(replace(shard, version=VERSION) for shard in split.shards))
        for name, split in before.splits.items()
    }
    changes = {"version": SECOND, "build_key": SECOND[-8:] * 8, "sequence": 2, "gate": gate, "splits": splits}
    (second / "dataset.json").write_text(replace(before, **changes, files=inventory(str(second), [])).to_text())
    (output / "LATEST").write_text(Latest(VERSION, 2).to_text())
    return output


@pytest.fixture
def place(tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with what commands may write into, an output among them, and what belongs to a victim."""
    (tmp_path / "victim/folder").mkdir(parents=True)
    (tmp_path / "victim/folder/file").write_text("{}")
    fill(tmp_path, good)
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    with constants(leases, PATIENCE_SECONDS=0.2, POLL_SECONDS=0.01), constants(local, PATIENCE_SECONDS=0.2):
        yield tmp_path


def fill(place: Path, good: Path) -> None:
    """Makes the targets again."""
    for name in TARGETS:
        if name != "cwd":
            shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir(exist_ok=True)
    for path in (place / "cwd").iterdir():
        path.unlink()
    shutil.copytree(good, place / "out", dirs_exist_ok=True)


def run(name: str) -> None:
    with suppress(SystemExit):
        commands.main([*name.split(), *COMMANDS[name]])


def leaves(group: Any, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields the names of the commands of a group, and of those in it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*before, name))
        else:
            yield " ".join((*before, name))


def test_every_function_that_writes_is_known() -> None:
    rooms = [writers(ROOT / room) for room in ("pipeline", "transforms", "recordmill")]
    found = {name: functions for room in rooms for name, functions in room.items()}
    known = {name: {*functions.split()} for name, functions in WRITERS.items()}
    new = {name: functions - known.get(name, set()) for name, functions in found.items()}
    gone = {name: functions - found.get(name, set()) for name, functions in known.items()}
    assert {name: functions for name, functions in new.items() if functions} == {}, ADVICE
    assert {name: functions for name, functions in gone.items() if functions} == {}, "they write no more"


def test_every_command_is_watched() -> None:
    assert {*leaves(typer.main.get_command(commands.app))} == COMMANDS.keys() | BUILDING | ADOPTING


def changed(place: Path, act: Callable[[], object]) -> set[str]:
    """Returns the paths that an act writes, and those below a folder that any process or library changes meanwhile.

    A path below the folder is relative to it.
    """
    before = snapshot(place)
    with written() as paths:
        act()
    after = snapshot(place)
    ours = {path for path in paths if not any(part in path for part in UNWATCHED)}
    seen = {path.removeprefix(f"{place}/") for path in ours} - {str(place)}
    return seen | {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def test_all_that_commands_write_is_known(place: Path, good: Path) -> None:
    seen = set[str]()
    for night in ([name for name in COMMANDS if name not in sum(NIGHTS, [])], *NIGHTS):
        fill(place, good)
        seen |= changed(place, lambda night=night: [run(name) for name in night])
    found = {path: place_of(path) for path in seen - {*TARGETS}}
    assert {path for path, known in found.items() if known is None} == set(), ADVICE
    assert PLACES.keys() - {*found.values()} == set(), "they are written no more"


def folder(path: Path, victim: Path) -> None:
    """Replaces a file's folder by a link to the victim's."""
    path.parent.rename(victim / "moved")
    path.parent.symlink_to(victim / "moved")


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, victim: path.symlink_to(victim / "own"),
    "dangling link": lambda path, victim: path.symlink_to(victim / "new"),
    "hard link": lambda path, victim: os.link(victim / "own", path),
    "pipe": lambda path, victim: os.mkfifo(path),
    "folder": folder,
}


def by_default(*kinds: str) -> list[Any]:
    """The plants for a test that tries some by default, and all at night."""
    return [kind if kind in kinds else pytest.param(kind, marks=pytest.mark.nightly) for kind in PLANTS]


def plant(kind: str, path: Path, victim: Path) -> None:
    """Replaces a file or a folder by a link to the victim's content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind != "folder":
        if path.exists():
            path.rename(victim / "own")
        elif path.name.startswith(".") and path.name != ".lock":
            (victim / "own").mkdir()
        else:
            (victim / "own").write_text("{}")
        os.utime(victim / "own", (1, 1))  # a mark of its use would change it
    if kind == "hard link" and (victim / "own").is_dir():
        kind = "link"
    PLANTS[kind](path, victim)


def check_harmless(place: Path, act: Callable[[], object]) -> None:
    before, names = snapshot(place / "victim"), {*os.listdir(place)}
    act()
    assert snapshot(place / "victim") == before
    assert {*os.listdir(place)} == names


AT_NIGHT = [pytest.param(name, marks=pytest.mark.nightly) for name in EARLIER[1:]]


@pytest.mark.first(24)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", [*filter(None, PLACES.values()), EARLIER[0], *AT_NIGHT])
@pytest.mark.parametrize("kind", by_default("link", "hard link", "pipe", "folder"))
def test_nothing_planted_leads_a_command_elsewhere(
    kind: str, path: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "folder" and Path(path).parent.name in ("out", "cwd"):
        pytest.skip("the user names this folder")
    plant(kind, place / path, place / "victim")
    names = NIGHTS[0] if path.startswith("out") else ["preview", "report", "schema"]
    check_harmless(place, lambda: [run(name) for name in names])
    assert "unexpectedly" not in capfd.readouterr().err
