"""`report.html`, which loads and runs nothing, and shows data only as text and images; and its views of features.

All text goes through one place, which escapes HTML, shows control characters, and isolates directions of writing. The
Content-Security-Policy only allows the page's own style, by its digest, and images in the page.
"""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from recordmill.pipeline import VERSION
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import FeatureProfile
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.facts import charts
from recordmill.pipeline.facts.charts import Chart, NamesChart, histogram
from recordmill.pipeline.facts.contents import Contents, lacking, read_contents, remarks, shares
from recordmill.pipeline.facts.sample import ImageCounts
from recordmill.pipeline.facts.version import FeatureFacts, duplicate_lines, packed_rows
from recordmill.pipeline.sources.faults import REASONS

HERE = Path(__file__).parent
TEMPLATE, STYLE = "report.html.j2", "report.css"
ISOLATE, END_ISOLATE = "\u2068", "\u2069"
UNSEEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")
"""Characters that HTML cannot hold: control characters, and surrogates, which escape invalid UTF-8."""
SHOWN_FIGURES = 50  # of the gate
CHANNELS = {1: ("gray",), 3: ("red", "green", "blue")}
Fact = tuple[str, str]
BySplit = Mapping[str, FeatureProfile]


def report_of(dataset: DatasetVersion, sources: Path | None = None, **choice: Any) -> bytes:
    """Makes the page of a version, reproducible to the byte; arguments and Raises as `read_contents`."""
    contents, manifest = read_contents(dataset, sources, **choice), dataset.manifest
    style = (HERE / STYLE).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    drift = manifest.drift.get("features", {}).items()
    page, examples = _environment().get_template(TEMPLATE), contents.sample.examples if contents.sample else ()
    features = list[tuple[FeatureFacts, Sequence[Fact], Sequence[Chart]]]()
    for name, feature in contents.facts.features.items():
        profiles = contents.by_split(name)
        drawn = [chart for chart in _charts(contents, feature, profiles) if chart is not None]
        features.append((feature, list(_facts(contents, feature, profiles)), drawn))
    provenance = [("build key", manifest.build_key)]  # without times: equal versions have equal reports
    stated = (what for what in ("source_key", "inputs_sha256") if what in manifest.provenance)
    provenance += [(what.replace("_", " "), str(manifest.provenance[what])) for what in stated]
    provenance += [(package, str(version)) for package, version in manifest.provenance.get("packages", {}).items()]
    breaches = {(each["rule"], each["subject"]): each["detail"] for each in manifest.gate.get("breaches", [])}
    rules = manifest.gate.get("figures", {}).items()
    figures = ((rule, subject, figure) for rule, subjects in rules for subject, figure in subjects.items() if figure)
    gate = [(rule, subject, figure, breaches.get((rule, subject), "")) for rule, subject, figure in figures]
    gate.sort(key=lambda row: (not row[3], row[0], -row[2], row[1]))  # breaches first, then the largest of each rule
    text = page.render(
        **vars(contents),
        style=Markup(style),  # noqa: S704 - our own file
        style_digest=digest,
        recordmill=VERSION,
        manifest=manifest,
        width=charts.WIDTH,
        height=charts.HEIGHT,
        remarks=list(remarks(contents)),
        features=features,
        groups=[(label, list(some)) for label, some in groupby(examples, key=lambda each: each.label)],  # by class
        reasons=REASONS,
        duplicates=list(duplicate_lines(manifest.duplicates)),
        gate=gate[:SHOWN_FIGURES],
        drift=[(name, what, figure) for name, figures in drift for what, figure in figures.items()],
        spec=json.dumps(_without_nothing(manifest.spec), indent=2, ensure_ascii=False),
        provenance=provenance,
    )
    return text.encode("utf-8")


@functools.cache
def _environment() -> Environment:
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = FileSystemLoader(HERE)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=visible, **blocks)
    environment.filters |= {
        "data": isolated,
        "plain": lambda each: f"{ISOLATE}{visible(str(each))}{END_ISOLATE}",  # for attributes and titles
        "number": lambda each: f"{each:,}" if isinstance(each, int) else f"{each:.4g}",
        "percent": "{:.1%}".format,
    }
    return environment


