"""Faults of rows, at most one a row, and the rejects that they become; errors of whole sources.

A reject never holds the payload: its message tells at most a value's type and a file's name.

>>> Reject(chunk=0, position=6, reason="wrong_type", message="wanted a number, found a string", column="price").reason
'wrong_type'
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.counts import FILTERED
from recordmill.pipeline.errors import UserError

DUPLICATE = "duplicate_key"
REASONS = {
    "malformed_row": "a line, record, sample or caption breaks its format",
    "invalid_utf8": "a used column holds bytes that are not UTF-8",
    "too_large": "a line, record, text or caption is over 64 MiB (of TFRecord files 1 GiB), a row of CSV or JSON over "
    "8,388,608 separators, an image over `max_bytes`, "
    "its colour profile over 16 MiB, an annotation over 4 MiB, 100,000 boxes or 1,000,000 numbers",
    "missing_value": "a used column is absent, null or, for a category, blank",
    "wrong_type": "a value has the wrong type, is not finite, or is out of its type's range",
    "unequal_lists": "lists that belong together have different lengths, such as words and tags",
    "unknown_split": "the column that decides the split holds an unknown value, or no time",
    "unknown_class": "a mask's value, colour or shape is of no class, neither of `classes` nor `ignore`",
    "unequal_sides": "a mask has other sides than its image",
    "unknown_label": "the label is not among the spec's `classes`",
    "forbidden_path": "a path is absolute, is a URL, or leaves the source's folder, also through a link",
    "unreadable": "the file is missing or could not be read, or a `data:` URL cannot be decoded",
    "damaged_record": "a file of records is damaged: a checksum fails, or it ends inside a record",
    "unsupported_format": "the file is not an image of a supported format",
    "too_many_pixels": "the image's header states more pixels than `max_pixels`",
    "too_slow": "the image would slow a decoder down by too many scans, parts or tags, or exceeds the time limit",
    "undecodable_image": "the image's header is valid, but its pixels are not",
    "unencodable_text": "the model's tokenizer has no token for a part of a text, or fails at it",
    "malformed_chat": "a chat has no messages, an unknown role, or a message without text",
    "template_error": "the chat's template refuses it, as two turns of one role, or takes too many steps",
    "no_trainable_token": "a chat has no token to train on: no turn of the assistant, or none before the cut",
    "separator_in_text": "the first text of a pair holds the token that ends it",
    "uncuttable_pair": "`truncate` names one text of a pair, and the other leaves it no room",
    "unknown_tag": "a word's tag, or a span's label, is not among the `classes` of labels of tokens",
    "tags_out_of_order": "tags break their `scheme`, as I-PER after O",
    "malformed_span": "a span is not in its text, overlaps another, holds no token, or lacks a field",
    DUPLICATE: "another row has the same key; the first by source, path and position stays",
    FILTERED: "the spec's `filter` left the row out; the message is its reason",
}  # every reason code and its meaning; `docs/rejects.md` prints this table
Mask = npt.NDArray[np.bool_]  # selects rows, shape [rows]
Ints = npt.NDArray[np.int64]
Rows = Sequence[int] | npt.NDArray[np.signedinteger[Any]]


class SourceError(UserError):
    """Raised if a source cannot be read at all; the message is one clear line for the user."""


class NoRowError(SourceError):
    """No file of a source holds a row."""


@dataclass(frozen=True, slots=True)
class Reject:
    """One rejected row; the publisher maps `chunk` and `position` (from 0, in the chunk) to a file and a line."""

    chunk: int
    position: int
    reason: str
    message: str
    key: str | None = None
    column: str | None = None
    path: str | None = None
    """The path, in its source, of a missing or unreadable file, perhaps only temporarily so; else None."""
    first_chunk: int | None = None  # the chunk and position of the row that stays, for `duplicate_key`
    first_position: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON object, keyed by the fields' names."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True)
class Fault:
    """A row's fault: a reason code, a message, and the column."""

    reason: str
    message: str
    column: str | None = None
    path: str | None = None  # the path, in its source, of the missing or unreadable file, if that is the fault

    def reject(self, chunk: int, position: int, key: str | None = None, *first: int) -> Reject:
        """Makes the reject of a row; `first` are the chunk and position of the row kept instead."""
        return Reject(chunk, position, self.reason, self.message, key, self.column, self.path, *first)


Faults = dict[int, Fault]  # faults by row; the first stays


def add_faults(faults: Faults, rows: Mask, fault: Fault) -> None:
    """Adds a fault to each selected row without one."""
    for row in np.flatnonzero(rows).tolist():
        faults.setdefault(row, fault)


def add_inner(faults: Faults, inner: Faults, rows: Rows, prefix: str = "") -> None:
    """Adds faults by position to `rows[position]`, with a prefix to their messages; a row keeps its first fault."""
    for position, fault in sorted(inner.items()):
        faults.setdefault(int(rows[position]), replace(fault, message=prefix + fault.message))
