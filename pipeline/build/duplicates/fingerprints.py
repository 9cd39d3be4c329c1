"""Fingerprints of rows: a few numbers each, by which rows are compared, one bucket of rows at a time.

Equal rows are in one bucket, so a bucket is compared without the others, and no process holds the fingerprints of all
rows. The result depends neither on the number of buckets nor on the order of rows. A table of fingerprints has

    row             int64: the number of the chunk or shard that holds the row, and the position in it
    split           int16: the index of the row's split in the spec's `splits`
    high, low       uint64: the content that is compared; both 0 for a row that equals no other
    hash, sample    uint64: the hashes of its key, which decide the first row of several
    unit            uint64: the hash that decides its split: of the key, or of the group
    looks           the perceptual hashes, where images are compared by these

of which each use needs some.

>>> table = pa.table({"row": numbered(2, np.array([5, 6]))})
>>> parts_of(table["row"].to_numpy())
(array([2, 2]), array([5, 6]))
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.duplicates.clusters import Numbers, Rows
from recordmill.pipeline.dataset.placement import shard_of

POSITION_BITS = 40
BUCKET = "@group"
"""The column that says the bucket of each row (`worker.packing`)."""


def numbered(file: int, positions: Rows) -> Rows:
    """Returns the numbers of a file's rows, by their positions below 2**40; they rise with the files and positions."""
    return np.int64(file << POSITION_BITS) | positions.astype(np.int64)


def parts_of(rows: Rows) -> tuple[Rows, Rows]:
    """Returns the files and positions of row numbers."""
    return rows >> POSITION_BITS, rows & ((1 << POSITION_BITS) - 1)


def values(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Returns a column as an array."""
    return table[name].to_numpy()


def pairs(table: pa.Table, first: str, second: str) -> Numbers:
    """Returns two columns side by side, uint64 [rows, 2]."""
    return np.stack([values(table, first), values(table, second)], axis=1).astype(np.uint64)


def by_hash(table: pa.Table, column: str, buckets: int, first: int = 0) -> pa.Table:
    """Adds the bucket of each row, by a uniform hash: equal ranges, so that buckets in order hold rising hashes."""
    return table.append_column(BUCKET, pa.array(first + shard_of(values(table, column), buckets)))


def by_number(table: pa.Table, column: str, buckets: int) -> pa.Table:
    """Adds the bucket of each row, by any number of 0 or more."""
    return table.append_column(BUCKET, pa.array(values(table, column).astype(np.int64) % buckets))


def to_one(table: pa.Table) -> pa.Table:
    """Adds one bucket for all rows."""
    return table.append_column(BUCKET, pa.array(np.zeros(table.num_rows, np.int64)))


def as_numbers(column: pa.ChunkedArray) -> Numbers:
    """Returns a column of bytes of one width, a multiple of 8, as big-endian uint64 [rows, width / 8]."""
    whole = column.combine_chunks()
    width = whole.type.byte_width // 8
    numbers = np.frombuffer(whole.buffers()[1], ">u8").astype(np.uint64).reshape(-1, width)
    return numbers[whole.offset : whole.offset + len(whole)]


def fingerprints(contents: pa.Table, *columns: str, near: bool = False) -> pa.Table:
    """Makes the fingerprints of a file of contents (`duplicates.contents`).

    Args:
        contents: the file's table, which has `row`.
        columns: those of its columns that are kept.
        near: whether the content is that of images by their look. Images of equal bytes look the same, so the digest
            counts for rows alone whose images have no look.
    """
    digests = as_numbers(contents["digest"])
    kept = ["row", "split", *columns]
    if near:
        looks = contents["looks"].combine_chunks()
        seen = as_numbers(contents["looks"])[:, ::2].all(axis=1)
        joined = b"".join(hashlib.sha256(look).digest()[:16] for look in looks.to_pylist())
        of_looks = np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)
        digests, kept = np.where(seen.reshape(-1, 1), of_looks, digests), [*kept, "looks"]
    table = contents.select(kept)
    return table.append_column("high", pa.array(digests[:, 0])).append_column("low", pa.array(digests[:, 1]))
