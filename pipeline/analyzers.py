"""The exact statistics as tf.Transform analyzers: Beam transforms behind `tft.experimental.ptransform_analyzer`.

All vocabularies are one analyzer and all moments another: an analyzer costs about a second of fixed CPU, a column in
one nothing. Each writes what it saw into the build's reports, which the driver reconciles with what was written.
"""

import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.beam.experimental import PTransformAnalyzer

from pipeline.names import vocabulary_name
from pipeline.reports import attempt_name, write_report
from pipeline.statistics import Counts, Moments, PixelSums, add_counts, most_frequent

BUCKETS = 8  # how many workers can merge the words' counts at once
FLUSH_WORDS = 500_000  # distinct words kept in a bundle: about 100 MB
NO_WORD = b" "  # the only line of a vocabulary without words: TensorFlow opens no empty file, and no word is blank
Batch = tuple[Any, ...]


@dataclass(frozen=True)
class VocabularyOptions:
    """Which words of a feature get an id."""

    name: str
    top_k: int | None = None
    minimum_count: int = 1
    given: tuple[str, ...] | None = None
    """The words themselves, in their order; then nothing is counted."""


@dataclass(frozen=True)
class BeamAnalyzers:
    """The analyzers of a build (`transforms.preprocessing.Analyzers`)."""

    vocabulary_options: Mapping[str, VocabularyOptions]
    reports: str

    def vocabularies(self, tokens: Mapping[str, tf.Tensor], train: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """One analyzer for all vocabularies; it sees each batch's distinct words with their counts."""
        inputs = [tf.reduce_sum(tf.cast(train, tf.int64))[tf.newaxis]]
        for words in tokens.values():
            distinct, _, counts = tf.unique_with_counts(words, out_idx=tf.int64)
            inputs += [distinct, counts]
        options = [self.vocabulary_options[name] for name in tokens]
        paths = tft.experimental.ptransform_analyzer(
            inputs,
            Vocabularies(options, self.reports),
            output_dtypes=[tf.string] * len(options),
            output_shapes=[[]] * len(options),
            output_asset_default_values=[b"not yet analyzed"] * len(options),
            name="vocabularies",
        )
        return dict(zip(tokens, paths, strict=True))

    def moments(
        self, values: Mapping[str, tf.Tensor], pixels: Mapping[str, tuple[tf.Tensor, ...]], train: tf.Tensor
    ) -> Mapping[str, tuple[tf.Tensor, tf.Tensor]]:
        """One analyzer for all moments; its outputs are the mean and scale of each value feature."""
        inputs = [tf.reduce_sum(tf.cast(train, tf.int64))[tf.newaxis], *values.values()]
        inputs += [column for columns in pixels.values() for column in columns]
        (outputs,) = tft.experimental.ptransform_analyzer(
            inputs,
            AllMoments(tuple(values), tuple(pixels), self.reports),
            output_dtypes=[tf.float64],
            output_shapes=[[len(values) + 1, 2]],
            name="moments",
        )
        return {name: (outputs[place, 0], outputs[place, 1]) for place, name in enumerate(values)}


class Vocabularies(PTransformAnalyzer):
    """Counts words exactly and writes one file a vocabulary, a word a line, the most frequent first."""

    def __init__(self, options: list[VocabularyOptions], reports: str) -> None:
        super().__init__()
        self._options = options
        self._reports = reports

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, ...]:
        """Takes tuples (train rows, words, counts, words, counts, …); gives each file's path."""
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
            paths | f"Path{place}" >> beam.Map(lambda all_paths, place=place: np.array(all_paths[place], np.object_))
            for place in range(len(self._options))
        )


Bucket = tuple[int, list[tuple[list[bytes], list[int]]]]
"""How many rows of the train split were seen, and for each vocabulary its words and their counts."""


class CountWords(beam.DoFn):  # type: ignore[misc]
    """Sums the words' counts over a bundle, and gives them out in buckets by the words' checksums."""

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
        for counts, words, how_many in zip(self._counts, columns[::2], columns[1::2], strict=True):
            add_counts(counts, words.tolist(), how_many.tolist())
        if sum(map(len, self._counts)) > FLUSH_WORDS:  # some runners make a bundle of a whole worker's input
            yield from self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        """Gives out what was counted."""
        for element in self._flush():
            yield beam.transforms.window.GlobalWindows.windowed_value(element)

    def _flush(self) -> Iterator[tuple[int, Bucket]]:
        buckets: list[Bucket] = [(0, [([], []) for _ in self._counts]) for _ in range(BUCKETS)]
        for place, counts in enumerate(self._counts):
            for word, count in counts.items():
                words, how_many = buckets[zlib.crc32(word) % BUCKETS][1][place]
                words.append(word)
                how_many.append(count)
        buckets[0] = (self._rows, buckets[0][1])
        yield from enumerate(buckets)
        self.start_bundle()


