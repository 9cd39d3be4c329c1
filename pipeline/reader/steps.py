"""The steps of an epoch, each host's positions in them, and the state of an input after a step.

A step is a batch on every host. Steps count across epochs: step 250, at 100 steps per epoch, is the 51st batch of
epoch 2. All hosts together read `global_batch` records per step, in disjoint parts.

>>> Steps(records=10, batch_size=2, host_count=2).of_epoch
2
>>> Steps(records=10, batch_size=2, host_index=1, host_count=2, drop_remainder=False).positions(2).tolist()
[]

A state is a small dictionary for a checkpoint: `{'format': 1, 'dataset': 'emoji', 'version': …, 'step': 1200, …}`.
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

if TYPE_CHECKING:  # it loads stores, which only datasets at URLs need
    from recordmill.pipeline.reader.version_files import Folder

FORMAT = 1  # of a state
FOR_EVER = -1  # epochs of an endless input


@dataclass(frozen=True)
class Steps:
    """An epoch's positions, divided into steps."""

    records: int  # positions of an epoch
    batch_size: int  # records of a host's batch
    host_index: int = 0
    host_count: int = 1
    drop_remainder: bool = True  # leaves out the incomplete global batch at an epoch's end
    lanes: int = 0
    """The lanes of the order (`order.Lanes`): hosts take every `host_count`-th position; 0: each host takes a slice of
    the global batch."""

    @property
    def global_batch(self) -> int:
        """Records per step, on all hosts together."""
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
        """Counts the records read by all hosts together before a step, counted from epoch 0."""
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
        """Makes the next iteration give this epoch, from `start` on at the earliest."""
        self._next = max(self._start, epoch * self._of_epoch)

    def begin(self) -> range:
        """Begins an iteration, and returns its steps."""
        steps = self.upcoming
        if self._epochs is None and self._of_epoch:
            self._next = steps.stop
        return steps

    @property
    def upcoming(self) -> range:
        """The steps of the next iteration; endless in practice if `epochs` is -1."""
        if not self._of_epoch:
            return range(0)
        if self._epochs == FOR_EVER:
            return range(self._start, sys.maxsize)
        if self._epochs is not None:
            return range(self._start, min(self._epochs * self._of_epoch, sys.maxsize))
        return range(self._next, (self._next // self._of_epoch + 1) * self._of_epoch)

    @property
    def steps(self) -> int | None:
        """The steps of an iteration from an epoch's start; None if endless."""
        if self._epochs is None:
            return self._of_epoch
        if self._epochs == FOR_EVER:
            return None if self._of_epoch else 0
        return len(self.upcoming)


State = dict[str, Any]  # a state of strings, numbers and None: JSON under 1 KB


def step_of(state: Any, order: Mapping[str, Any], folder: "Folder | None" = None) -> int:
    """Returns the step of a state for an input with the facts `order`; the numbers of hosts and lanes may differ.

    The state's version is looked for beside the input's `folder`.
    Raises: DatasetError: the state is invalid, or of another dataset, version, order or global batch size.
    """
    check_format(state, FORMAT, "the state")
    if not isinstance(state, Mapping) or not isinstance(state.get("step"), int) or state["step"] < 0:
        raise DatasetError(f"this is not a state of an input, as `state()` gives it: {cut(repr(state), 100)}")
    for name, mine in order.items():
        if name == "lanes" and lanes_of(state) < 1:
            remedy = f"restart its epoch, set_epoch({state.get('epoch')!r})"
            raise DatasetError(f"this Recordmill lacks the state's order of blocks (lanes): {remedy}")
        found = state.get(name, mine if name == "label" else None)  # earlier states lack the label of `balance`
        if name != "lanes" and found != mine:
            same = "give the input the same arguments"
            if name == "version":
                same = _version_advice(found, folder)
            elif name == "global_batch_size":
                same = "batch_size times the number of hosts must stay the same"
            both = f"{cut(repr(found))}, this input's is {cut(repr(mine))}"
            raise DatasetError(f"the state is of another {name.replace('_', ' ')}: {both}; {same}")
    return int(state["step"])


def lanes_of(state: Mapping[str, Any]) -> int:
    """Returns the lanes of a state's order; 0 if it has none."""
    lanes = state.get("lanes", 0)
    return lanes if isinstance(lanes, int) else 0


def _version_advice(version: Any, folder: "Folder | None") -> str:
    """Returns the remedy for the state of another version, which may be there or removed."""
    if folder is None or folder.parent.name != VERSIONS_FOLDER or not isinstance(version, str):
        return "open that version: open_dataset(PATH, VERSION)"
    output = folder.parent.parent
    if (version_folder(output, version) / MANIFEST_FILE).is_file():
        return f"go on with that version: open_dataset({str(output)!r}, {version!r})"
    return (
        f"{output} has lost that version and its order (`recordmill versions prune`): restart the state's epoch, "
        "set_epoch(state['epoch']); `with dataset.held():` keeps a version while a program reads it"
    )
