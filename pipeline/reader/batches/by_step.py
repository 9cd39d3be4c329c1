"""The batch of each step, in NumPy, as a function of the step alone."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.reader.batches.rows import Chosen, Rows
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.options.request import Request
from recordmill.pipeline.reader.order.permutation import Integers

Batch: TypeAlias = Any
"""`(features, label)`, or `features` alone; with `pad`, `(features, label, weight)`, or `(features, weight)`."""


class Batches(Protocol):
    """Makes batches; may be called from several threads, and pickles to other processes."""

    counters: Counters
    """Seconds by stage, and the number of records left out."""

    def __call__(self, steps: Sequence[int]) -> list[Batch | None]:
        """Gives the batches of steps, counted from epoch 0; None where all records of one were left out."""

    def close(self) -> None:
        """Closes files and frees memory."""


class SplitBatches:
    """The batches of a split."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.counters = rows, rows.counters

    def __call__(self, steps: Sequence[int]) -> list[Batch | None]:
        """Gives the batches of steps."""
        chosen = [choose(self.rows, step) for step in steps]
        read = self.rows.read([records for records, _ in chosen])
        return [self._batch(*of_step, *result) for of_step, result in zip(chosen, read, strict=True)]

    def _batch(self, chosen: Chosen, weights: Any, ready: dict[str, Any], kept: Integers) -> Batch | None:
        if not len(kept) and len(chosen.positions):
            return None
        draws = self.rows.mixed(chosen.keep(kept))
        return structured(self.rows.request, ready, draws, None if weights is None else weights[kept])

    def close(self) -> None:
        """Closes files and frees memory."""
        self.rows.close()


def choose(rows: Rows, step: int) -> tuple[Chosen, npt.NDArray[np.float32] | None]:
    """Gives the records of a step, and with `pad` the rows' weights; the split's first record fills a batch up."""
    request = rows.request
    epoch, in_epoch = divmod(step, request.steps.of_epoch)
    positions = request.steps.positions(in_epoch)
    if not request.given.pad:
        return rows.choose(epoch, positions), None
    missing = request.given.batch_size - len(positions)
    weights = np.repeat(np.array([1, 0], np.float32), [len(positions), missing])
    return rows.choose(epoch, np.pad(positions, (0, missing))), weights


def structured(request: Request, ready: dict[str, Any], draws: Sequence[Any], weights: Any) -> Batch:
    """Takes the label out of the features, and applies the batch's mixtures by their draws."""
    label = None if request.label is None else ready.pop(request.label)
    for mixture, drawn in zip(request.mixtures, draws, strict=True):
        ready, label = mixture.apply(ready, label, drawn)
    return in_structure(request, ready, label, weights)


def in_structure(request: Request, features: Any, label: Any, weights: Any) -> Batch:
    """Puts the parts of a batch together, arrays or tensors."""
    parts = [features, *([label] if request.label is not None else []), *([weights] if request.given.pad else [])]
    return tuple(parts) if len(parts) > 1 else features
