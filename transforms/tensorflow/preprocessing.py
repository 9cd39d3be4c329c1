"""The built-in `preprocessing_fn`: every feature from raw to stored, in one tf.Transform graph without an analyzer.

All that is learned of the data is given: a look at the rows found it before (`pipeline.build.summaries`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.contract.kinds.number import NumberOptions
from recordmill.transforms.contract.kinds.text import vocabulary_owner
from recordmill.transforms.contract.stored import UNENCODED, part_name
from recordmill.transforms.tensorflow.kind import Context, Prepared, Statistics, Stored
from recordmill.transforms.tensorflow.kinds import KINDS
from recordmill.transforms.tensorflow.number import used_statistics


@dataclass(frozen=True)
class Preprocessing:
    """The function that tf.Transform calls."""

    features: Mapping[str, FeatureOptions]
    """The spec's options by feature (`Spec.options()`), complete with words, classes and models."""
    vocabularies: Mapping[str, str] = field(default_factory=dict)
    """The path of each vocabulary's file, a word a line, by the feature that it is named after."""
    statistics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The statistics by feature, as `dataset.json` holds them; those of numbers count."""
    own: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Stored]] | None = None
    """The user's function: takes the raw columns and the stored tensors, gives the tensors to store instead."""

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, Stored]:
        """Returns the stored tensors by the parts' names."""
        prepared: dict[str, Prepared] = {}
        columns = {name: inputs[name] for name in self.features if name in inputs}
        context = Context(columns, prepared, self.features)
        for name in sorted(self.features, key=lambda name: not isinstance(self.features[name], ImageOptions)):
            options = self.features[name]
            prepared[name] = KINDS[options.kind].prepare(options, inputs.get(name), context)
        stored = {
            part_name(name, part): tensor
            for name in self.features
            for part, tensor in prepared[name].store(self._given(name)).items()
        }
        if self.own is None:
            return stored
        return self.own(columns, {name: tensor for name, tensor in stored.items() if not name.endswith(UNENCODED)})

    def _given(self, name: str) -> Statistics:
        owner = vocabulary_owner(name, self.features[name])
        if owner in self.vocabularies:
            return Statistics(lookup=partial(_lookup, self.vocabularies[owner], f"{name}_vocabulary"))
        options, learned = self.features[name], self.statistics.get(name, {})
        used = used_statistics(options) if isinstance(options, NumberOptions) else ()
        return number_statistics({key: learned[key] for key in used if key in learned})


def _lookup(path: str, name: str, words: tf.Tensor, unknown: int) -> tf.Tensor:
    return tft.apply_vocabulary(words, path, default_value=unknown, name=name)  # a tensor would be read at each call


def number_statistics(found: Mapping[str, Any]) -> Statistics:
    """Returns the statistics of a number as constants of the graph.

    Args:
        found: those that the graph uses of `mean` and `variance`, `minimum` and `maximum`, `median`, and `boundaries`.
    """
    given = {name: found[name] for name in ("mean", "minimum", "median", "boundaries") if name in found}
    if "variance" in found:
        given["scale"] = 1 / math.sqrt(found["variance"]) if found["variance"] > 0 else 1.0
    if "maximum" in found:
        extent = found["maximum"] - found["minimum"]
        given["range_scale"] = 1 / extent if extent > 0 else 1.0
    return Statistics(**{name: tf.constant(value, tf.float64) for name, value in given.items()})
