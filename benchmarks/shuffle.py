"""Measures the bytes of a packed row, by how many rows of a chunk belong to one shard; prints Markdown.

    python benchmarks/shuffle.py

A row of an image is its reference; a document has 75 words. On the local runner batches lie in scratch files, and what
crosses the shuffle is their names; on other runners it is the batches.
"""

import pickle
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import table

from recordmill.pipeline.build.worker.packing import Packed, pack
from recordmill.pipeline.dataset.placement import hash_keys

SHARDS = 1024
ROWS_OF_A_SHARD = (1, 4, 16, 64, 256)
WORDS = 75


def packed_rows(count: int, column: str, values: Sequence[bytes], keys: Sequence[bytes]) -> pa.Table:
    """Makes rows as workers pack them."""
    _, positions, samples = hash_keys(list(keys))
    return pa.table(
        {
            "@group": np.random.default_rng(1).integers(0, SHARDS, count),
            "@split": np.zeros(count, np.int64),
            "@hash": positions,
            "@sample": samples,
            "@key": pa.array(keys, pa.binary()),
            "@source": np.zeros(count, np.int16),
            "@chunk": np.zeros(count, np.int32),
            "@position": np.arange(count),
            column: pa.array(values, pa.binary()),
            "label": pa.array([key[:9] for key in keys], pa.binary()),
        }
    )


def documents(count: int) -> list[bytes]:
    """Makes texts of words as frequent as in a language."""
    numbers = np.random.default_rng(1).zipf(1.3, (count, WORDS)) % 20_000
    return [b" ".join(b"word%d" % number for number in row) for row in numbers.tolist()]


def shuffled(elements: Iterable[tuple[int, Packed]]) -> int:
    """Counts the bytes of elements as Beam's coder of pickles writes them."""
    return sum(len(pickle.dumps(element)) for element in elements)


def bytes_of(rows: pa.Table) -> Sequence[str]:
    """Formats the bytes of a row across a cluster's shuffle, in local scratch, and across the local shuffle."""
    with tempfile.TemporaryDirectory() as scratch:
        local = shuffled(pack(rows, scratch))
        files = sum(file.stat().st_size for file in Path(scratch).iterdir())
    return [f"{count / rows.num_rows:.0f}" for count in (shuffled(pack(rows, None)), files, local)]


def main() -> None:
    """Prints a table for images and one for documents."""
    for column in ("image", "text"):
        lines = []
        for in_shard in ROWS_OF_A_SHARD:
            count = SHARDS * in_shard
            keys = [b"n%08d/n%08d_%d.JPEG" % (row // 1000, row // 1000, row) for row in range(count)]
            values = documents(count) if column == "text" else [b"f" + key for key in keys]
            lines.append([str(in_shard), *bytes_of(packed_rows(count, column, values, keys))])
        table(f"Bytes of a packed row, {column}", ("rows of a batch", "cluster", "scratch", "local shuffle"), lines)


if __name__ == "__main__":
    main()
