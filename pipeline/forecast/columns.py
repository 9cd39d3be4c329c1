"""The features of a plan as a sample shows them: missing values, examples, and the facts of their kind."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.forecast.sample import ImageSample, Sample
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.category import NameOptions

EXAMPLES = 3
LONGEST = 40


@dataclass(frozen=True)
class ColumnView:
    """A feature's column in the sample."""

    name: str
    kind: str
    column: str
    """The source's column, by the spec's name."""
    missing: float
    """The share of the good rows that lack it, 0..1; rows that must have it are rejected instead."""
    facts: tuple[str, ...]
    """Facts in words: `7 names, 31.0% dog`."""
    examples: tuple[str, ...]
    names: tuple[tuple[str, int], ...] = ()
    """The rows of each name of a category, the most frequent first."""


def views(planned: PlannedBuild, sample: Sample) -> list[ColumnView]:
    """Gives the views of all features that have a column."""
    return [
        _view(name, column, planned.features[name], planned.schema.columns[column].optional, sample)
        for name, column in planned.schema.features.items()
    ]


def _view(name: str, column: str, options: FeatureOptions, optional: bool, sample: Sample) -> ColumnView:
    values = sample.column(name).to_pylist() if sample.tables else []
    present = [value for value in values if not (optional and _is_missing(value))]
    missing = 1 - len(present) / len(values) if values else 0.0
    if name in sample.images:
        return ColumnView(name, options.kind, column, missing, tuple(_of_images(sample.images[name])), ())
    flat = [each for value in present for each in (value if isinstance(value, list) else [value])]
    facts = [*_of_lists(present), *_of_values(options, flat)]
    names = Counter(flat).most_common() if isinstance(options, NameOptions) else []
    examples = dict.fromkeys(map(_shown, [value for value, _ in names[:EXAMPLES]] or flat[: 1 << 10]))
    return ColumnView(
        name,
        options.kind,
        column,
        missing,
        tuple(facts),
        tuple(examples)[:EXAMPLES],
        tuple((_text(value), rows) for value, rows in names),
    )


def _is_missing(value: Any) -> bool:
    """Whether a value is the one that stands in for a missing one."""
    return value in (None, b"", []) or (isinstance(value, float) and math.isnan(value))


def _of_lists(values: Sequence[Any]) -> Iterator[str]:
    if values and isinstance(values[0], list):
        lengths = list(map(len, values))
        yield f"{min(lengths):,} to {max(lengths):,} values a row"


def _of_values(options: FeatureOptions, values: Sequence[Any]) -> Iterator[str]:
    if not values:
        return
    if isinstance(options, NameOptions):
        counts = Counter(values)
        name, rows = counts.most_common(1)[0]
        yield f"{len(counts):,} name{'s' if len(counts) > 1 else ''}, {rows / len(values):.1%} {_shown(name)}"
    elif isinstance(values[0], bytes):
        lengths = list(map(len, values))
        yield f"{sum(lengths) / len(lengths):,.0f} bytes in the mean, at most {max(lengths):,}"
    else:
        numbers = [value for value in values if not math.isnan(value)]
        if numbers:
            yield f"{min(numbers):g} to {max(numbers):g}, {math.fsum(numbers) / len(numbers):.4g} in the mean"


def _of_images(images: ImageSample) -> Iterator[str]:
    if not images.headers:
        return
    formats = Counter(header.format for header in images.headers)
    yield ", ".join(f"{count:,} {form}" for form, count in formats.most_common())
    sizes = sorted((header.width * header.height, f"{header.width}x{header.height}") for header in images.headers)
    yield sizes[0][1] if sizes[0] == sizes[-1] else f"{sizes[0][1]} to {sizes[-1][1]} pixels"
    yield f"{sum(images.bytes) / len(images.bytes):,.0f} bytes in the mean"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else f"{value:g}"


def _shown(value: Any) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