@dataclass(frozen=True)
class MergedBucket:
    """A bucket's part of every vocabulary, and what was counted in all."""

    rows: int
    frequent: list[list[tuple[int, bytes]]]
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
        [most_frequent(total, o.top_k, o.minimum_count) for total, o in zip(totals, options, strict=True)],
        [len(total) for total in totals],
        [sum(total.values()) for total in totals],
    )


def write_vocabularies(
    _: None, buckets: list[MergedBucket], options: list[VocabularyOptions], folder: str, reports: str
) -> list[str]:
    """Writes every vocabulary into a folder of this attempt's own; gives the files' paths."""
    folder = os.path.join(folder, attempt_name("vocabularies"))
    tf.io.gfile.makedirs(folder)
    report, paths = {}, []
    for place, option in enumerate(options):
        pairs = [pair for bucket in buckets for pair in bucket.frequent[place]]
        best = most_frequent({word: count for count, word in pairs}, option.top_k, option.minimum_count)
        words = [w.encode() for w in option.given] if option.given is not None else [word for _, word in best]
        words = words or [NO_WORD]
        paths.append(os.path.join(folder, vocabulary_name(option.name)))
        with tf.io.gfile.GFile(paths[-1], "wb") as file:
            file.write(b"".join(word + b"\n" for word in words))
        report[option.name] = {
            "words": len(words),
            "distinct": sum(bucket.distinct[place] for bucket in buckets),
            "tokens": sum(bucket.tokens[place] for bucket in buckets),
            "known_tokens": sum(count for count, word in best) if option.given is None else None,
        }
    rows = sum(bucket.rows for bucket in buckets)
    write_report(reports, "vocabularies", {"rows": rows, "vocabularies": report})
    return paths


class AllMoments(beam.PTransform):  # type: ignore[misc]
    """Mean and scale of every number, mean and variance of every image's pixels."""

    def __init__(self, values: tuple[str, ...], pixels: tuple[str, ...], reports: str) -> None:
        super().__init__()
        self._values = values
        self._pixels = pixels
        self._reports = reports

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, ...]:
        """Takes tuples (train rows, values…, pixels, sums, squares, …); gives float64 [values + 1, 2]."""
        return (
            batches
            | "SumMoments" >> beam.CombineGlobally(SumMoments(self._values, self._pixels))
            | "ReportMoments" >> beam.Map(report_moments, self._values, self._pixels, self._reports),
        )


@dataclass
class MomentsSeen:
    """What a worker has seen so far."""

    rows: int
    values: list[Moments]
    pixels: list[PixelSums]


class SumMoments(beam.CombineFn):  # type: ignore[misc]
    """Adds batches to exact sums."""

    def __init__(self, values: tuple[str, ...], pixels: tuple[str, ...]) -> None:
        self._values = values
        self._pixels = pixels

    def create_accumulator(self) -> MomentsSeen:
        """Nothing seen."""
        return MomentsSeen(0, [Moments() for _ in self._values], [PixelSums() for _ in self._pixels])

    def add_input(self, seen: MomentsSeen, batch: Batch) -> MomentsSeen:
        """Adds a batch."""
        rows, *columns = batch
        seen.rows += int(rows.sum())
        pixels = columns[len(self._values) :]
        for moments, values in zip(seen.values, columns, strict=False):
            moments.add(values)
        for place, sums in enumerate(seen.pixels):
            sums.add(*pixels[3 * place : 3 * place + 3])
        return seen

    def merge_accumulators(self, parts: Iterable[MomentsSeen]) -> MomentsSeen:
        """Adds up what several workers saw."""
        merged = self.create_accumulator()
        for part in parts:
            merged.rows += part.rows
            for into, moments in zip(merged.values, part.values, strict=True):
                into.merge(moments)
            for into_pixels, pixels in zip(merged.pixels, part.pixels, strict=True):
                into_pixels.merge(pixels)
        return merged

    def extract_output(self, seen: MomentsSeen) -> MomentsSeen:
        """The sums themselves."""
        return seen


def report_moments(seen: MomentsSeen, values: tuple[str, ...], pixels: tuple[str, ...], reports: str) -> Any:
    """Reports every mean and variance, and gives the graph its means and scales (float64 [values + 1, 2])."""
    report: dict[str, Any] = {}
    rows = []
    for name, moments in zip(values, seen.values, strict=True):
        mean, variance = moments.mean_and_variance()
        report[name] = {"mean": mean, "variance": variance, "count": moments.count}
        rows.append((mean, 1 / math.sqrt(variance) if variance > 0 else 1.0))
    for name, sums in zip(pixels, seen.pixels, strict=True):
        means, variances = sums.mean_and_variance()
        report[name] = {"mean": means, "variance": variances, "images": sums.images}
    write_report(reports, "moments", {"rows": seen.rows, "moments": report})
    return np.array([*rows, (0.0, 1.0)], np.float64)  # never empty: a tensor of no rows is no analysis' output
