"""The digests of a version's inputs: those of images are the job's own, and no image is read a second time."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.feather
import pytest

from recordmill.pipeline.build import make_version
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.context.arrow_files import FileDigests, HashedRows, write_file_digests
from recordmill.pipeline.build.images.image_files import ImageFiles
from recordmill.pipeline.build.inputs import input_table
from recordmill.pipeline.build.inputs.input_table import INPUTS_FILE, file_sha256
from recordmill.pipeline.sources.files import Files, LocalFiles
from recordmill.pipeline.sources.images import inline, to_file, to_piece, to_scratch
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.versions.stores.local import LocalStore
from tests.messages import raises
from tests.pictures import photo, saved


def test_rows_are_found_by_their_names() -> None:
    rows = HashedRows(["b", ("a", 1), "c"])
    assert rows.find([("a", 1), "c", "d", "b"]).tolist() == [1, 2, -1, 0]
    assert rows.find([]).tolist() == []
    assert HashedRows([]).find(["a", "b"]).tolist() == [-1, -1]


def test_the_digests_of_several_shards_are_one_table(tmp_path: Path) -> None:
    workspace = LocalStore(str(tmp_path))
    assert FileDigests(workspace).find(["/a"]) == [None]
    write_file_digests(workspace, 0, {})
    assert workspace.names() == []
    write_file_digests(workspace, 0, {"/b/1.jpg": b"1" * 32, "/b/2.jpg": b"2" * 32})
    write_file_digests(workspace, 1, {"/ä.jpg": b"3" * 32})
    found = FileDigests(workspace).find(["/ä.jpg", "/b/3.jpg", "/b/2.jpg"])
    assert found == [b"3" * 32, None, b"2" * 32]


def test_only_a_local_file_of_its_own_has_a_digest() -> None:
    images = ImageFiles(LocalFiles(), ("/data/a", "gs://bucket/a"), "/scratch")
    others = [to_piece("a.tar", 512, 9), to_scratch("0", 0, 9), inline(b"f"), b""]
    assert images.whole_file(0, to_file("ä/1.jpg")) == "0/ä/1.jpg"
    assert images.whole_file(1, to_file("1.jpg")) is None
    assert [images.whole_file(0, reference) for reference in others] == [None] * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve photos with captions: one is there twice, one is no image, and one is damaged behind its header."""
    (tmp_path / "photos").mkdir()
    for number in range(12):
        (tmp_path / f"photos/{number:02d}.jpg").write_bytes(saved(photo(number % 11)))
        (tmp_path / f"photos/{number:02d}.txt").write_text("a photo")
    whole = (tmp_path / "photos/03.jpg").read_bytes()
    (tmp_path / "photos/01.jpg").write_bytes(b"no image")
    (tmp_path / "photos/02.jpg").write_bytes(whole[:300] + b"\xff\xd9")
    return tmp_path


def _spec(folder: Path) -> Spec:
    return parse_spec(
        f"name: d\nsource: {{format: image_folder, path: {folder}/photos}}\nduplicates: drop\n"
        "rejects: {max_share: 0.5}\n"
        "features: {image: {kind: image, size: [32, 32]}, text: {kind: text, max_length: 4}}"
    )


def _inputs(folder: Path, version: str) -> dict[str, bytes]:
    rows = pyarrow.feather.read_table(folder / "out/versions" / version / INPUTS_FILE).to_pylist()
    return {row["path"].decode(): row["sha256"] for row in rows}


@pytest.mark.slow
def test_images_are_digested_where_they_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also across attempts: the second takes over the shards of the first, and their digests."""
    read, fails = list[str](), [True]

    def digested(files: Files, path: str) -> bytes | None:
        read.append(Path(path).name)
        return file_sha256(files, path)

    def fail_once(*arguments: Any) -> None:
        if fails:
            fails.clear()
            raise RuntimeError("the driver stops after the job")

    monkeypatch.setattr(input_table, "file_sha256", digested)
    monkeypatch.setattr(make_version, "check_unchanged", fail_once)
    with raises(RuntimeError, "stops"):
        build(_spec(folder), str(folder / "out"))
    read.clear()
    version = build(_spec(folder), str(folder / "out")).manifest.version
    photos = folder / "photos"
    assert _inputs(folder, version) == {
        path.name: hashlib.sha256(path.read_bytes()).digest() for path in photos.iterdir()
    }
    captions = [path.name for path in photos.glob("*.txt")]
    assert sorted(read) == sorted([*captions, "00.jpg", "01.jpg"])  # the copy of 11.jpg, and no image
