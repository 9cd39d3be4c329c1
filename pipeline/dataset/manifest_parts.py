"""The types of what is read of a version's JSON: the parts of `dataset.json` in `Manifest`, and spans' reports.

A part may be empty, and a later Recordmill may write further keys.

>>> check_parts({"rows": {"read": 3, "written": -1, "rejected": 0}})
Traceback (most recent call last):
...
recordmill.pipeline.errors.DatasetError: rows.written is -1, of another type or out of range
"""

import typing
from collections.abc import Mapping
from itertools import chain
from typing import Any, TypedDict

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, parse_json, read_as
from recordmill.pipeline.safe_text import cut

Counts = dict[str, Count]
TOGETHER = (("mean", "variance"), ("minimum", "maximum"), ("known_tokens", "tokens", "distinct"))
"""The statistics of a feature that are read together."""


class RowCounts(TypedDict, total=False):
    """The rows of all sources, or of a span."""

    read: Count
    written: Count
    rejected: Count
    duplicates: Count
    forgotten: Count


class SourceJson(RowCounts, total=False):
    """The rows of one source."""

    format: str
    path: str


class _File(TypedDict):
    file: str


class RejectFile(_File, total=False):
    """A file of rejected rows."""

    records: Count
    bytes: Count
    sha256: str


class RejectsJson(TypedDict, total=False):
    """Rejected rows."""

    by_reason: Counts
    in_statistics: Count
    files: list[RejectFile]


class Lengths(TypedDict):
    """Lengths of a text, as `dataset.profile` counts them."""

    rows: Count
    ids: Count
    longest: Count
    in_batches: Count


class PackedLengths(Lengths, total=False):
    """Lengths of a text that may be packed."""

    packed_rows: Count


class StatisticsJson(TypedDict, total=False):
    """The statistics of a feature: lists by channel for images, else numbers."""

    words: Count
    distinct: Count
    tokens: Count
    known_tokens: Count | None
    gone: list[str]
    lengths: PackedLengths
    count: Count
    images: Count
    mean: float | list[float]
    variance: float | list[float]
    minimum: float
    maximum: float
    median: float
    boundaries: list[float]
    relative_error: float
    transcoded: Counts
    profiles: Counts


class AboutJson(TypedDict, total=False):
    """A dataset in words."""

    title: str | None
    description: str | None
    license: str | None
    citation: str | None
    homepage: str | None
    creators: list[str]
    languages: list[str]
    tags: list[str]


class SpecJson(TypedDict, total=False):
    """The spec as it was."""

    features: dict[str, dict[str, Any]]
    about: AboutJson | None


class Analysis(TypedDict):
    """The version that a graph was taken over from."""

    version: str
    graph_sha256: str
    label_counts: list[Count]


class UserCodeJson(TypedDict):
    """The user's own functions."""

    files: dict[str, str]


Materialized = TypedDict("Materialized", {"from": list[str], "at": str}, total=False)
"""The versions whose files were copied, and the time."""


class Provenance(TypedDict, total=False):
    """The origin of a version."""

    built_at: str
    packages: dict[str, str]
    source_key: str
    kept_names: Counts
    inputs_sha256: str
    analysis: Analysis
    forgotten: dict[str, Any]
    user_code: UserCodeJson
    feature_files: dict[str, str]
    sample_share: float
    materialized: Materialized


class RecordJson(TypedDict):
    """A record."""

    split: str
    key: str


class DuplicatesJson(TypedDict):
    """Groups of rows of one content."""

    groups: Count
    rows: Count
    within: Counts
    across: dict[str, Counts]
    examples: list[tuple[RecordJson, RecordJson]]


class NearDuplicates(DuplicatesJson):
    """Groups of rows whose images look alike."""

    distance: Count


class AllDuplicates(TypedDict, total=False):
    """Duplicates, within splits and across."""

    action: str
    content: list[str]
    keys_across: Count
    exact: DuplicatesJson
    near: NearDuplicates


class DriftFigures(TypedDict, total=False):
    """The drift of a feature: lists by channel for images, else numbers."""

    images: Count
    count: Count
    unknown_share: float
    unknown_share_before: float
    jensen_shannon: float
    mean_shift: float | list[float]


class Drift(TypedDict):
    """The distance from the rows that a graph was learned from."""

    against: str
    features: dict[str, DriftFigures]


class Breach(TypedDict):
    """A figure of the gate above its limit."""

    rule: str
    subject: str
    figure: float
    limit: float | None
    detail: str


class GateJson(TypedDict, total=False):
    """The figures of the gate."""

    live: str
    figures: dict[str, dict[str, float]]
    breaches: list[Breach]
    not_compared: list[str]


class Parts(TypedDict, total=False):
    """The parts, by name."""

    features: dict[str, Any]
    statistics: dict[str, StatisticsJson]
    rows: RowCounts
    sources: list[SourceJson]
    rejects: RejectsJson
    spec: SpecJson
    provenance: Provenance
    duplicates: AllDuplicates
    drift: Drift
    gate: GateJson


def check_parts(manifest: Mapping[str, Any]) -> None:
    """Refuses parts of other types than they are read as.

    Args:
        manifest: the fields of a manifest; those that are empty are left alone.

    Raises:
        DatasetError: a value has another type, is out of range, or lacks what belongs to it.
    """
    for name, hint in typing.get_type_hints(Parts, include_extras=True).items():
        if manifest.get(name):
            read_as(manifest[name], hint, name)
    features = manifest.get("features", {})
    for name, statistics in manifest.get("statistics", {}).items():
        _check_statistics(name, statistics, str(features.get(name, {}).get("kind")))


def _check_statistics(name: str, statistics: Mapping[str, Any], kind: str) -> None:
    for names in TOGETHER:
        if statistics.get(names[0]) is not None and any(other not in statistics for other in names):
            raise DatasetError(f"statistics.{cut(name)} has `{names[0]}` without {' and '.join(names[1:])}")
    moments = [statistics[moment] for moment in ("mean", "variance") if moment in statistics]
    if any(isinstance(moment, list) != kind.startswith("image") for moment in moments):
        raise DatasetError(f"the mean and variance in statistics.{cut(name)} are not those of a feature of kind {kind}")
    for variance in moments[1:]:
        if min([0.0, *variance] if isinstance(variance, list) else [variance]) < 0:
            raise DatasetError(f"statistics.{cut(name)} has a variance below 0")


MOST_BYTES = 1 << 30  # 1 GiB a report: of 65,536 shards with profiles of 16 kB
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
