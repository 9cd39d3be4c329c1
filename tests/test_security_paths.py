"""No file outside is read: not by a manifest's word, not by a link in a version, not by what a row names."""

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordmill import open_dataset
from recordmill.pipeline.cli.show import print_dataset
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, read_latest, read_manifest, version_folder
from recordmill.pipeline.dataset.paths import check_inner, locate, open_file, read_inner
from recordmill.pipeline.reader.remote import RemotePath
from recordmill.pipeline.sources import paths
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.options import JsonLines
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.listing import list_versions
from tests.messages import raises
from tests.opened import opened
from tests.published import REJECTS, VERSION, write_version
from tests.tables import FILES, IMAGE, TEXT, read, source, tar, write

SHARD, INDEX = "small-train.tfrecord-00000-of-00004", "small-train.index-00000-of-00004"
LABELS = "transform_fn/assets/label.vocabulary.txt"
BAD_PATHS = (
    ["", ".", "..", "../x", "a/../../x", "a/./b", "a//b", "/etc/passwd", "//host/x", "~/x", "~root/x", "a\0b", "a\nb"]
    + ["a\\b", "..\\x", "C:\\x", "C:x", "file:///etc/passwd", "http://h/x", "s3://b/x", "pipe:ls", "data:,x"]
    + ["x\x1b[2J", "\u202ea", "\udc80"]
)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    write_version(tmp_path / "out", rows=40)
    return tmp_path / "out"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file beside the dataset, and in a folder as a vocabulary would be."""
    (tmp_path / "outside/assets").mkdir(parents=True)
    (tmp_path / "outside/assets/label.vocabulary.txt").write_text("dark\nbright\n")
    (tmp_path / "outside/secret").write_text("secret")
    return tmp_path / "outside/secret"


def open_all(output: Path) -> None:
    """Reads all that the reader reads of a dataset."""
    dataset = open_dataset(output)
    dataset.vocabulary("label")
    for split in dataset.splits:
        list(dataset.evaluation_input(split, batch_size=8, features=["price"], verify=True).as_numpy())


def show(output: Path) -> None:
    folder = version_folder(output, read_latest(output).version)
    print_dataset(read_manifest(folder), folder, [])


def put_file(manifest: Any, path: str) -> None:
    manifest["splits"]["train"]["shards"][0]["file"] = path


def put_index(manifest: Any, path: str) -> None:
    manifest["splits"]["train"]["shards"][0]["index"] = path


def put_vocabulary(manifest: Any, path: str) -> None:
    manifest["features"]["label"]["vocabulary"] = path


def put_rejects(manifest: Any, path: str) -> None:
    manifest["rejects"]["files"][0]["file"] = path


def put_listed(manifest: Any, path: str) -> None:
    manifest["files"][path] = {"bytes": 1, "sha256": ""}


@pytest.mark.parametrize("put", [put_file, put_index, put_vocabulary, put_rejects, put_listed])
def test_a_path_in_a_manifest_stays_in_its_folder(output: Path, put: Callable[[Any, str], None]) -> None:
    file = version_folder(output, VERSION) / MANIFEST_FILE
    good = json.loads(file.read_text())
    for path in BAD_PATHS:
        manifest = json.loads(json.dumps(good))
        put(manifest, path)
        file.write_text(json.dumps(manifest))
        with opened() as read_files, raises(DatasetError, MANIFEST_FILE, "path", "folder"):
            open_dataset(output)
        assert set(read_files) <= {str(file), str(output / "LATEST")}


@pytest.mark.parametrize("version", [*BAD_PATHS, "a/b"])
def test_a_version_is_the_name_of_a_folder(output: Path, version: str) -> None:
    (output / "LATEST").write_text(json.dumps({"version": version, "sequence": 1}))
    with opened() as read_files, raises(DatasetError, "LATEST", "version", "plain characters"):
        open_dataset(output)
    assert set(read_files) == {str(output / "LATEST")}
    with raises(DatasetError, "version", "plain characters"):
        version_folder(output, version)


@pytest.mark.parametrize("name", [SHARD, INDEX, LABELS, MANIFEST_FILE])
def test_a_link_out_of_a_version_is_not_followed(output: Path, secret: Path, name: str) -> None:
    file = version_folder(output, VERSION) / name
    outside = secret.with_name("copy")
    file.rename(outside)  # the right bytes: it is the place that is wrong
    file.symlink_to(outside)
    with opened() as read_files, raises(DatasetError, file, "link"):
        open_all(output)
    assert str(outside) not in read_files


@pytest.mark.parametrize("use", [open_all, show])
def test_a_folder_that_is_a_link_out_of_a_version_is_not_followed(
    output: Path, secret: Path, use: Callable[[Path], None]
) -> None:
    folder = version_folder(output, VERSION) / "transform_fn"
    shutil.rmtree(folder)
    folder.symlink_to(secret.parent)
    with opened() as read_files, raises(DatasetError, "transform_fn/assets/", "link"):
        use(output)
    assert not [path for path in read_files if path.startswith(str(secret.parent))]


def test_the_pointer_is_no_link_out_of_the_dataset(output: Path, secret: Path) -> None:
    (output / "LATEST").rename(secret)
    (output / "LATEST").symlink_to(secret)
    for use in (open_dataset, list_versions):
        with opened() as read_files, raises(DatasetError, output / "LATEST", "link"):
            use(str(output))
        assert read_files == []


@pytest.mark.parametrize("name", [SHARD, INDEX, LABELS, "serving/saved_model.pb", REJECTS])
def test_verify_follows_no_link_out_of_a_version(output: Path, secret: Path, name: str) -> None:
    file = version_folder(output, VERSION) / name
    file.rename(secret)
    file.symlink_to(secret)
    with opened() as read_files:
        report = verify(str(output))
    assert not report.is_whole
    assert any(name in line and "link" in line for line in report.lines())
    assert str(secret) not in read_files


@pytest.mark.parametrize("how", ["dataset", "version", "file", "URL"])
def test_links_that_lead_to_a_dataset_or_stay_inside_are_followed(output: Path, tmp_path: Path, how: str) -> None:
    folder, place = version_folder(output, VERSION), str(output)
    if how == "dataset":
        (tmp_path / "link").symlink_to(output)
        place = str(tmp_path / "link")
    elif how == "version":
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
    elif how == "URL":
        place = f"file://{output}"
    else:
        (folder / "blobs").mkdir()
        (folder / SHARD).rename(folder / "blobs/1")
        (folder / SHARD).symlink_to("blobs/1")
    open_all(Path(place) if how != "URL" else place)  # type: ignore[arg-type]


def test_a_local_dataset_named_by_a_url_follows_no_link_either(output: Path, secret: Path) -> None:
    (version_folder(output, VERSION) / LABELS).unlink()
    (version_folder(output, VERSION) / LABELS).symlink_to(secret)
    with raises(DatasetError, LABELS, "link"):
        open_dataset(f"file://{output}").vocabulary("label")


@pytest.mark.parametrize("name", [SHARD, INDEX, LABELS, MANIFEST_FILE])
def test_a_pipe_is_refused_and_not_waited_for(output: Path, name: str) -> None:
    file = version_folder(output, VERSION) / name
    file.unlink()
    os.mkfifo(file)
    with raises(DatasetError, VERSION if name == MANIFEST_FILE else "pipe"):
        open_all(output)


def test_a_pipe_of_no_bytes_is_no_shard_of_no_records(output: Path) -> None:
    file = version_folder(output, VERSION) / MANIFEST_FILE
    manifest = json.loads(file.read_text())
    split = manifest["splits"]["test"]
    for shard in split["shards"]:
        shard |= {"bytes": 0, "records": 0}
    split |= {"records": 0}
    file.write_text(json.dumps(manifest))
    (file.parent / split["shards"][0]["file"]).unlink()
    os.mkfifo(file.parent / split["shards"][0]["file"])
    with raises(DatasetError, "pipe"):
        open_dataset(output).evaluation_input("test", batch_size=8)


def test_devices_and_folders_are_no_files(tmp_path: Path) -> None:
    for path, fact in (("/dev/zero", "device"), (str(tmp_path), "directory")):
        with raises(OSError, path, fact):
            open_file(path)


@pytest.mark.parametrize("name", ["LATEST", f"versions/{VERSION}/{MANIFEST_FILE}"])
def test_a_huge_or_endless_manifest_is_one_line(output: Path, name: str) -> None:
    with open(output / name, "wb") as file:
        file.truncate(1 << 30)  # 1 GiB, of which nothing lies on the disk
    with raises(DatasetError, name, "larger than", " bytes"):
        open_dataset(output)
    (output / name).write_text("[" * 1_000_000)
    with raises(DatasetError, name, "nested"):
        open_dataset(output)


class Asked(RemotePath):
    """A folder at a URL that must not be asked for anything."""

    def __truediv__(self, inner: str) -> RemotePath:
        raise AssertionError(inner)


@pytest.mark.parametrize(
    ("path", "fact"),
    [(path, "folder") for path in BAD_PATHS]
    + [(path, "https://h/out") for path in ("%2e%2e/x", "x?versionId=1", "x#y")],
)
def test_a_store_is_not_asked_for_what_is_refused(path: str, fact: str) -> None:
    with raises(DatasetError, "path ", fact):
        read_inner(Asked("https://h/out"), path)


def test_ordinary_names_are_paths() -> None:
    for path in ("dataset.json", SHARD, LABELS, "über/a b (2) 50%.txt"):
        assert check_inner(path) == path


def test_a_file_that_is_not_there_is_located(tmp_path: Path) -> None:
    assert locate(str(tmp_path), "a/b") == str(tmp_path / "a/b")
    (tmp_path / "loop").symlink_to("loop")
    with raises(DatasetError, tmp_path / "loop", "Too many levels"):
        read_inner(tmp_path, "loop")


def test_rejects_are_opened_as_all_else(output: Path, secret: Path) -> None:
    folder = version_folder(output, VERSION)
    (folder / REJECTS).unlink()
    (folder / REJECTS).symlink_to(secret)
    with raises(DatasetError, folder / REJECTS, "link"):
        read_inner(folder, REJECTS)


@pytest.fixture
def images(tmp_path: Path, secret: Path) -> Path:
    """A source's folder: images, links inside and out of it, and rows that name them."""
    root = tmp_path / "in"
    (root / "sub").mkdir(parents=True)
    (root / "sub/a.png").write_bytes(b"a")
    for name, target in {
        "inside.png": "sub/a.png",
        "folder_inside": "sub",
        "out.png": str(secret),
        "sub/up.png": "../../outside/secret",
        "folder_out": str(secret.parent),
        "chain.png": "out.png",
    }.items():
        (root / name).symlink_to(target)
    return root


