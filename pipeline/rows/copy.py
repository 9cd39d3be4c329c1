"""Writes a shard again without some of its records: the others keep their bytes and their order.

>>> with ShardWriter("new.tfrecord", "new.index") as writer:    # doctest: +SKIP
...     removed = copy_without(records, writer, [17])
"""

from collections.abc import Collection

import numpy as np

from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.reader.records.random_access import Records
from recordmill.pipeline.rows.find import naming_damage

TOGETHER_BYTES = 16 << 20  # 16 MiB of records at a time, or one record


def copy_without(records: Records, writer: ShardWriter, removed: Collection[int]) -> list[bytes]:
    """Copies the records of a shard but some, each checked by its CRC-32C; gives the data of those left out.

    Args:
        records: one shard's.
        writer: an open writer of the new shard and its index.
        removed: the numbers of the records to leave out.

    Raises:
        DatasetError: a record is damaged, or a file is missing or not of its size.
        OSError: the new shard cannot be written.
    """
    left_out, leave = list[bytes](), set(removed)
    with naming_damage(records):
        sizes = records.sizes(np.arange(len(records)))
    cuts = np.searchsorted(np.cumsum(sizes), np.arange(TOGETHER_BYTES, sizes.sum(), TOGETHER_BYTES))
    for part in np.split(np.arange(len(records)), np.unique(cuts)):
        with naming_damage(records, int(part[0])):
            data = [bytes(record) for record in records.read(part)]
        writer.write([record for number, record in zip(part.tolist(), data, strict=True) if number not in leave])
        left_out += [record for number, record in zip(part.tolist(), data, strict=True) if number in leave]
    return left_out
