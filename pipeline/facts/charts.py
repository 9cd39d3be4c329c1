"""Charts as plain data: bins, bars and grids, with positions for the page's template, which draws them as SVG.

A chart counts several series, a version's splits, in the same bins. Splits differ in size, so it draws each series'
shares; the table next to it has the counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.histogram import Histogram

WIDTH, HEIGHT = 320, 120  # of a histogram's drawing area, in SVG units
MOST_BINS = 24
TICKS = 4  # labels below a histogram, at most
FAR = 3  # times the range of 99 % of the values: beyond, the outer bins are open
TAIL = 200  # one in so many values is beyond each open end
MOST_NAMES = 1_000  # rows of a table of names
GRID = 16  # cells a side of a map of boxes

Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """The counts of one split."""

    name: str
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each count; zeros if all are 0."""
        return tuple(count / (self.total or 1) for count in self.counts)


@dataclass(frozen=True)
class HistogramChart:
    """A distribution of numbers: bars for the first series, lines for the others."""

    shape: ClassVar[str] = "histogram"
    title: str
    bins: tuple[str, ...]  # each bin's values, in words
    ticks: tuple[tuple[float, str], ...]  # positions from 0 to `WIDTH`, with the value there
    series: tuple[Series, ...]
    note: str = ""
    missing: tuple[int, ...] = ()  # each series' rows without a value; empty if none

    @property
    def peak(self) -> float:
        """The largest share of any bin."""
        return max((share for each in self.series for share in each.shares), default=0.0)

    @property
    def bars(self) -> list[tuple[float, float, float, float]]:
        """The bars of the first series: x, y, width and height, in SVG units."""
        width = WIDTH / len(self.bins)
        tops = enumerate(round(HEIGHT * share / (self.peak or 1), 1) for share in self.series[0].shares)
        return [(round(number * width + 0.5, 1), HEIGHT - top, round(width - 1, 1), top) for number, top in tops]

    def line(self, series: Series) -> str:
        """Returns a series' line: `points` of an SVG `polyline`."""
        width, scale = WIDTH / len(self.bins), HEIGHT / (self.peak or 1)
        corners = [(0.0, float(HEIGHT))]
        for number, share in enumerate(series.shares):
            top = HEIGHT - share * scale
            corners += [(number * width, top), ((number + 1) * width, top)]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in [*corners, (float(WIDTH), float(HEIGHT))])


@dataclass(frozen=True)
class NameRow:
    """A name with a count, a share and a bar in each column."""

    name: str
    counts: tuple[int, ...]
    shares: tuple[float, ...]
    lengths: tuple[float, ...]  # bar lengths, 0 to 100: the chart's largest share


@dataclass(frozen=True)
class NamesChart:
    """Counts of names by split: a table with bars."""

    shape: ClassVar[str] = "names"
    title: str
    what: str  # header of the names
    columns: tuple[str, ...]
    rows: tuple[NameRow, ...]
    left_out: int = 0  # names without a row
    note: str = ""


@dataclass(frozen=True)
class MapChart:
    """Shares by place in an image, each cell 0 to 1."""

    shape: ClassVar[str] = "map"
    title: str
    cells: tuple[tuple[float, ...], ...]  # rows from the top, columns from the left
    note: str = ""


Chart: TypeAlias = HistogramChart | NamesChart | MapChart


def histogram(
    title: str, parts: Mapping[str, Histogram], *, whole: bool, note: str = "", missing: Mapping[str, int] | None = None
) -> HistogramChart | None:
    """Makes the chart of values by split, with rows `missing` one; bins of `whole` numbers; None if all are empty."""
    counted = {name: part for name, part in parts.items() if part.counts.sum()}
    if not counted:
        return None
    merged = Histogram.merged(counted.values())
    last = int(merged.counts.sum()) - 1
    low, near_low, near_high, high = merged.at([0, last // TAIL, last - last // TAIL, last])
    if is_cut := high - low > FAR * (near_high - near_low) > 0:  # others are beyond
        low, high = near_low, near_high
    step, least = 1.0, (high - low) / MOST_BINS or abs(low) / MOST_BINS
    if least > 0:  # up to 1, 2 or 5 times a power of ten; for whole numbers at least 1
        power = 10.0 ** math.floor(math.log10(least))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))
        step = max(1.0, step) if whole else step
    first = math.floor(low / step)
    number = math.floor(high / step) - first + 1
    edges = [float(f"{(first + bin_) * step:.9g}") for bin_ in range(number + 1)]
    ends = [end - 1 if whole else end for end in edges[1:]]  # of whole numbers, the last in the bin
    pairs = zip(edges, ends, strict=False)
    labels = [short(low) if low == high else f"{short(low)} to {short(high)}" for low, high in pairs]
    if is_cut:
        labels[0], labels[-1] = f"below {short(edges[1])}", f"{short(edges[-2])} or more"
    series = list[Series]()
    for name, part in counted.items():
        bins = np.floor(part.values / step + 1e-9).astype(np.int64) - first
        counts = np.bincount(bins.clip(0, number - 1), part.counts, number)
        series.append(Series(name, tuple(counts.astype(np.int64).tolist())))
    lacking = tuple((missing or {}).get(each.name, 0) for each in series)
    ticks = tuple((round(WIDTH * at / number, 1), short(edges[at])) for at in range(0, number, -(-number // TICKS)))
    return HistogramChart(title, tuple(labels), ticks, tuple(series), note, lacking if any(lacking) else ())


def short(number: float) -> str:
    """Formats a number for a label.

    >>> short(1234.0), short(0.25), short(1_200_000), short(-3.0)
    ('1,234', '0.25', '1.2M', '-3')
    """
    if abs(number) >= 1e15:
        return f"{number:.3g}"
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(number) >= limit:
            return f"{number / limit:.4g}{unit}"
    return f"{number:,.0f}" if number == round(number) else f"{number:.4g}"


def names(
    title: str, what: str, counts: Mapping[str, Sequence[int]], labels: Sequence[str], note: str = ""
) -> NamesChart | None:
    """Makes the chart of names (`what`: its header) by split, the most frequent first; None without names."""
    if not labels or not counts:
        return None
    table = np.array(list(counts.values()), np.int64)
    shares = table / np.maximum(1, table.sum(axis=1, keepdims=True))
    peak = shares.max(initial=0.0) or 1.0
    order = np.argsort(-table.sum(axis=0), kind="stable")[:MOST_NAMES].tolist()
    columns = table, shares, np.round(100 * shares / peak, 1)
    rows = tuple(NameRow(labels[row], *(tuple(each[:, row].tolist()) for each in columns)) for row in order)
    return NamesChart(title, what, tuple(counts), rows, len(labels) - len(rows), note)


def places(title: str, boxes: npt.NDArray[np.float64], note: str = "") -> MapChart:
    """Makes the map of places covered by boxes, [n, 4]: `y_min, x_min, y_max, x_max` from 0 to 1."""
    starts = np.arange(GRID) / GRID
    in_rows = (boxes[:, :1] < starts + 1 / GRID) & (boxes[:, 2:3] > starts)
    in_columns = (boxes[:, 1:2] < starts + 1 / GRID) & (boxes[:, 3:4] > starts)
    covered = in_rows.astype(np.int64).T @ in_columns.astype(np.int64)
    shares = covered / (covered.max(initial=0) or 1)
    return MapChart(title, tuple(tuple(np.round(row, 2).tolist()) for row in shares), note)
