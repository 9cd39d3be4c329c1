"""One exact analyzer for the statistics of all numbers and of all images' pixels.

Its report counts the rows that it saw, which the driver reconciles with the rows read.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import apache_beam as beam
import numpy as np

from recordmill.pipeline.build.analysis.exact_sums import Moments, PixelSums
from recordmill.pipeline.build.analysis.quantiles import Histogram
from recordmill.pipeline.dataset.atomic_files import write_report
from recordmill.transforms.tensorflow.kind import RequestedStatistics

Batch = tuple[Any, ...]
Features = Mapping[str, RequestedStatistics]
"""The statistics that each feature needs."""
STATISTICS = ("mean", "scale", "minimum", "range_scale", "median")
"""The first columns of the graph's `transforms.tensorflow.kind.Statistics`; boundaries follow."""


def width(features: Features) -> int:
    """Gives the number of columns for the graph."""
    return len(STATISTICS) + max((wanted.buckets - 1 for wanted in features.values()), default=0)


class AllMoments(beam.PTransform):  # type: ignore[misc]
    """The statistics of every number, mean and variance of every image's pixels."""

    def __init__(self, features: Features, pixels: tuple[str, ...], reports: str) -> None:
        super().__init__()
        self._features = dict(features)
        self._pixels = pixels
        self._reports = reports

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, ...]:
        """Takes tuples (train rows, values…, pixels, sums, squares, …); returns float64 [features + 1, width]."""
        return (
            batches
            | "SumMoments" >> beam.CombineGlobally(SumMoments(self._features, self._pixels))
            | "ReportMoments" >> beam.Map(report_moments, self._features, self._pixels, self._reports),
        )


Sums = tuple[Moments] | tuple[Moments, Histogram]
"""The exact sums of a feature's values; a histogram only for quantiles, because it takes time and memory."""


@dataclass
class MomentsSeen:
    """The sums of a worker so far."""

    rows: int
    values: list[Sums]
    pixels: list[PixelSums]


class SumMoments(beam.CombineFn):  # type: ignore[misc]
    """Adds batches to exact sums."""

    def __init__(self, features: Features, pixels: tuple[str, ...]) -> None:
        self._features = features
        self._pixels = pixels

    def create_accumulator(self) -> MomentsSeen:
        """Gives empty sums."""
        values: list[Sums] = [
            (Moments(), Histogram()) if wanted.median or wanted.buckets > 1 else (Moments(),)
            for wanted in self._features.values()
        ]
        return MomentsSeen(0, values, [PixelSums() for _ in self._pixels])

    def add_input(self, seen: MomentsSeen, batch: Batch) -> MomentsSeen:
        """Adds a batch."""
        rows, *columns = batch
        seen.rows += int(rows.sum())
        pixels = columns[len(self._features) :]
        for sums, values in zip(seen.values, columns, strict=False):
            for part in sums:
                part.add(values)
        for image, pixel_sums in enumerate(seen.pixels):
            pixel_sums.add(*pixels[3 * image : 3 * image + 3])
        return seen

    def merge_accumulators(self, parts: Iterable[MomentsSeen]) -> MomentsSeen:
        """Adds up the sums of several workers."""
        merged = self.create_accumulator()
        for part in parts:
            merged.rows += part.rows
            pairs: Iterable[tuple[Any, Any]] = zip(
                chain(*merged.values, merged.pixels), chain(*part.values, part.pixels), strict=True
            )
            for into, sums in pairs:
                into.merge(sums)
        return merged

    def extract_output(self, seen: MomentsSeen) -> MomentsSeen:
        """The sums themselves."""
        return seen


def report_moments(seen: MomentsSeen, features: Features, pixels: tuple[str, ...], reports: str) -> Any:
    """Reports all statistics; returns those of the numbers for the graph: float64 [features + 1, width]."""
    report: dict[str, Any] = {}
    rows = np.full((len(features) + 1, width(features)), np.inf)  # never empty, which an analysis may not return
    for row, (name, wanted), values in zip(rows, features.items(), seen.values, strict=False):
        report[name] = describe(values, wanted)
        row[: len(STATISTICS)] = [_for_graph(values[0], report[name])[what] for what in STATISTICS]
        boundaries = report[name].get("boundaries", [])
        row[len(STATISTICS) :][: len(boundaries)] = boundaries
    for name, sums in zip(pixels, seen.pixels, strict=True):
        means, variances = sums.mean_and_variance()
        report[name] = {"mean": means, "variance": variances, "images": sums.images}
    write_report(reports, "moments", {"rows": seen.rows, "moments": report})
    return rows


def describe(sums: Sums, wanted: RequestedStatistics) -> dict[str, Any]:
    """Gives the requested statistics, as `dataset.json` holds them."""
    moments, *histograms = sums
    mean, variance = moments.mean_and_variance()
    statistics: dict[str, Any] = {"mean": mean, "variance": variance, "count": moments.count}
    if wanted.extremes:
        statistics["minimum"], statistics["maximum"] = moments.extremes()
    for histogram in histograms:
        statistics |= {"median": histogram.median()} if wanted.median else {}
        statistics |= {"boundaries": histogram.boundaries(wanted.buckets)} if wanted.buckets > 1 else {}
        statistics["relative_error"] = histogram.relative_error
    return statistics


def _for_graph(moments: Moments, statistics: Mapping[str, Any]) -> dict[str, float]:
    minimum, maximum = moments.extremes()
    deviation = math.sqrt(statistics["variance"])
    return {
        "mean": statistics["mean"],
        "scale": 1 / deviation if deviation > 0 else 1.0,
        "minimum": minimum,
        "range_scale": 1 / (maximum - minimum) if maximum > minimum else 1.0,
        "median": statistics.get("median", 0.0),
    }
