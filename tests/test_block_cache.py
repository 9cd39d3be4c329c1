"""Blocks on disk: fetched once by threads and processes, whatever dies, fills up or disappears meanwhile."""

import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader import block_cache
from recordmill.pipeline.reader.block_cache import FOLDER, MARK, Block, BlockCache
from tests.constants import constants
from tests.messages import raises

SIZE = 1000


def block(number: int) -> Block:
    return Block("s3://set/a.tfrecord", number * SIZE, (number + 1) * SIZE, '"tag"', "d1" * 32)


def content(each: Block) -> bytes:
    return bytes([each.start // SIZE]) * (each.end - each.start)


def counting(asked: list[Block]) -> Callable[[Block], bytes]:
    def fetch(each: Block) -> bytes:
        asked.append(each)
        return content(each)

    return fetch


def read(cache: BlockCache, number: int, asked: list[Block]) -> None:
    each = block(number)
    spans = [(each.start, each.start + 10), (each.end - 1, each.end)]
    assert cache.read(each, spans, counting(asked)) == [bytes([number]) * 10, bytes([number])]


def path_of(folder: Path, number: int) -> Path:
    return folder / FOLDER / block(number).name


def kept(folder: Path) -> list[int]:
    """The numbers of the blocks that the cache holds, and nothing else."""
    names = {block(number).name: number for number in range(10)}
    return sorted(names[path.name] for path in (folder / FOLDER).iterdir() if path.name != MARK)


def test_a_block_is_fetched_once_by_threads_and_by_the_next_training(tmp_path: Path) -> None:
    asked: list[Block] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow(each: Block) -> bytes:
        begun.set()
        assert go_on.wait(10)
        return counting(asked)(each)

    caches = [BlockCache(str(tmp_path)) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(cache.read, block(1), [(SIZE, 2 * SIZE)], slow) for cache in caches]
        assert begun.wait(10)
        assert caches[0].fetch(block(1), counting(asked), wait=False) is None  # another fetches it
        go_on.set()
        assert [one.result() for one in waiting] == [[content(block(1))]] * 4
    read(BlockCache(str(tmp_path)), 1, asked)
    assert asked == [block(1)]
    assert kept(tmp_path) == [1]


def test_what_could_not_be_fetched_leaves_nothing(tmp_path: Path) -> None:
    def fails(each: Block) -> bytes:
        raise DatasetError("cut off")

    cache, asked = BlockCache(str(tmp_path)), list[Block]()
    with raises(DatasetError, "cut off"):
        cache.read(block(1), [(SIZE, SIZE + 1)], fails)
    assert kept(tmp_path) == []
    read(cache, 1, asked)
    assert asked == [block(1)]


FETCHER = """
import sys, time
from recordmill.pipeline.reader.block_cache import Block, BlockCache
def fetch(block):
    print("begun", flush=True)
    time.sleep(60)
BlockCache(sys.argv[1]).read(Block("s3://set/a.tfrecord", 0, 1000, '"tag"', "d1" * 32), [(0, 1)], fetch)
"""


def test_a_process_that_dies_in_the_middle_is_followed_by_the_next(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", FETCHER, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        asked: list[Block] = []
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(read, BlockCache(str(tmp_path)), 0, asked)
            process.send_signal(signal.SIGKILL)
            waiting.result(timeout=30)
    assert asked == [block(0)]
    assert kept(tmp_path) == [0]


def test_the_blocks_used_longest_ago_are_removed(tmp_path: Path) -> None:
    cache, asked = BlockCache(str(tmp_path), most=5 * SIZE), list[Block]()
    for number in range(5):
        read(cache, number, asked)
        os.utime(path_of(tmp_path, number), (number, number))
    read(cache, 0, asked)  # its use is written down
    read(cache, 5, asked)
    assert kept(tmp_path) == [0, 3, 4, 5]
    assert len(asked) == 6
    read(cache, 1, asked)
    assert len(asked) == 7


@pytest.mark.parametrize("harm", ["removed", "emptied", "all removed"])
def test_what_disappears_is_fetched_again(tmp_path: Path, harm: str) -> None:
    cache, asked = BlockCache(str(tmp_path / "cache")), list[Block]()
    read(cache, 1, asked)
    file = path_of(tmp_path / "cache", 1)
    {"removed": file.unlink, "emptied": lambda: file.write_bytes(b""), "all removed": lambda: None}[harm]()
    if harm == "all removed":
        shutil.rmtree(tmp_path / "cache")
    read(cache, 1, asked)
    assert len(asked) == 2
    read(cache, 1, asked)
    assert len(asked) == 2


def test_removed_while_it_is_fetched(tmp_path: Path) -> None:
    cache, asked = BlockCache(str(tmp_path / "cache")), list[Block]()

    def fetch(each: Block) -> bytes:
        shutil.rmtree(tmp_path / "cache")
        return content(each)

    assert cache.read(block(1), [(SIZE, SIZE + 2)], fetch) == [b"\1\1"]
    read(cache, 1, asked)
    assert len(asked) == 1


def test_removed_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, times, asked = block_cache._check_own, iter(range(9)), list[Block]()

    def removed(folder: int) -> None:
        checked(folder)
        if next(times) < 2:
            shutil.rmtree(tmp_path / "cache")

    with constants(block_cache, _check_own=removed):
        for _ in range(4):
            read(BlockCache(str(tmp_path / "cache")), 1, asked)
    assert kept(tmp_path / "cache") == [1]
    assert asked == [block(1)] * 3


def test_a_full_disk_costs_a_part_of_the_cache(tmp_path: Path) -> None:
    cache, asked = BlockCache(str(tmp_path)), list[Block]()
    for number in range(4):
        read(cache, number, asked)

    def full(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with constants(os, ftruncate=full):
        read(cache, 4, asked)
    assert len(kept(tmp_path)) == 1  # 0.9 of half of four
    read(cache, 4, asked)
    assert asked[4:] == [block(4)] * 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with raises(DatasetError, "file/cache/recordmill-blocks", "cache="):
        BlockCache(str(tmp_path / "file/cache")).read(block(1), [(SIZE, SIZE + 1)], content)


def test_an_unfinished_block_of_long_ago_goes_too(tmp_path: Path) -> None:
    cache, asked = BlockCache(str(tmp_path), most=2 * SIZE), list[Block]()
    read(cache, 1, asked)
    parts = [tmp_path / FOLDER / f"{block(number).name}.part" for number in (8, 9)]
    for part, age in zip(parts, (0, 2 * block_cache.STALE_SECONDS), strict=True):
        part.write_bytes(bytes(SIZE))
        os.utime(part, (time.time() - age, time.time() - age))
    read(cache, 2, asked)
    assert [part.exists() for part in parts] == [True, False]


def test_files_that_are_not_the_caches_stay(tmp_path: Path) -> None:
    """The folder that the user gives is theirs; so is what lies in the cache's own under other names."""
    read(BlockCache(tmp_path, most=2 * SIZE), 0, [])
    others = [tmp_path / "checkpoints/model.pt", tmp_path / "0-9", tmp_path / FOLDER / "notes"]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(b"mine")
        os.utime(other, (0, 0))
    for number in range(9):
        read(BlockCache(tmp_path, most=2 * SIZE), number, [])
    assert [other.read_bytes() for other in others] == [b"mine"] * 3
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / FOLDER / MARK).read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")


@pytest.mark.parametrize("harm", [
    lambda folder: folder.symlink_to(folder.parent / "outside"),
    lambda folder: folder.mkdir() or (folder / "model.pt").write_bytes(b"mine"),
    lambda folder: folder.mkdir(0o755),
    lambda folder: folder.write_bytes(b"mine"),
], ids=["a link", "files", "open to others", "a file"])  # fmt: skip
def test_a_foreign_folder_is_refused(harm: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    harm(tmp_path / FOLDER)
    before = sorted(tmp_path.rglob("*"))
    with raises(DatasetError, str(tmp_path / FOLDER), "cache="):
        BlockCache(tmp_path).read(block(1), [(SIZE, SIZE + 1)], content)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("harm", [
    lambda mark: mark.unlink(),
    lambda mark: mark.unlink() or mark.symlink_to(mark.parents[1]),
    lambda mark: (mark.parents[1] / "copy").hardlink_to(mark),
], ids=["removed", "a link", "a second name"])  # fmt: skip
def test_a_lost_mark_is_restored(harm: Callable[[Path], None], tmp_path: Path) -> None:
    """As `rm -rf` of the folder does it while trainings go on, or a backup by hard links."""
    asked: list[Block] = []
    read(BlockCache(tmp_path), 1, asked)
    harm(tmp_path / FOLDER / MARK)
    for number in (1, 2):
        read(BlockCache(tmp_path), number, asked)
    assert asked == [block(1), block(2)]
    assert kept(tmp_path) == [1, 2]
    assert (tmp_path / FOLDER / MARK).stat().st_nlink == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a folder of another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    read(BlockCache(tmp_path), 1, [])
    os.chown(tmp_path / FOLDER, 65534, 65534)
    with raises(DatasetError, str(tmp_path / FOLDER), "another user's", "cache="):
        BlockCache(tmp_path).read(block(2), [(2 * SIZE, 2 * SIZE + 1)], content)


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, victim: path.symlink_to(victim),
    "dangling link": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "hard link": lambda path, victim: path.hardlink_to(victim),
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
}


@pytest.mark.parametrize("suffix", ["", ".part"])
@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_costs_a_message_and_a_fetch(
    plant: str, suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(BlockCache(tmp_path), 0, [])
    victim, asked, path = tmp_path / "victim", list[Block](), path_of(tmp_path, 1)
    victim.write_bytes(content(block(2)))
    PLANTS[plant](path.with_name(path.name + suffix), victim)
    for _ in range(3):
        read(BlockCache(tmp_path), 1, asked)
    assert len(asked) == {"folder": 3}.get(plant, 1 if not suffix else 2)
    assert f"{path}{suffix}" in caplog.text
    assert victim.read_bytes() == content(block(2))
    assert not victim.with_name("new").exists()


def test_a_lock_that_nobody_releases_costs_a_message_and_a_fetch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(BlockCache(tmp_path), 0, [])
    asked, part = list[Block](), path_of(tmp_path, 1).with_suffix(".part")
    with open(part, "wb") as file, constants(block_cache, PATIENCE_SECONDS=0.1):
        fcntl.flock(file, fcntl.LOCK_EX)
        read(BlockCache(tmp_path), 1, asked)
    assert asked == [block(1)]
    assert str(part) in caplog.text


def test_blocks_of_another_place_or_content_are_others() -> None:
    same = block(1)
    others = [same._replace(path="s3://evil/a.tfrecord"), same._replace(tag="new"), same._replace(sha256="d2" * 32)]
    assert len({each.name for each in (same, *others, block(2))}) == 5
    assert all(re.fullmatch("[0-9a-f]{64}", each.name) for each in others)
    assert same._replace(sha256="../../../.bashrc.d").name != same.name
