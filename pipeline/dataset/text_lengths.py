"""Lengths of texts in ids, and the share of a batch that is padding; counted while shards are built.

>>> measured = measure(np.array([3, 0, 5]))
>>> measured
{'rows': 3, 'ids': 8, 'longest': 5, 'in_batches': 15}
>>> describe(measured, max_length=16)
'mean 2.7 ids, longest 5; padding to 16 wastes 83.3%, padding to the longest of 32 rows wastes 46.7%'
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BATCH = 32  # neighbours that are padded to the longest of them: a usual batch
Lengths = dict[str, int]
"""`rows`, their `ids`, the `longest` row's; `in_batches`: ids and padding of batches of 32 rows in their order, each as
wide as its longest row; of packed texts `packed_rows`, which hold the ids."""


def measure(lengths: npt.NDArray[np.int64]) -> Lengths:
    """Measures a shard's texts by their numbers of ids, int64 of shape [rows], in the rows' order."""
    starts = range(0, len(lengths), BATCH)
    batches = [lengths[start : start + BATCH] for start in starts]
    return {
        "rows": len(lengths),
        "ids": int(lengths.sum()),
        "longest": int(lengths.max(initial=0)),
        "in_batches": sum(len(batch) * int(batch.max()) for batch in batches),
    }


def add_up(measured: Sequence[Lengths]) -> Lengths:
    """Gives the lengths of several shards together, at least one."""
    return {name: (max if name == "longest" else sum)(shard[name] for shard in measured) for name in measured[0]}


def describe(lengths: Lengths, *, max_length: int | None, packed: int | None = None) -> str:
    """Describes the lengths of texts, and for each way to batch them the share that is padding.

    Args:
        lengths: the result of `add_up`.
        max_length: the text's; None for no limit.
        packed: the number of ids of a row of several texts.
    """
    if not lengths["ids"]:
        return "no ids"
    slots = {f"padding to the longest of {BATCH} rows": lengths["in_batches"]}
    if max_length:
        slots = {f"padding to {max_length:,}": lengths["rows"] * max_length} | slots
    if packed and "packed_rows" in lengths:
        slots["packing"] = lengths["packed_rows"] * packed
    wastes = [f"{way} wastes {1 - lengths['ids'] / number:.1%}" for way, number in slots.items() if number]
    mean = lengths["ids"] / (lengths["rows"] or 1)
    return f"mean {mean:.1f} ids, longest {lengths['longest']:,}; {', '.join(wastes)}"
