"""One exact analyzer for the statistics of all numbers and of all images' pixels.

Its report counts the rows that it saw, which the driver reconciles with the rows read.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt

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


@dataclass
class Values:
    """The sums of a feature's values so far."""

    moments: Moments
    histogram: Histogram | None
    """Only for quantiles, because it takes time and memory."""

    @classmethod
    def none(cls, wanted: RequestedStatistics) -> "Values":
        """Gives the sums of no values."""
        return cls(Moments(), Histogram() if wanted.median or wanted.buckets > 1 else None)

    def add(self, values: npt.NDArray[np.float32]) -> None:
        """Adds finite values of any shape."""
        self.moments.add(values)
        if self.histogram is not None:
            self.histogram.add(values)

    def merge(self, other: "Values") -> None:
        """Adds the values of another."""
        self.moments.merge(other.moments)
        if self.histogram is not None and other.histogram is not None:
            self.histogram.merge(other.histogram)


@dataclass
class MomentsSeen:
    """The sums of a worker so far."""

    rows: int
    values: list[Values]
    pixels: list[PixelSums]


class SumMoments(beam.CombineFn):  # type: ignore[misc]
    """Adds batches to exact sums."""

    def __init__(self, features: Features, pixels: tuple[str, ...]) -> None:
        self._features = features
        self._pixels = pixels

    def create_accumulator(self) -> MomentsSeen:
        """Gives empty sums."""
        values = [Values.none(wanted) for wanted in self._features.values()]
        return MomentsSeen(0, values, [PixelSums() for _ in self._pixels])

    def add_input(self, seen: MomentsSeen, batch: Batch) -> MomentsSeen:
        """Adds a batch."""
        rows, *columns = batch
        seen.rows += int(rows.sum())
        pixels = columns[len(self._features) :]
        for into, values in zip(seen.values, columns, strict=False):
            into.add(values)
        for image, sums in enumerate(seen.pixels):
            sums.add(*pixels[3 * image : 3 * image + 3])
        return seen

    def merge_accumulators(self, parts: Iterable[MomentsSeen]) -> MomentsSeen:
        """Adds up the sums of several workers."""
        merged = self.create_accumulator()
        for part in parts:
            merged.rows += part.rows
            for into, values in zip(merged.values, part.values, strict=True):
                into.merge(values)
            for into_pixels, pixels in zip(merged.pixels, part.pixels, strict=True):
                into_pixels.merge(pixels)
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
        row[: len(STATISTICS)] = [_for_graph(values.moments, report[name])[what] for what in STATISTICS]
        boundaries = report[name].get("boundaries", [])
        row[len(STATISTICS) :][: len(boundaries)] = boundaries
    for name, sums in zip(pixels, seen.pixels, strict=True):
        means, variances = sums.mean_and_variance()
        report[name] = {"mean": means, "variance": variances, "images": sums.images}
    write_report(reports, "moments", {"rows": seen.rows, "moments": report})
    return rows


def describe(values: Values, wanted: RequestedStatistics) -> dict[str, Any]:
    """Gives the requested statistics, as `dataset.json` holds them."""
    mean, variance = values.moments.mean_and_variance()
    statistics: dict[str, Any] = {"mean": mean, "variance": variance, "count": values.moments.count}
    if wanted.extremes:
        statistics["minimum"], statistics["maximum"] = values.moments.extremes()
    if values.histogram is not None and wanted.median:
        statistics["median"] = values.histogram.median()
    if values.histogram is not None and wanted.buckets > 1:
        statistics["boundaries"] = values.histogram.boundaries(wanted.buckets)
    return statistics | ({"relative_error": values.histogram.relative_error} if values.histogram is not None else {})


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
