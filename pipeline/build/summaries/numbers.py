"""Numbers of the train split: mean, variance and extremes; medians and quantiles. Exact in any order.

Quantiles come from histograms (`pipeline.dataset.histogram`). Mean and variance are not rounded before the end (as
`math.fsum`).

A float32 is a 24-bit integer times a power of two: the integers and their squares are summed for each exponent. The
squares are summed in three parts, of the integer's upper and lower 12 bits, so that no sum leaves 64 bits below 5e11
values of one exponent.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.summaries.summary import Summary, add_up, prepared, train_rows
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.contract.kinds.number import NumberOptions
from recordmill.transforms.tensorflow.kind import RequestedStatistics
from recordmill.transforms.tensorflow.number import requested

SUMS = ("count", "total", "high", "cross", "low")
"""The number of values, the sum of their integers, and those of the parts' products."""
WAYS = dict.fromkeys(SUMS, "sum") | {"minimum": "min", "maximum": "max"}
MOMENTS_SCHEMA = pa.schema(
    [
        ("feature", pa.string()),
        ("exponent", pa.int64()),
        *((name, pa.int64()) for name in SUMS),
        ("minimum", pa.float64()),
        ("maximum", pa.float64()),
    ]
)
HISTOGRAM_SCHEMA = pa.schema({"feature": pa.string(), "lost": pa.int64(), "value": pa.int64(), "count": pa.int64()})


def sums(feature: str, values: npt.NDArray[np.float32]) -> pa.Table:
    """Sums finite values of any shape, exactly: a row for each exponent that is there."""
    exact = values.astype(np.float64).ravel() + 0.0  # which of 0 and -0 is the lesser one depends on their order
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
    """Returns the mean and the population variance of one feature, rounded once; (0, 1) where nothing was seen."""
    rows, count = summed.to_pylist(), sum(summed["count"].to_pylist())
    total, squares = Fraction(), Fraction()
    for row in rows:
        scale = Fraction(2) ** (row["exponent"] - 24)
        total += row["total"] * scale
        squares += ((row["high"] << 24) + (row["cross"] << 13) + row["low"]) * scale * scale
    return rounded(count, total, squares) if count else (0.0, 1.0)


def rounded(count: int, total: Fraction | int, squares: Fraction | int) -> tuple[float, float]:
    """Returns the mean and the population variance of a sum and a sum of squares."""
    mean = Fraction(total) / count
    return float(mean), float(Fraction(squares) / count - mean * mean)


def extremes(summed: pa.Table) -> tuple[float, float]:
    """Returns the minimum and the maximum of one feature; (0, 0) where nothing was seen."""
    least, most = pc.min(summed["minimum"]).as_py(), pc.max(summed["maximum"]).as_py()
    return (least, most) if summed.num_rows else (0.0, 0.0)


class Moments(Summary[dict[str, dict[str, Any]]]):
    """Sums the numbers of the train split that something is learned from."""

    name = "moments"

    @property
    def is_needed(self) -> bool:
        """Whether there are such features."""
        return bool(self.features)

    @cached_property
    def features(self) -> Mapping[str, NumberOptions]:
        """The features that are summed, with their options."""
        return learned_numbers(self.planned.features)

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Sums the values, as they are before they are normalized."""
        train = train_rows(self.planned, rows, self.features)
        return pa.concat_tables(sums(name, values_of(options, train[name])) for name, options in self.features.items())

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up the exponents' sums."""
        return added(tables)

    def result(self, tables: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
        """Returns `mean`, `variance`, `count`, and the extremes where they are wanted, as `dataset.json` holds them."""
        summed, found = added(tables), dict[str, dict[str, Any]]()
        for name, options in self.features.items():
            own = summed.filter(pc.equal(summed["feature"], name))
            mean, variance = mean_and_variance(own)
            found[name] = {"mean": mean, "variance": variance, "count": sum(own["count"].to_pylist())}
            if requested(options).extremes:
                found[name]["minimum"], found[name]["maximum"] = extremes(own)
        return found


def learned_numbers(features: Mapping[str, Any]) -> dict[str, NumberOptions]:
    """Returns the numbers that something is learned from, with their options."""
    numbers = {name: options for name, options in features.items() if isinstance(options, NumberOptions)}
    return {name: options for name, options in numbers.items() if options.is_learned}


def values_of(options: NumberOptions, column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Returns the values that a number's statistics are of, float32 of shape [values]."""
    values = prepared(options, column).values
    assert values is not None  # noqa: S101 - as all that are learned from have
    return values().numpy()  # type: ignore[no-any-return]


class Quantiles(Summary[dict[str, dict[str, Any]]]):
    """Counts the values of the train split's numbers that medians or quantile buckets are wanted of."""

    name = "quantiles"

    @property
    def is_needed(self) -> bool:
        """Whether there are such features."""
        return bool(self.features)

    @cached_property
    def features(self) -> Mapping[str, RequestedStatistics]:
        """The features that are counted, with the statistics that are wanted."""
        numbers = learned_numbers(self.planned.features)
        wanted = {name: requested(options) for name, options in numbers.items()}
        return {name: each for name, each in wanted.items() if each.median or each.buckets > 1}

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Counts the values, as they are before they are normalized."""
        train, numbers = train_rows(self.planned, rows, self.features), learned_numbers(self.planned.features)
        histograms = {name: Histogram.of(values_of(numbers[name], train[name])) for name in self.features}
        return _table(histograms)

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up equal values, and makes them coarser where there are too many."""
        return _table(self._merged(tables))

    def result(self, tables: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
        """Returns `median` and `boundaries` where wanted, and `relative_error`, as `dataset.json` holds them."""
        merged, found = self._merged(tables), dict[str, dict[str, Any]]()
        for name, wanted in self.features.items():
            found[name] = {"median": merged[name].median()} if wanted.median else {}
            found[name] |= {"boundaries": merged[name].boundaries(wanted.buckets)} if wanted.buckets > 1 else {}
            found[name]["relative_error"] = merged[name].relative_error
        return found

    def _merged(self, tables: Sequence[pa.Table]) -> dict[str, Histogram]:
        whole = pa.concat_tables([HISTOGRAM_SCHEMA.empty_table(), *tables])
        return {name: Histogram.merged(_parts(whole, name)) for name in self.features}


def _table(histograms: Mapping[str, Histogram]) -> pa.Table:
    parts = [
        pa.table(
            [[name] * len(each.keys), np.full(len(each.keys), each.lost), each.keys, each.counts],
            schema=HISTOGRAM_SCHEMA,
        )
        for name, each in histograms.items()
    ]
    return pa.concat_tables([HISTOGRAM_SCHEMA.empty_table(), *parts])


def _parts(table: pa.Table, feature: str) -> list[Histogram]:
    own = table.filter(pc.equal(table["feature"], feature))
    parts = [own.filter(pc.equal(own["lost"], lost)) for lost in own["lost"].unique()]
    return [Histogram(part["lost"][0].as_py(), part["value"].to_numpy(), part["count"].to_numpy()) for part in parts]
