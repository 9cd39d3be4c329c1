"""Keeps the output of TensorFlow and Beam off the screen.

>>> with quiet():           # doctest: +SKIP
...     import tensorflow
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Discards standard output and error of the whole process, those of libraries and children too."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
        for descriptor in (*kept, nowhere):
            os.close(descriptor)
