"""Blocks on disk: fetched once by threads and processes, whatever dies, fills up or disappears meanwhile."""

import errno
import os
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
from recordmill.pipeline.reader.block_cache import Block, BlockCache
from tests.constants import constants

SIZE = 1000


def block(number: int) -> Block:
    return Block("s3://set/a.tfrecord", number * SIZE, (number + 1) * SIZE, "d1")


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


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("d1/*"))


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
    assert kept(tmp_path) == ["1000-2000"]


def test_what_could_not_be_fetched_leaves_nothing(tmp_path: Path) -> None:
    def fails(each: Block) -> bytes:
        raise DatasetError("cut off")

    cache, asked = BlockCache(str(tmp_path)), list[Block]()
    with pytest.raises(DatasetError, match="cut off"):
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
BlockCache(sys.argv[1]).read(Block("s3://set/a.tfrecord", 0, 1000, "d1"), [(0, 1)], fetch)
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
    assert kept(tmp_path) == ["0-1000"]


def test_the_blocks_used_longest_ago_are_removed(tmp_path: Path) -> None:
    cache, asked = BlockCache(str(tmp_path), most=5 * SIZE), list[Block]()
    for number in range(5):
        read(cache, number, asked)
        os.utime(tmp_path / "d1" / f"{number * SIZE}-{(number + 1) * SIZE}", (number, number))
    read(cache, 0, asked)  # its use is written down
    read(cache, 5, asked)
    assert kept(tmp_path) == ["0-1000", "3000-4000", "4000-5000", "5000-6000"]
    assert len(asked) == 6
    read(cache, 1, asked)
    assert len(asked) == 7


@pytest.mark.parametrize("harm", ["removed", "emptied", "all removed"])
def test_what_disappears_is_fetched_again(tmp_path: Path, harm: str) -> None:
    cache, asked = BlockCache(str(tmp_path / "cache")), list[Block]()
    read(cache, 1, asked)
    file = tmp_path / "cache/d1/1000-2000"
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


def test_removed_while_its_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, times = os.makedirs, iter(range(9))

    def removed(path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        made(path, mode, exist_ok)
        if next(times) < 3:
            shutil.rmtree(tmp_path / "cache")

    monkeypatch.setattr(os, "makedirs", removed)
    read(BlockCache(str(tmp_path / "cache")), 1, [])
    assert len(kept(tmp_path / "cache")) == 1


def test_a_full_disk_costs_a_part_of_the_cache(tmp_path: Path) -> None:
    cache, asked = BlockCache(str(tmp_path)), list[Block]()
    for number in range(4):
        read(cache, number, asked)

    def full(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with constants(block_cache, _write=full):
        read(cache, 4, asked)
    assert len(kept(tmp_path)) == 1  # 0.9 of half of four
    read(cache, 4, asked)
    assert asked[4:] == [block(4)] * 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"the cache .*/file/cache cannot be written .*: name another .* cache="):
        BlockCache(str(tmp_path / "file/cache")).read(block(1), [(SIZE, SIZE + 1)], content)


def test_an_unfinished_block_of_long_ago_goes_too(tmp_path: Path) -> None:
    cache, asked = BlockCache(str(tmp_path), most=2 * SIZE), list[Block]()
    read(cache, 1, asked)
    for name, age in (("0-9.part", 0), ("9-10.part", 2 * block_cache.STALE_SECONDS)):
        (tmp_path / "d1" / name).write_bytes(bytes(SIZE))
        os.utime(tmp_path / "d1" / name, (time.time() - age, time.time() - age))
    read(cache, 2, asked)
    assert "9-10.part" not in kept(tmp_path)
    assert "0-9.part" in kept(tmp_path)
