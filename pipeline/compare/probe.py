"""A probe of the label against the features: a classifier of the live version's rows, scored on rows of both versions.

Labels that were shuffled, or texts of other rows, leave every distribution as it was. A row is a set of hashed names,
words, tenths of numbers, and colours of images. Naive Bayes, a linear classifier, learns half of the live sample; the
other half, by the hashes of the keys, is scored in both versions. Scores follow from the rows alone.

>>> [str(figure) for figure in probe_figures(before, after)]  # doctest: +SKIP
["probe of label (train) is 0.61: found 84.2% → 4.8% of 'cat'"]
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from recordmill.pipeline.compare.figures import Figure
from recordmill.pipeline.compare.versions import ComparedVersion
from recordmill.pipeline.dataset.placement import hash_key
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.inspection.records import read_records
from recordmill.pipeline.inspection.values import StoredImage
from recordmill.transforms.contract.kinds.text import DecodedText

ROWS = 2000  # of each version, and of each new span
BINS = 1 << 14
SMOOTHING = 0.1  # of a bin's count
STEPS = 1 << 20  # of a weight: whole numbers have one sum in any order
GRID = (4, 4)
LEAST = 5  # scored rows of a class, on both sides


class _Row(NamedTuple):
    label: str
    names: list[str]
    numbers: dict[str, float]


def probe_figures(before: ComparedVersion, after: ComparedVersion) -> Iterator[Figure]:
    """Compares the shares of the rows of each class that are found, of all rows and of each new span.

    The figure is the largest drop, of a class or of the mean, beyond chance: three standard errors of the binomial
    distribution, and more the more classes there are. Nothing where the label is no category.

    Raises:
        DatasetError: a shard is missing or damaged, or its records hold several rows, as those of packed texts do.
    """
    label = before.manifest.label or ""
    if {each.manifest.features.get(label, {}).get("kind") for each in (before, after)} != {"category"}:
        return
    learned, rest = _sample(before, label)
    classifier = _Classifier(learned)
    old = classifier.found(rest)
    for span in ("", *after.spans):
        new = classifier.found(_sample(after, label, span)[1])
        names = [name for name, rows in old.items() if min(len(rows), len(new[name])) >= LEAST]
        if names:
            drop, detail = _largest_drop(*(({name: each[name] for name in names}) for each in (old, new)))
            counted = min(sum(len(each[name]) for name in names) for each in (old, new))
            yield Figure("probe", f"{label} (train)", drop, detail, counted, label, span)


def _sample(version: ComparedVersion, label: str, span: str = "") -> tuple[list[_Row], list[_Row]]:
    """Reads the first rows of the train split, which are a sample, in halves; of all spans the first ones of each."""
    dataset, halves = DatasetVersion(version.folder, version.manifest), (list[_Row](), list[_Row]())
    spans = {shard.span for shard in version.manifest.split("train").shards if span in ("", shard.span)}
    for each in sorted(spans, key=str):
        for record in read_records(dataset, "train", span=each, limit=math.ceil(ROWS / len(spans))):
            row = _Row(str(record.values[label]), [], {})
            for name, value in record.values.items():
                if name != label:
                    _add(row, name, value)
            halves[hash_key(record.key.encode("utf-8", "surrogateescape")).sample & 1].append(row)
    return halves


def _add(row: _Row, name: str, value: Any) -> None:
    match value:
        case float() | int():
            row.numbers[name] = float(value)
        case DecodedText():
            row.names.extend(f"{name} {word}" for word in value.words or value.ids)
        case StoredImage():
            colors = np.asarray(value.pillow().convert("YCbCr").resize(GRID, Resampling.BOX))
            row.numbers.update({f"{name} {place}": float(level) for place, level in enumerate(colors.ravel())})
        case list():
            for part in value:
                _add(row, name, part)
        case _:
            row.names.append(f"{name} {value}")


class _Classifier:
    """Naive Bayes over hashed bins, in which a rare class counts as much as a frequent one."""

    def __init__(self, rows: list[_Row]) -> None:
        columns: dict[str, list[float]] = {}
        for name, number in (item for row in rows for item in row.numbers.items()):
            columns.setdefault(name, []).append(number)
        self._tenths = {name: np.quantile(column, np.arange(1, 10) / 10) for name, column in columns.items()}
        self._classes = sorted({row.label for row in rows})
        counts = np.full((len(self._classes), BINS), SMOOTHING)
        for row in rows:
            counts[self._classes.index(row.label), self._bins(row)] += 1
        self._weights = np.rint(np.log(counts / counts.sum(1, keepdims=True)) * STEPS).astype(np.int64)

    def found(self, rows: list[_Row]) -> dict[str, list[bool]]:
        """Returns by class whether each of its rows is found."""
        found: dict[str, list[bool]] = {name: [] for name in self._classes}
        for row in (row for row in rows if row.label in found):
            scores = self._weights[:, self._bins(row)].sum(1)
            found[row.label].append(self._classes[int(np.argmax(scores))] == row.label)
        return found

    def _bins(self, row: _Row) -> npt.NDArray[np.int64]:
        numbers = ((name, self._tenths[name], number) for name, number in row.numbers.items() if name in self._tenths)
        tenths = (f"{name} {np.searchsorted(bounds, number)}" for name, bounds, number in numbers)
        return np.unique([crc32(each.encode("utf-8", "surrogateescape")) % BINS for each in (*row.names, *tenths)])


def _largest_drop(old: dict[str, list[bool]], new: dict[str, list[bool]]) -> tuple[float, str]:
    """Returns the largest drop of a share beyond chance, of a class or of their mean, and the change for people."""
    hits, counts = (np.array([[*map(of, each.values())] for each in (old, new)]) for of in (sum, len))
    shares, likely = hits / counts, (hits + 1) / (counts + 2)
    variances = (likely * (1 - likely) / counts).sum(0)
    chance = math.sqrt(9 + 2 * math.log(len(old))) * np.sqrt(variances)
    before, after = np.column_stack([shares, shares.mean(1)])
    drops = before - after - np.append(chance, 3 * math.sqrt(variances.sum()) / len(old))
    largest = int(drops.argmax())
    name = [*map(repr, old), "a class"][largest]
    return max(0.0, float(drops[largest])), f"found {before[largest]:.1%} → {after[largest]:.1%} of {name}"
