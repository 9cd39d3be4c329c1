"""The part of a report about one feature: facts in words, and charts, kind by kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.manifest import Json
from recordmill.pipeline.dataset.manifest_words import statistics_words, stored_words
from recordmill.pipeline.dataset.profile import FeatureProfile, describe_lengths
from recordmill.pipeline.report.charts import Chart, NameRow, NamesChart, histogram, names, places
from recordmill.pipeline.report.figures import Figures, WordCounts, words_are_of_forgotten_rows
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.kinds.text import TextDescription

CHANNELS = {1: ("gray",), 3: ("red", "green", "blue")}
Fact = tuple[str, str]


@dataclass(frozen=True)
class FeatureView:
    """A feature as the report shows it."""

    name: str
    kind: str
    is_label: bool
    facts: Sequence[Fact]
    charts: Sequence[Chart]


def feature_views(figures: Figures) -> Iterator[FeatureView]:
    """Yields the view of each feature, in the order of the spec."""
    for name, description in figures.features.items():
        json = figures.manifest.features[name]
        profiles = _by_split(figures, name)
        facts = [*_facts(figures, name, description, json), *_profile_facts(profiles)]
        charts = [chart for chart in _charts(figures, name, description, profiles) if chart is not None]
        yield FeatureView(name, str(json.get("kind")), name == figures.manifest.label, facts, charts)


def _by_split(figures: Figures, name: str) -> dict[str, FeatureProfile]:
    """Returns a feature's profile in each split that has rows, in the order of the splits."""
    profiles = {split: figures.profiles.get(split, {}).get(name) for split in figures.manifest.splits}
    return {split: profile for split, profile in profiles.items() if profile is not None and profile.rows}


def _facts(figures: Figures, name: str, description: Description | None, json: Json) -> Iterator[Fact]:
    statistics = figures.manifest.statistics.get(name, {})
    yield "stored", stored_words(description, json)
    if learned := ", ".join(statistics_words(name, description, statistics)):
        yield "learned", learned
    if isinstance(description, TextDescription) and statistics.get("lengths"):
        yield (
            "lengths",
            describe_lengths(statistics["lengths"], max_length=description.max_length, packed=description.packed),
        )
    if name in figures.words and isinstance(description, TextDescription):
        words = figures.words[name]
        yield "words", f"{words.total:,} in train, {words.distinct:,} different, {words.once:,} of them once"
    elif isinstance(description, TextDescription) and words_are_of_forgotten_rows(figures.manifest):
        yield "words", "left out: rows were forgotten since they were counted; the next build that learns has them"
    if figures.sample and name in figures.sample.images:
        yield from _image_facts(figures, name)
    if figures.sample and name in figures.sample.boxes:
        areas = _areas(figures, name)
        if len(areas):
            median, least = float(np.median(areas)), float(areas.min())
            yield "areas", f"median {median:.2%} of the image, smallest {least:.2%}, {_of_sample(figures)}"


def _profile_facts(profiles: Mapping[str, FeatureProfile]) -> Iterator[Fact]:
    missing = {split: profile.missing / profile.rows for split, profile in profiles.items()}
    if any(missing.values()):
        yield "missing", ", ".join(f"{share:.1%} of {split}" for split, share in missing.items())
    unknown = {split: profile.unknown / profile.tokens for split, profile in profiles.items() if profile.tokens}
    if any(unknown.values()):
        yield "out of vocabulary", ", ".join(f"{share:.1%} of {split}" for split, share in unknown.items())


def _image_facts(figures: Figures, name: str) -> Iterator[Fact]:
    counts = figures.sample.images[name]  # type: ignore[union-attr] # the caller looked
    sizes = [sizes.at([0, int(sizes.counts.sum()) - 1]) for sizes in (counts.widths, counts.heights) if len(sizes.keys)]
    if not sizes:
        return
    of = _of_sample(figures)
    (narrow, wide), (low, high) = sizes
    same = (narrow, low) == (wide, high)
    size = f"{wide:.0f} wide, {high:.0f} high"
    yield "size", size if same else f"{narrow:.0f} to {wide:.0f} wide, {low:.0f} to {high:.0f} high, {of}"
    yield "format", ", ".join(f"{number:,} {form}" for form, number in sorted(counts.formats.items())) + f", {of}"
    yield "bytes", f"median {counts.bytes.median():,.0f} an image, {of}"
    channels = CHANNELS.get(len(counts.colors), ())
    colors = [
        f"{color} {mean:.0f} ± {deviation:.0f}"
        for color, (mean, deviation) in zip(channels, counts.colors, strict=False)
    ]
    if colors:
        decoded = int(counts.brightness.counts.sum())
        yield "colours", f"{', '.join(colors)} (mean ± standard deviation of 0 to 255, of {decoded:,} images)"


