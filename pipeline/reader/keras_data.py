"""An input as Keras' `PyDataset`, for any of its backends.

>>> model.fit(train.as_keras(), epochs=3, shuffle=False)  # doctest: +SKIP
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.batches import Batch
from recordmill.transforms.contract.stored import ArraySpec

if TYPE_CHECKING:
    from recordmill.pipeline.reader.input import Input, NumpyBatches


def as_keras(given: "Input") -> "KerasBatches":
    """Returns an input's batches; see `Input.as_keras`."""
    for name, spec in _named(given.element_spec):
        if spec.ragged or spec.dtype == "bytes":
            what = "ragged" if spec.ragged else "strings"
            raise DatasetError(f"Keras takes no NumPy arrays of {what}, which {name} is: leave it out by features=[…]")
    return KerasBatches(given)


def _named(spec: Any) -> Iterator[tuple[str, ArraySpec]]:
    """Yields the arrays of a batch, each with words for it."""
    features, *others = (spec,) if isinstance(spec, dict) else spec
    yield from ((f"'{name}'", array) for name, array in features.items())
    yield from (("the label", array) for array in others)


class KerasBatches(keras.utils.PyDataset):
    """Batches for `fit`, `evaluate` and `predict`; see `Input.as_keras`.

    A pass begins with batch 0. Keras may begin one just to see the shapes, and then asks again from 0.
    """

    def __init__(self, given: "Input") -> None:
        super().__init__()  # one worker: Keras asks in its own thread, and the input makes the batches ahead
        self._input = given
        self._batches: NumpyBatches | None = None
        self._steps, self._asked = range(0), 0

    @property
    def num_batches(self) -> int | None:
        """The batches of the pass that begins next, which may be the rest of an epoch; None where it has no end."""
        if self._input.passes.steps is None:
            return None
        return len(self._steps if self._asked < len(self._steps) else self._input.passes.upcoming)

    def __getitem__(self, index: int) -> Batch:
        """Returns the next batch of a pass. Raises: DatasetError: Keras asks in an order of its own."""
        if index == 0:
            self._steps = self._input.passes.upcoming
            self._batches = self._input.as_numpy()
        elif self._batches is None or index != self._asked:
            raise DatasetError("the input has an order of its own: fit(…, shuffle=False)")
        self._asked = index + 1
        return next(self._batches)

    def on_epoch_end(self) -> None:
        """Goes on with the next epoch, or with this one if Keras did not ask for all of it."""
        step = self._steps.start if self._asked < len(self._steps) else self._steps.stop
        self._input.set_epoch(step // max(1, self._input.batches_per_epoch))
