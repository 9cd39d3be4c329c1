"""Maps in threads, with the results in the items' order and a bounded number of items under way.

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
    """Gives the result of each item; no items give nothing.

    `tf.data` would do the same, but keeps what its generator closes over. The threads end with the iterator, or when it
    is dropped.

    Args:
        function: may be called from several threads.
        items: taken one by one as room is made.
        threads: how many work.
        ahead: how many items are under way at most, two a thread by default.
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
