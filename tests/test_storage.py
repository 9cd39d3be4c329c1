"""The output folder: builds at work, versions that appear whole, and the pointer to the live one."""

import os
from pathlib import Path

import pytest

from pipeline import storage
from pipeline.manifest import DatasetError, Latest, Manifest, Split, read_latest, read_manifest
from pipeline.steps import FOLDERS
from pipeline.storage import OutputError

KEY = "4f1c9a2e" + "0" * 56


def manifest(version: str, build_key: str = KEY) -> Manifest:
    return Manifest("d", version, build_key, None, {"x": {"kind": "number"}}, {"train": Split(())})


def publish(output: Path, version: str, build_key: str = KEY) -> str:
    folder = storage.begin(str(output), build_key)
    assembled = Path(folder, "version")
    assembled.mkdir()
    (assembled / "data").write_text(version)
    published = storage.publish(str(output), str(assembled), manifest(version, build_key))
    storage.finish(folder)
    return published


def test_a_build_begins_with_empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(storage.begin("out/d", KEY))
    assert folder == tmp_path / "out/d/.building" / KEY[:16]
    (folder / "data" / "left-over").touch()
    assert storage.begin("out/d", KEY) == str(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FOLDERS)
    assert [path for path in folder.rglob("*") if not path.is_dir()] == []


def test_a_version_appears_whole_and_live(tmp_path: Path) -> None:
    published = Path(publish(tmp_path, "v1"))
    assert published == tmp_path / "versions/v1"
    assert sorted(path.name for path in published.iterdir()) == ["data", "dataset.json"]
    assert read_manifest(published) == manifest("v1")
    assert read_latest(tmp_path) == Latest("v1", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "versions"]


def test_the_pointer_counts_its_moves(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        publish(tmp_path, version)
    assert (tmp_path / "versions/v1/data").read_text() == "v1"
    storage.make_live(str(tmp_path), "v1")
    assert read_latest(tmp_path) == Latest("v1", 3)


def test_before_the_manifest_there_is_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, "v1")
    monkeypatch.setattr(os, "rename", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        publish(tmp_path, "v2", build_key="ff" * 32)
    assert read_latest(tmp_path) == Latest("v1", 1)
    assert [path.name for path in (tmp_path / "versions").iterdir()] == ["v1"]


def test_the_newest_version_of_a_build_is_found(tmp_path: Path) -> None:
    other = KEY[:8] + "f" * 56  # begins alike
    names = [f"2026112{day}T120000Z-4f1c9a2e" for day in range(4)]
    for name, key in zip(names, (KEY, KEY, other, KEY), strict=True):
        publish(tmp_path, name, key)
    (tmp_path / "versions" / names[3] / "dataset.json").write_text("{broken")
    found = storage.find_version(str(tmp_path), KEY)
    assert found is not None
    assert found.version == names[1]
    assert storage.find_version(str(tmp_path), "00" * 32) is None


def test_where_nothing_is_there_is_no_version(tmp_path: Path) -> None:
    assert storage.find_version(str(tmp_path / "missing"), KEY) is None
    assert storage.live_version(str(tmp_path / "missing")) is None
    assert storage.live_version(str(tmp_path)) is None


def test_the_live_version_is_that_of_the_pointer(tmp_path: Path) -> None:
    publish(tmp_path, "v1")
    assert storage.live_version(str(tmp_path)) == "v1"
    (tmp_path / "LATEST").write_text("{}")
    with pytest.raises(DatasetError):
        read_latest(tmp_path)
    assert storage.live_version(str(tmp_path)) is None


@pytest.mark.parametrize("place", ["out", "out/.building", f"out/.building/{KEY[:16]}"])
def test_a_file_in_the_way_is_one_clear_line(tmp_path: Path, place: str) -> None:
    blocked = tmp_path / place
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("mine")
    with pytest.raises(OutputError, match=rf"^the output {tmp_path}/out cannot be written: .*{blocked}[^\n]*$"):
        storage.begin(str(tmp_path / "out"), KEY)
    assert blocked.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_clear_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot be written: Permission denied: "):
        storage.begin(str(tmp_path), KEY)


def test_a_build_that_is_done_leaves_the_others_alone(tmp_path: Path) -> None:
    mine, other = (storage.begin(str(tmp_path), key) for key in (KEY, "ff" * 32))
    storage.finish(mine)
    assert not Path(mine).exists()
    assert Path(other, "data").is_dir()
    storage.finish(other)
    assert list(tmp_path.iterdir()) == []