def visible(value: Any) -> Any:
    """Escapes characters that HTML cannot hold: control characters, and invalid UTF-8 in keys."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return UNSEEN.sub(lambda match: ascii(match[0])[1:-1], value)


def isolated(value: Any) -> Markup:
    """Returns text of the data as HTML, with its direction of writing isolated."""
    return Markup("<bdi>{}</bdi>").format(escape(visible(str(value))))


def _without_nothing(value: Any) -> Any:
    """Leaves out nulls, and empty lists and objects, of a spec."""
    if isinstance(value, Mapping):
        return {name: _without_nothing(inner) for name, inner in value.items() if inner not in (None, {}, [])}
    return [_without_nothing(inner) for inner in value] if isinstance(value, list) else value


def _facts(contents: Contents, feature: FeatureFacts, profiles: BySplit) -> Iterator[Fact]:
    yield "stored", feature.stored
    if feature.learned:
        is_given = contents.manifest.spec.get("features", {}).get(feature.name, {}).get("model") is not None
        yield "given" if is_given else "learned", ", ".join(feature.learned)
    if feature.lengths:
        yield "lengths", feature.lengths
    yield from (("packed", line) for name, line in packed_rows(contents.manifest) if name == feature.name)
    if feature.description and feature.description.as_text:
        if words := contents.words.get(feature.name):
            yield "words", f"{words.total:,} in train, {words.distinct:,} different, {words.once:,} of them once"
        elif contents.words_are_of_forgotten_rows:
            yield "words", "left out: rows were forgotten since they were counted; the next build that learns has them"
    sample = contents.sample
    if sample and feature.name in sample.images:
        yield from _image_facts(sample.images[feature.name], sample.words)
    if sample and len(sample.boxes.get(feature.name, ())):
        areas = _areas(sample.boxes[feature.name])
        yield "areas", f"median {np.median(areas):.2%} of the image, smallest {areas.min():.2%}, {sample.words}"
    for what, lacked in zip(("missing", "out of vocabulary"), lacking(profiles), strict=True):
        if any(lacked.values()):
            yield what, shares(lacked, digits=1)


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


def _charts(contents: Contents, feature: FeatureFacts, profiles: BySplit) -> Iterator[Chart | None]:
    values = {split: profile.histogram for split, profile in profiles.items() if profile.histogram is not None}
    sample, name, described = contents.sample, feature.name, feature.description
    if described and described.as_text:
        yield histogram("Length in ids", values, whole=True)
        if name in contents.words:
            words = contents.words[name]
            lists = {"Most frequent words": words.frequent, "Rarest words": words.rare}
            for title, some in [*lists.items()][: 2 if words.distinct > len(words.frequent) else 1]:
                peak = max((count for _, count in some), default=1)
                bars = ((word, (n,), (n / words.total,), (round(100 * n / peak, 1),)) for word, n in some)
                yield NamesChart(title, "word", ("train",), tuple(charts.NameRow(*bar) for bar in bars))
    elif described and described.ids:
        yield _names_chart(contents, feature, profiles)
    elif sample and name in sample.images:
        counts, split = sample.images[name], sample.split
        if len(counts.widths.keys) > 1 or len(counts.heights.keys) > 1:
            yield histogram("Width in pixels", {split: counts.widths}, whole=True, note=sample.words)
            yield histogram("Height in pixels", {split: counts.heights}, whole=True, note=sample.words)
        note = f"The mean luma of each of {counts.brightness.counts.sum():,} images: 0 is black, 255 white."
        yield histogram("Brightness", {split: counts.brightness}, whole=False, note=note)
    elif sample and name in sample.boxes:
        boxes, split, note = sample.boxes[name], sample.split, sample.words
        yield histogram("Boxes a row", {split: sample.boxes_a_row[name]}, whole=True, note=note)
        sides = Histogram.of(np.sqrt(np.maximum(0, _areas(boxes))).astype(np.float32))
        yield histogram("Side, as a share of the image's side", {split: sides}, whole=False, note=note)
        yield charts.places("Places", boxes, note=f"How many boxes cover each part of the image, {note}.")
    elif values:
        missing = {split: profile.missing for split, profile in profiles.items()}
        are_whole = all(bool((part.values == np.round(part.values)).all()) for part in values.values())
        yield histogram("Values", values, whole=are_whole, missing=missing)


def _names_chart(contents: Contents, feature: FeatureFacts, profiles: BySplit) -> NamesChart | None:
    """Counts names by split: of the label by the manifest, of others by the profile."""
    title = feature.counted.capitalize()
    note = "A record may hold several names, or one several times." if title == "Occurrences" else ""
    labels, classes = contents.vocabularies.get(feature.name), contents.facts.classes if feature.is_label else None
    if classes and labels and len(classes[0]) == len(labels):
        return charts.names(title, "class", classes[1], labels, note)
    by_id = {split: profile.ids for split, profile in profiles.items() if profile.ids}
    ids = sorted({id_ for counts in by_id.values() for id_ in counts})
    called = [labels[id_] if labels and id_ < len(labels) else str(id_) for id_ in ids]
    counts = {split: [some.get(id_, 0) for id_ in ids] for split, some in by_id.items()}
    return charts.names(title, "name", counts, called, note)


def _areas(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
