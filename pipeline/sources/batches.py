"""Batches of what a source reads: few enough to be in memory together."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

BLOCK_BYTES = 8 << 20  # 8 MiB
Item = TypeVar("Item")


def batches(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Yields some items at a time: `BLOCK_BYTES` by their sizes or a little more, and at most `most` of them."""
    batch, total = list[Item](), 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= BLOCK_BYTES or len(batch) == most:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
