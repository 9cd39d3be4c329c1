"""Faults of rows, while they are read together: at most one a row, the first one found.

>>> faults = Faults()
>>> inner = {2: Fault("wrong_type", "wanted a number, found a string")}
>>> add_inner(faults, inner, rows=[0, 5, 5], prefix="in the list: ")
>>> faults
{5: Fault(reason='wrong_type', message='in the list: wanted a number, found a string', column=None, path=None)}
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
"""Selects rows, shape [rows]."""


Rows = Sequence[int] | npt.NDArray[np.signedinteger[Any]]
"""Numbers of rows."""


@dataclass(frozen=True)
class Fault:
    """The fault of a row: a reason of `pipeline.sources.rejects`, a message, and the column."""

    reason: str
    message: str
    column: str | None = None
    path: str | None = None
    """The full path of the file that is not there or cannot be opened, where that is what is wrong."""


Faults = dict[int, Fault]
"""Faults by row; the first one stays."""


def add_faults(faults: Faults, rows: Mask, fault: Fault) -> None:
    """Adds a fault to each of these rows that has none yet."""
    for row in np.flatnonzero(rows).tolist():
        faults.setdefault(row, fault)


def add_inner(faults: Faults, inner: Faults, rows: Rows, prefix: str = "") -> None:
    """Adds the faults of some values, each to its row; of several values of one row the first fault stays.

    Args:
        faults: where they are added.
        inner: the faults by the values' positions.
        rows: the row of each position.
        prefix: how the messages begin.
    """
    for position, fault in sorted(inner.items()):
        faults.setdefault(int(rows[position]), replace(fault, message=prefix + fault.message))
