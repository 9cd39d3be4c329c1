"""The facts of a build that its workers get, in two stages: after the plan, and after the passes before the job.

Sent with the graph, so plain, frozen and small.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from recordmill.pipeline.build.context.row_schema import RowDecisions, RowSchema
from recordmill.pipeline.dataset.layout import Layout
from recordmill.pipeline.sources.base import Files, Source
from recordmill.pipeline.sources.python.user_code import UserCode
from recordmill.pipeline.spec.duplicates import Duplicates
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.contract.kinds.text import TextOptions

IMAGE_BATCH = 32  # rows that go through the graph at once; constants, because a batch's bounds must not depend
ROW_BATCH = 1024  # on cores or memory


@dataclass(frozen=True, kw_only=True)
class PlannedBuild:
    """A build as its plan knows it: enough for the passes before the job."""

    name: str
    folder: str
    """The attempt's own folder, absolute: `OUT/.building/<build key>/<run>` (`pipeline.build.attempts`)."""
    features: Mapping[str, FeatureOptions]
    """The features' options; those of a `BuildContext` hold models, words and classes too."""
    analyzed: frozenset[str]
    """The features whose raw columns the analysis reads."""
    schema: RowSchema
    layout: Layout
    sources: tuple[Source, ...]
    roots: tuple[str, ...]
    """The folder of each source's images."""
    files: Files
    inline: bool
    """Whether packed rows cross the shuffle themselves; otherwise they lie in scratch files."""
    pack_bytes: int
    """Rows are packed when so many bytes of them are together, so that a packed batch is worth its cost."""
    threads: int
    """The number of threads that a worker gives to the transform graph."""
    sample_share: float
    """The share of the train split's images that pixel statistics are taken from, 0..1."""
    duplicates: Duplicates
    models: Mapping[str, str]
    """The features whose tokenizer is a model, and the feature that the model is named after, which may be another."""
    preprocessing: str | None = None
    """The user's own function, `module:function`."""
    user_code: UserCode | None = None
    """The user's modules, as they travel to the workers."""
    isolated: bool = False
    """Whether each image is decoded first in a process that may crash (`pipeline.build.images.isolation`)."""

    def path(self, folder: str) -> str:
        """Gives the path of one of the build's folders."""
        return os.path.join(self.folder, folder)

    def images(self) -> dict[str, ImageOptions]:
        """Gives the features whose column is images, with their options."""
        return {name: options for name, options in self.features.items() if isinstance(options, ImageOptions)}

    def measured_images(self) -> dict[str, ImageOptions]:
        """Gives the images whose pixel statistics the analysis needs."""
        return {name: options for name, options in self.images().items() if options.measured}

    def hashed_images(self) -> list[str]:
        """Lists the images that are compared by their perceptual hash: the first of those that read one column."""
        images = [name for name, options in self.images().items() if options.kind == "image"]
        first = {self.schema.features[name]: name for name in reversed(images)}
        return [name for name in images if name in first.values()] if self.duplicates.near else []

    def texts(self) -> dict[str, TextOptions]:
        """Gives the texts, with their options."""
        return {name: options for name, options in self.features.items() if isinstance(options, TextOptions)}

    def label_names(self) -> NameOptions | None:
        """Gives the label's options where its values are names of classes."""
        label = self.features.get(self.schema.label or "")
        return label if isinstance(label, NameOptions) else None

    def batch_rows(self) -> int:
        """Gives the number of rows that go through the transform graph at once."""
        return IMAGE_BATCH if self.images() else ROW_BATCH

    def packed(self) -> tuple[str, int] | None:
        """Gives the text whose documents share records, and how many ids a record holds."""
        return next(((name, text.pack) for name, text in self.texts().items() if text.pack), None)

    def trained(self) -> dict[str, str]:
        """Gives those of `models` that are trained from the data."""
        return {name: owner for name, owner in self.models.items() if self.texts()[owner].model is None}

    def sees_rows(self) -> bool:
        """Whether the analysis is shown the rows of the train split: it needs none where all is given."""
        return bool(self.analyzed or self.measured_images())

    def open_label(self) -> bool:
        """Whether the label's classes are those of the data, of all splits."""
        names = self.label_names()
        return names is not None and not names.classes


@dataclass(frozen=True, kw_only=True)
class BuildContext(PlannedBuild):
    """A build as the job knows it: the plan, what the passes before the job found, and what is left to do."""

    decisions: RowDecisions
    export: str | None = None
    """The folder of a finished analysis' export; the job then has no analysis."""
    groups: frozenset[int] | None = None
    """The groups whose shards are still to be built; None: all."""

    @classmethod
    def of(cls, planned: PlannedBuild, decisions: RowDecisions, features: Mapping[str, FeatureOptions]) -> Self:
        """Completes a planned build with the decisions and the features' complete options."""
        return cls(**(vars(planned) | {"features": features}), decisions=decisions)
