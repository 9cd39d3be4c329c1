"""A batch of keyed rows with their images' bytes, which the transform graph takes as tensors."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.context.graph_inputs import as_tensor
from recordmill.pipeline.sources.faults import Reject

ImageBytes = bytes | list[bytes]
"""The bytes of a row's image, or of its images."""


@dataclass(frozen=True)
class Batch:
    """Keyed rows and, by image feature, their images' bytes: not in Arrow, where each step would copy them."""

    rows: pa.Table
    images: Mapping[str, list[ImageBytes]]
    files: Mapping[str, list[bytes]]
    """The joined SHA-256 digests of each row's files as the source has them, by image feature."""
    whole: dict[str, bytes]
    """The SHA-256 digests of local files that were read as a whole, by full path; also those of rows left out."""
    looks: Mapping[str, list[bytes]]
    """Perceptual hashes, by image feature that is compared by them (`pipeline.build.images.perceptual_hash`)."""
    needs: int
    """About how many bytes of memory the images take in the graph."""
    rejects: list[Reject] = field(default_factory=list)
    """The rejects of rows that are left out."""
    transcoded: Counter[str] = field(default_factory=Counter)
    """The number of images that were transcoded, by feature and format: `image TIFF`."""

    def keep(self, good: npt.NDArray[np.bool_]) -> "Batch":
        """Returns the rows that are good."""
        if good.all():
            return self
        images = {name: list(compress(values, good)) for name, values in self.images.items()}
        files, looks = (
            {name: list(compress(values, good)) for name, values in column.items()}
            for column in (self.files, self.looks)
        )
        return replace(self, rows=self.rows.filter(pa.array(good)), images=images, files=files, looks=looks)

    def tensor(self, name: str) -> Any:
        """Returns a feature's raw values: of shape [rows], or ragged."""
        column, images = self.rows[name], self.images.get(name)
        if images is None:
            return as_tensor(column)
        if not pa.types.is_list(column.type):
            return tf.constant(images, tf.string, shape=[self.rows.num_rows])
        values = list(chain.from_iterable(images))  # a sequence may have been cut at `max_length`
        flat = tf.constant(values, tf.string, shape=[len(values)])
        return tf.RaggedTensor.from_row_lengths(flat, np.array([len(row) for row in images], np.int64), validate=False)

    def digest(self, keys: list[bytes]) -> bytes:
        """Digests the keys and the images' files: a damaged image may decode without an error."""
        return hashlib.sha256(b"".join(chain(keys, *self.files.values()))).digest()
