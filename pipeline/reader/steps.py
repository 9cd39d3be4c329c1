"""The steps of an epoch, and each host's positions in them.

A step is a batch on every host. Steps are counted from the first of epoch 0, on and on: step 250 of 100 an epoch is
the 51st batch of epoch 2. All hosts together read `global_batch` records a step, each a part of its own.

>>> Steps(records=10, batch_size=2, host_count=2).of_epoch
2
>>> Steps(records=10, batch_size=2, host_index=1, host_count=2, drop_remainder=False).positions(2).tolist()
[]
"""

import sys
from dataclasses import dataclass

import numpy as np

from recordmill.pipeline.reader.order import Integers

FOR_EVER = -1
"""The number of epochs of an input that does not end."""


@dataclass(frozen=True)
class Steps:
    """The steps that an epoch's positions are cut into."""

    records: int
    """Positions of an epoch."""
    batch_size: int
    """Records of a host's batch."""
    host_index: int = 0
    host_count: int = 1
    drop_remainder: bool = True
    """Leaves out the records at an epoch's end that fill no global batch."""

    @property
    def global_batch(self) -> int:
        """Records of a step, of all hosts together."""
        return self.batch_size * self.host_count

    @property
    def of_epoch(self) -> int:
        """Steps of an epoch: the same on every host."""
        full = self.records // self.global_batch
        return full if self.drop_remainder else -(-self.records // self.global_batch)

    def positions(self, step: int) -> Integers:
        """Returns this host's positions in a step of an epoch, 0..of_epoch-1: int64, at most `batch_size` of them."""
        start = step * self.global_batch + self.host_index * self.batch_size
        return np.arange(start, max(start, min(start + self.batch_size, self.records)), dtype=np.int64)

    def consumed(self, step: int) -> int:
        """Counts the records that all hosts together have read when a step, counted from epoch 0, begins."""
        if not self.of_epoch:
            return 0
        epoch, in_epoch = divmod(step, self.of_epoch)
        of_epoch = min(self.of_epoch * self.global_batch, self.records)
        return epoch * of_epoch + in_epoch * self.global_batch


class Passes:
    """The steps of each iteration over an input: one epoch, the next one each time, or all `epochs`."""

    def __init__(self, of_epoch: int, epochs: int | None, start: int) -> None:
        """Takes the steps of an epoch, `epochs` as in `training_input`, and the first step."""
        self._of_epoch, self._epochs, self._start = of_epoch, epochs, start
        self._next = start

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration give this epoch, and no step before the first one."""
        self._next = max(self._start, epoch * self._of_epoch)

    def begin(self) -> range:
        """Begins an iteration: gives its steps, in practice without end where `epochs` is -1."""
        if not self._of_epoch:
            return range(0)
        if self._epochs == FOR_EVER:
            return range(self._start, sys.maxsize)
        if self._epochs is not None:
            return range(self._start, self._epochs * self._of_epoch)
        first, self._next = self._next, (self._next // self._of_epoch + 1) * self._of_epoch
        return range(first, self._next)

    @property
    def steps(self) -> int | None:
        """The steps of an iteration that begins an epoch; None without end."""
        if self._epochs is None:
            return self._of_epoch
        if self._epochs == FOR_EVER:
            return None if self._of_epoch else 0
        return max(0, self._epochs * self._of_epoch - self._start)
