"""The files that the steps of finding duplicates leave in the workspace: looks, joined clusters, counts, decisions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.context.arrow_files import read_table, write_table
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.steps import chunk_step
from recordmill.pipeline.build.context.workspace import write_report
from recordmill.pipeline.build.duplicates import near, units
from recordmill.pipeline.build.duplicates.counts import Counts, count
from recordmill.pipeline.build.duplicates.find import count_keys


def write_looks(folder: str, planned: PlannedBuild, bucket: int, classes: pa.Table) -> int:
    """Writes the looks of a bucket's clusters; returns their number."""
    table = near.looks_of(classes)
    if table.num_rows:
        write_table(planned.workspace, f"{folder}/looks/{bucket:04d}.arrow", table)
    return int(table.num_rows)


def read_looks(folder: str, planned: PlannedBuild) -> Iterator[pa.Table]:
    """Reads the looks of all buckets, one after another."""
    for name in sorted(planned.workspace.sizes(f"{folder}/looks")):
        yield read_table(planned.workspace, name)


def write_joined(
    name: str, join: Callable[[pa.Table], pa.Table], planned: PlannedBuild, bucket: int, links: pa.Table
) -> str:
    """Joins clusters by all links; returns the file's name."""
    write_table(planned.workspace, name, join(links))
    return name


def with_joined(
    planned: PlannedBuild, step: Callable[[pa.Table, pa.Table | None], Any], table: pa.Table, names: Sequence[str]
) -> Any:
    """Calls a step with a table and the joined clusters; None where none are, and so no file."""
    return step(table, read_table(planned.workspace, names[0]) if names else None)


def write_count(folder: str, planned: PlannedBuild, bucket: int, members: pa.Table) -> int:
    """Writes the counts of a bucket's clusters; returns their number."""
    return _write_count(folder, planned, bucket, count(members))


def write_moved_count(folder: str, planned: PlannedBuild, bucket: int, outlines: pa.Table, names: Sequence[str]) -> int:
    """Writes the counts of a bucket's clusters after the moves; returns their number."""
    return _write_count(folder, planned, bucket, with_joined(planned, units.count_moved, outlines, names))


def _write_count(folder: str, planned: PlannedBuild, bucket: int, counts: Counts) -> int:
    write_report(planned.workspace, f"{folder}/{bucket:04d}", counts.to_json())
    return counts.groups


def write_key_count(folder: str, planned: PlannedBuild, bucket: int, rows: pa.Table) -> int:
    """Writes the number of a bucket's keys that are in several splits, and gives it."""
    number = count_keys(rows)
    write_report(planned.workspace, f"{folder}/{bucket:04d}", {"keys": number})
    return number


def write_decisions(folder: str, order: str, planned: PlannedBuild, chunk: int, decided: pa.Table) -> int:
    """Writes the decisions that concern one chunk, rising by a column; returns the number of rows or units."""
    write_table(
        planned.workspace, f"{folder}/{chunk_step(chunk)}.arrow", decided.drop_columns(["chunk"]).sort_by(order)
    )
    return int(decided.num_rows)


def read_decisions(folder: str | None, planned: PlannedBuild, chunk: int) -> pa.Table | None:
    """Reads them back; None if none concern the chunk, or no folder is given."""
    return None if folder is None else read_table(planned.workspace, f"{folder}/{chunk_step(chunk)}.arrow")
