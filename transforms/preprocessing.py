"""The built-in `preprocessing_fn`: every feature from raw to stored, in one tf.Transform graph with one analysis phase.

The analyzers are handed in: they are Beam's (`pipeline.analyzers`), and this module loads without it. Inputs beside
the features' raw columns, needed by the analysis alone: `train` (int64, 1 for a row of the train split) and for each
image that is normalized by the dataset `<feature>/pixels`, `<feature>/sums` and `<feature>/squares` (int64).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import tensorflow as tf
import tensorflow_transform as tft

from transforms.kind import Found, Prepared, Stored
from transforms.kinds import KINDS

PIXEL_COLUMNS = ("pixels", "sums", "squares")
"""What is known of a sampled picture: how many pixels, and by channel their sum and the sum of their squares."""


class Analyzers(Protocol):
    """What the analysis can find, exactly, whatever the order and the batches of its input."""

    def vocabularies(self, tokens: Mapping[str, tf.Tensor], train: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Takes the strings of each feature; gives the path of its vocabulary file (string scalar)."""

    def moments(
        self, values: Mapping[str, tf.Tensor], pixels: Mapping[str, tuple[tf.Tensor, ...]], train: tf.Tensor
    ) -> Mapping[str, tuple[tf.Tensor, tf.Tensor]]:
        """Takes float32 values and pixel sums; gives mean and scale (float64 scalars) of the values by feature."""


@dataclass(frozen=True)
class Preprocessing:
    """The function that tf.Transform calls: `features` are the spec's options by feature (`Spec.options()`)."""

    features: Mapping[str, Mapping[str, Any]]
    analyzers: Analyzers

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, Stored]:
        """Gives the stored tensors by feature."""
        train = inputs["train"] > 0
        prepared = {
            name: KINDS[options["kind"]].prepare(options, inputs[name], train)
            for name, options in self.features.items()
        }
        found = self._analyze(prepared, self._pixels(inputs), train)
        return {name: one.store(found.get(name, Found())) for name, one in prepared.items()}

    def _pixels(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tuple[tf.Tensor, ...]]:
        return {
            name: tuple(inputs[f"{name}/{column}"] for column in PIXEL_COLUMNS)
            for name, options in self.features.items()
            if options.get("normalize") == "dataset"
        }

    def _analyze(
        self, prepared: Mapping[str, Prepared], pixels: Mapping[str, tuple[tf.Tensor, ...]], train: tf.Tensor
    ) -> dict[str, Found]:
        found: dict[str, Found] = {}
        tokens = {name: one.tokens for name, one in prepared.items() if one.tokens is not None}
        if tokens:
            for name, path in self.analyzers.vocabularies(tokens, train).items():
                found[name] = Found(lookup=partial(_lookup, path, f"{name}_vocabulary"))
        values = {name: one.values for name, one in prepared.items() if one.values is not None}
        if values or pixels:
            for name, (mean, scale) in self.analyzers.moments(values, pixels, train).items():
                found[name] = Found(mean=mean, scale=scale)
        return found


def _lookup(path: tf.Tensor, name: str, words: tf.Tensor, unknown: int) -> tf.Tensor:
    return tft.apply_vocabulary(words, path, default_value=unknown, name=name)
