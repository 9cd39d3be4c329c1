"""Finds what a person should look at first: empty splits, leakage, missing values, and figures beyond their limits."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from recordmill.pipeline.dataset.manifest_words import warnings
from recordmill.pipeline.dataset.profile import FeatureProfile
from recordmill.pipeline.report.figures import Figures
from recordmill.transforms.contract.kinds.text import TextDescription

DOMINANT = 0.9  # share of one class
UNBALANCED = 100  # times as many records as the rarest class has
MISSING = 0.2
UNKNOWN = 0.05


class Finding(NamedTuple):
    """A line, and the section of the report that shows more."""

    text: str
    section: str


def findings(figures: Figures) -> Iterator[Finding]:
    """Yields the lines, the gravest first; none where nothing stands out."""
    manifest = figures.manifest
    if figures.damage:
        yield Finding(f"No record is shown: {figures.damage}.", "splits")
    yield from (Finding(f"{line}.", "duplicates") for line in warnings(manifest.duplicates))
    for breach in manifest.gate.get("breaches", []):
        yield Finding(f"{breach['rule']} of {breach['subject']} is beyond its limit: {breach['detail']}.", "changes")
    for name, boxes in figures.sample.boxes.items() if figures.sample else ():
        empty = int((boxes[:, :2] >= boxes[:, 2:]).any(1).sum())
        if empty:
            text = f"{name}: {empty:,} of {len(boxes):,} boxes in the sample have no area."
            yield Finding(text, f"feature-{list(manifest.features).index(name)}")
    for name, split in manifest.splits.items():
        if not split.records:
            yield Finding(f"The split {name} has no records.", "splits")
    yield from _label(figures)
    for name in manifest.features:
        yield from _feature(figures, name)
    if rejected := manifest.rows.get("rejected"):
        yield Finding(f"{rejected:,} of {manifest.rows.get('read', 0):,} rows were rejected.", "rejects")


def _label(figures: Figures) -> Iterator[Finding]:
    manifest = figures.manifest
    names, train = figures.vocabularies.get(manifest.label or "", ()), manifest.splits.get("train")
    counts = train.label_counts if train else None
    if not counts or len(counts) != len(names) or not sum(counts):
        return
    section = f"feature-{list(manifest.features).index(str(manifest.label))}"
    unseen = [name for name, count in zip(names, counts, strict=True) if not count]
    if unseen:
        shown = ", ".join(unseen[:5]) + (", …" if len(unseen) > 5 else "")
        yield Finding(f"No record of train is of {len(unseen):,} of {len(names):,} classes: {shown}.", section)
    largest, least = max(counts), min((count for count in counts if count), default=0)
    if largest / sum(counts) >= DOMINANT:
        yield Finding(f"{largest / sum(counts):.0%} of train is of one class: {names[counts.index(largest)]}.", section)
    elif largest >= UNBALANCED * least:
        yield Finding(f"The largest class has {largest / least:,.0f} times the records of the smallest.", section)


def _feature(figures: Figures, name: str) -> Iterator[Finding]:
    section = f"feature-{list(figures.manifest.features).index(name)}"
    profiles = {split: figures.profiles.get(split, {}).get(name, FeatureProfile()) for split in figures.manifest.splits}
    missing = {split: each.missing / each.rows for split, each in profiles.items() if each.rows}
    unknown = {split: each.unknown / each.tokens for split, each in profiles.items() if each.tokens}
    if max(missing.values(), default=0) >= MISSING:
        yield Finding(f"{name} is missing in {_by_split(missing)}.", section)
    if max(unknown.values(), default=0) >= UNKNOWN:
        yield Finding(f"{name} is out of vocabulary in {_by_split(unknown)}.", section)
    values = profiles["train"].histogram if "train" in profiles else None
    is_text = isinstance(figures.features[name], TextDescription)
    if values is not None and len(values.keys) == 1 and values.counts.sum() > 1 and not is_text:
        yield Finding(f"{name} is the same number in all of train.", section)


def _by_split(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{share:.0%} of {split}" for split, share in shares.items())
