"""The built-in `preprocessing_fn`: every feature from raw to stored, in one tf.Transform graph with one analysis phase.

The analyzers are handed in: they are Beam's (`beam.analyzers`), and this module loads without it. Inputs beside
the features' raw columns, needed by the analysis alone: `train` (int64, 1 for a row of the train split) and for each
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
"""What is known of a sampled picture: how many pixels, and by channel their sum and the sum of their squares."""


class Analyzers(Protocol):
    """What the analysis can find, exactly, whatever the order and the batches of its input."""

    def vocabularies(self, tokens: Mapping[str, tf.Tensor], train: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Takes the strings of each feature; gives the path of its vocabulary file (string scalar)."""

    def moments(
        self,
        values: Mapping[str, tuple[tf.Tensor, RequestedStatistics]],
        pixels: Mapping[str, tuple[tf.Tensor, ...]],
        train: tf.Tensor,
    ) -> Mapping[str, Statistics]:
        """Takes float32 values and what is wanted of them, and pixel sums; gives what the values are like."""


@dataclass(frozen=True)
class Preprocessing:
    """The function that tf.Transform calls: `features` are the spec's options by feature (`Spec.options()`)."""

    features: Mapping[str, FeatureOptions]
    analyzers: Analyzers
    own: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Stored]] | None = None
    """The user's function: the raw columns and the stored tensors to what is stored instead."""

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, Stored]:
        """Gives the stored tensors by the parts' names."""
        train = inputs["train"] > 0
        prepared: dict[str, Prepared] = {}
        columns = {name: inputs[name] for name in self.features if name in inputs}
        context = Context(train, columns, prepared, self.features)
        for name in sorted(self.features, key=lambda name: not isinstance(self.features[name], ImageOptions)):
            options = self.features[name]
            prepared[name] = KINDS[options.kind].prepare(options, inputs.get(name), context)
        found = self._analyze(prepared, self._pixels(inputs), train)
        stored = {
            part_name(name, part): tensor
            for name in self.features
            for part, tensor in prepared[name].store(found.get(name, Statistics())).items()
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
        found = self._vocabularies(prepared, train)
        values = {name: (one.values, one.wanted) for name, one in prepared.items() if one.values is not None}
        if values or pixels:
            found |= self.analyzers.moments(values, pixels, train)
        return found

    def _vocabularies(self, prepared: Mapping[str, Prepared], train: tf.Tensor) -> dict[str, Statistics]:
        """Features that share a vocabulary are counted together, under its owner's name."""
        owners = {name: vocabulary_owner(name, self.features[name]) for name in prepared}
        tokens: dict[str, list[tf.Tensor]] = {}
        for name, one in prepared.items():
            if one.tokens is not None:
                tokens.setdefault(owners[name], []).append(one.tokens)
        if not tokens:
            return {}
        together = {owner: some[0] if len(some) == 1 else tf.concat(some, axis=0) for owner, some in tokens.items()}
        paths = self.analyzers.vocabularies(together, train)
        return {
            name: Statistics(lookup=partial(_lookup, paths[owners[name]], f"{name}_vocabulary"))
            for name, one in prepared.items()
            if one.tokens is not None
        }


def _lookup(path: tf.Tensor, name: str, words: tf.Tensor, unknown: int) -> tf.Tensor:
    return tft.apply_vocabulary(words, path, default_value=unknown, name=name)
