"""A version's facts from its manifest and class names, for `show`, report, card and notebook.

Unknown kinds, of a later Recordmill, have no description, and are shown by the manifest's words.

>>> leaks({"groups": 2, "rows": 3, "across": {"train": {"test": 2}}})
'2 rows of test are also in train'
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from recordmill.pipeline.dataset.counts import counted_as
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.manifest import DatasetError, Json, Manifest
from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.dataset.profile import describe_lengths
from recordmill.pipeline.dataset.version import read_vocabulary
from recordmill.pipeline.rows import rejects_of
from recordmill.pipeline.safe_text import count
from recordmill.transforms.base.description import Description, sides_words
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.base.stored import Stored
from recordmill.transforms.images.image_facts import fact_lines, loss_lines


class FeatureFacts(NamedTuple):
    """A feature, in words."""

    name: str
    kind: str
    is_label: bool
    description: Description | None  # None if the kind or an option is unknown
    stored: str  # the stored value: `JPEG 224×224×3`
    learned: Sequence[str]  # statistics, in pieces
    lengths: str  # a text's lengths in ids, and the cost of padding; empty for other kinds

    @property
    def counted(self) -> str:
        """The unit of names' counts: `occurrences` if a record may hold several, else `records`."""
        return "occurrences" if self.description and self.description.is_list else "records"

    @property
    def parts(self) -> Mapping[str, Stored]:
        """Stored tensors by part; empty for an unknown kind."""
        return {} if self.description is None else self.description.parts


class RejectFacts(NamedTuple):
    """Rejects of one reason."""

    reason: str
    rows: int
    examples: Sequence[Json]  # the first entries in the file of rejects


@dataclass(frozen=True)
class VersionFacts:
    """A version's facts; reads files on demand."""

    folder: Location
    manifest: Manifest

    @cached_property
    def features(self) -> Mapping[str, FeatureFacts]:
        """The features, in order."""
        facts = dict[str, FeatureFacts]()
        for name, json in self.manifest.features.items():
            description, statistics, lengths = None, self.manifest.statistics.get(name, {}), ""
            with suppress(DatasetError):
                description = read_description(json)
            if description and (text := description.as_text) and statistics.get("lengths"):
                lengths = describe_lengths(statistics["lengths"], max_length=text.max_length, packed=text.packed)
            learned = tuple(_statistics_words(name, description, statistics))
            sides = sides_words(json["shape"]) if isinstance(json.get("shape"), list) else ""
            stored = description.words() if description else f"{json.get('stored', '')} {sides}".strip()
            named = name, str(json.get("kind")), name == self.manifest.label
            facts[name] = FeatureFacts(*named, description, stored, learned, lengths)
        return facts

    @cached_property
    def classes(self) -> tuple[Sequence[str], Mapping[str, Sequence[int]]] | None:
        """The label's class names and, by split, their counts; None without. Raises: DatasetError: damage."""
        counted = {name: split.label_counts for name, split in self.manifest.splits.items() if split.label_counts}
        label = self.features.get(self.manifest.label or "")
        if not counted or label is None or label.description is None:
            return None
        names = read_vocabulary(self.folder, label.description, label.name)
        known = min(len(names), *map(len, counted.values()))
        return names[:known], {split: counts[:known] for split, counts in counted.items()}

    def rejects(self, examples: int = 0) -> list[RejectFacts]:
        """Returns rejects by reason, the most frequent first, with up to `examples` each. Raises: DatasetError."""
        counts = self.manifest.rejects.get("by_reason", {})
        shown: dict[str, list[Json]] = {reason: [] for reason in counts}
        for reject in rejects_of(self.folder, self.manifest) if examples else ():
            some = shown.setdefault(counted_as(str(reject.get("code")), str(reject.get("message"))), [])
            if len(some) < examples:
                some.append(reject)
        order = sorted(shown, key=lambda reason: (-counts.get(reason, 0), reason))
        return [RejectFacts(reason, counts.get(reason, 0), shown[reason]) for reason in order]


def shown_split(manifest: Manifest) -> str | None:
    """Returns the split to show first: `train`, else the first with records, if any."""
    filled = [name for name, split in manifest.splits.items() if split.records]
    return "train" if "train" in filled else next(iter(filled), None)


