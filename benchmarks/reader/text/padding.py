"""Pads documents with NumPy, for peers that leave it to the user."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def padded(documents: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gives ids, int64 [rows, the longest's length] with zeros at the ends, and the lengths, int64 [rows]."""
    lengths = np.fromiter(map(len, documents), np.int64, len(documents))
    ids = np.zeros((len(documents), lengths.max()), np.int64)
    for row, document in zip(ids, documents, strict=True):
        row[: len(document)] = document
    return ids, lengths


def padded_rows(rows: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Makes a batch of rows `{"text": ids, "label": number}`."""
    ids, lengths = padded([row["text"] for row in rows])
    return ids, lengths, np.array([row["label"] for row in rows])
