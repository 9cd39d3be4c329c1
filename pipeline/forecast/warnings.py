"""Sentences on a plan that a person should read before a long build: what fails at its end, or goes unseen."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.compare.classes import compare_ids, first_few
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.dataset.vocabulary import read_vocabulary
from recordmill.pipeline.forecast.columns import ColumnView
from recordmill.pipeline.forecast.sample import Sample
from recordmill.pipeline.spec.features.category import NamedClasses
from recordmill.pipeline.spec.features.text import Tokenized
from recordmill.pipeline.spec.model import Spec
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription

ONE_CLASS = 0.99
"""The share of a label's class that leaves little to learn."""
ENOUGH = 1_000
"""Sampled rows from which a split without one is worth a warning."""


def warnings_of(
    plan: BuildPlan,
    sample: Sample,
    columns: Sequence[ColumnView],
    of_split: Mapping[str, int],
    live: tuple[Location, Manifest] | None,
) -> Iterator[str]:
    """Yields the warnings.

    Args:
        plan: what would be built.
        sample: rows of it.
        columns: the features in the sample.
        of_split: the sampled rows of each split.
        live: the output's live version, with its folder.
    """
    if not any(of_split.values()) and sample.rows:
        yield "every row of the sample is rejected: nothing would be built"
    yield from _splits(sample, of_split)
    yield from _rejects(plan.spec, sample)
    yield from _keys(sample)
    yield from _columns(plan.spec, sample, columns)
    if live is not None:
        yield from _ids(plan.spec, *live)


def _splits(sample: Sample, of_split: Mapping[str, int]) -> Iterator[str]:
    rows = sum(of_split.values())
    for name, count in of_split.items():
        if rows and not count and (sample.is_all or rows >= ENOUGH):
            yield f"the split '{name}' is empty" + ("" if sample.is_all else f" in a sample of {rows:,} rows")


def _rejects(spec: Spec, sample: Sample) -> Iterator[str]:
    limit, rows = spec.rejects.max_share, sample.rows
    share = len(sample.rejects) / rows if rows else 0.0
    opened = sum(len(images.headers) for images in sample.images.values()) + sample.image_rejects.total()
    images = sample.image_rejects.total() / opened if opened else 0.0
    if limit is not None and share + images > limit:
        found = f"{share:.1%} of the rows" + (f" and {images:.1%} of the opened images" if images else "")
        yield f"{found} would be rejected, and `rejects: {{max_share: {limit:g}}}` ends the build"


def _keys(sample: Sample) -> Iterator[str]:
    places = (zip(table["@group"].to_pylist(), table["@key"].to_pylist(), strict=True) for table in sample.tables)
    counts = Counter(chain.from_iterable(places))  # rows of other splits and spans stay: they are in another group
    doubled = {place: count for place, count in counts.items() if count > 1}
    if doubled:
        (_, key), count = next(iter(doubled.items()))
        shown = key.decode("utf-8", "replace")
        several = f"{len(doubled):,} keys stand in several rows, such as '{shown}' in {count:,}"
        yield f"{several}: all but the first are rejected"


def _columns(spec: Spec, sample: Sample, columns: Sequence[ColumnView]) -> Iterator[str]:
    for view in columns:
        if view.missing == 1 and sample.rows:
            yield f"'{view.name}' is missing in all rows" + ("" if sample.is_all else " of the sample")
        elif len(view.names) == 1 and view.name == spec.label:
            yield f"the label '{view.name}' has one class alone, '{view.names[0][0]}'"
        elif view.name == spec.label and view.names and view.names[0][1] > ONE_CLASS * sum(n for _, n in view.names):
            share = view.names[0][1] / sum(count for _, count in view.names)
            yield f"{share:.1%} of the rows are of one class, '{view.names[0][0]}'"


def _ids(spec: Spec, folder: Location, live: Manifest) -> Iterator[str]:
    """Names the features whose ids would mean something else than in the live version."""
    for name, feature in spec.features.items():
        if name not in live.features or live.features[name]["kind"] != feature.kind:
            continue
        if isinstance(feature, NamedClasses) and feature.classes == "fresh":
            yield f"'{name}': `classes: fresh` may give names other ids than {live.version} has"
        elif isinstance(feature, NamedClasses) and not feature.analyzed:
            yield from _moved(name, feature, folder, live, is_label=name == spec.label)
        elif isinstance(feature, Tokenized) and feature.analyzed and not spec.is_frozen:
            yield f"'{name}': its words are learned again, and their ids may move; `analysis: frozen` keeps them"


def _moved(name: str, feature: NamedClasses, folder: Location, live: Manifest, *, is_label: bool) -> Iterator[str]:
    description = read_description(live.features[name])
    given = feature.with_classes().given_classes
    if not isinstance(description, CategoryDescription | CategoriesDescription):
        return
    if description.vocabulary is None or given is None:
        return
    first = description.first_id or 0
    names = read_vocabulary(folder, description, name)[first:]
    now = 0 if is_label else 1 + feature.oov_buckets
    changes = compare_ids(
        {word: first + id_ for id_, word in enumerate(names)}, {word: now + id_ for id_, word in enumerate(given)}
    )
    if changes.moved:
        yield f"'{name}': {len(changes.moved):,} names get other ids than {live.version} has{first_few(changes.moved)}"
    if changes.lost:
        yield f"'{name}': {len(changes.lost):,} names of {live.version} get no id{first_few(changes.lost)}"
