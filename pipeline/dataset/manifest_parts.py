"""The types of parts of `dataset.json` in `Manifest`, and of spans' reports: a later Recordmill may add keys.

>>> check_parts({"rows": {"read": 3, "written": -1, "rejected": 0}})
Traceback (most recent call last):
...
recordmill.pipeline.errors.DatasetError: rows.written is -1, of another type or out of range
"""
# mypy: disable-error-code="misc, operator, valid-type"

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from itertools import chain
from typing import Any, NotRequired, Required, TypedDict

from recordmill.pipeline.dataset.paths import FeatureName, InnerPath, Sha256, SplitName, Time, VersionName
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import UNKNOWN_FIELDS, Count, parse_json, read_as
from recordmill.pipeline.safe_text import cut

Counts = dict[str, Count]
TOGETHER = (("mean", "variance"), ("minimum", "maximum"), ("known_tokens", "tokens", "distinct"))
"""Statistics of a feature; the first one requires the others."""
WRITTEN_EMPTY = "label_counts statistics rows sources rejects spec provenance sequence files duplicates".split()
"""Fields written even at their default, because the first readers of format 1 require them."""
MOST_BYTES = 1 << 30  # 1 GiB a report: 65,536 shards with profiles of 16 kB
MOST_CONTAINERS = 1 << 23  # lists and objects: 128 of each of these shards
Report = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A part of a version's JSON. Fields with a default may be missing, so a later release can add fields."""

    unknown_fields: dict[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)
    """Fields of a newer Recordmill, kept unchanged when the part is rewritten."""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON, without defaults."""
        written = {}
        for each in (each for each in fields(self) if each.name != UNKNOWN_FIELDS):
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if (value := getattr(self, each.name)) != default or each.name in WRITTEN_EMPTY:
                written[each.name] = value
        return written | self.unknown_fields


@dataclass(frozen=True)
class Pack(Written):
    """Rows of several records, by features with lists of one length in each record."""

    length: Count  # the ids of a row
    features: tuple[FeatureName, ...]
    split: bool = False  # whether a longer record is cut into pieces; otherwise its first `length` ids are a row
    padding: Mapping[FeatureName, int] = field(default_factory=dict)
    """Values after a row's records, where another than 0 or a text's padding."""

    def lost(self, lengths: Any) -> tuple[int, int]:
        """Counts the records cut at `length`, and those without ids, by their numbers of ids."""
        return 0 if self.split else int((lengths > self.length).sum()), int((lengths == 0).sum())


@dataclass(frozen=True)
class PackFile(Written):
    """The index of a pack in a shard."""

    length: Count
    file: InnerPath
    sha256: Sha256
    rows: Count
    pieces: Count
    ids: Count  # the ids in its rows
    cut: Count = 0  # the records cut at `length`
    empty: Count = 0  # the records without ids, in no row

    @property
    def bytes(self) -> int:
        """The bytes of the index."""
        return 4 * (self.rows + 1 + 3 * self.pieces)


def _object(**fields: Any) -> Any:
    """Makes the type of an object with these keys; `NotRequired` ones may be missing."""
    return TypedDict("_object", fields)


def _some(**fields: Any) -> Any:
    return TypedDict("_some", fields, total=False)


_FATES = dict.fromkeys(("read", "written", "rejected", "duplicates", "forgotten"), Count)
_ROWS = _some(**_FATES)
_REJECT_FILE = _some(file=Required[InnerPath], records=Count, bytes=Count, sha256=Sha256)
_REJECTS = _some(by_reason=Counts, in_statistics=Count, learned_from=Counts, files=list[_REJECT_FILE])
_LENGTHS = _object(rows=Count, ids=Count, longest=Count, in_batches=Count, packed_rows=NotRequired[Count])
"""Lengths of a text (`dataset.profile`)."""
_STATISTICS = _some(
    words=Count, distinct=Count, tokens=Count, known_tokens=Count | None, gone=list[str], lengths=_LENGTHS,
    count=Count, images=Count, mean=float | list[float], variance=float | list[float],
    minimum=float, maximum=float, median=float, boundaries=list[float], relative_error=float,
    transcoded=Counts, profiles=Counts, losses=Counts, messages=Counts, ids=Counts,
)  # fmt: skip
"""The statistics of a feature: lists by channel for images, else numbers."""
_ABOUT = _some(
    **dict.fromkeys(("title", "description", "license", "citation", "homepage"), str | None),
    **dict.fromkeys(("creators", "languages", "tags"), list[str]),
)
_SPEC = _some(features=dict[str, dict[str, Any]], about=_ABOUT | None)
_PROVENANCE = _some(
    built_at=Time, packages=dict[str, str], source_key=Sha256, kept_names=Counts, inputs_sha256=Sha256,
    shard_inputs_sha256=list[Sha256], feature_files=dict[str, Sha256], sample_share=float,
    analysis=_object(version=VersionName, graph_sha256=Sha256, label_counts=list[Count]),
    forgotten=_some(keys=Count, keys_sha256=Sha256, source_key=Sha256, learned_of=VersionName),
    user_code=_object(files=dict[InnerPath, Sha256], sha256=NotRequired[Sha256]),
)  # fmt: skip
_RECORD = _object(split=SplitName, key=str)
_GROUPS: dict[str, Any] = {"groups": Count, "rows": Count, "within": Counts, "across": dict[str, Counts]}
_GROUPS |= {"examples": list[tuple[_RECORD, _RECORD]]}
_DUPLICATES = _some(
    action=str, content=list[str], keys_across=Count, exact=_object(**_GROUPS), near=_object(**_GROUPS, distance=Count)
)
_DRIFT_FIGURES = _some(
    images=Count, count=Count, unknown_share=float, unknown_share_before=float, jensen_shannon=float,
    mean_shift=float | list[float],
)  # fmt: skip
_BREACH = _object(rule=str, subject=str, figure=float, limit=float | None, detail=str)
_GATE = _some(live=VersionName, figures=dict[str, dict[str, float]], breaches=list[_BREACH], not_compared=list[str])
_PARTS = {
    "files": dict[str, _object(bytes=Count, sha256=Sha256)],
    "adopted": _some(files=list[str], key=_object(names=list[str], dtype=str)),
    "features": dict[str, Any],
    "statistics": dict[str, _STATISTICS],
    "rows": _ROWS,
    "sources": list[_some(**_FATES, format=str, path=str)],
    "rejects": _REJECTS,
    "spec": _SPEC,
    "provenance": _PROVENANCE,
    "duplicates": _DUPLICATES,
    "drift": _object(against=VersionName, features=dict[str, _DRIFT_FIGURES]),
    "gate": _GATE,
}
_SHARD = _object(
    split=SplitName, records=Count, rejected=Count, transcoded=Counts, lengths=dict[str, _LENGTHS],
    **dict.fromkeys(("at_fault", "profiles", "losses", "label_counts", "written_by_source"), NotRequired[Counts]),
    messages=NotRequired[Counts], ids=NotRequired[Counts],
    more_windows=NotRequired[Count], inputs_sha256=NotRequired[Sha256], packs=NotRequired[list[PackFile]],
)  # fmt: skip
"""The parts of a span's shard read by a later build; `profile` reads its profile."""
_SPAN = _object(sources=dict[str, _ROWS], reasons=Counts, duplicates=_DUPLICATES, shards=list[_SHARD | None])
"""The report of a span, without its shards' profiles."""


