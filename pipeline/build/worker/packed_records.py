"""The documents of a shard as packed Examples: the row's ids as bytes, each document's length, the first one's key.

>>> packing = PackedRecords("text", 1024)                              # doctest: +SKIP
>>> records = [record for batch in batches for record in packing.add(*batch)]  # doctest: +SKIP
>>> records += packing.rest()                                          # doctest: +SKIP
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from recordmill.pipeline.build.worker.examples import encode
from recordmill.pipeline.build.worker.text_packing import Row, RowPacker
from recordmill.transforms.contract.stored import part_name


class PackedRecords:
    """Packs and encodes one shard's documents, and counts documents and ids."""

    def __init__(self, feature: str, width: int) -> None:
        """Takes the text's name and the number of ids that a record holds."""
        self._feature = feature
        self._packer = RowPacker(width)
        self._documents = 0
        self._ids = 0

    def add(self, keys: Sequence[bytes], stored: Mapping[str, tf.RaggedTensor]) -> list[bytes]:
        """Takes the next documents, of the text ragged int64 [documents, None]; gives the records that are complete."""
        ids = stored[self._feature]
        values, splits = ids.values.numpy(), ids.row_splits.numpy()
        rows = []
        for key, start, end in zip(keys, splits, splits[1:], strict=False):
            self._documents += int(start == end)  # it stands in no row
            rows += self._packer.add(key, values[start:end])
        return self._encoded(rows)

    def rest(self) -> list[bytes]:
        """Gives the records that were not full."""
        return self._encoded(self._packer.rest())

    def report(self) -> dict[str, int]:
        """Gives the number of documents, those without ids among them, and of ids that the records hold."""
        return {"documents": self._documents, "ids": self._ids}

    def _encoded(self, rows: Sequence[Row]) -> list[bytes]:
        if not rows:
            return []
        self._documents += sum(row.documents for row in rows)
        self._ids += sum(sum(row.lengths) for row in rows)
        lengths = [len(row.lengths) for row in rows]
        parts = {
            "": tf.constant([np.concatenate(row.pieces).astype("<i4").tobytes() for row in rows]),
            "lengths": tf.RaggedTensor.from_row_lengths(np.concatenate([row.lengths for row in rows]), lengths),
        }
        return encode(
            [row.key for row in rows], {part_name(self._feature, part): values for part, values in parts.items()}
        )
