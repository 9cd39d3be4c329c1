"""Describes duplicates: the manifest's entry, and the error of `duplicates: fail`.

The counts of each bucket are a report in the workspace, such as `digests/counts/exact-0003.json`.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.context.arrow_files import read_table
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.steps import shard_step
from recordmill.pipeline.build.context.workspace import Workspace, read_all, read_report
from recordmill.pipeline.build.duplicates.contents import SHARD_CONTENTS, content_features
from recordmill.pipeline.build.duplicates.counts import Counts, add_up
from recordmill.pipeline.build.duplicates.fingerprints import parts_of, values
from recordmill.pipeline.dataset.manifest_words import leaks
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.sources.source_reader import Chunk

COUNTS = "digests/counts"
"""The folder of the counts of records, by bucket."""
NEAR = "reports/duplicates"
"""The report on images that look alike, where the placement has counted them."""
MAX_KEY = 100
Json = dict[str, Any]
Contents = Callable[[int], pa.Table]
"""Reads a file of contents by its number."""


def manifest_entry(planned: PlannedBuild, span: str | None = None) -> Json:
    """Returns the manifest's entry on the duplicates of a build, or of one of its spans, whose records are counted."""
    options, splits, workspace = planned.duplicates, planned.layout.splits, planned.workspace
    buckets = planned.bucket_range(span)
    contents = partial(contents_of_shard, workspace)
    entry: Json = {"action": options.action, "content": content_features(planned.features, planned.schema)}
    entry["keys_across"] = sum(report["keys"] for report in _reports(workspace, f"{COUNTS}/keys", buckets))
    entry["exact"] = published(read_counts(workspace, f"{COUNTS}/exact", buckets), splits, contents)
    if options.near:
        counted = read_report(workspace, NEAR) or published(read_counts(workspace, f"{COUNTS}/near"), splits, contents)
        entry["near"] = {"distance": options.distance, **counted}
    return entry


def contents_of_shard(workspace: Workspace, group: int) -> pa.Table | None:
    """Reads the contents of a shard's records; None if it has none."""
    return read_table(workspace, f"{SHARD_CONTENTS}/{shard_step(group)}.arrow")


def read_counts(workspace: Workspace, name: str, buckets: range | None = None) -> Counts:
    """Adds up the reports of some buckets, by default all: `NAME/0003.json`."""
    return add_up(map(Counts.of_json, _reports(workspace, name, buckets)))


def _reports(workspace: Workspace, name: str, buckets: range | None) -> list[Json]:
    names = [each for each in workspace.sizes(name) if buckets is None or int(PurePath(each).stem) in buckets]
    return [json.loads(data) for _, data in read_all(workspace, names) if data is not None]


def published(counts: Counts, names: Sequence[str], contents: Contents) -> Json:
    """Returns the manifest's entry.

    Args:
        counts: the counts.
        names: the splits.
        contents: reads a file of contents by its number: the columns `row` and `key`.

    Returns:
        `groups`: how many contents occur more than once. `rows`: those beside the first of each. `within`: of each
        split the rows beside the first in it. `across`: by the earlier split and the later, the later's rows whose
        content occurs in the earlier too. `examples`: up to 5 pairs of rows, of two splits where there are any.
    """
    across: dict[str, dict[str, int]] = {}
    for (earlier, later), number in sorted(counts.across.items()):
        across.setdefault(names[earlier], {})[names[later]] = number
    pairs = counts.pairs()
    keys = keys_of([row for pair in pairs for row in (pair.first, pair.second)], contents)

    def example(row: int, split: int) -> Json:
        return {"split": names[split], "key": shown_key(keys[row])}

    return {
        "groups": counts.groups,
        "rows": counts.rows,
        "within": {names[split]: number for split, number in sorted(counts.within.items())},
        "across": across,
        "examples": [
            [example(pair.first, pair.first_split), example(pair.second, pair.second_split)] for pair in pairs
        ],
    }


def keys_of(rows: Sequence[int], contents: Contents) -> dict[int, bytes]:
    """Looks the keys of a few rows up in the files of contents."""
    keys: dict[int, bytes] = {}
    files, _ = parts_of(np.array(rows, np.int64))
    for file in np.unique(files).tolist():
        table = contents(file)
        table = table.filter(pa.array(np.isin(values(table, "row"), rows)))
        keys |= dict(zip(table["row"].to_pylist(), table["key"].to_pylist(), strict=True))
    return keys


def shown_key(key: bytes) -> str:
    """A key for a message: one line, cut at 100 characters."""
    return printable(key.decode("utf-8", "replace")).replace("\n", "\\n").replace("\t", "\\t")[:MAX_KEY]


def refusal(planned: PlannedBuild, chunks: Sequence[Chunk], counts: Counts, contents: Contents) -> str:
    """Returns the message of `fail`, with the first pairs by key and file.

    Args:
        planned: the build.
        chunks: its chunks.
        counts: the counts of its rows.
        contents: reads the contents of a chunk.
    """
    entry = published(counts, planned.layout.splits, contents)
    across = f"; {message}" if (message := leaks(entry)) else ""
    rows = [(pair.first, pair.second) for pair in counts.pairs()]
    keys = keys_of([row for pair in rows for row in pair], contents)
    names = {row: _name(planned, chunks, row, key) for row, key in keys.items()}
    pairs = "".join(f"\n  {names[first]} and {names[second]}" for first, second in rows)
    alike = ", or look like one" if planned.hashed_images() else ""
    return (
        f"{counts.rows:,} rows are equal to another one{alike}, in {counts.groups:,} groups{across}. "
        f"The first pairs:{pairs}\nTake them out of the source, or give `duplicates: drop`, `same_split` or `keep`"
    )


def _name(planned: PlannedBuild, chunks: Sequence[Chunk], row: int, key: bytes) -> str:
    number, position = (int(part) for part in parts_of(np.array(row, np.int64)))
    chunk = chunks[number]
    file, shown = planned.readers[chunk.source].locate(chunk, position)[0], shown_key(key)
    return f"'{shown}'" if shown == file else f"'{shown}' of {shown_key(file.encode())}"
