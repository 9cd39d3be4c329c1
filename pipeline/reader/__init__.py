"""The training input: a published dataset as batches for a model.

It needs TensorFlow for `training_input` and `evaluation_input`, and nothing but the standard library for the rest.

>>> from pipeline.reader import open_dataset
>>> emoji = open_dataset("out/emoji")  # doctest: +SKIP
>>> model.fit(emoji.training_input("train", batch_size=256, seed=1))  # doctest: +SKIP
"""

from pipeline.manifest import DatasetError
from pipeline.reader.dataset import Dataset, open_dataset

__all__ = ["Dataset", "DatasetError", "open_dataset"]
