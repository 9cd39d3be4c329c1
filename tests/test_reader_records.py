"""Records by number: the right bytes from files and object stores, every damage named, nothing left open."""

import errno
import gc
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.reader import local_shards
from recordmill.pipeline.reader.block_cache import Block
from recordmill.pipeline.reader.local_shards import COPIED, reading
from recordmill.pipeline.reader.records import RecordPlace, Records, ShardFile
from recordmill.pipeline.reader.remote import GAP, together
from recordmill.transforms.base.stored import RowError
from tests.constants import constants
from tests.memory_store import MemoryStore, memory_store
from tests.messages import assert_names, raises

SHARDS = [[b"zero", b"", b"two"], [], [b"three"], [bytes(COPIED + 1), b"five" * 100], []]
ALL = [record for records in SHARDS for record in records]
BUCKET = "memory://bucket"


def write(folder: Path, shards: list[list[bytes]] = SHARDS) -> list[ShardFile]:
    written = []
    for number, records in enumerate(shards):
        file, index = str(folder / f"{number}.tfrecord"), str(folder / f"{number}.index")
        with ShardWriter(file, index) as writer:
            writer.write(records)
        written.append(ShardFile(file, index, writer.records, writer.bytes, writer.sha256))
    return written


@pytest.fixture
def shards(tmp_path: Path) -> list[ShardFile]:
    return write(tmp_path)


@pytest.fixture
def remote(shards: list[ShardFile]) -> Iterator[list[ShardFile]]:
    """The shards in a store in memory."""
    with memory_store() as memory:
        for shard in shards:
            memory.objects |= {f"{BUCKET}{path}": Path(path).read_bytes() for path in (shard.file, shard.index)}
        yield [replace(shard, file=BUCKET + shard.file, index=BUCKET + shard.index) for shard in shards]


@pytest.fixture
def at_once(shards: list[ShardFile]) -> Iterator[list[ShardFile]]:
    """The shards, read as many records are."""
    with constants(local_shards, TOGETHER=0):
        yield shards


@pytest.fixture(params=["shards", "at_once", "remote"])
def both(request: pytest.FixtureRequest) -> list[ShardFile]:
    return request.getfixturevalue(request.param)


def read(records: Records, numbers: Any) -> list[bytes]:
    return [bytes(data) for data in records.read(np.array(numbers, np.int64))]


@pytest.mark.parametrize("numbers", [range(6), [5, 0, 3, 3], [1], []])
def test_the_records_asked_for_in_that_order(both: list[ShardFile], numbers: list[int]) -> None:
    with Records(both) as records:
        records.check()
        records.verify()
        assert len(records) == 6
        assert read(records, numbers) == [ALL[number] for number in numbers]
        assert records.sizes(np.array(numbers, np.int64)).tolist() == [len(ALL[number]) for number in numbers]


def test_places(both: list[ShardFile]) -> None:
    records = Records(both)
    assert records.where(2) == RecordPlace(both[0].file, 2, 4 + 16 + 16)
    assert records.where(3) == RecordPlace(both[2].file, 0, 0)
    assert_names(records.where(5), "record 1", both[3].file, f"byte {COPIED + 17:,}")


@pytest.mark.parametrize("number", [-1, 6])
def test_numbers_that_no_record_has(shards: list[ShardFile], number: int) -> None:
    for method in (Records(shards).read, Records(shards).sizes):
        with raises(IndexError, f"record {number}", "0 to 5"):
            method(np.array([0, number]))


def put(path: str, change: Callable[[bytes], bytes | None]) -> None:
    """Changes a file, wherever it is; None removes it."""
    is_remote = path.startswith(BUCKET)
    data = change(MemoryStore.memory.objects.pop(path) if is_remote else Path(path).read_bytes())
    if not is_remote:
        os.remove(path)
    if data is not None and is_remote:
        MemoryStore.memory.objects[path] = data
    elif data is not None:
        Path(path).write_bytes(data)


def flip(byte: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :]


TERABYTE = (1 << 40).to_bytes(8, "little")


@pytest.mark.parametrize(("change", "facts"), [
    (flip(0), ("5 bytes", "index 4")),
    (lambda data: TERABYTE + data[8:], ("1,099,511,627,776 bytes", "index 4")),
    (flip(8), ("checksum of its length",)),
    (flip(12), ("checksum of its data", "4 bytes")),
    (flip(17), ("checksum of its data", "4 bytes")),
])  # fmt: skip
def test_a_damaged_record(both: list[ShardFile], change: Callable[[bytes], bytes], facts: tuple[str, ...]) -> None:
    put(both[0].file, change)
    records = Records(both)
    records.check()
    with raises(RowError, *facts) as error:
        read(records, [3, 2, 0, 1, 0])
    assert error.value.row == 2
    assert read(records, [3, 2, 1]) == [b"three", b"two", b""]
    with raises(DatasetError, both[0].file, both[0].sha256, "build again"):
        records.verify()


def test_a_large_record_is_checked_too(both: list[ShardFile]) -> None:
    put(both[3].file, flip(COPIED))
    with raises(RowError, "checksum of its data") as error:
        read(Records(both), [5, 4])
    assert error.value.row == 1


def offsets(*values: int) -> Callable[[bytes], bytes]:
    return lambda _: np.array(values, "<u8").tobytes()


