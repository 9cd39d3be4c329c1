"""Pickles for other processes: tasks, and batches whose large arrays stay in shared memory.

Pickle's protocol 5 (PEP 574) takes the arrays of any structure out of its stream. A batch then is a few bytes, and the
places of its arrays in the shared memory.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from recordmill.pipeline.dataset.manifest import DatasetError

Outside = Callable[[pickle.PickleBuffer], bool | None]
"""Takes the memory of an array; gives True to pickle the array with the rest."""


def pickled_task(task: Any) -> bytes:
    """Pickles the task of worker processes.

    Raises:
        DatasetError: a function or a class of it cannot be imported by another process.
    """
    stream = io.BytesIO()
    try:
        _TaskPickler(stream, protocol=5).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DatasetError(f"this cannot be sent to worker processes ({error}): {_ADVICE}") from error
    return stream.getvalue()


def pickled_batch(batch: Any, outside: Outside) -> bytes:
    """Pickles a batch without the arrays that `outside` takes."""
    stream = io.BytesIO()
    _BatchPickler(stream, protocol=5, buffer_callback=outside).dump(batch)
    return stream.getvalue()


_ADVICE = "put it into a module that both can import, or read with threads alone, workers=0"


class _TaskPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Pickle names a function by its module. Another process' `__main__` is another one.
        if getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
            raise DatasetError(f"`{value.__qualname__}` cannot be sent to worker processes from a script: {_ADVICE}")
        return NotImplemented


class _BatchPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # NumPy leaves arrays of other packages' types, such as bfloat16, in the stream: a copy.
        if isinstance(value, np.ndarray) and value.dtype.isbuiltin == 2:
            return _of_type, (value.view(f"u{value.itemsize}"), value.dtype)
        return NotImplemented


def _of_type(bits: Any, dtype: Any) -> Any:
    return bits.view(dtype)
