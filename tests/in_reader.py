"""Digests the batches that each engine makes of outputs; prints JSON: `python -m tests.in_reader OUTPUT ...`.

`tests/test_install.py` runs it where only the base, or the extra `tf`, is installed.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata, util
from typing import Any

import numpy as np

from recordmill import Input, open_dataset


def digests(batches: Iterable[Any]) -> list[str]:
    """Digests each batch's bytes."""
    return [hashlib.sha256(b"".join(map(content, leaves(batch)))).hexdigest() for batch in batches]


def leaves(batch: Any) -> Iterator[Any]:
    """Yields a batch's arrays, in order of the features' names."""
    if isinstance(batch, dict):
        batch = [batch[name] for name in sorted(batch)]
    if isinstance(batch, list | tuple):
        for part in batch:
            yield from leaves(part)
    else:
        yield batch


def content(part: Any) -> bytes:
    """The bytes of an array; of strings their text."""
    array = np.asarray(part)
    return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def train_input(output: str) -> Input:
    """Opens the shuffled input of all engines."""
    return open_dataset(output).training_input("train", batch_size=4, seed=1, with_key=True)


def read(output: str) -> dict[str, list[str]]:
    """Digests an epoch by each engine that is installed."""
    found = {"as_numpy": digests(train_input(output).as_numpy())}
    if util.find_spec("tensorflow"):
        for native in (False, True):
            batches = train_input(output).as_tf_data(native=native).as_numpy_iterator()
            found["native" if native else "as_tf_data"] = digests(batches)
    return found


def tensorflow() -> str | None:
    """The version of TensorFlow, if it is installed."""
    return metadata.version("tensorflow") if util.find_spec("tensorflow") else None


if __name__ == "__main__":
    found = {"python": platform.python_version(), "tensorflow": tensorflow()}
    print(json.dumps(found | {"batches": [read(output) for output in sys.argv[1:]]}))
