"""An input for Keras: batches in the structure of a model's inputs, and on any backend as a `PyDataset`.

A model's inputs are a list, a mapping, one, or any nest of these, each named after a feature or a feature's part.
`keras.Sequential` takes the single feature read. A subclass of `keras.Model` takes the mapping of all features, since
its inputs are unknown before the first batch.

>>> model.fit(train.as_tf_data(model), epochs=3)  # doctest: +SKIP
>>> model.fit(train.as_keras(model), epochs=3, shuffle=False)  # doctest: +SKIP
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import keras

from recordmill.pipeline.errors import DatasetError, listed
from recordmill.pipeline.reader.batches import Batch, SplitSource, element_spec, fitting, named
from recordmill.pipeline.reader.iteration import NumpyBatches, NumpyInput
from recordmill.pipeline.reader.request import Request
from recordmill.transforms.contract.stored import ArraySpec


def inputs_of(
    model: keras.Model, given: Mapping[str, ArraySpec], giver: str, remedy: str
) -> Callable[[Mapping[str, Any]], Any]:
    """Returns a function from a batch's features to a model's inputs, lists as tuples.

    Messages name the origin of the features, `giver`, and a `remedy`. Raises: DatasetError: name, shape or type differ.
    """
    wanted = getattr(model, "input", None)  # a subclass has none, nor has a Sequential
    if isinstance(model, keras.Sequential):
        wanted = model.inputs[0] if model.built else None
    elif wanted is None:
        return dict
    names = "" if wanted is None else _names(wanted)
    if isinstance(names, str) and names not in given:
        names = _only(names, given, giver, remedy)
    for name, tensor in zip(keras.tree.flatten(names), keras.tree.flatten(wanted), strict=True):
        if name not in given:
            raise DatasetError(f"the model takes '{name}', and {giver} has {listed(sorted(given))}: {remedy}")
        if tensor is not None and not _fits(given[name], tensor):
            takes, has = (f"{each.dtype} of shape {tuple(each.shape)}" for each in (tensor, given[name]))
            raise DatasetError(f"the model takes '{name}' as {takes}, and {giver} has {has}: {remedy}")
    return lambda features: keras.tree.map_structure(features.__getitem__, names)


def _names(wanted: Any, key: str | None = None) -> Any:
    """Names the features in place of a model's inputs: by their keys in a mapping, else by their own names."""
    if isinstance(wanted, Mapping):
        return {name: _names(each, name) for name, each in wanted.items()}
    return tuple(map(_names, wanted)) if isinstance(wanted, list | tuple) else key or wanted.name


def _only(name: str, given: Mapping[str, ArraySpec], giver: str, remedy: str) -> str:
    """Returns the single feature, parts not counted. Raises: DatasetError: there are several."""
    features = [each for each in given if not any(each.startswith(f"{other}_") for other in given)]
    if len(features) == 1:
        return features[0]
    takes = f"'{name}'" if name else "one input"
    raise DatasetError(f"the model takes {takes}, and {giver} has {listed(features)}: {remedy}")


def _fits(given: ArraySpec, wanted: Any) -> bool:
    """Whether Keras accepts an array for an input: it adds or removes a last side of 1, and a cast keeps fractions."""
    shape, other = given.shape, tuple(wanted.shape)
    if len(shape) + 1 == len(other) and other[-1] == 1:
        other = other[:-1]
    elif len(shape) == len(other) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    sides = zip(shape[1:], other[1:], strict=False)
    is_text, is_float = given.dtype in ("bytes", "string"), "float" in given.dtype
    return (
        len(shape) == len(other)
        and all(None in pair or pair[0] == pair[1] for pair in sides)
        and is_text == (wanted.dtype == "string")
        and (not is_float or "float" in wanted.dtype)
        and not given.ragged
    )


def for_model(given: NumpyInput, model: keras.Model) -> Callable[..., Batch]:
    """Maps a batch's parts to a model's inputs; warns if `servable` would refuse the model. Raises: DatasetError."""
    features = _features(given.element_spec)
    take = inputs_of(model, features, "the input", "name the model's inputs after features, or choose by features=[…]")
    if isinstance(given.source, SplitSource):
        served = served_features(given.source.request)
        try:
            inputs_of(model, served, "a served row", "`servable` needs `prepare`")
        except DatasetError as error:
            warnings.warn(str(error), stacklevel=3)
    return lambda features, *others: (take(features), *others)


def served_features(request: Request) -> Mapping[str, ArraySpec]:
    """Returns a batch's features without training's options: augmentations, keys, packed or chosen texts."""
    given = replace(request.given, augment=(), with_key=False, text="padded", captions="all")
    return _features(element_spec(replace(request, given=given, augment={}, mixtures=())))


def _features(spec: Any) -> Mapping[str, ArraySpec]:
    features: Mapping[str, ArraySpec] = spec if isinstance(spec, dict) else spec[0]
    return features


class KerasBatches(keras.utils.PyDataset):
    """Batches for `fit` and others; a pass begins with batch 0, and Keras may begin one just for the shapes."""

    def __init__(self, given: NumpyInput, for_model: Callable[..., Batch] | None) -> None:
        for name, spec in named(given.element_spec):
            if spec.ragged or spec.dtype == "bytes":
                what = "ragged" if spec.ragged else "strings"
                raise DatasetError(f"{name} is {what}, which Keras does not take as NumPy: leave it out, features=[…]")
        super().__init__()  # one worker: Keras asks in its own thread, and the input makes the batches ahead
        self._input, self._for_model = given, for_model
        self._batches: NumpyBatches | None = None
        self._steps, self._asked = range(0), 0

    @property
    def num_batches(self) -> int | None:
        """The batches of the next pass, which may be the rest of an epoch; None if endless."""
        if self._input.passes.steps is None:
            return None
        return len(self._steps if self._asked < len(self._steps) else self._input.passes.upcoming)

    def __getitem__(self, index: int) -> Batch:
        """Returns the next batch of a pass. Raises: DatasetError: Keras asks out of order, or for too many."""
        if index == 0:
            self._steps = self._input.passes.upcoming
            self._batches, self._asked = self._input.as_numpy(), 0
        elif self._batches is None or index != self._asked:
            raise DatasetError("the input gives its batches in order: fit(…, shuffle=False)")
        batch = next(self._batches, None)
        if batch is None:
            raise DatasetError("Keras counts every batch, and one was skipped: as_tf_data(model), or larger batches")
        self._asked = index + 1
        if keras.config.backend() == "jax":
            import jax

            batch = fitting(batch, jax.dtypes.canonicalize_dtype)
        if self._for_model is None:
            return batch
        return self._for_model(*(batch if isinstance(batch, tuple) else [batch]))

    def on_epoch_end(self) -> None:
        """Moves to the next epoch, or begins this one again if Keras did not ask for all of it."""
        step = self._steps.start if self._asked < len(self._steps) else self._steps.stop
        self._input.set_epoch(step // max(1, self._input.batches_per_epoch))
