"""Facts from a version's files for its report: distributions, words, rejects, records, and remarks on them.

Fields stay empty for files missing in earlier formats or turned off by the spec.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.dataset.arrow_tables import WORDS, read_table
from recordmill.pipeline.dataset.counts import FILTERED
from recordmill.pipeline.dataset.manifest import DatasetError, Manifest
from recordmill.pipeline.dataset.paths import ADVICE, Location, read_inner
from recordmill.pipeline.dataset.profile import FeatureProfile, Profiles, read_profiles
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.facts.sample import FeatureRoles, RecordSample, ShownRecord, read_sample
from recordmill.pipeline.facts.version import (
    RejectFacts,
    VersionFacts,
    duplicate_warnings,
    learned_from_rejects,
    loss_warnings,
)
from recordmill.pipeline.inspection import raw_image, read_records
from recordmill.pipeline.reader.notebook import data_url, small
from recordmill.pipeline.rows import has_keys
from recordmill.pipeline.versions.base import FORGOTTEN, LEARNED_OF

WORD_BUCKETS = [f"summaries/vocabularies/bucket-{bucket:03d}.arrow" for bucket in range(8)]
MOST_SUMMARY_BYTES = 1 << 30  # per bucket: a vocabulary of some 30 million words
MOST_COUNT = 1 << 40  # of a word; keeps sums within int64
SHOWN_WORDS = 20  # most frequent words of a text, and as many of the rarest
SHOWN_REJECTS = 5  # per reason
DOMINANT = 0.9  # share of one class
UNBALANCED = 100  # times the rarest class' records
MISSING = 0.2
UNKNOWN = 0.05


@dataclass
class WordCounts:
    """Words of a text in the train split, added up by bucket; a word is in one bucket."""

    distinct: int = 0
    once: int = 0  # words occurring once
    total: int = 0
    frequent: Sequence[tuple[str, int]] = ()
    rare: Sequence[tuple[str, int]] = ()

    def add(self, words: pa.Table) -> None:
        """Adds the words of a bucket: columns `word` and `count`."""
        self.distinct += words.num_rows
        self.once += pc.sum(pc.equal(words["count"], 1)).as_py() or 0
        self.total += pc.sum(words["count"]).as_py() or 0
        self.frequent = sorted([*self.frequent, *_first(words, "descending")], key=lambda each: (-each[1], each[0]))
        self.rare = sorted([*self.rare, *_first(words, "ascending")], key=lambda each: (each[1], each[0]))
        self.frequent, self.rare = self.frequent[:SHOWN_WORDS], self.rare[:SHOWN_WORDS]


@dataclass(frozen=True)
class Contents:
    """A version's facts, from its files."""

    facts: VersionFacts
    profiles: Profiles
    vocabularies: Mapping[str, Sequence[str]]
    words: Mapping[str, WordCounts]
    words_are_of_forgotten_rows: bool  # then left out: they may only occur in forgotten rows
    rejects: Sequence[RejectFacts]
    sample: RecordSample | None
    pairs: Mapping[str, Sequence[Sequence[ShownRecord]]]  # duplicates, `exact` and `near`: two records each
    damage: str = ""  # why records could not be read
    reject_images: Mapping[str, str] = field(default_factory=dict)  # decodable ones by file, given the sources

    @property
    def manifest(self) -> Manifest:
        """The version's manifest."""
        return self.facts.manifest

    def by_split(self, name: str) -> dict[str, FeatureProfile]:
        """Returns a feature's profile in each split with rows, in order."""
        profiles = {split: self.profiles.get(split, {}).get(name) for split in self.manifest.splits}
        return {split: profile for split, profile in profiles.items() if profile is not None and profile.rows}


def read_contents(
    dataset: DatasetVersion,
    sources: Path | None = None,
    most_word_bytes: int | None = None,
    label: str | None = None,
) -> Contents:
    """Reads a version's facts, samples one class, if given, and leaves out words of more than `most_word_bytes`.

    Raises: DatasetError: damage, or an unknown class.
    """
    read_records(dataset, label=label)  # raises for an unknown class
    facts = VersionFacts(dataset.folder, dataset.manifest)
    rejects, sample, pairs, damage = facts.rejects(SHOWN_REJECTS), None, dict[str, list[list[ShownRecord]]](), ""
    try:
        sample = read_sample(dataset, label)
        pairs = {kind: list(_pairs(dataset, kind)) for kind in ("exact", "near") if facts.manifest.duplicates.get(kind)}
    except DatasetError as error:
        damage = str(error)
    tables = {name: each.description.ids for name, each in facts.features.items() if each.description}
    are_forgotten = LEARNED_OF in (facts.manifest.provenance.get(FORGOTTEN) or {})
    words = {} if are_forgotten else _word_counts(dataset.folder, facts.manifest, most_word_bytes)
    vocabularies = {name: dataset.vocabulary(name) for name, ids in tables.items() if ids and ids.file}
    files = dict.fromkeys(str(reject.get("file")) for each in rejects for reject in each.examples) if sources else {}
    raw = ((file, raw_image(sources, file)) for file in files if sources)
    images = {file: data_url(small(image)) for file, image in raw if image is not None}
    of_files = read_profiles(dataset.folder) or {}, vocabularies, words, are_forgotten
    return Contents(facts, *of_files, rejects, sample, pairs, damage, images)


