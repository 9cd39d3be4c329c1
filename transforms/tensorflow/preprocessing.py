"""The built-in `preprocessing_fn`: every feature from raw to stored, in one tf.Transform graph with one analysis phase.

The analyzers are arguments: they are Beam's (`beam.analyzers`), and this module loads without it. The analysis alone
needs inputs beside the features' raw columns: `train` (int64, 1 for a row of the train split) and for each
image that is normalized by the dataset `<feature>/pixels`, `<feature>/sums` and `<feature>/squares` (int64).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import tensorflow as tf
import tensorflow_transform as tft

from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.contract.kinds.text import vocabulary_owner
from recordmill.transforms.contract.stored import part_name
from recordmill.transforms.tensorflow.kind import Context, Prepared, RequestedStatistics, Statistics, Stored
from recordmill.transforms.tensorflow.kinds import KINDS

PIXEL_COLUMNS = ("pixels", "sums", "squares")
"""The measures of a sampled image: its number of pixels, and by channel their sum and sum of squares."""


class Analyzers(Protocol):
    """The statistics that an analysis computes, exactly, whatever the order and the batches of its input."""

    def vocabularies(self, tokens: Mapping[str, tf.Tensor], train: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Takes the strings of each feature; gives the path of its vocabulary file (string scalar)."""

    def moments(
        self,
        values: Mapping[str, tuple[tf.Tensor, RequestedStatistics]],
        pixels: Mapping[str, tuple[tf.Tensor, ...]],
        train: tf.Tensor,
    ) -> Mapping[str, Statistics]:
        """Takes float32 values with the requested statistics, and pixel sums; gives the statistics by feature."""


@dataclass(frozen=True)
class Preprocessing:
    """The function that tf.Transform calls: `features` are the spec's options by feature (`Spec.options()`)."""

    features: Mapping[str, FeatureOptions]
    analyzers: Analyzers
    own: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Stored]] | None = None
    """The user's function: takes the raw columns and the stored tensors, gives the tensors to store instead."""

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, Stored]:
        """Gives the stored tensors by the parts' names."""
        train = inputs["train"] > 0
        prepared: dict[str, Prepared] = {}
        columns = {name: inputs[name] for name in self.features if name in inputs}
        context = Context(train, columns, prepared, self.features)
        for name in sorted(self.features, key=lambda name: not isinstance(self.features[name], ImageOptions)):
            options = self.features[name]
            prepared[name] = KINDS[options.kind].prepare(options, inputs.get(name), context)
        statistics = self._analyze(prepared, self._pixels(inputs), train)
        stored = {
            part_name(name, part): tensor
            for name in self.features
            for part, tensor in prepared[name].store(statistics.get(name, Statistics())).items()
        }
        return stored if self.own is None else self.own(context.columns, stored)

    def _pixels(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tuple[tf.Tensor, ...]]:
        return {
            name: tuple(inputs[f"{name}/{column}"] for column in PIXEL_COLUMNS)
            for name, options in self.features.items()
            if isinstance(options, ImageOptions) and options.measured
        }

    def _analyze(
        self, prepared: Mapping[str, Prepared], pixels: Mapping[str, tuple[tf.Tensor, ...]], train: tf.Tensor
    ) -> dict[str, Statistics]:
        statistics = self._vocabularies(prepared, train)
        values = {name: (each.values, each.wanted) for name, each in prepared.items() if each.values is not None}
        if values or pixels:
            statistics |= self.analyzers.moments(values, pixels, train)
        return statistics

    def _vocabularies(self, prepared: Mapping[str, Prepared], train: tf.Tensor) -> dict[str, Statistics]:
        """Counts features that share a vocabulary together, under its owner's name."""
        owners = {name: vocabulary_owner(name, self.features[name]) for name in prepared}
        tokens: dict[str, list[tf.Tensor]] = {}
        for name, each in prepared.items():
            if each.tokens is not None:
                tokens.setdefault(owners[name], []).append(each.tokens)
        if not tokens:
            return {}
        together = {owner: some[0] if len(some) == 1 else tf.concat(some, axis=0) for owner, some in tokens.items()}
        paths = self.analyzers.vocabularies(together, train)
        return {
            name: Statistics(lookup=partial(_lookup, paths[owners[name]], f"{name}_vocabulary"))
            for name, each in prepared.items()
            if each.tokens is not None
        }


def _lookup(path: tf.Tensor, name: str, words: tf.Tensor, unknown: int) -> tf.Tensor:
    return tft.apply_vocabulary(words, path, default_value=unknown, name=name)
