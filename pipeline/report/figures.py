"""All that a version knows of itself, read from its folder into one structure.

A file that an earlier Recordmill did not write, or that a spec turned off, leaves its field empty.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.dataset.arrow_tables import WORDS, read_table
from recordmill.pipeline.dataset.manifest import DatasetError, Json, Manifest
from recordmill.pipeline.dataset.paths import Location, read_inner
from recordmill.pipeline.dataset.profile import Profiles, read_profiles
from recordmill.pipeline.dataset.vocabulary import Ids
from recordmill.pipeline.inspection.records import Record, read_records
from recordmill.pipeline.reader.dataset import Dataset
from recordmill.pipeline.report.raw_files import raw_image
from recordmill.pipeline.report.rejects import read_rejects
from recordmill.pipeline.report.sample import Example, Sample, read_examples, read_sample
from recordmill.pipeline.report.thumbnails import data_url, small
from recordmill.pipeline.rows import is_sorted
from recordmill.pipeline.versions.forgotten import ENTRY as FORGOTTEN
from recordmill.pipeline.versions.forgotten import LEARNED_OF
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description

WORD_BUCKETS = [f"summaries/vocabularies/bucket-{bucket:03d}.arrow" for bucket in range(8)]
MOST_SUMMARY_BYTES = 1 << 30  # of a bucket: a vocabulary of some 30 million words
MOST_COUNT = 1 << 40  # of a word; sums of more would leave int64
SHOWN_WORDS = 20  # the most frequent of a text, and as many of the rarest
SHOWN_REJECTS = 5  # of each reason


@dataclass(frozen=True)
class WordCounts:
    """The words of a text in the train split."""

    distinct: int
    once: int
    """Words that occur once."""
    total: int
    frequent: Sequence[tuple[str, int]]
    rare: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Pair:
    """Two records of the same content, or nearly."""

    first: Example
    second: Example


@dataclass(frozen=True)
class Figures:
    """A version, as far as it is known."""

    manifest: Manifest
    features: Mapping[str, Description | None]
    """None: of a kind that this Recordmill does not know."""
    profiles: Profiles
    vocabularies: Mapping[str, Sequence[str]]
    words: Mapping[str, WordCounts]
    rejects: Mapping[str, Sequence[Json]]
    """The first rejects of each reason, as `rejects.jsonl` has them."""
    sample: Sample | None
    pairs: Mapping[str, Sequence[Pair]]
    """The examples of duplicates: `exact`, `near`."""
    damage: str = ""
    """The reason for which records could not be read."""
    reject_images: Mapping[str, str] = field(default_factory=dict)
    """The images of shown rejects that can be decoded, by the reject's file, where the sources are at hand."""


def read_figures(dataset: Dataset, sources: Path | None = None, most_word_bytes: int | None = None) -> Figures:
    """Reads what a version knows; its images are a small sample, decoded.

    Args:
        dataset: the version.
        sources: the folder of the sources, in which rejects' files are: their images are shown, too.
        most_word_bytes: words are left out where their files are larger than this together; None: never.

    Raises:
        DatasetError: a file beside the shards is missing or damaged.
    """
    manifest, damage, sample, pairs = dataset.manifest, "", None, dict[str, list[Pair]]()
    features = {name: _description(json) for name, json in manifest.features.items()}
    rejects = read_rejects(dataset.folder, manifest, SHOWN_REJECTS)
    try:
        sample = read_sample(dataset)
        pairs = {kind: list(_pairs(dataset, kind)) for kind in ("exact", "near") if manifest.duplicates.get(kind)}
    except DatasetError as error:
        damage = str(error)
    return Figures(
        manifest,
        features,
        read_profiles(dataset.folder) or {},
        {name: dataset.vocabulary(name) for name, each in features.items() if _has_words(each)},
        _word_counts(dataset.folder, manifest, most_word_bytes),
        rejects,
        sample,
        pairs,
        damage,
        {} if sources is None else _reject_images(sources, rejects),
    )


