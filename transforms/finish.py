"""Stored to model-ready: the one way from a record to what a model is fed, for training and for serving.

All functions take the features' descriptions as `dataset.json` holds them, work on a batch, and run eagerly, inside
`Dataset.map` and inside a SavedModel.

>>> batches.map(lambda serialized: parse(manifest.features, serialized))  # doctest: +SKIP
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from transforms.kind import Options, Stored, part_name
from transforms.kinds import KINDS

KEY = "key"
"""The Example's feature that holds the row's key; no feature of the spec has this name."""

Features = Mapping[str, Options]


def parse_spec(features: Features, *, with_key: bool = False) -> dict[str, Any]:
    """Gives what `tf.io.parse_example` needs to read the features, and the row's key where it is asked for."""
    spec = {
        part_name(name, part): stored
        for name, description in features.items()
        for part, stored in KINDS[description["kind"]].stored_spec(description).items()
    }
    return {**spec, KEY: tf.io.FixedLenFeature([], tf.string)} if with_key else spec


def finish(features: Features, stored: Mapping[str, Stored]) -> dict[str, tf.Tensor]:
    """Makes a batch of stored features model-ready: decoded, normalized, padded.

    Args:
        features: the features' descriptions; their order is the result's.
        stored: for each of their parts a tensor of shape [rows], or ragged [rows, None]; anything else is left out.

    Returns:
        Tensors of shape [rows, …] and the dtypes that the kinds' own `finish` state, by the parts' names. No rows give
        tensors of no rows.
    """
    ready: dict[str, tf.Tensor] = {}
    for name, description in features.items():
        kind = KINDS[description["kind"]]
        parts = {part: stored[part_name(name, part)] for part in kind.stored_spec(description)}
        ready |= {part_name(name, part): tensor for part, tensor in kind.finish(description, parts).items()}
    return ready


def parse(features: Features, serialized: tf.Tensor, *, with_key: bool = False) -> dict[str, tf.Tensor]:
    """Reads a batch of serialized Examples, string of shape [rows], in one parse and makes it model-ready.

    Returns:
        What `finish` gives, with the static number of rows where `serialized` has one; with the key: `key` too, the
        rows' keys as string of shape [rows].

    Raises:
        tf.errors.InvalidArgumentError: a record is no Example, or lacks a feature.
    """
    stored = tf.io.parse_example(serialized, parse_spec(features, with_key=with_key))
    ready = finish(features, stored)
    for tensor in ready.values():  # padding and decoding lose what is known of the number of rows
        tensor.set_shape([serialized.shape[0], *tensor.shape[1:]])
    return {**ready, KEY: stored[KEY]} if with_key else ready
