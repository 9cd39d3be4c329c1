"""Settings of a process before it loads TensorFlow or Beam, and its number of threads."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import cast

from recordmill.pipeline.parallel import cores

TENSORFLOW = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",  # our own threads use the cores: images cost 8 % less CPU than with TensorFlow's
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN's allocator keeps the memory of the largest image
    "TF_USE_LEGACY_KERAS": "1",  # tf.Transform needs it; else TensorFlow loads Keras 3, too: 0.7 s, 30 MB
}
THREADS = "RECORDMILL_WORKER_THREADS"
"""The variable that gives a worker fewer threads than its cores, if several workers share a machine."""
M_ARENA_MAX = -8  # malloc.h of glibc
CLIENTS = (
    "boto3 google.cloud.bigquery google.cloud.bigquery_storage_v1 google.cloud.bigtable google.cloud.dataflow "
    "google.cloud.pubsub google.cloud.spanner google.cloud.storage googleapiclient pymongo"
).split()
"""Half of the CPU for loading Beam, and 40 MB; TensorFlow imports the last but one."""


def set_tensorflow_variables() -> None:
    """Sets TensorFlow's variables, except those already set."""
    for name, value in TENSORFLOW.items():
        os.environ.setdefault(name, value)


def limit_arenas() -> None:
    """Limits glibc to one heap a thread of the graph and one for the others: each keeps freed memory."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1 + worker_threads())


def worker_threads() -> int:
    """Returns the number of threads of this worker's transform graph: by default its cores, 1 or more."""
    with suppress(KeyError, ValueError):
        return max(1, int(os.environ[THREADS]))
    return cores()


@contextmanager
def without_cloud_clients() -> Iterator[None]:
    """Hides the clients not loaded yet: importing one inside the block raises `ModuleNotFoundError`.

    Beam never retries the import: hide them only in a process that does no more than build from local files.
    """
    hidden = dict.fromkeys([name for name in CLIENTS if name not in sys.modules], cast(ModuleType, None))
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
