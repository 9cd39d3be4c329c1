"""Finds the duplicates in a bucket of fingerprints.

First by key: of the rows of one key in one split, all but the first as read become rejects; they take no part, and go
where the first goes. Then by content: the rows of one content are a cluster, named after its lowest row.

    rows ─ by key ─▶ follow_firsts ─ by content ─▶ members ─▶ counts, decisions, units
"""

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.duplicates.clusters import Rows, find_equal
from recordmill.pipeline.build.duplicates.fingerprints import pairs, values
from recordmill.pipeline.errors import UserError


class DuplicatesError(UserError):
    """The spec says `duplicates: fail`, and there are some; the message gives their number and names the first."""


def follow_firsts(rows: pa.Table) -> pa.Table:
    """Marks the rows whose key is that of an earlier one in their split.

    Args:
        rows: fingerprints with `hash` and `sample`, of all rows of some keys.

    Returns:
        The rows, rising, with `first` (int64): the earlier row, whose content they take over; -1 for most rows.
    """
    rows = rows.sort_by("row")
    keys = pairs(rows, "hash", "sample")
    keys[:, 0] ^= values(rows, "split").astype(np.uint64) << np.uint64(48)
    same, source = find_equal(keys), np.arange(rows.num_rows)
    source[same.rows] = same.names
    first = np.where(source == np.arange(rows.num_rows), -1, values(rows, "row")[source])
    for half in ("high", "low"):
        rows = rows.set_column(rows.schema.get_field_index(half), half, rows[half].take(pa.array(source)))
    return rows.append_column("first", pa.array(first))


def all_take_part(rows: pa.Table) -> pa.Table:
    """Returns the rows as `follow_firsts` does where no key is repeated."""
    return rows.append_column("first", pa.array(np.full(rows.num_rows, -1, np.int64)))


def members(rows: pa.Table, *, alone: bool = False) -> pa.Table:
    """Clusters rows of equal content.

    Args:
        rows: fingerprints with `first`, of all rows of some contents.
        alone: whether rows that equal no other stay, each as its own cluster.

    Returns:
        The rows of clusters, by cluster and row, with `name` (int64), the lowest row of the cluster; `first` is 0 or
        more for those that take no part and follow one that does.
    """
    rows = rows.sort_by("row")
    numbers, first, content = values(rows, "row"), values(rows, "first"), pairs(rows, "high", "low")
    content[first >= 0] = 0
    same, of = find_equal(content), np.full(len(numbers), -1)
    if alone:
        of = np.where(content.any(axis=1), np.arange(len(numbers)), -1)
    of[same.rows] = same.names
    follow = first >= 0
    of[follow] = of[np.searchsorted(numbers, first[follow])]
    inside = np.flatnonzero(of >= 0)
    named = rows.take(pa.array(inside)).append_column("name", pa.array(numbers[of[inside]]))
    return named.sort_by([("name", "ascending"), ("row", "ascending")]).drop_columns(["high", "low"])


def taking_part(rows: pa.Table) -> pa.Table:
    """Leaves out the rows that follow another."""
    return rows.filter(pa.array(values(rows, "first") < 0))


def firsts(taking: pa.Table) -> Rows:
    """Returns each member's index of its cluster's first row: the one of the lowest hash of the key, then row."""
    names = values(taking, "name")
    order = np.lexsort((values(taking, "row"), values(taking, "sample"), values(taking, "hash"), names))
    return order[np.searchsorted(names, names)]  # the clusters lie one after another, before the sorting and after


def count_keys(rows: pa.Table) -> int:
    """Counts the keys of several rows: in finished shards these are in several splits, since a split has a key once."""
    found = find_equal(pairs(rows, "hash", "sample"))
    return int((found.rows == found.names).sum())
