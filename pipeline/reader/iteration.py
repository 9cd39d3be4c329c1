"""Iterations over batches: as NumPy arrays, from which all other forms come, with a state, and on a device.

>>> next(Iteration(iter([1]), close=int))
1
"""

import _thread
import gc
import logging
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from copy import copy
from itertools import count, takewhile
from typing import Any, Self, TypeAlias

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, version_folder
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import check_format
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.reader.batches import BATCHES_AHEAD, Batches, BatchSource
from recordmill.pipeline.reader.metrics import SKIPPED, Meter
from recordmill.pipeline.reader.options import whole_number
from recordmill.pipeline.reader.order import Passes
from recordmill.pipeline.reader.remote import Folder
from recordmill.pipeline.reader.rows import Batch, too_many
from recordmill.pipeline.reader.workers import default_workers, in_processes
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.stored import Ragged, mapped

LOG = logging.getLogger("recordmill")
FORMAT = 1  # of a state
State: TypeAlias = dict[str, Any]
"""A position for a checkpoint, of strings, numbers and None: `{'format': 1, 'dataset': 'emoji', 'step': 1200, …}`."""
Place: TypeAlias = Callable[[Batch], Any]  # puts the arrays of a batch on a device; called in a thread
_AT_EXIT = threading.Event()
# Before Python's pools end, and long before threads of TensorFlow could wait for Python, and Python for them.
threading._register_atexit(_AT_EXIT.set)  # type: ignore[attr-defined]
_collecting = set[int]()  # the threads in which the garbage collector runs
gc.callbacks.append(
    lambda phase, _: (_collecting.add if phase == "start" else _collecting.discard)(_thread.get_ident())
)


class Iteration(Iterator[Any]):
    """An iterator for the process that made it: a fork would take answers meant for its parent.

    Each further `next` raises what ended it, DatasetError after `close`. The end of the main thread ends it, too.
    """

    def __init__(self, made: Iterator[Any], close: Callable[[], None]) -> None:
        """Takes an iterator, and a function that frees its threads, processes and files."""
        self._made, self._process = made, os.getpid()
        self._end: BaseException | None = None
        self._close = weakref.finalize(self, _close_in, self._process, made, close)

    def __next__(self) -> Any:
        """Returns the next value."""
        if (here := os.getpid()) != self._process:
            raise DatasetError(f"this iteration belongs to process {self._process}: begin one here, in process {here}")
        if self._end is not None:
            raise self._end
        try:
            if _AT_EXIT.is_set():
                raise StopIteration
            return self._next()
        except BaseException as error:
            if str(error) == "generator already executing":  # Python's words
                raise DatasetError("another `next` of this iteration runs: give each thread its own") from None
            # The raised error holds this frame, and so the iteration; the usual end must not.
            self._end = StopIteration() if isinstance(error, StopIteration) or _AT_EXIT.is_set() else error
            if not _AT_EXIT.is_set():
                raise
            if not threading.current_thread().daemon:
                LOG.warning("the main thread has ended, and with it this iteration: join its thread to read on")
            raise self._end from None
        finally:
            if self._end is not None:
                self.close()

    def _next(self) -> Any:
        return next(self._made)

    def close(self) -> None:
        """Ends the iteration with its threads, processes, files and memory, as dropping it does."""
        self._end = self._end or DatasetError("this iteration was closed: begin another one")
        if not getattr(self._made, "gi_running", False):  # else the running call closes when it returns
            self._close()


def _close_in(process: int, made: Iterator[Any], close: Callable[[], None]) -> None:
    if os.getpid() != process or getattr(made, "gi_running", False):  # at exit, in another thread
        return
    if _thread.get_ident() in _collecting:  # it may have interrupted `threading`, whose locks a join would wait for
        _thread.start_new_thread(close, ())
    else:
        close()


