"""Medians and quantiles of the train split's numbers, of histograms (`pipeline.dataset.histogram`)."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.summaries.base import Summary
from recordmill.pipeline.build.summaries.learned import train_rows
from recordmill.pipeline.build.summaries.moments import learned_numbers, values_of
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.tensorflow.kind import RequestedStatistics
from recordmill.transforms.tensorflow.number import requested

SCHEMA = pa.schema({"feature": pa.string(), "lost": pa.int64(), "value": pa.int64(), "count": pa.int64()})


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
        whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
        return {name: Histogram.merged(_parts(whole, name)) for name in self.features}


def _table(histograms: Mapping[str, Histogram]) -> pa.Table:
    parts = [
        pa.table([[name] * len(each.keys), np.full(len(each.keys), each.lost), each.keys, each.counts], schema=SCHEMA)
        for name, each in histograms.items()
    ]
    return pa.concat_tables([SCHEMA.empty_table(), *parts])


def _parts(table: pa.Table, feature: str) -> list[Histogram]:
    own = table.filter(pc.equal(table["feature"], feature))
    parts = [own.filter(pc.equal(own["lost"], lost)) for lost in own["lost"].unique()]
    return [Histogram(part["lost"][0].as_py(), part["value"].to_numpy(), part["count"].to_numpy()) for part in parts]
