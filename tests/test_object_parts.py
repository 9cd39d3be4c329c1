"""Reads of objects by obstore, and by the store's client where that cannot."""

import sys
from multiprocessing import get_context

import pytest

from recordmill.pipeline.versions.stores.base import TooLargeError
from recordmill.pipeline.versions.stores.parts import TRIES, DirectReads, Part

obstore = pytest.importorskip("obstore")
DATA = bytes(range(10))
TAGS = ('"0"', '"1"')  # obstore's memory counts what it stores


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that obstore is asked for."""
    get, keys = obstore.get, list[str]()
    monkeypatch.setattr(obstore, "get", lambda store, key, **options: keys.append(key) or get(store, key, **options))
    return keys


@pytest.fixture
def reads(asked: list[str]) -> DirectReads:
    store = obstore.store.MemoryStore()
    obstore.put(store, "a b/+%é.bin", DATA)
    obstore.put(store, "empty", b"")
    return DirectReads(store, "e_tag")


@pytest.mark.parametrize(("start", "end"), [(0, None), (3, None), (3, 5), (0, 1), (8, 99)])
def test_a_part_comes_with_the_size_of_the_whole(reads: DirectReads, start: int, end: int | None) -> None:
    assert reads.range("a b/+%é.bin", start, end, None) == Part(DATA[start:end], 10, TAGS[0])
    assert reads.range("empty", 0, None, 10) == Part(b"", 0, TAGS[1])


def test_an_object_that_is_too_large_is_not_read(reads: DirectReads) -> None:
    with pytest.raises(TooLargeError) as error:
        reads.range("a b/+%é.bin", 0, None, 9)
    assert error.value.size == 10


@pytest.mark.parametrize(("key", "start"), [("absent", 0), ("empty", 3)])
def test_what_fails_is_left_to_the_client(reads: DirectReads, asked: list[str], key: str, start: int) -> None:
    assert reads.range(key, start, None, None) is None
    assert asked == [key]


@pytest.mark.parametrize("key", ["a//b", "/a", "empty/", "./empty", "x/../empty", "x/.", "..", ""])
def test_a_key_that_obstore_takes_for_another_is_left_to_the_client(
    reads: DirectReads, asked: list[str], key: str
) -> None:
    assert reads.range(key, 0, None, None) is None
    assert asked == []


@pytest.mark.parametrize("works", [False, True])
def test_a_bucket_that_never_answers_is_left_alone(reads: DirectReads, asked: list[str], works: bool) -> None:
    if works:
        reads.range("empty", 0, None, None)
    for _ in range(TRIES):
        reads.range("absent", 0, None, None)
    asked.clear()
    assert reads.range("absent", 0, None, None) is None
    assert asked == ["absent"] * works


def test_a_fork_leaves_all_to_the_client(reads: DirectReads) -> None:
    assert reads.range("empty", 0, None, None) == Part(b"", 0, TAGS[1])
    forked = get_context("fork").Process(target=lambda: sys.exit(reads.range("empty", 0, None, None) is not None))
    forked.start()
    forked.join(60)
    assert forked.exitcode == 0
