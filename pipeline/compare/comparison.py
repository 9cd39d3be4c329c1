"""Compares two versions by their manifests, profiles and vocabularies; no record is read.

>>> before, after = ComparedVersion.read(live_folder, live), ComparedVersion.read(folder, manifest)  # doctest: +SKIP
>>> [str(figure) for figure in compare(before, after).figures if figure.value]  # doctest: +SKIP
['rows_lost of train is 0.4: 1,000 → 600 rows']
"""

from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipeline.compare.distributions import pixel_figures, value_figures
from recordmill.pipeline.compare.figures import (
    Figure,
    count_figures,
    id_figures,
    schema_figures,
    spans_are_regrouped,
    splits_are_edited,
)
from recordmill.pipeline.compare.versions import ComparedVersion, is_edited
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError


@dataclass(frozen=True)
class Compared:
    """All figures of two versions."""

    figures: list[Figure]
    not_compared: list[str]
    """A line for each part that was not compared on purpose, with the reason."""
    damaged: list[tuple[str, str]]
    """The feature, empty for all of them, and a line for each part that a damaged file keeps from being compared."""


def compare(before: ComparedVersion, after: ComparedVersion) -> Compared:
    """Compares two versions: rows, schema, and the values of each feature whose options nobody edited in between."""
    old, new = before.manifest, after.manifest
    figures = [*count_figures(old, new), *schema_figures(old, new)]
    damaged = [("", f"{each.manifest.version} is damaged: {each.fault}") for each in (before, after) if each.fault]
    not_compared = [] if damaged else [*_left_out(old, new)]
    edited = [name for name in old.features if is_edited(before.options(name), after.options(name))]
    if edited:
        not_compared.append(f"{', '.join(edited)}: the spec's options were edited")
    for name in (name for name in old.features if name in new.features and name not in edited):
        try:
            figures += _feature_figures(name, before, after)
        except DatasetError as error:
            damaged.append((name, f"{name}: {error}"))
    return Compared(figures, not_compared, damaged)


def _left_out(before: Manifest, after: Manifest) -> Iterator[str]:
    if splits_are_edited(before, after):
        yield "splits: the spec's `splits` or `split_by` were edited"
    if spans_are_regrouped(before, after):
        yield "duplicates and leakage: they are counted within spans, some of which `--compact` put together"


def _feature_figures(name: str, before: ComparedVersion, after: ComparedVersion) -> list[Figure]:
    figures = [*id_figures(name, before, after), *pixel_figures(name, before, after)]
    if not splits_are_edited(before.manifest, after.manifest):
        for split in before.manifest.splits:
            figures += value_figures(name, split, before, after)
    return figures
