"""The source of an input that reads one split."""

from dataclasses import replace
from typing import Any

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.batches.by_step import SplitBatches, in_structure
from recordmill.pipeline.reader.batches.rows import Rows
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.options.request import Request, images_of
from recordmill.transforms.contract.array_spec import ArraySpec
from recordmill.transforms.numpy.features import feature_specs

BYTES_TOGETHER = 2 << 20  # 2 MiB of records: the steps of NumPy then cost little beside what they work on
MOST_TOGETHER = 32  # steps


class SplitSource:
    """The batches of a request's steps."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.epochs = request.given.epochs
        self.start_step = request.given.start_step
        self.threads = request.threads
        self.workers = request.given.workers
        self.of_epoch = request.steps.of_epoch
        self.steps_together = _steps_together(request)
        self.keeps_batches = request.given.on_error == "raise"
        self.max_skipped = request.given.max_skipped
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
        if self.request.given.balance:
            self._labels = rows.labels
        return rows

    def starting_at(self, step: int) -> "SplitSource":
        """Gives the same source, beginning at another step."""
        return SplitSource(replace(self.request, given=replace(self.request.given, start_step=step)))


def element_spec(request: Request) -> Any:
    """Gives the structure of a batch."""
    specs = feature_specs(
        request.features, request.given.finish, request.rows, request.image_shape, with_key=request.given.with_key
    )
    label = None if request.label is None else specs.pop(request.label)
    try:
        for mixture in request.mixtures:
            label = mixture.label_spec(label)
    except ValueError as error:
        raise DatasetError(str(error)) from None
    return in_structure(request, specs, label, ArraySpec((request.rows,), "float32"))


def _steps_together(request: Request) -> int:
    """Gives the steps to make at once: more than one for small records only."""
    of_batch = request.steps.batch_size * request.bytes // max(1, request.steps.records)
    return 1 if images_of(request.features) else max(1, min(MOST_TOGETHER, BYTES_TOGETHER // max(1, of_batch)))
