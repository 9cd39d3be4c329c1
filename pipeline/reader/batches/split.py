"""The source of an input that reads one split."""

from dataclasses import replace
from typing import Any

import numpy as np

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.batches.by_step import SplitBatches, structured
from recordmill.pipeline.reader.batches.rows import Rows
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.options.request import Request, images_of
from recordmill.pipeline.reader.parsing.examples import parse
from recordmill.transforms.contract.ragged import ArraySpec, Ragged
from recordmill.transforms.contract.stored import stored_features
from recordmill.transforms.numpy.augment.chain import Augment
from recordmill.transforms.numpy.features import finish

BYTES_TOGETHER = 2 << 20  # 2 MiB of records: the steps of NumPy then cost little beside what they work on
MOST_TOGETHER = 32  # steps


class SplitSource:
    """The batches of a request's steps."""

    def __init__(self, request: Request) -> None:
        self.request, self.given = request, request.given
        self.threads = request.threads
        self.of_epoch = request.steps.of_epoch
        # More than one for small records only.
        of_batch = request.steps.batch_size * request.bytes // max(1, request.steps.records)
        together = max(1, min(MOST_TOGETHER, BYTES_TOGETHER // max(1, of_batch)))
        self.steps_together = 1 if images_of(request.features) else together
        self.element_spec = element_spec(request)
        self._labels: Any = None

    def order_facts(self) -> dict[str, Any]:
        """Gives the facts that determine the order of the batches."""
        return self.request.order_facts()

    def consumed(self, step: int) -> int:
        """Counts the records that all hosts have read when a step begins."""
        return self.request.steps.consumed(step)

    def open(self) -> SplitBatches:
        """Opens the records, and gives the maker of batches."""
        return SplitBatches(self.rows())

    def rows(self, counters: Counters | None = None) -> Rows:
        """Opens the records, and reads all labels once where the order follows from them."""
        rows = Rows(self.request, self._labels, counters)
        if self.given.balance:
            self._labels = rows.labels
        return rows

    def starting_at(self, step: int) -> "SplitSource":
        """Gives the same source, beginning at another step."""
        return SplitSource(replace(self.request, given=replace(self.given, start_step=step)))


def element_spec(request: Request) -> Any:
    """Gives the structure of a batch, from a batch of no rows: there a side that differs from batch to batch is 0.

    Raises:
        DatasetError: a mixture does not fit the features, or a package is missing.
    """
    columns = parse([], stored_features(request.features, with_key=request.given.with_key))
    augment = {name: Augment(changes, np.zeros((0, 0))) for name, changes in request.augment.items()}
    ready = finish(request.features, columns, request.given, augment=augment)
    draws = [np.zeros((0, mixture.lanes)) for mixture in request.mixtures]
    try:
        return _specs(structured(request, ready, draws, np.zeros(0, np.float32)), request.rows)
    except ValueError as error:
        raise DatasetError(str(error)) from None


def _specs(batch: Any, rows: int | None) -> Any:
    if isinstance(batch, dict):
        return {name: _specs(array, rows) for name, array in batch.items()}
    if isinstance(batch, Ragged):
        return ArraySpec((rows, None, *batch.values.shape[1:]), batch.values.dtype.name, ragged=True)
    if isinstance(batch, tuple):
        return tuple(_specs(part, rows) for part in batch)
    shape = (rows, *(side or None for side in batch.shape[1:]))
    return ArraySpec(shape, "bytes" if batch.dtype == object else batch.dtype.name)
