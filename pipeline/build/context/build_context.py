"""What every worker of a build knows: sent with the graph, so plain, frozen and small."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recordmill.pipeline.build.worker.keyed_rows import RowFormat
from recordmill.pipeline.dataset.layout import Layout
from recordmill.pipeline.sources.base import Files, Source
from recordmill.pipeline.sources.python.user_code import UserCode
from recordmill.transforms.contract.stored import PICTURES

IMAGE_BATCH = 32  # rows that go through the graph at once; constants, because a batch's bounds must not depend
ROW_BATCH = 1024  # on cores or memory
CLASSES = ("category", "categories")
"""The kinds whose values are names of classes."""


@dataclass(frozen=True)
class Work:
    """One build, as its workers see it."""

    name: str
    folder: str
    """The attempt's own folder, absolute: `OUT/.building/<build key>/<run>` (`pipeline.build.attempts`)."""
    features: Mapping[str, Mapping[str, Any]]
    """The features' options (`Spec.options`); `beam.pre_passes` adds what they need of files and of the data."""
    analyzed: frozenset[str]
    """The features whose raw columns the analysis reads."""
    rows: RowFormat
    layout: Layout
    sources: tuple[Source, ...]
    roots: tuple[str, ...]
    """The folder of each source's pictures."""
    files: Files
    inline: bool
    """Whether packed rows cross the shuffle themselves; otherwise they lie in scratch files."""
    pack_bytes: int
    """Rows are packed when so many bytes of them are together, so that a packed batch is worth its cost."""
    threads: int
    """How many threads a worker gives to the transform graph."""
    sample_share: float
    """The share of the train split's images that pixel statistics are taken from, 0..1."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The features whose tokenizer is a model, and the feature that the model is named after, which may be another."""
    preprocessing: str | None = None
    """The user's own function, `module:function`."""
    user_code: UserCode | None = None
    """The user's modules, as they travel to the workers."""
    isolated: bool = False
    """Whether each picture is decoded first in a process that may crash (`pipeline.build.images.isolation`)."""
    groups: frozenset[int] | None = None
    """The groups whose shards are still to be built; None: all."""
    export: str | None = None
    """The folder of a finished analysis' export; the job then has no analysis."""
    duplicates: Mapping[str, Any] = field(default_factory=dict)
    """What becomes of duplicates (`pipeline.spec.duplicates`): `action`, `near`, `distance`."""
    dropped: str | None = None
    """The file of the duplicates that are left out (`pipeline.build.duplicates.decisions`)."""

    def path(self, folder: str) -> str:
        """One of the build's folders."""
        return os.path.join(self.folder, folder)

    def images(self) -> dict[str, Mapping[str, Any]]:
        """The features whose column is pictures, with their options."""
        return {name: options for name, options in self.features.items() if options["kind"] in PICTURES}

    def measured_images(self) -> dict[str, Mapping[str, Any]]:
        """The images whose pixel statistics are wanted."""
        return {name: options for name, options in self.images().items() if options["normalize"] == "dataset"}

    def compared_looks(self) -> list[str]:
        """The images that are compared by how they look: of those that read one column, the first."""
        images = [name for name, options in self.features.items() if options["kind"] == "image"]
        first = {self.rows.features[name]: name for name in reversed(images)}
        return [name for name in images if name in first.values()] if self.duplicates.get("near") else []

    def batch_rows(self) -> int:
        """How many rows go through the transform graph at once."""
        return IMAGE_BATCH if self.images() else ROW_BATCH

    def packed(self) -> tuple[str, int] | None:
        """The text whose documents share records, and how many ids a record holds."""
        return next(((name, one["pack"]) for name, one in self.features.items() if one.get("pack")), None)

    def trained(self) -> dict[str, str]:
        """Of `models`, those that are trained from the data."""
        return {name: owner for name, owner in self.models.items() if self.features[owner]["model"] is None}

    def sees_rows(self) -> bool:
        """Whether the analysis is shown the rows of the train split: it needs none where all is given."""
        return bool(self.analyzed or self.measured_images())

    def open_label(self) -> bool:
        """Whether the label's classes are those of the data, of all splits."""
        label = self.rows.label
        return label is not None and self.features[label]["kind"] in CLASSES and not self.features[label]["classes"]
