"""One exact analyzer for all vocabularies: counts words in Beam, and writes a file for each vocabulary.

Its report counts the rows that it saw, which the driver reconciles with the rows read.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from tensorflow_transform.beam.experimental import PTransformAnalyzer

from recordmill.pipeline.build.analysis.exact_sums import Counts, add_counts, class_names, most_frequent
from recordmill.pipeline.dataset.atomic_files import attempt_name, write_report
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.text import TextOptions

BUCKETS = 8  # so many workers can merge the words' counts at once
FLUSH_WORDS = 500_000  # distinct words kept in a bundle: about 100 MB
NO_WORD = b" "  # the only line of an empty vocabulary: TensorFlow opens no empty file, and no word is blank
Batch = tuple[Any, ...]


@dataclass(frozen=True)
class VocabularyOptions:
    """Chooses the words of a feature that get an id."""

    name: str
    top_k: int | None = None
    minimum_count: int = 1
    given: tuple[str, ...] | None = None
    """The words themselves, in their order; then nothing is counted."""
    kept: tuple[bytes, ...] = ()
    """Words that stand first, in this order, whether they are counted or not."""
    order: str = "frequency"

    @classmethod
    def of(cls, name: str, options: TextOptions | NameOptions) -> "VocabularyOptions":
        """Gives those of a text, or of a feature whose values are names."""
        if isinstance(options, TextOptions):
            size = options.vocabulary if isinstance(options.vocabulary, int) else None
            return cls(name, size, options.minimum_count, options.words)
        kept = tuple(name.encode() for name in options.kept)
        return cls(name, options.max_classes, options.minimum_count, options.classes, kept, options.order)

    def words(self, counts: Mapping[bytes, int]) -> list[bytes]:
        """Gives the words that get an id, in the order of the ids, from all that may."""
        if self.given is not None:
            return [word.encode() for word in self.given]
        frequent = [word for _, word in most_frequent(counts, self.top_k, self.minimum_count)]
        return class_names(frequent, self.kept, self.top_k, self.order)

    def candidates(self, counts: Mapping[bytes, int]) -> list[tuple[int, bytes]]:
        """Gives the (count, word) pairs of a part of the words that can be in the vocabulary of all."""
        frequent = most_frequent(counts, self.top_k, self.minimum_count)
        return list(dict.fromkeys([*frequent, *((counts[word], word) for word in self.kept if word in counts)]))


class Vocabularies(PTransformAnalyzer):
    """Counts words exactly, and writes one file a vocabulary: a word a line, the most frequent first."""

    def __init__(self, options: list[VocabularyOptions], reports: str) -> None:
        super().__init__()
        self._options = options
        self._reports = reports

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, ...]:
        """Takes tuples (train rows, words, counts, words, counts, …); returns each file's path."""
        buckets = (
            batches
            | "CountWords" >> beam.ParDo(CountWords(len(self._options)))
            | "GroupBuckets" >> beam.GroupByKey()
            | "MergeBuckets" >> beam.Map(merge_bucket, self._options)
        )
        paths = (
            batches.pipeline
            | "StartWriting" >> beam.Create([None])
            | "WriteVocabularies"
            >> beam.Map(
                write_vocabularies, beam.pvalue.AsList(buckets), self._options, self.base_temp_dir, self._reports
            )
        )
        return tuple(
            paths | f"Path{index}" >> beam.Map(lambda all_paths, index=index: np.array(all_paths[index], np.object_))
            for index in range(len(self._options))
        )


Bucket = tuple[int, list[tuple[list[bytes], list[int]]]]
"""The number of rows seen of the train split, and the words of each vocabulary with their counts."""


class CountWords(beam.DoFn):  # type: ignore[misc]
    """Sums the words' counts over a bundle, and yields them in buckets by the words' checksums."""

    def __init__(self, vocabularies: int) -> None:
        self._vocabularies = vocabularies

    def start_bundle(self) -> None:
        """Begins empty."""
        self._rows = 0
        self._counts: list[Counts] = [{} for _ in range(self._vocabularies)]

    def process(self, batch: Batch) -> Iterator[tuple[int, Bucket]]:
        """Adds a batch."""
        rows, *columns = batch
        self._rows += int(rows.sum())
        for counts, words, repeats in zip(self._counts, columns[::2], columns[1::2], strict=True):
            add_counts(counts, words.tolist(), repeats.tolist())
        if sum(map(len, self._counts)) > FLUSH_WORDS:  # some runners make a bundle of a whole worker's input
            yield from self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        """Yields the counts."""
        for element in self._flush():
            yield beam.transforms.window.GlobalWindows.windowed_value(element)

    def _flush(self) -> Iterator[tuple[int, Bucket]]:
        buckets: list[Bucket] = [(0, [([], []) for _ in self._counts]) for _ in range(BUCKETS)]
        for index, counts in enumerate(self._counts):
            for word, count in counts.items():
                words, repeats = buckets[zlib.crc32(word) % BUCKETS][1][index]
                words.append(word)
                repeats.append(count)
        buckets[0] = (self._rows, buckets[0][1])
        yield from enumerate(buckets)
        self.start_bundle()


@dataclass(frozen=True)
class MergedBucket:
    """A bucket's part of every vocabulary, and the total counts."""

    rows: int
    candidates: list[list[tuple[int, bytes]]]
    distinct: list[int]
    tokens: list[int]


def merge_bucket(bucket: tuple[int, Iterable[Bucket]], options: list[VocabularyOptions]) -> MergedBucket:
    """Adds up one bucket's counts and keeps the words that can be in a vocabulary."""
    rows, totals = 0, [Counts() for _ in options]
    for part_rows, columns in bucket[1]:
        rows += part_rows
        for total, (words, counts) in zip(totals, columns, strict=True):
            add_counts(total, words, counts)
    return MergedBucket(
        rows,
        [option.candidates(total) for total, option in zip(totals, options, strict=True)],
        [len(total) for total in totals],
        [sum(total.values()) for total in totals],
    )


def write_vocabularies(
    _: None, buckets: list[MergedBucket], options: list[VocabularyOptions], folder: str, reports: str
) -> list[str]:
    """Writes every vocabulary into a folder of this attempt's own; returns the files' paths."""
    into = Path(folder, attempt_name("vocabularies"))
    into.mkdir(parents=True)
    report: dict[str, dict[str, Any]] = {}
    paths = []
    for index, option in enumerate(options):
        counts = {word: count for bucket in buckets for count, word in bucket.candidates[index]}
        words = option.words(counts) or [NO_WORD]
        path = into / vocabulary_name(option.name)
        path.write_bytes(b"".join(word + b"\n" for word in words))
        paths.append(str(path))
        report[option.name] = {
            "words": len(words),
            "distinct": sum(bucket.distinct[index] for bucket in buckets),
            "tokens": sum(bucket.tokens[index] for bucket in buckets),
            "known_tokens": sum(counts.get(word, 0) for word in words) if option.given is None else None,
        }
        if option.kept and option.given is None:
            report[option.name]["gone"] = [word.decode() for word in option.kept if word not in counts]
    rows = sum(bucket.rows for bucket in buckets)
    write_report(reports, "vocabularies", {"rows": rows, "vocabularies": report})
    return paths