@pytest.mark.parametrize(("change", "facts"), [
    (offsets(0, 20, 10, 55), ("20 to 10", "55 bytes")),
    (offsets(0, (1 << 64) - 1, 36, 55), ("18,446,744,073,709,551,615 to 36",)),
    (offsets(0, 20, 1 << 50, 55), ("20 to 1,125,899,906,842,624",)),
    (offsets(0, 20, 25, 55), ("20 to 25",)),
    (offsets(0, 1, 36, 55), ("header", "index 19")),
])  # fmt: skip
def test_an_index_of_nonsense(both: list[ShardFile], change: Callable[[bytes], bytes], facts: tuple[str, ...]) -> None:
    put(both[0].index, change)
    with raises(RowError, *facts) as error:
        read(Records(both), [3, 1])
    assert error.value.row == 1
    put(both[0].index, offsets(0, 20, 10, 55))
    with raises(RowError, both[0].index, "20 to 10"):
        Records(both).sizes(np.array([3, 1]))


@pytest.mark.parametrize(("part", "change", "facts"), [
    ("file", lambda _: None, ("missing", "build again")),
    ("index", lambda _: None, ("missing", "build again")),
    ("file", lambda data: data[:-1], ("54 bytes", "expected 55")),
    ("index", lambda data: data + bytes(8), ("40 bytes", "expected 32")),
    ("index", lambda data: data[:-3], ("29 bytes", "expected 32")),
    ("index", offsets(1, 20, 36, 55), ("1 to 55", "0 to 55")),
    ("index", offsets(0, 20, 36, 54), ("0 to 54", "0 to 55")),
])  # fmt: skip
def test_check(both: list[ShardFile], part: str, change: Callable[[bytes], bytes], facts: tuple[str, ...]) -> None:
    path = getattr(both[0], part)
    put(path, change)
    with raises(DatasetError, path, *facts):
        Records(both).check()


@pytest.mark.parametrize("part", ["file", "index"])
def test_a_missing_or_short_file_that_was_not_checked(both: list[ShardFile], part: str) -> None:
    path = getattr(both[0], part)
    put(path, lambda data: data[:-8])
    with raises(DatasetError, path):
        read(Records(both), [0, 2])
    put(path, lambda _: None)
    with raises(DatasetError, path, "missing"):
        read(Records(both), [0, 2])
    put(both[3].file, lambda _: None)
    with raises(DatasetError, both[3].file if part == "index" else path, "missing"):
        Records(both).verify()


def test_no_shards_hold_no_records() -> None:
    with Records([]) as records:
        records.check()
        records.verify()
        assert (len(records), read(records, []), records.sizes(np.array([], np.int64)).tolist()) == (0, [], [])


def maps(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]


def test_maps_are_made_when_they_are_needed_and_let_go(shards: list[ShardFile], tmp_path: Path) -> None:
    records = Records(shards)
    assert maps(tmp_path) == []
    assert read(records, [0, 3]) == [b"zero", b"three"]
    assert len(maps(tmp_path)) == 4  # two shards and their indexes
    records.close()
    assert maps(tmp_path) == []
    large = records.read(np.array([4]))
    gc.disable()
    try:
        del records
        assert len(maps(tmp_path)) == 1  # which the large record shows
        assert bytes(large[0]) == ALL[4]
        del large
        assert maps(tmp_path) == []
    finally:
        gc.enable()


@constants(local_shards, MOST_OPEN=1)
def test_few_maps_at_once(shards: list[ShardFile], tmp_path: Path) -> None:
    records = Records(shards)
    assert read(records, [0, 4, 3, 1, 5]) == [ALL[number] for number in (0, 4, 3, 1, 5)]
    assert len(maps(tmp_path)) == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process(shards: list[ShardFile], method: str) -> None:
    records = Records(shards)
    read(records, [0])
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as processes:
        assert processes.submit(records.read, np.array([5, 0, 3])).result() == [ALL[5], ALL[0], ALL[3]]


def test_a_copy_holds_no_maps(both: list[ShardFile]) -> None:
    records = Records(both)
    read(records, [0])
    assert pickle.dumps(records) == pickle.dumps(Records(both))
    assert read(pickle.loads(pickle.dumps(records)), [5]) == [ALL[5]]


def test_many_threads(shards: list[ShardFile]) -> None:
    records = Records(shards)
    with ThreadPoolExecutor(8) as threads:
        assert all(found == ALL for found in threads.map(lambda _: read(records, range(6)), range(50)))


@pytest.mark.parametrize(("ranges", "merged"), [
    ([], []),
    ([("a", 0, 5), ("a", 5, 9), ("b", 9, 12)], [("a", 0, 9), ("b", 9, 12)]),
    ([("b", 9, 12), ("a", 2, 3), ("a", 0, 5), ("a", 0, 5)], [("a", 0, 5), ("b", 9, 12)]),
    ([("a", 0, 5), ("a", 5 + GAP, 9 + GAP)], [("a", 0, 5), ("a", 5 + GAP, 9 + GAP)]),
    ([("a", 0, 5), ("a", 4 + GAP, 9 + GAP)], [("a", 0, 9 + GAP)]),
])  # fmt: skip
def test_neighbours_are_read_together(ranges: list[Any], merged: list[Any]) -> None:
    def content(block: Block) -> bytes:
        fetched.append(block[:3])
        return bytes(byte % 251 for byte in range(block.start, block.end))

    fetched: list[Any] = []
    spans = [Block(*one, "", "") for one in ranges]
    parts = together(spans, content)
    assert sorted(fetched) == merged
    assert parts == [content(span) for span in spans]


def test_how_often_a_store_is_asked(remote: list[ShardFile]) -> None:
    records, asked = Records(remote), MemoryStore.memory.fetched
    records.check()
    asked.clear()
    assert read(records, [2, 5, 0, 1]) == [ALL[number] for number in (2, 5, 0, 1)]
    assert len(asked) == 2  # once, for one range of the first shard and one of the fourth


def test_too_many_open_files_have_their_own_remedy() -> None:
    with raises(DatasetError, "a.tfrecord", "Too many open files", "`ulimit -n`"), reading("a.tfrecord"):
        raise OSError(errno.EMFILE, "Too many open files")
