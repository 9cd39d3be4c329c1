"""Numbers and pixels of the train split: mean, variance and extremes; medians and quantiles. Exact in any order.

Quantiles come from histograms (`pipeline.dataset.histogram`). A float32 is a 24-bit integer times a power of two: the
integers and their squares are summed for each exponent, squares in three parts, of the integer's upper and lower 12
bits: sums fit into 64 bits up to 5e11 values of one exponent. Mean and variance are rounded only at the end.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.reports import reject_row
from recordmill.pipeline.build.images.read import PixelMeter, image_reader
from recordmill.pipeline.build.summaries.summary import Summary, add_up, by_feature, prepared, train_rows
from recordmill.pipeline.dataset import profile
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import PIXEL_SUMS, pixel_moments
from recordmill.pipeline.sources.faults import Fault, Reject
from recordmill.transforms.images.image_header import ImageError
from recordmill.transforms.images.image_spec import Image

SUMS = ("count", "total", "high", "cross", "low")
"""The number of values, the sum of their integers, and the sums of the parts' products."""
WAYS = dict.fromkeys(SUMS, "sum") | {"minimum": "min", "maximum": "max"}
EXTREMES = ("minimum", "maximum")
MOMENTS_SCHEMA = pa.schema(
    {"feature": pa.string(), **dict.fromkeys(("exponent", *SUMS), pa.int64()), **dict.fromkeys(EXTREMES, pa.float64())}
)
HISTOGRAM_SCHEMA = pa.schema({"feature": pa.string(), "lost": pa.int64(), "value": pa.int64(), "count": pa.int64()})
ROW_COLUMNS = ("@sample", "@source", "@key", "@chunk", "@position")
LOW = (1 << 32) - 1
Whole = npt.NDArray[np.int64]
KEYS = ("feature", "channel", "level")
"""An image's level is how often the sample can be halved and still hold the image."""
SCHEMA = pa.schema([(KEYS[0], pa.string()), *((name, pa.int64()) for name in (*KEYS[1:], *PIXEL_SUMS))])


def sums(feature: str, values: npt.NDArray[np.float32]) -> pa.Table:
    """Sums finite values of any shape, exactly: a row for each exponent."""
    exact = values.astype(np.float64).ravel() + 0.0  # turns -0 into 0: otherwise their minimum depends on the order
    fractions, exponents = np.frexp(exact)
    mantissas = np.ldexp(fractions, 24).astype(np.int64)
    distinct, which = np.unique(exponents, return_inverse=True)
    high, low = mantissas >> 12, mantissas & 4095
    parts = np.zeros((len(SUMS), len(distinct)), np.int64)
    ones = np.ones_like(mantissas)
    for part, value in zip(parts, (ones, mantissas, high * high, high * low, low * low), strict=True):
        np.add.at(part, which, value)
    extremes = np.full(len(distinct), np.inf), np.full(len(distinct), -np.inf)
    np.minimum.at(extremes[0], which, exact)
    np.maximum.at(extremes[1], which, exact)
    return pa.table([[feature] * len(distinct), distinct.astype(np.int64), *parts, *extremes], schema=MOMENTS_SCHEMA)


def added(tables: Sequence[pa.Table]) -> pa.Table:
    """Adds up tables of `sums`."""
    return add_up([MOMENTS_SCHEMA.empty_table(), *tables], ["feature", "exponent"], WAYS)


def mean_and_variance(summed: pa.Table) -> tuple[float, float]:
    """Returns the mean and the population variance of one feature, rounded once; (0, 1) for no values."""
    rows, count = summed.to_pylist(), sum(summed["count"].to_pylist())
    total, squares = Fraction(), Fraction()
    for row in rows:
        scale = Fraction(2) ** (row["exponent"] - 24)
        total += row["total"] * scale
        squares += ((row["high"] << 24) + (row["cross"] << 13) + row["low"]) * scale * scale
    return profile.mean_and_variance(count, total, squares) if count else (0.0, 1.0)


def extremes(summed: pa.Table) -> tuple[float, float]:
    """Returns the minimum and the maximum of one feature; (0, 0) for no values."""
    least, most = pc.min(summed["minimum"]).as_py(), pc.max(summed["maximum"]).as_py()
    return (least, most) if summed.num_rows else (0.0, 0.0)


class TrainNumbers(Summary[dict[str, dict[str, Any]]]):
    """The train split's numbers, before normalization."""

    @cached_property
    def features(self) -> Mapping[str, Any]:
        return {name: each for name, each in self.planned.features.items() if self.name in each.learns}

    def values(self, rows: pa.Table) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        """Yields the values of each feature, float32 [values]."""
        train = train_rows(self.planned, rows, self.features)
        for name, options in self.features.items():
            values = prepared(options, train[name]).values
            assert values is not None  # noqa: S101 - all learned numbers have them
            yield name, values().numpy()