def _word_counts(folder: Location, manifest: Manifest, most_bytes: int | None) -> dict[str, WordCounts]:
    """Counts words by feature from a build's sums; holds one bucket at a time."""
    size = sum(manifest.files.get(file, {}).get("bytes", 0) for file in WORD_BUCKETS)
    if most_bytes is not None and size > most_bytes:
        return {}
    counts = dict[str, WordCounts]()
    for file in WORD_BUCKETS:
        if (folder / file).is_file():
            bucket = read_table(folder, file, read_inner(folder, file, MOST_SUMMARY_BYTES), WORDS)
            least, most = pc.min_max(bucket["count"]).as_py().values()
            if bucket["count"].null_count or (bucket.num_rows and not 0 < least <= most < MOST_COUNT):
                raise DatasetError(f"{folder / file} holds no counts of words: {ADVICE}")
            for feature in pc.unique(bucket["feature"]).to_pylist():
                words = bucket.filter(pc.equal(bucket["feature"], feature)).select(["word", "count"])
                counts.setdefault(feature, WordCounts()).add(words)
    return {name: counts[name] for name in manifest.features if name in counts}


def _first(words: pa.Table, way: str) -> Iterator[tuple[str, int]]:
    """Yields the first words by count, one way or the other, then by word."""
    first = words.take(pc.select_k_unstable(words, SHOWN_WORDS, [("count", way), ("word", "ascending")]))
    for word, count in zip(first["word"].to_pylist(), first["count"].to_pylist(), strict=True):
        yield word.decode("utf-8", "replace"), count


def _pairs(dataset: DatasetVersion, kind: str) -> Iterator[list[ShownRecord]]:
    """Yields example pairs of duplicates, if both records are stored."""
    if not has_keys(dataset.manifest):  # packed records lack keys
        return
    roles = FeatureRoles(dataset)
    for pair in dataset.manifest.duplicates[kind].get("examples", []):
        rows = [next(read_records(dataset, row["split"], key=row["key"], limit=1), None) for row in pair]
        records = [record for record in rows if record is not None]
        if len(records) == len(pair):
            yield [roles.example(record) for record in records]


def remarks(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yields remarks, the gravest first, each with the report's section that says more."""
    manifest = contents.manifest
    if contents.damage:
        yield f"No record is shown: {contents.damage}.", "splits"
    if (sample := contents.sample) and not sample.records:
        yield f"No record is shown: {sample.split} has none of the class '{sample.label}'.", "splits"
    yield from ((f"{line}.", "duplicates") for line in duplicate_warnings(manifest.duplicates))
    for breach in manifest.gate.get("breaches", []):
        yield f"{breach['rule']} of {breach['subject']} is beyond its limit: {breach['detail']}.", "changes"
    for name, boxes in contents.sample.boxes.items() if contents.sample else ():
        empty = int((boxes[:, :2] >= boxes[:, 2:]).any(1).sum())
        if empty:
            text = f"{name}: {empty:,} of {len(boxes):,} boxes in the sample have no area."
            yield text, _section(manifest, name)
    for name, split in manifest.splits.items():
        if not split.records:
            yield f"The split {name} has no records.", "splits"
    for text in _label_warnings(contents):
        yield text, _section(manifest, str(manifest.label))
    yield from ((f"{text}.", _section(manifest, name)) for name, text in loss_warnings(manifest))
    for name, feature in contents.facts.features.items():
        profiles, section = contents.by_split(name), _section(manifest, name)
        missing, unknown = lacking(profiles)
        if max(missing.values(), default=0) >= MISSING:
            yield f"{name} is missing in {shares(missing)}.", section
        if max(unknown.values(), default=0) >= UNKNOWN:
            yield f"{name} is out of vocabulary in {shares(unknown)}.", section
        values = profiles["train"].histogram if "train" in profiles else None
        is_text = feature.description is not None and feature.description.as_text
        if values is not None and len(values.keys) == 1 and values.counts.sum() > 1 and not is_text:
            yield f"{name} is the same number in all of train.", section
    if contents.words_are_of_forgotten_rows:
        text = "Forgotten rows are among the counts of features; those of splits, and of the label, are without them."
        yield text, "splits"
    if rejected := sum(n for why, n in manifest.rejects.get("by_reason", {}).items() if not why.startswith(FILTERED)):
        yield f"{rejected:,} of {manifest.rows.get('read', 0):,} rows were rejected.", "rejects"
    yield from ((f"{line}.", "rejects") for line in learned_from_rejects(manifest))


def _section(manifest: Manifest, name: str) -> str:
    return f"feature-{list(manifest.features).index(name)}"


def _label_warnings(contents: Contents) -> Iterator[str]:
    manifest = contents.manifest
    names, train = contents.vocabularies.get(manifest.label or "", ()), manifest.splits.get("train")
    counts = train.label_counts if train else None
    if not counts or len(counts) != len(names) or not sum(counts):
        return
    unseen = [name for name, count in zip(names, counts, strict=True) if not count]
    if unseen:
        shown = ", ".join(unseen[:5]) + (", …" if len(unseen) > 5 else "")
        yield f"No record of train is of {len(unseen):,} of {len(names):,} classes: {shown}."
    largest, least = max(counts), min(count for count in counts if count)
    if largest / sum(counts) >= DOMINANT:
        yield f"{largest / sum(counts):.0%} of train is of one class: {names[counts.index(largest)]}."
    elif largest >= UNBALANCED * least:
        counted = contents.facts.features[manifest.label or ""].counted
        yield f"The largest class has {largest / least:,.0f} times the {counted} of the smallest."


def lacking(profiles: Mapping[str, FeatureProfile]) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the share of rows without a value, and of unknown names or words, each by split."""
    missing = {split: each.missing / each.rows for split, each in profiles.items()}
    return missing, {split: each.unknown / each.tokens for split, each in profiles.items() if each.tokens}


def shares(of_splits: Mapping[str, float], digits: int = 0) -> str:
    """Formats a share of each split: `25% of train, 50% of test`."""
    return ", ".join(f"{share:.{digits}%} of {split}" for split, share in of_splits.items())
