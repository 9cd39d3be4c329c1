"""Parts of features in records that another program wrote: from the records' features to the parts of ours.

>>> image = Stored("bytes", (), StoredAs(("image/encoded",), "bytes"))
>>> held_features({"image": image})
{'image/encoded': Stored(dtype='bytes', shape=(), held=None)}
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from recordmill.transforms.contract.kinds.base import StoredAs
from recordmill.transforms.contract.stored import Column, Ragged, RowError, Stored


def held_features(parts: Mapping[str, Stored]) -> dict[str, Stored]:
    """Returns the records' own features that parts need; lists where a value may be absent."""
    features = dict[str, Stored]()
    for part, stored in parts.items():
        held = stored.held or StoredAs((part,), stored.dtype)
        is_list = held.optional or held.is_missing or len(held.names) > 1
        for name in held.names:
            shape = None if is_list or name in features else stored.shape
            features[name] = Stored(held.dtype, shape)
    return features


def held_columns(parts: Mapping[str, Stored], features: Mapping[str, Column], rows: int) -> dict[str, Column]:
    """Makes the parts' columns from those of `held_features`.

    Raises: RowError: a record has another number of values than its part, or the four lists of boxes differ in length.
    """
    return {part: _column(part, stored, features, rows) for part, stored in parts.items()}


def _column(part: str, stored: Stored, features: Mapping[str, Column], rows: int) -> Column:
    held = stored.held or StoredAs((part,), stored.dtype)
    if not held.names:
        return np.ones(rows, np.int64)
    if len(held.names) > 1:
        return _boxes(held, features)
    column: Any = features[held.names[0]]
    if held.is_missing:
        return (column.lengths() == 0).astype(np.int64)
    if isinstance(column, Ragged) and stored.shape is not None:
        column = _filled(held, stored.shape, column)
    if held.dtype == stored.dtype:
        return column
    return [b"%d" % number for number in column.tolist()]  # whole numbers as keys


def _boxes(held: StoredAs, features: Mapping[str, Column]) -> Ragged:
    """Joins four lists to boxes."""
    lists: list[Any] = [features[name] for name in held.names]
    splits = lists[0].splits
    for name, other in zip(held.names, lists, strict=True):
        for row in np.flatnonzero(other.lengths() != lists[0].lengths())[:1].tolist():
            counts = f"{lists[0].lengths()[row]} and {other.lengths()[row]} values"
            raise RowError(row, f"the features '{held.names[0]}' and '{name}' hold {counts}, not one for each box")
    return Ragged(np.stack([each.values for each in lists], axis=1).reshape(-1), len(lists) * splits)


def _filled(held: StoredAs, shape: tuple[int, ...], column: Ragged) -> Any:
    """Returns values of one shape; zeros or empty bytes where an optional one is absent."""
    size, lengths = math.prod(shape), column.lengths()
    for row in np.flatnonzero((lengths != size) & ((lengths > 0) | (not held.optional)))[:1].tolist():
        raise RowError(row, f"feature '{held.names[0]}' holds {lengths[row]} values, expected {size}")
    present = lengths > 0
    if held.dtype != "bytes":
        filled = np.zeros((len(lengths), size), column.values.dtype)
        filled[present] = column.values.reshape(-1, size)
        return filled.reshape(len(lengths), *shape)
    values = iter(map(bytes, column.values))
    rows = [[next(values) for _ in range(size)] if has else [b""] * size for has in present.tolist()]
    if shape == ():
        return [row[0] for row in rows]
    return np.array(rows, object).reshape(len(rows), *shape)
