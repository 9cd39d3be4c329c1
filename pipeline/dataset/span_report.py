"""The report of a span's rows, `spans/<span>/report.json`: rows by source, rejects, duplicates, and shards' reports."""

from itertools import chain
from typing import Any, TypedDict

from recordmill.pipeline.dataset.manifest_parts import AllDuplicates, PackedLengths, RowCounts
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, parse_json, read_as

MOST_BYTES = 1 << 30  # 1 GiB: of 65,536 shards with profiles of 16 kB
MOST_CONTAINERS = 1 << 23  # lists and objects: 128 of each of these shards
Report = dict[str, Any]


class ShardReport(TypedDict):
    """A shard of a span, as far as a later build reads it; its profile is read by `profile`."""

    split: str
    records: Count
    transcoded: dict[str, Count]
    lengths: dict[str, PackedLengths]


class _Labels(TypedDict, total=False):
    label_counts: dict[str, Count]


class _CountedShard(ShardReport, _Labels):
    pass


class SpanReport(TypedDict):
    """The report of a span, but for its shards' profiles."""

    sources: dict[str, RowCounts]
    reasons: dict[str, Count]
    duplicates: AllDuplicates
    shards: list[_CountedShard | None]


def read_report(data: bytes) -> Report:
    """Parses the report of a span. Raises: DatasetError: it is something else."""
    report = parse_json(data, MOST_CONTAINERS)
    shards = report.get("shards") if isinstance(report, dict) else None
    if not isinstance(shards, list) or not all(isinstance(shard, dict | None) for shard in shards):
        raise DatasetError("it has no shards")
    without = [shard and {name: value for name, value in shard.items() if name != "profile"} for shard in shards]
    read_as({**report, "shards": without}, SpanReport, "it")
    ids = chain(report["sources"], *(shard.get("label_counts", ()) for shard in shards if shard))
    if not all(map(str.isdecimal, ids)):
        raise DatasetError("it has sources or labels without numbers")
    return dict(report)
