"""Lists of files stay small, keep their order, and are what a plain list of the same files is."""

import os
import tracemalloc
from pathlib import Path

import pytest

from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.sources.batches import cut
from recordmill.pipeline.sources.files import FileInfo, FileList, LocalFiles


def some(count: int) -> list[FileInfo]:
    return [FileInfo(f"train/n{file // 1000:08d}/{file}.jpg", file % 99_991, 1.7e9 + file / 7) for file in range(count)]


BLOCK = FileList.BLOCK


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
def test_a_file_list_is_its_files(count: int) -> None:
    files = some(count)
    packed = FileList(files)
    assert (len(packed), list(packed), packed[-3:]) == (count, files, files[-3:])
    assert [packed[row] for row in range(-count, count, 613)] == [files[row] for row in range(-count, count, 613)]
    with pytest.raises(IndexError):
        packed[count]


def test_a_name_that_is_not_utf8_is_kept() -> None:
    files = [FileInfo(f"{file}-\udce9\ud800", file, 0.0) for file in range(BLOCK)]
    assert list(FileList(files)) == files


def test_a_file_takes_few_bytes() -> None:
    def bytes_of(count: int) -> int:
        tracemalloc.start()
        held = FileList(FileInfo(f"train/{file // 1000:08d}/{file}.jpg", file, float(file)) for file in range(count))
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(held) == count
        return held_bytes

    assert (bytes_of(12 * BLOCK) - bytes_of(2 * BLOCK)) / (10 * BLOCK) < 32


def test_parts_follow_one_another() -> None:
    assert list(cut(iter("abcde"), [slice(0, 2), slice(2, 5)])) == [["a", "b"], ["c", "d", "e"]]


def test_a_folder_is_listed_in_the_order_of_whole_paths(tmp_path: Path) -> None:
    names = ["a-b.txt", "a.txt", "a/x.txt", "a/b/y.txt", "a/b.txt", "a0.txt", "b/é.txt", "b.txt", "z.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [os.path.relpath(file.path, tmp_path) for file in LocalFiles().match(f"{tmp_path}/**")]
    assert found == sorted(names)


def test_a_pattern_is_listed_once_and_changes_are_named(tmp_path: Path) -> None:
    for name in ("changed", "gone", "same"):
        (tmp_path / name).write_text(name)
    files = Listings(LocalFiles())
    before = list(files.match(f"{tmp_path}/*"))
    (tmp_path / "changed").write_text("another")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").touch()
    assert list(files.match(f"{tmp_path}/*")) == before
    assert (files.has(f"{tmp_path}/gone"), files.has(f"{tmp_path}/new")) == (True, False)
    assert list(files.changes()) == [
        (f"{tmp_path}/changed", "is another"),
        (f"{tmp_path}/gone", "is gone"),
        (f"{tmp_path}/new", "is new"),
    ]
