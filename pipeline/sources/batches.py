"""Batches of what a source reads: few enough to be in memory together."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

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


def cut(items: Iterable[Item], parts: Iterable[slice]) -> Iterator[list[Item]]:
    """Cuts items, which it iterates over once, into parts that follow one another from 0."""
    rest = iter(items)
    return (list(itertools.islice(rest, part.stop - part.start)) for part in parts)


def even_parts(sizes: npt.NDArray[np.int64], limit: int) -> list[slice]:
    """Cuts rows of some sizes, shape [rows], into parts of about equal size: at most `limit`, and one row more."""
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    count = -(-total // limit)
    bounds = np.searchsorted(ends, [total * part // count for part in range(count + 1)], "right")
    bounds = np.unique(bounds).tolist()
    return [slice(start, end) for start, end in itertools.pairwise(bounds)]
