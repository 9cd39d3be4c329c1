"""What every worker of a build knows: sent with the graph, so plain, frozen and small."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.layout import Layout
from pipeline.rows import RowFormat
from pipeline.sources.base import Files, Source

IMAGE_BATCH = 32  # rows that go through the graph at once; constants, because a batch's bounds must not depend
ROW_BATCH = 1024  # on cores or memory


@dataclass(frozen=True)
class Work:
    """One build, as its workers see it."""

    name: str
    folder: str
    """The build's own folder, absolute: `OUT/.building/<build key>`."""
    features: Mapping[str, Mapping[str, Any]]
    """The features' options (`Spec.options`)."""
    analyzed: frozenset[str]
    """The features whose raw columns the analysis reads."""
    rows: RowFormat
    layout: Layout
    sources: tuple[Source, ...]
    roots: tuple[str, ...]
    """The root folder of each source."""
    files: Files
    inline: bool
    """Whether packed rows cross the shuffle themselves; otherwise they lie in scratch files."""
    pack_bytes: int
    """Rows are packed when so many bytes of them are together, so that a packed batch is worth its cost."""
    threads: int
    """How many threads a worker gives to the transform graph."""
    sample_share: float
    """The share of the train split's images that pixel statistics are taken from, 0..1."""

    def path(self, folder: str) -> str:
        """One of the build's folders."""
        return os.path.join(self.folder, folder)

    def images(self) -> dict[str, Mapping[str, Any]]:
        """The features that are images, with their options."""
        return {name: options for name, options in self.features.items() if options["kind"] == "image"}

    def measured_images(self) -> dict[str, Mapping[str, Any]]:
        """The images whose pixel statistics are wanted."""
        return {name: options for name, options in self.images().items() if options["normalize"] == "dataset"}

    def analyses(self) -> set[str]:
        """The analyses that this build needs, by the names of their reports."""
        kinds = {self.features[name]["kind"] for name in self.analyzed}
        has_words = any(options["kind"] in ("text", "category") for options in self.features.values())
        has_moments = "number" in kinds or self.measured_images()
        return ({"vocabularies"} if has_words else set()) | ({"moments"} if has_moments else set())

    def batch_rows(self) -> int:
        """How many rows go through the transform graph at once."""
        return IMAGE_BATCH if self.images() else ROW_BATCH

    def open_label(self) -> bool:
        """Whether the label's classes are those of the data, of all splits."""
        label = self.rows.label
        return label is not None and self.features[label]["kind"] == "category" and self.rows.classes is None
