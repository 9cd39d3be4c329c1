"""Decides in the driver on the duplicates that the pass before the job found: keep, drop, move or refuse.

It writes the workers' files into the build's folder, and gives the decisions that name these files.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.row_schema import RowDecisions
from recordmill.pipeline.build.duplicates.clusters import Clusters, Rows, find_equal
from recordmill.pipeline.build.duplicates.contents import Contents
from recordmill.pipeline.build.duplicates.counts import NEAR, count_duplicates, example_pairs, shown_key
from recordmill.pipeline.build.duplicates.decisions import Places, write_dropped, write_moved
from recordmill.pipeline.build.duplicates.find import DuplicatesError, Found, find, moved_splits
from recordmill.pipeline.dataset.atomic_files import write_report
from recordmill.pipeline.dataset.duplicate_messages import leaks
from recordmill.pipeline.sources.base import Chunk


def choose(
    planned: PlannedBuild, before: RowDecisions, chunks: Sequence[Chunk], contents: Contents, folder: str
) -> RowDecisions:
    """Decides on the duplicates; gives the decisions with those of before.

    Args:
        planned: the build; its `duplicates` is not `keep`.
        before: the decisions that the contents' rows follow.
        chunks: its chunks.
        contents: those of all chunks, in order, with `unit`, `chunk` and `position` of each row.
        folder: where the workers' file is written.

    Raises:
        DuplicatesError: there are duplicates, and the spec says `fail`.
    """
    options, compared = planned.duplicates, bool(planned.hashed_images())
    # The rows of one key in one split: all but the first as read become rejects, and none of these takes part.
    repeated = find_equal(contents.places_in_splits, contents.rows)
    left_out = np.sort(repeated.rows[repeated.rows != repeated.names])
    found = find(contents, options.distance if compared else None, left_out)
    if options.action == "fail" and found.clusters.count:
        raise DuplicatesError(_refusal(planned, chunks, contents, found))
    path, after, decisions = os.path.join(folder, f"{options.action}.arrow"), found, before
    if options.action == "same_split":
        after, decisions = _write_moved(path, contents, found), replace(before, moved=path)
    if options.action == "drop":
        _write_dropped(path, contents, found, repeated)
        after, decisions = Found.none(), replace(before, dropped=path)
    if compared:
        write_report(planned.path("reports"), NEAR, count_duplicates(after, planned.layout.splits, contents))
    return decisions


def _write_moved(path: str, contents: Contents, found: Found) -> Found:
    """Writes the units that move to another split; returns the duplicates after the move."""
    units = _column(contents, "unit", found.clusters.rows).astype(np.uint64)
    splits = moved_splits(found, units)
    moves = splits != found.splits
    moved, rows = np.unique(units[moves], return_index=True)
    write_moved(path, moved, splits[moves][rows])
    return replace(found, splits=splits)


def _write_dropped(path: str, contents: Contents, found: Found, repeated: Clusters) -> None:
    """Writes the rows that are not the first of their cluster, and those that have the key of such a row."""
    dropped = found.clusters.rows[found.firsts != np.arange(len(found.clusters.rows))]
    again = (repeated.rows != repeated.names) & np.isin(repeated.names, dropped)
    firsts = np.concatenate([np.full((len(dropped), 2), -1), _places(contents, repeated.names[again])])
    write_dropped(path, _places(contents, np.concatenate([dropped, repeated.rows[again]])), firsts)


def _places(contents: Contents, rows: Rows) -> Places:
    return np.stack([_column(contents, name, rows).astype(np.int64) for name in ("chunk", "position")], axis=1)


def _column(contents: Contents, name: str, rows: Rows) -> npt.NDArray[Any]:
    return contents.take(name, rows).to_numpy() if len(rows) else np.empty(0, np.int64)


def _refusal(planned: PlannedBuild, chunks: Sequence[Chunk], contents: Contents, found: Found) -> str:
    counts = count_duplicates(found, planned.layout.splits, contents)
    across = f"; {message}" if (message := leaks(counts)) else ""
    pairs = "".join(f"\n  {first} and {second}" for first, second in _pairs(planned, chunks, contents, found))
    alike = ", or look like one" if planned.hashed_images() else ""
    return (
        f"{counts['rows']:,} rows are equal to another one{alike}, in {counts['groups']:,} groups{across}. "
        f"The first pairs:{pairs}\nTake them out of the source, or give `duplicates: drop`, `same_split` or `keep`"
    )


def _pairs(planned: PlannedBuild, chunks: Sequence[Chunk], contents: Contents, found: Found) -> list[tuple[str, str]]:
    """Gives the first pairs by key and file."""
    pairs = np.array(example_pairs(found), np.int64)
    rows = found.clusters.rows[pairs.ravel()]
    keys, places = contents.take("key", rows).to_pylist(), _places(contents, rows).tolist()
    named = [_name(planned, chunks[chunk], position, key) for key, (chunk, position) in zip(keys, places, strict=True)]
    return list(zip(named[::2], named[1::2], strict=True))


def _name(planned: PlannedBuild, chunk: Chunk, position: int, key: bytes) -> str:
    file, shown = planned.sources[chunk.source].locate(chunk, position)[0], shown_key(key)
    return f"'{shown}'" if shown == file else f"'{shown}' of {shown_key(file.encode())}"
