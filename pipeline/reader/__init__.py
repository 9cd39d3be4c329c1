"""The training input: a published dataset as batches for a model.

It needs NumPy, Pillow and google-crc32c, and TensorFlow for `as_tf_data` alone.

>>> from pipeline.reader import open_dataset
>>> train = open_dataset("out/emoji").training_input("train", batch_size=256, seed=1)  # doctest: +SKIP
>>> for features, label in train.as_numpy():  # doctest: +SKIP
...     ...
>>> model.fit(train.as_tf_data())  # doctest: +SKIP
"""

from pipeline.manifest import DatasetError
from pipeline.reader.columns import Ragged
from pipeline.reader.dataset import Dataset, open_dataset
from pipeline.reader.input import Input
from pipeline.reader.mix import mix
from pipeline.reader.rows import DamagedRecordError

__all__ = ["DamagedRecordError", "Dataset", "DatasetError", "Input", "Ragged", "mix", "open_dataset"]