class NumpyBatches(Iteration):
    """One iteration over an input: NumPy batches, made ahead in threads or processes; `meter` measures it."""

    def __init__(self, source: BatchSource, steps: range) -> None:
        self.source, self._stop = source, steps.stop
        batches, ending = source.open(), ExitStack()
        ending.callback(batches.close)
        made = _made(source, batches, steps)
        ending.callback(made.close)
        super().__init__(made, ending.close)
        self._counters, self.meter = batches.counters, Meter(batches.counters, step=steps.start)

    def _next(self) -> Batch:
        batch = None
        while batch is None:  # skips steps without an intact record
            with self.meter.waiting():
                step, batch = next(self._made)
            self.meter.step = step + 1
            if self.skipped > self.source.given.max_skipped:
                raise too_many(self.skipped, self.source.given.max_skipped, self.source.advice)
        self.meter.count(batch)
        return batch

    def __enter__(self) -> "NumpyBatches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def after_error(self) -> "NumpyBatches":
        """Resumes after the step that failed; of several made together, at the first of them, alone."""
        source = copy(self.source)
        source.steps_together = 1
        return NumpyBatches(source, range(self.step + (self.source.steps_together == 1), self._stop))

    @property
    def step(self) -> int:
        """The step of the next batch, counted from the first of epoch 0."""
        return self.meter.step

    @property
    def skipped(self) -> int:
        """The number of damaged records left out."""
        return int(self._counters.counts[SKIPPED])

    def state(self) -> State:
        """Returns the state after the batches given out so far."""
        return _state(self.source, self.step)


def _made(source: BatchSource, batches: Batches, steps: range) -> Generator[tuple[int, Batch | None], None, None]:
    size = source.steps_together
    groups = (steps[start : start + size] for start in count(0, size))
    some = takewhile(len, groups)
    made: Generator[tuple[range, list[Batch | None]], None, None]
    given = source.given.workers
    workers = default_workers(source, len(steps)) if given is None else given
    if workers:
        made = in_processes(batches, some, workers, max(1, source.threads), may_stay=given is None)
    elif not source.threads:
        made = ((group, batches(group)) for group in some)
    else:
        made = in_order(lambda group: (group, batches(group)), some, source.threads, source.threads + BATCHES_AHEAD)
    try:
        for group, of_group in made:
            yield from zip(group, of_group, strict=True)
    finally:
        made.close()


def _state(source: BatchSource, step: int) -> State:
    epoch = step // source.of_epoch if source.of_epoch else 0
    return {"format": FORMAT, **source.order_facts(), "step": step, "epoch": epoch, "records": source.consumed(step)}


def step_of(state: Any, order: Mapping[str, Any], folder: Folder | None = None) -> int:
    """Returns the step of a state for an input with the facts `order`; the numbers of hosts and lanes may differ.

    The state's version is looked for beside the input's `folder`.
    Raises: DatasetError: the state is invalid, or of another dataset, version, order or global batch size.
    """
    check_format(state, FORMAT, "the state")
    if not isinstance(state, Mapping) or not isinstance(state.get("step"), int) or state["step"] < 0:
        raise DatasetError(f"this is not a state of an input, as `state()` gives it: {cut(repr(state), 100)}")
    for name in (*order, *({"without"} - order.keys())):
        mine = order.get(name)
        if name == "lanes" and _lanes_of(state) < 1:
            remedy = f"restart its epoch, set_epoch({state.get('epoch')!r})"
            raise DatasetError(f"this Recordmill lacks the state's order of blocks (lanes): {remedy}")
        found = state.get(name, mine if name == "label" else None)  # earlier states lack the label of `balance`
        if name != "lanes" and found != mine:
            remedy = "give the input the same arguments"
            if name == "version":
                remedy = _version_advice(found, folder)
            elif name == "without":
                remedy = f"give the state's keys, or go on with others by start_step={state['step']} (docs/reading.md)"
            elif name == "global_batch_size":
                remedy = "batch_size times the number of hosts must stay the same"
            both = f"{cut(repr(found))}, this input's is {cut(repr(mine))}"
            raise DatasetError(f"the state is of another {name.replace('_', ' ')}: {both}; {remedy}")
    return int(state["step"])


def _lanes_of(state: Mapping[str, Any]) -> int:
    """Returns the lanes of a state's order; 0 if it has none."""
    lanes = state.get("lanes", 0)
    return lanes if isinstance(lanes, int) else 0