def _of_sample(figures: Figures) -> str:
    sample = figures.sample
    assert sample is not None  # noqa: S101 - callers looked
    return f"of {sample.records:,} records of {sample.split}"


def _areas(figures: Figures, name: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    boxes = figures.sample.boxes[name]  # type: ignore[union-attr] # the caller looked
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _charts(
    figures: Figures, name: str, description: Description | None, profiles: Mapping[str, FeatureProfile]
) -> Iterator[Chart | None]:
    values = {split: profile.histogram for split, profile in profiles.items() if profile.histogram is not None}
    if isinstance(description, TextDescription):
        yield histogram("Length in ids", values, whole=True)
        yield from _word_charts(figures.words.get(name))
    elif isinstance(description, CategoryDescription | CategoriesDescription):
        yield _category_chart(figures, name, profiles)
    elif isinstance(description, Pixels):
        yield from _image_charts(figures, name)
    elif figures.sample and name in figures.sample.boxes:
        note = _of_sample(figures)
        yield histogram("Boxes a row", {figures.sample.split: figures.sample.boxes_a_row[name]}, whole=True, note=note)
        sides = Histogram.of(np.sqrt(np.maximum(0, _areas(figures, name))).astype(np.float32))
        yield histogram("Side, as a share of the image's side", {figures.sample.split: sides}, whole=False, note=note)
        yield places("Places", figures.sample.boxes[name], note=f"How many boxes cover each part of the image, {note}.")
    elif values:
        missing = {split: profile.missing for split, profile in profiles.items()}
        yield histogram("Values", values, whole=_are_whole(values), missing=missing)


def _are_whole(values: Mapping[str, Histogram]) -> bool:
    return all(bool((part.values == np.round(part.values)).all()) for part in values.values())


def _category_chart(figures: Figures, name: str, profiles: Mapping[str, FeatureProfile]) -> NamesChart | None:
    """Counts names by split: the label's by the manifest, others' by the profile."""
    labels, splits = figures.vocabularies.get(name), figures.manifest.splits
    counted: dict[str, Sequence[int]] = {}
    if name == figures.manifest.label:
        counted = {split: each.label_counts for split, each in splits.items() if each.label_counts}
    if counted and labels and all(len(counts) == len(labels) for counts in counted.values()):
        return names("Records", "class", counted, labels)
    by_id = {split: profile.ids for split, profile in profiles.items() if profile.ids}
    ids = sorted({id_ for counts in by_id.values() for id_ in counts})
    called = [labels[id_] if labels and id_ < len(labels) else str(id_) for id_ in ids]
    return names("Values", "name", {split: [some.get(id_, 0) for id_ in ids] for split, some in by_id.items()}, called)


def _word_charts(words: WordCounts | None) -> Iterator[Chart | None]:
    if words is None:
        return
    for title, some in (("Most frequent words", words.frequent), ("Rarest words", words.rare)):
        if title.startswith("Most") or words.distinct > len(words.frequent):
            yield _word_chart(title, some, words.total)


def _word_chart(title: str, words: Sequence[tuple[str, int]], total: int) -> NamesChart:
    peak = max((count for _, count in words), default=1)
    rows = [NameRow(word, (count,), (count / total,), (round(100 * count / peak, 1),)) for word, count in words]
    return NamesChart(title, "word", ("train",), tuple(rows))


def _image_charts(figures: Figures, name: str) -> Iterator[Chart | None]:
    if figures.sample is None:
        return
    counts, split, of = figures.sample.images[name], figures.sample.split, _of_sample(figures)
    if len(counts.widths.keys) > 1 or len(counts.heights.keys) > 1:
        yield histogram("Width in pixels", {split: counts.widths}, whole=True, note=of)
        yield histogram("Height in pixels", {split: counts.heights}, whole=True, note=of)
    decoded = int(counts.brightness.counts.sum())
    note = f"The mean luma of each of {decoded:,} images: 0 is black, 255 white."
    yield histogram("Brightness", {split: counts.brightness}, whole=False, note=note)
