"""Batches where a model works: each is on its way there while the model works on the one before.

PyTorch and JAX say how a batch is placed (`pipeline.reader.torch_data`, `Input.as_jax`); the rest is alike.

>>> for features, label in OnDevice(train, place):  # doctest: +SKIP
...     ...  # arrays on the device; the next iteration is the next epoch
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from recordmill.pipeline.reader.batches import Batch
from recordmill.pipeline.reader.iteration import Iteration, NumpyBatches, NumpyInput
from recordmill.pipeline.reader.steps import State
from recordmill.transforms.contract.stored import Ragged

Place: TypeAlias = Callable[[Batch], Any]
"""Puts the arrays of a batch on a device; called in a thread."""


class OnDevice:
    """An input whose batches come on a device; each iteration is the next epoch."""

    def __init__(self, given: NumpyInput, place: Place, receive: Place = lambda placed: placed) -> None:
        """Takes an input, what places a batch, and what the model's own thread does with it before it is used."""
        self._input, self._place, self._receive = given, place, receive
        self._latest: PlacedBatches | None = None

    def __len__(self) -> int:
        """The batches of an iteration that begins with an epoch. Raises: TypeError where it has no end."""
        return len(self._input)

    def __iter__(self) -> "PlacedBatches":
        """Begins an iteration: of the next epoch, or of all `epochs`."""
        self._latest = PlacedBatches(self._input.as_numpy(), self._place, self._receive)
        return self._latest

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration give this epoch, from 0."""
        self._input.set_epoch(epoch)

    def state_dict(self) -> State:
        """Returns the position after the batches that the latest iteration has given out: JSON, under 1 KB."""
        start = self._input.source.given.start_step
        return self._input.state(start if self._latest is None else self._latest.step)

    def load_state_dict(self, state: State) -> None:
        """Goes on from a state: the next iteration begins with the batch that would have come.

        Raises:
            DatasetError: as `Input.resume`.
        """
        self._input, self._latest = self._input.resume(state), None


class PlacedBatches(Iteration):
    """One iteration over batches on a device.

    Attributes:
        step: the step of the next batch, counted from the first of epoch 0.
    """

    def __init__(self, batches: NumpyBatches, place: Place, receive: Place) -> None:
        self.step = batches.step
        self._receive = receive
        pool = ThreadPoolExecutor(1, "recordmill-place")
        super().__init__(batches, partial(_end, pool, batches))
        self._begin = partial(pool.submit, _placed, batches, place)
        self._ahead = self._begin()

    def _next(self) -> Any:
        placed, step = self._ahead.result()
        self._ahead, self.step = self._begin(), step
        return self._receive(placed)


def _placed(batches: NumpyBatches, place: Place) -> tuple[Any, int]:
    placed = place(next(batches))
    return placed, batches.step


def _end(pool: ThreadPoolExecutor, batches: NumpyBatches) -> None:
    pool.shutdown(cancel_futures=True)
    batches.close()


def mapped(function: Callable[[Any], Any], batch: Any) -> Any:
    """Applies a function to each array of a batch; the values and splits of a `Ragged` are two."""
    if isinstance(batch, dict):
        return {name: mapped(function, value) for name, value in batch.items()}
    if isinstance(batch, Ragged):
        return Ragged(mapped(function, batch.values), mapped(function, batch.splits))
    return tuple(mapped(function, part) for part in batch) if isinstance(batch, tuple) else function(batch)