def check_parts(manifest: Mapping[str, Any]) -> None:
    """Checks the types of a manifest's nonempty fields, and those that go together. Raises: DatasetError."""
    for name, hint in _PARTS.items():
        if manifest.get(name):
            read_as(manifest[name], hint, name)
    features = manifest.get("features", {})
    for name, statistics in manifest.get("statistics", {}).items():
        kind = str(features.get(name, {}).get("kind"))
        for names in TOGETHER:
            if statistics.get(names[0]) is not None and any(other not in statistics for other in names):
                raise DatasetError(f"statistics.{cut(name)} has `{names[0]}` without {' and '.join(names[1:])}")
        moments = [statistics[moment] for moment in ("mean", "variance") if moment in statistics]
        if any(isinstance(moment, list) != kind.startswith("image") for moment in moments):
            raise DatasetError(f"the mean and variance in statistics.{cut(name)} do not fit a feature of kind {kind}")
        if any(min([0.0, *each] if isinstance(each, list) else [each]) < 0 for each in moments[1:]):
            raise DatasetError(f"statistics.{cut(name)} has a variance below 0")


def read_report(data: bytes) -> Report:
    """Parses the report of a span. Raises: DatasetError: it is invalid."""
    report = parse_json(data, MOST_CONTAINERS)
    shards = report.get("shards") if isinstance(report, dict) else None
    if not isinstance(shards, list) or not all(isinstance(shard, dict | None) for shard in shards):
        raise DatasetError("it has no shards")
    without = [shard and {name: value for name, value in shard.items() if name != "profile"} for shard in shards]
    read_as({**report, "shards": without}, _SPAN, "it")
    numbered = (shard.get(name, ()) for shard in shards if shard for name in ("label_counts", "written_by_source"))
    ids = chain(report["sources"], *numbered)
    if not all(map(str.isdecimal, ids)):
        raise DatasetError("it has sources or labels without numbers")
    return dict(report)
