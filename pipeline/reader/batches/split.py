"""A split as what an input reads."""

from dataclasses import replace
from typing import Any

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.batches.by_step import SplitBatches, in_structure
from recordmill.pipeline.reader.batches.rows import Rows
from recordmill.pipeline.reader.metrics.stages import Tally
from recordmill.pipeline.reader.options.element_spec import ArraySpec, feature_specs
from recordmill.pipeline.reader.options.request import Request, images_of

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
        """What the order of the batches follows from."""
        return self.request.order_facts()

    def consumed(self, step: int) -> int:
        """The records that all hosts have read when a step begins."""
        return self.request.steps.consumed(step)

    def open(self) -> SplitBatches:
        """Makes what makes the batches."""
        return SplitBatches(self.rows())

    def rows(self, tally: Tally | None = None) -> Rows:
        """Opens the records; all labels are read once, where the order follows from them."""
        rows = Rows(self.request, self._labels, tally)
        if self.request.given.balance:
            self._labels = rows.labels
        return rows

    def starting_at(self, step: int) -> "SplitSource":
        """The same from another step on."""
        return SplitSource(replace(self.request, given=replace(self.request.given, start_step=step)))


def element_spec(request: Request) -> Any:
    """The structure of a batch."""
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
    """How many steps are made at once: more than one only of small records."""
    of_batch = request.steps.batch_size * request.bytes // max(1, request.steps.records)
    return 1 if images_of(request.features) else max(1, min(MOST_TOGETHER, BYTES_TOGETHER // max(1, of_batch)))
