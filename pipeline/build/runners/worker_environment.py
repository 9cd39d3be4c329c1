"""The settings that a process which builds needs before it loads TensorFlow, and the threads that it takes."""

import ctypes
import os
from contextlib import suppress

from recordmill.pipeline.parallel import cores

TENSORFLOW = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",  # our own threads use the cores: images cost 8 % less CPU than with TensorFlow's
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN's allocator keeps the memory of the largest image
    "TF_USE_LEGACY_KERAS": "1",  # what tf.Transform needs; else TensorFlow loads Keras 3, too: 0.7 s, 30 MB
}
THREADS = "RECORDMILL_WORKER_THREADS"
"""The variable that gives a worker fewer threads than it has cores, where several workers share a machine."""
M_ARENA_MAX = -8  # malloc.h of glibc


def set_tensorflow_variables() -> None:
    """Sets TensorFlow's variables, except those that are set already."""
    for name, value in TENSORFLOW.items():
        os.environ.setdefault(name, value)


def limit_arenas() -> None:
    """Returns glibc one heap a thread of the transform graph and one for the others; before these threads begin.

    By itself it makes up to eight a core, and each keeps freed memory: a worker with one thread held 0.4 GB more.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1 + worker_threads())


def worker_threads() -> int:
    """The number of threads of this worker's transform graph: its cores, 1 or more."""
    with suppress(KeyError, ValueError):
        return max(1, int(os.environ[THREADS]))
    return cores()
