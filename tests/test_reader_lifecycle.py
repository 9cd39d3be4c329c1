"""What an input holds on to, and what it lets go; other processes; several replicas."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill import Dataset
from recordmill.pipeline.reader.input import Input


def given(dataset: Dataset, **options: Any) -> Input:
    return dataset.training_input(batch_size=3, seed=5, epochs=-1, with_key=True, **options)


def shards(dataset: Dataset) -> int:
    """How many shards of the dataset are open or mapped."""
    gc.collect()
    folder, files = str(dataset.folder), list[str]()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was that of this listing, or of another thread
            files.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sum(folder in file for file in [*files, *Path("/proc/self/maps").read_text().splitlines()])


def helpers() -> set[object]:
    """The threads of pools, and the child processes' numbers: others than the reader may begin and end some."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    return {*threads, *Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


ENDS: dict[str, Callable[[Any], None]] = {"dropped": lambda batches: None, "closed": lambda batches: batches.close()}


@pytest.mark.first(2)
@pytest.mark.parametrize("options", [{"threads": 3}, {"workers": 2}], ids=["threads", "workers"])
@pytest.mark.parametrize("end", ENDS)
def test_an_iteration_lets_go_of_everything(end: str, options: dict[str, int], dataset: Dataset) -> None:
    opened, others = shards(dataset), helpers()
    batches = given(dataset, **options).as_numpy()
    kept = next(batches)
    next(batches)
    mine = helpers() - others
    assert mine
    ENDS[end](batches)
    del batches
    assert shards(dataset) == opened
    assert not mine & helpers()
    first = next(given(dataset).as_numpy())
    np.testing.assert_array_equal(kept[0]["image"], first[0]["image"])  # a batch outlives its iteration


def test_a_dropped_tf_data_iterator_lets_go_too(dataset: Dataset) -> None:
    opened, others = shards(dataset), helpers()
    iterator = iter(given(dataset, threads=2).as_tf_data())
    next(iterator)
    mine = helpers() - others
    del iterator
    assert shards(dataset) == opened
    assert not mine & helpers()


def test_the_collector_ends_an_iteration_without_waiting_for_its_threads(dataset: Dataset) -> None:
    """It may interrupt `Thread.start`, with a lock that each ending thread takes."""
    others, batches = helpers(), given(dataset, threads=2).as_numpy()
    next(batches)
    mine = helpers() - others
    assert mine
    vars(batches)["itself"] = batches
    del batches
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        gc.collect()
    while mine & helpers():
        time.sleep(0.01)


def test_replicas_share_the_batches(dataset: Dataset) -> None:
    """As two hosts of `tf.distribute` are given their inputs."""

    def keys(context: tf.distribute.InputContext) -> list[list[bytes]]:
        size = context.get_per_replica_batch_size(4)
        parts = dataset.training_input(batch_size=size, with_key=True, input_context=context).as_tf_data()
        return [features["key"].numpy().tolist() for features, _ in parts]

    hosts = [keys(tf.distribute.InputContext(2, host, 2)) for host in range(2)]
    whole = dataset.training_input(batch_size=4, with_key=True).as_numpy()
    assert [first + second for first, second in zip(*hosts, strict=True)] == [f["key"].tolist() for f, _ in whole]


SLOW = """
import sys, threading, time
import numpy as np
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.reader.iteration import Iteration

def slow(number):
    time.sleep(0.7)
    return [np.zeros(1)]

def begin(threads=0):
    steps = iter(int, 1)
    made = in_order(slow, steps, threads) if threads else (slow(step) for step in steps)
    return Iteration(made, made.close)

def read(batches):
    for _ in batches: pass
    print("ended", flush=True)
"""
IN_THREADS = """
threading.Thread(target=read, args=[begin(2)]).start()
threading.Thread(target=read, args=[begin(2)], daemon=True).start()
time.sleep(1)
"""
IN_TENSORFLOW = """
import tensorflow as tf
from recordmill.pipeline.reader.tf_data import in_groups
batches, others = (iter(in_groups(begin, [tf.TensorSpec([1], tf.float64)], tuple, 1)) for _ in range(2))
threading.Thread(target=read, args=[others], daemon=True).start()
[next(batches) for _ in range(3)]
time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("program", "warnings"),
    [(IN_THREADS, 1), pytest.param(IN_TENSORFLOW, 0, marks=pytest.mark.nightly)],
    ids=["threads", "TensorFlow"],
)
def test_a_program_ends_while_iterations_live(program: str, warnings: int) -> None:
    """`TensorFlow` has threads inside Python at the end, which never returned, nor did the program."""
    ran = subprocess.run([sys.executable, "-c", SLOW + program], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("join its thread") == warnings
    assert "ended" in ran.stdout
