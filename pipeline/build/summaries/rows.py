"""The number of rows that a look saw, by split, which is reconciled with the rows written."""

from collections.abc import Sequence

import pyarrow as pa

from recordmill.pipeline.build.summaries.base import Summary, add_up
from recordmill.pipeline.sources.faults import Reject


class RowsSeen(Summary[dict[str, int]]):
    """Counts keyed rows: a table of `split`, by its position in the layout, and `rows`."""

    name = "rows"
    of_read_rows = True

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Counts the rows."""
        counts = rows["@split"].value_counts()
        return pa.table({"split": counts.field("values"), "rows": counts.field("counts")})

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up the splits' rows."""
        return add_up(tables, ["split"], {"rows": "sum"})

    def result(self, tables: Sequence[pa.Table]) -> dict[str, int]:
        """Returns the rows of every split."""
        counted = {row["split"]: row["rows"] for table in tables for row in table.to_pylist()}
        return {name: counted.get(number, 0) for number, name in enumerate(self.planned.layout.splits)}
