"""Reads that begin before they are asked for."""

import threading
from collections import Counter

from recordmill.pipeline.build.images import image_files
from recordmill.pipeline.build.images.image_files import HELD, IN_FLIGHT, ReadAhead
from tests.constants import constants
from tests.messages import raises

NAMES = [(f"{number}",) for number in range(3 * IN_FLIGHT)]


class Reads:
    """A function that counts, and waits for a permit."""

    def __init__(self, permits: int = 10**6) -> None:
        self.counts: Counter[str] = Counter()
        self._permits, self._lock = threading.Semaphore(permits), threading.Lock()

    def __call__(self, name: str) -> bytes:
        with self._lock:
            self.counts[name] += 1
        self._permits.acquire()
        if name == "damaged":
            raise OSError(name)
        return name.encode()

    def permit(self, number: int) -> None:
        self._permits.release(number)


def test_each_is_read_once_by_threads_that_ask_about_in_order() -> None:
    reads = Reads()
    ahead = ReadAhead(reads, iter(NAMES))
    asked = [name for pair in zip(NAMES[1::2], NAMES[::2], strict=True) for name in pair]
    assert [ahead(*each) for each in asked] == [each[0].encode() for each in asked]
    assert max(reads.counts.values()) == 1
    ahead.close()
    assert HELD.bytes == 0


def test_many_are_under_way_before_the_first_has_come() -> None:
    reads = Reads(permits=0)
    ahead = ReadAhead(reads, iter(NAMES))
    begun = threading.Thread(target=ahead, args=NAMES[0])
    begun.start()
    while sum(reads.counts.values()) < IN_FLIGHT:
        pass
    reads.permit(len(NAMES))
    begun.join()
    ahead.close()


def test_an_error_comes_where_it_is_asked_for_and_what_was_passed_over_is_let_go() -> None:
    ahead = ReadAhead(Reads(), [("a",), ("damaged",), ("b",)])
    assert ahead("a") == b"a"
    with raises(OSError, "damaged"):
        ahead("damaged")
    assert ahead("b") == b"b"
    ahead.close()
    ahead = ReadAhead(Reads(), NAMES)
    ahead(*NAMES[5])
    ahead.close()
    ReadAhead(Reads(), []).close()
    assert HELD.bytes == 0


def test_memory_bounds_what_is_begun() -> None:
    with constants(image_files, HELD_BYTES=4):
        reads = Reads()
        ahead = ReadAhead(reads, iter(NAMES))
        while HELD.bytes < 4:
            pass
        held = sum(reads.counts.values())
        assert [ahead(*each) for each in NAMES] == [each[0].encode() for each in NAMES]
        assert held <= IN_FLIGHT
    ahead.close()
    assert HELD.bytes == 0