def packed_rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Describes the packed rows of all splits, by the first feature of each pack."""
    for place, pack in enumerate(manifest.packs):
        each = [shard.packs[place] for shard in manifest.shards if place < len(shard.packs)]
        rows, ids = sum(index.rows for index in each), sum(index.ids for index in each)
        cut, empty = sum(index.cut for index in each), sum(index.empty for index in each)
        lost = [f"{cut:,} records cut"] * bool(cut) + [f"{empty:,} without ids left out"] * bool(empty)
        waste = 1 - ids / (rows * pack.length) if rows else 0
        packed = f"{rows:,} rows of {pack.length:,} ids ({', '.join(pack.features)}), {waste:.2%} padding"
        yield pack.features[0], "; ".join([packed, *lost])


SHOWN_BOUNDARIES, SHOWN_NAMES = 3, 10
REMEDY = "to learn from the others alone, build without them by `analysis: refresh`"


def _statistics_words(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    """Describes a feature's values, in pieces."""
    ids = description.ids if description else None
    if ids and ids.hashes is not None:
        yield f"{ids.hashes:,} hash buckets"
    elif "words" not in statistics:
        if ids and ids.file is not None:  # a tokenizer's model, or another feature's vocabulary
            yield f"{ids.size:,} ids"
            file = PurePosixPath(ids.file).name
            if file != vocabulary_name(name):
                yield f"shared with {file.removesuffix(vocabulary_name(''))}"
    elif statistics.get("known_tokens") is None:
        yield f"{statistics['words']:,} given"
    elif not statistics["distinct"]:
        yield "no words"
    else:
        yield f"{statistics['words']:,} of {statistics['distinct']:,} distinct"
        if statistics["known_tokens"] < statistics["tokens"]:
            yield f"{statistics['known_tokens'] / statistics['tokens']:.1%} of {statistics['tokens']:,} known"
    if "mean" in statistics:
        yield f"mean {_numbers(statistics['mean'])}"
        yield f"variance {_numbers(statistics['variance'])}"
    if "minimum" in statistics:
        yield f"{_numbers(statistics['minimum'])} to {_numbers(statistics['maximum'])}"
    if "median" in statistics:
        yield f"median {_numbers(statistics['median'])}"
    if (boundaries := getattr(description, "boundaries", None)) is not None:
        buckets = [_numbers(boundary) for boundary in boundaries]
        if len(buckets) > SHOWN_BOUNDARIES + 1:
            buckets[SHOWN_BOUNDARIES:-1] = ["…"]
        yield f"buckets from {' '.join(buckets)}"
    if statistics.get("relative_error"):
        yield f"quantiles within {statistics['relative_error']:.2g}"
    yield from fact_lines(statistics)


def _numbers(value: float | Sequence[float]) -> str:
    return " ".join(f"{each:.6g}" for each in (value if isinstance(value, Sequence) else [value]))


Counts = Mapping[str, Any]
ARE_IN, ARE_LIKE = ("is also in", "are also in"), ("looks like one of", "look like some of")
"""Relation of one row, or of several, to another split."""


def leaks(counts: Counts, verbs: tuple[str, str] = ARE_IN) -> str:
    """Describes rows shared by splits, if any; `counts` as `pipeline.build.duplicates.decisions.published` makes."""
    across = counts.get("across", {}).items()
    pairs = [(first, other, rows) for first, later in across for other, rows in later.items()]
    return ", ".join(f"{count(rows, 'row')} of {other} {verbs[rows > 1]} {first}" for first, other, rows in pairs)


def _keys_across(duplicates: Counts) -> str:
    keys = duplicates.get("keys_across", 0)
    return f"{count(keys, 'key')} stand{'s' if keys == 1 else ''} in several splits" if keys else ""


def loss_warnings(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yields feature and line for each loss of images (`transforms.images.image_facts`)."""
    for name in manifest.features:
        counts = manifest.statistics.get(name, {}).get("losses", {})
        yield from ((name, f"{name}: {line}") for line in loss_lines(counts))


def learned_from_rejects(manifest: Manifest) -> Iterator[str]:
    """Yields a line for each number of rejected rows that features learned from."""
    total, features = manifest.rejects.get("in_statistics", 0), dict[int, list[str]]()
    for name, rows in manifest.rejects.get("learned_from", {"every feature": total} if total else {}).items():
        features.setdefault(rows, []).append(name)
    for rows, names in features.items():
        more = f" and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else ""
        yield f"{', '.join(names[:SHOWN_NAMES])}{more} learned from {count(rows, 'rejected row')}, too: {REMEDY}"


def duplicate_warnings(duplicates: Counts) -> Iterator[str]:
    """Yields lines for the end of a build: duplicates shared by splits."""
    exact, near = leaks(duplicates.get("exact", {})), leaks(duplicates.get("near", {}), ARE_LIKE)
    yield from (line for line in (_keys_across(duplicates), exact, near) if line)


def duplicate_lines(duplicates: Counts) -> Iterator[str]:
    """Yields lines for `show` and the report; examples are indented."""
    if line := _keys_across(duplicates):
        yield line
    if exact := duplicates.get("exact"):
        content = " and ".join(duplicates.get("content", [])) or "content"
        yield from _groups(f"of equal {content}", exact, ARE_IN)
    if near := duplicates.get("near"):
        yield from _groups(f"of images within {near['distance']} bits", near, ARE_LIKE)


def _groups(kind: str, counts: Counts, verbs: tuple[str, str]) -> Iterator[str]:
    if not counts["groups"]:
        yield f"no rows {kind}"
        return
    within = ", ".join(f"{rows:,} within {split}" for split, rows in counts["within"].items())
    groups, others = count(counts["groups"], "group"), count(counts["rows"], "row")
    yield f"{groups} {kind}, {others} beside the first of each{f': {within}' if within else ''}"
    if line := leaks(counts, verbs):
        yield line
    for first, other in counts["examples"]:
        yield f"  {first['key']} ({first['split']}), {other['key']} ({other['split']})"
