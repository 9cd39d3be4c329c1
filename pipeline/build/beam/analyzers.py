"""The analyzers of a build, which bring the results of `beam.vocabularies` and `beam.moments` into the graph.

All vocabularies are one analyzer and all moments another, behind `tft.experimental.ptransform_analyzer`: an analyzer
costs about a second of fixed CPU, a column in one nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import tensorflow as tf
import tensorflow_transform as tft

from recordmill.pipeline.build.beam.moments import STATISTICS, AllMoments, width
from recordmill.pipeline.build.beam.vocabularies import Vocabularies, VocabularyOptions
from recordmill.transforms.tensorflow.kind import RequestedStatistics, Statistics


@dataclass(frozen=True)
class BeamAnalyzers:
    """The analyzers of a build (`transforms.tensorflow.preprocessing.Analyzers`)."""

    vocabulary_options: Mapping[str, VocabularyOptions]
    reports: str
    asked: set[str] = field(default_factory=set, compare=False)
    """The analyzers that a graph used so far, by the names of their reports."""

    def vocabularies(self, tokens: Mapping[str, tf.Tensor], train: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Adds one analyzer for all vocabularies, which sees each batch's distinct words with their counts."""
        self.asked.add("vocabularies")
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
        self,
        values: Mapping[str, tuple[tf.Tensor, RequestedStatistics]],
        pixels: Mapping[str, tuple[tf.Tensor, ...]],
        train: tf.Tensor,
    ) -> Mapping[str, Statistics]:
        """Adds one analyzer for all statistics of numbers and pixels, with one output: a row for each value feature."""
        self.asked.add("moments")
        features = {name: wanted for name, (_, wanted) in values.items()}
        inputs = [tf.reduce_sum(tf.cast(train, tf.int64))[tf.newaxis], *(numbers for numbers, _ in values.values())]
        inputs += [column for columns in pixels.values() for column in columns]
        (outputs,) = tft.experimental.ptransform_analyzer(
            inputs,
            AllMoments(features, tuple(pixels), self.reports),
            output_dtypes=[tf.float64],
            output_shapes=[[len(values) + 1, width(features)]],
            name="moments",
        )
        return {name: _statistics(outputs[row], wanted) for row, (name, wanted) in enumerate(features.items())}


def _statistics(row: tf.Tensor, wanted: RequestedStatistics) -> Statistics:
    statistics = {name: row[column] for column, name in enumerate(STATISTICS)}
    return Statistics(**statistics, boundaries=row[len(STATISTICS) :][: wanted.buckets - 1])