def _version_advice(version: Any, folder: Folder | None) -> str:
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


class NumpyInput:
    """Batches of a split, or of a mixture, as NumPy arrays; the first iteration opens the files.

    Attributes:
        folder: the version's folder; None for a mixture.
        batches_per_epoch: the batches that each host gets in an epoch.
        element_spec: the structure of a batch, an `ArraySpec(shape, dtype, ragged)` for each array.
        passes: the steps of each iteration.
        meter: throughput of the latest iteration; None before the first, and for a native pipeline.
    """

    def __init__(self, source: BatchSource, folder: Folder | None = None) -> None:
        self.source, self.folder = source, folder
        self.passes = Passes(source.of_epoch, source.given.epochs, source.given.start_step)
        self._latest: Meter | None = None
        self.batches_per_epoch = source.of_epoch
        self.element_spec = source.element_spec
        self.meter: Meter | None = None

    def __len__(self) -> int:
        """The batches of an iteration from an epoch's start. Raises: TypeError if endless."""
        if self.passes.steps is None:
            raise TypeError("an input with epochs=-1 is endless, and has no length")
        return self.passes.steps

    def as_numpy(self) -> NumpyBatches:
        """Begins an iteration over batches of NumPy arrays: the next epoch, or all `epochs`.

        TensorFlow is not imported. Arrays are the caller's: they are not written to again while they are held.

        Raises: DatasetError: a shard is missing or has another size; during the iteration, DamagedRecordError.
        """
        batches = self._begin(self.source)
        self._latest = batches.meter
        return batches

    __iter__ = as_numpy

    def _begin(self, source: BatchSource) -> NumpyBatches:
        """Begins the next iteration, over a source like this input's; `state` does not follow it."""
        batches = NumpyBatches(source, self.passes.begin())
        self.meter = batches.meter
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration give this epoch, from 0; by default, each is the next. Raises: DatasetError."""
        self.passes.set_epoch(whole_number(epoch, "epoch"))

    def state(self, step: int | None = None) -> State:
        """Returns the input's position, for a checkpoint: JSON, under 1 KB.

        Args:
            step: the steps that the model has taken, counted from the first of epoch 0; by default the steps that the
                latest `as_numpy` iteration has given out. Give it for `tf.data`, which reads ahead.
        """
        if step is None:
            if self._latest is None:
                raise DatasetError("state() needs a step here: how many the model has taken since the first of epoch 0")
            step = self._latest.step
        return _state(self.source, whole_number(step, "step"))  # a state is JSON: an optimizer's steps may be NumPy's

    def resume(self, state: State) -> Self:
        """Returns the same input from a state on, with the batches that would have come next.

        Raises: DatasetError: the state is of another dataset, version (perhaps pruned), order or global batch size.
        """
        step = step_of(state, self.source.order_facts(), self.folder)
        return type(self)(self.source.starting_at(step, _lanes_of(state)), self.folder)


class OnDevice:
    """An input with batches on a device: each is copied there while the model works on the one before.

    PyTorch and JAX differ only in how they place a batch (`torch_data`, `Input.as_jax`).
    """

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
        pool, ending = ThreadPoolExecutor(1, "recordmill-place"), ExitStack()
        ending.callback(batches.close)
        ending.callback(pool.shutdown, cancel_futures=True)
        super().__init__(batches, ending.close)

        def ahead() -> tuple[Any, int]:
            return place(next(batches)), batches.step

        self._begin: Callable[[], Future[tuple[Any, int]]] = lambda: pool.submit(ahead)
        self._ahead = self._begin()

    def _next(self) -> Any:
        placed, step = self._ahead.result()
        self._ahead, self.step = self._begin(), step
        return self._receive(placed)


def placed(function: Callable[[Any], Any], batch: Any) -> Any:
    """Applies a function to each array of a batch; a `Ragged` holds two."""
    return mapped(lambda each: Ragged(*map(function, each)) if isinstance(each, Ragged) else function(each), batch)
