"""The part of a report about one feature: facts in words, and charts, kind by kind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import FeatureProfile
from recordmill.pipeline.facts.charts import Chart, NameRow, NamesChart, histogram, names, places
from recordmill.pipeline.facts.contents import Contents, WordCounts, lacking, shares
from recordmill.pipeline.facts.sample import ImageCounts, RecordSample
from recordmill.pipeline.facts.version import FeatureFacts
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.kinds.text import TextDescription

CHANNELS = {1: ("gray",), 3: ("red", "green", "blue")}
Fact = tuple[str, str]


class FeatureView(NamedTuple):
    """A feature as the report shows it."""

    name: str
    kind: str
    is_label: bool
    facts: Sequence[Fact]
    charts: Sequence[Chart]


def feature_views(contents: Contents) -> Iterator[FeatureView]:
    """Yields the view of each feature, in the order of the spec."""
    for name, feature in contents.facts.features.items():
        profiles = contents.by_split(name)
        facts = [*_facts(contents, feature), *_sample_facts(contents.sample, name), *_profile_facts(profiles)]
        charts = [chart for chart in _charts(contents, feature, profiles) if chart is not None]
        yield FeatureView(name, feature.kind, feature.is_label, facts, charts)


def _facts(contents: Contents, feature: FeatureFacts) -> Iterator[Fact]:
    yield "stored", feature.stored
    if feature.learned:
        yield "learned", ", ".join(feature.learned)
    if feature.lengths:
        yield "lengths", feature.lengths
    if isinstance(feature.description, TextDescription):
        if words := contents.words.get(feature.name):
            yield "words", f"{words.total:,} in train, {words.distinct:,} different, {words.once:,} of them once"
        elif contents.words_are_of_forgotten_rows:
            yield "words", "left out: rows were forgotten since they were counted; the next build that learns has them"


def _sample_facts(sample: RecordSample | None, name: str) -> Iterator[Fact]:
    if sample and name in sample.images:
        yield from _image_facts(sample.images[name], sample.words)
    if sample and len(sample.boxes.get(name, ())):
        areas = _areas(sample.boxes[name])
        yield "areas", f"median {np.median(areas):.2%} of the image, smallest {areas.min():.2%}, {sample.words}"


def _image_facts(counts: ImageCounts, of: str) -> Iterator[Fact]:
    sizes = [sizes.at([0, int(sizes.counts.sum()) - 1]) for sizes in (counts.widths, counts.heights) if len(sizes.keys)]
    if not sizes:
        return
    (narrow, wide), (low, high) = sizes
    same = (narrow, low) == (wide, high)
    size = f"{wide:.0f} wide, {high:.0f} high"
    yield "size", size if same else f"{narrow:.0f} to {wide:.0f} wide, {low:.0f} to {high:.0f} high, {of}"
    yield "format", ", ".join(f"{number:,} {form}" for form, number in sorted(counts.formats.items())) + f", {of}"
    yield "bytes", f"median {counts.bytes.median():,.0f} an image, {of}"
    named = zip(CHANNELS.get(len(counts.colors), ()), counts.colors, strict=False)
    if colors := [f"{color} {mean:.0f} ± {deviation:.0f}" for color, (mean, deviation) in named]:
        images = f"{counts.brightness.counts.sum():,} images"
        yield "colours", f"{', '.join(colors)} (mean ± standard deviation of 0 to 255, of {images})"


def _profile_facts(profiles: Mapping[str, FeatureProfile]) -> Iterator[Fact]:
    missing, unknown = lacking(profiles)
    if any(missing.values()):
        yield "missing", shares(missing, digits=1)
    if any(unknown.values()):
        yield "out of vocabulary", shares(unknown, digits=1)


def _charts(
    contents: Contents, feature: FeatureFacts, profiles: Mapping[str, FeatureProfile]
) -> Iterator[Chart | None]:
    values = {split: profile.histogram for split, profile in profiles.items() if profile.histogram is not None}
    sample, name = contents.sample, feature.name
    if isinstance(feature.description, TextDescription):
        yield histogram("Length in ids", values, whole=True)
        yield from _word_charts(contents.words.get(name))
    elif isinstance(feature.description, CategoryDescription | CategoriesDescription):
        yield _category_chart(contents, feature, profiles)
    elif isinstance(feature.description, Pixels):
        yield from _image_charts(sample, name) if sample else ()
    elif sample and name in sample.boxes:
        yield from _box_charts(sample, name)
    elif values:
        missing = {split: profile.missing for split, profile in profiles.items()}
        are_whole = all(bool((part.values == np.round(part.values)).all()) for part in values.values())
        yield histogram("Values", values, whole=are_whole, missing=missing)


def _word_charts(words: WordCounts | None) -> Iterator[Chart]:
    if words:
        yield _word_chart("Most frequent words", words.frequent, words.total)
        if words.distinct > len(words.frequent):
            yield _word_chart("Rarest words", words.rare, words.total)


def _word_chart(title: str, words: Sequence[tuple[str, int]], total: int) -> NamesChart:
    peak = max((count for _, count in words), default=1)
    rows = [NameRow(word, (count,), (count / total,), (round(100 * count / peak, 1),)) for word, count in words]
    return NamesChart(title, "word", ("train",), tuple(rows))


def _category_chart(
    contents: Contents, feature: FeatureFacts, profiles: Mapping[str, FeatureProfile]
) -> NamesChart | None:
    """Counts names by split: the label's by the manifest, others' by the profile."""
    title = feature.counted.capitalize()
    note = "A record may hold several names, or one several times." if title == "Occurrences" else ""
    labels, classes = contents.vocabularies.get(feature.name), contents.facts.classes if feature.is_label else None
    if classes and labels and len(classes.names) == len(labels):
        return names(title, "class", classes.by_split, labels, note)
    by_id = {split: profile.ids for split, profile in profiles.items() if profile.ids}
    ids = sorted({id_ for counts in by_id.values() for id_ in counts})
    called = [labels[id_] if labels and id_ < len(labels) else str(id_) for id_ in ids]
    counts = {split: [some.get(id_, 0) for id_ in ids] for split, some in by_id.items()}
    return names(title, "name", counts, called, note)


def _image_charts(sample: RecordSample, name: str) -> Iterator[Chart | None]:
    counts, split = sample.images[name], sample.split
    if len(counts.widths.keys) > 1 or len(counts.heights.keys) > 1:
        yield histogram("Width in pixels", {split: counts.widths}, whole=True, note=sample.words)
        yield histogram("Height in pixels", {split: counts.heights}, whole=True, note=sample.words)
    note = f"The mean luma of each of {counts.brightness.counts.sum():,} images: 0 is black, 255 white."
    yield histogram("Brightness", {split: counts.brightness}, whole=False, note=note)


def _box_charts(sample: RecordSample, name: str) -> Iterator[Chart | None]:
    boxes, split, note = sample.boxes[name], sample.split, sample.words
    yield histogram("Boxes a row", {split: sample.boxes_a_row[name]}, whole=True, note=note)
    sides = Histogram.of(np.sqrt(np.maximum(0, _areas(boxes))).astype(np.float32))
    yield histogram("Side, as a share of the image's side", {split: sides}, whole=False, note=note)
    yield places("Places", boxes, note=f"How many boxes cover each part of the image, {note}.")


def _areas(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
