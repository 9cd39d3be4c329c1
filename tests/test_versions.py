"""`versions`, `rollback`, `pin`, `prune`, and who holds a version: by numbers, and never what somebody needs."""

import math
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recordmill import open_dataset
from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.dataset.manifest import DatasetError, Latest, read_latest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions import build_folders, leases, publishing
from recordmill.pipeline.versions.acts import pin, rollback, tag, unpin
from recordmill.pipeline.versions.base import compare_and_swap
from recordmill.pipeline.versions.leases import BUILD, hold
from recordmill.pipeline.versions.listing import choose, find, list_versions, seconds_of
from recordmill.pipeline.versions.prune import _Pruning, prune, sweep
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store
from tests import emulators, hand_made
from tests.messages import assert_names, raises
from tests.test_leases import foreign, put
from tests.test_publishing import KEY, STORES, publish

pytestmark = pytest.mark.usefixtures("short_patience")

DAY = 24 * 3600.0
NAMES = ["20261101T000000Z-aaaa0000", "20271101T000000Z-bbbb0000", "20261102T000000Z-cccc0000"]


@pytest.fixture(params=emulators.ONE_STORE)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Three versions: the second published by a clock a year ahead, the third live."""
    with STORES[request.param](tmp_path) as url:
        for number, name in enumerate(NAMES):
            publish(url, tmp_path, name, f"{number}" * 64)
        yield url


@pytest.fixture
def local(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        publish(str(tmp_path / "out"), tmp_path, name, f"{number}" * 64)
    shutil.rmtree(tmp_path / "assembled")
    return tmp_path / "out"


def live(output: str | Path) -> Latest:
    return read_latest(open_location(str(output)))


def there(output: str | Path) -> list[str]:
    return open_store(str(output)).children("versions")


def run(*arguments: str | Path) -> None:
    app([str(one) for one in arguments], standalone_mode=False)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (NAMES[1], 1),
        ("2", 1),
        ("#3", 2),
        ("20261101", 0),
        ("bbbb0000", 1),
        ("live", 2),
        ("-1", 1),
        ("-2", 0),
        ("-3", ("3 versions", "20261102T000000Z-cccc0000")),
        ("0000", ("'0000'", *NAMES, "give more")),
        ("2026", ("'2026'", f"{NAMES[0]}, {NAMES[2]}", "give more")),
        ("4", ("version '4'", f"{NAMES[0]}, 2027")),
        ("", ("version ''", *NAMES)),
        ("20261101T000000Z-aaaa0001", ("did you mean 20261101T000000Z-aaaa0000?",)),
        ("../v1", ("version '../v1'", *NAMES)),
    ],
)
def test_which_version_is_meant(local: Path, wanted: str, found: int | tuple[str, ...]) -> None:
    if isinstance(found, int):
        assert find(str(local), wanted).version == NAMES[found]
    else:
        with raises(DatasetError, *found):
            find(str(local), wanted)


@pytest.mark.parametrize("act", ["pin", "unpin", "rollback"])
def test_minus_one_is_a_version_and_no_option(local: Path, capsys: pytest.CaptureFixture[str], act: str) -> None:
    run("versions", act, local, "-1", "--reason", "it is good")
    assert capsys.readouterr().out.startswith(NAMES[1])


def test_versions_are_listed_by_their_numbers(output: str) -> None:
    pin(output, "1")
    with hold(open_store(output), f"{NAMES[1]}+reader"):
        listed = list_versions(output)
    assert [(one.manifest.sequence, one.manifest.version) for one in listed] == list(enumerate(NAMES, start=1))
    assert [one.is_live for one in listed] == [False, False, True]
    assert [one.is_pinned for one in listed] == [True, False, False]
    assert [len(one.held_by) for one in listed] == [0, 1, 0]
    assert [bool(one.retired) for one in listed] == [True, True, False]


def test_rollback_goes_back_one_at_a_time_by_numbers(output: str) -> None:
    moves = [(now.version, before) for now, before in (rollback(output), rollback(output))]
    assert moves == [(NAMES[1], NAMES[2]), (NAMES[0], NAMES[1])]
    with raises(DatasetError, output, "no version before", NAMES[0]):
        rollback(output)
    assert (live(output).version, live(output).sequence) == (NAMES[0], 5)
    assert set(live(output).retired) == {NAMES[1], NAMES[2]}
    assert rollback(output, "cccc0000")[0].version == NAMES[2]
    assert rollback(output, "3")[1] == NAMES[2]  # nothing to do
    assert live(output).sequence == 6


def test_what_is_published_after_a_rollback_is_the_newest(output: str, tmp_path: Path) -> None:
    rollback(output, "1")
    assert publish(output, tmp_path, "20200101T000000Z-dddd0000", "d" * 64).sequence == 5
    assert rollback(output)[0].version == NAMES[2]


def test_a_broken_pointer_is_mended(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (local / "LATEST").write_text("{broken")
    for command in (list_versions, lambda output: pin(output, "1"), lambda output: prune(output, 1)):
        with raises(OutputError, "LATEST", f"`recordmill versions rollback {local} VERSION`"):
            command(str(local))
    assert find(str(local), "#2").version == NAMES[1]  # neither a tag nor relative to the live one
    with raises(DatasetError, local, "no live version", NAMES[2]):
        rollback(str(local))
    run("versions", "rollback", local, "#2")
    assert_names(capsys.readouterr().out.replace("\n", " "), "held back", "LATEST", "pins")
    assert (live(local).version, live(local).sequence) == (NAMES[1], 4)
    assert [version.is_held_back for version in list_versions(str(local))] == [False, False, True]


def test_pins(output: str) -> None:
    for wanted in ("2", "bbbb0000", "1"):
        pin(output, wanted)
    assert live(output).pinned == (NAMES[0], NAMES[1])
    assert unpin(output, "2") == (find(output, "2"), True)
    assert unpin(output, "3") == (find(output, "3"), False)
    assert live(output).pinned == (NAMES[0],)
    assert live(output).sequence == 3
    (kept,) = prune(output, keep=1, grace_seconds=0).kept.items()
    assert_names(kept, NAMES[0], "pinned")
    assert there(output) == [NAMES[0], NAMES[2]]


def test_a_missing_number_is_no_part_of_a_name(local: Path, tmp_path: Path) -> None:
    publish(str(local), tmp_path, name := "20281101T000000Z-dddd0007", "d" * 64)
    for wanted in (7, "7", "007", "028"):
        with raises(DatasetError, f"no version '{wanted}'"):
            open_dataset(local, wanted)
    assert open_dataset(local, "0007").version == open_dataset(local, "2028").version == name


def test_a_tag_finds_its_version_and_keeps_it(output: str) -> None:
    assert tag(output, "v1", "1").version == NAMES[0]
    for wanted in ("v1", 1):
        assert find(output, str(wanted)).version == open_dataset(output, wanted).version == NAMES[0]
    assert [version.tags for version in list_versions(output)] == [("v1",), (), ()]
    for name, facts in {
        "v1": (NAMES[0], "unpin"),
        "live": ("reserved",),
        "held-back": ("reserved",),
        "7": ("letter",),
    }.items():
        with raises(OutputError, f"'{name}'", *facts):
            tag(output, name)
    assert_names(prune(output, keep=1, grace_seconds=0).kept[NAMES[0]], "pinned")
    assert unpin(output, "v1")[1]
    assert tag(output, "v1").version == NAMES[2]


def test_where_nothing_is_published(tmp_path: Path) -> None:
    assert list_versions(str(tmp_path)) == []
    assert prune(str(tmp_path), keep=1).removed == {}
    with raises(OutputError, tmp_path, f"recordmill versions rollback {tmp_path}"):
        pin(str(tmp_path), "1")
    with raises(DatasetError, tmp_path, "no live version"):
        rollback(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_datasets_lists_them(local: Path) -> None:
    with raises(DatasetError, local.parent, f"the datasets {local.name}:", local):
        open_dataset(local.parent)


@pytest.mark.parametrize("name", ["local", pytest.param("s3", marks=pytest.mark.slow)])
def test_where_nothing_is(tmp_path: Path, name: str) -> None:
    with STORES[name](tmp_path) as output:
        for command in (list_versions, rollback, lambda place: pin(place, "1"), lambda place: prune(place, keep=1)):
            with raises(DatasetError, f"folder '{output}'", "`--output`"):
                command(output)
    assert list(tmp_path.iterdir()) == []


NOW = datetime(2026, 12, 1, tzinfo=UTC)
AGO = {name: f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}" for name, seconds in (
    ("hour", 3600), ("days", 2 * DAY), ("ahead", -365 * DAY))}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "keep", "grace", "removed", "kept"),
    [
        ({}, 1, DAY, "ab", {}),
        ({}, 2, DAY, "a", {}),
        ({}, 3, DAY, "", {}),
        ({"version": "a"}, 1, DAY, "b", {"a": "live"}),
        ({"pinned": ("b",)}, 1, 0, "a", {"b": "pinned"}),
        ({"retired": {"a": AGO["hour"], "b": AGO["days"]}}, 1, DAY, "b", {"a": f"{AGO['hour']}: its grace"}),
        ({"retired": {"a": AGO["hour"], "b": AGO["days"]}}, 1, 1800, "ab", {}),
        ({"retired": {"a": AGO["hour"], "b": AGO["days"]}}, 1, 0, "ab", {}),
        ({"retired": {"a": AGO["ahead"], "b": AGO["days"]}}, 1, DAY, "b", {"a": "`--grace 0`"}),
        ({"retired": {"a": AGO["ahead"]}}, 1, 0, "ab", {}),
        ({"retired": {"b": AGO["days"]}}, 1, DAY, "b", {"a": "unknown"}),
        ({"retired": {}}, 1, DAY, "", {"a": "unknown", "b": "unknown"}),
        ({"retired": {}}, 2, 0, "a", {}),
        ({"removing": ("z",)}, 3, DAY, "z", {}),
    ],
)
def test_what_is_pruned(change: Any, keep: int, grace: float, removed: str, kept: dict[str, str]) -> None:
    latest = replace(Latest("c", 3, {"a": AGO["days"], "b": AGO["days"]}), **change)
    graces = dict.fromkeys("abc"[: max(0, 3 - keep)], grace)
    marked, reasons = choose(latest, graces, [], NOW)
    assert sorted(marked.removing) == sorted(removed)
    assert reasons.keys() == kept.keys()
    for name, fact in kept.items():
        assert_names(reasons[name], fact)
    again = choose(marked, graces, [], NOW + timedelta(days=900))[0]  # no grace is without end
    assert set(again.removing) == set(removed) | (kept.keys() - {latest.version, *latest.pinned})


def test_what_is_held_is_not_pruned() -> None:
    for lease, is_held in (("a", True), ("a+0f0f", True), ("ab", False), ("a-2", False), (KEY[:16], False)):
        _, kept = choose(Latest("b", 2), {"a": 0}, [lease], NOW)
        assert ("held" in kept.get("a", "")) == is_held


def test_a_grace() -> None:
    graces = {"0": 0, "90": 90, "90s": 90, "30m": 1800, "12h": 43200, "2d": 172800, "9" * 400 + "d": math.inf}
    assert {text: seconds_of(text) for text in graces} == graces
    for text in ("", "d", "-1d", "1w", "1.5h", "²d", "soon"):
        with raises(UserError, f"grace '{text}'", "s, m, h or d", "12h"):
            seconds_of(text)


def test_prune_keeps_the_newest_by_their_numbers(output: str) -> None:
    assert prune(output, keep=1).removed == {}  # they were live a moment ago
    trial = prune(output, keep=2, grace_seconds=0, dry_run=True)
    assert there(output) == sorted(NAMES)
    done = prune(output, keep=2, grace_seconds=0)
    assert done == trial
    assert set(done.removed) == {f"versions/{NAMES[0]}"}
    assert done.removed[f"versions/{NAMES[0]}"] > 0
    assert there(output) == sorted(NAMES[1:])
    assert live(output) == Latest(NAMES[2], 3, {NAMES[1]: live(output).retired[NAMES[1]]})
    assert open_store(output).children("") == ["LATEST", "history.jsonl", "versions"]


def test_a_prune_that_was_killed_is_gone_on_with(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = type(open_store(output))
    with monkeypatch.context() as patch:
        patch.setattr(store, "remove", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prune(output, keep=2, grace_seconds=0)
    assert [one.version for one in publishing.published(open_store(output))] == NAMES[1:]  # it is none any more
    for command in (pin, rollback):
        with raises(DatasetError, "no version"):
            command(output, NAMES[0])
    assert publishing.find_version(output, "0" * 64) is None
    assert set(prune(output, keep=9).removed) == {f"versions/{NAMES[0]}"}
    assert there(output) == sorted(NAMES[1:])
    assert live(output).removing == ()


def test_a_version_that_is_taken_while_it_is_marked_is_spared(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, held = open_store(str(local)), []
    real = choose

    def choosing(*arguments: Any) -> Any:
        held.append(leases.take(store, f"{NAMES[0]}+late"))
        return real(*arguments)

    monkeypatch.setattr("recordmill.pipeline.versions.listing.choose", choosing)
    done = prune(str(local), keep=1, grace_seconds=0)
    assert set(done.removed) == {f"versions/{NAMES[1]}"}
    (kept,) = done.kept.items()
    assert_names(kept, NAMES[0], "held")
    assert (live(local).removing, there(local)) == ((), sorted([NAMES[0], NAMES[2]]))
    held[0].release()


def test_a_version_that_was_spared_and_went_live_meanwhile_stays(output: str) -> None:
    store = open_store(output)
    mark = lambda *names: lambda latest: replace(latest or Latest("", 0), removing=names)  # noqa: E731
    read_before = compare_and_swap(store, mark(NAMES[0]))
    compare_and_swap(store, mark())  # another prune spares it, since a reader holds it
    rollback(output, NAMES[0])
    _Pruning(store, {}, {}, dry_run=False).remove_marked(read_before)
    assert (live(output).version, there(output)) == (NAMES[0], sorted(NAMES))


def test_the_dead_hold_nothing(local: Path) -> None:
    store, waited = open_store(str(local)), []
    put(store, foreign(), f"{NAMES[0]}+elsewhere")
    put(store, replace(leases.this_process(), started="1"), f"{NAMES[1]}+killed")
    done = prune(str(local), keep=1, grace_seconds=0, on_wait=lambda holder: waited.append(holder.host))
    assert set(done.removed) == {f"versions/{name}" for name in NAMES[:2]}
    assert waited == ["elsewhere"]
    assert sorted(path.name for path in local.iterdir()) == ["LATEST", "history.jsonl", "versions"]


def test_abandoned_builds_and_temporary_files_go(local: Path) -> None:
    store = open_store(str(local))
    (local / ".building/key/run-000000000000").mkdir(parents=True)
    (local / ".building/key/run-000000000000/data").write_bytes(b"1234")
    (local / f"LATEST.{'0a' * 16}").write_bytes(b"12")
    (local / ".removing/half").mkdir(parents=True)
    (local / ".removing/half/data").write_bytes(b"123")
    options: dict[str, Any] = {"keep": 3, "building": str(local / ".building")}
    with hold(store, leases.BUILD):
        assert not [name for name in prune(str(local), dry_run=True, **options).removed if "key" in name]  # one builds
    trial, done = prune(str(local), dry_run=True, **options), prune(str(local), **options)
    assert trial.removed == done.removed
    sizes = {os.path.basename(name): size for name, size in done.removed.items()}
    assert sizes == {"key": 4, f"LATEST.{'0a' * 16}": 2, "half": 3}
    assert sorted(path.name for path in local.iterdir()) == ["LATEST", "history.jsonl", "versions"]


@pytest.mark.parametrize("name", emulators.ONE_BUCKET)
def test_partial_uploads_go_when_nobody_is_at_them(tmp_path: Path, name: str) -> None:
    with STORES[name](tmp_path) as output:
        publish(output, tmp_path, "v1")
        store = open_store(output)
        (tmp_path / "part").mkdir()
        (tmp_path / "part/data").write_bytes(b"1234")
        store.stage(str(tmp_path / "part"), "versions/v2", b"dead.1")
        store.stage(str(tmp_path / "part"), "versions/v3", b"dead.3")
        store.write_if("versions/v1/.upload", b"dead.2", None)  # killed right after it had published
        with hold(store, BUILD):
            assert prune(output, None, dry_run=True).removed == prune(output, keep=None).removed == {}
        trial, done = prune(output, None, dry_run=True), prune(output, keep=None)
        unfinished = {"versions/v2": 4 + len(b"dead.1"), "versions/v3": 4 + len(b"dead.3")}
        assert done.removed == trial.removed == unfinished | {"versions/v1/.upload": 6}
        assert there(output) == ["v1"]
        assert live(output).version == "v1"
        assert list(build_folders.uploads(store)) == []


@pytest.mark.parametrize("name", emulators.ONE_BUCKET)
def test_files_without_a_manifest_stay_where_somebody_may_need_them(tmp_path: Path, name: str) -> None:
    with STORES[name](tmp_path) as output:
        store = open_store(output)
        for number, version in enumerate(["v1", "v2"]):
            publish(output, tmp_path, version, f"{number}" * 64)
            store.delete(f"versions/{version}/dataset.json")
        store.write_if("versions/v3/shard", b"1234", None)  # of a dead build's worker, or the first file of a copy
        sweep(output, str(tmp_path / "work"))
        done = prune(output, None)
        assert (there(output), done.removed) == (["v1", "v2", "v3"], {})
        assert list(done.kept) == ["v1", "v2", "v3"]
        assert_names(done.kept["v2"], "dataset.json", "`LATEST`")
        assert_names(done.kept["v3"], "dataset.json", "newest file", "grace")
        with hold(store, "v3+reader"):
            assert_names(prune(output, None, 0).kept["v3"], "dataset.json", "held")
        assert prune(output, None, 0).removed == {"versions/v3": 4}
        assert there(output) == ["v1", "v2"]


def test_a_reader_holds_its_version(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path / "out", version="v1")
    publish(str(tmp_path / "out"), tmp_path, "v2")
    dataset = open_dataset(tmp_path / "out", "v1")
    with dataset.held(), dataset.held():  # two programs
        assert len(list_versions(str(tmp_path / "out"))[0].held_by) == 2
        (kept,) = prune(str(tmp_path / "out"), keep=1, grace_seconds=0).kept.items()
        assert_names(kept, "v1", "held")
    prune(str(tmp_path / "out"), keep=1, grace_seconds=0)
    assert there(tmp_path / "out") == ["v2"]
    with raises(DatasetError, "v1", tmp_path / "out", "open "), dataset.held():
        pytest.fail("holds what is gone")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["LATEST", "history.jsonl", "versions"]


def test_a_copied_version_cannot_be_held(tmp_path: Path) -> None:
    folder = hand_made.write_dataset(tmp_path / "out")
    shutil.copytree(folder, tmp_path / "copy")
    with raises(DatasetError, tmp_path / "copy", "dataset's folder"), open_dataset(tmp_path / "copy").held():
        pytest.fail("holds a copy")


def test_two_at_once_prune_and_publish(local: Path, tmp_path: Path) -> None:
    threads = [
        threading.Thread(target=lambda: [publish(str(local), tmp_path, f"new{n}", f"{n}e" * 32) for n in range(5)]),
        threading.Thread(target=lambda: [prune(str(local), keep=1, grace_seconds=0) for _ in range(5)]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    prune(str(local), keep=1, grace_seconds=0)
    assert there(local) == ["new4"] == [live(local).version]
    assert (live(local).removing, live(local).retired) == ((), {})


def test_the_commands_say_what_they_did(
    local: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    run("versions", "pin", local, "1")
    run("versions", "list", local)
    said = capsys.readouterr().out
    assert_names(said.splitlines()[0], NAMES[0], "`recordmill versions prune`")
    lines = [" ".join(line.split()) for line in said.splitlines()[1:]]
    assert lines[0] == "# version built at records bytes retired"
    assert lines[1].startswith(f"1 {NAMES[0]} pinned 1 7 20")
    assert lines[3] == f"3 {NAMES[2]} live 1 7"
    run("versions", "rollback", local)
    assert_names(capsys.readouterr().out, NAMES[1], f"`recordmill versions rollback {local} {NAMES[2]}`")
    run("versions", "rollback", local, "2")
    assert_names(capsys.readouterr().out, NAMES[1], "already")
    run("versions", "unpin", local, "3")
    assert_names(capsys.readouterr().out, NAMES[2], "not pinned")
    run("versions", "unpin", local, "1")
    run("versions", "prune", local, "--keep", "1", "--dry-run", "--grace", "0")
    said = capsys.readouterr().out
    assert_names(said, NAMES[0], "not pinned", f"kept {NAMES[1]}: ", f"would remove versions/{NAMES[0]}")
    run("versions", "prune", local, "--keep", "1", "--grace", "0")
    assert re.search(rf"^removed versions/{NAMES[0]}, [\d,]+ bytes\nfreed [\d,]+ bytes$", capsys.readouterr().out, re.M)
    assert there(local) == sorted(NAMES[1:])
