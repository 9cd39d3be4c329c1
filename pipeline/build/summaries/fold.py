"""The sum of any number of a summary's tables, in little more memory than the sum itself takes."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.summaries.base import Summary

FOLD_ROWS = 1 << 17  # rows that wait to be added up: some 10 MB of words
TABLE_ROWS = 64  # a table's own objects take the memory of so many rows


def add_tables(summary: Summary[Any], tables: Iterable[pa.Table]) -> pa.Table | None:
    """Adds up tables of a summary; returns None for no tables."""
    fold = Fold(summary)
    for table in tables:
        fold.add(table)
    return fold.sum()


class Fold:
    """Adds up tables as they come, whenever as many rows wait as the sum has, at least `FOLD_ROWS`.

    >>> fold = Fold(summary)        # doctest: +SKIP
    >>> for table in tables:
    ...     fold.add(table)
    >>> fold.sum()
    """

    def __init__(self, summary: Summary[Any]) -> None:
        self._summary = summary
        self._tables: list[pa.Table] = []
        self._waiting = 0
        self.rows = 0
        """The rows of the sum of all tables but those that wait."""

    def add(self, table: pa.Table) -> None:
        """Adds a table."""
        self._tables.append(table)
        self._waiting += table.num_rows + TABLE_ROWS
        if self._waiting > max(FOLD_ROWS, self.rows):
            self.sum()

    def sum(self) -> pa.Table | None:
        """Returns the sum of all tables; None where none was added."""
        if self._waiting:
            self._tables = [self._summary.add(self._tables)]
            self._waiting, self.rows = 0, self._tables[0].num_rows
        return self._tables[0] if self._tables else None