LINKS = {
    "sub/a.png": True,
    "inside.png": True,
    "folder_inside/a.png": True,
    "not_there.png": True,
    "out.png": False,
    "sub/up.png": False,
    "folder_out/secret": False,
    "folder_out/assets/label.vocabulary.txt": False,
    "chain.png": False,
}


def test_what_a_row_names_is_not_followed_out_of_the_source(images: Path) -> None:
    with open(images / "rows.jsonl", "w") as file:
        file.writelines(json.dumps({"p": path}) + "\n" for path in LINKS)
    found = read(reader_of(JsonLines(format="jsonl", path=str(images / "rows.jsonl"))), {"p": IMAGE})
    refused = [("forbidden_path", "p", "the path is a link that leaves the source's folder")]
    assert found.faults == refused * list(LINKS.values()).count(False)
    assert len(found.rows) == list(LINKS.values()).count(True)


def test_a_source_that_is_reached_through_a_link_is_the_folder_it_leads_to(images: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(images)
    links = paths.Inside(str(tmp_path / "link"))
    assert {path: links.holds(path) for path in LINKS} == LINKS
    assert paths.Inside("s3://bucket").holds("anything")
    assert paths.Inside("").holds("etc/passwd")  # the root of all


def test_a_folder_is_resolved_once(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[str] = []
    real = os.path.realpath
    monkeypatch.setattr(paths.os.path, "realpath", lambda path: resolved.append(path) or real(path))
    links = paths.Inside(str(images))
    assert all(links.holds("sub/a.png") for _ in range(100))
    assert len(resolved) == 2


def test_a_pipe_in_a_source_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with raises(OSError, tmp_path / "a.png", "pipe"):
        FILES.open(str(tmp_path / "a.png"))


def test_members_of_a_tar_are_names(tmp_path: Path, secret: Path) -> None:
    link = tarfile.TarInfo("d.txt")
    link.type, link.linkname = tarfile.SYMTYPE, str(secret)
    members = [(name, "text") for name in ("../outside/a.txt", "/etc/b.txt", "c.txt")]
    archive = source("webdataset", write(tmp_path / "a.tar", tar(*members, link)))
    before = sorted(tmp_path.rglob("*"))
    with opened() as read_files:
        found = read(archive, {"txt": TEXT})
    assert [row["txt"] for row in found.rows] == ["text"] * 3
    data = {path for path in read_files if not path.endswith((".py", ".pyc"))}  # a reader may load modules late
    assert data == {str(tmp_path / "a.tar")}
    assert sorted(tmp_path.rglob("*")) == before
