"""Stored values to model-ready NumPy arrays, equal to `transforms.tensorflow.features` bit for bit.

Images that are scaled while they are read may differ by one level (`images`).

>>> from recordmill.transforms.contract.kinds.number import NumberDescription
>>> price = NumberDescription(stored="float32", normalize="none")
>>> parsed = {"price": np.array([1.5], np.float32), "key": [b"row-0"]}
>>> finish({"price": price}, parsed, FinishOptions())
{'price': array([1.5], dtype=float32), 'key': array([b'row-0'], dtype=object)}
"""

from collections.abc import Mapping

import numpy as np

from recordmill.transforms.contract.finish_options import FinishOptions
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.ragged import Column, Ragged
from recordmill.transforms.contract.stored import KEY, part_name
from recordmill.transforms.numpy.augment.chain import Augment
from recordmill.transforms.numpy.buffers import Array, BatchMemory
from recordmill.transforms.numpy.kinds import KINDS, Batch, Features
from recordmill.transforms.numpy.texts import Shares, strings


def finish(
    features: Features,
    columns: Mapping[str, Column],
    options: FinishOptions,
    *,
    augment: Mapping[str, Augment] | None = None,
    shares: Shares = 0.0,
    memory: BatchMemory | None = None,
) -> dict[str, Array | Ragged]:
    """Makes a batch of stored features model-ready: decoded, augmented, normalized, padded.

    Args:
        features: the features' descriptions; their order is the result's.
        columns: the columns of each of their parts, and the rows' keys where they are wanted.
        options: the forms of images and texts.
        augment: changes of images, by feature; the boxes of an image move with it.
        shares: float64 [rows] in [0, 1): choose one of a row's texts where not all are read; 0 chooses the first.
        memory: memory for large arrays; None: each its own.

    Returns:
        By the parts' names, in the features' order: arrays [rows, …]; strings as object arrays of bytes;
        ragged texts as `Ragged`. No rows give arrays of no rows.

    Raises:
        RowError: a row does not fit its feature's description.
        DatasetError: bfloat16 needs ml_dtypes, which is not installed.
    """
    empty = np.empty if memory is None else memory.empty
    batch = Batch(features, columns, options, augment or {}, empty, shares)
    # Images come first: they move their boxes.
    order = sorted(features, key=lambda name: not isinstance(features[name], Pixels))
    ready = {name: KINDS[type(features[name])](batch, name, features[name]) for name in order}
    named = {part_name(name, part): value for name in features for part, value in ready[name].items()}
    return {**named, KEY: strings(columns[KEY])} if KEY in columns else named