def _reject_images(sources: Path, rejects: Mapping[str, Sequence[Json]]) -> dict[str, str]:
    """Returns the images of rejects that can be decoded, by file, as `data:` URLs."""
    files = dict.fromkeys(str(reject.get("file")) for some in rejects.values() for reject in some)
    images = {file: raw_image(sources, file) for file in files}
    return {file: data_url(small(image)) for file, image in images.items() if image is not None}


def _description(json: Json) -> Description | None:
    with suppress(DatasetError):
        return read_description(json)
    return None


def _has_words(description: Description | None) -> bool:
    return isinstance(description, Ids) and description.vocabulary is not None


def words_are_of_forgotten_rows(manifest: Manifest) -> bool:
    """Whether the version's words were counted before rows were taken out: some may stand in these rows alone."""
    return LEARNED_OF in (manifest.provenance.get(FORGOTTEN) or {})


def _word_counts(folder: Location, manifest: Manifest, most_bytes: int | None) -> dict[str, WordCounts]:
    """Counts words by feature, of the sums that a build kept; one bucket is in memory at a time."""
    size = sum(manifest.files.get(file, {}).get("bytes", 0) for file in WORD_BUCKETS)
    if words_are_of_forgotten_rows(manifest) or (most_bytes is not None and size > most_bytes):
        return {}
    counts = dict[str, _Words]()
    for file in WORD_BUCKETS:
        if (folder / file).is_file():
            bucket = read_table(folder, file, read_inner(folder, file, MOST_SUMMARY_BYTES), WORDS)
            if not _are_counts(bucket["count"]):
                raise DatasetError(f"{folder / file} holds no counts of words: copy the version again, or build again")
            for feature in pc.unique(bucket["feature"]).to_pylist():
                words = bucket.filter(pc.equal(bucket["feature"], feature)).select(["word", "count"])
                counts.setdefault(feature, _Words()).add(words)
    return {name: counts[name].counted() for name in manifest.features if name in counts}


def _are_counts(counts: pa.ChunkedArray) -> bool:
    least, most = pc.min_max(counts).as_py().values()
    return not len(counts) or (not counts.null_count and 0 < least <= most < MOST_COUNT)


@dataclass
class _Words:
    """The counts of a feature's words so far, each word in one bucket, with the first words of both orders."""

    distinct: int = 0
    once: int = 0
    total: int = 0
    frequent: Sequence[pa.Table] = ()
    rare: Sequence[pa.Table] = ()

    def add(self, words: pa.Table) -> None:
        """Adds the words of a bucket."""
        self.distinct += words.num_rows
        self.once += pc.sum(pc.equal(words["count"], 1)).as_py() or 0
        self.total += pc.sum(words["count"]).as_py() or 0
        self.frequent = [_first(pa.concat_tables([*self.frequent, words]), "descending")]
        self.rare = [_first(pa.concat_tables([*self.rare, words]), "ascending")]

    def counted(self) -> WordCounts:
        """Returns the counts of all buckets."""
        frequent, rare = ([row for table in tables for row in _rows(table)] for tables in (self.frequent, self.rare))
        return WordCounts(self.distinct, self.once, self.total, frequent, rare)


def _first(words: pa.Table, way: str) -> pa.Table:
    """Returns the first words by their count, one way or the other, equal counts by the words."""
    return words.take(pc.select_k_unstable(words, SHOWN_WORDS, [("count", way), ("word", "ascending")]))


def _rows(words: pa.Table) -> Iterator[tuple[str, int]]:
    for word, count in zip(words["word"].to_pylist(), words["count"].to_pylist(), strict=True):
        yield word.decode("utf-8", "replace"), count


def _pairs(dataset: Dataset, kind: str) -> Iterator[Pair]:
    """Reads the records of the examples of duplicates that are stored; a dropped one is away."""
    if not is_sorted(dataset.manifest):  # records of several rows have no key
        return
    for pair in dataset.manifest.duplicates[kind].get("examples", []):
        found = [_record(dataset, row) for row in pair]
        records = [record for record in found if record is not None]
        if len(records) == len(pair):
            yield Pair(*read_examples(dataset, records))


def _record(dataset: Dataset, row: Json) -> Record | None:
    return next(read_records(dataset, row["split"], key=row["key"], limit=1), None)
