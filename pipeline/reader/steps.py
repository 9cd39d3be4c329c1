"""The steps of an epoch, each host's positions in them, and the state of an input after a step.

A step is a batch on every host. Steps are counted from the first of epoch 0, on and on: step 250 of 100 an epoch is
the 51st batch of epoch 2. All hosts together read `global_batch` records a step, each a part of its own.

>>> Steps(records=10, batch_size=2, host_count=2).of_epoch
2
>>> Steps(records=10, batch_size=2, host_index=1, host_count=2, drop_remainder=False).positions(2).tolist()
[]

A state is a small dictionary for a checkpoint, from which the same batches go on.

>>> train.state(step=1200)  # doctest: +SKIP
{'format': 1, 'dataset': 'emoji', 'version': '20261120T120000Z-4f1c9a2e', …, 'global_batch_size': 256, 'step': 1200,
 'epoch': 3, 'records': 307200}
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, version_folder
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import check_format
from recordmill.pipeline.reader.order import Integers
from recordmill.pipeline.safe_text import cut

if TYPE_CHECKING:  # for datasets at URLs
    from recordmill.pipeline.reader.version_files import Folder

FORMAT = 1  # of a state
FOR_EVER = -1  # the number of epochs of an input that does not end


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
    lanes: int = 0
    """The lanes to which the order deals the positions (`order.Lanes`); hosts then take every `host_count`-th position;
    0: each host takes a slice of the global batch."""

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
        start, host = step * self.global_batch, self.host_index
        if self.lanes:
            return np.arange(start + host, min(start + self.global_batch, self.records), self.host_count)
        start += host * self.batch_size
        return np.arange(start, min(start + self.batch_size, self.records))

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
        """Begins an iteration, and returns its steps."""
        steps = self.upcoming
        if self._epochs is None and self._of_epoch:
            self._next = steps.stop
        return steps

    @property
    def upcoming(self) -> range:
        """The steps of the iteration that begins next, in practice without end where `epochs` is -1."""
        if not self._of_epoch:
            return range(0)
        if self._epochs == FOR_EVER:
            return range(self._start, sys.maxsize)
        if self._epochs is not None:
            return range(self._start, min(self._epochs * self._of_epoch, sys.maxsize))
        return range(self._next, (self._next // self._of_epoch + 1) * self._of_epoch)

    @property
    def steps(self) -> int | None:
        """The steps of an iteration that begins an epoch; None without end."""
        if self._epochs is None:
            return self._of_epoch
        if self._epochs == FOR_EVER:
            return None if self._of_epoch else 0
        return len(self.upcoming)


State = dict[str, Any]
"""A state: strings, numbers and None alone, JSON under 1 KB."""


def step_of(state: Any, order: Mapping[str, Any], folder: "Folder | None" = None) -> int:
    """Returns the step at which a state goes on, for an input of the same order; the number of hosts may differ.

    Args:
        state: as `Input.state` returns it.
        order: the input's facts; those of a state may have another number of lanes, which follows from its hosts.
        folder: that of the input's version, in whose parent the state's version is looked for.

    Raises:
        DatasetError: it is no state, or belongs to another dataset, version, order or global batch size.
    """
    check_format(state, FORMAT, "the state")
    if not isinstance(state, Mapping) or not isinstance(state.get("step"), int) or state["step"] < 0:
        raise DatasetError(f"this is no state of an input, which `state()` gives: {cut(repr(state), 100)}")
    for name, mine in order.items():
        if name == "lanes" and lanes_of(state) < 1:
            raise DatasetError(
                "the state is of an order of blocks that this Recordmill has no more: begin its epoch anew, "
                f"set_epoch({state.get('epoch')!r})"
            )
        found = state.get(name, mine if name == "label" else None)  # earlier states do not say what `balance` goes by
        if name != "lanes" and found != mine:
            advice = _version_advice(found, folder) if name == "version" else _ADVICE.get(name, _SAME)
            raise DatasetError(
                f"the state is of another {name.replace('_', ' ')}: {cut(repr(found))}, this input's is "
                f"{cut(repr(mine))}; {advice}"
            )
    return int(state["step"])


def lanes_of(state: Mapping[str, Any]) -> int:
    """Returns the lanes of a state's order; 0 where it has none."""
    lanes = state.get("lanes", 0)
    return lanes if isinstance(lanes, int) else 0


_SAME = "give the input the same arguments"
_ADVICE = {"global_batch_size": "batch_size times the number of hosts must stay what it was"}


def _version_advice(version: Any, folder: "Folder | None") -> str:
    """Says how to go on with the state of another version: it may be there, or removed."""
    if folder is None or folder.parent.name != VERSIONS_FOLDER or not isinstance(version, str):
        return "open that version: open_dataset(PATH, VERSION)"
    output = folder.parent.parent
    if (version_folder(output, version) / MANIFEST_FILE).is_file():
        return f"go on with that version: open_dataset({str(output)!r}, {version!r})"
    return (
        f"{output} has that version no more (`recordmill versions prune`), and its order went with it: begin the "
        "state's epoch anew, set_epoch(state['epoch']); `with dataset.held():` keeps a version while a program reads it"
    )
