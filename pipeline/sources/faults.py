"""Faults of rows while they are read together, at most one a row, and the rejects that they become, with a reason.

A reject never holds the payload: its message says of which type a value is, at most, and which file it names.

>>> Reject(chunk=0, position=6, reason="wrong_type", message="wanted a number, found a string", column="price").reason
'wrong_type'
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

DUPLICATE = "duplicate_key"
REASONS = {
    "malformed_row": "a line, a record, a sample or a caption is not what its format says",
    "invalid_utf8": "a column that is used holds bytes that are not UTF-8",
    "too_large": "a line, record, text or caption is over 64 MiB (of TFRecord files 1 GiB), an image over `max_bytes`, "
    "its colour profile over 16 MiB, an annotation over 4 MiB or 100,000 boxes",
    "missing_value": "a column that is used is absent, null or, for a category, blank",
    "wrong_type": "a value is not of its feature's type, not finite, or out of its type's range",
    "unequal_lists": "lists that belong `together` have different lengths",
    "unknown_split": "the column that decides the split holds none of its values, or no time",
    "unknown_label": "the label is not among the spec's `classes`",
    "forbidden_path": "a path is absolute, is a URL, or leaves the source's folder, also through a link",
    "unreadable": "the file is missing or could not be read, or a `data:` URL cannot be decoded",
    "damaged_record": "a file of records is damaged: a checksum does not fit, or it ends in the middle of one",
    "unsupported_format": "the file is no image of a format that is read",
    "too_many_pixels": "the image's header states more pixels than `max_pixels`",
    "too_slow": "the image would hold a decoder up by too many scans, parts or tags, or takes longer than is allowed",
    "undecodable_image": "the image's header is good and its pixels are not",
    DUPLICATE: "another row has the same key; the first by source, path and position stays",
}
"""Every reason code and what it means; `docs/rejects.md` prints this table."""


@dataclass(frozen=True)
class Reject:
    """One row that did not become a record; `reason` is its code.

    `chunk` and `position` (0-based, inside the chunk) say where it was read; the publisher turns them into
    the source's file and, for row formats, the 1-based line.
    """

    chunk: int
    position: int
    reason: str
    message: str
    key: str | None = None
    column: str | None = None
    path: str | None = None
    """The path in its source of a file that was not there or could not be opened: it may only have been away. None
    otherwise."""
    first_chunk: int | None = None
    """The chunk and position of the row that stays, where `reason` is `duplicate_key`."""
    first_position: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the reject as a JSON object with the fields' names as keys."""
        return dict(self.__dict__)


Mask = npt.NDArray[np.bool_]
"""Selects rows, shape [rows]."""
Rows = Sequence[int] | npt.NDArray[np.signedinteger[Any]]
"""Numbers of rows."""


@dataclass(frozen=True)
class Fault:
    """The fault of a row: a reason of `pipeline.sources.faults`, a message, and the column."""

    reason: str
    message: str
    column: str | None = None
    path: str | None = None
    """The path in its source of the file that is not there or cannot be opened, where that is what is wrong."""


Faults = dict[int, Fault]
"""Faults by row; the first one stays."""


def add_faults(faults: Faults, rows: Mask, fault: Fault) -> None:
    """Adds a fault to each of these rows that has none yet."""
    for row in np.flatnonzero(rows).tolist():
        faults.setdefault(row, fault)


def add_inner(faults: Faults, inner: Faults, rows: Rows, prefix: str = "") -> None:
    """Adds the faults of some values, each to its row; of several values of one row the first fault stays.

    `inner` are by the values' positions, `rows` has the row of each position, messages begin with `prefix`.
    """
    for position, fault in sorted(inner.items()):
        faults.setdefault(int(rows[position]), replace(fault, message=prefix + fault.message))
