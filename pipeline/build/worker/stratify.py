"""A split by the classes of a feature: each class is cut by the shares, exact to the row.

A class' keys are sorted by their split hash and cut at the shares, so that a row's split follows from the keys of its
class alone. The bounds of the cuts take the place of those that are the same for all (`key_hash.split_bounds`).
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from recordmill.pipeline.dataset.key_hash import Hashes

END = 1 << 64


def bounds_of(hashes: Hashes, weights: Sequence[float]) -> list[int]:
    """The upper bounds of the splits' ranges of hashes for one class; the last is 2**64.

    Args:
        hashes: the split hashes of the class' keys, in any order, with repeats.
        weights: the splits' shares, in order.
    """
    ordered = np.unique(hashes)
    shares = [round(weight * 1_000_000) for weight in weights]  # integers: exact on every machine
    counts = [(2 * len(ordered) * cumulated + sum(shares)) // (2 * sum(shares)) for cumulated in accumulate(shares)]
    return [int(ordered[count]) if count < len(ordered) else END for count in counts]


def strata(classes: Mapping[str, Hashes], weights: Sequence[float]) -> dict[str, list[int]]:
    """The bounds of each class."""
    return {name: bounds_of(hashes, weights) for name, hashes in sorted(classes.items())}