class Moments(TrainNumbers):
    """Sums the learned numbers of the train split."""

    name = "moments"

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        return pa.concat_tables(sums(*each) for each in self.values(rows))

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        return added(tables)

    def result(self, tables: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
        """Returns `mean`, `variance`, `count`, and the extremes if wanted, in the form of `dataset.json`."""
        summed, found = added(tables), dict[str, dict[str, Any]]()
        for name, options in self.features.items():
            own = summed.filter(pc.equal(summed["feature"], name))
            mean, variance = mean_and_variance(own)
            found[name] = {"mean": mean, "variance": variance, "count": sum(own["count"].to_pylist())}
            if "minimum" in options.used_statistics:
                found[name]["minimum"], found[name]["maximum"] = extremes(own)
        return found


class Quantiles(TrainNumbers):
    """Counts the values of the train split's numbers with medians or quantile buckets."""

    name = "quantiles"

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        return _table({name: Histogram.of(values) for name, values in self.values(rows)})

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up equal values, and makes too many coarser."""
        return _table(self._merged(tables))

    def result(self, tables: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
        """Returns `median` and `boundaries` if wanted, and `relative_error`, in the form of `dataset.json`."""
        merged, found = self._merged(tables), dict[str, dict[str, Any]]()
        for name, options in self.features.items():
            found[name] = {"median": merged[name].median()} if "median" in options.used_statistics else {}
            if options.quantiles is not None:
                found[name]["boundaries"] = merged[name].boundaries(options.quantiles)
            found[name]["relative_error"] = merged[name].relative_error
        return found

    def _merged(self, tables: Sequence[pa.Table]) -> dict[str, Histogram]:
        parts: dict[str, list[Histogram]] = {name: [] for name in self.features}
        for feature, own in by_feature(pa.concat_tables([HISTOGRAM_SCHEMA.empty_table(), *tables])):
            for lost in own["lost"].unique():
                part = own.filter(pc.equal(own["lost"], lost))
                parts[feature].append(Histogram(lost.as_py(), part["value"].to_numpy(), part["count"].to_numpy()))
        return {name: Histogram.merged(several) for name, several in parts.items()}


def _table(histograms: Mapping[str, Histogram]) -> pa.Table:
    tables = [HISTOGRAM_SCHEMA.empty_table()]
    for name, each in histograms.items():
        columns = [[name] * len(each.keys), np.full(len(each.keys), each.lost), each.keys, each.counts]
        tables.append(pa.table(columns, schema=HISTOGRAM_SCHEMA))
    return pa.concat_tables(tables)


class PixelSums(Summary[dict[str, dict[str, Any]]]):
    """Measures images at their final size, before encoding; ignores undecodable ones."""

    name = "pixels"
    rows_at_once = 128

    @cached_property
    def features(self) -> Mapping[str, Image]:
        return self.planned.measured_images()

    @cached_property
    def _meters(self) -> Mapping[str, PixelMeter]:
        reader = image_reader(self.planned)
        return {name: PixelMeter(reader, options) for name, options in self.features.items()}

    def prepare(self) -> None:
        _ = self._meters

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Measures the sampled images; rejects those with a missing file."""
        limit = int(self.planned.sample_share * (1 << 64))
        train = train_rows(self.planned, rows, [*ROW_COLUMNS, *self.features])
        sampled = train.filter(pa.array([hash_ < limit for hash_ in train["@sample"].to_pylist()], pa.bool_()))
        sources, tables = sampled["@source"].to_pylist(), [SCHEMA.empty_table()]
        levels = np.array([64 - hash_.bit_length() for hash_ in sampled["@sample"].to_pylist()], np.int64)
        for name, meter in self._meters.items():
            bad = dict[int, ImageError]()
            pixels, total, squares = meter.measure(sources, sampled[name].to_pylist(), bad.__setitem__)
            if self.features[name].planes:
                total, squares = _halved(total, squares)
            column = self.planned.schema.features[name]
            faults = {row: Fault(error.reason, error.message, column, error.path) for row, error in bad.items()}
            rejects += [reject_row(sampled, row, fault) for row, fault in faults.items() if fault.path]
            for level in np.unique(levels).tolist():
                sums = (each[levels == level].sum(axis=0) for each in (pixels > 0, pixels, total, squares))
                tables.append(_pixel_table(name, level, *sums))
        return pa.concat_tables(tables)

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        return add_up(tables, KEYS, dict.fromkeys(PIXEL_SUMS, "sum"))

    def result(self, tables: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
        """Returns `mean` and `variance` by channel, 0 and 1 without images, and the number of `images`."""
        whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
        lowest = math.floor(-math.log2(self.planned.sample_share))  # level of a sampled image
        sampled = whole.filter(pc.greater_equal(whole["level"], lowest))
        added = add_up([sampled], KEYS[:2], dict.fromkeys(PIXEL_SUMS, "sum")).sort_by("channel")
        own = {name: added.filter(pc.equal(added["feature"], name)).to_pylist() for name in self.features}
        return {name: pixel_moments(own[name], options.channels) for name, options in self.features.items()}


def _halved(total: Whole, squares: Whole) -> tuple[Whole, Whole]:
    """Sums high halves of squares as further channels: the squares of 2 billion uint16 pixels overflow 64 bits."""
    return np.hstack([total, 0 * total]), np.hstack([squares & LOW, squares >> 32])


def _pixel_table(feature: str, level: int, images: Any, pixels: Any, total: Any, squares: Any) -> pa.Table:
    channels = len(total)
    same = ([value] * channels for value in (level, images, pixels))
    return pa.table([[feature] * channels, np.arange(channels), *same, total, squares], schema=SCHEMA)
