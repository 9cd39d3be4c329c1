"""Batches on a model's device: each is copied there while the model works on the one before.

PyTorch and JAX differ only in how they place a batch (`pipeline.reader.torch_data`, `Input.as_jax`).
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
    """An input with batches on a device; each iteration is the next epoch."""

    def __init__(self, given: NumpyInput, place: Place, receive: Place = lambda placed: placed) -> None:
        """Takes an input, a function that places a batch, and one that the model's thread calls on the placed batch."""
        self._input, self._place, self._receive = given, place, receive
        self._latest: PlacedBatches | None = None

    def __len__(self) -> int:
        """The batches of an iteration from an epoch's start. Raises: TypeError if endless."""
        return len(self._input)

    def __iter__(self) -> "PlacedBatches":
        """Begins an iteration: of the next epoch, or of all `epochs`."""
        self._latest = PlacedBatches(self._input.as_numpy(), self._place, self._receive)
        return self._latest

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration give this epoch, from 0."""
        self._input.set_epoch(epoch)

    def state_dict(self) -> State:
        """Returns the position after the latest iteration's batches: JSON, under 1 KB."""
        start = self._input.source.given.start_step
        return self._input.state(start if self._latest is None else self._latest.step)

    def load_state_dict(self, state: State) -> None:
        """Makes the next iteration resume at a state. Raises: DatasetError as `Input.resume`."""
        self._input, self._latest = self._input.resume(state), None


class PlacedBatches(Iteration):
    """One iteration over batches on a device; `step` is that of the next batch, counted from epoch 0."""

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
    """Applies a function to each array of a batch; a `Ragged` holds two."""
    if isinstance(batch, dict):
        return {name: mapped(function, value) for name, value in batch.items()}
    if isinstance(batch, Ragged):
        return Ragged(mapped(function, batch.values), mapped(function, batch.splits))
    return tuple(mapped(function, part) for part in batch) if isinstance(batch, tuple) else function(batch)
