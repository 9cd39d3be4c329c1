"""Maps in threads, with results in the items' order and a bounded number of items in flight.

>>> list(in_order(abs, [-1, -2], threads=2, ahead=4))
[1, 2]
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int | None = None
) -> Generator[Result, None, None]:
    """Yields the result of each item; no items give nothing.

    `tf.data` would do the same, but keeps its generator's closure alive. The threads end with the iterator, or when it
    is dropped.

    Args:
        function: called from several threads.
        items: taken one by one as results are consumed.
        threads: the number of threads.
        ahead: the largest number of items in flight, two a thread by default.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= (ahead or 2 * threads):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
